//! Checks of every invariant of the trees, and a recount of all references from the roots.

use std::collections::BTreeMap;

use super::{Items, NodeId, Reference, Trees};

/// References as counted from the roots.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// References of every node that is reached.
    pub nodes: BTreeMap<u32, u32>,
    /// References of every item that is reached.
    pub items: BTreeMap<u32, u32>,
    /// Descriptions of all faults; empty if there are none.
    pub faults: Vec<String>,
}

impl Audit {
    /// References beyond the first, in total.
    #[must_use]
    pub fn extra(&self) -> u64 {
        self.nodes.values().chain(self.items.values()).map(|refs| u64::from(refs - 1)).sum()
    }

    /// The expected content of the reference array: nonzero cells.
    #[must_use]
    pub fn cells(&self) -> BTreeMap<u64, i64> {
        let nodes = self.nodes.iter().map(|(node, refs)| (Reference::Node(*node), refs));
        let items = self.items.iter().map(|(item, refs)| (Reference::Block(*item), refs));
        nodes
            .chain(items)
            .filter(|(_, refs)| **refs > 1)
            .map(|(reference, refs)| (reference.index(), i64::from(*refs) - 1))
            .collect()
    }
}

/// Counts the references of everything that the roots and the condemned reach.
pub(super) fn count(trees: &Trees, roots: &[NodeId]) -> Audit {
    let mut audit = Audit::default();
    let mut path: Vec<NodeId> = roots.iter().chain(&trees.condemned).copied().collect();
    while let Some(id) = path.pop() {
        let refs = audit.nodes.entry(id.0).or_default();
        *refs += 1;
        if *refs > 1 {
            continue;
        }
        let node = trees.node(id);
        if node.level > 0 {
            path.extend(node.children.iter().map(|child| NodeId(*child)));
            continue;
        }
        for item in &node.children {
            *audit.items.entry(*item).or_default() += 1;
        }
    }
    audit
}

impl Trees {
    /// Checks everything. Cost: a pass over all nodes.
    #[must_use]
    pub fn audit(&self, roots: &[NodeId], items: &impl Items) -> Audit {
        let mut audit = count(self, roots);
        let mut faults = Vec::new();
        for (&number, &refs) in &audit.nodes {
            let said = self.nodes[number as usize].refs;
            if said != refs {
                faults.push(format!("node {number} has {refs} references, but records {said}"));
            }
        }
        for (&item, &refs) in &audit.items {
            let said = self.item_refs(item);
            if said != refs {
                faults.push(format!("item {item} has {refs} references, but records {said}"));
            }
        }
        if audit.nodes.len() != self.node_count() {
            let (reached, all) = (audit.nodes.len(), self.node_count());
            faults.push(format!("{all} nodes, of which {reached} are reached: a leak"));
        }
        let counted = self.item_refs.iter().filter(|refs| **refs > 0).count();
        if audit.items.len() != counted {
            let reached = audit.items.len();
            faults.push(format!("{counted} items, of which {reached} are reached: a leak"));
        }
        if audit.extra() != self.extra {
            faults.push(format!(
                "{} extra references, but {} are recorded",
                audit.extra(),
                self.extra
            ));
        }
        for &root in roots {
            self.check_below(root, items, true, None, None, &mut faults);
        }
        audit.faults = faults;
        audit
    }

    fn check_below(
        &self,
        id: NodeId,
        items: &impl Items,
        is_root: bool,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        faults: &mut Vec<String>,
    ) {
        let node = self.node(id);
        let (len, number) = (node.children.len(), id.0);
        let least = match (is_root, node.level) {
            (true, 0) => 0,
            (true, _) => 2,
            (false, _) => self.b,
        };
        if len < least || len > 3 * self.b {
            faults.push(format!("node {number} has {len} entries; {least} to {}", 3 * self.b));
        }
        for slot in 0..len {
            let key = node.key(items, slot);
            let next = (slot + 1 < len).then(|| node.key(items, slot + 1)).or(high);
            if low.is_some_and(|low| key < low) || next.is_some_and(|next| key >= next) {
                faults.push(format!("node {number}, entry {slot}: key {key:02x?} is out of order"));
            }
            if node.prefixes[slot] != super::node::prefix(key) {
                faults.push(format!("node {number}, entry {slot}: prefix is not that of its key"));
            }
            if node.level > 0 {
                let child = NodeId(node.children[slot]);
                if self.node(child).level + 1 != node.level {
                    faults.push(format!("node {number}, entry {slot}: not all leaves are as deep"));
                    continue;
                }
                self.check_below(child, items, false, Some(key), next, faults);
            }
        }
    }
}
