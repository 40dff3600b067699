//! Payload: homes of slots, and the segments of the data devices that they are in.
//!
//! A *home* is a number of slots, filled in order by writes and never again. It is in one
//! *segment*, a reserved extent. A slot is *dead* when no one needs it; when enough are, the living
//! ones move to another segment. Only the record of the home says where its slots are, so nothing
//! that refers to them has to change.
//!
//! Invariants: a segment that anyone reads or writes is not given back; a home's place is declared
//! before anything that refers to its slots; a segment is used again only once it is stable that
//! nothing in it is needed; whoever reads slots or flushes waits for what is being written there.

mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use upsweep::layers::runtime::{BlockStore, ReservedExtent};
use upsweep::layers::structures::modifiers::BIT_OR;
use upsweep::{Batch, Durability, Store, Table};

use crate::address::{BLOCK_BYTES, Physical};
use crate::ahead::Ahead;
use crate::buffer::{Stretch, WriteBuffer};
use crate::error::Error;
use crate::home_rows::{self, HomeRows, PartRow, key_of_dead, key_of_place};
use crate::homes::{Burial, Home, Homes, Part, SegmentKey, key_of, row_of};
use crate::room::Refusals;
use crate::slots::Slots;
use crate::stamps::Change;

pub use writing::Data;

/// The table of homes; its space owns the segments.
pub const TABLE: &str = "volumes/homes";
/// Writes of at most this many bytes are copied to a buffer in memory, where one stretch of the
/// devices is made of many.
pub const BUFFERED_BYTES_MAX: usize = 128 << 10;
/// Longer ones are accepted before the devices have them as long as they take no more than this
/// together: 16 MiB.
const ACCEPTED_SLOTS_MAX: u64 = (16 << 20) / BLOCK_BYTES;

/// All payload of a store.
pub struct Payload {
    pub store: Store,
    pub table: Table,
    pub slots_per_home: u16,
    pub state: Mutex<State>,
    /// A write has ended.
    written: Condvar,
    /// Segments that belong to this.
    pub segments: AtomicU64,
    pub refusals: Refusals,
    /// A home was opened when there was little room, and nobody has cleaned for it yet.
    pub owes: AtomicBool,
    /// What is called when there is work in the background that should not wait.
    pub wake: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    pub taken: Taken,
}

/// Slots that were taken since the store was opened.
#[derive(Default)]
pub struct Taken {
    pub by_writes: AtomicU64,
    pub by_cleaning: AtomicU64,
}

#[derive(Default)]
pub struct State {
    pub homes: Homes,
    /// The home that is being filled, and its first free slot.
    pub open: Option<(u64, u16)>,
    pub next_home: u64,
    /// Slots that were taken since the last sweep was asked for.
    taken: u64,
    /// The segment that cleaning fills, and its first free slot.
    pub survivors: Option<(Arc<ReservedExtent>, u16)>,
    /// Segments of which cleaning could not read what is needed.
    pub unreadable: BTreeSet<SegmentKey>,
    /// First slots and lengths of what is being written past the buffer.
    in_flight: BTreeMap<Physical, u16>,
    buffer: WriteBuffer,
    ahead: Ahead,
    /// Segments without homes, some of which may still be read.
    pub retired: Vec<Arc<ReservedExtent>>,
    /// Slots that a write took and did not use.
    unused: Vec<Physical>,
    /// Segments that are reserved and empty. The last one is for cleaning when the devices are
    /// full; on nearly full ones there are more, which would be in pieces once they were given back
    /// and reserved again.
    pub spares: Vec<Arc<ReservedExtent>>,
    /// A segment of each device that has been written to since its last flush.
    unflushed: BTreeMap<u16, Arc<ReservedExtent>>,
}

/// Slots that were taken for a write.
pub struct Allocation {
    pub pieces: Vec<Piece>,
    /// Stretches of the buffer that this write has to write.
    due: Vec<Arc<Stretch>>,
    /// Whether its data is in the buffer.
    is_buffered: bool,
    /// Whether it may be accepted before the devices have it.
    pub is_accepted: bool,
}

/// What a slot is, or where.
pub enum Slot {
    /// The content of some slots from there on.
    Memory(Vec<u8>),
    Device(Place),
}

/// Consecutive slots that are to be written.
pub struct Piece {
    pub first: Physical,
    pub slots: u16,
    place: Place,
}

