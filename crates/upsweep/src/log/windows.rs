//! What was read of the rings, in *windows* of a request, so that recovery, which goes over the
//! log several times, reads it once if it fits into memory.
//!
//! Passes are sequential on each device, so the window to drop is the one that was passed last: its
//! turn is the furthest away. Where a device is read in sequence, its next window is read along,
//! and so are the next ones of all other devices, because the batches of a log alternate between
//! them.

use std::collections::BTreeMap;

use super::{LogConfig, UNIT_BYTES};
use crate::device::{self, Buffer, Devices};

/// A device and the number of a window in its ring.
type At = (usize, u64);

#[derive(Debug)]
struct Window {
    /// `None` if it could not be read.
    content: Option<Buffer>,
    bytes: u64,
    /// Whether something in it was read in this pass.
    is_passed: bool,
    /// When it was read, in windows.
    read_at: u64,
}

/// The windows that are in memory.
#[derive(Debug)]
pub(super) struct Windows {
    kept: BTreeMap<At, Window>,
    /// Length of a window; the last one of a ring has the rest.
    window_bytes: u64,
    bytes: u64,
    bytes_max: u64,
    /// Windows that were read so far.
    reads: u64,
    /// The window of each device that was used last.
    current: Vec<Option<u64>>,
    /// A part that no window has as a whole.
    part: Vec<u8>,
}

impl Windows {
    /// None, of a log with this configuration.
    pub(super) fn new(config: &LogConfig) -> Self {
        // Not much is read for a batch of a short segment.
        let half = u64::from(config.segment_bytes / 2).next_multiple_of(UNIT_BYTES);
        Self {
            kept: BTreeMap::new(),
            window_bytes: half.min(config.bulk.request_bytes.into()),
            bytes: 0,
            bytes_max: config.kept_bytes as u64,
            reads: 0,
            current: vec![None; config.regions.len()],
            part: Vec::new(),
        }
    }

    /// A new pass begins.
    pub(super) fn rewind(&mut self) {
        self.kept.values_mut().for_each(|window| window.is_passed = false);
    }

    /// Keeps only windows with a part of a segment that is needed, by device and number.
    pub(super) fn retain(&mut self, config: &LogConfig, is_needed: impl Fn(usize, u64) -> bool) {
        let segment_bytes = u64::from(config.segment_bytes);
        let window_bytes = self.window_bytes;
        self.kept.retain(|(device, number), window| {
            let start = number * window_bytes;
            let segments = start / segment_bytes..=(start + window.bytes - 1) / segment_bytes;
            segments.into_iter().any(|segment| is_needed(*device, segment))
        });
        self.bytes = self.kept.values().map(|window| window.bytes).sum();
    }

    /// Keeps no more than these bytes, besides the current window and the next one of each device.
    pub(super) fn keep_at_most(&mut self, bytes: u64) {
        self.bytes_max = bytes;
        self.make_room();
    }

    /// The `bytes` at `offset` of a ring; `None` if they cannot be read as a part of their window.
    pub(super) fn get(
        &mut self,
        devices: &mut dyn Devices,
        config: &LogConfig,
        device: usize,
        offset: u64,
        bytes: u64,
    ) -> Option<&[u8]> {
        let window_bytes = self.window_bytes;
        let (first, last) = (offset / window_bytes, (offset + bytes - 1) / window_bytes);
        if first == last {
            self.load(devices, config, (device, first));
            let at = (offset % window_bytes) as usize;
            let content = self.kept[&(device, first)].content.as_ref()?;
            return Some(&content[at..at + bytes as usize]);
        }
        let mut part = std::mem::take(&mut self.part);
        part.clear();
        for number in first..=last {
            self.load(devices, config, (device, number));
            let start = number * window_bytes;
            let from = offset.saturating_sub(start).min(window_bytes) as usize;
            let to = (offset + bytes - start).min(window_bytes) as usize;
            part.extend(&self.kept[&(device, number)].content.as_ref()?[from..to]);
        }
        self.part = part;
        Some(&self.part)
    }

    /// Makes a window the current one of its device, and reads it if it is not kept.
    fn load(&mut self, devices: &mut dyn Devices, config: &LogConfig, at: At) {
        let (device, number) = at;
        let follows = self.current[device].is_some_and(|last| last + 1 == number);
        self.current[device] = Some(number);
        if !self.kept.contains_key(&at) {
            let next = |(device, last): (usize, &Option<u64>)| Some((device, (*last)? + 1));
            let nexts: Vec<At> = self.current.iter().enumerate().filter_map(next).collect();
            let mut wanted = vec![at];
            if follows {
                wanted.extend(nexts);
            }
            wanted.retain(|at| self.bytes_of(config, *at) > 0 && !self.kept.contains_key(at));
            self.read(devices, config, &wanted);
        }
        let window = self.kept.get_mut(&at).expect("it was there or was read");
        window.is_passed = true;
    }

    fn read(&mut self, devices: &mut dyn Devices, config: &LogConfig, wanted: &[At]) {
        self.make_room();
        let range = |at: &At| {
            let region = config.regions[at.0];
            let offset = region.offset + at.1 * self.window_bytes;
            (region.device, offset, self.bytes_of(config, *at) as usize)
        };
        let ranges: Vec<_> = wanted.iter().map(range).collect();
        let Ok(()) = device::read_all(devices, &ranges, &config.bulk, |index, read| {
            let (at, bytes) = (wanted[index], ranges[index].2 as u64);
            let content = read.ok().map(Buffer::copy_of);
            let window = Window { content, bytes, is_passed: false, read_at: self.reads };
            self.kept.insert(at, window);
            self.bytes += bytes;
            self.reads += 1;
            Ok::<(), std::convert::Infallible>(())
        });
    }

    /// Drops windows that are too many: the youngest of those that this pass has behind it, then
    /// the youngest of all.
    fn make_room(&mut self) {
        while self.bytes > self.bytes_max {
            let is_spare = |(device, number): &At| {
                let current = self.current[*device];
                current != Some(*number) && current.map(|last| last + 1) != Some(*number)
            };
            let spare = self.kept.iter().filter(|(at, _)| is_spare(at));
            let spare_bytes: u64 = spare.clone().map(|(_, window)| window.bytes).sum();
            let youngest = spare.max_by_key(|(_, window)| (window.is_passed, window.read_at));
            let Some(at) = youngest.map(|(at, _)| *at) else { return };
            if spare_bytes <= self.bytes_max {
                return;
            }
            let dropped = self.kept.remove(&at);
            self.bytes -= dropped.map_or(0, |window| window.bytes);
        }
    }

    /// Length of a window; 0 if it is beyond the end of the ring.
    fn bytes_of(&self, config: &LogConfig, (device, number): At) -> u64 {
        let ring_bytes = config.regions[device].bytes;
        ring_bytes.saturating_sub(number * self.window_bytes).min(self.window_bytes)
    }
}
