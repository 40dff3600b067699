//! The stride of a train on one device: how long its batches are, in
//! [`LogMode::Full`](crate::log::LogMode::Full).
//!
//! A record waits for the batch that is being written when it arrives, so these should be short.
//! But the next write has to be at the drive before the last one ends: otherwise its place has
//! passed the head, and it takes a turn more (a *miss*). So the best length is the smallest of
//! which the transfer is not shorter than the time from a completion to the next submission (thesis
//! 6.2.2). Both depend on the drive, on the host, and on where the head is, so the length is found
//! by trying: see `least.rs`. Two misses in 128 batches cost as much as batches that are longer by
//! a third, if a turn takes 25 times as long as a batch. Further inside, where the drive transfers
//! more slowly, a shorter one may do.

use super::least::{Least, ROUND};

/// What a write that is a miss takes more than others, in microseconds: not quite a turn of the
/// fastest drives (15,000 rpm), which is more than a drive needs to go on in its next cylinder.
const LATE_US: u64 = 3500;

/// Finds the length, from the times between completions.
#[derive(Clone, Debug)]
pub(super) struct Stride {
    length: Least,
    unit_bytes: u64,
    /// Time to write a unit, in nanoseconds: about the mean of the last round without misses.
    unit_ns: Option<u64>,
    last_end_us: Option<u64>,
    /// The time that the batches of this round took.
    us: u64,
}

impl Stride {
    /// Begins with the largest length; each is a multiple of the unit.
    pub(super) fn new(bytes_max: u64, unit_bytes: u64) -> Self {
        let length = Least::new(bytes_max, unit_bytes);
        Self { length, unit_bytes, unit_ns: None, last_end_us: None, us: 0 }
    }

    /// The length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.length.value()
    }

    /// The device was idle: the time until the next completion says nothing.
    pub(super) fn pause(&mut self) {
        self.last_end_us = None;
    }

    /// A batch of this length was completed.
    pub(super) fn ended(&mut self, bytes: u64, now_us: u64) {
        let Some(last_us) = self.last_end_us.replace(now_us) else { return };
        // The others were dispatched before the length changed, or have many records.
        if bytes != self.bytes() {
            return;
        }
        let (units, took_us) = (bytes / self.unit_bytes, now_us.saturating_sub(last_us));
        let is_late = |unit_ns| took_us > units * unit_ns / 1000 + LATE_US;
        self.us += took_us;
        let Some(misses) = self.length.tried(self.unit_ns.is_some_and(is_late)) else { return };
        let us = std::mem::take(&mut self.us);
        if misses == 0 {
            // It changes slowly. If each write is late, it must not seem to rise as fast as the
            // length falls.
            let measured = us * 1000 / (units * u64::from(ROUND));
            let most = self.unit_ns.map_or(u64::MAX, |before| before + before / 16);
            self.unit_ns = Some(measured.min(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::least::RETRY_ROUNDS;
    use super::*;

    const UNIT: u64 = 4096;

    /// Runs a train on a drive that writes a byte in so many nanoseconds, with a turn of 8.3 ms;
    /// the host needs so long from a completion to the next submission. Returns the length in units
    /// after each batch.
    fn run(stride: &mut Stride, ns_per_byte: u64, host_us: u64, batches: u64) -> Vec<u64> {
        let (mut now_us, mut lengths) = (stride.last_end_us.unwrap_or(0), Vec::new());
        for _ in 0..batches {
            let bytes = stride.bytes();
            let transfer_us = bytes * ns_per_byte / 1000;
            // Two are in flight: this one was submitted while the last one was written.
            now_us += if transfer_us < host_us { 8300 } else { transfer_us };
            stride.ended(bytes, now_us);
            lengths.push(stride.bytes() / UNIT);
        }
        lengths
    }

    #[test]
    fn the_length_becomes_the_shortest_one_without_misses() {
        for (ns_per_byte, host_us) in [(10, 250), (10, 900), (20, 250), (5, 100)] {
            let mut stride = Stride::new(128 << 10, UNIT);
            let lengths = run(&mut stride, ns_per_byte, host_us, 30_000);
            let shortest = (host_us * 1000).div_ceil(ns_per_byte).div_ceil(UNIT);
            let settled = &lengths[5000..];
            let best = settled.iter().filter(|length| **length >= shortest).count();
            assert!(best * 100 > settled.len() * 99, "{best} of {}", settled.len());
            let longest = settled.iter().max().expect("not empty");
            assert!(*longest <= shortest * 5 / 4 + 1, "{longest} for {shortest}");
        }
    }

    #[test]
    fn it_follows_the_head_inward_and_back_out() {
        let mut stride = Stride::new(128 << 10, UNIT);
        assert_eq!(run(&mut stride, 10, 250, 10_000).last(), Some(&7));
        let of_retry = u64::from(ROUND * (RETRY_ROUNDS + 8));
        let inside = run(&mut stride, 20, 250, 2 * of_retry);
        assert!(inside.ends_with(&[4]) || inside.ends_with(&[5]), "{:?}", inside.last());
        let outside = run(&mut stride, 10, 250, 1000);
        assert!((7..=9).contains(outside.last().expect("not empty")), "{:?}", outside.last());
    }

    #[test]
    fn a_device_that_was_idle_does_not_count() {
        let mut stride = Stride::new(128 << 10, UNIT);
        run(&mut stride, 10, 0, u64::from(ROUND) + 1);
        let before = stride.bytes();
        for pause in 0..100 {
            stride.pause();
            stride.ended(before, 1_000_000 * (pause + 1));
        }
        assert_eq!((stride.bytes(), stride.us), (before, 0));
    }

    #[test]
    fn a_device_on_which_every_write_is_slow_keeps_long_ones() {
        let mut stride = Stride::new(128 << 10, UNIT);
        let mut now_us = 0;
        for _ in 0..20_000 {
            now_us += 8300;
            stride.ended(stride.bytes(), now_us);
        }
        assert!(stride.bytes() > 64 << 10, "{}", stride.bytes());
    }
}
