//! Upsweep, an update-aware storage engine.

pub mod device;
pub mod engine;
mod error;
pub mod log;
pub mod placement;
pub mod runtime;
pub mod structures;

pub use error::{ClosedError, Damage, Error, RequestError, RetryError};
