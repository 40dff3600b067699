//! Changes that take effect when a log record is durable.
//!
//! The directory is a function of the log: every change of it is one of the events below, applied
//! in log order, when its record is durable; recovery applies the same events from the same
//! records. So an event may depend on the directory and on its own content, but never on any other
//! state of this process. Its effect on queues is for this process only: recovery fills the queues
//! afterwards.
//!
//! *Blocks*: an update that finds its block shared gets a copy of the block for its space alone,
//! which shares the image until a sweep writes another, so that the first change of a shared block
//! shadows that block only (Rodeh, section 1). *Clone*: one more reference to a root. *Change*: a
//! run is published. *Spill*: queues are in spill segments from now on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Index, Release};
use crate::broken::{self, Fault};
use crate::engine::block_format::Routing;
use crate::engine::catalog::{LARGE_VALUE_FORMAT, companion_record};
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::format::checkpoint_format::CloneEvent;
use crate::engine::format::record_format::{
    CloneRecord, DirectoryChange, Placement, RangeRecord, Rebuilt, SpaceRecord,
};
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::queue::{Packed, Waiting};
use crate::engine::registry::KeyRange;
use crate::log::Seq;

impl Index {
    /// Applies an event at the sequence of its record.
    pub(in crate::engine) fn apply_event(&mut self, seq: Seq, event: Event, release: Release) {
        match event {
            Event::Blocks(wanted, promised_bytes) => {
                self.promised_bytes -= promised_bytes;
                for (space, position) in wanted {
                    if let Some(id) = self.need_block(space, &position, seq, release) {
                        self.take_pending(space, id);
                    }
                }
            }
            Event::Forget(change) => {
                for group in &change.rebuilt {
                    self.lower_fence(group.space, seq);
                }
                self.apply_change(seq, &change, release);
            }
            Event::Create(record) => self.add_space(record, seq),
            Event::Drop(space) => {
                for extent in self.reserved.remove_all(space) {
                    self.discard(Some(extent), release);
                }
                self.drop_space_now(space);
            }
            Event::Reserve(space, extent) => {
                if self.directory.space(space).is_some() {
                    self.reserved.add(space, extent);
                } else {
                    self.discard(Some(extent), release);
                }
            }
            Event::GiveBack(extent) => {
                if self.reserved.remove(extent) {
                    self.discard(Some(extent), release);
                }
            }
            Event::Clone(clone) => self.clone_now(clone, seq),
            Event::DropSnapshot(snapshot) => {
                self.directory.snapshots.remove(snapshot);
                let of_it = self.directory.spaces_of(snapshot);
                let of_it: Vec<SpaceId> = of_it.map(|space| space.record.space).collect();
                of_it.into_iter().for_each(|space| self.drop_space_now(space));
            }
            Event::Adopt { space, source } => {
                self.lower_fence(space, seq);
                self.adopt_now(space, source);
            }
            Event::RemoveRange(range) => self.remove_range_now(&range, seq, release),
            Event::Release(portion) => {
                self.directory.trees.release(portion);
                self.give_back(release);
            }
            Event::DeferredCounts(cells) => {
                for (index, amount) in cells {
                    self.directory.trees.owe(index, -amount);
                }
            }
        }
    }

    /// Ensures that a block covers `position` which belongs to `space` alone.
    fn need_block(
        &mut self,
        space: SpaceId,
        position: &[u8],
        seq: Seq,
        release: Release,
    ) -> Option<BlockId> {
        let found_space = self.directory.space(space)?;
        let exact = found_space.format.routing() == Routing::Exact;
        Some(match self.directory.find(found_space, position) {
            Some(found) if found.shared => self.unshare(space, BlockId(found.item), seq, release),
            Some(found) => BlockId(found.item),
            None if exact => self.directory.insert(space, position, seq, Placement::default()),
            None => return None,
        })
    }

