//! Memory for buffers: chunks as large as a huge page, from which buffers take whole units.
//!
//! A request describes its memory to the device as a list of physically contiguous segments, and
//! memory from the general allocator has one segment per page. Each segment costs time, above all
//! on virtual disks: measured on a virtio disk with io_uring, 512 KiB in one segment were read and
//! written 2.5 times as fast, and 16 threads read blocks of 16 KiB 1.4 times as fast. So the system
//! is asked to back chunks by huge pages; where it has none, a chunk is ordinary memory.
//!
//! A buffer goes to the chunk whose longest hole is the shortest that is long enough, as far as is
//! known, so that chunks with few buffers become empty; there it goes to the first hole that is
//! long enough. Some empty chunks are kept for later buffers, which saves the system from mapping
//! and clearing pages again. The others are unmapped, as are those that are too short for the next
//! buffer.
//!
//! When many buffers end, such as those of a cache that shrinks, they leave holes in many chunks.
//! The pages of holes go back to the system when there are many of them. From then on such a chunk
//! has small pages, because the system would fill its holes to make huge ones.
//!
//! Invariants: a chunk starts at a multiple of [`HUGE_BYTES`]; its bytes are initialised; a unit
//! has at most one owner, and a chunk is unmapped only when none of its units has one. Units whose
//! pages are with the system have no owner.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;

use super::host::os::Mapping;

/// Unit of allocation, in bytes.
pub(super) const UNIT_BYTES: usize = 4096;
/// Usual size of a huge page, and size of a chunk unless one buffer needs more than half of that.
const HUGE_BYTES: usize = 2 << 20;
const UNITS_PER_WORD: usize = u64::BITS as usize;
const WORD_BYTES: usize = UNITS_PER_WORD * UNIT_BYTES;
/// Holes may take this part of what has an owner, besides what is spare.
const HOLES_PART: usize = 8;

/// The chunks that the buffers of one range of sizes share.
pub(super) struct Chunks {
    /// By address.
    chunks: BTreeMap<usize, Chunk>,
    /// The same by [`Chunk::longest`], and by address.
    by_longest: BTreeSet<(usize, usize)>,
    spare_bytes_max: usize,
    holes: Holes,
    /// Bytes of chunks that are empty.
    empty_bytes: usize,
    /// Units that have an owner.
    owned: usize,
    /// Units that have no owner, but pages.
    unused: usize,
}

/// What becomes of the pages of units without an owner, in chunks where others have one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holes {
    /// They stay.
    Stay,
    /// They go back to the system if there are many.
    GoBack,
}

impl Chunks {
    /// No chunks yet. Empty ones of up to `spare_bytes_max` bytes in total will be kept.
    pub(super) const fn new(spare_bytes_max: usize, holes: Holes) -> Self {
        Self {
            chunks: BTreeMap::new(),
            by_longest: BTreeSet::new(),
            spare_bytes_max,
            holes,
            empty_bytes: 0,
            owned: 0,
            unused: 0,
        }
    }

    /// Takes `units` contiguous units (at least one), and says whether they are known to be zero;
    /// nothing if the system has no memory. Chunks that are no longer needed go to `unneeded`: the
    /// caller drops them, which gives them back to the system, outside its lock. Cost: a search in
    /// the order of [`Chunk::longest`], and one of a chunk's units for each chunk of which was not
    /// known that its holes are too short.
    pub(super) fn take(
        &mut self,
        units: usize,
        unneeded: &mut Vec<Chunk>,
    ) -> Option<(NonNull<u8>, bool)> {
        while let Some(&(longest, address)) = self.by_longest.range((units, 0)..).next() {
            let chunk = self.chunks.get_mut(&address).expect("both have the same chunks");
            let was_empty = chunk.is_empty();
            if let Some((start, with_pages)) = chunk.take(units) {
                self.empty_bytes -= if was_empty { chunk.bytes() } else { 0 };
                self.owned += units;
                self.unused -= with_pages;
                return Some((start, false));
            }
            chunk.longest = units - 1;
            self.by_longest.remove(&(longest, address));
            self.by_longest.insert((units - 1, address));
        }
        if self.empty_bytes > 0 {
            let empty = self.chunks.iter().filter(|(_, chunk)| chunk.is_empty());
            let addresses: Vec<usize> = empty.map(|(address, _)| *address).collect();
            unneeded.extend(addresses.into_iter().map(|address| self.remove(address)));
        }
        let mut chunk = Chunk::new(units * UNIT_BYTES)?;
        let address = chunk.start().addr().get();
        let (start, _) = chunk.take(units)?;
        self.owned += units;
        self.unused += chunk.unused();
        self.by_longest.insert((chunk.longest, address));
        self.chunks.insert(address, chunk);
        Some((start, true))
    }

