//! Tables of expiring records: from its expiry time on a record is absent, and the sweep drops it
//! when it next writes the record's block.
//!
//! A leaf is that of an ordered table whose values begin with a time (see
//! [`expires_at_format`](super::modifiers)), so the table, its readers and its scans are used
//! unchanged. This module filters their results by the time of day.
//!
//! Invariants:
//! - Whether the sweep has dropped a record that has expired makes no difference to any query or
//!   update. Queries compare with the time of day after reading. An update whose effect depends on
//!   it carries the time at which it was declared, and no sweep before its acceptance drops a
//!   record that expires after that (see [`Moment`](crate::runtime::Moment)).
//! - Other updates that depend on the current value are refused: they carry no time.

mod batch;
mod handle;
mod scan;
#[cfg(test)]
mod tests;

pub use handle::ExpiringTable;
pub use scan::ExpiringScan;
