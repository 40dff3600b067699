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
use std::sync::Arc;

use upsweep::Durability;
use upsweep::layers::device::{Buffer, Class, WriteMode};
use upsweep::layers::runtime::ReservedExtent;

use crate::address::{BLOCK_BYTES, Physical};
use crate::error::Error;
use crate::payload::{Part, Payload, key_of_place};
use crate::slots::Slots;

/// Share of all slots that may be dead, in per cent, before cleaning begins.
pub const DEAD_PERCENT_MAX: usize = 20;
/// The same when the devices are full.
pub const DEAD_PERCENT_MAX_FULL: usize = 5;

/// A segment that may be cleaned.
#[derive(Default)]
struct Candidate {
    /// The homes of which parts are in it.
    homes: BTreeSet<u64>,
    /// Slots of it that are needed.
    living: usize,
}

impl Candidate {
    /// What cleaning it is worth, by space, age and cost.
    fn worth(&self, slots: usize, next_home: u64) -> f64 {
        let used = self.living as f64 / slots as f64;
        let youngest = self.homes.last().copied().unwrap_or_default();
        (1.0 - used) * (next_home - youngest) as f64 / (1.0 + used)
    }
}

impl Payload {
    /// Cleans one segment if more slots are dead, in per cent; returns whether it did.
    pub fn clean(&self, dead_percent_max: usize) -> Result<bool, Error> {
        let Some((segment, homes)) = self.choose(dead_percent_max) else { return Ok(false) };
        for home in homes {
            self.move_out_of(&segment, home)?;
        }
        Ok(true)
    }

    /// The segment that it is best to clean now, and the homes of which parts are in it.
    fn choose(&self, dead_percent_max: usize) -> Option<(Arc<ReservedExtent>, BTreeSet<u64>)> {
        let state = self.state.lock();
        let slots = usize::from(self.slots_per_home);
        let survivors = state.survivors.as_ref().map(|(segment, _)| segment);
        let is_filling = |number: u64, part: &Part| {
            state.open.is_some_and(|(open, _)| open == number)
                || state.is_writing(number)
                || survivors.is_some_and(|segment| Arc::ptr_eq(segment, &part.segment))
        };
        let mut candidates: BTreeMap<(u16, u64), (&Arc<ReservedExtent>, Candidate)> =
            BTreeMap::new();
        for (number, home) in &state.homes {
            for part in home.parts.iter().filter(|part| !is_filling(*number, part)) {
                let extent = part.segment.extent();
                let (_, candidate) = candidates
                    .entry((extent.device.0, extent.offset))
                    .or_insert_with(|| (&part.segment, Candidate::default()));
                candidate.homes.insert(*number);
                candidate.living += match &part.present {
                    None => usize::from(home.living),
                    Some(_) => usize::from(part.living(&home.dead).count()),
                };
            }
        }
        let living: usize = candidates.values().map(|(_, candidate)| candidate.living).sum();
        let all = candidates.len() * slots;
        if (all - living) * 100 <= all * dead_percent_max {
            return None;
        }
        let worth = |candidate: &Candidate| candidate.worth(slots, state.next_home);
        let best = candidates
            .into_values()
            .filter(|(_, candidate)| candidate.living < slots)
            .max_by(|left, right| worth(&left.1).total_cmp(&worth(&right.1)));
        best.map(|(segment, candidate)| (Arc::clone(segment), candidate.homes))
    }

    /// Moves what is needed of a home out of a segment, to that of survivors.
    fn move_out_of(&self, segment: &Arc<ReservedExtent>, home: u64) -> Result<(), Error> {
        let Some((living, places)) = self.living_in(segment, home) else { return Ok(()) };
        let mut moved = Vec::with_capacity(places.len() * BLOCK_BYTES as usize);
        for run in places.chunk_by(|left, right| left + BLOCK_BYTES == *right) {
            let buffer = Buffer::recycled(run.len() * BLOCK_BYTES as usize);
            moved.extend_from_slice(&segment.read(run[0], buffer, Class::SweepRead)?);
        }
        let mut parts = Vec::new();
        let (mut rest, mut data) = (&living[..], &moved[..]);
        while !rest.is_empty() {
            let (to, base, slots) = self.take_survivors(rest.len() as u16)?;
            let (now, later) = data.split_at(usize::from(slots) * BLOCK_BYTES as usize);
            let offset = u64::from(base) * BLOCK_BYTES;
            to.write(offset, Buffer::copy_of(now), WriteMode::Stable, Class::SweepWrite)?;
            let mut present = Slots::none(self.slots_per_home);
            for slot in &rest[..usize::from(slots)] {
                present.add(*slot);
            }
            parts.push(Part { segment: to, base, present: Some(present) });
            (rest, data) = (&rest[usize::from(slots)..], later);
        }
        self.replace(segment, home, parts)
    }

    /// The slots of a home in a segment that are needed, and their offsets there; `None` if the
    /// home is gone.
    fn living_in(&self, segment: &Arc<ReservedExtent>, home: u64) -> Option<(Vec<u16>, Vec<u64>)> {
        let state = self.state.lock();
        let found = state.homes.get(&home)?;
        let parts = found.parts.iter().filter(|part| Arc::ptr_eq(&part.segment, segment));
        let slots = parts.flat_map(|part| part.living(&found.dead).iter().collect::<Vec<u16>>());
        // In a part they are in order.
        let mut living: Vec<u16> = slots.collect();
        living.sort_unstable();
        let place = |slot: &u16| state.place(Physical { home, slot: *slot }, 1);
        let offsets = living.iter().filter_map(place).map(|place| place.offset).collect();
        Some((living, offsets))
    }

    /// Takes up to so many slots of the segment of survivors, or of a new one if that is full.
    fn take_survivors(&self, most: u16) -> Result<(Arc<ReservedExtent>, u16, u16), Error> {
        let now = self.state.lock().survivors.take();
        let has_room = |(_, next): &(Arc<ReservedExtent>, u16)| *next < self.slots_per_home;
        let (segment, base) = match now.filter(has_room) {
            Some(now) => now,
            None => (self.reserve_or_spare()?, 0),
        };
        let slots = most.min(self.slots_per_home - base);
        self.state.lock().survivors = Some((Arc::clone(&segment), base + slots));
        Ok((segment, base, slots))
    }

    /// A new segment, or the spare one if the devices are full.
    fn reserve_or_spare(&self) -> Result<Arc<ReservedExtent>, Error> {
        match self.reserve() {
            Err(error) if error.is_full() => self.state.lock().spare.take().ok_or(error),
            reserved => reserved,
        }
    }

    /// Records that the part of a home in a segment has become these, which are stable.
    fn replace(
        &self,
        segment: &Arc<ReservedExtent>,
        number: u64,
        parts: Vec<Part>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        let Some(home) = state.homes.get_mut(&number) else { return Ok(()) };
        home.parts.retain(|part| !Arc::ptr_eq(&part.segment, segment));
        home.parts.extend(parts);
        let row = home.row();
        drop(state);
        let mut batch = self.store.batch();
        batch.put(&self.table, &key_of_place(number), &row);
        // The record that gives the segment back comes later in the log.
        batch.commit(Durability::Relaxed)?;
        self.state.lock().retire(Arc::clone(segment));
        Ok(())
    }
}
