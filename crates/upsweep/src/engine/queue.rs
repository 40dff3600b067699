//! Queues of waiting updates, one per block, in a shared arena.
//!
//! A queue is a chain of fixed cells of [`CELL_BYTES`]; the entries run on from cell to cell as one
//! stream of bytes: sequence (varint, relative to the queue's first), modifier (varint), key,
//! operand. An update so costs its own bytes plus about a tenth, an idle block nothing, and memory
//! is given back cell by cell. (Bosc paper, section 4.2: "per-block disk update request queue".)
//!
//! *Folding* bounds what a hot key costs: when a queue has doubled since it was last folded, its
//! entries are sorted by key, blind updates drop what they supersede, and neighbouring operands of
//! one modifier are combined where the modifier can. A combined entry has the sequence of its
//! earliest part: the oldest sequence that waits bounds how far the log may be released, also after
//! entries have moved to another queue. Cost per update: O(log n) amortised.
//!
//! An update that removes a range of keys is an entry like any other, under the first key of the
//! range. What it covers is dropped when it arrives, so all that it covers is younger than it.

use super::block_format::UpdateRef;
use super::format::codec_format::{Reader, put_bytes, put_varint};
use super::registry::{DELETE, KeyRange, ModifierId, Modifiers};

/// Bytes of a cell, its link included.
pub const CELL_BYTES: usize = 128;
const LINK_BYTES: usize = 4;
const DATA_BYTES: usize = CELL_BYTES - LINK_BYTES;
const CELLS_PER_PAGE: usize = 2048;
const NONE: u32 = u32::MAX;

/// The waiting updates of one block; its bytes are in an [`Arena`].
#[derive(Clone, Debug)]
pub struct Queue {
    head: u32,
    tail: u32,
    tail_used: u8,
    bytes: u32,
    fold_at: u32,
    count: u32,
    first_seq: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, tail_used: 0, bytes: 0, fold_at: 0, count: 0, first_seq: 0 }
    }
}

impl Queue {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Entries that wait, after folding.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Where it ends: cell and byte.
    #[must_use]
    pub fn end(&self) -> (u32, u8) {
        (self.tail, self.tail_used)
    }

    /// Encoded bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Sequence of the oldest update that was ever pushed since the queue was last empty.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }
}

/// The memory of all queues.
pub struct Arena {
    pages: Vec<Box<[[u8; CELL_BYTES]]>>,
    free: u32,
    used_cells: usize,
    queues: usize,
    next_unused: u32,
    scratch: Vec<u8>,
    fold_bytes_min: u32,
}

impl Arena {
    /// An empty arena whose queues are folded for the first time when they reach this many bytes.
    #[must_use]
    pub fn new(fold_bytes_min: u32) -> Self {
        Self {
            pages: Vec::new(),
            free: NONE,
            used_cells: 0,
            queues: 0,
            next_unused: 0,
            scratch: Vec::new(),
            fold_bytes_min,
        }
    }

