//! Insert, replace, remove: one pass from the root down, which owns, splits and mends on the way.
//! (Rodeh, sections 5.3 and 5.5.)

use super::{Items, Node, NodeId, Trees};

impl Trees {
    /// Adds an item under its key, which must not be in the tree. Changes at most `2 x depth + 1`
    /// nodes.
    pub fn insert(&mut self, root: NodeId, items: &impl Items, item: u32) -> NodeId {
        let key = items.key(item);
        let mut root = self.own(root);
        if self.is_full(root) {
            root = self.grow(root, items);
        }
        let mut at = root;
        while self.node(at).level > 0 {
            let mut slot = self.enter_for_insert(at, items, key);
            let child = self.own_child(at, slot);
            if self.is_full(child) {
                self.split_child(at, slot, items);
                slot = self.enter_for_insert(at, items, key);
            }
            at = self.child(at, slot);
        }
        let slot = self.node(at).upper(items, key);
        self.node_mut(at).insert(slot, key, item);
        self.add_item_ref(item);
        self.check_bound(2 * self.depth(root) + 1);
        root
    }

    /// The child below which `key` belongs; the bound of the first one is lowered if necessary.
    fn enter_for_insert(&mut self, at: NodeId, items: &impl Items, key: &[u8]) -> usize {
        match self.node(at).upper(items, key).checked_sub(1) {
            Some(slot) => slot,
            None => {
                self.node_mut(at).set_key(0, key);
                0
            }
        }
    }

    /// A new root above a full one, which is split.
    fn grow(&mut self, root: NodeId, items: &impl Items) -> NodeId {
        let mut above = Node::new(self.node(root).level + 1);
        above.insert(0, self.node(root).key(items, 0), root.0);
        let above = self.add_node(above);
        self.split_child(above, 0, items);
        above
    }

    /// Splits an owned, full child.
    fn split_child(&mut self, parent: NodeId, slot: usize, items: &impl Items) {
        let child = self.child(parent, slot);
        self.touch(child);
        let middle = self.len(child) / 2;
        let right = self.node_mut(child).split_off(middle);
        let key: Box<[u8]> = right.key(items, 0).into();
        let right = self.add_node(right);
        self.node_mut(parent).insert(slot + 1, &key, right.0);
    }

    /// Replaces the item that has the same key by `item`. Changes at most `depth` nodes.
    ///
    /// # Panics
    /// When there is none.
    pub fn replace(&mut self, root: NodeId, items: &impl Items, item: u32) -> NodeId {
        let key = items.key(item);
        let root = self.own(root);
        let mut at = root;
        while self.node(at).level > 0 {
            let slot = self.node(at).upper(items, key) - 1;
            at = self.own_child(at, slot);
        }
        let slot = self.node(at).upper(items, key) - 1;
        let before = self.node(at).children[slot];
        assert_eq!(items.key(before), key, "an item replaces one with the same key");
        self.node_mut(at).children[slot] = item;
        self.add_item_ref(item);
        self.drop_item_ref(before);
        self.check_bound(self.depth(root));
        root
    }

    /// Removes the item with exactly this key. Changes at most `2 x depth` nodes.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&mut self, root: NodeId, items: &impl Items, key: &[u8]) -> NodeId {
        let depth = self.depth(root);
        let mut root = self.own(root);
        let mut at = root;
        while self.node(at).level > 0 {
            let slot = self.node(at).upper(items, key) - 1;
            let child = self.own_child(at, slot);
            if self.len(child) <= self.b {
                // Room to spare, so that the next insertion does not split it again.
                self.mend(at, slot, self.b + 1, 5 * self.b / 2, items);
                if self.len(at) == 1 {
                    // Only a root has so few: the tree loses a level.
                    let only = self.child(at, 0);
                    self.forget_root(at);
                    root = only;
                    at = only;
                    continue;
                }
            }
            let slot = self.node(at).upper(items, key) - 1;
            at = self.own_child(at, slot);
        }
        let slot = self.node(at).upper(items, key) - 1;
        let item = self.node(at).children[slot];
        assert_eq!(items.key(item), key, "a removed key exists");
        self.node_mut(at).remove(slot);
        self.drop_item_ref(item);
        self.check_bound(2 * depth);
        root
    }

    /// Frees an owned root whose only child takes its place.
    pub(super) fn forget_root(&mut self, root: NodeId) {
        self.touch(root);
        self.node_mut(root).children.clear();
        self.free_node(root);
    }

    /// Gives an owned child at least `wanted` entries, if its neighbour allows: merges the two if
    /// they fit into one node of at most `most` entries, else moves some over. The right neighbour
    /// is preferred, because the path to it is shorter unless it is last in the parent. Does
    /// nothing if the child is alone.
    pub(super) fn mend(
        &mut self,
        parent: NodeId,
        slot: usize,
        wanted: usize,
        most: usize,
        items: &impl Items,
    ) {
        let (left, right) = if slot + 1 < self.len(parent) {
            (slot, slot + 1)
        } else if slot > 0 {
            (slot - 1, slot)
        } else {
            return;
        };
        self.own_child(parent, left);
        self.own_child(parent, right);
        if !self.merge_children(parent, left, most) {
            self.balance_children(parent, left, slot, wanted, items);
        }
    }

    /// Joins two neighbouring owned children if they have at most `most` entries together.
    pub(super) fn merge_children(&mut self, parent: NodeId, left: usize, most: usize) -> bool {
        let (left_id, right_id) = (self.child(parent, left), self.child(parent, left + 1));
        if self.len(left_id) + self.len(right_id) > most {
            return false;
        }
        self.touch(left_id);
        self.touch(right_id);
        let level = self.node(right_id).level;
        let right = std::mem::replace(self.node_mut(right_id), Node::new(level));
        self.node_mut(left_id).append(right);
        self.free_node(right_id);
        self.touch(parent);
        self.node_mut(parent).remove(left + 1);
        true
    }

    /// Moves entries between two neighbouring owned children, so that child `thin` has half of them
    /// all, or `wanted` if that is more.
    fn balance_children(
        &mut self,
        parent: NodeId,
        left: usize,
        thin: usize,
        wanted: usize,
        items: &impl Items,
    ) {
        let (left_id, right_id) = (self.child(parent, left), self.child(parent, left + 1));
        self.touch(left_id);
        self.touch(right_id);
        let right = std::mem::replace(self.node_mut(right_id), Node::new(0));
        let total = self.len(left_id) + right.children.len();
        let of_thin = wanted.max(total / 2);
        let of_left = if thin == left { of_thin } else { total - of_thin };
        self.node_mut(left_id).append(right);
        let right = self.node_mut(left_id).split_off(of_left);
        let key: Box<[u8]> = right.key(items, 0).into();
        *self.node_mut(right_id) = Node { refs: 1, ..right };
        self.touch(parent);
        self.node_mut(parent).set_key(left + 1, &key);
    }
}
