//! What a device holds at time 0, as a function: nothing is stored for a unit or a block.
//!
//! The blocks with the same number form a row, one block of each die. Row 0 is the oldest and holds
//! the fewest units. What a block does not hold was overwritten; if that was at random, it is
//! spread evenly over the block.
//!
//! In the steady state of cleaning under uniform random writes, every block that was written later
//! by the same number of writes holds more units by the same factor, because each write overwrites
//! one of all units with equal probability (Desnoyers, Analytic modeling of SSD write performance,
//! SYSTOR 2012). So rows form a geometric series; its factor is the one with which they hold all
//! units.

use super::super::super::random::mix;
use super::description::{FillOrder, Geometry, Start};

/// One, in fixed point.
const ONE: u64 = 1 << 32;

/// The content at time 0.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    geometry: Geometry,
    /// Units in the rows before each row, and in all of them.
    before: Vec<u32>,
    /// From a unit to its position in the rows, if it is not the same number.
    order: Option<Permutation>,
}

impl Filled {
    /// The content that `start` gives. `free_blocks` of each die stay free.
    pub(super) fn new(geometry: Geometry, start: &Start, free_blocks: u32) -> Self {
        let row_page = geometry.dies * geometry.page_slots;
        let units = u64::from(geometry.units) * u64::from(start.filled_percent) / 100;
        // Whole pages of every die.
        let pages = (units / u64::from(row_page)) as u32;
        let block_pages = geometry.slots / geometry.page_slots;
        let rows = match start.order {
            _ if pages == 0 => Vec::new(),
            FillOrder::Sequential => {
                let mut rows = vec![block_pages; (pages / block_pages) as usize];
                rows.extend(Some(pages % block_pages).filter(|rest| *rest > 0));
                rows
            }
            FillOrder::Random => steady(pages, block_pages, geometry.blocks - free_blocks),
        };
        let mut before = vec![0];
        let mut all = 0;
        for pages in rows {
            all += pages * row_page;
            before.push(all);
        }
        let order = (start.order == FillOrder::Random).then(|| Permutation::new(all));
        Self { geometry, before, order }
    }

    /// Units that have a place: those from 0 on.
    pub(super) fn units(&self) -> u32 {
        self.before[self.before.len() - 1]
    }

    /// Blocks of each die that are in use: those from 0 on.
    pub(super) fn blocks(&self) -> u32 {
        self.before.len() as u32 - 1
    }

    /// Units in a block.
    pub(super) fn live(&self, block: u32) -> u32 {
        let block = block as usize;
        (self.before[block + 1] - self.before[block]) / self.geometry.dies
    }

    /// The place of a unit.
    pub(super) fn place(&self, unit: u32) -> Option<u32> {
        if unit >= self.units() {
            return None;
        }
        let position = self.order.as_ref().map_or(unit, |order| order.forward(unit));
        let row = self.before.partition_point(|before| *before <= position) - 1;
        let Geometry { dies, page_slots, .. } = self.geometry;
        let inside = position - self.before[row];
        let (page, along) = (inside / page_slots, inside % page_slots);
        let slot = self.spread(row as u32, page / dies * page_slots + along);
        Some(self.geometry.place(page % dies, row as u32, slot))
    }

    /// The slot of the unit with this number in a block.
    fn spread(&self, block: u32, number: u32) -> u32 {
        if self.order.is_none() {
            return number;
        }
        let all = u64::from(number) * u64::from(self.geometry.slots);
        (all / u64::from(self.live(block))) as u32
    }

    /// The reverse of [`spread`](Self::spread).
    fn gather(&self, block: u32, slot: u32) -> Option<u32> {
        let live = if block < self.blocks() { self.live(block) } else { 0 };
        let number = match self.order {
            Some(_) => {
                let all = u64::from(slot) * u64::from(live);
                all.div_ceil(u64::from(self.geometry.slots)) as u32
            }
            None => slot,
        };
        Some(number).filter(|number| *number < live && self.spread(block, *number) == slot)
    }

    /// The unit in a slot of a block; `None` if it was overwritten.
    pub(super) fn unit(&self, die: u32, block: u32, slot: u32) -> Option<u32> {
        let slot = self.gather(block, slot)?;
        let Geometry { dies, page_slots, .. } = self.geometry;
        let page = slot / page_slots * dies + die;
        let position = self.before[block as usize] + page * page_slots + slot % page_slots;
        Some(self.order.as_ref().map_or(position, |order| order.backward(position)))
    }
}

/// The pages with units of each row in the steady state, from the oldest: a geometric series that
/// ends with a full row and has the sum `pages`.
fn steady(pages: u32, block_pages: u32, rows: u32) -> Vec<u32> {
    let series = |factor: u64| {
        let mut part = ONE;
        let mut row = || {
            let pages = (u64::from(block_pages) * part) >> 32;
            part = (part * factor) >> 32;
            pages as u32
        };
        let mut rows: Vec<u32> = (0..rows).map(|_| row()).collect();
        rows.reverse();
        rows
    };
    let sum = |rows: &[u32]| rows.iter().map(|pages| u64::from(*pages)).sum::<u64>();
    let (mut fits, mut too_much) = (0, ONE);
    while too_much - fits > 1 {
        let factor = fits.midpoint(too_much);
        if sum(&series(factor)) <= u64::from(pages) {
            fits = factor;
        } else {
            too_much = factor;
        }
    }
    let mut rows = series(fits);
    // What rounding left over, from the youngest row on so that older rows do not hold more.
    let mut left = u64::from(pages).saturating_sub(sum(&rows));
    while left > 0 {
        let room = rows.iter_mut().rev().filter(|row| **row < block_pages);
        let raised = room.take(left as usize).map(|row| *row += 1).count() as u64;
        if raised == 0 {
            break;
        }
        left -= raised;
    }
    rows
}

/// A pseudo-random permutation of the numbers below a limit: a Feistel network over the next even
/// power of two, applied until the result is below the limit.
#[derive(Clone, Debug)]
struct Permutation {
    limit: u32,
    half_bits: u32,
}

impl Permutation {
    const ROUNDS: u64 = 4;

    fn new(limit: u32) -> Self {
        let bits = 32 - limit.saturating_sub(1).leading_zeros();
        Self { limit, half_bits: bits.div_ceil(2).max(1) }
    }

    fn forward(&self, number: u32) -> u32 {
        self.walk(number, |left, right, round| (right, left ^ self.scramble(right, round)))
    }

    fn backward(&self, number: u32) -> u32 {
        let last = Self::ROUNDS - 1;
        self.walk(number, |left, right, round| (right ^ self.scramble(left, last - round), left))
    }

    fn scramble(&self, half: u64, round: u64) -> u64 {
        mix((round << 32) | half) & ((1 << self.half_bits) - 1)
    }

    fn walk(&self, number: u32, step: impl Fn(u64, u64, u64) -> (u64, u64)) -> u32 {
        let mask = (1 << self.half_bits) - 1;
        let mut number = u64::from(number);
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..Self::ROUNDS {
                (left, right) = step(left, right, round);
            }
            number = (left << self.half_bits) | right;
            if number < u64::from(self.limit) {
                return number as u32;
            }
        }
    }
}
