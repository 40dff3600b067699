//! Removing a range of keys, in two phases: *cut* removes everything in the range and leaves thin
//! nodes along its edges; *restore* goes down once along the cut and mends every node that is thin
//! or might become so. Whole subtrees are removed without visiting them. (Rodeh, section 5.7.)

use super::{Items, Node, NodeId, Trees};

impl Trees {
    /// Removes all items with keys from `from` to below `to` (`None`: to the end), and condemns the
    /// subtrees that lie entirely inside. Changes at most `4 x depth` nodes.
    pub fn remove_range(
        &mut self,
        root: NodeId,
        items: &impl Items,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> NodeId {
        let depth = self.depth(root);
        let root = self.own(root);
        self.cut(root, items, from, to, None);
        let root = self.settle_root(root);
        let root = self.restore(root, items, from);
        self.counters.range_nodes_changed += self.check_bound(4 * depth);
        root
    }

    /// First phase, below an owned node whose keys are below `high`.
    fn cut(
        &mut self,
        at: NodeId,
        items: &impl Items,
        from: &[u8],
        to: Option<&[u8]>,
        high: Option<&[u8]>,
    ) {
        let node = self.node(at);
        if node.level == 0 {
            let first = node.lower(items, from);
            let last = to.map_or(node.children.len(), |to| node.lower(items, to));
            for _ in first..last {
                let item = self.node_mut(at).remove(first);
                self.drop_item_ref(item);
            }
            return;
        }
        let mut slot = node.upper(items, from).saturating_sub(1);
        while slot < self.len(at) {
            let node = self.node(at);
            if to.is_some_and(|to| *node.keys[slot] >= *to) {
                break;
            }
            let child_high = node.keys.get(slot + 1).map(|key| &**key).or(high);
            let is_inside = *node.keys[slot] >= *from
                && match (child_high, to) {
                    (_, None) => true,
                    (Some(high), Some(to)) => high <= to,
                    (None, Some(_)) => false,
                };
            if is_inside {
                let child = self.node_mut(at).remove(slot);
                self.condemned.push(NodeId(child));
                continue;
            }
            let child_high: Option<Box<[u8]>> = child_high.map(Into::into);
            let child = self.own_child(at, slot);
            self.cut(child, items, from, to, child_high.as_deref());
            if self.len(child) == 0 {
                self.free_node(child);
                self.node_mut(at).remove(slot);
            } else {
                slot += 1;
            }
        }
    }

    /// Restores the shape of an owned root that has lost children.
    fn settle_root(&mut self, mut root: NodeId) -> NodeId {
        while self.node(root).level > 0 {
            match self.len(root) {
                0 => {
                    self.touch(root);
                    *self.node_mut(root) = Node { refs: 1, ..Node::new(0) };
                }
                1 => {
                    let only = self.own_child(root, 0);
                    self.forget_root(root);
                    root = only;
                }
                _ => break,
            }
        }
        root
    }

    /// Second phase, from an owned root down along the gap at `from`.
    ///
    /// A node on the way is *safe* with `b + 3` entries: mending its children below the gap takes
    /// at most three from it. So the pass never goes back up. Two nodes that do not fit into one,
    /// which has `3b`, can both be made safe, because `b` is at least 6.
    fn restore(&mut self, mut root: NodeId, items: &impl Items, from: &[u8]) -> NodeId {
        loop {
            self.mend_beside(root, items, from);
            let settled = self.settle_root(root);
            if settled == root {
                break;
            }
            root = settled;
        }
        let mut cut = vec![root];
        while let Some(at) = cut.pop() {
            if at != root {
                self.mend_beside(at, items, from);
            }
            if self.node(at).level > 1 {
                cut.extend(self.beside(at, items, from).map(|slot| self.child(at, slot)));
            }
        }
        root
    }

    /// The children left and right of the gap made by the cut.
    fn beside<I: Items>(
        &self,
        at: NodeId,
        items: &I,
        from: &[u8],
    ) -> impl Iterator<Item = usize> + use<I> {
        let right = self.node(at).lower(items, from);
        let len = self.len(at);
        [right.checked_sub(1), Some(right)].into_iter().flatten().filter(move |slot| *slot < len)
    }

    /// Mends the children of an owned node on both sides of the gap.
    fn mend_beside(&mut self, at: NodeId, items: &impl Items, from: &[u8]) {
        if self.node(at).level == 0 {
            return;
        }
        let wanted = if self.node(at).level == 1 { self.b } else { self.b + 3 };
        let mut beside = self.beside(at, items, from);
        let (first, second) = (beside.next(), beside.next());
        if let (Some(left), Some(right)) = (first, second)
            && (self.is_thin(at, left, wanted) || self.is_thin(at, right, wanted))
        {
            // The two are in the cut anyway: joined first, they need fewer neighbours.
            self.own_child(at, left);
            self.own_child(at, right);
            self.merge_children(at, left, 3 * self.b);
        }
        // Each round joins or fills one child; there are at most two, and each may take two rounds.
        for _ in 0..4 {
            let mut beside = self.beside(at, items, from);
            let Some(thin) = beside.find(|slot| self.is_thin(at, *slot, wanted)) else { break };
            self.own_child(at, thin);
            self.mend(at, thin, wanted, 3 * self.b, items);
        }
    }

    fn is_thin(&self, at: NodeId, slot: usize, wanted: usize) -> bool {
        self.len(at) > 1 && self.len(self.child(at, slot)) < wanted
    }
}
