//! The ordered directory of blocks, resident in memory: spaces, their trees, and the block table.
//!
//! The directory is a function of the log: it changes only when a record is durable, in log order,
//! through the functions of `index/publish.rs`. Recovery runs the same records through the same
//! functions. So numbers, nodes and references are the same after any crash.
//!
//! Invariants: those of [`super::tree`] and [`super::blocks`]; the blocks of an ordered space cover
//! all keys, the first from the empty key. Cost of a search: a binary search per level of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_format::{BlockFormat, Routing};
pub use super::blocks::{Block, BlockId, BlockTable};
pub use super::catalog::Space;
use super::catalog::{Clones, Snapshots, Spaces};
use super::format::record_format::{Placement, SpaceRecord};
use super::ids::{SnapshotId, SpaceId};
use super::tree::{FoundItem, NodeId, Reference, Trees};
use crate::broken::{self, Fault};
use crate::log::Seq;
use crate::placement::{Extent, UNIT_BYTES};

/// The destination of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// On the queue of this block, which belongs to the space alone.
    Block(BlockId),
    /// It has to wait for its record; the block that it will find, if there is one, has something
    /// to copy.
    Later(Option<BlockId>),
}

/// The blocks of all spaces.
pub struct Directory {
    spaces: Spaces,
    /// All trees.
    pub trees: Trees,
    /// All blocks.
    pub table: BlockTable,
    /// All snapshots.
    pub snapshots: Snapshots,
    /// Images that several blocks share, with the number of blocks beyond the first.
    shared_images: BTreeMap<Extent, u32>,
    /// Which space was cloned from which.
    pub clones: Clones,
}

impl Directory {
    /// A directory without spaces, whose nodes will have `b` to `3b` entries.
    #[must_use]
    pub fn new(b: usize) -> Self {
        Self {
            spaces: Spaces::default(),
            trees: Trees::new(b),
            table: BlockTable::default(),
            snapshots: Snapshots::default(),
            shared_images: BTreeMap::new(),
            clones: Clones::default(),
        }
    }

    /// One more block shares this image.
    pub fn share_image(&mut self, extent: Extent) {
        *self.shared_images.entry(extent).or_default() += 1;
        self.trees.owe(reference(extent).index(), 1);
    }

    /// A block has left this image; returns whether others still have it.
    pub fn leave_image(&mut self, extent: Extent) -> bool {
        let Some(others) = self.shared_images.get_mut(&extent) else { return false };
        *others -= 1;
        if *others == 0 {
            self.shared_images.remove(&extent);
        }
        self.trees.owe(reference(extent).index(), -1);
        true
    }

    /// Whether several blocks share this image.
    #[must_use]
    pub fn is_image_shared(&self, extent: Extent) -> bool {
        self.shared_images.contains_key(&extent)
    }

    /// Recounts how many blocks share each image.
    #[must_use]
    pub fn count_images(&self) -> BTreeMap<Extent, u32> {
        let mut counted: BTreeMap<Extent, u32> = BTreeMap::new();
        for id in self.table.ids() {
            if let Some(extent) = self.block(id).extent() {
                *counted.entry(extent).or_default() += 1;
            }
        }
        counted.retain(|_, blocks| *blocks > 1);
        counted.values_mut().for_each(|blocks| *blocks -= 1);
        counted
    }

    /// Finds out from the blocks of a checkpoint which images are shared.
    pub fn restore_images(&mut self) {
        self.shared_images = self.count_images();
    }

    /// Faults of the directory, and the expected content of the reference array: every nonzero
    /// cell. Cost: a pass over the directory.
    #[must_use]
    pub fn audit(&self) -> (Vec<String>, BTreeMap<u64, i64>) {
        let audit = self.trees.audit(&self.roots(), &self.table);
        let mut cells = audit.cells();
        let mut faults = audit.faults;
        for id in self.table.ids().filter(|id| !audit.items.contains_key(&id.0)) {
            faults.push(format!("block {} is in no space: a leak", id.0));
        }
        for item in audit.items.keys().filter(|item| self.block(BlockId(**item)).birth == Seq::NONE)
        {
            faults.push(format!("block {item} is in a space, but does not exist"));
        }
        let images = self.count_images();
        if images != self.shared_images {
            faults.push("the counts of blocks that share images are wrong".to_owned());
        }
        let images = images.into_iter();
        cells.extend(images.map(|(image, more)| (reference(image).index(), i64::from(more))));
        (faults, cells)
    }

