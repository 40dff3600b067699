//! The buffer of a drive: its segments, and which sectors they hold.
//!
//! A segment holds sectors in sequence, and no two segments hold the same one. What was written to
//! it and is not on the media yet is dirty: a part that reaches to its end. What is being read from
//! the media counts as held already, and what that will overwrite as still held; `reading.rs` knows
//! when the one comes and the other goes.

use std::collections::VecDeque;

use super::description::{Cache, ReadAhead, WriteBack};
use super::layout::Layout;

/// Sectors in sequence.
#[derive(Clone, Debug)]
struct Segment {
    id: u64,
    first: u64,
    end: u64,
    /// Whether writes filled it.
    is_written: bool,
    dirty: Option<Dirty>,
    /// The time of its last use, counted in uses.
    used: u64,
}

/// Sectors of a segment that are not on the media yet, to its end.
#[derive(Clone, Debug)]
struct Dirty {
    first: u64,
    /// The number of the oldest write among them.
    since: u64,
    /// The end of those that are being written to the media.
    destaged_to: Option<u64>,
    /// The writes of the others, in sequence.
    writes: VecDeque<DirtyWrite>,
}

/// A write that was accepted into the buffer.
#[derive(Clone, Copy, Debug)]
struct DirtyWrite {
    number: u64,
    end: u64,
    /// When its data is in the buffer, and that of those before it.
    ready_ms: f64,
}

impl Dirty {
    /// Writes whose data is in the buffer at a time.
    fn ready(&self, now_ms: f64) -> usize {
        self.writes.partition_point(|write| write.ready_ms <= now_ms)
    }

    /// The end of the sectors that can be written to the media at a time, if there are any.
    fn end(&self, now_ms: f64) -> Option<u64> {
        let last = self.ready(now_ms).checked_sub(1).filter(|_| self.destaged_to.is_none());
        last.map(|last| self.writes[last].end)
    }
}

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It goes to the media.
    Media,
    /// Dirty sectors have to be written to the media first.
    Waits,
    /// It replaces dirty sectors of a segment.
    Inside(u64),
    /// It goes on at the end of a segment.
    Append(u64),
    /// It gets a segment of its own.
    New,
}

/// Dirty sectors that can be written to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destage {
    pub(super) segment: u64,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// The segments of a drive.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    rules: Cache,
    /// Ascending, disjoint.
    segments: Vec<Segment>,
    /// Uses so far.
    uses: u64,
    /// Segments so far.
    made: u64,
    /// Writes accepted so far: each has its number.
    accepted: u64,
    /// Segments that writes filled.
    written: usize,
    /// Those of them that have dirty sectors.
    dirty: usize,
    /// Last sectors of recent reads, as many as there are segments.
    recent: VecDeque<u64>,
}

impl Buffer {
    /// An empty buffer.
    pub(super) fn new(rules: &Cache) -> Self {
        let mut rules = rules.clone();
        if !rules.enabled {
            (rules.segments, rules.write_back) = (0, WriteBack::None);
        }
        Self {
            rules,
            segments: Vec::new(),
            uses: 0,
            made: 0,
            accepted: 0,
            written: 0,
            dirty: 0,
            recent: VecDeque::new(),
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.rules);
    }

    pub(super) fn rules(&self) -> &Cache {
        &self.rules
    }

