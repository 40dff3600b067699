//! Return of free space of files to their file systems.
//!
//! Free space of a file is allocated, so that accepted updates have room. Free space beyond that
//! and beyond a reserve is *in excess*: holes are punched, and from then on the space is no longer
//! free (see `placement/space_map.rs`); growth allocates it again. Nothing that can be recovered
//! refers to free space, and a read of space that has just been freed is detected anyway.
//!
//! Only space that was in excess for the whole of a window is returned, so that what runs and
//! checkpoints use temporarily stays. It is returned a piece at a time, because a file system
//! writes nothing else to a file while it punches a hole.
//!
//! The positions of holes are not stored. At open every granule that is wholly free may be one: it
//! has to be allocated before it is used, and it may be allocated space that was due for return in
//! an earlier session. So if it is not needed within the window, it is returned as well: punching a
//! hole twice has no effect.

use super::{Asked, Growth};
use crate::device::{DeviceId, Operation};
use crate::engine::base::Base;
use crate::engine::io::IoKind;
use crate::engine::policy::{self, PUNCH_BYTES_MAX};

/// The space to return.
pub(super) struct Punching {
    window_began_us: u64,
    /// The least excess in this window, in bytes.
    least: u64,
    /// Bytes of free space to return now.
    left: u64,
    /// Possible holes at open are to be returned now.
    is_rest_due: bool,
    devices: Vec<DeviceHoles>,
}

struct DeviceHoles {
    /// It supports discards.
    punches: bool,
    /// Possible holes at open below this offset may be allocated.
    rest_below: u64,
}

impl Punching {
    pub(super) fn new(growable: &[bool]) -> Self {
        let device = |growable: &bool| DeviceHoles { punches: *growable, rest_below: u64::MAX };
        Self {
            window_began_us: 0,
            least: u64::MAX,
            left: 0,
            is_rest_due: false,
            devices: growable.iter().map(device).collect(),
        }
    }

    pub(super) fn begin_window(&mut self, now_us: u64) {
        (self.window_began_us, self.least) = (now_us, u64::MAX);
    }

    pub(super) fn stop(&mut self) {
        (self.left, self.is_rest_due) = (0, false);
    }

    /// A device cannot punch holes, or has failed: it is not asked again. A part of the hole may
    /// have been punched, so it stays one.
    pub(super) fn refused(&mut self, device: DeviceId) {
        self.devices[usize::from(device.0)].punches = false;
    }

    fn look(&mut self, excess: u64, now_us: u64, window_us: u64) {
        self.least = self.least.min(excess);
        if now_us >= self.window_began_us.saturating_add(window_us) {
            self.left = self.left.max(self.least);
            self.is_rest_due = true;
            self.begin_window(now_us);
        }
        self.left = self.left.min(excess);
    }
}

impl Growth {
    /// Treats all free granules of files as holes, as any of them may be one.
    pub(in crate::engine) fn find_holes(&self, base: &mut Base) {
        let granule = base.config.file_space.granule_bytes;
        for device in self.growable() {
            base.index.space_map.take_for_holes(device, granule);
        }
    }

    /// Returns free space of files to their file systems at once, except what the store keeps: see
    /// [`FileSpace`](crate::engine::FileSpace).
    pub(in crate::engine) fn request_punching(&mut self) {
        let punching = &mut self.punching;
        (punching.left, punching.is_rest_due) = (u64::MAX, true);
    }

    /// Whether free space of files is being returned. This ends when there is no excess any more,
    /// when devices refuse, or when they have to grow and cannot.
    #[must_use]
    pub(in crate::engine) fn is_punching(&self) -> bool {
        let punching = &self.punching;
        punching.left > 0 || punching.is_rest_due || matches!(self.asked, Some(Asked::Hole))
    }

    /// Punches the next hole, unless a device is to grow; `spare` are the free bytes that are not
    /// reserved.
    pub(super) fn pump_punching(&mut self, base: &mut Base, spare: u64) {
        let space = base.config.file_space;
        let excess = policy::excess_bytes(spare, base.index.used_bytes(), &space);
        self.punching.look(excess, base.now_us, space.window_us);
        if self.is_under_way() || base.gate.is_paused() || base.index.is_replaying() {
            return;
        }
        let Some((device, offset, bytes)) = self.next_hole(base) else { return };
        let operation = Operation::Discard { offset, bytes };
        base.io.submit(IoKind::FileSpace, None, device, operation);
        self.asked = Some(Asked::Hole);
        base.metrics.holes_punched_total.add(1);
    }

    /// The place of the next hole to punch: in free space, which is a hole from now on; then in a
    /// possible hole at open.
    fn next_hole(&mut self, base: &mut Base) -> Option<(DeviceId, u64, u64)> {
        let granule = base.config.file_space.granule_bytes;
        let punching = &mut self.punching;
        let most = punching.left.min(PUNCH_BYTES_MAX.next_multiple_of(granule));
        let punches = |device: DeviceId| punching.devices[usize::from(device.0)].punches;
        let found = base.index.space_map.punch_high(granule, most, punches);
        punching.left = found.map_or(0, |(_, _, bytes)| punching.left - bytes);
        if found.is_some() || !punching.is_rest_due {
            return found;
        }
        let devices = (0..).map(DeviceId).zip(&mut punching.devices);
        let rest = devices.filter(|(_, holes)| holes.punches).find_map(|(device, holes)| {
            let hole = base.index.space_map.hole_below(device, holes.rest_below, PUNCH_BYTES_MAX);
            holes.rest_below = hole.map_or(0, |(offset, _)| offset);
            hole.map(|(offset, bytes)| (device, offset, bytes))
        });
        punching.is_rest_due = rest.is_some();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_is_the_least_that_was_in_excess_in_a_whole_window() {
        let mut punching = Punching::new(&[true]);
        punching.begin_window(1000);
        for (excess, now_us) in [(80, 1000), (30, 1400), (90, 1999)] {
            punching.look(excess, now_us, 1000);
            assert_eq!(punching.left, 0, "the window is not over at {now_us}");
        }
        punching.look(70, 2000, 1000);
        assert_eq!(punching.left, 30);
        assert!(punching.is_rest_due, "and what may have been holes at open");
        punching.look(20, 2100, 1000);
        assert_eq!(punching.left, 20, "never more than is in excess now");
    }

    #[test]
    fn a_window_begins_anew_when_devices_grow_and_nothing_goes_back_then() {
        let mut punching = Punching::new(&[true]);
        punching.begin_window(0);
        punching.look(50, 900, 1000);
        punching.begin_window(900);
        punching.stop();
        punching.look(50, 1000, 1000);
        assert_eq!((punching.left, punching.is_rest_due), (0, false));
        punching.look(60, 1900, 1000);
        assert_eq!(punching.left, 50);
    }

    #[test]
    fn a_device_that_cannot_grow_or_has_refused_takes_no_discards() {
        let mut punching = Punching::new(&[true, false]);
        let punches = |punching: &Punching| -> Vec<bool> {
            punching.devices.iter().map(|device| device.punches).collect()
        };
        assert_eq!(punches(&punching), [true, false]);
        punching.refused(DeviceId(0));
        assert_eq!(punches(&punching), [false, false]);
    }
}
