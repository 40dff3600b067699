//! The index side of checkpoints: the nodes and pages to write, as they were when the checkpoint
//! began; and the restoration of the directory from a checkpoint.

use super::Index;
use crate::engine::directory::Directory;
use crate::engine::format::checkpoint_format::{BlockRecord, NodeRecord, Root};
use crate::engine::format::image_format::ImageKind;
use crate::engine::spill_segments::SpillSegment;
use crate::engine::tree::{Node, NodeId};
use crate::error::Error;
use crate::log::Seq;

/// A node or page to write: its kind, number and body.
pub(in crate::engine) type Unwritten = (ImageKind, u32, Vec<u8>);

impl Index {
    /// From now on the old version of what changes is kept until it was written. Forgets clones
    /// that concern neither a replay from `replay_from` on nor a spill segment.
    pub(in crate::engine) fn begin_checkpoint(&mut self, replay_from: Seq) {
        let oldest_spill_segment = self.spill_segments.oldest().unwrap_or(Seq::MAX);
        self.directory.trees.changes().begin_checkpoint();
        self.directory.table.changes().begin_checkpoint();
        self.directory.clones.forget_before(replay_from.min(oldest_spill_segment));
    }

    /// A node or page that has changed since the checkpoint began, as it was then.
    pub(in crate::engine) fn take_saved(&mut self) -> Option<Unwritten> {
        let Directory { trees, table, .. } = &mut self.directory;
        if let Some((number, body)) = trees.changes().take_saved() {
            return Some((ImageKind::Node, number, body));
        }
        table.changes().take_saved().map(|(number, body)| (ImageKind::Page, number, body))
    }

    /// The next node or page that was not written and has not changed since.
    pub(in crate::engine) fn next_unwritten(&mut self) -> Option<Unwritten> {
        let Directory { trees, table, .. } = &mut self.directory;
        if let Some(number) = trees.changes().next_unwritten() {
            let body = trees.node(NodeId(number)).encode();
            return Some((ImageKind::Node, number, body));
        }
        let page = table.changes().next_unwritten()?;
        Some((ImageKind::Page, page, table.encode_page(page)))
    }

    /// The checkpoint was abandoned: nothing is kept for it any more.
    pub(in crate::engine) fn abandon_checkpoint(&mut self) {
        self.directory.trees.changes().abandon_checkpoint();
        self.directory.table.changes().abandon_checkpoint();
    }

    /// The next checkpoint has to write this node or page, if it is still there.
    pub(in crate::engine) fn mark_unwritten(&mut self, kind: ImageKind, number: u32) {
        let Directory { trees, table, .. } = &mut self.directory;
        if kind == ImageKind::Page {
            table.changes().mark_dirty(number);
        } else if trees.is_used(NodeId(number)) {
            trees.changes().mark_dirty(number);
        }
    }

    /// Restores a block of a checkpoint.
    pub(in crate::engine) fn restore_block(&mut self, record: BlockRecord) {
        self.directory.table.restore(record);
    }

    /// Restores a node of a checkpoint, whose blocks are restored already.
    pub(in crate::engine) fn restore_node(&mut self, number: u32, record: NodeRecord) {
        let restored = Node::restored(record, &self.directory.table);
        self.directory.trees.restore_node(number, restored);
    }

    /// Restores the spaces of a checkpoint, whose nodes and blocks are restored already, and
    /// everything else that its root holds. Returns faults of the trees.
    ///
    /// # Errors
    /// As [`Bindings::format_or_stand_in`](crate::engine::registry::Bindings::format_or_stand_in).
    pub(in crate::engine) fn restore(&mut self, root: &Root) -> Result<Result<(), String>, Error> {
        for (record, node) in &root.spaces {
            let format = self.bindings.format_or_stand_in(&record.format)?;
            self.directory.add_space(record.clone(), format, NodeId(*node));
        }
        for (index, amount) in &root.deferred {
            self.directory.trees.owe(*index, *amount);
        }
        let condemned = root.condemned.iter().map(|node| NodeId(*node)).collect();
        let roots = self.directory.roots();
        if let Err(reason) = self.directory.trees.restore_references(&roots, condemned) {
            return Ok(Err(reason));
        }
        self.directory.name_spaces();
        self.directory.restore_images();
        root.clones.iter().for_each(|event| self.directory.clones.add(*event));
        for (seq, record) in root.spill_segments.iter() {
            self.spill_segments.insert(SpillSegment { record, seq, filter: None });
        }
        root.reserved.iter().for_each(|(space, extent)| self.reserved.add(*space, *extent));
        for (snapshot, seq) in &root.snapshots {
            self.directory.snapshots.add(snapshot.clone(), *seq);
        }
        self.directory.table.changes().mark_clean();
        self.directory.trees.changes().mark_clean();
        Ok(Ok(()))
    }
}
