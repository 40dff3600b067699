//! Structures over the engine's blocks: the built-in modifiers, the ordered table, the hash table
//! and the array; snapshots and backups of all of them.
//!
//! Formats, modifiers and readers are pure: no I/O, no threads, no clocks. The handles on top of
//! them use the public block API and nothing else, which proves that others can build structures
//! too.

pub mod array;
pub mod backup;
pub mod batch;
pub mod hash;
pub mod kind;
pub mod modifiers;
pub mod snapshot;
pub mod table;
pub mod typed;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::engine::block_format::BlockFormat;
use crate::engine::registry::{ModifierId, Modifiers};
use crate::error::{Error, RequestError};

/// The built-in block formats.
#[must_use]
pub fn formats() -> [Arc<dyn BlockFormat>; 4] {
    [
        Arc::new(table::TableFormat),
        Arc::new(table::RawFormat),
        Arc::new(hash::HashFormat),
        Arc::new(array::ArrayFormat::default()),
    ]
}

/// An error of the block API, which knows spaces by number alone, with the name of the structure.
fn of_structure(error: Error, name: &str) -> Error {
    match error {
        Error::Request(RequestError::NoTable(_)) => RequestError::NoTable(name.to_owned()).into(),
        error => error,
    }
}

/// The error that says that a modifier refuses the value that is there.
fn refused(modifiers: &Modifiers, modifier: ModifierId, reason: String) -> Error {
    let number = || format!("number {}", modifier.0);
    let found = modifiers.get(modifier).map(|found| found.name().to_owned());
    RequestError::Refused { modifier: found.unwrap_or_else(number), reason }.into()
}

/// The result of a future all of whose parts are there already.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("no part of it waits"),
    }
}

mod sealed {
    /// A type of this library: no other implements a trait that asks for it.
    pub trait Sealed {}
}
