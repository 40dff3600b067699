//! Structs of counters: several numbers in one value, each with its own rule, changed in one
//! update.

use super::value_format::Value;
use crate::structures::modifiers::{CounterRule, counters_operand};

/// A struct whose fields are numbers, each with a rule by which updates change it. Derived, with
/// the feature `derive`:
///
/// ```
/// # #[cfg(feature = "derive")]
/// # fn main() -> Result<(), upsweep::Error> {
/// use upsweep::{Counters, Store, TableDefinition};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Counters)]
/// struct Page {
///     #[counter(add)]
///     hits: u64,
///     #[counter(max)]
///     slowest_ms: u64,
///     #[counter(min)]
///     first_seen: i64,
///     #[counter(set)]
///     last_status: u64,
/// }
///
/// const PAGES: TableDefinition<str, Page> = TableDefinition::new("pages");
///
/// let store = Store::in_memory()?;
/// let pages = store.typed(PAGES)?;
/// pages.change("/", Page::change().hits(1).slowest_ms(12).first_seen(100).last_status(200))?;
/// pages.change("/", Page::change().hits(1).slowest_ms(7).last_status(404))?;
/// let page = pages.get("/")?.expect("changed above");
/// assert_eq!(page, Page { hits: 2, slowest_ms: 12, first_seen: 100, last_status: 404 });
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "derive"))]
/// # fn main() {}
/// ```
///
/// | rule | a change sets the field to | before the first change |
/// |---|---|---|
/// | `add` | the sum; integers wrap around | 0 |
/// | `max` | the larger | the smallest number there is |
/// | `min` | the smaller | the largest number there is |
/// | `set` | the new one | 0 |
///
/// Fields are `u64`, `i64` or `f64`. They are stored in their order, 8 bytes each: a field may be
/// renamed, and nothing else about the struct may change while there are values of it.
pub trait Counters: Copy + Value {
    /// The rules of the fields, in order.
    const RULES: &'static [CounterRule];

    /// The changes of the fields.
    type Change;

    /// The operand for each field; `None` for unchanged ones.
    fn operands(change: Self::Change) -> Vec<Option<u64>>;

    /// The operand of the modifier `counters` for a change.
    #[must_use]
    fn operand(change: Self::Change) -> Vec<u8> {
        counters_operand(Self::RULES, &Self::operands(change))
    }
}

/// A number that can be a field of a struct of [`Counters`]: `u64`, `i64` or `f64`.
pub trait CounterField: Copy {
    /// The rule that adds.
    const ADD: CounterRule;
    /// The rule that keeps the larger.
    const MAX: CounterRule;
    /// The rule that keeps the smaller.
    const MIN: CounterRule;
    /// The rule that sets the new one.
    const SET: CounterRule;

    /// The number as a word.
    fn to_word(self) -> u64;

    /// The number of a word.
    fn from_word(word: u64) -> Self;
}

macro_rules! counter_field {
    ($type:ty, $add:ident, $max:ident, $min:ident, $to:expr, $from:expr) => {
        impl CounterField for $type {
            const ADD: CounterRule = CounterRule::$add;
            const MAX: CounterRule = CounterRule::$max;
            const MIN: CounterRule = CounterRule::$min;
            const SET: CounterRule = CounterRule::Set;
            fn to_word(self) -> u64 {
                $to(self)
            }
            fn from_word(word: u64) -> Self {
                $from(word)
            }
        }
    };
}

counter_field!(u64, AddU64, MaxU64, MinU64, std::convert::identity, std::convert::identity);
counter_field!(i64, AddI64, MaxI64, MinI64, i64::cast_unsigned, u64::cast_signed);
counter_field!(f64, AddF64, MaxF64, MinF64, f64::to_bits, f64::from_bits);
