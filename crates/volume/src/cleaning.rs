//! Cleaning: slots that are needed move out of segments in which few are.
//!
//! What survives is put together in a segment of its own, apart from what is written now: it has
//! been needed for a while, and will be for longer. (LFS, Rosenblum and Ousterhout 1992, section
//! 3.5: a segment is worth cleaning by the space that is gained and the age of what stays, over the
//! cost of reading it whole and writing what is needed.)
//!
//! Invariant: where a home is changes once its slots are stable in the new segment; the old one is
//! given back by a later record, once nobody reads there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use upsweep::Durability;
use upsweep::layers::device::{Buffer, Class, WriteMode};
use upsweep::layers::runtime::ReservedExtent;

use crate::address::{BLOCK_BYTES, Physical};
use crate::error::Error;
use crate::home_rows::key_of_place;
use crate::homes::{InUse, Part, SegmentKey, key_of, row_of};
use crate::payload::Payload;
use crate::slots::Slots;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of one request at most: 1 MiB. Others get their turn between two requests, and buffers of
/// this size take over the memory of earlier ones.
const REQUEST_BLOCKS: u16 = 256;
/// A span is read as a whole if at least this share of it is needed.
const NEEDED_SHARE: u64 = 4;

/// A part of a home that has been copied out of a segment.
pub struct Move {
    from: Arc<ReservedExtent>,
    home: u64,
    parts: Vec<Part>,
}

/// Slots of segments.
type SegmentSlots = Vec<(Arc<ReservedExtent>, Range<u16>)>;

impl InUse {
    /// What cleaning it is worth, by space, age and cost.
    fn worth(&self, slots: u16, next_home: u64) -> f64 {
        let used = f64::from(self.living) / f64::from(slots);
        let youngest = self.homes.last().copied().unwrap_or_default();
        (1.0 - used) * (next_home - youngest) as f64 / (1.0 + used)
    }
}

impl Payload {
    /// Copies what is needed out of some segments if there is little room or too much is dead. Once
    /// that is flushed, [`Payload::replace`] ends it.
    pub fn begin_to_clean(&self) -> Result<Vec<Move>, Error> {
        let mut moves = Vec::new();
        for (segment, homes) in self.choose() {
            match self.move_out_of(&segment, homes) {
                Ok(moved) => moves.extend(moved),
                Err(error) => {
                    if let Error::Store(upsweep::Error::Damaged(_)) = &error {
                        self.state.lock().unreadable.insert(key_of(&segment));
                    }
                    // What has moved may make room for the rest.
                    if !moves.is_empty() {
                        break;
                    }
                    return Err(error);
                }
            }
        }
        Ok(moves)
    }

    /// The segments that it is best to clean now, and the homes of which parts are in each.
    fn choose(&self) -> Vec<(Arc<ReservedExtent>, BTreeSet<u64>)> {
        let state = self.state.lock();
        let Some(segments_max) = self.room(&state).segments_to_clean() else { return Vec::new() };
        let mut left = state.unreadable.clone();
        left.extend(state.survivors.as_ref().map(|(segment, _)| key_of(segment)));
        let growing =
            state.open.map(|(home, _)| home).into_iter().chain(state.homes_being_written());
        let homes = growing.filter_map(|home| state.homes.get(home));
        left.extend(homes.flat_map(|home| &home.parts).map(|part| key_of(&part.segment)));
        let slots = self.slots_per_home;
        let is_candidate = |(key, in_use): &(SegmentKey, &InUse)| {
            in_use.living < u32::from(slots) && !left.contains(key)
        };
        let candidates = state.homes.segments().filter(is_candidate);
        let mut by_worth: Vec<(f64, &InUse)> =
            candidates.map(|(_, in_use)| (in_use.worth(slots, state.next_home), in_use)).collect();
        let order = |left: &(f64, &InUse), right: &(f64, &InUse)| right.0.total_cmp(&left.0);
        if segments_max < by_worth.len() {
            by_worth.select_nth_unstable_by(segments_max, order);
            by_worth.truncate(segments_max);
        }
        by_worth.sort_by(order);
        by_worth.iter().map(|(_, best)| (Arc::clone(&best.segment), best.homes.clone())).collect()
    }

    /// Copies what is needed of homes out of a segment to that of survivors, where it is not stable
    /// yet.
    fn move_out_of(
        &self,
        segment: &Arc<ReservedExtent>,
        homes: BTreeSet<u64>,
    ) -> Result<Vec<Move>, Error> {
        let (living, places) = self.living_in(segment, homes);
        let read = read_places(segment, &places)?;
        let taken = self.take_survivors(places.len() as u16)?;
        let block = |place: &u64| {
            let (from, data) = read.range(..=place).next_back().expect("it was read");
            &data[(place - from) as usize..][..BLOCK]
        };
        self.write_blocks(places.iter().map(block), &taken)?;
        let mut free = taken.iter().flat_map(|(to, free)| free.clone().map(move |slot| (to, slot)));
        let mut moves = Vec::new();
        for (home, slots) in living {
            let mut parts: Vec<Part> = Vec::new();
            for (slot, (to, base)) in slots.into_iter().zip(&mut free) {
                if !parts.last().is_some_and(|part| Arc::ptr_eq(&part.segment, to)) {
                    let present = Some(Slots::none(self.slots_per_home));
                    parts.push(Part { segment: Arc::clone(to), base, present });
                }
                let present = parts.last_mut().and_then(|part| part.present.as_mut());
                present.expect("just made").add(slot);
            }
            moves.push(Move { from: Arc::clone(segment), home, parts });
        }
        Ok(moves)
    }

