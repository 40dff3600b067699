//! The bus between host and buffer: which sectors cross when.

use std::collections::VecDeque;

/// Sectors in sequence that come into the buffer one by one, at an even pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    /// The first of them.
    pub(super) lbn: u64,
    pub(super) sectors: u32,
    /// When the first one is in the buffer.
    pub(super) first_ms: f64,
    /// When the last one is.
    pub(super) last_ms: f64,
    /// The time from one to the next.
    pub(super) slot_ms: f64,
}

impl Ramp {
    /// Sectors that are in the buffer at this time already.
    pub(super) fn at(lbn: u64, sectors: u64, now_ms: f64) -> Self {
        Self { lbn, sectors: sectors as u32, first_ms: now_ms, last_ms: now_ms, slot_ms: 0.0 }
    }

    pub(super) fn end(&self) -> u64 {
        self.lbn + u64::from(self.sectors)
    }

    /// When the sector with this number, from the first, is in the buffer.
    pub(super) fn ms(&self, number: u64) -> f64 {
        self.first_ms + number as f64 * self.slot_ms
    }

    /// The same, but not before a time.
    pub(super) fn not_before(&self, begin_ms: f64) -> Self {
        let (first_ms, last_ms) = (self.first_ms.max(begin_ms), self.last_ms.max(begin_ms));
        Self { first_ms, last_ms, ..*self }
    }

    /// Those of its sectors that are in this range of LBNs.
    pub(super) fn within(&self, from: u64, to: u64) -> Option<Self> {
        let (first, end) = (self.lbn.max(from), self.end().min(to));
        (first < end).then(|| Self {
            lbn: first,
            sectors: (end - first) as u32,
            first_ms: self.ms(first - self.lbn),
            last_ms: self.ms(end - 1 - self.lbn),
            slot_ms: self.slot_ms,
        })
    }
}

/// The bus, and when it is taken.
#[derive(Clone, Debug)]
pub(super) struct BusTime {
    sector_ms: f64,
    /// When everything so far has crossed.
    free_ms: f64,
    /// When it is taken: from, to; ascending, those that have passed forgotten.
    taken: VecDeque<(f64, f64)>,
}

impl BusTime {
    pub(super) fn new(sector_ms: f64) -> Self {
        Self { sector_ms, free_ms: 0.0, taken: VecDeque::new() }
    }

    /// Time of one sector.
    pub(super) fn sector_ms(&self) -> f64 {
        self.sector_ms
    }

    /// When everything so far has crossed.
    pub(super) fn free_ms(&self) -> f64 {
        self.free_ms
    }

    /// Forgets what has crossed by now.
    pub(super) fn forget(&mut self, now_ms: f64) {
        while self.taken.front().is_some_and(|(_, to_ms)| *to_ms <= now_ms) {
            self.taken.pop_front();
        }
    }

    /// Sends sectors after everything so far, each once it is in the buffer, and returns when the
    /// last has crossed. While data is awaited, others may use the bus, unless it is kept for the
    /// `whole` transfer; what is sent with pauses takes the bus as if it were sent at the end of
    /// its time without one.
    pub(super) fn stream(&mut self, ramps: &[Ramp], whole: bool) -> f64 {
        let mut first_ms = f64::INFINITY;
        let mut length_ms = 0.0;
        for ramp in ramps {
            let all_ms = f64::from(ramp.sectors) * self.sector_ms;
            let begun_ms = self.free_ms.max(ramp.first_ms);
            self.free_ms = (begun_ms + all_ms).max(ramp.last_ms + self.sector_ms);
            first_ms = first_ms.min(begun_ms);
            length_ms += all_ms;
        }
        let latest_ms = if whole { first_ms } else { first_ms.max(self.free_ms - length_ms) };
        if latest_ms < self.free_ms {
            self.taken.push_back((latest_ms, self.free_ms));
        }
        self.free_ms
    }

    /// Sends sectors that wait in a buffer from `from_ms` on, as soon as the bus is not taken,
    /// without a pause if it is kept for the `whole` transfer; returns when the last has crossed.
    pub(super) fn block(&mut self, from_ms: f64, sectors: u64, whole: bool) -> f64 {
        let (mut at_ms, mut left_ms) = (from_ms, sectors as f64 * self.sector_ms);
        let mut place = 0;
        while let Some(&(taken_ms, to_ms)) = self.taken.get(place) {
            let gap_ms = taken_ms - at_ms;
            if gap_ms >= left_ms {
                break;
            }
            if gap_ms > 0.0 && !whole {
                self.taken.insert(place, (at_ms, taken_ms));
                left_ms -= gap_ms;
                place += 1;
            }
            at_ms = at_ms.max(to_ms);
            place += 1;
        }
        let end_ms = at_ms + left_ms;
        self.taken.insert(place, (at_ms, end_ms));
        self.free_ms = self.free_ms.max(end_ms);
        end_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(sectors: u32, first_ms: f64, slot_ms: f64) -> Ramp {
        let last_ms = first_ms + f64::from(sectors - 1) * slot_ms;
        Ramp { lbn: 0, sectors, first_ms, last_ms, slot_ms }
    }

    #[test]
    fn a_stream_ends_with_its_last_sector_or_with_the_bus() {
        let mut bus = BusTime::new(0.25);
        // The media is slower: the last sector comes at 4 and crosses then.
        assert_eq!(bus.stream(&[ramp(4, 1.0, 1.0)], false), 4.25);
        // The bus is slower, and busy until 4.25.
        assert_eq!(bus.stream(&[ramp(4, 4.0, 0.125)], false), 5.25);
    }

    #[test]
    fn a_block_uses_the_time_in_which_a_stream_waits_for_data() {
        let mut bus = BusTime::new(0.25);
        // Taken from 3.25 to 4.25.
        bus.stream(&[ramp(4, 1.0, 1.0)], false);
        assert_eq!(bus.block(1.0, 4, false), 2.0);
        // Two from 0.5 to 1, four from 2 to 3.
        assert_eq!(bus.block(0.5, 6, false), 3.0);
        // One from 3 to 3.25, three after the stream.
        assert_eq!(bus.block(0.5, 4, false), 5.0);
    }

    #[test]
    fn a_bus_that_is_kept_lets_nothing_between() {
        let mut bus = BusTime::new(0.25);
        bus.stream(&[ramp(4, 1.0, 1.0)], true);
        assert_eq!(bus.block(0.5, 2, true), 1.0);
        assert_eq!(bus.block(0.5, 4, true), 5.25);
    }

    #[test]
    fn what_has_crossed_is_forgotten() {
        let mut bus = BusTime::new(0.25);
        assert_eq!(bus.block(0.0, 4, false), 1.0);
        assert_eq!(bus.block(3.0, 4, false), 4.0);
        bus.forget(1.0);
        assert_eq!(bus.taken, [(3.0, 4.0)]);
    }
}