    /// Adds a space with this tree.
    pub fn add_space(&mut self, record: SpaceRecord, format: Arc<dyn BlockFormat>, root: NodeId) {
        self.spaces.add(record, format, root);
    }

    /// Removes a space and condemns its tree; [`Trees::release`] releases its blocks.
    pub fn remove_space(&mut self, space: SpaceId) -> Option<Space> {
        self.table.versions().change_all();
        let space = self.spaces.remove(space)?;
        self.trees.condemn(space.root);
        Some(space)
    }

    /// The space with this number.
    #[must_use]
    pub fn space(&self, space: SpaceId) -> Option<&Space> {
        self.spaces.get(space)
    }

    /// The space of this name that belongs to no snapshot.
    #[must_use]
    pub fn space_named(&self, name: &str) -> Option<&Space> {
        self.spaces.named(name)
    }

    /// All spaces, by number, including those of snapshots.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.iter()
    }

    /// The spaces of a snapshot, companions included, by number;
    /// [`SnapshotId::NONE`]: those that can be changed.
    pub fn spaces_of(&self, snapshot: SnapshotId) -> impl Iterator<Item = &Space> {
        self.spaces.of_snapshot(snapshot)
    }

    /// The space with this number. Every version is outdated.
    pub fn space_mut(&mut self, space: SpaceId) -> Option<&mut Space> {
        self.table.versions().change_all();
        self.spaces.get_mut(space)
    }

    /// The block with this number.
    #[must_use]
    pub fn block(&self, id: BlockId) -> &Block {
        self.table.get(id)
    }

    /// The block with this number; for its queue only.
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.table.get_mut(id)
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Memory of the directory in bytes: blocks, keys, nodes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.trees.memory_bytes(self.table.len())
    }

    /// The roots of all spaces.
    #[must_use]
    pub fn roots(&self) -> Vec<NodeId> {
        self.spaces.iter().map(|space| space.root).collect()
    }

    /// The blocks of a space in key order.
    pub fn blocks_of(&self, space: &Space) -> impl Iterator<Item = BlockId> {
        self.trees.iter(space.root).map(BlockId)
    }

    /// The block that covers `position`, and whether other spaces share it.
    #[must_use]
    pub fn find(&self, space: &Space, position: &[u8]) -> Option<FoundItem> {
        match space.format.routing() {
            Routing::Ordered => self.trees.floor(space.root, &self.table, position),
            Routing::Exact => self.trees.exact(space.root, &self.table, position),
        }
    }

    /// The block that covers `position`.
    #[must_use]
    pub fn covering(&self, space: SpaceId, position: &[u8]) -> Option<BlockId> {
        self.find(self.spaces.get(space)?, position).map(|found| BlockId(found.item))
    }

    /// The block with exactly this key.
    #[must_use]
    pub fn exact(&self, space: SpaceId, key: &[u8]) -> Option<BlockId> {
        let root = self.spaces.get(space)?.root;
        self.trees.exact(root, &self.table, key).map(|found| BlockId(found.item))
    }

    /// The first block whose key is greater than `key`.
    #[must_use]
    pub fn above(&self, space: SpaceId, key: &[u8]) -> Option<BlockId> {
        let root = self.spaces.get(space)?.root;
        self.trees.above(root, &self.table, key).map(BlockId)
    }

    /// The last block whose key is below `key` (`None`: the last of the space).
    #[must_use]
    pub fn below(&self, space: SpaceId, key: Option<&[u8]>) -> Option<BlockId> {
        let root = self.spaces.get(space)?.root;
        self.trees.below(root, &self.table, key).map(BlockId)
    }

    /// The destination of an update of `space` at `position`.
    #[must_use]
    pub fn target(&self, space: &Space, position: &[u8]) -> Target {
        let found = self.find(space, position);
        let id = found.map(|found| BlockId(found.item));
        let in_place = broken::is(Fault::SharedInPlace);
        match found {
            Some(FoundItem { item, shared })
                if (!shared || in_place) && space.fences.is_empty() =>
            {
                let id = BlockId(item);
                // What is pending for the block is older, and has to go first.
                let waits = space.pending.len() > 0 && {
                    let pending = space.pending.first_from(&self.block(id).key);
                    let next = pending.and_then(|position| self.find(space, position));
                    next.is_some_and(|next| next.item == item)
                };
                if waits { Target::Later(None) } else { Target::Block(id) }
            }
            Some(FoundItem { shared: true, .. }) => Target::Later(id),
            _ => Target::Later(None),
        }
    }

    /// A space that has the block: the one that it names, or else any; and whether it is shared.
    #[must_use]
    pub fn owner(&self, id: BlockId) -> Option<(&Space, bool)> {
        let block = self.block(id);
        let in_space = |space: &'_ Space| {
            let found = self.trees.exact(space.root, &self.table, &block.key)?;
            (found.item == id.0).then_some(found.shared)
        };
        let named = self.spaces.get(block.space).into_iter();
        // A block in any snapshot is in the first one that was made after the block.
        let first = self.snapshots.first_from(block.birth).unwrap_or(SnapshotId::NONE);
        let likely = named.chain(self.spaces.of_snapshot(first));
        likely.chain(self.spaces.iter()).find_map(|space| Some((space, in_space(space)?)))
    }

    /// Whether a block is a large value. Cost: a look-up of its space, and one in a tree if that
    /// space was dropped and others have the block.
    #[must_use]
    pub fn is_large_value(&self, id: BlockId) -> bool {
        let named = self.spaces.get(self.block(id).space);
        let space = named.or_else(|| self.owner(id).map(|(space, _)| space));
        space.is_some_and(Space::has_large_values)
    }

    /// Adds a block to a space.
    pub fn insert(
        &mut self,
        space: SpaceId,
        key: &[u8],
        birth: Seq,
        placement: Placement,
    ) -> BlockId {
        let id = self.table.add(space, key, birth, placement);
        self.change_tree(space, |trees, table, root| trees.insert(root, table, id.0));
        id
    }

    /// Gives a space a separate block in place of the one with the same key, which others keep.
    pub fn replace(
        &mut self,
        space: SpaceId,
        key: &[u8],
        birth: Seq,
        placement: Placement,
    ) -> BlockId {
        let id = self.table.add(space, key, birth, placement);
        self.change_tree(space, |trees, table, root| trees.replace(root, table, id.0));
        id
    }

    /// Removes the block with this key from a space.
    pub fn remove(&mut self, space: SpaceId, key: &[u8]) {
        self.change_tree(space, |trees, table, root| trees.remove(root, table, key));
    }

    /// Removes all blocks with keys in a range from a space.
    pub fn remove_range(&mut self, space: SpaceId, from: &[u8], to: Option<&[u8]>) {
        self.change_tree(space, |trees, table, root| trees.remove_range(root, table, from, to));
    }

    /// Exchanges the blocks of two spaces.
    pub fn swap_trees(&mut self, left: SpaceId, right: SpaceId) {
        self.table.versions().change_all();
        let roots = [left, right].map(|space| self.spaces.get(space).map(|space| space.root));
        if let [Some(of_left), Some(of_right)] = roots {
            self.spaces.get_mut(left).expect("looked up above").root = of_right;
            self.spaces.get_mut(right).expect("looked up above").root = of_left;
        }
    }

    fn change_tree(
        &mut self,
        space: SpaceId,
        change: impl FnOnce(&mut Trees, &BlockTable, NodeId) -> NodeId,
    ) {
        self.table.versions().change_all();
        let space = self.spaces.get_mut(space).expect("the changed space exists");
        space.root = change(&mut self.trees, &self.table, space.root);
    }

    /// The blocks that left their last space since the last call. Their numbers are free.
    pub fn take_freed(&mut self) -> Vec<(BlockId, Block)> {
        let items = self.trees.take_freed_items();
        items.into_iter().map(|item| (BlockId(item), self.table.remove(BlockId(item)))).collect()
    }

    /// Sets in every block a space that has it, which a checkpoint does not hold.
    pub fn name_spaces(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        for space in self.spaces.iter() {
            let mut path = vec![space.root];
            while let Some(node) = path.pop() {
                if !seen.insert(node) {
                    continue;
                }
                let node = self.trees.node(node);
                for child in node.children() {
                    if node.level() > 0 {
                        path.push(NodeId(*child));
                    } else if self.table.get(BlockId(*child)).space == SpaceId::NONE {
                        self.table.get_mut(BlockId(*child)).space = space.record.space;
                    }
                }
            }
        }
    }
}

