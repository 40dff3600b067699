//! The ring of one log device: the place of the next batch, and the free segments.
//!
//! A ring can be extended while it is in use: its device is extended, the new segments are filled
//! with zeros, as all are when a ring is made, and then they are the next to be entered.
//!
//! Invariants: a batch never crosses a segment's end; a segment is entered at its first byte, and
//! only when free; in ring order from the cursor, the free segments come first. The length of the
//! device determines the length of the ring, so from the time at which the device may be longer,
//! nothing that recovery may read wraps from the end of the ring to its beginning: see
//! [`Ring::can_grow`].

use super::{LogRegion, Seq};
use crate::broken::{self, Fault};

/// Bytes of one write of zeros into new segments.
const BLANK_BYTES: u64 = 1 << 20;

/// The progress of the extension of a ring.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// Its device is being extended for this many segments.
    Extending(u32),
    /// Segments from `first` on are new. Zeros are written up to `blank`, an offset in the ring.
    Blanking { first: u32, blank: u64 },
}

#[derive(Debug)]
pub(super) struct Ring {
    pub(super) region: LogRegion,
    segment_bytes: u64,
    page_bytes: u64,
    /// The place of the next batch if it fits there. At a segment's first byte: that segment is not
    /// entered yet.
    cursor: u64,
    /// Per segment, the youngest record for which it is needed (see
    /// [`BatchHeader::needed_for`](super::format::BatchHeader::needed_for)); [`Seq::NONE`] if there
    /// is none.
    last_seqs: Vec<Seq>,
    free: u32,
    /// A sequence in the batch at the start of the ring; the batch before that one may be at the
    /// end of the ring. [`Seq::NONE`] if there was none before; `None` if the ring never had a
    /// batch.
    lap_start: Option<Seq>,
    /// The target number of segments. It has no effect below the present number.
    pub(super) wanted: u32,
    growth: Option<Growth>,
}

impl Ring {
    pub(super) fn new(region: LogRegion, segment_bytes: u64, page_bytes: u64) -> Self {
        let segments = region.bytes / segment_bytes;
        let last_seqs =
            vec![Seq::NONE; usize::try_from(segments).expect("the configuration is checked")];
        let free = segments as u32;
        let (cursor, lap_start, wanted, growth) = (0, None, 0, None);
        Self {
            region,
            segment_bytes,
            page_bytes,
            cursor,
            last_seqs,
            free,
            lap_start,
            wanted,
            growth,
        }
    }

    /// Takes over the state that recovery found.
    pub(super) fn resume(
        &mut self,
        cursor_page: u32,
        last_seqs: &[Seq],
        lap_start: Option<Seq>,
        released: Seq,
    ) {
        self.lap_start = lap_start;
        self.cursor = u64::from(cursor_page) * self.page_bytes;
        self.last_seqs.copy_from_slice(last_seqs);
        self.reclaim(released);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.last_seqs.len() as u64 * self.segment_bytes
    }

    pub(super) fn segments(&self) -> u32 {
        self.last_seqs.len() as u32
    }

    pub(super) fn free_segments(&self) -> u32 {
        self.free
    }

    pub(super) fn cursor_page(&self) -> u32 {
        self.page_of(self.cursor)
    }

    /// The page at this offset in the ring.
    pub(super) fn page_of(&self, offset: u64) -> u32 {
        (offset / self.page_bytes) as u32
    }

    /// Bytes left in the segment at the cursor.
    pub(super) fn rest(&self) -> u64 {
        match self.cursor % self.segment_bytes {
            0 => 0,
            inside => self.segment_bytes - inside,
        }
    }

    fn segment_of(&self, offset: u64) -> usize {
        (offset / self.segment_bytes) as usize
    }

    fn current(&self) -> Option<usize> {
        (self.rest() > 0).then(|| self.segment_of(self.cursor))
    }

    /// The place for a batch of `bytes`, as an offset in the ring; `None` if there is no room.
    pub(super) fn place(&self, bytes: u64) -> Option<u64> {
        debug_assert!(bytes <= self.segment_bytes, "append refuses longer batches");
        if bytes <= self.rest() {
            return Some(self.cursor);
        }
        self.next_segment()
    }

    /// The start of the next segment, if a batch may go there.
    pub(super) fn next_segment(&self) -> Option<u64> {
        let next = (self.cursor + self.rest()) % self.bytes();
        (self.free > 0 && self.may_enter(next)).then_some(next)
    }