    /// Gives `space` a separate block in place of one that others keep: same image, same waiting
    /// updates. Cost: the path to it, and a copy of what waits.
    fn unshare(&mut self, space: SpaceId, old: BlockId, seq: Seq, release: Release) -> BlockId {
        let block = self.directory.block(old);
        let (key, placement, spilled) = (block.key.clone(), block.placement(), block.spilled);
        let (frozen, live) = (block.frozen.clone(), self.arena.snapshot(&block.queue, &key));
        let waiting = frozen.iter().map(|frozen| frozen.unpack()).chain([live.unpack()]);
        let waiting: Vec<Waiting<'_>> = waiting.collect();
        let id = self.directory.replace(space, &key, seq, placement);
        self.enter(id, placement.extent, release);
        placement.extent.into_iter().for_each(|extent| self.directory.share_image(extent));
        let copied_bytes = placement.extent.map_or(0, |extent| extent.bytes);
        let block = self.directory.block_mut(id);
        (block.copied_bytes, block.spilled) = (copied_bytes, spilled);
        self.copy_bytes += u64::from(copied_bytes);
        if !broken::is(Fault::CloneWithoutWaiting) {
            self.push_waiting(id, &waiting);
        }
        id
    }

    /// Moves the pending updates of a block to its queue, up to the next change of the whole space.
    fn take_pending(&mut self, space: SpaceId, id: BlockId) {
        let Some(found) = self.directory.space(space) else { return };
        let low = self.directory.block(id).key.clone();
        if found.pending.first_from(&low).is_none() {
            return;
        }
        let high = self.high_of(space, &low);
        let Some(found) = self.directory.space_mut(space) else { return };
        let below = found.fences.front().copied().unwrap_or(Seq::MAX);
        let before = found.pending.bytes();
        let taken = found.pending.take(&low, high.as_deref(), below);
        self.pending_bytes -= before - found.pending.bytes();
        self.push_waiting(id, &[taken]);
    }

    fn clone_now(&mut self, clone: CloneRecord, seq: Seq) {
        for (source, record) in clone.pairs {
            self.lower_fence(source, seq);
            let Some(found) = self.directory.space(source) else { continue };
            self.next_space = self.next_space.max(record.space.plus(2));
            let (root, format, companion) =
                (found.root, Arc::clone(&found.format), found.record.companion);
            if let Some(values) = self.directory.space(companion) {
                let (root, format) = (values.root, Arc::clone(&values.format));
                let record = companion_record(record.companion, record.snapshot);
                self.directory.trees.share(root);
                self.directory.add_space(record, format, root);
            }
            self.directory.trees.share(root);
            self.directory.clones.add(CloneEvent { source, clone: record.space, seq });
            self.directory.add_space(record, format, root);
        }
        if let Some(snapshot) = clone.snapshot {
            self.next_space = self.next_space.max(SpaceId::new(snapshot.number.get()).plus(2));
            self.directory.snapshots.add(snapshot, seq);
        }
    }

    /// Adds a space and its companion to the directory.
    pub(in crate::engine) fn add_space(&mut self, record: SpaceRecord, seq: Seq) {
        if self.directory.space(record.space).is_some() {
            return;
        }
        self.next_space = self.next_space.max(record.space.plus(2));
        if record.companion != SpaceId::NONE {
            let large = self.bindings.format(LARGE_VALUE_FORMAT).expect("checked at open");
            let root = self.directory.trees.create();
            self.directory.add_space(
                companion_record(record.companion, SnapshotId::NONE),
                large,
                root,
            );
        }
        let Ok(format) = self.bindings.format(&record.format) else { return };
        let (space, ordered) = (record.space, format.routing() == Routing::Ordered);
        let root = self.directory.trees.create();
        self.directory.add_space(record, format, root);
        if ordered {
            self.directory.insert(space, &[], seq, Placement::default());
        }
    }

