//! Walks: neighbours of a key, all items in order, and the difference of two trees.
//!
//! There are no links between leaves, which would defeat shadowing: to continue after a key,
//! descend again, or keep the path. (Rodeh, section 5.6.)

use super::{Items, Node, NodeId, Trees};

impl Trees {
    /// The first item whose key is greater than `key`. Cost: a binary search per level.
    #[must_use]
    pub fn above(&self, root: NodeId, items: &impl Items, key: &[u8]) -> Option<u32> {
        let mut at = root;
        let mut next: Option<NodeId> = None;
        loop {
            let node = self.node(at);
            let slot = node.upper(items, key);
            if node.level == 0 {
                let found = node.children.get(slot).copied();
                return found.or_else(|| next.and_then(|next| self.first(next)));
            }
            if let Some(&right) = node.children.get(slot) {
                next = Some(NodeId(right));
            }
            let below = slot.checked_sub(1).map(|slot| NodeId(node.children[slot]));
            match below {
                Some(below) => at = below,
                None => return next.and_then(|next| self.first(next)),
            }
        }
    }

    /// The last item whose key is below `key` (`None`: the last). Cost: a binary search per level.
    #[must_use]
    pub fn below(&self, root: NodeId, items: &impl Items, key: Option<&[u8]>) -> Option<u32> {
        let search = |node: &Node| key.map_or(node.children.len(), |key| node.lower(items, key));
        self.last_before(root, search).map(|found| found.item)
    }

    fn first(&self, mut at: NodeId) -> Option<u32> {
        while self.node(at).level > 0 {
            at = NodeId(*self.node(at).children.first()?);
        }
        self.node(at).children.first().copied()
    }

    /// All items of a tree in key order.
    #[must_use]
    pub fn iter(&self, root: NodeId) -> Cursor<'_> {
        Cursor { trees: self, path: vec![(root, 0)] }
    }

    /// The differences of two trees, from the key `from` on; shared parts are skipped. Cost:
    /// proportional to what they do not share.
    #[must_use]
    pub fn difference<'t, I: Items>(
        &'t self,
        items: &'t I,
        left: NodeId,
        right: NodeId,
        from: &[u8],
    ) -> Difference<'t, I> {
        let side =
            |root| Side { parts: vec![Subtree { low: Box::default(), child: Child::Node(root) }] };
        Difference { trees: self, items, from: from.into(), sides: [side(left), side(right)] }
    }
}

/// An iterator over the items of a tree.
pub struct Cursor<'t> {
    trees: &'t Trees,
    path: Vec<(NodeId, usize)>,
}

impl Iterator for Cursor<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            let (at, slot) = self.path.last_mut()?;
            let node = self.trees.node(*at);
            let Some(&child) = node.children.get(*slot) else {
                self.path.pop();
                continue;
            };
            *slot += 1;
            if node.level == 0 {
                return Some(child);
            }
            self.path.push((NodeId(child), 0));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    Node(NodeId),
    Item(u32),
}

/// A subtree or item that is still to be compared.
struct Subtree {
    low: Box<[u8]>,
    child: Child,
}

/// The remaining parts of one tree, the next one last.
struct Side {
    parts: Vec<Subtree>,
}

impl Side {
    /// The end of the next part; `None` if it is the last.
    fn high(&self) -> Option<&[u8]> {
        self.parts.len().checked_sub(2).map(|at| &*self.parts[at].low)
    }
}

/// A range of keys in which two trees have different items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// Its first key.
    pub low: Box<[u8]>,
    /// The first key beyond it; `None` for no bound.
    pub high: Option<Box<[u8]>>,
}

/// An iterator over the ranges in which two trees differ.
pub struct Difference<'t, I> {
    trees: &'t Trees,
    items: &'t I,
    from: Box<[u8]>,
    sides: [Side; 2],
}

impl<I: Items> Difference<'_, I> {
    /// Replaces the next part of a side, a node, by its children.
    fn expand(&mut self, side: usize) {
        let Some(Subtree { low, child: Child::Node(id) }) = self.sides[side].parts.pop() else {
            return;
        };
        let node = self.trees.node(id);
        for slot in (0..node.children.len()).rev() {
            let is_past =
                node.children.len() > slot + 1 && node.key(self.items, slot + 1) <= &*self.from;
            if is_past {
                break;
            }
            let child = node.children[slot];
            let child =
                if node.level == 0 { Child::Item(child) } else { Child::Node(NodeId(child)) };
            // A part whose beginning was skipped starts at the cut.
            let low = low.clone().max(node.key(self.items, slot).into());
            self.sides[side].parts.push(Subtree { low, child });
        }
    }

    fn level(&self, child: Child) -> Option<u8> {
        match child {
            Child::Node(id) => Some(self.trees.node(id).level),
            Child::Item(_) => None,
        }
    }

    /// The next part of one side is in one tree only, up to the next part of the other.
    fn alone(&mut self, side: usize, until: Option<Box<[u8]>>) -> Differing {
        let own: Option<Box<[u8]>> = self.sides[side].high().map(Box::from);
        let high = match (own, until) {
            (Some(own), Some(until)) => Some(own.min(until)),
            (own, until) => own.or(until),
        };
        let low = self.skip_to(side, high.as_deref());
        Differing { low, high }
    }

    /// Advances the beginning of the next part of a side to `high`, or drops the part if it ends
    /// there.
    fn skip_to(&mut self, side: usize, high: Option<&[u8]>) -> Box<[u8]> {
        let ends = match (self.sides[side].high(), high) {
            (Some(own), Some(high)) => own <= high,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if ends {
            return self.sides[side].parts.pop().map(|part| part.low).unwrap_or_default();
        }
        let part = self.sides[side].parts.last_mut().expect("a skipped part exists");
        std::mem::replace(&mut part.low, high.map(Box::from).unwrap_or_default())
    }
}

impl<I: Items> Iterator for Difference<'_, I> {
    type Item = Differing;

    fn next(&mut self) -> Option<Differing> {
        loop {
            let [left, right] = &self.sides;
            let (left, right) = match (left.parts.last(), right.parts.last()) {
                (None, None) => return None,
                (Some(part), None) | (None, Some(part)) => {
                    let side = usize::from(left.parts.is_empty());
                    if matches!(part.child, Child::Node(_)) {
                        self.expand(side);
                        continue;
                    }
                    return Some(self.alone(side, None));
                }
                (Some(left), Some(right)) => (left, right),
            };
            if left.child == right.child {
                self.sides.iter_mut().for_each(|side| drop(side.parts.pop()));
                continue;
            }
            if left.low != right.low {
                let (side, until) =
                    if left.low < right.low { (0, &right.low) } else { (1, &left.low) };
                let (until, first) = (until.clone(), if side == 0 { left } else { right });
                if matches!(first.child, Child::Node(_)) {
                    self.expand(side);
                    continue;
                }
                return Some(self.alone(side, Some(until)));
            }
            let (left, right) = (self.level(left.child), self.level(right.child));
            if left.is_none() && right.is_none() {
                let other = self.sides[1].high().map(Box::from);
                let found = self.alone(0, other);
                self.skip_to(1, found.high.as_deref());
                return Some(found);
            }
            if left >= right {
                self.expand(0);
            }
            if right >= left {
                self.expand(1);
            }
        }
    }
}
