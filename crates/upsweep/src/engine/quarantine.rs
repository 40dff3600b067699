//! The quarantine: updates that their modifier refused, or whose block is damaged.
//!
//! They are records of an ordinary table, [`QUARANTINE_SPACE`], put there by the same log record
//! that publishes the run which refused them: so they are never lost and never there twice. The
//! table is never cloned, so what is put there reaches its queue at once.

use std::collections::BTreeMap;

use super::core::Core;
use super::format::checkpoint_format::CarriedPut;
use super::format::quarantine_format::{Entry, encode_entry, encode_key};
use super::format::record_format::{Change, LoggedUpdate, encode_change};
use super::registry::PUT;
use super::sweep::Quarantined;

/// The space of the quarantine table; its large values are in the next one.
pub const QUARANTINE_SPACE: u32 = 1;
/// The space of the quarantine table's large values.
pub const QUARANTINE_COMPANION: u32 = 2;
/// The space of the reference array.
pub const REFERENCES_SPACE: u32 = 3;
/// The first space of the application.
pub const FIRST_USER_SPACE: u32 = 5;

/// The broken engine that loses refusals loses those that are longer than this, in bytes.
const LOST_BYTES: usize = 4096;

impl Core {
    /// Puts what a logged change quarantines on the queue of the quarantine table, at the sequence
    /// of the change; in replay, when that is over. Like any update it is accepted when it is
    /// appended: a later sweep of the table must not pass it by.
    pub(super) fn take_quarantined(&mut self, seq: u64, quarantined: &[Quarantined]) {
        let before = self.arena.used_bytes();
        for (key, operand) in puts(quarantined) {
            if cfg!(feature = "broken-lost-refusal") && operand.len() > LOST_BYTES {
                continue;
            }
            if self.replaying {
                self.deferred.push((seq, key, operand));
            } else {
                self.accepted = self.accepted.max(seq);
                self.enqueue_all(seq, &[put_update(&key, &operand)]);
            }
        }
        self.overdraft_bytes += self.arena.used_bytes().saturating_sub(before);
        self.metrics.quarantined_updates_total.add(quarantined.len() as u64);
    }

    /// The same for a change that no log record holds: checkpoints carry the puts until they are
    /// inside their block.
    pub(super) fn carry_quarantined(&mut self, quarantined: &[Quarantined]) {
        let (barrier, before) = (self.accepted, self.arena.used_bytes());
        for (key, operand) in puts(quarantined) {
            self.enqueue_all(barrier, &[put_update(&key, &operand)]);
            self.carried.push(CarriedPut { barrier, key, operand });
        }
        self.overdraft_bytes += self.arena.used_bytes().saturating_sub(before);
        self.metrics.quarantined_updates_total.add(quarantined.len() as u64);
    }

    /// By how much quarantined updates may exceed the memory for queues at this moment, in bytes.
    /// They cannot wait outside as callers do: nobody is there to wait. Callers wait for them.
    #[must_use]
    pub fn queue_overdraft_bytes(&self) -> usize {
        self.overdraft_bytes
    }

    /// Forgets carried puts that are inside their block by now, and returns the others.
    pub(super) fn still_carried(&mut self) -> Vec<CarriedPut> {
        let mut carried = std::mem::take(&mut self.carried);
        carried.retain(|put| self.is_carried(put));
        self.carried.clone_from(&carried);
        carried
    }

    fn is_carried(&self, put: &CarriedPut) -> bool {
        let block = self.directory.covering(QUARANTINE_SPACE, &put.key);
        block.is_some_and(|id| self.directory.block(id).placement().frontier <= put.barrier)
    }

    /// In replay, before the record `seq`: puts that a checkpoint carried and that are older.
    pub(super) fn replay_carried(&mut self, seq: u64) {
        while let Some(put) = self.carried_replay.pop_front_if(|put| put.barrier < seq) {
            if self.is_carried(&put) {
                self.enqueue_all(put.barrier, &[put_update(&put.key, &put.operand)]);
            }
        }
    }

    /// What [`Core::take_quarantined`] has put off.
    pub(super) fn enqueue_deferred(&mut self) {
        for (seq, key, operand) in std::mem::take(&mut self.deferred) {
            self.accepted = self.accepted.max(seq);
            self.enqueue_all(seq, &[put_update(&key, &operand)]);
        }
    }
}

/// The log payload of a change and the quarantined updates that go with it.
pub(super) fn encode_with_change(change: &Change, quarantined: &[Quarantined]) -> Vec<u8> {
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
    let mut equal: BTreeMap<(u64, u32, &[u8]), u32> = BTreeMap::new();
    let keyed = quarantined.iter().map(|update| {
        let position = equal.entry((update.seq, update.space, &update.key)).or_default();
        let key = encode_key(update.seq, update.space, *position, &update.key);
        *position += 1;
        let entry = Entry {
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