/// Where consecutive slots are now. The segment stays as long as this.
#[derive(Clone)]
pub struct Place {
    pub segment: Arc<ReservedExtent>,
    /// Offset in the segment in bytes.
    pub offset: u64,
    /// How many of them lie there, one after another.
    pub slots: u16,
}

/// The length of a segment in bytes.
fn bytes_of(slots_per_home: u16) -> u32 {
    u32::from(slots_per_home) * BLOCK_BYTES as u32
}

/// Segments by key.
type Segments = BTreeMap<SegmentKey, Arc<ReservedExtent>>;

impl Payload {
    /// Opens the payload of a store; homes up to `last` have been used. Segments without a home are
    /// given back, but for the spare one.
    pub fn open(store: &Store, slots_per_home: u16, last: u64) -> Result<Self, Error> {
        let (payload, mut unused, faults) = Self::load(store, slots_per_home, last)?;
        if let Some(fault) = faults.into_iter().next() {
            return Err(Error::Tables(fault));
        }
        let mut state = payload.state.lock();
        state.spares.extend(unused.pop_first().map(|(_, segment)| segment));
        state.note_all_unflushed();
        drop(state);
        unused.into_values().try_for_each(|segment| payload.give_back(segment))?;
        Ok(payload)
    }

    /// The payload of a store, segments without a home, and what is wrong with the homes. Parts of
    /// these without a segment are left out.
    pub fn load(
        store: &Store,
        slots_per_home: u16,
        last: u64,
    ) -> Result<(Self, Segments, Vec<String>), Error> {
        let table = store.table(TABLE)?.with_durability(Durability::Relaxed);
        let segments = store.blocks().extents(table.space())?;
        let is_other =
            |segment: &ReservedExtent| segment.extent().bytes != bytes_of(slots_per_home);
        if let Some(other) = segments.iter().find(|segment| is_other(segment)) {
            let bytes = other.extent().bytes;
            return Err(Error::Tables(format!(
                "a segment of {bytes} bytes, where homes have {slots_per_home} slots"
            )));
        }
        let by_key = |segment: ReservedExtent| (key_of(&segment), Arc::new(segment));
        let mut segments: Segments = segments.into_iter().map(by_key).collect();
        let (mut homes, mut filled, mut faults) = (Homes::default(), BTreeMap::new(), Vec::new());
        let mut next_home = last + 1;
        for (number, HomeRows { dead, parts: rows }) in home_rows::read(&table, slots_per_home)? {
            if rows.is_empty() {
                continue;
            }
            let mut parts = Vec::new();
            for PartRow { device, offset, base, present } in rows {
                let Some(segment) = segments.get(&(device, offset)) else {
                    faults.push(format!("a segment of home {number} is missing"));
                    continue;
                };
                let filled = filled.entry((device, offset)).or_insert(0_u32);
                *filled += u32::from(present.as_ref().map_or(slots_per_home, Slots::count));
                if *filled > u32::from(slots_per_home) {
                    faults.push(format!("home {number} is where another one is"));
                }
                parts.push(Part { segment: Arc::clone(segment), base, present });
            }
            let living = slots_per_home - dead.count();
            homes.insert(number, Home { parts, dead, living });
            next_home = next_home.max(number + 1);
        }
        let all = AtomicU64::new(segments.len() as u64);
        segments.retain(|_, segment| Arc::strong_count(segment) == 1);
        let state = State { homes, next_home, ..State::default() };
        let payload = Self {
            store: store.clone(),
            table,
            slots_per_home,
            state: Mutex::new(state),
            written: Condvar::new(),
            segments: all,
            refusals: Refusals::default(),
            owes: AtomicBool::new(false),
            wake: Mutex::default(),
            taken: Taken::default(),
        };
        Ok((payload, segments, faults))
    }

    fn blocks(&self) -> &BlockStore {
        self.store.blocks()
    }

    /// Acts while no change takes slots, with the first slot that none has taken.
    pub fn with_next_slot<T>(&self, act: impl FnOnce(Physical) -> T) -> T {
        let state = self.state.lock();
        let (home, slot) = state.open.unwrap_or((state.next_home, 0));
        act(Physical { home, slot })
    }

