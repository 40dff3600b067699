//! Values of any type with `serde`, in the format of postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::value_format::Value;
use crate::engine::modifier::ValueKind;
use crate::engine::registry::ModifierId;

/// A value of any type that `serde` can write and read, stored in the format of
/// [postcard](https://postcard.jamesmunns.com): short, and without field names, so a change of the
/// type changes the meaning of stored bytes. Queries return a `T`.
///
/// ```
/// # fn main() -> Result<(), upsweep::Error> {
/// use serde::{Deserialize, Serialize};
/// use upsweep::{Postcard, Store, TableDefinition};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Person {
///     name: String,
///     born: u16,
/// }
///
/// const PEOPLE: TableDefinition<u32, Postcard<Person>> = TableDefinition::new("people");
///
/// let store = Store::in_memory()?;
/// let people = store.typed(PEOPLE)?;
/// let ada = Person { name: "Ada".to_owned(), born: 1815 };
/// people.put(1, &ada)?;
/// assert_eq!(people.get(1)?, Some(ada));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Postcard<T>(pub T);

impl<T: Serialize + DeserializeOwned + 'static> Value for Postcard<T> {
    type Ref<'v> = &'v T;
    type Owned = T;
    const KIND: ValueKind = ValueKind::Bytes;
    const NAME: &'static str = "a value in the format of postcard";
    const MODIFIERS: &'static [ModifierId] = &[];
    fn to_ref(&self) -> &T {
        &self.0
    }
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), String> {
        let written = postcard::to_extend(value, std::mem::take(out));
        *out = written.map_err(|error| error.to_string())?;
        Ok(())
    }
    fn decode(bytes: &[u8]) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(value)
    }
}