    /// Whether growth permits a batch at the start of this segment. A batch at the end of the ring
    /// would have to record the place of the next one.
    fn may_enter(&self, place: u64) -> bool {
        let segment = self.segment_of(place) as u32;
        match self.growth {
            None => true,
            Some(Growth::Extending(_)) => segment + 1 < self.segments(),
            Some(Growth::Blanking { first, .. }) => segment < first,
        }
    }

    /// Puts a batch of `bytes` at `place`, which [`Ring::place`] returned. Recovery needs it for
    /// the record `needed_for`.
    pub(super) fn take(&mut self, place: u64, bytes: u64, needed_for: Seq) {
        if place.is_multiple_of(self.segment_bytes) {
            self.free -= 1;
        }
        if place == 0 {
            self.lap_start = Some(self.lap_start.map_or(Seq::NONE, |_| needed_for));
        }
        let segment = self.segment_of(place);
        self.last_seqs[segment] = needed_for;
        self.cursor = (place + bytes) % self.bytes();
    }

    /// Marks the segments as free whose sequences are all below `released` (at least 1).
    pub(super) fn reclaim(&mut self, released: Seq) {
        let current = self.current();
        let free = |(segment, last): (usize, &Seq)| *last < released && Some(segment) != current;
        self.free = self.last_seqs.iter().enumerate().filter(|entry| free(*entry)).count() as u32;
    }

    /// The last sequence of the oldest segment that is neither free nor being filled.
    pub(super) fn oldest_last_seq(&self, released: Seq) -> Option<Seq> {
        let current = self.current();
        let held = |(segment, last): (usize, &Seq)| *last >= released && Some(segment) != current;
        let entries = self.last_seqs.iter().enumerate();
        entries.filter(|entry| held(*entry)).map(|(_, last)| *last).min()
    }

    /// How many segments there may be before anything is overwritten that was not yet `released`.
    pub(super) fn segments_in_prospect(&self, released: Seq) -> u32 {
        let grows = self.growth.is_some() || self.can_grow(released);
        if grows { self.wanted.max(self.segments()) } else { self.segments() }
    }

    /// Whether the ring is to be extended and can be at present.
    ///
    /// Recovery takes the ring to be as long as its device is by then, and looks for the batch
    /// after the last segment in the next one, no longer in the first. So from the batch on at
    /// which a recovery may begin, that of the record before the released ones, no batch may be in
    /// the first segment whose predecessor is in the last one: that batch is in this lap, and this
    /// lap has not reached its last segment. Everything after the cursor up to the end of the ring
    /// is free; otherwise free segments would no longer be the next ones.
    fn can_grow(&self, released: Seq) -> bool {
        let next = self.cursor.div_ceil(self.segment_bytes) as u32;
        let behind = self.segments() - next;
        let may_grow = next > 0
            && (1..=self.free).contains(&behind)
            && self.lap_start.is_some_and(|start| start < released);
        self.wanted > self.segments()
            && self.growth.is_none()
            && (may_grow || broken::is(Fault::EarlyLogGrowth))
    }

    /// Begins the extension of the ring if it is due and possible, and returns the range of the
    /// device that it needs, as offset and length. It becomes at most twice as long, which takes no
    /// longer to fill with zeros than a lap lasts.
    pub(super) fn begin_growth(&mut self, released: Seq) -> Option<(u64, u64)> {
        if !self.can_grow(released) {
            return None;
        }
        let segments = self.wanted.min(2 * self.segments());
        self.growth = Some(Growth::Extending(segments));
        let bytes = u64::from(segments) * self.segment_bytes - self.bytes();
        Some((self.region.offset + self.bytes(), bytes))
    }

    pub(super) fn is_growing(&self) -> bool {
        self.growth.is_some()
    }

    /// The device was extended, or could not be.
    pub(super) fn extended(&mut self, done: bool) {
        let Some(Growth::Extending(segments)) = self.growth.take() else { return };
        if done {
            let (first, blank) = (self.segments(), self.bytes());
            self.last_seqs.resize(segments as usize, Seq::NONE);
            self.region.bytes = self.bytes();
            self.free += segments - first;
            self.growth = Some(Growth::Blanking { first, blank });
        }
    }

    /// Where zeros are to be written next, as an offset in the ring, and how many.
    pub(super) fn blank(&self) -> Option<(u64, u64)> {
        let Some(Growth::Blanking { blank, .. }) = self.growth else { return None };
        Some((blank, BLANK_BYTES.min(self.bytes() - blank)))
    }

    /// This many more are written.
    pub(super) fn blanked(&mut self, bytes: u64) {
        let end = self.bytes();
        if let Some(Growth::Blanking { blank, .. }) = &mut self.growth {
            *blank += bytes;
            if *blank == end {
                self.growth = None;
            }
        }
    }
}