    /// Takes slots for groups of blocks, in order; the slots of a group are consecutive. Small
    /// writes are in the buffer then; what is due of that is written by [`Payload::write`].
    pub fn allocate(
        &self,
        change: &Change<'_>,
        groups: &[u16],
        data: &[u8],
    ) -> Result<Allocation, Error> {
        let mut state = self.state.lock();
        let homes = self.homes_for(groups, state.open);
        self.provide(&mut state, homes)?;
        let is_buffered = data.len() <= BUFFERED_BYTES_MAX;
        let mut allocation =
            Allocation { pieces: Vec::new(), due: Vec::new(), is_buffered, is_accepted: false };
        let mut rest = data;
        for slots in groups {
            let first = match state.open {
                Some((home, next)) if next + slots <= self.slots_per_home => {
                    Physical { home, slot: next }
                }
                _ => match self.open_home(&mut state) {
                    Ok(home) => Physical { home, slot: 0 },
                    Err(error) => {
                        drop(state);
                        self.leave(&allocation)?;
                        return Err(error);
                    }
                },
            };
            state.open = Some((first.home, first.slot + slots));
            state.taken += u64::from(*slots);
            self.taken.by_writes.fetch_add(u64::from(*slots), Ordering::Relaxed);
            change.writes_to(first);
            let place = state.place(first, *slots).expect("the home was just opened");
            let (now, later) = rest.split_at(usize::from(*slots) * BLOCK_BYTES as usize);
            if is_buffered {
                allocation.due.extend(state.buffer.add(first, &place, now));
            } else {
                state.in_flight.insert(first, *slots);
            }
            allocation.pieces.push(Piece { first, slots: *slots, place });
            rest = later;
        }
        let in_flight: u64 = state.in_flight.values().map(|slots| u64::from(*slots)).sum();
        allocation.is_accepted = in_flight <= ACCEPTED_SLOTS_MAX;
        Ok(allocation)
    }

    /// Takes note that what was allocated will not be written; writes what is due, on which others
    /// rely.
    pub fn leave(&self, allocation: &Allocation) -> Result<(), Error> {
        let mut state = self.state.lock();
        for Piece { first, slots, .. } in &allocation.pieces {
            state.in_flight.remove(first);
            state.unused.extend((0..*slots).map(|nth| first.plus(nth)));
        }
        drop(state);
        self.written.notify_all();
        self.write_due(&allocation.due)
    }

    /// How many homes are opened for groups of slots, after the one that is open.
    fn homes_for(&self, groups: &[u16], open: Option<(u64, u16)>) -> usize {
        let mut next = open.map_or(self.slots_per_home, |(_, next)| next);
        let mut homes = 0;
        for slots in groups {
            let fits = next + slots <= self.slots_per_home;
            (homes, next) = if fits { (homes, next + slots) } else { (homes + 1, *slots) };
        }
        homes
    }

