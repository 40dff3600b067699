//! Tables of records that expire: after its time a record is absent, and the sweep leaves it out
//! when it writes the record's block anyway.
//!
//! A leaf is that of an ordered table whose values begin with a time (see
//! [`expires_at_format`](super::modifiers)), so the table, its readers and its scans are used as
//! they are. What is here judges what they find by the time of day.
//!
//! Invariants:
//! - Whether the sweep has dropped a record that has expired makes no difference to any query or
//!   update. Queries judge by the time of day after they have looked. An update whose effect
//!   depends on it carries the moment as of which it was declared, and no sweep before its
//!   acceptance drops what expires after that (see [`Moment`](crate::runtime::Moment)).
//! - Other updates that look at the value that is there are refused: they carry no moment.

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

/// Name of the block format of tables of records that expire.
pub const EXPIRING_FORMAT: &str = "expiring";

/// The leaf of a table of records that expire. Name: `expiring`.
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
