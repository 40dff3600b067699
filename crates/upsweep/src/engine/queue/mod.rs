//! Queues of waiting updates, one per block, in a shared arena.
//!
//! A queue is a chain of fixed cells of [`CELL_BYTES`], each a line of the processor's cache; the
//! entries continue from cell to cell as one stream of bytes. An entry is shorter than the update
//! (see [`entry`]), an idle block costs nothing, and memory is released cell by cell. (Bosc paper,
//! section 4.2: "per-block disk update request queue".)
//!
//! *Folding* bounds the cost of a hot key: when a queue has doubled since it was last folded, its
//! entries are sorted by key, blind updates drop what they supersede, and neighbouring operands of
//! one modifier are combined if the modifier supports it. A combined entry has the sequence of its
//! earliest part: the oldest waiting sequence bounds how far the log may be released, even after
//! entries have moved to another queue. Cost per update: O(log n) amortised.
//!
//! An update that removes a range of keys is an entry like any other, under the first key of the
//! range. What it covers is dropped when it arrives, so all that it covers is younger than it.

mod ages;
mod cells;
mod copied;
mod entry;
mod tails;
mod waiting;

use ages::Ages;
pub use cells::CELL_BYTES;
use cells::{Cells, DATA_BYTES, NONE};
pub use tails::TailTable;
use tails::Tails;
pub use waiting::{Packed, Section, Waiting};

use self::copied::Copied;
use super::block_format::UpdateRef;
use super::registry::{DELETE_RANGE, KeyRange, Modifiers};
use crate::broken::{self, Fault};
use crate::log::Seq;

/// Queues that are copied concurrently, one cell of each in turn.
const COPIED_TOGETHER: usize = 8;

/// The waiting updates of one block; its bytes are in an [`Arena`].
#[derive(Clone, Debug)]
pub struct Queue {
    head: u32,
    tail: u32,
    tail_used: u8,
    /// It is folded when it has two to the power of this many bytes.
    fold_at_log2: u8,
    /// Whether any of the updates removes a range of keys.
    has_ranges: bool,
    bytes: u32,
    growth_bytes: u32,
    count: u32,
    first_seq: Seq,
}

const _: () = assert!(size_of::<Queue>() == 32, "every block has a queue");

impl Default for Queue {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            tail_used: 0,
            fold_at_log2: 0,
            has_ranges: false,
            bytes: 0,
            growth_bytes: 0,
            count: 0,
            first_seq: Seq::NONE,
        }
    }
}

impl Queue {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of waiting entries, after folding.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its last cell.
    #[must_use]
    pub fn last_cell(&self) -> u32 {
        self.tail
    }

    /// Whether any of the updates removes a range of keys.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// Encoded bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Approximately how much the block grows if all waiting updates make new records.
    #[must_use]
    pub fn growth_bytes(&self) -> u32 {
        self.growth_bytes
    }

    /// Sequence of the oldest update that was ever pushed since the queue was last empty.
    #[must_use]
    pub fn first_seq(&self) -> Seq {
        self.first_seq
    }
}

/// A copy of a queue in progress.
struct Copy {
    /// The next cell.
    cell: u32,
    /// Bytes not copied yet.
    left: usize,
    packed: Packed,
}

/// The memory of all queues.
pub struct Arena {
    cells: Cells,
    queues: usize,
    entries: u64,
    ages: Ages,
    growth_bytes: u64,
    scratch: Vec<u8>,
    tails: Tails,
    fold_bytes_min: u32,
    room_bytes: usize,
    excess_bytes: usize,
}

/// Memory that a run needs for a queue of this many bytes beyond its allowance of `room_bytes`:
/// once for the copy, and once for the output of its worker.
pub fn excess_bytes(queue_bytes: usize, room_bytes: usize) -> usize {
    queue_bytes.saturating_sub(room_bytes)
}

