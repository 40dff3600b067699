//! Upsweep, an update-aware storage engine.

pub mod device;
pub mod engine;
mod error;
pub mod log;
pub mod placement;
pub mod runtime;
mod store;
pub mod structures;

pub use engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
pub use error::{ClosedError, Damage, Error, RequestError, RetryError};
pub use runtime::{CreateOptions, Durability, OpenOptions, Status, Ticket};
pub use store::{QuarantinedUpdate, Store, StoreBuilder};
pub use structures::table::{Batch, Scan, Table, Value};
pub use structures::typed::{TableDefinition, TypedTable};