    /// Bytes of cells in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_cells * CELL_BYTES
    }

    /// Number of queues in which something waits.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues
    }

    fn cell(&mut self, index: u32) -> &mut [u8; CELL_BYTES] {
        let index = index as usize;
        &mut self.pages[index / CELLS_PER_PAGE][index % CELLS_PER_PAGE]
    }

    /// Reads a byte at the end of a queue.
    #[must_use]
    pub fn touch(&self, (cell, used): (u32, u8)) -> u32 {
        let (cell, at) = (cell as usize, LINK_BYTES + usize::from(used));
        let page = self.pages.get(cell / CELLS_PER_PAGE);
        page.map_or(0, |page| u32::from(page[cell % CELLS_PER_PAGE][at.min(CELL_BYTES - 1)]))
    }

    fn link(&self, index: u32) -> u32 {
        let index = index as usize;
        let cell = &self.pages[index / CELLS_PER_PAGE][index % CELLS_PER_PAGE];
        u32::from_ne_bytes([cell[0], cell[1], cell[2], cell[3]])
    }

    fn set_link(&mut self, index: u32, next: u32) {
        self.cell(index)[..LINK_BYTES].copy_from_slice(&next.to_ne_bytes());
    }

    fn take_cell(&mut self) -> u32 {
        self.used_cells += 1;
        let index = if self.free == NONE {
            let index = self.next_unused;
            if index as usize == self.pages.len() * CELLS_PER_PAGE {
                self.pages.push(vec![[0; CELL_BYTES]; CELLS_PER_PAGE].into_boxed_slice());
            }
            self.next_unused += 1;
            index
        } else {
            let index = self.free;
            self.free = self.link(index);
            index
        };
        self.set_link(index, NONE);
        index
    }

    /// Appends one update. Updates are pushed in the order of their sequences.
    pub fn push(&mut self, queue: &mut Queue, update: &UpdateRef<'_>, modifiers: &Modifiers) {
        if let Some(range) = KeyRange::of(update) {
            self.drop_covered(queue, &range);
        }
        if queue.is_empty() {
            queue.first_seq = update.seq;
            self.queues += 1;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        encode_entry(update, queue.first_seq, &mut scratch);
        self.append(queue, &scratch);
        self.scratch = scratch;
        queue.count += 1;
        if queue.bytes >= queue.fold_at.max(self.fold_bytes_min) {
            self.fold(queue, modifiers);
        }
    }

    fn append(&mut self, queue: &mut Queue, mut bytes: &[u8]) {
        queue.bytes += u32::try_from(bytes.len()).expect("an update is below 4 GiB");
        while !bytes.is_empty() {
            let used = usize::from(queue.tail_used);
            if queue.tail == NONE || used == DATA_BYTES {
                let cell = self.take_cell();
                if queue.tail == NONE {
                    queue.head = cell;
                } else {
                    self.set_link(queue.tail, cell);
                }
                queue.tail = cell;
                queue.tail_used = 0;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(DATA_BYTES - used));
            let start = LINK_BYTES + used;
            self.cell(queue.tail)[start..start + now.len()].copy_from_slice(now);
            queue.tail_used += u8::try_from(now.len()).expect("a cell is below 256 bytes");
            bytes = later;
        }
    }

    /// A copy of the waiting updates, in the order of their arrival.
    #[must_use]
    pub fn snapshot(&self, queue: &Queue) -> Waiting {
        let mut bytes = Vec::with_capacity(queue.bytes as usize);
        let mut cell = queue.head;
        while cell != NONE {
            let index = cell as usize;
            let data = &self.pages[index / CELLS_PER_PAGE][index % CELLS_PER_PAGE];
            let wanted = (queue.bytes as usize - bytes.len()).min(DATA_BYTES);
            bytes.extend_from_slice(&data[LINK_BYTES..LINK_BYTES + wanted]);
            cell = self.link(cell);
        }
        Waiting { bytes, count: queue.count, first_seq: queue.first_seq }
    }

    /// Empties the queue and gives its memory back.
    pub fn clear(&mut self, queue: &mut Queue) {
        self.queues -= usize::from(!queue.is_empty());
        let mut cell = queue.head;
        while cell != NONE {
            let next = self.link(cell);
            self.set_link(cell, self.free);
            self.free = cell;
            self.used_cells -= 1;
            cell = next;
        }
        *queue = Queue::default();
    }

    fn fold(&mut self, queue: &mut Queue, modifiers: &Modifiers) {
        let waiting = self.snapshot(queue);
        let (ranges, mut updates): (Vec<_>, Vec<_>) =
            waiting.updates().into_iter().partition(|update| KeyRange::of(update).is_some());
        updates.sort_by(|left, right| left.key.cmp(right.key));
        let groups = updates.chunk_by(|left, right| left.key == right.key);
        let folded = groups.flat_map(|group| fold_group(group, modifiers));
        let ranges = ranges.into_iter().map(|update| Folded { update, operand: None });
        self.refill(queue, ranges.chain(folded));
        queue.fold_at = queue.bytes.saturating_mul(2);
    }

    /// Drops what a range of keys covers.
    fn drop_covered(&mut self, queue: &mut Queue, range: &KeyRange<'_>) {
        let waiting = self.snapshot(queue);
        let updates = waiting.updates().into_iter();
        let stays =
            |update: &UpdateRef<'_>| !range.contains(update.key) || KeyRange::of(update).is_some();
        let left: Vec<_> = updates.filter(stays).collect();
        if left.len() < waiting.count() as usize {
            let left = left.into_iter().map(|update| Folded { update, operand: None });
            self.refill(queue, left);
        }
    }

    /// Replaces the content of a queue; it is as old as before.
    fn refill<'a>(&mut self, queue: &mut Queue, updates: impl Iterator<Item = Folded<'a>>) {
        let (first_seq, fold_at) = (queue.first_seq, queue.fold_at);
        self.clear(queue);
        let mut scratch = std::mem::take(&mut self.scratch);
        for update in updates {
            if queue.is_empty() {
                self.queues += 1;
                (queue.first_seq, queue.fold_at) = (first_seq, fold_at);
            }
            scratch.clear();
            encode_entry(&update.borrow(), first_seq, &mut scratch);
            self.append(queue, &scratch);
            queue.count += 1;
        }
        self.scratch = scratch;
    }
}

/// An update whose operand may be a folded one.
struct Folded<'a> {
    update: UpdateRef<'a>,
    operand: Option<Vec<u8>>,
}

impl Folded<'_> {
    fn borrow(&self) -> UpdateRef<'_> {
        UpdateRef { operand: self.operand.as_deref().unwrap_or(self.update.operand), ..self.update }
    }
}