impl Arena {
    /// An empty arena whose queues are folded for the first time when they reach `fold_bytes_min`,
    /// and for each of which a run has room for `room_bytes`.
    #[must_use]
    pub fn new(fold_bytes_min: u32, room_bytes: usize) -> Self {
        Self {
            cells: Cells::default(),
            queues: 0,
            entries: 0,
            ages: Ages::default(),
            growth_bytes: 0,
            scratch: Vec::new(),
            tails: Tails::default(),
            fold_bytes_min,
            room_bytes,
            excess_bytes: 0,
        }
    }

    /// [`excess_bytes`] of all queues together.
    #[must_use]
    pub fn excess_bytes(&self) -> usize {
        self.excess_bytes
    }

    /// Bytes of cells in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.cells.used() * CELL_BYTES
    }

    /// Bytes of memory of all queues: besides what they use, that of free cells between others.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
    }

    /// Approximately how much all blocks grow if all waiting updates make new records.
    #[must_use]
    pub fn growth_bytes(&self) -> u64 {
        self.growth_bytes
    }

    /// Number of queues in which something waits.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Entries of all queues, after folding.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// A frozen copy of a queue waits from now on.
    pub fn hold(&mut self, frozen: &Packed) {
        if frozen.count > 0 && !broken::is(Fault::ReleaseOfFrozen) {
            self.ages.note(frozen.first_seq);
        }
    }

    /// A frozen copy of a queue no longer waits.
    pub fn let_go(&mut self, frozen: &Packed) {
        if frozen.count > 0 && !broken::is(Fault::ReleaseOfFrozen) {
            self.ages.forget(frozen.first_seq);
        }
    }

    /// Nothing older than this waits in queues or frozen copies of them; `None` if nothing waits.
    /// Exact where [`Arena::mark`] was called, and a lower bound elsewhere.
    pub fn oldest(&mut self) -> Option<Seq> {
        self.ages.oldest()
    }

    /// From now on [`Arena::oldest`] is exact about whether anything below `seq` waits. To be
    /// called before any update from `seq` on waits.
    pub fn mark(&mut self, seq: Seq) {
        self.ages.mark(seq);
    }

    /// The sequence below which at most this many queues and frozen copies wait, as far as is
    /// known.
    #[must_use]
    pub fn below_which_wait(&self, most: u64) -> Seq {
        self.ages.below_which_are(most)
    }

    /// Number of queues and frozen copies that wait.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.ages.count()
    }

    /// Reads a byte of the last cell of a queue.
    #[must_use]
    pub fn touch(&self, last: u32) -> u32 {
        self.cells.touch(last)
    }

    /// Appends one update to the queue of the block with the key `low`. Updates are pushed in
    /// sequence order.
    pub fn push(
        &mut self,
        queue: &mut Queue,
        low: &[u8],
        update: &UpdateRef<'_>,
        modifiers: &Modifiers,
    ) {
        if let Some(range) = KeyRange::of(update) {
            self.drop_covered(queue, low, &range);
        }
        if queue.is_empty() {
            queue.first_seq = update.seq;
            self.queues += 1;
            self.ages.note(update.seq);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let tail = self.tails.find_or_learn(update.key);
        let operand = entry::encode(update, low, tail, queue.first_seq, &mut scratch);
        self.append(queue, update, &scratch, operand);
        self.scratch = scratch;
        let is_long = queue.bytes >= (1 << queue.fold_at_log2).max(self.fold_bytes_min);
        if is_long && queue.count > 1 {
            self.fold(queue, low, modifiers);
        }
    }

    /// Appends an update that is encoded as these two parts: an array of them would be written to
    /// memory and read back, which waits until earlier writes have reached the cache.
    #[inline]
    fn append(&mut self, queue: &mut Queue, update: &UpdateRef<'_>, head: &[u8], rest: &[u8]) {
        queue.count += 1;
        queue.has_ranges |= update.modifier == DELETE_RANGE;
        self.entries += 1;
        self.excess_bytes -= excess_bytes(queue.bytes as usize, self.room_bytes);
        let bytes = head.len() + rest.len();
        queue.bytes += u32::try_from(bytes).expect("an update is below 4 GiB");
        self.excess_bytes += excess_bytes(queue.bytes as usize, self.room_bytes);
        let growth_bytes = queue.growth_bytes.saturating_add(growth_bytes(update));
        self.growth_bytes += u64::from(growth_bytes - queue.growth_bytes);
        queue.growth_bytes = growth_bytes;
        self.append_bytes(queue, head);
        self.append_bytes(queue, rest);
    }

    #[inline]
    fn append_bytes(&mut self, queue: &mut Queue, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = usize::from(queue.tail_used);
            if queue.tail == NONE || used == DATA_BYTES {
                let cell = self.cells.take();
                if queue.tail == NONE {
                    queue.head = cell;
                } else {
                    self.cells.set_link(queue.tail, cell);
                }
                queue.tail = cell;
                queue.tail_used = 0;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(DATA_BYTES - used));
            self.cells.data_mut(queue.tail)[used..used + now.len()].copy_from_slice(now);
            queue.tail_used += u8::try_from(now.len()).expect("a cell is below 256 bytes");
            bytes = later;
        }
    }

    /// A copy of what waits for the block with the key `low`.
    #[must_use]
    pub fn snapshot(&self, queue: &Queue, low: &[u8]) -> Packed {
        let mut copy = self.begin_copy(queue, low);
        while self.copy_cell(&mut copy) {}
        copy.packed
    }

    /// As [`Arena::snapshot`], of several queues, each with the key of its block. The cells of a
    /// queue are scattered in memory, so one of each queue is copied in turn: the memory accesses
    /// overlap.
    pub fn snapshots<'a>(
        &self,
        queues: impl Iterator<Item = (&'a Queue, &'a [u8])>,
    ) -> Vec<Packed> {
        let mut copies: Vec<Copy> =
            queues.map(|(queue, low)| self.begin_copy(queue, low)).collect();
        for together in copies.chunks_mut(COPIED_TOGETHER) {
            while together.iter_mut().fold(false, |goes_on, copy| self.copy_cell(copy) | goes_on) {}
        }
        copies.into_iter().map(|copy| copy.packed).collect()
    }

    fn begin_copy(&self, queue: &Queue, low: &[u8]) -> Copy {
        let Queue { growth_bytes, count, first_seq, .. } = *queue;
        let (tails, bytes) = (self.tails.table(), Copied::with_capacity(queue.bytes as usize));
        let packed = Packed { tails, low: low.into(), bytes, growth_bytes, count, first_seq };
        Copy { cell: queue.head, left: queue.bytes as usize, packed }
    }

    /// Copies the next cell; returns whether there was one.
    fn copy_cell(&self, copy: &mut Copy) -> bool {
        if copy.cell == NONE {
            return false;
        }
        let wanted = copy.left.min(DATA_BYTES);
        copy.packed.bytes.extend(&self.cells.data(copy.cell)[..wanted]);
        copy.left -= wanted;
        copy.cell = self.cells.link(copy.cell);
        true
    }

    /// Empties the queue and releases its memory. Cost: reads its cells, which are in the cache of
    /// the processor if they were just copied.
    pub fn clear(&mut self, queue: &mut Queue) {
        if !queue.is_empty() {
            self.queues -= 1;
            self.ages.forget(queue.first_seq);
        }
        self.entries -= u64::from(queue.count);
        self.growth_bytes -= u64::from(queue.growth_bytes);
        self.excess_bytes -= excess_bytes(queue.bytes as usize, self.room_bytes);
        self.cells.give(queue.head);
        *queue = Queue::default();
    }

    fn fold(&mut self, queue: &mut Queue, low: &[u8], modifiers: &Modifiers) {
        let packed = self.snapshot(queue, low);
        let waiting = packed.unpack();
        let (ranges, mut updates): (Vec<_>, Vec<_>) =
            waiting.updates().partition(|update| KeyRange::of(update).is_some());
        updates.sort_by(|left, right| left.key.cmp(right.key));
        let groups = updates.chunk_by(|left, right| left.key == right.key);
        let folded = groups.flat_map(|group| fold_group(group, modifiers));
        let ranges = ranges.into_iter().map(|update| Folded { update, operand: None });
        self.refill(queue, low, ranges.chain(folded));
        queue.fold_at_log2 = (queue.bytes.max(1).ilog2() + 2).min(31) as u8;
    }

    /// Drops what a range of keys covers.
    fn drop_covered(&mut self, queue: &mut Queue, low: &[u8], range: &KeyRange<'_>) {
        let packed = self.snapshot(queue, low);
        let waiting = packed.unpack();
        let updates = waiting.updates();
        let stays =
            |update: &UpdateRef<'_>| !range.contains(update.key) || KeyRange::of(update).is_some();
        let left: Vec<_> = updates.filter(stays).collect();
        if left.len() < waiting.count() {
            let left = left.into_iter().map(|update| Folded { update, operand: None });
            self.refill(queue, low, left);
        }
    }

    /// Replaces the content of a queue, whose age stays the same.
    fn refill<'a>(
        &mut self,
        queue: &mut Queue,
        low: &[u8],
        updates: impl Iterator<Item = Folded<'a>>,
    ) {
        let (first_seq, fold_at_log2) = (queue.first_seq, queue.fold_at_log2);
        self.clear(queue);
        let mut scratch = std::mem::take(&mut self.scratch);
        for update in updates {
            if queue.is_empty() {
                self.queues += 1;
                self.ages.note(first_seq);
                (queue.first_seq, queue.fold_at_log2) = (first_seq, fold_at_log2);
            }
            scratch.clear();
            let update = update.borrow();
            let tail = self.tails.find(update.key);
            let operand = entry::encode(&update, low, tail, first_seq, &mut scratch);
            self.append(queue, &update, &scratch, operand);
        }
        self.scratch = scratch;
    }
}

