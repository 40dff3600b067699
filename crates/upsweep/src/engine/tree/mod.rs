//! The shadowed trees: B+ trees whose nodes are shared between spaces, and copied when changed.
//!
//! Every space is a root; the children of the lowest nodes (level 0) are *items*, which are the
//! blocks of the directory. A clone is one more reference to a root. To change a node that has
//! several references, a copy of it is changed (*shadowing*), and the children of the copy have one
//! reference more. All leaves are equally deep, there are no links between leaves, and every change
//! is one pass downwards: a full node is split and a thin one mended before it is entered, so that
//! no change propagates back up. (Rodeh, sections 5 and 5.7.)
//!
//! | module | content |
//! |---|---|
//! | [`node`] | one node; searching it |
//! | [`update`] | insert, replace, remove |
//! | [`range`] | removing a range: cut, then restore |
//! | [`release`] | dropping references in portions |
//! | [`cursor`] | walks in order, and the difference of two trees |
//! | [`audit`] | every invariant, and a recount of all references |
//!
//! Invariants: a node has at least `b` and at most `3b` entries, except a root, which may have
//! fewer (an inner one at least 2); the key of a child is at most the smallest key below it; keys
//! ascend; a node or item has as many references as there are parents, roots and condemned entries
//! that name it; the lowest free number is assigned first, so that equal histories give equal
//! trees.
//!
//! No lock coupling is needed: the trees belong to a single owner, whose calls do no I/O and take
//! microseconds; readers hold no node, only block images and copies of waiting updates, so they
//! continue during updates and sweeps.
//!
//! Bounds (Rodeh, section 5.8), checked in debug builds: a search visits `depth` nodes; inserting,
//! replacing or removing a key changes at most `2 x depth` nodes, removing a range `4 x depth`, one
//! more each where the tree grows by a level.

mod audit;
mod cursor;
mod node;
mod range;
mod release;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use super::measure::TreeCounters;

pub use cursor::Differing;
pub use node::Node;

use crate::broken::{self, Fault};

/// Number of a node; reused after the node is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Provides the keys of items.
pub trait Items {
    /// The key under which an item is in every tree that has it.
    fn key(&self, item: u32) -> &[u8];
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundItem {
    /// The item.
    pub item: u32,
    /// Whether any other tree may see a change of it: the item, or a node above it, has more than
    /// one reference.
    pub shared: bool,
}

/// Objects whose references are counted, as an index of the reference array: see
/// [`Reference::index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A node of the directory.
    Node(u32),
    /// A block.
    Block(u32),
    /// An image of a block: device, and offset in units of 4 KiB.
    Image(u16, u64),
}

/// Bits of the number within an index of the reference array, whose indexes have 48.
const NUMBER_BITS: u32 = 46;
/// Bits of the offset within the number of an image: 64 TiB a device, 4096 devices.
const OFFSET_BITS: u32 = 34;

impl Reference {
    /// The cell of the reference array that counts these references.
    #[must_use]
    pub fn index(self) -> u64 {
        match self {
            Self::Node(number) => u64::from(number),
            Self::Block(number) => 1 << NUMBER_BITS | u64::from(number),
            Self::Image(device, unit) => {
                2 << NUMBER_BITS
                    | u64::from(device) << OFFSET_BITS
                    | unit & ((1 << OFFSET_BITS) - 1)
            }
        }
    }
}

/// All trees.
pub struct Trees {
    /// Least number of entries of a node other than a root.
    b: usize,
    nodes: Vec<Node>,
    unused: BTreeSet<u32>,
    /// References of each item.
    item_refs: Vec<u32>,
    /// References to nodes that are still to be dropped.
    condemned: Vec<NodeId>,
    /// Items that have lost their last reference.
    freed_items: Vec<u32>,
    /// The pending additions to each cell of the reference array: references beyond the first.
    deferred: BTreeMap<u64, i64>,
    /// The number of references beyond the first of all nodes and items.
    extra: u64,
    changes: Changes,
    /// Nodes that the present operation has changed, some of them several times.
    touched: Vec<u32>,
    counters: TreeCounters,
}

