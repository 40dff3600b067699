//! How rings become longer, step by step; see `log/ring.rs` for when they may.

use super::{Log, Ring};
use crate::device::DeviceId;

impl Log {
    /// How long the ring on the `index`th device should be, in bytes: it becomes longer when it is
    /// half full or has no room, never shorter. Without this call rings stay as they are.
    pub fn want(&mut self, index: usize, bytes: u64) {
        let segments = bytes / u64::from(self.config.segment_bytes);
        self.rings[index].wanted = u32::try_from(segments).unwrap_or(u32::MAX);
    }

    /// Whether a ring is on its way to be longer. One is at a time.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.rings.iter().any(Ring::is_growing)
    }

    /// Begins to make a ring longer, if one should be that can be: returns its device and the
    /// range, as offset and length, by which that has to be extended. Tell the result by
    /// [`Log::extended`].
    pub fn begin_growth(&mut self) -> Option<(DeviceId, u64, u64)> {
        if self.failed || self.is_growing() {
            return None;
        }
        let (released, has_refused) = (self.reclaimable(), self.has_refused);
        let is_due = |ring: &Ring| has_refused || 2 * ring.free_segments() < ring.segments();
        let begun = self.rings.iter_mut().filter(|ring| is_due(ring)).find_map(|ring| {
            let (offset, bytes) = ring.begin_growth(released)?;
            Some((ring.region.device, offset, bytes))
        });
        self.has_refused &= begun.is_none();
        begun
    }

    /// The device of the ring that grows has that size, stably, or does not. If it has, zeros go to
    /// the new part next: see [`Log::blank`].
    pub fn extended(&mut self, done: bool) {
        let Some(index) = self.rings.iter().position(Ring::is_growing) else { return };
        self.rings[index].extended(done);
        self.metrics.log_growths_total.add(u64::from(done));
        self.config.regions[index] = self.rings[index].region;
    }

    /// Where on a device zeros are to be written next, and how many bytes; not more than one such
    /// write may be in flight. Tell that they are there by [`Log::blanked`].
    #[must_use]
    pub fn blank(&self) -> Option<(DeviceId, u64, u64)> {
        self.rings.iter().find_map(|ring| {
            let (offset, bytes) = ring.blank()?;
            Some((ring.region.device, ring.region.offset + offset, bytes))
        })
    }

    /// What [`Log::blank`] asked for is on stable media. Call [`Log::dispatch`] afterwards.
    pub fn blanked(&mut self) {
        for ring in &mut self.rings {
            if let Some((_, bytes)) = ring.blank() {
                ring.blanked(bytes);
            }
        }
    }
}