    /// Returns units that [`Chunks::take`] gave out. If a chunk is no longer needed, returns it for
    /// the caller to drop outside its lock.
    pub(super) fn give_back(&mut self, start: NonNull<u8>, units: usize) -> Option<Chunk> {
        let unused_max = self.unused_max();
        let before = self.chunks.range_mut(..=start.addr().get()).next_back();
        let (&address, chunk) = before.expect("units come from a chunk");
        let longest = chunk.longest;
        chunk.give_back(start, units);
        self.owned -= units;
        self.unused += units;
        if chunk.longest > longest {
            self.by_longest.remove(&(longest, address));
            self.by_longest.insert((chunk.longest, address));
        }
        if chunk.is_empty() {
            self.empty_bytes += chunk.bytes();
            let is_spare = chunk.absent_count == 0 && self.empty_bytes <= self.spare_bytes_max;
            return (!is_spare).then(|| self.remove(address));
        }
        if self.holes == Holes::GoBack && self.unused > unused_max {
            chunk.discard(start, units);
            self.unused -= units;
        }
        None
    }

    /// Removes a chunk that is empty.
    fn remove(&mut self, address: usize) -> Chunk {
        let chunk = self.chunks.remove(&address).expect("a chunk");
        self.by_longest.remove(&(chunk.longest, address));
        self.empty_bytes -= chunk.bytes();
        self.unused -= chunk.unused();
        chunk
    }

    /// Units with pages that may be without an owner before holes go back to the system.
    fn unused_max(&self) -> usize {
        self.spare_bytes_max / UNIT_BYTES + self.owned / HOLES_PART
    }
}

/// Memory mapped from the system, and which of its units have an owner. No references to it are
/// left when it is dropped.
pub(super) struct Chunk {
    memory: Mapping,
    /// One bit per unit: set if it has an owner.
    owned: Box<[u64]>,
    free: usize,
    /// No more contiguous units than this have no owner.
    longest: usize,
    /// One bit per unit: set if the system has its pages.
    absent: Box<[u64]>,
    absent_count: usize,
}

impl Chunk {
    fn new(bytes: usize) -> Option<Self> {
        let multiple = if bytes > HUGE_BYTES / 2 { WORD_BYTES } else { HUGE_BYTES };
        let bytes = bytes.next_multiple_of(multiple);
        let owned = vec![0; bytes / WORD_BYTES].into_boxed_slice();
        let absent = owned.clone();
        let memory = Mapping::new(bytes, HUGE_BYTES)?;
        let units = bytes / UNIT_BYTES;
        Some(Self { memory, owned, free: units, longest: units, absent, absent_count: 0 })
    }

    fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    fn bytes(&self) -> usize {
        self.owned.len() * WORD_BYTES
    }

    fn units(&self) -> usize {
        self.bytes() / UNIT_BYTES
    }

    fn is_empty(&self) -> bool {
        self.free == self.units()
    }

    /// Units that have no owner, but pages.
    fn unused(&self) -> usize {
        self.free - self.absent_count
    }

    /// Takes units, and says how many of them have pages.
    fn take(&mut self, units: usize) -> Option<(NonNull<u8>, usize)> {
        let mut from = 0;
        let first = loop {
            let first = self.next_free(from)?;
            if first + units > self.units() {
                return None;
            }
            match self.last_owned(first..first + units) {
                Some(last) => from = last + 1,
                None => break first,
            }
        };
        let mut absent = 0;
        for (word, mask) in words(first..first + units) {
            self.owned[word] |= mask;
            absent += (self.absent[word] & mask).count_ones() as usize;
            self.absent[word] &= !mask;
        }
        self.free -= units;
        self.absent_count -= absent;
        // SAFETY: the units from `first` on lie inside the chunk, as was just checked.
        Some((unsafe { self.start().add(first * UNIT_BYTES) }, units - absent))
    }

