//! The room in the rings: what an append may take, and what is used.

use super::{Assembly, Log, Ring};
use crate::log::{AppendError, Quota};
use crate::metrics::LogRefusal;

/// The space of a log in bytes, for records of [`Quota::User`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRoom {
    /// Used, or promised to batches in progress: at most the limit.
    pub used_bytes: u64,
    /// Records are refused from here on.
    pub limit_bytes: u64,
    /// [`Log::prospect_bytes`], the reserve for other records included.
    pub prospect_bytes: u64,
}

impl Log {
    /// Refuses if `count` batches of `bytes` together may not find room; see [`Quota`].
    pub(super) fn check_space(
        &mut self,
        bytes: u64,
        count: usize,
        quota: Quota,
    ) -> Result<(), AppendError> {
        let entered = self.segments_entered(bytes, count);
        let segments: u64 = self.rings.iter().map(|ring| u64::from(ring.segments())).sum();
        let reserve = if quota == Quota::User { reserve_of(segments) } else { 0 };
        if self.free_segments() < entered + reserve {
            self.metrics.log_refusals_total[LogRefusal::Full].add(1);
            self.has_refused = true;
            return Err(AppendError::Full);
        }
        Ok(())
    }

    /// Most free segments that `count` batches of `bytes` together may enter; see [`Quota`].
    fn segments_entered(&self, bytes: u64, count: usize) -> u64 {
        let short = self.rings.iter().filter(|ring| ring.rest() < bytes).count() as u64;
        (short + 2 * bytes / u64::from(self.config.segment_bytes)).min(count as u64)
    }

    pub(super) fn free_segments(&self) -> u64 {
        self.rings.iter().map(|ring| u64::from(ring.free_segments())).sum()
    }

    /// Bytes of the rings that are neither free nor left in a segment being filled.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let rest: u64 = self.rings.iter().map(Ring::rest).sum();
        self.capacity_bytes() - rest - self.free_segments() * u64::from(self.config.segment_bytes)
    }

    /// The room for records of [`Quota::User`]: the criterion of [`Log::append`] itself.
    #[must_use]
    pub fn room(&self) -> LogRoom {
        let segment = u64::from(self.config.segment_bytes);
        let open = self.open.as_ref();
        let waiting = self.sealed_bytes + open.map_or(0, Assembly::bytes);
        let count = self.sealed.len() + usize::from(open.is_some());
        let promised = self.segments_entered(waiting, count) * segment;
        let prospect_bytes = self.prospect_bytes();
        let segments = prospect_bytes / segment;
        let limit_bytes = (segments - reserve_of(segments)) * segment;
        let used_bytes = (self.used_bytes() + promised).min(limit_bytes);
        LogRoom { used_bytes, limit_bytes, prospect_bytes }
    }

    /// Bytes of all rings.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.rings.iter().map(Ring::bytes).sum()
    }

    /// Bytes that all rings will have before anything in them has to be released: as
    /// [`Log::capacity_bytes`], or more where a ring can be extended.
    #[must_use]
    pub fn prospect_bytes(&self) -> u64 {
        let released = self.reclaimable();
        let segments = self.rings.iter().map(|ring| u64::from(ring.segments_in_prospect(released)));
        segments.sum::<u64>() * u64::from(self.config.segment_bytes)
    }
}

/// Segments of this many that are not for records of [`Quota::User`].
pub(super) fn reserve_of(segments: u64) -> u64 {
    segments.div_ceil(8).max(2)
}
