//! Background reclamation of what was dropped: nodes and blocks of dropped spaces, empty blocks,
//! and the references that the reference array counts.
//!
//! Each step is one log record for a portion, and the next follows when that has taken effect. So a
//! drop costs only its own record, whatever its size.

use super::base::Base;
use super::block_format::Routing;
use super::catalog::REFERENCES_SPACE;
use super::directory::BlockId;
use super::event::Event;
use super::format::record_format::{
    BlockRef, DirectoryChange, LoggedUpdate, Rebuilt, encode_change, encode_deferred_counts,
    encode_release,
};
use super::format::reference_format::encode_cell;
use super::ids::{SnapshotId, SpaceId};
use super::journal::Publish;
use super::policy;
use super::registry::ADD_I64;
use crate::log::Seq;

/// Nodes and blocks of dropped spaces that one record releases.
const RELEASE_PORTION: usize = 256;
/// Empty blocks that one record removes from the directory.
const FORGET_PORTION: usize = 256;
/// Blocks that one step examines for this, in a millisecond or two.
const FORGET_LOOK: usize = 8192;
/// Cells of the reference array that one record updates.
const DEFERRED_COUNTS_PORTION: usize = 256;

/// What is about to be released.
#[derive(Default)]
pub(super) struct Reclaimer {
    /// A portion of what was dropped.
    release_in_flight: bool,
    /// Deferred reference counts, being added to the reference array.
    deferred_counts_in_flight: bool,
    /// Space and key from which the next search for empty blocks starts.
    forget_from: (SpaceId, Box<[u8]>),
}

impl Reclaimer {
    /// Records a step that has taken effect.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Release(_) => self.release_in_flight = false,
            Event::DeferredCounts(_) => self.deferred_counts_in_flight = false,
            _ => {}
        }
    }

    /// Whether anything that was dropped is still to be released.
    pub(super) fn is_releasing(&self, base: &Base) -> bool {
        self.release_in_flight || !base.index.directory().trees.condemned().is_empty()
    }

    /// Releases a portion of what was dropped, and adds a portion of the deferred reference counts
    /// to the reference array, if that is not under way.
    pub(super) fn pump(&mut self, base: &mut Base) {
        // Replay puts older updates on queues: new ones have to wait until it ends.
        if base.gate.is_paused() || base.index.is_replaying() || base.journal.is_ahead() {
            return;
        }
        if !self.release_in_flight && !base.index.directory().trees.condemned().is_empty() {
            let mut payload = Vec::new();
            encode_release(RELEASE_PORTION, &mut payload);
            let publish = Publish::Event(Event::Release(RELEASE_PORTION));
            self.release_in_flight = base.journal.append(&payload, publish, base.now_us).is_ok();
        }
        if !self.deferred_counts_in_flight && !base.index.directory().trees.deferred().is_empty() {
            self.write_deferred_counts(base);
        }
    }

    /// Adds deferred reference counts to the reference array: blind additions, like any other
    /// updates.
    fn write_deferred_counts(&mut self, base: &mut Base) {
        if !policy::may_add_deferred_counts(base.queue_fill_percent()) {
            return;
        }
        let deferred = base.index.directory().trees.deferred().iter().take(DEFERRED_COUNTS_PORTION);
        let cells: Vec<(u64, i64)> = deferred.map(|(index, amount)| (*index, *amount)).collect();
        let encoded: Vec<([u8; 8], [u8; 8])> =
            cells.iter().map(|(index, amount)| encode_cell(*index, *amount)).collect();
        let updates: Vec<LoggedUpdate<'_>> = encoded
            .iter()
            .map(|(key, operand)| LoggedUpdate {
                space: REFERENCES_SPACE,
                modifier: ADD_I64,
                key,
                operand,
            })
            .collect();
        let mut payload = Vec::new();
        encode_deferred_counts(&updates, &mut payload);
        let publish = Publish::Event(Event::DeferredCounts(cells));
        if let Ok(seq) = base.journal.append(&payload, publish, base.now_us) {
            self.deferred_counts_in_flight = true;
            base.index.accept_through(seq);
            base.index.enqueue_all(seq, &updates, &mut base.journal);
        }
    }

    /// Removes blocks of exact routing from the directory that are empty and whose deletion no
    /// replay from `replay_from` on can still see. Cost: examines [`FORGET_LOOK`] blocks; the next
    /// call continues from there.
    pub(super) fn forget_empty_blocks(&mut self, base: &mut Base, replay_from: Seq) {
        if base.index.is_replaying() || base.journal.is_ahead() {
            return;
        }
        let empty = self.next_empty_blocks(base, replay_from);
        if empty.is_empty() {
            return;
        }
        // Each on its own: they are not neighbours.
        let group = |(space, old): &(SpaceId, _)| Rebuilt {
            space: *space,
            olds: vec![*old],
            ..<_>::default()
        };
        let change = DirectoryChange {
            rebuilt: empty.iter().map(group).collect(),
            ..DirectoryChange::default()
        };
        let mut payload = Vec::new();
        encode_change(&change, &[], &mut payload);
        let publish = Publish::Event(Event::Forget(change));
        if let Ok(seq) = base.journal.append(&payload, publish, base.now_us) {
            empty.into_iter().for_each(|(space, _)| base.index.raise_fence(space, seq));
        }
    }

    /// The next blocks that can be forgotten, with their spaces.
    fn next_empty_blocks(&mut self, base: &Base, replay_from: Seq) -> Vec<(SpaceId, BlockRef)> {
        let (from_space, from) = std::mem::take(&mut self.forget_from);
        let (mut empty, mut looked) = (Vec::new(), 0);
        for space in base
            .index
            .directory()
            .spaces_of(SnapshotId::NONE)
            .filter(|space| space.record.space >= from_space)
        {
            let companion = space.record.name.is_empty();
            let whole = space.fences.is_empty() && !companion;
            if !whole || space.format.routing() != Routing::Exact {
                continue;
            }
            let number = space.record.space;
            let from = if number == from_space { &*from } else { &[] };
            let first = base.index.directory().exact(number, from);
            let mut next = first.or_else(|| base.index.directory().above(number, from));
            while let Some(id) = next {
                let key = &base.index.directory().block(id).key;
                if looked == FORGET_LOOK || empty.len() == FORGET_PORTION {
                    self.forget_from = (number, (**key).into());
                    return empty;
                }
                looked += 1;
                if is_forgettable(base, id, replay_from) {
                    empty.push((number, base.index.directory().table.reference(id)));
                }
                next = base.index.directory().above(number, key);
            }
        }
        empty
    }
}

/// Whether a block is empty, and no replay from `replay_from` on reaches what it held.
fn is_forgettable(base: &Base, id: BlockId, replay_from: Seq) -> bool {
    let block = base.index.directory().block(id);
    let Some((space, shared)) = base.index.directory().owner(id) else { return false };
    block.extent().is_none()
        && !block.pinned
        && !block.waits()
        && !shared
        && block.placement().frontier < replay_from
        && space.pending.first_from(&block.key).is_none_or(|position| *position != *block.key)
}