    /// Swaps the trees of two spaces and of their companions, and drops the second. If the first
    /// was dropped in the meantime, only drops the second.
    fn adopt_now(&mut self, space: SpaceId, source: SpaceId) {
        let spaces = [space, source].map(|number| self.directory.space(number));
        if let [Some(target), Some(found)] = spaces {
            let companions = (target.record.companion, found.record.companion);
            self.directory.swap_trees(space, source);
            self.directory.swap_trees(companions.0, companions.1);
        }
        self.drop_space_now(source);
    }

    fn drop_space_now(&mut self, space: SpaceId) {
        let Some(dropped) = self.directory.remove_space(space) else { return };
        self.pending_bytes -= dropped.pending.bytes();
        self.fences -= dropped.fences.len();
        Arc::make_mut(&mut self.visitors).set(space, None);
        self.directory.remove_space(dropped.record.companion);
    }

    /// Removes a range of keys: blocks that lie inside are removed with what waits for them; the
    /// two at the edges get an update that removes their part of the range. Changes at most `4 x
    /// depth` nodes of the table's tree, as many of its large values', and the paths to the edges.
    /// (Rodeh, section 5.7.)
    fn remove_range_now(&mut self, record: &RangeRecord, seq: Seq, release: Release) {
        self.lower_fence(record.space, seq);
        let range = record.range();
        for block in self.edges(record.space, &range) {
            let key = self.directory.block(block).key.clone();
            self.need_block(record.space, &key, seq, release);
        }
        let (from, to) = self.inside(record.space, &range);
        let first = self.directory.exact(record.space, &from);
        let first = first.or_else(|| self.directory.above(record.space, &from));
        let first = first.map(|id| self.directory.block(id).key.clone());
        if let Some(first) = first.filter(|first| to.as_ref().is_none_or(|to| **first < **to)) {
            self.directory.remove_range(record.space, &first, to.as_deref());
            // Large values of the edges are freed when the edges are swept.
            let found = self.directory.space(record.space);
            let companion = found.map_or(SpaceId::NONE, |space| space.record.companion);
            if self.directory.space(companion).is_some() {
                self.directory.remove_range(companion, &first, to.as_deref());
            }
        }
        self.give_back(release);
        if release != Release::Never {
            self.push_range(seq, record.space, &range, &mut BTreeSet::new());
        }
    }

    /// The blocks that a range intersects but does not contain.
    fn edges(&self, space: SpaceId, range: &KeyRange<'_>) -> BTreeSet<BlockId> {
        let (from, to) = self.inside(space, range);
        let left = self.directory.covering(space, range.from);
        let right = self.directory.below(space, range.to);
        let is_edge = |id: &BlockId| {
            let key = &self.directory.block(*id).key;
            **key < *from || to.as_ref().is_some_and(|to| **key >= **to)
        };
        left.into_iter().chain(right).filter(is_edge).collect()
    }

    /// The range of keys of blocks that lie entirely inside a range of keys.
    fn inside(&self, space: SpaceId, range: &KeyRange<'_>) -> (Box<[u8]>, Option<Box<[u8]>>) {
        // The first block of a space stays.
        let from = if range.from.is_empty() { &[0][..] } else { range.from };
        let Some(to) = range.to else { return (from.into(), None) };
        let last = self.directory.below(space, Some(to));
        let end = last.map(|last| {
            let key = &self.directory.block(last).key;
            let above = self.directory.above(space, key);
            let ends_there = above.is_some_and(|id| *self.directory.block(id).key == *to);
            if ends_there { to.into() } else { Box::from(&**key) }
        });
        (from.into(), Some(end.unwrap_or_else(|| to.into())))
    }

    /// Applies a change of blocks, places and map.
    pub(in crate::engine) fn apply_change(
        &mut self,
        seq: Seq,
        change: &DirectoryChange,
        release: Release,
    ) {
        for (block, placement) in &change.moved {
            match self.directory.table.find(*block) {
                Some(id) => self.place(id, *placement, release),
                // A damaged block would have kept its place.
                None if placement.frontier > placement.image_seq => {}
                None => self.discard(placement.extent, release),
            }
        }
        for group in &change.rebuilt {
            self.apply_rebuilt(seq, group, release);
        }
        self.give_back(release);
    }