    /// Writes accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Whether anything is dirty.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty > 0
    }

    /// Whether anything is dirty of the writes with numbers up to this one.
    pub(super) fn is_dirty_of(&self, number: u64) -> bool {
        let mut dirty = self.segments.iter().filter_map(|segment| segment.dirty.as_ref());
        self.is_dirty() && dirty.any(|dirty| dirty.since <= number)
    }

    /// The place of the first segment that ends after this LBN.
    fn from(&self, lbn: u64) -> usize {
        self.segments.partition_point(|segment| segment.end <= lbn)
    }

    fn place_of(&self, id: u64) -> Option<usize> {
        self.segments.iter().position(|segment| segment.id == id)
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = &Segment> {
        let after = self.segments[self.from(from)..].iter();
        after.take_while(move |segment| segment.first < to)
    }

    /// Whether dirty sectors are in this range.
    pub(super) fn touches_dirty(&self, from: u64, to: u64) -> bool {
        self.is_dirty() && self.overlapping(from, to).any(|segment| segment.dirty_in(from, to))
    }

    /// Whether every command but an appended write waits until nothing is dirty.
    pub(super) fn flushes_first(&self) -> bool {
        self.rules.write_back == WriteBack::AppendingMixed && self.is_dirty()
    }

    /// The segment that a read at this LBN finds its first sectors in, and the LBN after its last.
    pub(super) fn hit(&self, lbn: u64) -> Option<(u64, u64)> {
        let segment = self.segments.get(self.from(lbn)).filter(|found| found.first <= lbn)?;
        let is_readable = !segment.is_written || self.rules.read_hits_on_write_data;
        is_readable.then_some((segment.id, segment.end))
    }

    /// Whether this segment is one of reads.
    pub(super) fn is_read(&self, id: u64) -> bool {
        self.place_of(id).is_some_and(|place| !self.segments[place].is_written)
    }

    /// Whether sectors of this range are in a segment.
    pub(super) fn is_kept_in(&self, id: u64, from: u64, to: u64) -> bool {
        self.overlapping(from, to).any(|segment| segment.id == id)
    }

    /// The LBN up to which the drive reads for a read that ends at this one, whatever waits.
    pub(super) fn needed(&self, to: u64) -> u64 {
        to + u64::from(self.rules.read_ahead_min_sectors)
    }

    /// Marks a segment as used.
    pub(super) fn touch(&mut self, id: u64) {
        self.uses += 1;
        if let Some(place) = self.place_of(id) {
            self.segments[place].used = self.uses;
        }
    }

    /// Whether there are as many segments as may be: of this kind, and of both.
    fn is_full(&self, is_written: bool) -> (bool, bool) {
        let Cache { segments, write_segments_max, dedicated_write_segment, .. } = self.rules;
        let for_writes = u32::from(dedicated_write_segment && segments > 1);
        let (alike, most) = if is_written {
            (self.written, write_segments_max)
        } else {
            (self.segments.len() - self.written, segments - for_writes)
        };
        (alike >= most as usize, self.segments.len() >= segments as usize)
    }

    /// Whether a segment can be made, because there are fewer than may be, or one can be given up.
    fn has_room(&self, is_written: bool) -> bool {
        match self.is_full(is_written) {
            (false, false) => true,
            (false, true) => self.segments.len() > self.dirty,
            // Only written ones are dirty.
            (true, _) if is_written => self.written > self.dirty,
            (true, _) => self.segments.len() > self.written,
        }
    }

    /// Makes a segment, in place of the clean one that was not used for the longest time if there
    /// is no other room; none if there is no room at all.
    fn make(&mut self, first: u64, end: u64, is_written: bool) -> Option<u64> {
        if !self.has_room(is_written) {
            return None;
        }
        let (is_kind_full, is_full) = self.is_full(is_written);
        if is_kind_full || is_full {
            let places = self.segments.iter().enumerate();
            let clean = places.filter(|(_, segment)| {
                let is_alike = segment.is_written == is_written;
                segment.dirty.is_none() && (!is_kind_full || is_alike)
            });
            let oldest = clean.min_by_key(|(_, segment)| segment.used);
            self.remove(oldest.map(|(place, _)| place)?);
        }
        self.written += usize::from(is_written);
        self.made += 1;
        let id = self.made;
        let segment = Segment { id, first, end, is_written, dirty: None, used: 0 };
        let place = self.from(first);
        let is_free = self.segments.get(place).is_none_or(|next| end <= next.first);
        debug_assert!(is_free, "{first} to {end} is held already");
        self.segments.insert(place, segment);
        self.touch(id);
        Some(id)
    }

    fn remove(&mut self, place: usize) {
        let removed = self.segments.remove(place);
        self.written -= usize::from(removed.is_written);
    }

    /// Forgets clean sectors of this range, and those of their segments behind it.
    fn forget(&mut self, from: u64, to: u64, except: Option<u64>) {
        let mut place = self.from(from);
        while let Some(segment) = self.segments.get_mut(place) {
            if segment.first >= to {
                break;
            }
            if segment.dirty_in(from, to) || Some(segment.id) == except {
                place += 1;
            } else if segment.dirty.is_some() {
                // Only the clean part before its dirty sectors is stale.
                segment.first = segment.dirty_first();
                place += 1;
            } else if segment.first < from {
                segment.end = from;
                place += 1;
            } else {
                self.remove(place);
            }
        }
    }

    /// What happens to a write of this range.
    pub(super) fn place(&self, from: u64, to: u64) -> Place {
        let Cache { write_back, segment_sectors, write_segments_max, segments, .. } = self.rules;
        let fits = to - from <= u64::from(segment_sectors) && write_segments_max.min(segments) > 0;
        if write_back == WriteBack::None || !fits {
            return if self.flushes_first() { Place::Waits } else { Place::Media };
        }
        let appended = self.appended(from, to);
        if self.flushes_first() {
            let is_dirty = |id: &u64| {
                self.place_of(*id).is_some_and(|place| self.segments[place].dirty.is_some())
            };
            return appended.filter(is_dirty).map_or(Place::Waits, Place::Append);
        }
        if self.touches_dirty(from, to) {
            let mut around = self.overlapping(from, to).filter(|found| found.holds_dirty(from, to));
            return around.next().map_or(Place::Waits, |segment| Place::Inside(segment.id));
        }
        match appended {
            Some(id) => Place::Append(id),
            None if self.has_room(true) => Place::New,
            None => Place::Waits,
        }
    }

    /// The segment that a write of this range can go on in.
    fn appended(&self, from: u64, to: u64) -> Option<u64> {
        let place = self.segments.partition_point(|segment| segment.end < from);
        let segment = self.segments.get(place).filter(|segment| segment.end == from)?;
        let dirty_first = if segment.dirty.is_some() { segment.dirty_first() } else { from };
        let fits = to - dirty_first <= u64::from(self.rules.segment_sectors);
        let can = self.rules.combine_sequential_writes && segment.is_written && fits;
        can.then_some(segment.id)
    }

    /// Takes a write whose data is in the buffer at `ready_ms` into its place.
    pub(super) fn accept(&mut self, place: Place, (from, to): (u64, u64), ready_ms: f64) {
        self.accepted += 1;
        let number = self.accepted;
        let Some(id) = self.keep_written(place, from, to) else { return };
        if matches!(place, Place::Inside(_)) {
            return;
        }
        let Some(place) = self.place_of(id) else { return };
        let segment = &mut self.segments[place];
        if segment.dirty.is_none() {
            self.dirty += 1;
        }
        let dirty = segment.dirty.get_or_insert_with(|| Dirty {
            first: from,
            since: number,
            destaged_to: None,
            writes: VecDeque::new(),
        });
        let ready_ms = dirty.writes.back().map_or(ready_ms, |last| last.ready_ms.max(ready_ms));
        dirty.writes.push_back(DirtyWrite { number, end: to, ready_ms });
    }

    /// Keeps written sectors in their place, and returns the segment.
    fn keep_written(&mut self, place: Place, from: u64, to: u64) -> Option<u64> {
        let id = match place {
            Place::Inside(id) | Place::Append(id) => Some(id),
            Place::Media | Place::Waits | Place::New => None,
        };
        self.forget(from, to, id);
        let Some(id) = id else { return self.make(from, to, true) };
        self.touch(id);
        let segment = self.place_of(id).map(|place| &mut self.segments[place])?;
        segment.end = segment.end.max(to);
        // The oldest sectors make room.
        let room = u64::from(self.rules.segment_sectors);
        segment.first = segment.first.max(segment.end.saturating_sub(room));
        Some(id)
    }

    /// Keeps sectors that a command writes to the media, if they can be read from the buffer.
    pub(super) fn pass_through(&mut self, from: u64, to: u64) {
        let fits = to - from <= u64::from(self.rules.segment_sectors);
        if !self.rules.read_hits_on_write_data || !fits {
            self.forget(from, to, None);
            return;
        }
        let is_clean =
            |id: &u64| self.place_of(*id).is_some_and(|place| self.segments[place].dirty.is_none());
        let place = self.appended(from, to).filter(is_clean).map_or(Place::New, Place::Append);
        self.keep_written(place, from, to);
    }

    /// Dirty sectors that can be written to the media now, one range for each segment, with the
    /// number of the oldest write among them.
    pub(super) fn destages(&self, now_ms: f64) -> impl Iterator<Item = (u64, Destage)> {
        let dirty = self.segments.iter().filter(|_| self.is_dirty());
        dirty.filter_map(move |segment| {
            let Dirty { since, first, .. } = *segment.dirty.as_ref()?;
            let end = segment.dirty.as_ref()?.end(now_ms)?;
            Some((since, Destage { segment: segment.id, first, end }))
        })
    }

    /// The first time after this one at which more dirty sectors can be written to the media.
    pub(super) fn next_ready_ms(&self, now_ms: f64) -> Option<f64> {
        let dirty = self.segments.iter().filter_map(|segment| segment.dirty.as_ref());
        let next = dirty.filter_map(|dirty| dirty.writes.get(dirty.ready(now_ms)));
        next.map(|write| write.ready_ms).min_by(f64::total_cmp)
    }

    fn dirty_of(&mut self, id: u64) -> Option<&mut Dirty> {
        let segment = self.segments.iter_mut().find(|segment| segment.id == id)?;
        segment.dirty.as_mut()
    }

    /// Dirty sectors begin to be written to the media.
    pub(super) fn begin(&mut self, destage: &Destage) {
        if let Some(dirty) = self.dirty_of(destage.segment) {
            dirty.destaged_to = Some(destage.end);
            dirty.writes.retain(|write| write.end > destage.end);
        }
    }

    /// Dirty sectors are on the media.
    pub(super) fn end(&mut self, destage: &Destage) {
        let Some(dirty) = self.dirty_of(destage.segment) else { return };
        (dirty.first, dirty.destaged_to) = (destage.end, None);
        if let Some(next) = dirty.writes.front() {
            dirty.since = next.number;
            return;
        }
        self.dirty -= 1;
        if let Some(place) = self.place_of(destage.segment) {
            self.segments[place].dirty = None;
            if !self.rules.read_hits_on_write_data {
                self.remove(place);
            }
        }
    }

    /// Remembers a read that ended at this LBN.
    pub(super) fn remember(&mut self, end: u64) {
        self.recent.push_back(end - 1);
        if self.recent.len() > self.rules.segments as usize {
            self.recent.pop_front();
        }
    }

    /// The LBN up to which the drive reads after a read of this range; its end, if it does not read
    /// ahead.
    pub(super) fn ahead(&self, from: u64, to: u64, layout: &Layout) -> u64 {
        let Cache { read_ahead_min_sectors, read_ahead_max_sectors, .. } = self.rules;
        if self.rules.segments == 0 {
            return to;
        }
        let anchor = if self.rules.read_ahead_over_requested { to } else { from };
        let room = anchor + u64::from(self.rules.segment_sectors);
        let wanted = match self.rules.read_ahead {
            ReadAhead::None => return to,
            ReadAhead::UntilSegmentFull => room,
            ReadAhead::NextTrackIfSequential => self.end_of_next_track(to, layout).unwrap_or(to),
        };
        let most = to + u64::from(read_ahead_max_sectors);
        let end = wanted.min(most).min(room).max(to + u64::from(read_ahead_min_sectors));
        // No sector is read that the buffer has.
        let next = self.segments.iter().map(|segment| segment.first).find(|first| *first >= to);
        end.min(next.unwrap_or(u64::MAX)).min(layout.lbns()).max(to)
    }

    /// The end of the track after that of the last sector, if a recent read ended on the track
    /// before.
    fn end_of_next_track(&self, end: u64, layout: &Layout) -> Option<u64> {
        let track = layout.track(end - 1);
        let before = layout.track(track.start.checked_sub(1)?);
        let is_sequential = self.recent.iter().any(|last| before.contains(last));
        (is_sequential && track.end < layout.lbns()).then(|| layout.track(track.end).end)
    }

    /// Keeps sectors that a command reads from the media, on from those of the segment `id` or in a
    /// new one, and those on the same track that pass in `slots_before` before them. Returns the
    /// segment, if one has room, and the LBN up to which the drive reads ahead.
    pub(super) fn keep_read(
        &mut self,
        id: Option<u64>,
        (from, to): (u64, u64),
        slots_before: u64,
        layout: &Layout,
    ) -> (Option<u64>, u64) {
        let id = id.filter(|id| self.is_read(*id));
        self.forget(from, to, id);
        let end = self.ahead(from, to, layout);
        self.remember(to);
        if let Some(place) = id.and_then(|id| self.place_of(id)) {
            self.touch(self.segments[place].id);
            let segment = &mut self.segments[place];
            segment.end = segment.end.max(end);
            return (id, segment.end);
        }
        let keeps = self.rules.read_sectors_before_request;
        let first = if keeps { layout.passed_before(from, slots_before) } else { from };
        // Those that another segment has stay there.
        let before = self.from(from).checked_sub(1).map_or(0, |place| self.segments[place].end);
        match self.make(first.max(before), end, false) {
            Some(id) => (Some(id), end),
            None => (None, to),
        }
    }

    /// A segment holds nothing from this LBN on, because reading stopped there, and only as much
    /// before it as it has room for.
    pub(super) fn cut(&mut self, id: u64, end: u64) {
        let Some(place) = self.place_of(id) else { return };
        let segment = &mut self.segments[place];
        segment.end = segment.end.min(end);
        let room = u64::from(self.rules.segment_sectors);
        segment.first = segment.first.max(segment.end.saturating_sub(room));
        if segment.end <= segment.first {
            self.remove(place);
        }
    }
}

impl Segment {
    fn dirty_first(&self) -> u64 {
        self.dirty.as_ref().map_or(self.end, |dirty| dirty.first)
    }

    /// Whether sectors of this range are dirty.
    fn dirty_in(&self, from: u64, to: u64) -> bool {
        self.dirty_first().max(from) < self.end.min(to)
    }

    /// Whether all sectors of this range are dirty, and none of them is being written to the media.
    fn holds_dirty(&self, from: u64, to: u64) -> bool {
        let Some(dirty) = &self.dirty else { return false };
        dirty.destaged_to.unwrap_or(dirty.first) <= from && to <= self.end
    }
}