/// Which nodes differ from their images, and those a checkpoint still has to write.
#[derive(Default)]
pub struct Changes {
    dirty: BTreeSet<u32>,
    unwritten: BTreeSet<u32>,
    /// Old versions of nodes that have changed since the checkpoint began.
    saved: Vec<(u32, Vec<u8>)>,
}

impl Changes {
    /// Records that `number` is about to change; `encode` gives its image before that.
    pub fn touch(&mut self, number: u32, encode: impl FnOnce() -> Vec<u8>) {
        if !broken::is(Fault::CheckpointOfLaterNodes) && self.unwritten.remove(&number) {
            self.saved.push((number, encode()));
        }
        self.dirty.insert(number);
    }

    /// Everything dirty is to be written in its present state.
    pub fn begin_checkpoint(&mut self) {
        self.unwritten = std::mem::take(&mut self.dirty);
        self.saved.clear();
    }

    /// Abandons the checkpoint; what was not written is dirty as before.
    pub fn abandon_checkpoint(&mut self) {
        self.dirty.append(&mut self.unwritten);
        self.saved.clear();
    }

    /// What has to be written before anything else: it has changed since.
    pub fn take_saved(&mut self) -> Option<(u32, Vec<u8>)> {
        self.saved.pop()
    }

    /// The next one to write unchanged.
    pub fn next_unwritten(&mut self) -> Option<u32> {
        self.unwritten.pop_first()
    }

    /// Marks everything as equal to its image.
    pub fn mark_clean(&mut self) {
        self.dirty.clear();
    }

    /// Marks as different from its image, independent of the checkpoint.
    pub fn mark_dirty(&mut self, number: u32) {
        self.dirty.insert(number);
    }

    /// Forgets a removed number.
    pub fn forget(&mut self, number: u32) {
        self.dirty.remove(&number);
    }
}

impl Trees {
    /// No trees. Nodes will have `b` to `3b` entries; `b` is at least 6.
    #[must_use]
    pub fn new(b: usize) -> Self {
        Self {
            b: b.max(6),
            nodes: Vec::new(),
            unused: BTreeSet::new(),
            item_refs: Vec::new(),
            condemned: Vec::new(),
            freed_items: Vec::new(),
            deferred: BTreeMap::new(),
            extra: 0,
            changes: Changes::default(),
            touched: Vec::new(),
            counters: TreeCounters::default(),
        }
    }

    /// A new tree without items; returns its root.
    pub fn create(&mut self) -> NodeId {
        let root = self.add_node(Node::new(0));
        self.check_bound(1);
        root
    }

    /// One more reference to a root: a clone, in O(1).
    pub fn share(&mut self, root: NodeId) -> NodeId {
        self.add_ref(root);
        root
    }

    /// Whether anything has more than one reference.
    #[must_use]
    pub fn has_sharing(&self) -> bool {
        self.extra > 0
    }

    /// Number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    /// Memory of nodes in bytes, estimated from the number of items, `entries`.
    #[must_use]
    pub fn memory_bytes(&self, entries: usize) -> usize {
        // An entry is a prefix and a child; vectors grow by doubling; one level above another.
        self.nodes.len() * size_of::<Node>() + entries.max(self.node_count() * self.b) * 20
    }

    /// Whether the number belongs to a node.
    #[must_use]
    pub fn is_used(&self, id: NodeId) -> bool {
        (id.0 as usize) < self.nodes.len() && !self.unused.contains(&id.0)
    }

    /// The node with this number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Levels of a tree.
    #[must_use]
    pub fn depth(&self, root: NodeId) -> usize {
        usize::from(self.node(root).level) + 1
    }

    /// Which nodes differ from their images.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The pending additions to each cell of the reference array.
    #[must_use]
    pub fn deferred(&self) -> &BTreeMap<u64, i64> {
        &self.deferred
    }

    /// Adds `amount` to what is deferred for a cell of the reference array.
    pub fn owe(&mut self, index: u64, amount: i64) {
        let deferred = self.deferred.entry(index).or_default();
        *deferred += amount;
        if *deferred == 0 {
            self.deferred.remove(&index);
        }
    }

