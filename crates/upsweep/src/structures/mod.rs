//! Structures over the engine's blocks: the built-in modifiers, the ordered table, the hash table
//! and the array; snapshots and backups of all of them.
//!
//! Formats, modifiers and readers are pure: no I/O, no threads, no clocks. The handles on top of
//! them use only the public block API, as structures of other crates do: see [`kind`] for what a
//! store has to know of them.

pub mod array;
pub mod backup;
pub mod batch;
pub mod expiring;
pub mod hash;
pub mod kind;
pub mod modifiers;
pub mod snapshot;
pub mod space;
pub mod table;
pub mod typed;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use array::CellKind;
use kind::{Kind, Kinds};
use modifiers::bind_builtins;

use crate::engine::block_format::BlockFormat;
use crate::engine::registry::{ModifierId, Modifiers, OwnFormats, Registry};
use crate::error::{Error, RequestError};

/// The formats of the spaces that a store keeps for itself: a table and an array of `i64`.
fn own_formats() -> OwnFormats {
    let references = Kind::array(CellKind::I64).format().to_owned();
    OwnFormats { quarantine: Kind::table().format().to_owned(), references }
}

/// The registrations that every store needs: the built-in modifiers and block formats, and which of
/// them the store uses for itself.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry { own: own_formats(), ..Registry::default() };
    bind_builtins(&mut registry.builtins);
    let kinds = Kinds::builtin().map(|kind| kind.format());
    let raw: Arc<dyn BlockFormat> = Arc::new(table::RawFormat);
    let formats = kinds.into_iter().chain([raw]);
    registry.formats.extend(formats.map(|format| (format.name().to_owned(), format)));
    registry
}

/// An error of the block API, which knows spaces by number only, with the name of the structure.
fn of_structure(error: Error, name: &str) -> Error {
    match error {
        Error::Request(RequestError::NoTable(_)) => RequestError::NoTable(name.to_owned()).into(),
        error => error,
    }
}

/// The error for a modifier that refuses the current value.
fn refused(modifiers: &Modifiers, modifier: ModifierId, reason: String) -> Error {
    let number = || format!("number {}", modifier.0);
    let found = modifiers.get(modifier).map(|found| found.name().to_owned());
    RequestError::Refused { modifier: found.unwrap_or_else(number), reason }.into()
}

/// The result of a future that is ready at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("no part of it waits"),
    }
}

mod sealed {
    /// Implemented only by types of this library, so that traits that require it are sealed.
    pub trait Sealed {}
}
