//! Quotas: how much payload a volume keeps, and how much it may.
//!
//! The payload that was written to a volume is counted in a record of the catalog, which is updated
//! in the same record of the log that declares it, or declares it dead. So the count is right
//! after every crash, is never computed, and costs no read. It has what has been superseded since
//! the last sweep, too: where that makes a difference, a sweep is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upsweep::layers::structures::modifiers::ADD_I64;
use upsweep::{Batch, Table};

use crate::address::{BLOCK_BYTES, Branch, Physical};
use crate::catalog::{Activity, Catalog};
use crate::error::Error;
use crate::homes::Burial;
use crate::rows::{Key, malformed};
use crate::slots::Slots;
use crate::trim::Trims;
use crate::volumes::{Inner, Volumes};

/// This part of a quota has to be left when a sweep has shown what is superseded: otherwise every
/// few writes would take a sweep of everything.
const LEFT_PART: u64 = 64;
/// With less than this part left, a sweep in the background shows what is superseded, so that
/// writers need not wait for one.
const SOON_PART: u64 = 8;
/// Blocks that a volume can use: 8 EiB.
const USED_MAX: u64 = (1 << 63) / BLOCK_BYTES;

/// The payload that a volume keeps, in blocks.
pub struct Used {
    table: Table,
    key: Vec<u8>,
    blocks: AtomicU64,
    /// A sweep has shown that no more is superseded.
    is_reached: AtomicBool,
    /// A sweep has been asked for, because little is left.
    is_swept_soon: AtomicBool,
}

impl Used {
    /// That of a volume, with its record in this table.
    pub fn new(table: Table, number: u32, blocks: u64) -> Self {
        Self {
            table,
            key: Key::Used(number).bytes(),
            blocks: blocks.into(),
            is_reached: AtomicBool::new(false),
            is_swept_soon: AtomicBool::new(false),
        }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Adds to a batch that so many blocks more are kept, or fewer.
    pub fn declare(&self, change: i64, batch: &mut Batch) {
        batch.update(&self.table, &self.key, ADD_I64, &change.to_le_bytes());
    }

    /// So many blocks are dead: that is recorded now. If there were fewer, the record is wrong.
    pub fn let_go(&self, blocks: u64) {
        let rest = |known: u64| Some(known.saturating_sub(blocks));
        let _ = self.blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    }

    /// Takes so many blocks, if a quota allows for that. They are given back unless they are kept.
    pub fn take(&self, blocks: u64, quota: Option<u64>) -> Option<TakenBlocks<'_>> {
        let after = self.blocks.fetch_add(blocks, Ordering::Relaxed) + blocks;
        let taken = TakenBlocks { used: self, blocks };
        let Some(quota) = quota else { return Some(taken) };
        let is_reached = self.is_reached.load(Ordering::Relaxed);
        let left = quota.checked_sub(after)?;
        if is_reached && left < quota / LEFT_PART {
            return None;
        }
        self.is_reached.store(false, Ordering::Relaxed);
        Some(taken)
    }

    /// Whether a sweep has shown that a quota is reached.
    fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Something was discarded: once that is swept, there may be room although a quota is reached.
    pub fn note_discarded(&self) {
        if self.is_reached() {
            self.is_swept_soon.store(false, Ordering::Relaxed);
        }
    }

    /// Whether so little of a quota is left that a sweep is due: once, until more is left.
    fn takes_sweep(&self, quota: u64) -> bool {
        let is_little = !self.has_left(quota, quota / SOON_PART);
        let was_little = self.is_swept_soon.swap(is_little, Ordering::Relaxed);
        is_little && !was_little
    }

    /// Whether so many blocks of a quota are left.
    fn has_left(&self, quota: u64, blocks: u64) -> bool {
        quota.checked_sub(self.blocks()).is_some_and(|left| left >= blocks)
    }
}

/// How many slots die by a record, by number of the volume that they were written to.
pub type Dead = BTreeMap<u32, u64>;

/// Blocks that were taken for a write.
pub struct TakenBlocks<'a> {
    used: &'a Used,
    blocks: u64,
}

impl TakenBlocks<'_> {
    /// They stay taken: that is recorded now.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for TakenBlocks<'_> {
    fn drop(&mut self) {
        self.used.let_go(self.blocks);
    }
}

/// The number in the record of what a volume uses. So many blocks can be counted in bytes, and
/// others added to them.
pub fn decode(key: &[u8], value: &[u8]) -> Result<u64, Error> {
    let blocks = value.try_into().ok().map(i64::from_le_bytes);
    let blocks = blocks.and_then(|blocks| u64::try_from(blocks).ok());
    blocks.filter(|blocks| *blocks <= USED_MAX).ok_or_else(|| malformed(key))
}