    /// The last item whose key is at most `key`. Cost: a binary search per level, twice at worst.
    #[must_use]
    pub fn floor(&self, root: NodeId, items: &impl Items, key: &[u8]) -> Option<FoundItem> {
        self.last_before(root, |node| node.upper(items, key))
    }

    /// The last item of a tree before the position that `search` finds in each node on the way.
    ///
    /// A bound may be lower than all keys below it. So if the last node has no such item, the
    /// result is the last item of the preceding subtree.
    fn last_before(&self, root: NodeId, search: impl Fn(&Node) -> usize) -> Option<FoundItem> {
        let (mut at, mut shared) = (root, false);
        let mut before: Option<(NodeId, bool)> = None;
        loop {
            let node = self.node(at);
            shared |= node.refs > 1;
            let Some(slot) = search(node).checked_sub(1) else {
                let (at, shared) = before?;
                return self.last(at, shared);
            };
            let child = node.children[slot];
            if node.level == 0 {
                return Some(self.found(child, shared));
            }
            if let Some(left) = slot.checked_sub(1) {
                before = Some((NodeId(node.children[left]), shared));
            }
            at = NodeId(child);
        }
    }

    /// The last item below a node; `shared` tells whether its parents are shared.
    fn last(&self, mut at: NodeId, mut shared: bool) -> Option<FoundItem> {
        loop {
            let node = self.node(at);
            shared |= node.refs > 1;
            let child = *node.children.last()?;
            if node.level == 0 {
                return Some(self.found(child, shared));
            }
            at = NodeId(child);
        }
    }

    fn found(&self, item: u32, shared: bool) -> FoundItem {
        let is_shared = |item: u32| self.has_sharing() && self.item_refs[item as usize] > 1;
        FoundItem { item, shared: shared || is_shared(item) }
    }

    /// The item with exactly this key.
    #[must_use]
    pub fn exact(&self, root: NodeId, items: &impl Items, key: &[u8]) -> Option<FoundItem> {
        self.floor(root, items, key).filter(|found| items.key(found.item) == key)
    }