    /// Writes blocks to as many slots.
    fn write_blocks<'a>(
        &self,
        mut blocks: impl Iterator<Item = &'a [u8]>,
        slots: &SegmentSlots,
    ) -> Result<(), Error> {
        for (segment, slots) in slots {
            for first in slots.clone().step_by(usize::from(REQUEST_BLOCKS)) {
                let count = REQUEST_BLOCKS.min(slots.end - first);
                let mut buffer = Buffer::recycled(usize::from(count) * BLOCK);
                for (into, block) in buffer.chunks_exact_mut(BLOCK).zip(&mut blocks) {
                    into.copy_from_slice(block);
                }
                let offset = u64::from(first) * BLOCK_BYTES;
                segment.write(offset, buffer, WriteMode::Cached, Class::SweepWrite)?;
                self.state.lock().note_unflushed(segment);
            }
        }
        Ok(())
    }

    /// The slots of homes in a segment that are needed, and their offsets there.
    fn living_in(
        &self,
        segment: &Arc<ReservedExtent>,
        homes: BTreeSet<u64>,
    ) -> (Vec<(u64, Vec<u16>)>, Vec<u64>) {
        let state = self.state.lock();
        let (mut all, mut offsets) = (Vec::new(), Vec::new());
        for home in homes {
            let Some(found) = state.homes.get(home) else { continue };
            let parts = found.parts.iter().filter(|part| Arc::ptr_eq(&part.segment, segment));
            let slots =
                parts.flat_map(|part| part.living(&found.dead).iter().collect::<Vec<u16>>());
            // In a part they are in order.
            let mut living: Vec<u16> = slots.collect();
            living.sort_unstable();
            let place = |slot: &u16| state.place(Physical { home, slot: *slot }, 1);
            living.retain(|slot| {
                let found = place(slot).map(|place| place.offset);
                offsets.extend(found);
                found.is_some()
            });
            all.push((home, living));
        }
        (all, offsets)
    }

    /// Takes so many slots, at most those of a segment: what the segment of survivors still has,
    /// and the rest of a new one. All or none, as a part of what is needed frees no segment.
    fn take_survivors(&self, slots: u16) -> Result<SegmentSlots, Error> {
        let known = self.state.lock().survivors.clone();
        let left = known.as_ref().map_or(0, |(_, next)| self.slots_per_home - next).min(slots);
        let new = if left < slots { Some(self.spare_or_reserved()?) } else { None };
        let mut taken = SegmentSlots::new();
        if let Some((segment, next)) = known.filter(|_| left > 0) {
            taken.push((segment, next..next + left));
        }
        taken.extend(new.map(|segment| (segment, 0..slots - left)));
        if let Some((segment, range)) = taken.last() {
            self.state.lock().survivors = Some((Arc::clone(segment), range.end));
        }
        self.taken.by_cleaning.fetch_add(u64::from(slots), Ordering::Relaxed);
        Ok(taken)
    }

    /// An empty segment; the last spare one only if the devices are full.
    fn spare_or_reserved(&self) -> Result<Arc<ReservedExtent>, Error> {
        if let Some(spare) = self.state.lock().take_spare() {
            return Ok(spare);
        }
        match self.reserve() {
            Err(error) if error.is_full() => self.state.lock().spares.pop().ok_or(error),
            reserved => reserved,
        }
    }

    /// Records where homes are now that what has moved is stable.
    pub fn replace(&self, moves: Vec<Move>) -> Result<(), Error> {
        let state = self.state.lock();
        let mut places: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut left = Vec::new();
        for Move { from, home: number, parts } in moves {
            let Some(home) = state.homes.get(number) else { continue };
            let places = places.entry(number).or_insert_with(|| home.parts.clone());
            places.retain(|part| !Arc::ptr_eq(&part.segment, &from));
            places.extend(parts);
            left.push(from);
        }
        drop(state);
        let mut batch = self.store.batch();
        for (number, parts) in &places {
            batch.put(&self.table, &key_of_place(*number), &row_of(parts));
        }
        batch.commit(Durability::Relaxed)?;
        let mut state = self.state.lock();
        for (number, parts) in places {
            state.homes.relocate(number, parts);
        }
        left.into_iter().for_each(|segment| state.retire(segment));
        Ok(())
    }
}

/// Reads parts of a segment in which all blocks at these offsets are; returns them by offset.
fn read_places(segment: &ReservedExtent, places: &[u64]) -> Result<BTreeMap<u64, Buffer>, Error> {
    let (Some(first), Some(last)) = (places.iter().min(), places.iter().max()) else {
        return Ok(BTreeMap::new());
    };
    let (request, end) = (u64::from(REQUEST_BLOCKS) * BLOCK_BYTES, last + BLOCK_BYTES);
    let is_dense = end - first <= places.len() as u64 * BLOCK_BYTES * NEEDED_SHARE;
    let spans: Vec<Range<u64>> = if is_dense {
        let starts = (*first..end).step_by(request as usize);
        starts.map(|start| start..end.min(start + request)).collect()
    } else {
        let runs = places.chunk_by(|left, right| left + BLOCK_BYTES == *right);
        runs.map(|run| run[0]..run[run.len() - 1] + BLOCK_BYTES).collect()
    };
    let read = |span: Range<u64>| {
        let buffer = Buffer::recycled((span.end - span.start) as usize);
        Ok((span.start, segment.read(span.start, buffer, Class::SweepRead)?))
    };
    spans.into_iter().map(read).collect()
}