/// What has to be kept of the updates of one key, in order.
fn fold_group<'a>(group: &[UpdateRef<'a>], modifiers: &Modifiers) -> Vec<Folded<'a>> {
    let is_blind = |update: &UpdateRef<'_>| {
        modifiers.get(update.modifier).is_some_and(super::modifier::Modifier::blind)
    };
    let start = group.iter().rposition(is_blind).unwrap_or(0);
    let mut kept: Vec<Folded<'a>> = Vec::with_capacity(group.len() - start);
    for update in &group[start..] {
        let folded =
            kept.last().filter(|last| last.update.modifier == update.modifier).and_then(|last| {
                modifiers.get(update.modifier)?.fold(last.borrow().operand, update.operand)
            });
        match (folded, kept.last_mut()) {
            // The sequence stays that of the earliest: recovery needs the log from there on.
            (Some(operand), Some(last)) => last.operand = Some(operand),
            _ => kept.push(Folded { update: *update, operand: None }),
        }
    }
    kept
}

fn encode_entry(update: &UpdateRef<'_>, first_seq: u64, out: &mut Vec<u8>) {
    let distance = update.seq.checked_sub(first_seq);
    put_varint(out, distance.expect("updates are pushed in the order of their sequences"));
    put_varint(out, u64::from(update.modifier.0));
    put_bytes(out, update.key);
    put_bytes(out, update.operand);
}

/// Collects updates in the order of their sequences.
#[derive(Default)]
pub struct WaitingBuilder(Waiting);

impl WaitingBuilder {
    /// Appends one update.
    pub fn push(&mut self, update: &UpdateRef<'_>) {
        if self.0.count == 0 {
            self.0.first_seq = update.seq;
        }
        encode_entry(update, self.0.first_seq, &mut self.0.bytes);
        self.0.count += 1;
    }

    /// What was collected.
    #[must_use]
    pub fn finish(self) -> Waiting {
        self.0
    }
}

/// A copy of waiting updates, owned and immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    bytes: Vec<u8>,
    count: u32,
    first_seq: u64,
}

impl Waiting {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Sequence of the oldest update.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn updates(&self) -> Vec<UpdateRef<'_>> {
        let mut updates = Vec::with_capacity(self.count as usize);
        self.for_each(|update| updates.push(update));
        updates
    }

    /// The updates of one key; the removal of a range that covers it is one that deletes it.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Self {
        let mut found = Self { first_seq: self.first_seq, ..Self::default() };
        self.for_each(|update| {
            let update = match KeyRange::of(&update) {
                Some(range) if range.contains(key) => {
                    UpdateRef { modifier: DELETE, key, operand: &[], ..update }
                }
                None if update.key == key => update,
                _ => return,
            };
            encode_entry(&update, found.first_seq, &mut found.bytes);
            found.count += 1;
        });
        found
    }

    /// Calls `visit` for each update, in the order of [`Waiting::updates`].
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(UpdateRef<'a>)) {
        let mut reader = Reader::new(&self.bytes);
        for _ in 0..self.count {
            let entry = read_entry(&mut reader, self.first_seq);
            visit(entry.expect("a queue holds what `encode_entry` wrote"));
        }
    }
}

fn read_entry<'a>(
    reader: &mut Reader<'a>,
    first_seq: u64,
) -> Result<UpdateRef<'a>, super::format::codec_format::Malformed> {
    let seq = first_seq + reader.varint()?;
    let modifier = ModifierId(reader.narrow()?);
    Ok(UpdateRef { seq, modifier, key: reader.bytes()?, operand: reader.bytes()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueRef};

    struct Latest;

    impl Modifier for Latest {
        fn name(&self) -> &'static str {
            "latest"
        }
        fn version(&self) -> u16 {
            1
        }
        fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, _: &[u8]) -> Result<Outcome, Refusal> {
            Ok(Outcome::Keep)
        }
        fn fold(&self, _: &[u8], later: &[u8]) -> Option<Vec<u8>> {
            Some(later.to_vec())
        }
    }

    #[test]
    fn a_folded_entry_is_as_old_as_its_earliest_part() {
        let (id, mut modifiers) = (ModifierId(100), Modifiers::default());
        modifiers.bind(id, Arc::new(Latest));
        let (mut arena, mut queue) = (Arena::new(4096), Queue::default());
        for seq in 7..1007u64 {
            let key = format!("key{}", seq % 10);
            let update = UpdateRef { seq, modifier: id, key: key.as_bytes(), operand: b"operand" };
            arena.push(&mut queue, &update, &modifiers);
        }
        let waiting = arena.snapshot(&queue);
        assert!(waiting.count() < 1000, "it was folded");
        let oldest = waiting.updates().iter().map(|update| update.seq).min();
        assert_eq!(oldest, Some(7));
        assert_eq!(waiting.first_seq(), 7);
    }
}