impl Volumes {
    /// How much payload was written to a volume and is still kept, in bytes: by what it shows, its
    /// snapshots, its history, or what was cloned from it. This is what counts for its quota. It
    /// has what has been superseded since the last sweep, too. Cost: O(1).
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn used_bytes(&self, volume: &str) -> Result<u64, Error> {
        let catalog = self.inner.catalog.read();
        let number = catalog.number(volume)?;
        Ok(catalog.activities[&number].used.blocks() * BLOCK_BYTES)
    }
}

impl Catalog {
    /// What has been written to the volume of this number.
    pub fn activity(&self, number: u32) -> Result<&Arc<Activity>, Error> {
        self.row(number).map(|_| &self.activities[&number])
    }

    /// The volume that a branch was made for, unless it is gone.
    pub fn owner(&self, branch: Branch) -> Option<(u32, &Arc<Activity>)> {
        let number = self.rows.branches.get(&branch)?.volume;
        self.activities.get(&number).map(|activity| (number, activity))
    }

    /// Adds to a batch that slots are dead, which are those of a burial; returns how many of each
    /// volume.
    pub fn declare_dead(&self, trims: &Trims, burial: &Burial, batch: &mut Batch) -> Dead {
        let (mut counted, mut dead) = (Burial::new(), Dead::new());
        for (branch, trim) in trims {
            // The volume may have been deleted.
            let Some((number, _)) = self.owner(*branch) else { continue };
            let is_new = |slot: &Physical| {
                let none = || Slots::none(self.format.slots_per_home);
                burial.get(&slot.home).is_some_and(|dying| dying.has(slot.slot))
                    && counted.entry(slot.home).or_insert_with(none).add(slot.slot)
            };
            *dead.entry(number).or_default() += trim.dead().filter(is_new).count() as u64;
        }
        for (number, blocks) in &dead {
            self.activities[number].used.declare(-(*blocks as i64), batch);
        }
        dead
    }
}

impl Inner {
    /// Acts; again if that would exceed the quota of a volume by so many blocks and a sweep shows
    /// that enough has been superseded. Room on the devices is made as by [`Inner::with_room`].
    pub fn with_quota<T>(
        &self,
        number: u32,
        blocks: u64,
        act: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match self.with_room(&act) {
                Err(Error::QuotaReached { .. }) if self.show_superseded(number, blocks)? => {}
                done => return done,
            }
        }
    }

    /// Waits for a sweep, unless one has shown that the quota of a volume is reached; returns
    /// whether there is room for so many blocks now.
    fn show_superseded(&self, number: u32, blocks: u64) -> Result<bool, Error> {
        let activity = self.activity(number)?;
        if activity.used.is_reached() {
            return Ok(false);
        }
        self.shows.join(|| {
            self.flush()?;
            self.store.sweep()?;
            let _one_at_a_time = self.working.lock();
            self.trim_found().map(drop)
        })?;
        let Some(quota) = self.catalog.read().row(number)?.settings.quota_blocks() else {
            return Ok(true);
        };
        let has_room = || activity.used.has_left(quota, blocks.max(quota / LEFT_PART));
        let mut goes_on = true;
        while goes_on && !has_room() {
            let _one_at_a_time = self.working.lock();
            goes_on = self.trim_unsettled()?;
        }
        let has_room = has_room();
        activity.used.is_reached.store(!has_room, Ordering::Relaxed);
        Ok(has_room)
    }

    /// Whether a sweep in the background is due because quotas may be reached: one for which little
    /// is left, or one that is reached by a volume of which something has been discarded.
    pub fn quotas_take_sweep(&self) -> bool {
        let catalog = self.catalog.read();
        let rows = catalog.rows.volumes.iter();
        let quotas = rows.filter_map(|(number, row)| Some((number, row.settings.quota_blocks()?)));
        let is_due = |(number, quota)| catalog.activities[number].used.takes_sweep(quota);
        // All are asked, so that one sweep is for all of them.
        quotas.map(is_due).fold(false, |any, is_due| any | is_due)
    }

    /// Takes in that so many slots of volumes are dead: that is recorded now.
    pub fn note_dead(&self, dead: &Dead) {
        let catalog = self.catalog.read();
        for (number, blocks) in dead {
            if let Ok(activity) = catalog.activity(*number) {
                activity.used.let_go(*blocks);
            }
        }
    }
}