    /// Replaces blocks of one space by others. If the space no longer has them, what was written is
    /// released; the applied updates still wait wherever a space has the blocks.
    fn apply_rebuilt(&mut self, seq: Seq, group: &Rebuilt, release: Release) {
        let Some(olds) = self.olds_of(group) else {
            let extents = group.news.iter().map(|(_, placement)| placement.extent);
            let values = group.values.iter().filter_map(|(_, value)| value.as_ref());
            let extents: Vec<_> = extents.chain(values.map(|value| value.extent)).collect();
            extents.into_iter().for_each(|extent| self.discard(extent, release));
            return;
        };
        let mut moved = Vec::new();
        let mut news = Vec::with_capacity(group.news.len());
        for (position, &(id, shared)) in olds.iter().enumerate() {
            let block = self.directory.block(id);
            moved.push(self.arena.snapshot(&block.queue, &block.key));
            let key = block.key.clone();
            match group.news.first().filter(|_| position == 0) {
                Some((_, placement)) if shared => {
                    let new = self.directory.replace(group.space, &key, seq, *placement);
                    self.enter(new, placement.extent, release);
                    news.push(new);
                }
                Some((_, placement)) => {
                    self.applied(id);
                    self.place(id, *placement, release);
                    news.push(id);
                }
                None => self.directory.remove(group.space, &key),
            }
        }
        let taken = usize::from(!olds.is_empty());
        for (key, placement) in group.news.iter().skip(taken) {
            let id = self.directory.insert(group.space, key, seq, *placement);
            self.enter(id, placement.extent, release);
            news.push(id);
        }
        news.iter().for_each(|id| self.mark_if_spilled(*id));
        for (key, placement) in &group.values {
            self.place_value(group.space, key, *placement, seq, release);
        }
        self.give_back(release);
        let moved: Vec<Waiting<'_>> = moved.iter().map(Packed::unpack).collect();
        if !broken::is(Fault::SplitForgets) {
            self.push_moved(group.space, &news, &moved);
        }
    }

    /// The old blocks of a group and whether each is shared, if its space still has them all.
    fn olds_of(&self, group: &Rebuilt) -> Option<Vec<(BlockId, bool)>> {
        let space = self.directory.space(group.space)?;
        let mut olds = Vec::with_capacity(group.olds.len());
        for old in &group.olds {
            let id = self.directory.table.find(*old)?;
            let key = &self.directory.block(id).key;
            let found = self.directory.trees.exact(space.root, &self.directory.table, key)?;
            if found.item != id.0 {
                return None;
            }
            olds.push((id, found.shared));
        }
        Some(olds)
    }

    fn place_value(
        &mut self,
        space: SpaceId,
        key: &[u8],
        placement: Option<Placement>,
        seq: Seq,
        release: Release,
    ) {
        let companion =
            self.directory.space(space).map_or(SpaceId::NONE, |space| space.record.companion);
        let Some(values) = self.directory.space(companion) else {
            self.discard(placement.and_then(|placement| placement.extent), release);
            return;
        };
        let found = self.directory.trees.exact(values.root, &self.directory.table, key);
        match (placement, found) {
            (Some(placement), Some(found)) if found.shared => {
                let id = self.directory.replace(companion, key, seq, placement);
                self.enter(id, placement.extent, release);
            }
            (Some(placement), Some(found)) => {
                let id = BlockId(found.item);
                let is_pinned = release != Release::Never && self.directory.block(id).pinned;
                assert!(!is_pinned, "a large value is moved by the run of its leaf alone");
                self.place(id, placement, release);
            }
            (Some(placement), None) => {
                let id = self.directory.insert(companion, key, seq, placement);
                self.enter(id, placement.extent, release);
            }
            (None, Some(_)) => self.directory.remove(companion, key),
            (None, None) => {}
        }
    }
}
