//! The ring of one log device: where the next batch goes, and which segments are free.
//!
//! Invariants: a batch never crosses a segment's end; a segment is entered at its first byte, and
//! only when free; in ring order from the cursor, the free segments come first.

use super::{LogRegion, Seq};

#[derive(Debug)]
pub(super) struct Ring {
    pub(super) region: LogRegion,
    segment_bytes: u64,
    page_bytes: u64,
    /// Where the next batch goes if it fits there. At a segment's first byte: that segment is not
    /// entered yet.
    cursor: u64,
    /// Per segment, the last sequence in it; 0 if it holds nothing that is needed.
    last_seqs: Vec<Seq>,
    free: u32,
}

impl Ring {
    pub(super) fn new(region: LogRegion, segment_bytes: u64, page_bytes: u64) -> Self {
        let segments = region.bytes / segment_bytes;
        let last_seqs = vec![0; usize::try_from(segments).expect("the configuration is checked")];
        let free = segments as u32;
        Self { region, segment_bytes, page_bytes, cursor: 0, last_seqs, free }
    }

    /// Takes over what recovery found.
    pub(super) fn resume(&mut self, cursor_page: u32, last_seqs: &[Seq], released: Seq) {
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

    /// Bytes left in the segment that the cursor is in.
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

    /// Where a batch of `bytes` would go, as an offset in the ring; `None` if there is no room.
    pub(super) fn place(&self, bytes: u64) -> Option<u64> {
        debug_assert!(bytes <= self.segment_bytes, "append refuses longer batches");
        if bytes <= self.rest() {
            return Some(self.cursor);
        }
        let next = (self.cursor + self.rest()) % self.bytes();
        (self.free > 0).then_some(next)
    }

    /// Puts a batch of `bytes` at `place`, which [`Ring::place`] gave.
    pub(super) fn take(&mut self, place: u64, bytes: u64, last_seq: Seq) {
        if place.is_multiple_of(self.segment_bytes) {
            self.free -= 1;
        }
        let segment = self.segment_of(place);
        self.last_seqs[segment] = last_seq;
        self.cursor = (place + bytes) % self.bytes();
    }

    /// Counts the segments free whose sequences are all below `released` (at least 1).
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
}
