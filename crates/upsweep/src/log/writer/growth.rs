//! Steps of extending rings; see `log/ring.rs` for when they may be extended.

use super::{Log, Ring};
use crate::device::DeviceId;

impl Log {
    /// Sets the target length of the ring on the `index`th device, in bytes: it is extended when it
    /// is half full or has no room, never shortened. Without this call rings keep their length.
    pub fn want(&mut self, index: usize, bytes: u64) {
        let segments = bytes / u64::from(self.config.segment_bytes);
        self.rings[index].wanted = u32::try_from(segments).unwrap_or(u32::MAX);
    }

    /// Whether a ring is being extended. Only one is at a time.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.rings.iter().any(Ring::is_growing)
    }

    /// Begins to extend a ring, if one is due and can be: returns its device and the range, as
    /// offset and length, by which that has to be extended. Report the result with
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

    /// The device of the growing ring has that size, stably, or could not be extended. If it has,
    /// zeros are written to the new part next: see [`Log::blank`].
    pub fn extended(&mut self, done: bool) {
        let Some(index) = self.rings.iter().position(Ring::is_growing) else { return };
        self.rings[index].extended(done);
        self.metrics.log_growths_total.add(u64::from(done));
        self.config.regions[index] = self.rings[index].region;
    }

    /// Where on a device zeros are to be written next, and how many bytes; not more than one such
    /// write may be in flight. Report its completion with [`Log::blanked`].
    #[must_use]
    pub fn blank(&self) -> Option<(DeviceId, u64, u64)> {
        self.rings.iter().find_map(|ring| {
            let (offset, bytes) = ring.blank()?;
            Some((ring.region.device, ring.region.offset + offset, bytes))
        })
    }

    /// The write that [`Log::blank`] requested is on stable media. Call [`Log::dispatch`]
    /// afterwards.
    pub fn blanked(&mut self) {
        for ring in &mut self.rings {
            if let Some((_, bytes)) = ring.blank() {
                ring.blanked(bytes);
            }
        }
    }
}