    /// Reserves segments for so many homes, and one more: the last one of full devices is for
    /// cleaning. Without room for all of them it takes none, or whoever tries again would find as
    /// room what he has left before.
    fn provide(&self, state: &mut State, homes: usize) -> Result<(), Error> {
        let before = state.spares.len().max(1);
        while homes > 0 && state.spares.len() <= homes {
            match self.reserve() {
                Ok(segment) => state.spares.push(segment),
                Err(error) => {
                    let mut more = state.spares.drain(before.min(state.spares.len())..);
                    more.try_for_each(|segment| self.give_back(segment))?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Opens the next home, in a spare segment; what is left of the last one stays unused.
    fn open_home(&self, state: &mut State) -> Result<u64, Error> {
        let (number, segment) = (state.next_home, state.spares.pop().expect("it was provided"));
        let rest = state.open.iter().flat_map(|(home, next)| {
            (*next..self.slots_per_home).map(|slot| Physical { home: *home, slot })
        });
        let unused: Vec<Physical> = rest.chain(state.unused.iter().copied()).collect();
        let mut batch = self.store.batch();
        let burial = state.bury(unused.iter().copied(), self, &mut batch);
        let (dead, living) = (Slots::none(self.slots_per_home), self.slots_per_home);
        let parts = vec![Part { segment: Arc::clone(&segment), base: 0, present: None }];
        let home = Home { parts, dead, living };
        batch.put(&self.table, &key_of_place(number), &row_of(&home.parts));
        if let Err(error) = batch.commit(Durability::Relaxed) {
            state.spares.push(segment);
            return Err(error.into());
        }
        state.open = None;
        state.unused.clear();
        state.homes.bury(burial);
        state.homes.insert(number, home);
        state.next_home += 1;
        let room = self.room(state);
        if room.is_short() {
            self.owes.store(true, Ordering::Release);
        }
        if room.segments_to_clean().is_some() || state.taken > room.unseen_max() {
            self.wake.lock().iter().for_each(|wake| wake());
        }
        Ok(number)
    }

    /// A new segment.
    pub fn reserve(&self) -> Result<Arc<ReservedExtent>, Error> {
        let bytes = bytes_of(self.slots_per_home);
        let reserved = self.blocks().reserve_extent(self.table.space(), bytes);
        let reserved = reserved.map_err(Error::from);
        if reserved.as_ref().err().is_none_or(Error::is_full) {
            self.note_reserved(reserved.is_ok());
        }
        let segment = reserved?;
        self.segments.fetch_add(1, Ordering::AcqRel);
        Ok(Arc::new(segment))
    }

    /// Gives a segment back that nobody has any more.
    fn give_back(&self, segment: Arc<ReservedExtent>) -> Result<(), Error> {
        let segment = Arc::into_inner(segment).expect("no one else has it");
        self.blocks().give_extent_back(segment)?;
        self.refusals.note_given_back();
        self.segments.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Adds to a batch that no one needs these slots; see [`Homes::bury`].
    pub fn bury(&self, slots: impl IntoIterator<Item = Physical>, batch: &mut Batch) -> Burial {
        self.state.lock().bury(slots, self, batch)
    }

    /// Declares that no one needs any slots from `from` on but these.
    pub fn bury_others(&self, from: Physical, needed: &BTreeSet<Physical>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let slots = state
            .homes
            .numbers_from(from.home)
            .flat_map(|home| (0..self.slots_per_home).map(move |slot| Physical { home, slot }));
        let others: Vec<Physical> =
            slots.filter(|slot| *slot >= from && !needed.contains(slot)).collect();
        let mut batch = self.store.batch();
        let burial = state.bury(others, self, &mut batch);
        batch.commit(Durability::Relaxed)?;
        state.homes.bury(burial);
        Ok(())
    }

    /// Whether many slots may be superseded that only a sweep can show: each one that was taken
    /// since the last one supersedes one at most. If so, they count as seen from now on.
    pub fn takes_sweep(&self) -> bool {
        let mut state = self.state.lock();
        let is_due = state.taken > self.room(&state).unseen_max();
        if is_due {
            state.taken = 0;
        }
        is_due
    }

    /// Gives back the segments of homes of which all slots are dead; returns how many. Cost: a log
    /// record for each, and one for all.
    pub fn reclaim(&self) -> Result<usize, Error> {
        let state = self.state.lock();
        let open = state.open.map(|(home, _)| home);
        let over: Vec<u64> = state.homes.empty().filter(|number| Some(*number) != open).collect();
        drop(state);
        if !over.is_empty() {
            let mut batch = self.store.batch();
            for number in &over {
                batch.delete(&self.table, &key_of_place(*number));
                batch.delete(&self.table, &key_of_dead(*number));
            }
            batch.commit(Durability::Relaxed)?;
        }
        let mut state = self.state.lock();
        for number in over {
            let parts = state.homes.remove(number).map(|home| home.parts).unwrap_or_default();
            parts.into_iter().for_each(|part| state.retire(part.segment));
        }
        let unread = state.retired.extract_if(.., |segment| Arc::strong_count(segment) == 1);
        let unread: Vec<Arc<ReservedExtent>> = unread.collect();
        let count = unread.len();
        drop(state);
        if count > 0 {
            // Nobody may write to them before it is stable that nothing there is needed.
            self.blocks().flush()?;
        }
        for segment in unread {
            let mut state = self.state.lock();
            if self.room(&state).keeps_spare() {
                state.spares.push(segment);
                continue;
            }
            drop(state);
            self.give_back(segment)?;
        }
        Ok(count)
    }

    /// Where the first of consecutive slots of a home are, once they have been written, or what
    /// they are, if that is in memory; `None` if no one needs the first one any more.
    pub fn find(&self, first: Physical, slots: u16) -> Option<Slot> {
        let mut state = self.state.lock();
        while state.are_in_flight(first, slots) {
            self.written.wait(&mut state);
        }
        if let Some(data) = state.buffer.find(first, slots) {
            return Some(Slot::Memory(data));
        }
        let mut place = state.place(first, slots)?;
        place.slots = state.buffer.slots_before(first, place.slots);
        Some(Slot::Device(place))
    }

    /// Whether it is recorded that no one needs a slot.
    pub fn is_dead(&self, slot: Physical) -> bool {
        let state = self.state.lock();
        state.homes.get(slot.home).is_some_and(|home| home.dead.has(slot.slot))
    }

    /// How many slots are not known to be dead.
    pub fn living(&self) -> u64 {
        self.state.lock().homes.living()
    }

    /// Whether a slot is in a home and not dead.
    pub fn is_living(&self, slot: Physical) -> bool {
        let state = self.state.lock();
        state.homes.get(slot.home).is_some_and(|home| !home.dead.has(slot.slot))
    }
}

impl State {
    /// A spare segment, but for the last one.
    pub fn take_spare(&mut self) -> Option<Arc<ReservedExtent>> {
        if self.spares.len() > 1 { self.spares.pop() } else { None }
    }

    /// Adds to a batch that no one needs these slots.
    fn bury(
        &self,
        slots: impl IntoIterator<Item = Physical>,
        payload: &Payload,
        batch: &mut Batch,
    ) -> Burial {
        let mut burial = Burial::new();
        for slot in slots {
            if self.homes.get(slot.home).is_some_and(|home| !home.dead.has(slot.slot)) {
                let none = || Slots::none(payload.slots_per_home);
                burial.entry(slot.home).or_insert_with(none).add(slot.slot);
            }
        }
        for (home, slots) in &burial {
            batch.update(&payload.table, &key_of_dead(*home), BIT_OR, slots.bytes());
        }
        burial
    }

    /// Where the first of consecutive slots of a home are.
    pub fn place(&self, first: Physical, slots: u16) -> Option<Place> {
        let home = self.homes.get(first.home)?;
        let slots = slots.min(home.slots().checked_sub(first.slot)?);
        let in_part = |part| Some((part, Part::slot(part, first.slot)?));
        let (part, at) = home.parts.iter().find_map(in_part)?;
        let is_next = |nth: &u16| part.slot(first.slot + nth) == Some(at + nth);
        let slots = (0..slots).take_while(is_next).count() as u16;
        let (segment, offset) = (Arc::clone(&part.segment), u64::from(at) * BLOCK_BYTES);
        Some(Place { segment, offset, slots })
    }

    /// The homes of which slots are being written, or will be.
    pub fn homes_being_written(&self) -> impl Iterator<Item = u64> {
        self.in_flight.keys().map(|first| first.home).chain(self.buffer.homes())
    }

    /// The first slots of what is being written now.
    fn being_written(&self) -> Vec<Physical> {
        self.in_flight.keys().copied().chain(self.buffer.being_written()).collect()
    }

    /// Whether any of what began at these slots is still being written. A slot is filled once, so
    /// nothing else begins there.
    fn are_any_being_written(&self, firsts: &[Physical]) -> bool {
        let is_being_written =
            |first| self.in_flight.contains_key(first) || self.buffer.is_being_written(first);
        firsts.iter().any(is_being_written)
    }

    /// Notes that a segment has been written to.
    pub fn note_unflushed(&mut self, segment: &Arc<ReservedExtent>) {
        let device = segment.extent().device.0;
        self.unflushed.entry(device).or_insert_with(|| Arc::clone(segment));
    }

    /// Notes that all segments may have been written to: a process that was killed may have left
    /// that in the caches of the devices.
    fn note_all_unflushed(&mut self) {
        let segments = self.homes.segments();
        let by_device = segments.map(|((device, _), of)| (device, Arc::clone(&of.segment)));
        self.unflushed = by_device.collect();
    }

    /// Lets a segment go once nobody has it any more.
    pub fn retire(&mut self, segment: Arc<ReservedExtent>) {
        self.unreadable.remove(&key_of(&segment));
        if !self.retired.iter().any(|known| Arc::ptr_eq(known, &segment)) {
            self.retired.push(segment);
        }
    }

    fn are_in_flight(&self, first: Physical, slots: u16) -> bool {
        let last = first.plus(slots - 1);
        let before = self.in_flight.range(..=last).next_back();
        before.is_some_and(|(written, slots)| {
            written.home == first.home && first.slot < written.slot + slots
        })
    }
}
