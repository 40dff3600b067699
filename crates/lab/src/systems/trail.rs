//! A logger that writes where the head is, as section 4.1 of the BOSC paper describes it (Trail).
//!
//! It knows the geometry of its drive and follows the angle under the head. A record goes to the
//! sectors of the present track that come next after a look-ahead, which is the time that the
//! drive needs until it is ready to write. Where these sectors reach beyond the end of the track or
//! are in use, the next track is taken; the head is there a little later. One write is under way at
//! a time.

use std::collections::VecDeque;
use std::ops::Range;

use upsweep::layers::device::Token;
use upsweep::layers::device::drive::{Direction, DriveDescription, Layout, Mechanism, Piece};

use super::loggers::Append;
use super::{Finished, Io, Model};

/// The drive of the logger in its bank.
const DEVICE: u16 = 0;
/// Time from when a write is submitted until the drive is ready to write, in milliseconds.
const LOOK_AHEAD_MS: f64 = 0.2;
/// Sectors that are asked for to find the end of a track: more than any track has.
const MORE_THAN_A_TRACK: u64 = 4096;

/// The logger.
pub(crate) struct Trail {
    layout: Layout,
    mechanism: Mechanism,
    sector_bytes: u64,
    /// The first sector of the present track.
    first_lbn: u64,
    track: Piece,
    /// Sectors in use, from the start of the track.
    used: Vec<Range<u64>>,
    waiting: VecDeque<(u64, Append)>,
    /// The number of the append under way, and when it began.
    current: Option<(u64, u64)>,
    /// Sectors of the tracks that were left, and those of them that were written.
    left: u64,
    left_used: u64,
}

impl Trail {
    /// On such a drive, from its first track on.
    pub(crate) fn new(drive: &DriveDescription) -> Self {
        let layout = Layout::new(drive);
        Self {
            track: track(&layout, 0),
            layout,
            mechanism: Mechanism::new(drive),
            sector_bytes: u64::from(drive.capacity.sector_bytes),
            first_lbn: 0,
            used: Vec::new(),
            waiting: VecDeque::new(),
            current: None,
            left: 0,
            left_used: 0,
        }
    }

    /// How much of the tracks that it has left it wrote, in per cent.
    pub(crate) fn utilisation_percent(&self) -> f64 {
        100.0 * self.left_used as f64 / self.left as f64
    }

    /// The sector of the track that is under the head at this time, or comes next.
    fn sector_at(&self, ms: f64) -> u64 {
        let slots = self.track.track_slots;
        let slot = (self.mechanism.angle(ms) * f64::from(slots)).ceil() as u32;
        u64::from((slot + slots - self.track.first_slot) % slots)
    }

    /// Where so many sectors, at most a track, are written soonest.
    fn place(&mut self, now_us: u64, sectors: u64) -> u64 {
        let ready_ms = now_us as f64 / 1e3 + LOOK_AHEAD_MS;
        let mut wanted = self.sector_at(ready_ms);
        let end = wanted + sectors;
        let is_used = |used: &Range<u64>| used.start < end && wanted < used.end;
        if end > u64::from(self.track.sectors) || self.used.iter().any(is_used) {
            self.left += u64::from(self.track.sectors);
            self.left_used += self.used.iter().map(|used| used.end - used.start).sum::<u64>();
            let next = self.first_lbn + u64::from(self.track.sectors);
            let is_last = next + MORE_THAN_A_TRACK > self.layout.lbns();
            self.first_lbn = if is_last { 0 } else { next };
            self.track = track(&self.layout, self.first_lbn);
            self.used.clear();
            let switch_ms = self.mechanism.positioning_ms(self.track.head(), Direction::Write);
            self.mechanism.move_to(&self.track);
            wanted = self.sector_at(ready_ms + switch_ms);
            if wanted + sectors > u64::from(self.track.sectors) {
                // Its beginning comes next.
                wanted = 0;
            }
        }
        self.used.push(wanted..wanted + sectors);
        self.first_lbn + wanted
    }

    fn start(&mut self, io: &mut Io) {
        if self.current.is_some() {
            return;
        }
        let Some((number, append)) = self.waiting.pop_front() else { return };
        let now_us = io.now_us();
        self.current = Some((number, now_us));
        let sectors = append.bytes.div_ceil(self.sector_bytes);
        let lbn = self.place(now_us, sectors);
        io.write(DEVICE, lbn * self.sector_bytes, sectors * self.sector_bytes);
    }
}

/// The track that begins with this sector.
fn track(layout: &Layout, first_lbn: u64) -> Piece {
    layout.pieces(first_lbn, MORE_THAN_A_TRACK).swap_remove(0)
}

impl Model for Trail {
    type Operation = Append;

    fn begin(&mut self, number: u64, append: Append, io: &mut Io) {
        self.waiting.push_back((number, append));
        self.start(io);
    }

    fn ended(&mut self, _token: Token, io: &mut Io) {
        if let Some((number, begun_us)) = self.current.take() {
            io.finish(Finished { number, begun_us, found: None });
        }
        self.start(io);
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::super::{Bench, banks};
    use super::*;

    #[test]
    fn a_record_waits_for_no_turn() {
        let drive = banks::description("dtla307030").expect("it is described");
        let devices = banks::drives("dtla307030", 1, None, 1).expect("a drive");
        let mut system = Bench::new(Trail::new(&drive), devices, 10);
        let load = Load { callers: 1, warm_up: 10, measured: 3000 };
        let seen = load.run(&mut system, || Append { bytes: 4096 }).expect("no write fails");
        // 8 sectors pass in 0.1 ms, a turn takes 8.3 ms.
        assert!(seen.latency_ms < 1.0, "{}", seen.latency_ms);
        let used = system.model.utilisation_percent();
        assert!((10.0..=100.0).contains(&used), "{used}");
    }
}