/// Approximate growth of a block if an update makes a record: key and value, at least the size of a
/// number, with their offsets and lengths.
fn growth_bytes(update: &UpdateRef<'_>) -> u32 {
    let bytes = update.key.len() + update.operand.len().max(8) + 12;
    u32::try_from(bytes).expect("an update is below 4 GiB")
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

/// The updates of one key that have to be kept, in order.
fn fold_group<'a>(group: &[UpdateRef<'a>], modifiers: &Modifiers) -> Vec<Folded<'a>> {
    let is_blind = |update: &UpdateRef<'_>| {
        modifiers.get(update.modifier).is_some_and(super::modifier::Modifier::blind)
    };
    let start = group.iter().rposition(is_blind).unwrap_or(0);
    let mut kept: Vec<Folded<'a>> = Vec::with_capacity(group.len() - start);
    for update in &group[start..] {
        let last = kept.last().filter(|last| last.update.modifier == update.modifier);
        let folded = last.and_then(|last| {
            modifiers.fold(update.modifier, last.borrow().operand, update.operand)
        });
        match (folded, kept.last_mut()) {
            // The sequence stays that of the earliest: recovery needs the log from there on.
            (Some(operand), Some(last)) => last.operand = Some(operand),
            _ => kept.push(Folded { update: *update, operand: None }),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueRef};
    use crate::engine::registry::ModifierId;

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
        let (mut arena, mut queue) = (Arena::new(4096, 1 << 20), Queue::default());
        for seq in 7..1007u64 {
            let key = format!("key{}", seq % 10);
            let update = UpdateRef {
                seq: Seq::new(seq),
                modifier: id,
                key: key.as_bytes(),
                operand: b"operand",
            };
            arena.push(&mut queue, b"key", &update, &modifiers);
        }
        let waiting = arena.snapshot(&queue, b"key");
        assert!(waiting.count() < 1000, "it was folded");
        let oldest = waiting.unpack().updates().map(|update| update.seq).min();
        assert_eq!(oldest, Some(Seq::new(7)));
        assert_eq!(waiting.first_seq, Seq::new(7));
    }

    #[test]
    fn several_queues_are_copied_as_each_by_itself() {
        let (modifiers, mut arena) = (Modifiers::default(), Arena::new(1 << 20, 300));
        let mut queues = vec![Queue::default(); 2 * COPIED_TOGETHER + 1];
        for seq in 1..3_000u64 {
            // The first stays empty.
            let index = 1 + (seq % 71 * seq % 71) as usize % (queues.len() - 1);
            let (key, modifier) = (seq.to_be_bytes(), ModifierId(2));
            let update = UpdateRef { seq: Seq::new(seq), modifier, key: &key, operand: &key[4..] };
            arena.push(&mut queues[index], b"", &update, &modifiers);
        }
        let copies = arena.snapshots(queues.iter().map(|queue| (queue, &b""[..])));
        assert_eq!(copies.len(), queues.len());
        let of = |queue: &Queue| excess_bytes(queue.bytes() as usize, 300);
        let excess: usize = queues.iter().map(of).sum();
        assert_eq!(arena.excess_bytes(), excess);
        assert_ne!(excess, 0);
        for (copy, queue) in copies.iter().zip(&mut queues) {
            assert_eq!(copy.unpack(), arena.snapshot(queue, b"").unpack());
            assert_eq!(copy.count(), queue.count());
            arena.clear(queue);
        }
        assert_eq!((arena.used_bytes(), arena.entries(), arena.excess_bytes()), (0, 0, 0));
        // Their cells are used again.
        for seq in 3_000..6_000u64 {
            let (key, modifier) = (seq.to_be_bytes(), ModifierId(2));
            let update = UpdateRef { seq: Seq::new(seq), modifier, key: &key, operand: &key[4..] };
            arena.push(&mut queues[seq as usize % 7], b"", &update, &modifiers);
        }
        let left: usize = queues.iter().map(|queue| queue.count() as usize).sum();
        let unpacked = queues.iter().map(|queue| arena.snapshot(queue, b"").unpack().count());
        assert_eq!((unpacked.sum::<usize>(), left), (3_000, 3_000));
    }

    #[test]
    fn a_counter_takes_ten_bytes_at_most() {
        let (mut arena, mut queue) = (Arena::new(1 << 20, 1 << 20), Queue::default());
        let low = 0x0102_0304_0506_0000u64.to_be_bytes();
        for seq in 0..1000 {
            let key = (0x0102_0304_0506_0000u64 + seq * 7).to_be_bytes();
            let operand = 1u64.to_le_bytes();
            let update = UpdateRef {
                seq: Seq::new(seq),
                modifier: ModifierId(20),
                key: &key,
                operand: &operand,
            };
            arena.push(&mut queue, &low, &update, &Modifiers::default());
        }
        assert!(queue.bytes() <= 10_000, "{} bytes", queue.bytes());
    }

    /// A scattered number, and what others end in as well.
    fn padded(number: u64, tail: &[u8]) -> Vec<u8> {
        [&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[..], tail].concat()
    }

    #[test]
    fn an_end_that_keys_have_in_common_takes_few_bytes() {
        for tail in [&[b'.'; 48][..], b": the number of what there is of this one thing"] {
            let (mut arena, mut queue) = (Arena::new(1 << 20, 1 << 20), Queue::default());
            let low = padded(0, tail);
            let mut before = 0;
            for seq in 0..1000 {
                let (key, operand) = (padded(seq, tail), 1u64.to_le_bytes());
                let update = UpdateRef {
                    seq: Seq::new(seq),
                    modifier: ModifierId(20),
                    key: &key,
                    operand: &operand,
                };
                arena.push(&mut queue, &low, &update, &Modifiers::default());
                let bytes = queue.bytes() - before;
                assert!(bytes <= 20 || seq < 2, "{bytes} bytes of number {seq}");
                before = queue.bytes();
            }
        }
    }

    #[test]
    fn random_keys_teach_nothing() {
        let (mut arena, mut queue) = (Arena::new(1 << 30, 1 << 20), Queue::default());
        for seq in 0..10_000u64 {
            let key = [padded(seq, b""), padded(seq + (1 << 32), b"")].concat();
            let update =
                UpdateRef { seq: Seq::new(seq), modifier: ModifierId(20), key: &key, operand: b"" };
            arena.push(&mut queue, b"", &update, &Modifiers::default());
        }
        assert_eq!(arena.snapshot(&queue, b"").as_section().tails().count(), 0);
    }

    #[test]
    fn folding_and_the_removal_of_ranges_keep_tails() {
        let (id, mut modifiers) = (ModifierId(100), Modifiers::default());
        modifiers.bind(id, Arc::new(Latest));
        let (mut arena, mut queue) = (Arena::new(256, 1 << 20), Queue::default());
        let tails = [&b": how many there are"[..], b"/a count", &[0; 30]];
        let key = |number: u64| padded(number, tails[number as usize % 3]);
        let mut old = Vec::new();
        for seq in 0..1000u64 {
            let (key, operand) = (key(seq * 7 % 30), seq.to_le_bytes());
            let update =
                UpdateRef { seq: Seq::new(seq), modifier: id, key: &key, operand: &operand };
            arena.push(&mut queue, b"low", &update, &modifiers);
            if seq == 10 {
                let packed = arena.snapshot(&queue, b"low");
                old.push((packed.unpack().into_owned(), packed));
            }
        }
        assert!(old.iter().all(|(waiting, packed)| packed.unpack() == *waiting), "tables grow");
        let waiting = arena.snapshot(&queue, b"low");
        assert!(waiting.count() < 1000, "it was folded");
        assert!(waiting.as_section().tails().count() >= 3);
        for number in 0..30 {
            let of_key = waiting.of_key(&key(number));
            let last = of_key.updates().last().map(|update| update.operand.to_vec());
            let seq = (0..1000u64).rev().find(|seq| seq * 7 % 30 == number);
            assert_eq!(last, seq.map(|seq| seq.to_le_bytes().to_vec()));
        }
        let (from, to) = (key(3), [0xff; 9]);
        let range = KeyRange { from: &from, to: Some(&to) };
        let before = waiting.unpack();
        arena.drop_covered(&mut queue, b"low", &range);
        let left = before.only(|update| !range.contains(update.key));
        assert!(0 < left.count() && left.count() < waiting.count() as usize);
        assert_eq!(arena.snapshot(&queue, b"low").unpack(), left);
    }

    /// Keys and operands of all lengths that entries tell apart, with zeros in all places.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), 0..3u8], 0..40)
    }

    /// Keys, many of which end alike.
    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let tails = vec![&b""[..], b"a tail of keys", b"an other tail of keys", &[7; 300]];
        (bytes(), prop::sample::select(tails)).prop_map(|(key, tail)| [&key, tail].concat())
    }

    proptest! {
        #[test]
        fn what_was_pushed_comes_back(
            low in keys(),
            updates in prop::collection::vec((0..9u64, keys(), bytes()), 1..40),
            wanted in keys(),
        ) {
            let (mut arena, mut queue) = (Arena::new(1 << 20, 1 << 20), Queue::default());
            let (mut seq, mut pushed) = (1 << 40, Vec::new());
            let mut wanted = vec![wanted];
            for (gap, key, operand) in updates {
                seq += gap << (4 * gap);
                wanted.push(key.clone());
                pushed.push((seq, ModifierId(20), key, operand));
            }
            for (seq, modifier, key, operand) in &pushed {
                let update = UpdateRef { seq: Seq::new(*seq), modifier: *modifier, key, operand };
                arena.push(&mut queue, &low, &update, &Modifiers::default());
            }
            let packed = arena.snapshot(&queue, &low);
            let owned = |waiting: &Waiting| -> Vec<_> {
                let owned = |update: UpdateRef<'_>| {
                    let (key, operand) = (update.key.to_vec(), update.operand.to_vec());
                    (update.seq.get(), update.modifier, key, operand)
                };
                waiting.updates().map(owned).collect()
            };
            prop_assert_eq!(&owned(&packed.unpack()), &pushed);
            for key in wanted {
                let of_key: Vec<_> =
                    pushed.iter().filter(|update| update.2 == key).cloned().collect();
                prop_assert_eq!(owned(&packed.of_key(&key)), of_key);
            }
        }
    }
}
