//! The blocks of one die: free ones, those that are being written, and what the others still hold.
//!
//! A die writes to two blocks: what the host writes goes to one, what is copied by cleaning to the
//! other. A block that was not used since time 0 has no entry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::description::Geometry;
use super::filled::Filled;
use super::map::Map;

/// A slot that holds no unit.
const EMPTY: u32 = u32::MAX;

/// Who writes a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    Host,
    Cleaning,
}

/// A block that is being cleaned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) block: u32,
    /// Units in it when cleaning began.
    pub(super) live: u32,
    /// Slots of it that have been looked at.
    pub(super) passed: u32,
    /// Slots that the host has used on this die since.
    pub(super) hosted: u32,
}

/// The blocks of a die.
#[derive(Clone, Debug)]
pub(super) struct Space {
    geometry: Geometry,
    die: u32,
    /// Those that were used or changed since time 0.
    blocks: BTreeMap<u32, Block>,
    /// Those that are full and not being cleaned, without those as at the start: units, number.
    closed: BTreeSet<(u32, u32)>,
    /// Blocks before this one are not as at the start.
    oldest_filled: u32,
    /// Blocks from this one on were never used.
    next_new: u32,
    /// Erased blocks, in the order of their next use.
    erased: VecDeque<u32>,
    host: Open,
    copies: Open,
    /// The block that is being cleaned.
    pub(super) victim: Option<Victim>,
    /// The units that its page held which is being read, with their places.
    pub(super) copied: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    live: u32,
    /// The unit written to each slot; empty if the block is as at the start.
    units: Vec<u32>,
    /// Slots that have been programmed since it was opened.
    programmed: u32,
    /// Whether all have.
    is_closed: bool,
}

/// A block that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    block: Option<u32>,
    next_slot: u32,
}

impl Space {
    pub(super) fn new(geometry: Geometry, die: u32, filled: &Filled) -> Self {
        Self {
            geometry,
            die,
            blocks: BTreeMap::new(),
            closed: BTreeSet::new(),
            oldest_filled: 0,
            next_new: filled.blocks(),
            erased: VecDeque::new(),
            host: Open::default(),
            copies: Open::default(),
            victim: None,
            copied: Vec::new(),
        }
    }

    /// Slots that can be written before a block is cleaned, those of open blocks included.
    pub(super) fn free_slots(&self) -> u32 {
        let left = |open: Open| open.block.map_or(0, |_| self.geometry.slots - open.next_slot);
        self.free_blocks() * self.geometry.slots + left(self.host) + left(self.copies)
    }

    /// Blocks that can be opened.
    pub(super) fn free_blocks(&self) -> u32 {
        self.geometry.blocks - self.next_new + self.erased.len() as u32
    }

    /// The first place of the next page to write; `None` if cleaning has to free a block first. The
    /// last free block is kept for cleaning.
    pub(super) fn take_page(&mut self, writer: Writer) -> Option<u32> {
        let kept = if writer == Writer::Host { 1 } else { 0 };
        let mut open = if writer == Writer::Host { self.host } else { self.copies };
        if open.block.is_none() || open.next_slot == self.geometry.slots {
            if self.free_blocks() <= kept {
                return None;
            }
            open = Open { block: Some(self.open_block()), next_slot: 0 };
        }
        let first = open.next_slot;
        open.next_slot += self.geometry.page_slots;
        *(if writer == Writer::Host { &mut self.host } else { &mut self.copies }) = open;
        open.block.map(|block| self.geometry.place(self.die, block, first))
    }

    fn open_block(&mut self) -> u32 {
        let number = self.erased.pop_front().unwrap_or_else(|| {
            self.next_new += 1;
            self.next_new - 1
        });
        let units = vec![EMPTY; self.geometry.slots as usize];
        self.blocks.insert(number, Block { units, ..Block::default() });
        number
    }

