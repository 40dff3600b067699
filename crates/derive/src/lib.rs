//! `#[derive(Counters)]` for the storage engine Upsweep, which exports it with its feature
//! `derive`; see `upsweep::Counters` for what it generates.
//!
//! Steps: read the fields and the rule of each; generate the struct of changes with one method per
//! field, and implement the two traits. Errors point at the field that causes them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Type, parse_macro_input};

/// Derives `upsweep::Counters` and `upsweep::typed::Value` for a struct with named fields, each
/// with a rule: `#[counter(add)]`, `#[counter(max)]`, `#[counter(min)]` or `#[counter(set)]`.
/// Also generates a struct of changes, whose name is that of the struct followed by `Change`, and
/// the associated function `change`, which returns an empty one.
#[proc_macro_derive(Counters, attributes(counter))]
pub fn derive_counters(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    counters(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// A field, and the name of its rule as a constant.
struct Counter<'a> {
    name: &'a Ident,
    number: &'a Type,
    rule: Ident,
}

fn counters(input: &DeriveInput) -> Result<TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "only structs can derive Counters"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.span(), "a struct of counters must have named fields"));
    };
    if fields.named.is_empty() {
        return Err(Error::new(input.span(), "a struct of counters must have at least one field"));
    }
    if let Some(generic) = input.generics.params.first() {
        return Err(Error::new(generic.span(), "a struct of counters cannot be generic"));
    }
    let counters: Result<Vec<Counter<'_>>, Error> = fields.named.iter().map(counter).collect();
    let counters = counters?;
    let (change, traits) = (change_of(input, &counters), traits_of(input, &counters));
    Ok(quote! { #change #traits })
}

fn counter(field: &Field) -> Result<Counter<'_>, Error> {
    let name = field.ident.as_ref().ok_or_else(|| Error::new(field.span(), "unnamed field"))?;
    let mut attributes = field.attrs.iter().filter(|found| found.path().is_ident("counter"));
    let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
        let advice = "give the field one rule: #[counter(add)], (max), (min) or (set)";
        return Err(Error::new(field.span(), advice));
    };
    let rule: Ident = attribute.parse_args()?;
    let known = ["add", "max", "min", "set"].iter().any(|known| rule == known);
    if !known {
        return Err(Error::new(rule.span(), "the rules are add, max, min and set"));
    }
    let rule = format_ident!("{}", rule.to_string().to_uppercase());
    Ok(Counter { name, number: &field.ty, rule })
}

/// The struct of changes, and the function that returns an empty one.
fn change_of(input: &DeriveInput, counters: &[Counter<'_>]) -> TokenStream {
    let (visibility, name) = (&input.vis, &input.ident);
    let change = format_ident!("{name}Change");
    let of_all = format!("A change of some fields of [`{name}`]; the others keep their values.");
    let fields = counters.iter().map(|Counter { name, number, .. }| {
        quote! { #name: ::core::option::Option<#number> }
    });
    let methods = counters.iter().map(|Counter { name, number, rule }| {
        let of_one = format!(
            "Changes `{name}` by its rule, `{}`; replaces an earlier change of this field.",
            rule.to_string().to_lowercase()
        );
        quote! {
            #[doc = #of_one]
            #[must_use]
            #visibility fn #name(mut self, number: #number) -> Self {
                self.#name = ::core::option::Option::Some(number);
                self
            }
        }
    });
    quote! {
        #[doc = #of_all]
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #visibility struct #change { #(#fields),* }

        impl #change { #(#methods)* }

        impl #name {
            /// An empty change: call its methods to change fields.
            #[must_use]
            #visibility fn change() -> #change {
                ::core::default::Default::default()
            }
        }
    }
}

/// The implementations of the traits.
fn traits_of(input: &DeriveInput, counters: &[Counter<'_>]) -> TokenStream {
    let name = &input.ident;
    let change = format_ident!("{name}Change");
    let article = format!("a struct {name} of counters");
    let count = counters.len();
    let names: Vec<_> = counters.iter().map(|counter| counter.name).collect();
    let rules = counters.iter().map(|Counter { number, rule, .. }| {
        quote! { <#number as ::upsweep::typed::CounterField>::#rule }
    });
    let to_word = quote! { ::upsweep::typed::CounterField::to_word };
    let from_word = quote! { ::upsweep::typed::CounterField::from_word };
    quote! {
        impl ::upsweep::typed::Counters for #name {
            const RULES: &'static [::upsweep::typed::CounterRule] = &[#(#rules),*];
            type Change = #change;

            fn operands(
                change: #change,
            ) -> ::std::vec::Vec<::core::option::Option<u64>> {
                ::std::vec![#(change.#names.map(#to_word)),*]
            }
        }

        impl ::upsweep::typed::Value for #name {
            type Ref<'v> = Self;
            type Owned = Self;
            const KIND: ::upsweep::typed::derived::ValueKind =
                ::upsweep::typed::derived::ValueKind::Bytes;
            const NAME: &'static str = #article;
            const MODIFIERS: &'static [::upsweep::typed::derived::ModifierId] =
                &[::upsweep::typed::derived::COUNTERS];

            fn to_ref(&self) -> Self {
                *self
            }

            fn encode(
                value: Self,
                out: &mut ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<(), ::std::string::String> {
                let words = [#(#to_word(value.#names)),*];
                out.extend(::upsweep::typed::derived::encode_words(&words));
                ::core::result::Result::Ok(())
            }

            fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                let words = ::upsweep::typed::derived::decode_words(bytes, #count)?;
                let mut words = words.into_iter();
                ::core::option::Option::Some(Self { #(#names: #from_word(words.next()?)),* })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counters;

    fn refusal(item: &str) -> String {
        let input = syn::parse_str(item).expect("an item");
        counters(&input).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_no_struct_of_counters_is_told() {
        let rule = "give the field one rule: #[counter(add)], (max), (min) or (set)";
        for (item, expected) in [
            ("enum Counts { Some }", "only structs can derive Counters"),
            ("struct Counts(u64);", "a struct of counters must have named fields"),
            ("struct Counts {}", "a struct of counters must have at least one field"),
            (
                "struct Counts<T> { #[counter(add)] hits: T }",
                "a struct of counters cannot be generic",
            ),
            ("struct Counts { hits: u64 }", rule),
            ("struct Counts { #[counter(add)] #[counter(max)] hits: u64 }", rule),
            ("struct Counts { #[counter(sub)] hits: u64 }", "the rules are add, max, min and set"),
        ] {
            assert_eq!(refusal(item), expected, "{item}");
        }
    }
}
