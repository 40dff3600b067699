//! The quarantine: updates that their modifier refused, or whose block is damaged.
//!
//! They are records of an ordinary table, [`QUARANTINE_SPACE`], put there by the same log record
//! that publishes the run which refused them: so none is ever lost or duplicated. The table is
//! never cloned, so what is put there reaches its queue at once.

use std::collections::{BTreeMap, VecDeque};

pub use super::catalog::{
    FIRST_USER_SPACE, QUARANTINE_COMPANION, QUARANTINE_SPACE, REFERENCES_SPACE,
};
use super::format::checkpoint_format::CarriedPut;
use super::format::quarantine_format::{QuarantineEntry, encode_entry, encode_key};
use super::format::record_format::{DirectoryChange, LoggedUpdate, encode_change};
use super::ids::SpaceId;
use super::index::Index;
use super::jobs::Quarantined;
use super::journal::Journal;
use super::registry::PUT;
use crate::broken::{self, Fault};
use crate::log::Seq;

/// The broken engine that loses refusals loses those longer than this, in bytes.
const LOST_BYTES: usize = 4096;

/// Refused updates that are being put into the quarantine table.
#[derive(Default)]
pub(super) struct Quarantine {
    /// Bytes that they have added to the queues since those were last within their limit.
    overdraft_bytes: usize,
    /// Those that only checkpoints hold.
    carried: Vec<CarriedPut>,
    /// Those of the checkpoint that replay has not reached yet, by barrier.
    to_replay: VecDeque<CarriedPut>,
    /// Those of sweeps during replay: sequence, key, operand. The image of their block may be
    /// younger than the position of replay, and would then seem to contain them.
    deferred: Vec<(Seq, Vec<u8>, Vec<u8>)>,
}

impl Quarantine {
    /// Puts the updates that a logged change quarantines on the queue of the quarantine table, at
    /// the sequence of the change; during replay, once that has ended. Like any update it is
    /// accepted when it is appended: a later sweep of the table must not miss it.
    pub(super) fn take(
        &mut self,
        seq: Seq,
        quarantined: &[Quarantined],
        index: &mut Index,
        journal: &mut Journal,
    ) {
        let before = index.arena().used_bytes();
        for (key, operand) in puts(quarantined) {
            if broken::is(Fault::LostRefusal) && operand.len() > LOST_BYTES {
                continue;
            }
            if index.is_replaying() {
                self.deferred.push((seq, key, operand));
            } else {
                index.accept_through(seq);
                index.enqueue_all(seq, &[put_update(&key, &operand)], journal);
            }
        }
        self.overdraft_bytes += index.arena().used_bytes().saturating_sub(before);
    }

    /// The same for a change that no log record holds: checkpoints carry the puts until they are
    /// inside their block. In replay they come after everything in the log.
    pub(super) fn carry(
        &mut self,
        quarantined: &[Quarantined],
        index: &mut Index,
        journal: &mut Journal,
    ) {
        let before = index.arena().used_bytes();
        let barrier = if index.is_replaying() { journal.last() } else { index.accepted() };
        for (key, operand) in puts(quarantined) {
            if index.is_replaying() {
                self.deferred.push((barrier, key.clone(), operand.clone()));
            } else {
                index.enqueue_all(barrier, &[put_update(&key, &operand)], journal);
            }
            self.carried.push(CarriedPut { barrier, key, operand });
        }
        self.overdraft_bytes += index.arena().used_bytes().saturating_sub(before);
    }

    /// By how much quarantined updates may currently exceed the memory for queues, in bytes. They
    /// have no caller that could be made to wait; other callers wait for them.
    pub(super) fn overdraft_bytes(&self) -> usize {
        self.overdraft_bytes
    }

    /// The queues exceed their limit by this many bytes.
    pub(super) fn set_overdraft(&mut self, bytes: usize) {
        self.overdraft_bytes = bytes;
    }

    /// Drops carried puts that are inside their block by now, and returns the others.
    pub(super) fn still_carried(&mut self, index: &Index) -> Vec<CarriedPut> {
        self.carried.retain(|put| is_carried(put, index));
        self.carried.clone()
    }

    /// Restores what recovery has found in the checkpoint, by barrier.
    pub(super) fn restore(&mut self, carried: &[CarriedPut]) {
        self.carried = carried.to_vec();
        self.to_replay = carried.iter().cloned().collect();
    }

    /// Whether some puts of the checkpoint have not been replayed yet.
    pub(super) fn has_to_replay(&self) -> bool {
        !self.to_replay.is_empty()
    }

    /// During replay, before the record `seq`: replays older puts that a checkpoint carried.
    pub(super) fn replay_carried(&mut self, seq: Seq, index: &mut Index, journal: &mut Journal) {
        while let Some(put) = self.to_replay.pop_front_if(|put| put.barrier < seq) {
            index.accept_through(put.barrier);
            if is_carried(&put, index) {
                index.enqueue_all(put.barrier, &[put_update(&put.key, &put.operand)], journal);
            }
        }
    }

    /// Enqueues what replay has postponed.
    pub(super) fn enqueue_deferred(&mut self, index: &mut Index, journal: &mut Journal) {
        debug_assert!(!index.is_replaying(), "it was put off until replay is over");
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.sort_by_key(|(seq, _, _)| *seq);
        for (seq, key, operand) in deferred {
            index.accept_through(seq);
            index.enqueue_all(seq, &[put_update(&key, &operand)], journal);
        }
    }
}

/// Whether a checkpoint has to carry a put: its block does not contain it yet.
fn is_carried(put: &CarriedPut, index: &Index) -> bool {
    let block = index.directory().covering(QUARANTINE_SPACE, &put.key);
    block.is_some_and(|id| index.directory().block(id).placement().frontier <= put.barrier)
}

/// The log payload of a change and the quarantined updates that go with it.
pub(super) fn encode_with_change(change: &DirectoryChange, quarantined: &[Quarantined]) -> Vec<u8> {
    let puts = puts(quarantined);
    let updates: Vec<LoggedUpdate<'_>> =
        puts.iter().map(|(key, operand)| put_update(key, operand)).collect();
    let mut payload = Vec::with_capacity(64 + change.moved.len() * 24);
    encode_change(change, &updates, &mut payload);
    payload
}

fn put_update<'a>(key: &'a [u8], operand: &'a [u8]) -> LoggedUpdate<'a> {
    LoggedUpdate { space: QUARANTINE_SPACE, modifier: PUT, key, operand }
}

fn puts(quarantined: &[Quarantined]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Keys do not depend on the run, so that a run which is repeated after a crash puts the same.
    let mut equal: BTreeMap<(Seq, SpaceId, &[u8]), u32> = BTreeMap::new();
    let keyed = quarantined.iter().map(|update| {
        let position = equal.entry((update.seq, update.space, &update.key)).or_default();
        let key = encode_key(update.seq, update.space, *position, &update.key);
        *position += 1;
        let entry = QuarantineEntry {
            space: update.space,
            modifier: update.modifier,
            key: update.key.clone(),
            operand: update.operand.clone(),
            reason: update.reason.clone(),
        };
        (key, encode_entry(&entry))
    });
    keyed.collect()
}