    /// Items that have lost their last reference since the last call.
    pub fn take_freed_items(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.freed_items)
    }

    /// References of an item.
    #[must_use]
    pub fn item_refs(&self, item: u32) -> u32 {
        self.item_refs.get(item as usize).copied().unwrap_or(0)
    }

    fn add_node(&mut self, mut node: Node) -> NodeId {
        node.refs = 1;
        let number = match self.unused.pop_first() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes")
            }
        };
        self.changes.mark_dirty(number);
        self.note_touched(number);
        NodeId(number)
    }

    /// Frees a node that has no reference any more.
    fn free_node(&mut self, id: NodeId) {
        self.touch(id);
        self.changes.forget(id.0);
        self.nodes[id.0 as usize] = Node::new(0);
        self.unused.insert(id.0);
    }

    /// Records that a node is about to change.
    fn touch(&mut self, id: NodeId) {
        let node = &self.nodes[id.0 as usize];
        self.changes.touch(id.0, || node.encode());
        self.note_touched(id.0);
    }

    fn note_touched(&mut self, number: u32) {
        self.touched.push(number);
    }

    /// Counts the nodes that an operation has changed, which ends here, and returns their number.
    /// In debug builds, checks that this is at most `nodes_max`.
    fn check_bound(&mut self, nodes_max: usize) -> u64 {
        self.touched.sort_unstable();
        self.touched.dedup();
        let changed = self.touched.len();
        self.touched.clear();
        debug_assert!(changed <= nodes_max, "{changed} nodes changed; the bound is {nodes_max}");
        self.counters.nodes_changed += changed as u64;
        changed as u64
    }

    /// The accumulated cost of changes.
    #[must_use]
    pub fn counters(&self) -> TreeCounters {
        self.counters
    }

    fn add_ref(&mut self, id: NodeId) {
        self.nodes[id.0 as usize].refs += 1;
        self.extra += 1;
        self.owe(Reference::Node(id.0).index(), 1);
    }

    /// Removes one of several references.
    fn drop_shared_ref(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.0 as usize];
        assert!(node.refs > 1, "a node with one reference belongs to its parent");
        node.refs -= 1;
        self.extra -= 1;
        self.owe(Reference::Node(id.0).index(), -1);
    }

    fn add_item_ref(&mut self, item: u32) {
        let index = item as usize;
        if self.item_refs.len() <= index {
            self.item_refs.resize(index + 1, 0);
        }
        self.item_refs[index] += 1;
        if self.item_refs[index] > 1 {
            self.extra += 1;
            self.owe(Reference::Block(item).index(), 1);
        }
    }

    fn drop_item_ref(&mut self, item: u32) {
        let refs = &mut self.item_refs[item as usize];
        *refs -= 1;
        if *refs == 0 {
            self.freed_items.push(item);
        } else {
            self.extra -= 1;
            self.owe(Reference::Block(item).index(), -1);
        }
    }

    /// The node itself if it has one reference, else a copy for the caller, who has given up a
    /// reference to the original. Cost: O(b).
    fn own(&mut self, id: NodeId) -> NodeId {
        if self.node(id).refs == 1 {
            self.touch(id);
            return id;
        }
        let copy = self.node(id).clone();
        for &child in &copy.children {
            if copy.level == 0 {
                self.add_item_ref(child);
            } else {
                self.add_ref(NodeId(child));
            }
        }
        self.drop_shared_ref(id);
        self.add_node(copy)
    }

    /// Makes child `slot` of an owned node an owned one, and returns it.
    fn own_child(&mut self, parent: NodeId, slot: usize) -> NodeId {
        let child = NodeId(self.node(parent).children[slot]);
        let owned = self.own(child);
        self.nodes[parent.0 as usize].children[slot] = owned.0;
        owned
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    fn len(&self, id: NodeId) -> usize {
        self.node(id).children.len()
    }

    fn child(&self, id: NodeId, slot: usize) -> NodeId {
        NodeId(self.node(id).children[slot])
    }

    fn is_full(&self, id: NodeId) -> bool {
        self.len(id) >= 3 * self.b
    }

    /// References to nodes that are still to be dropped.
    #[must_use]
    pub fn condemned(&self) -> &[NodeId] {
        &self.condemned
    }

    /// Restores a node from a checkpoint. [`Trees::restore_references`] has to follow.
    pub fn restore_node(&mut self, number: u32, node: Node) {
        while self.nodes.len() <= number as usize {
            let unused = u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes");
            self.unused.insert(unused);
            self.nodes.push(Node::new(0));
        }
        self.unused.remove(&number);
        self.nodes[number as usize] = node;
    }

    /// Recounts all references, from the roots and the condemned nodes.
    ///
    /// # Errors
    /// A description of the damage to the trees, as text for people.
    pub fn restore_references(
        &mut self,
        roots: &[NodeId],
        condemned: Vec<NodeId>,
    ) -> Result<(), String> {
        self.condemned = condemned;
        self.check_shape(roots)?;
        let counted = audit::count(self, roots);
        self.extra = counted.extra();
        for (number, refs) in counted.nodes {
            self.nodes[number as usize].refs = refs;
        }
        let items = counted.items.last_key_value().map_or(0, |(item, _)| *item as usize + 1);
        self.item_refs = vec![0; items];
        for (item, refs) in counted.items {
            self.item_refs[item as usize] = refs;
        }
        Ok(())
    }

    /// Checks that every named child exists, one level below: then walks terminate.
    fn check_shape(&self, roots: &[NodeId]) -> Result<(), String> {
        for id in roots.iter().chain(&self.condemned) {
            if !self.is_used(*id) {
                return Err(format!("node {} is named as a root, and not there", id.0));
            }
        }
        let used = (0..).map(NodeId).zip(&self.nodes).filter(|(id, _)| self.is_used(*id));
        for (id, node) in used.filter(|(_, node)| node.level > 0) {
            for child in node.children.iter().map(|child| NodeId(*child)) {
                if !self.is_used(child) || self.node(child).level + 1 != node.level {
                    return Err(format!("node {} names {}, which is no child", id.0, child.0));
                }
            }
        }
        Ok(())
    }
}
