//! Commands that wait for the media: which of them are held, and which writes merge.
//!
//! Two writes can merge if the sectors of one follow those of the other, and neither is smaller
//! than `queue.smallest_mergeable_write_sectors`; if that is 0, the drive merges none. A write that
//! finds none to merge with, neither waiting nor under the head, is held for
//! `queue.unmergeable_write_hold_ms`, so that one can come. With a queue of one command none can,
//! and nothing is held.

use super::cache::Buffer;
use super::command::{Command, Served};
use super::description::Queue;
use super::layout::Piece;
use super::mechanics::Direction;

/// A command that was processed, and needs the media.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) command: Command,
    /// Its sectors on the first track.
    pub(super) first: Piece,
    /// From when on the media can work for it.
    pub(super) ready_ms: f64,
    /// From when on the data of a write crosses the bus, if without a pause.
    pub(super) data_ms: f64,
    /// How its time has passed so far.
    pub(super) served: Served,
}

impl Queued {
    fn is_write(&self) -> bool {
        self.command.operation.direction() == Direction::Write
    }

    /// Whether dirty sectors have to be on the media first.
    pub(super) fn waits(&self, buffer: &Buffer) -> bool {
        buffer.touches_dirty(self.command.lbn, self.command.end())
    }

    /// Whether the media can work for it.
    pub(super) fn is_ready(&self, buffer: &Buffer, now_ms: f64) -> bool {
        self.ready_ms <= now_ms && !self.waits(buffer)
    }
}

/// The write under the head.
#[derive(Clone, Copy, Debug)]
struct Writing {
    end: u64,
    end_ms: f64,
    can_merge: bool,
}

/// Commands that wait for the media, in the order in which they were processed.
#[derive(Clone, Debug)]
pub(super) struct MediaQueue {
    waiting: Vec<Queued>,
    writing: Option<Writing>,
    hold_ms: f64,
    smallest_sectors: u64,
}

impl MediaQueue {
    pub(super) fn new(rules: &Queue) -> Self {
        Self {
            waiting: Vec::new(),
            writing: None,
            hold_ms: rules.unmergeable_write_hold_ms,
            smallest_sectors: u64::from(rules.smallest_mergeable_write_sectors),
        }
    }

    /// Forgets the commands that wait.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn waiting(&self) -> &[Queued] {
        &self.waiting
    }

    pub(super) fn take(&mut self, place: usize) -> Queued {
        self.waiting.remove(place)
    }

    fn can_merge(&self, command: &Command) -> bool {
        self.smallest_sectors > 0 && command.sectors >= self.smallest_sectors
    }

    /// Adds a command that the drive began with at `queued.served.start_ms`, in a queue of this
    /// `depth`.
    pub(super) fn add(&mut self, mut queued: Queued, depth: usize) {
        if queued.is_write() && depth > 1 && !self.finds_partner(&queued) {
            let held_ms = queued.served.start_ms + self.hold_ms;
            queued.ready_ms = queued.ready_ms.max(held_ms);
        }
        self.waiting.push(queued);
    }

    /// Whether a write can merge with another one, which is then not held any longer.
    fn finds_partner(&mut self, queued: &Queued) -> bool {
        if !self.can_merge(&queued.command) {
            return false;
        }
        let (from, to, now_ms) = (queued.command.lbn, queued.command.end(), queued.served.start_ms);
        let follows =
            |writing: &Writing| writing.can_merge && writing.end == from && now_ms < writing.end_ms;
        let mut found = self.writing.as_ref().is_some_and(follows);
        let smallest_sectors = self.smallest_sectors;
        for other in self.waiting.iter_mut().filter(|other| other.is_write()) {
            let is_beside = other.command.end() == from || other.command.lbn == to;
            if is_beside && other.command.sectors >= smallest_sectors {
                other.ready_ms = other.ready_ms.min(queued.ready_ms);
                found = true;
            }
        }
        found
    }

    /// Takes the write at this place, and those that are ready and merge with it, in the order of
    /// LBNs: each begins where the one before it ends.
    pub(super) fn take_merged(
        &mut self,
        place: usize,
        is_ready: impl Fn(&Queued) -> bool,
    ) -> Vec<Queued> {
        let mut merged = vec![self.take(place)];
        if !self.can_merge(&merged[0].command) {
            return merged;
        }
        loop {
            let (first, end) = (merged[0].command.lbn, merged[merged.len() - 1].command.end());
            let beside = |other: &Queued| {
                let is_beside = other.command.lbn == end || other.command.end() == first;
                is_beside && other.is_write() && self.can_merge(&other.command) && is_ready(other)
            };
            let Some(place) = self.waiting.iter().position(beside) else { return merged };
            let other = self.take(place);
            let at = if other.command.lbn == end { merged.len() } else { 0 };
            merged.insert(at, other);
        }
    }

    /// Writes up to this LBN are under the head until `end_ms`.
    pub(super) fn set_writing(&mut self, last: &Command, end_ms: f64) {
        let can_merge = self.can_merge(last);
        self.writing = Some(Writing { end: last.end(), end_ms, can_merge });
    }
}