    fn give_back(&mut self, start: NonNull<u8>, units: usize) {
        let first = self.number_of(start);
        for (word, mask) in words(first..first + units) {
            debug_assert_eq!(
                self.owned[word] & mask,
                mask,
                "only units that have an owner are given back"
            );
            self.owned[word] &= !mask;
        }
        self.free += units;
        let from = self.last_owned(0..first).map_or(0, |last| last + 1);
        let to = self.first_owned(first + units..self.units()).unwrap_or(self.units());
        self.longest = self.longest.max(to - from);
    }

    /// Gives the pages of units that have just been given back to the system.
    fn discard(&mut self, start: NonNull<u8>, units: usize) {
        if self.absent_count == 0 {
            self.memory.use_small_pages();
        }
        let first = self.number_of(start);
        words(first..first + units).for_each(|(word, mask)| self.absent[word] |= mask);
        self.absent_count += units;
        // SAFETY: these units have no owner, and only `take` gives them one.
        unsafe { self.memory.discard(first * UNIT_BYTES, units * UNIT_BYTES) };
    }

    /// The number of the unit that starts here.
    fn number_of(&self, start: NonNull<u8>) -> usize {
        (start.addr().get() - self.start().addr().get()) / UNIT_BYTES
    }

    /// The first unit at or behind `from` that has no owner.
    fn next_free(&self, from: usize) -> Option<usize> {
        words(from..self.units()).find_map(|(word, mask)| first_bit(word, !self.owned[word] & mask))
    }

    /// The first of these units that has an owner.
    fn first_owned(&self, units: Range<usize>) -> Option<usize> {
        words(units).find_map(|(word, mask)| first_bit(word, self.owned[word] & mask))
    }

    /// The last of these units that has an owner.
    fn last_owned(&self, units: Range<usize>) -> Option<usize> {
        words(units).rev().find_map(|(word, mask)| {
            let bit = (self.owned[word] & mask).checked_ilog2()?;
            Some(word * UNITS_PER_WORD + bit as usize)
        })
    }
}

/// The first unit whose bit is set in this word.
fn first_bit(word: usize, bits: u64) -> Option<usize> {
    (bits != 0).then(|| word * UNITS_PER_WORD + bits.trailing_zeros() as usize)
}

