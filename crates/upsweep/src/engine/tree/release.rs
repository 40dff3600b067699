//! Dropping references, in portions: the cost is proportional to what is not shared. (Rodeh,
//! section 5.2, by reference counts.)

use super::{NodeId, Trees};

impl Trees {
    /// Condemns the reference of a dropped space to its root. O(1): [`Trees::release`] does the
    /// work.
    pub fn condemn(&mut self, root: NodeId) {
        self.condemned.push(root);
    }

    /// Drops what is condemned, until about `portion` nodes and items were visited. Items that have
    /// lost their last reference are in [`Trees::take_freed_items`]. Cost: O(`portion` + b).
    pub fn release(&mut self, portion: usize) {
        let mut seen = 0;
        while seen < portion {
            let Some(id) = self.condemned.pop() else { break };
            seen += 1;
            if self.node(id).refs > 1 {
                self.drop_shared_ref(id);
                continue;
            }
            self.touch(id);
            let children = std::mem::take(&mut self.node_mut(id).children);
            seen += children.len();
            if self.node(id).level > 0 {
                self.condemned.extend(children.into_iter().map(NodeId));
            } else {
                children.into_iter().for_each(|item| self.drop_item_ref(item));
            }
            self.free_node(id);
        }
        self.touched.clear();
    }
}
