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

use super::table::{ByKey, Lifetime, leaf};
use crate::engine::block_format::{Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing};
use crate::engine::modifier::ValueRef;

/// Name of the block format of tables of expiring records.
pub const EXPIRING_FORMAT: &str = "expiring";

/// The leaf of a table of expiring records. Name: `expiring`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpiringFormat;

impl BlockFormat for ExpiringFormat {
    fn name(&self) -> &'static str {
        EXPIRING_FORMAT
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn keeps_key_order(&self) -> bool {
        true
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        leaf::apply_with_ranges(input, Lifetime::Limited)
    }

    fn for_each(
        &self,
        _low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        leaf::for_each(body, visit)
    }

    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        leaf::merge::<ByKey>(left, right, body_bytes_max)
    }

    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        leaf::check::<ByKey>(body, low, high, Lifetime::Limited)
    }
}