fn reference(extent: Extent) -> Reference {
    Reference::Image(extent.device.0, extent.offset / UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;
    use crate::engine::block_format::UpdateRef;
    use crate::engine::catalog::companion_record;
    use crate::engine::unregistered::Unregistered;

    fn space() -> SpaceId {
        SpaceId::new(1000)
    }

    fn record(space: SpaceId) -> SpaceRecord {
        let (format, name) = (String::new(), format!("t{space}"));
        SpaceRecord {
            space,
            companion: SpaceId::new(0),
            snapshot: SnapshotId::new(0),
            format,
            name,
        }
    }

    fn add_space(directory: &mut Directory, space: SpaceId) {
        let root = directory.trees.create();
        directory.add_space(record(space), Arc::new(Unregistered), root);
    }

    /// A directory of an ordered space with blocks at these keys.
    fn directory(keys: &[&str]) -> Directory {
        let mut directory = Directory::new(6);
        add_space(&mut directory, space());
        for key in keys {
            directory.insert(space(), key.as_bytes(), Seq::new(1), Placement::default());
        }
        directory
    }

    /// Another space that has the same tree.
    fn clone(directory: &mut Directory) -> SpaceId {
        let root = directory.space(space()).expect("it is there").root;
        directory.trees.share(root);
        directory.add_space(record(space().plus(2)), Arc::new(Unregistered), root);
        space().plus(2)
    }

    fn target(directory: &Directory, position: &[u8]) -> Target {
        directory.target(directory.space(space()).expect("it is there"), position)
    }

    fn placed(directory: &mut Directory, id: BlockId, extent: Extent) {
        let placement = Placement { extent: Some(extent), ..Placement::default() };
        directory.table.place(id, placement);
    }

    fn extent() -> Extent {
        Extent { device: DeviceId(0), offset: 1 << 20, bytes: 4096 }
    }

    #[test]
    fn a_block_is_a_large_value_if_its_space_has_those_of_another_dropped_or_not() {
        let (companion, copy) = (space().next(), space().plus(3));
        let mut directory = directory(&["a"]);
        let root = directory.trees.create();
        let record = companion_record(companion, SnapshotId::NONE);
        directory.add_space(record, Arc::new(Unregistered), root);
        let leaf = directory.exact(space(), b"a").expect("it was inserted");
        let value = directory.insert(companion, b"a", Seq::FIRST, Placement::default());
        assert!(!directory.is_large_value(leaf) && directory.is_large_value(value));
        let root = directory.space(companion).expect("it is there").root;
        directory.trees.share(root);
        let record = companion_record(copy, SnapshotId::NONE);
        directory.add_space(record, Arc::new(Unregistered), root);
        directory.remove_space(companion);
        assert!(directory.is_large_value(value), "the copy has it");
    }

    #[test]
    fn a_position_is_covered_by_the_last_block_that_does_not_begin_behind_it() {
        let directory = directory(&["", "f", "m"]);
        let key = |id: Option<BlockId>| id.map(|id| directory.block(id).key.to_vec());
        assert_eq!(key(directory.covering(space(), b"a")), Some(b"".to_vec()));
        assert_eq!(key(directory.covering(space(), b"f")), Some(b"f".to_vec()));
        assert_eq!(key(directory.covering(space(), b"zz")), Some(b"m".to_vec()));
        assert_eq!(key(directory.above(space(), b"f")), Some(b"m".to_vec()));
        assert_eq!(key(directory.above(space(), b"m")), None);
        assert_eq!(key(directory.below(space(), Some(b"f"))), Some(b"".to_vec()));
        assert_eq!(key(directory.below(space(), None)), Some(b"m".to_vec()));
        assert_eq!(key(directory.exact(space(), b"g")), None);
        assert_eq!(key(directory.covering(space().plus(90), b"a")), None);
    }

    #[test]
    fn an_update_goes_to_a_block_that_is_its_spaces_alone_and_waits_for_any_other() {
        let mut directory = directory(&["", "m"]);
        let block = directory.covering(space(), b"a").expect("it covers all");
        assert_eq!(target(&directory, b"a"), Target::Block(block));
        let copy = clone(&mut directory);
        assert_eq!(target(&directory, b"a"), Target::Later(Some(block)), "it is shared");
        directory.replace(space(), b"", Seq::new(5), Placement::default());
        assert!(matches!(target(&directory, b"a"), Target::Block(own) if own != block));
        assert!(matches!(target(&directory, b"n"), Target::Later(Some(_))), "that one still is");
        directory.remove_space(copy);
    }

    #[test]
    fn an_update_waits_behind_a_change_of_the_whole_space_and_behind_what_waits_already() {
        let mut directory = directory(&["", "m"]);
        let found = directory.space_mut(space()).expect("it is there");
        found.fences.push_back(Seq::new(7));
        assert_eq!(target(&directory, b"a"), Target::Later(None));
        let found = directory.space_mut(space()).expect("it is there");
        found.fences.clear();
        found.pending.push(
            b"c",
            0,
            &UpdateRef { seq: Seq::new(8), key: b"c", ..UpdateRef::default() },
        );
        assert_eq!(target(&directory, b"a"), Target::Later(None), "of the same block");
        assert!(matches!(target(&directory, b"n"), Target::Block(_)), "of another");
    }

    #[test]
    fn an_image_is_left_by_all_who_share_it_and_the_last_one_is_told() {
        let mut directory = directory(&["", "m"]);
        assert!(!directory.is_image_shared(extent()));
        directory.share_image(extent());
        directory.share_image(extent());
        assert_eq!(directory.trees.deferred().values().sum::<i64>(), 2, "two besides the first");
        assert!(directory.leave_image(extent()) && directory.is_image_shared(extent()));
        assert!(directory.leave_image(extent()) && !directory.is_image_shared(extent()));
        assert!(!directory.leave_image(extent()), "no other block has it");
        assert_eq!(directory.trees.deferred().len(), 0, "counts that cancel out are not deferred");
    }

    #[test]
    fn what_is_shared_is_learned_from_the_blocks_again() {
        let mut directory = directory(&["", "m", "s"]);
        let ids: Vec<BlockId> = directory.table.ids().collect();
        ids.iter().for_each(|id| placed(&mut directory, *id, extent()));
        directory.restore_images();
        assert_eq!(directory.count_images(), BTreeMap::from([(extent(), 2)]));
        assert!(directory.audit().0.is_empty(), "{:?}", directory.audit().0);
        directory.leave_image(extent());
        assert_eq!(directory.audit().0.len(), 1, "it is counted anew");
    }

    #[test]
    fn a_block_that_no_space_has_is_a_leak_until_it_is_given_back() {
        let mut directory = directory(&["", "m"]);
        let leaked = directory.table.add(space(), b"z", Seq::new(5), Placement::default());
        assert!(directory.audit().0[0].contains("a leak"));
        directory.table.remove(leaked);
        directory.remove(space(), b"m");
        let freed = directory.take_freed();
        assert_eq!(freed.len(), 1);
        assert_eq!(&*freed[0].1.key, b"m");
        assert!(directory.take_freed().is_empty());
        assert!(directory.audit().0.is_empty());
    }

    #[test]
    fn two_spaces_change_their_blocks_and_nothing_else() {
        let mut directory = directory(&["", "m"]);
        add_space(&mut directory, space().plus(2));
        directory.insert(space().plus(2), b"", Seq::new(1), Placement::default());
        directory.swap_trees(space(), space().plus(2));
        let blocks = |space| directory.blocks_of(directory.space(space).expect("there")).count();
        assert_eq!([space(), space().plus(2)].map(blocks), [1, 2]);
        assert_eq!(directory.space_named("t1000").map(|found| found.record.space), Some(space()));
    }

    #[test]
    fn a_block_is_seen_through_the_space_that_it_names_or_any_that_has_it() {
        let mut directory = directory(&["", "m"]);
        let block = directory.covering(space(), b"a").expect("it covers all");
        let owner = |directory: &Directory| {
            directory.owner(block).map(|(space, shared)| (space.record.space, shared))
        };
        assert_eq!(owner(&directory), Some((space(), false)));
        let copy = clone(&mut directory);
        assert_eq!(owner(&directory), Some((space(), true)));
        directory.remove_space(space());
        directory.trees.release(100);
        assert_eq!(owner(&directory), Some((copy, false)));
        directory.remove_space(copy);
        assert_eq!(owner(&directory), None);
    }
}