    /// Notes that a page has been programmed. With the last one, the block may be cleaned.
    pub(super) fn programmed(&mut self, page: u32) {
        let (_, number, _) = self.geometry.parts(page);
        let block = self.blocks.get_mut(&number).expect("an open block has an entry");
        block.programmed += self.geometry.page_slots;
        if block.programmed == self.geometry.slots {
            block.is_closed = true;
            self.closed.insert((block.live, number));
        }
    }

    /// Notes a unit in a slot of an open block.
    pub(super) fn record(&mut self, place: u32, unit: u32) {
        let (_, number, slot) = self.geometry.parts(place);
        let block = self.blocks.get_mut(&number).expect("an open block has an entry");
        block.units[slot as usize] = unit;
        block.live += 1;
    }

    /// Notes that the unit in a slot has gone.
    pub(super) fn lose(&mut self, place: u32, filled: &Filled) {
        let (_, number, _) = self.geometry.parts(place);
        let block = self.blocks.entry(number).or_insert_with(|| {
            let live = filled.live(number);
            self.closed.insert((live, number));
            Block { live, is_closed: true, ..Block::default() }
        });
        if block.is_closed {
            self.closed.remove(&(block.live, number));
            self.closed.insert((block.live - 1, number));
        }
        block.live -= 1;
    }

    /// The units that a page still holds, with their places.
    pub(super) fn held<'a>(
        &'a self,
        page: u32,
        map: &'a Map,
    ) -> impl Iterator<Item = (u32, u32)> + 'a {
        let (die, number, first) = self.geometry.parts(page);
        let block = self.blocks.get(&number).filter(|block| !block.units.is_empty());
        (0..self.geometry.page_slots).filter_map(move |along| {
            let (slot, place) = (first + along, page + along);
            let unit = match block {
                Some(block) => Some(block.units[slot as usize])
                    .filter(|unit| *unit != EMPTY && map.place(*unit) == Some(place)),
                // What has no entry is where it was.
                None => map.filled().unit(die, number, slot).filter(|unit| map.is_as_filled(*unit)),
            };
            Some((unit?, place))
        })
    }

    /// Begins to clean the block with the fewest units, of equals the one with the lowest number,
    /// if that frees any slot.
    pub(super) fn choose_victim(&mut self, filled: &Filled) {
        while self.blocks.contains_key(&self.oldest_filled) {
            self.oldest_filled += 1;
        }
        let untouched = Some(self.oldest_filled).filter(|block| *block < filled.blocks());
        let untouched = untouched.map(|block| (filled.live(block), block));
        let best = self.closed.first().copied().into_iter().chain(untouched).min();
        let Some((live, number)) = best.filter(|(live, _)| *live < self.geometry.slots) else {
            return;
        };
        self.closed.remove(&(live, number));
        let found = self.blocks.entry(number);
        found.or_insert_with(|| Block { live, ..Block::default() }).is_closed = false;
        self.victim = Some(Victim { block: number, live, passed: 0, hosted: 0 });
    }

    /// Notes that the block that was being cleaned is erased.
    pub(super) fn erased(&mut self) {
        let victim = self.victim.take().expect("a block is being cleaned");
        // The entry stays: the block is not as at the start any more.
        let block = self.blocks.insert(victim.block, Block::default());
        assert_eq!(block.map(|block| block.live), Some(0), "an erased block holds nothing");
        self.erased.push_back(victim.block);
    }

    /// Slots of which the model keeps the unit.
    #[cfg(test)]
    pub(super) fn slots_kept(&self) -> usize {
        self.blocks.values().map(|block| block.units.len()).sum()
    }

    /// Units that the blocks say they hold.
    #[cfg(test)]
    pub(super) fn live(&self, filled: &Filled) -> u64 {
        let as_at_start = (0..filled.blocks()).filter(|block| !self.blocks.contains_key(block));
        let untouched: u64 = as_at_start.map(|block| u64::from(filled.live(block))).sum();
        untouched + self.blocks.values().map(|block| u64::from(block.live)).sum::<u64>()
    }
}