/// The words that hold the bits of a range, and which bits of each.
fn words(bits: Range<usize>) -> impl DoubleEndedIterator<Item = (usize, u64)> {
    (bits.start / UNITS_PER_WORD..bits.end.div_ceil(UNITS_PER_WORD)).map(move |word| {
        let base = word * UNITS_PER_WORD;
        let from = bits.start.saturating_sub(base);
        let to = (bits.end - base).min(UNITS_PER_WORD);
        (word, (u64::MAX >> (UNITS_PER_WORD - (to - from))) << from)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ptr::NonNull;

    use super::{Chunk, Chunks, HOLES_PART, HUGE_BYTES, Holes, UNIT_BYTES};

    const UNITS: usize = HUGE_BYTES / UNIT_BYTES;

    fn absent(chunks: &Chunks) -> usize {
        chunks.chunks.values().map(|chunk| chunk.absent_count).sum()
    }

    /// Panics unless what is known of all chunks together is true of them.
    fn check(chunks: &Chunks) {
        let all = chunks.chunks.iter();
        let listed = all.clone().map(|(address, chunk)| (chunk.longest, *address));
        assert_eq!(listed.collect::<BTreeSet<_>>(), chunks.by_longest);
        for (_, chunk) in all.clone() {
            let free = |unit: &usize| chunk.first_owned(*unit..*unit + 1).is_none();
            let units: Vec<bool> = (0..chunk.units()).map(|unit| free(&unit)).collect();
            let longest = units.split(|free| !free).map(<[bool]>::len).max();
            assert!(longest <= Some(chunk.longest));
            assert_eq!(units.iter().filter(|free| **free).count(), chunk.free);
        }
        let sum = |count: fn(&Chunk) -> usize| all.clone().map(|(_, chunk)| count(chunk)).sum();
        let empty: usize = sum(|chunk| if chunk.is_empty() { chunk.bytes() } else { 0 });
        let (unused, owned): (usize, usize) =
            (sum(Chunk::unused), sum(|one| one.units() - one.free));
        assert_eq!((empty, unused, owned), (chunks.empty_bytes, chunks.unused, chunks.owned));
    }

    #[test]
    fn units_of_one_owner_are_nobody_elses() {
        let mut chunks = Chunks::new(HUGE_BYTES, Holes::GoBack);
        let mut taken = Vec::new();
        for round in 0..2000_usize {
            let units = 1 + round * 7 % 97;
            let (start, _) = chunks.take(units, &mut Vec::new()).expect("memory");
            taken.push((start.addr().get(), start, units));
            if round % 3 > 0 {
                let (_, start, units) = taken.swap_remove(round * 31 % taken.len());
                drop(chunks.give_back(start, units));
            }
            check(&chunks);
        }
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].2 * UNIT_BYTES <= pair[1].0);
        }
        for (_, start, units) in taken {
            drop(chunks.give_back(start, units));
            check(&chunks);
        }
        assert!(chunks.empty_bytes <= HUGE_BYTES && chunks.owned == 0);
    }

    #[test]
    fn a_hole_is_filled_before_anything_behind_it() {
        let mut chunks = Chunks::new(HUGE_BYTES, Holes::Stay);
        let mut take = |units| chunks.take(units, &mut Vec::new()).expect("memory");
        let (first, is_zero) = take(70);
        let (second, _) = take(60);
        let (third, _) = take(UNITS - 130);
        assert!(is_zero && first.addr().get().is_multiple_of(HUGE_BYTES));
        assert!(chunks.give_back(second, 60).is_none());
        let (again, is_zero) = chunks.take(60, &mut Vec::new()).expect("memory");
        assert_eq!((again, is_zero), (second, false));
        let (fourth, _) = chunks.take(UNITS + 1, &mut Vec::new()).expect("memory");
        assert_eq!(chunks.chunks.len(), 2);
        assert!(chunks.give_back(fourth, UNITS + 1).is_some(), "more than the limit for spares");
        for (start, units) in [(first, 70), (again, 60), (third, UNITS - 130)] {
            assert!(chunks.give_back(start, units).is_none(), "kept for the next");
        }
        assert_eq!(chunks.chunks.len(), 1);
    }

    #[test]
    fn chunks_that_are_too_short_make_room_for_a_longer_one() {
        let mut chunks = Chunks::new(HUGE_BYTES, Holes::Stay);
        let (first, _) = chunks.take(1, &mut Vec::new()).expect("memory");
        assert!(chunks.give_back(first, 1).is_none(), "kept for the next");
        let mut unneeded = Vec::new();
        let (long, _) = chunks.take(UNITS + 1, &mut unneeded).expect("memory");
        assert_eq!((unneeded.len(), chunks.chunks.len()), (1, 1));
        assert!(chunks.give_back(long, UNITS + 1).is_some());
    }

    #[test]
    fn holes_go_back_to_the_system_when_there_are_many_and_can_be_taken_again() {
        let mut chunks = Chunks::new(0, Holes::GoBack);
        let mut take = || chunks.take(4, &mut Vec::new()).expect("memory").0;
        let taken: Vec<_> = (0..UNITS / 4).map(|_| take()).collect();
        let write = |start: NonNull<u8>| {
            // SAFETY: the units have this owner.
            unsafe { start.write_bytes(1, 4 * UNIT_BYTES) };
        };
        taken.iter().copied().for_each(write);
        for start in taken.iter().skip(1) {
            assert!(chunks.give_back(*start, 4).is_none());
            assert!(chunks.unused <= UNITS / HOLES_PART + 4);
        }
        assert_eq!((chunks.owned, chunks.unused + absent(&chunks)), (4, UNITS - 4));
        let again: Vec<_> =
            (1..UNITS / 4).map(|_| chunks.take(4, &mut Vec::new()).expect("memory").0).collect();
        assert_eq!(again, taken[1..], "the lowest first");
        assert_eq!((chunks.owned, chunks.unused, absent(&chunks)), (UNITS, 0, 0));
        again.iter().copied().for_each(write);
        // SAFETY: as above.
        assert_eq!(unsafe { taken[0].read() }, 1);
        let gone = taken.into_iter().filter_map(|start| chunks.give_back(start, 4)).count();
        assert_eq!((gone, chunks.owned, chunks.unused), (1, 0, 0));
    }

    #[test]
    fn a_long_buffer_wastes_little() {
        let mut chunks = Chunks::new(0, Holes::Stay);
        let (start, _) = chunks.take(UNITS / 2 + 1, &mut Vec::new()).expect("memory");
        assert!(chunks.chunks.values().all(|chunk| chunk.bytes() < HUGE_BYTES * 2 / 3));
        drop(chunks.give_back(start, UNITS / 2 + 1));
    }
}
