//! What was read of the rings of a log, so that reading on, and reading again, costs little.
//!
//! A window is a part of a segment that was read in one request. Each device has a last window. A
//! window that follows the last one is twice as long, so that little is read in vain where a log
//! ends soon, and few requests are needed where it does not. The first windows are *kept* while
//! there is memory for them: recovery goes over the same part of the log several times, from its
//! beginning, and of a part that does not fit into memory those that were used last are the last
//! ones that are needed again. The last pass gives back the windows that it has passed; when their
//! memory is needed for what it replays, the youngest windows go first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::device::Buffer;

/// Bytes of a first window.
const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// Bytes of all last windows, at least 1 MiB each; a record may be longer.
const WINDOWS_BYTES: u64 = 4 << 20;

/// What was read from `start` on, which is an offset in a ring.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) buffer: Buffer,
}

impl Window {
    /// The `bytes` at `offset` of the ring, if they are in the window.
    fn part(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let at = offset.checked_sub(self.start)? as usize;
        self.buffer.get(at..at + bytes as usize)
    }

    fn contains(&self, offset: u64) -> bool {
        (self.start..self.end()).contains(&offset)
    }

    fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }
}

/// The windows of all devices of a log.
#[derive(Debug)]
pub(super) struct Windows {
    last: Vec<Last>,
    /// By device and start.
    kept: BTreeMap<(usize, u64), Window>,
    /// Devices and starts of those that were kept, the youngest last.
    order: Vec<(usize, u64)>,
    kept_bytes: u64,
    kept_bytes_max: u64,
    is_last_pass: bool,
}

/// The window of a device that was read last.
#[derive(Debug, Default)]
struct Last {
    start: u64,
    end: u64,
    /// If it is not kept.
    window: Option<Window>,
    /// The start of the kept window in use, in the last pass.
    in_use: Option<u64>,
}

impl Windows {
    /// No windows, for so many devices.
    pub(super) fn new(devices: usize, kept_bytes_max: u64) -> Self {
        let last = (0..devices).map(|_| Last::default()).collect();
        let (kept, order) = (BTreeMap::new(), Vec::new());
        Self { last, kept, order, kept_bytes: 0, kept_bytes_max, is_last_pass: false }
    }

    /// From now on keeps at most so many bytes.
    pub(super) fn keep_at_most(&mut self, bytes: u64) {
        self.kept_bytes_max = self.kept_bytes_max.min(bytes);
        while self.kept_bytes > self.kept_bytes_max {
            let (device, start) = self.order.pop().expect("what is kept was kept in some order");
            self.forget(device, start);
        }
    }

    /// From now on windows that were passed are not kept, and none is added to those that are.
    pub(super) fn begin_last_pass(&mut self) {
        self.is_last_pass = true;
    }

    /// What a device has before this offset has been passed.
    pub(super) fn pass(&mut self, device: usize, offset: u64) {
        let kept = self.kept.range((device, 0)..=(device, offset)).next_back();
        let found =
            kept.filter(|(_, window)| window.contains(offset)).map(|((_, start), _)| *start);
        if self.is_last_pass && found != self.last[device].in_use {
            let passed = std::mem::replace(&mut self.last[device].in_use, found);
            passed.into_iter().for_each(|start| self.forget(device, start));
        }
    }

    fn forget(&mut self, device: usize, start: u64) {
        if let Some(window) = self.kept.remove(&(device, start)) {
            self.kept_bytes -= window.buffer.len() as u64;
        }
    }

    /// The `bytes` at `offset` of a ring, if a window has them.
    pub(super) fn part(&self, device: usize, offset: u64, bytes: u64) -> Option<&[u8]> {
        self.near(device, offset).find_map(|window| window.part(offset, bytes))
    }

    /// Whether windows, one after another, have this many bytes at an offset of a ring.
    pub(super) fn have(&self, device: usize, offset: u64, bytes: u64) -> bool {
        let mut end = offset;
        while end < offset + bytes {
            let window = self.near(device, end).find(|window| window.contains(end));
            let Some(window) = window else { return false };
            end = window.end();
        }
        true
    }

    /// Whether a kept window begins in the `bytes` at an offset, after their first, or at their
    /// end.
    pub(super) fn one_begins_in(&self, device: usize, offset: u64, bytes: u64) -> bool {
        self.kept.range((device, offset + 1)..=(device, offset + bytes)).next().is_some()
    }

    /// Bytes that can still be kept.
    pub(super) fn room_bytes(&self) -> u64 {
        self.kept_bytes_max - self.kept_bytes
    }

    /// Keeps only windows of a device that end in this part of its ring.
    pub(super) fn retain(&mut self, device: usize, part: Range<u64>) {
        let of_device = self.kept.range((device, 0)..=(device, u64::MAX));
        let outside = of_device.filter(|(_, window)| !part.contains(&(window.end() - 1)));
        let starts: Vec<_> = outside.map(|((_, start), _)| *start).collect();
        starts.into_iter().for_each(|start| self.forget(device, start));
    }

    /// The windows that may have what is at an offset.
    fn near(&self, device: usize, offset: u64) -> impl Iterator<Item = &Window> {
        let kept = self.kept.range((device, 0)..=(device, offset)).next_back();
        kept.map(|(_, window)| window).into_iter().chain(&self.last[device].window)
    }

    /// How many bytes to read at this offset of a segment that begins at a multiple of
    /// `segment_bytes`, beyond what is needed there.
    pub(super) fn ahead(&self, device: usize, offset: u64, segment_bytes: u64) -> u64 {
        let last = &self.last[device];
        let most = (WINDOWS_BYTES / self.last.len() as u64).max(1 << 20);
        let before = last.end - last.start;
        let follows = (last.start + 1..=last.end).contains(&offset);
        if follows || before > 0 && offset.is_multiple_of(segment_bytes) {
            (2 * before).clamp(WINDOW_BYTES_MIN, most)
        } else {
            WINDOW_BYTES_MIN
        }
    }

    /// Adds a window.
    pub(super) fn add(&mut self, device: usize, window: Window) {
        let (start, end, bytes) = (window.start, window.end(), window.end() - window.start);
        let before = self.kept.get(&(device, start)).map_or(0, |kept| kept.end() - start);
        let kept_bytes = self.kept_bytes - before + bytes;
        let last = &mut self.last[device];
        (last.start, last.end, last.window) = (start, end, None);
        if kept_bytes <= self.kept_bytes_max && !self.is_last_pass {
            self.kept_bytes = kept_bytes;
            self.kept.insert((device, start), window);
            self.order.push((device, start));
        } else {
            last.window = Some(window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    fn window(start: u64, bytes: u64) -> Window {
        let mut buffer = Buffer::zeroed(bytes as usize);
        buffer.fill((start >> 10) as u8);
        Window { start, buffer }
    }

    #[test]
    fn windows_that_follow_one_another_become_longer() {
        let mut windows = Windows::new(2, 0);
        let (mut offset, mut lengths) = (4096, Vec::new());
        for _ in 0..7 {
            let bytes = windows.ahead(1, offset, SEGMENT);
            windows.add(1, window(offset, bytes));
            lengths.push(bytes >> 10);
            offset += bytes - 512;
        }
        assert_eq!(lengths, [256, 512, 1024, 2048, 2048, 2048, 2048]);
        assert_eq!(windows.ahead(1, 4096, SEGMENT), 256 << 10, "not behind the last one");
        assert_eq!(windows.ahead(1, SEGMENT, SEGMENT), 2 << 20, "the next segment");
        assert_eq!(windows.ahead(0, SEGMENT, SEGMENT), 256 << 10, "another device");
    }

    #[test]
    fn the_first_windows_are_kept_and_the_last_one_is_there() {
        let mut windows = Windows::new(1, 10 << 10);
        let starts: Vec<u64> = (0..6).map(|number| number * 4096).collect();
        starts.iter().for_each(|start| windows.add(0, window(*start, 4096)));
        let found = |start: &u64| windows.part(0, *start, 4096).is_some();
        let found: Vec<_> = starts.iter().map(found).collect();
        assert_eq!(found, [true, true, false, false, false, true]);
        assert_eq!(windows.part(0, 4096 + 512, 512), Some(&[4; 512][..]));
        assert_eq!(windows.part(0, 4096 + 512, 4096), None, "it is in two");
        assert!(windows.have(0, 4096 + 512, 4096 - 512) && !windows.have(0, 9000, 1));
    }

    #[test]
    fn neighbouring_windows_have_what_is_in_them_together() {
        let mut windows = Windows::new(1, 1 << 20);
        [4096, 8192, 16 << 10].iter().for_each(|start| windows.add(0, window(*start, 4096)));
        assert!(windows.have(0, 5000, 6000) && !windows.have(0, 5000, 8000));
        assert!(windows.one_begins_in(0, 5000, 4000) && windows.one_begins_in(0, 5000, 3192));
        assert!(!windows.one_begins_in(0, 4096, 4000) && !windows.one_begins_in(0, 12_288, 4000));
        windows.retain(0, 9000..12_288);
        assert_eq!((windows.kept.len(), windows.room_bytes()), (1, (1 << 20) - 4096));
        assert!(windows.part(0, 8192, 4096).is_some());
    }

    #[test]
    fn the_last_pass_gives_back_what_it_has_passed_and_the_youngest_where_memory_is_short() {
        let mut windows = Windows::new(2, 1 << 20);
        // The ring of the first device wraps around.
        let starts = [8192, 12 << 10, 16 << 10, 0, 4096];
        starts.iter().for_each(|start| windows.add(0, window(*start, 4096)));
        windows.add(1, window(0, 4096));
        windows.pass(0, 8192);
        windows.pass(0, 12 << 10);
        assert_eq!(windows.kept_bytes, 6 * 4096, "not yet the last pass");
        windows.begin_last_pass();
        for (passed, offset) in (0..).zip([8192, 12 << 10, 16 << 10]) {
            windows.pass(0, offset);
            windows.pass(0, offset + 4095);
            assert_eq!(windows.kept_bytes, (6 - passed) * 4096);
        }
        windows.keep_at_most(3 * 4096);
        assert!(windows.part(1, 0, 4096).is_none(), "it is the youngest");
        windows.keep_at_most(5000);
        assert_eq!((windows.kept.len(), windows.kept_bytes), (1, 4096));
        assert!(windows.part(0, 16 << 10, 4096).is_some());
        windows.add(0, window(0, 512));
        windows.pass(0, 0);
        assert_eq!((windows.kept_bytes, windows.part(0, 0, 512).is_some()), (0, true));
    }

    #[test]
    fn a_longer_window_takes_the_place_of_one_with_the_same_beginning() {
        let mut windows = Windows::new(1, 10 << 10);
        windows.add(0, window(4096, 4096));
        windows.add(0, window(4096, 8192));
        assert_eq!((windows.kept.len(), windows.kept_bytes), (1, 8192));
        assert!(windows.part(0, 4096, 8192).is_some());
        windows.add(0, window(4096, 12 << 10));
        assert!(windows.part(0, 4096, 12 << 10).is_some(), "though it is too long to be kept");
    }
}
