//! How much space volumes take, and what would be free without them.
//!
//! The answer is what trimming would do if a volume were not there, or had no past: so it is exact,
//! whatever is shared.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use crate::address::{BLOCK_BYTES, Branch, CHUNK_BLOCKS};
use crate::catalog::blocks_of;
use crate::entry::Entry;
use crate::error::Error;
use crate::looks::Rows;
use crate::rows::History;
use crate::versions::{Kept, Seen, Versions};
use crate::volumes::{CHUNKS_MAX, Inner, Volumes};

/// The space of all volumes; see [`Volumes::usage`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// By name.
    pub volumes: Vec<VolumeUsage>,
    /// Payload that somebody needs, in bytes.
    pub payload_bytes: u64,
    /// What is reserved for payload on the devices beyond that, in bytes: to be trimmed, to be
    /// cleaned, or about to be filled.
    pub reclaimable_bytes: u64,
}

/// The space of one volume. Payload alone counts: without zeros, and without the map, of which
/// an entry has 34 bytes for a block or 94 for a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeUsage {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What is free once the volume is deleted, with its snapshots and its history, in bytes.
    pub own_bytes: u64,
    /// What of that is free if only its snapshots and its history are deleted, in bytes.
    pub history_bytes: u64,
    /// What it shows now and somebody else needs, too, in bytes.
    pub shared_bytes: u64,
    /// What was written to it and is kept, for whomever: see [`Volumes::used_bytes`].
    pub used_bytes: u64,
    /// How much that may be, if it is limited.
    pub quota_bytes: Option<u64>,
}

/// Payload that was written to the devices since the store was opened; see [`Volumes::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// By clients, in bytes of whole blocks.
    pub written_bytes: u64,
    /// By cleaning, which moves what is needed out of segments in which little is, in bytes.
    pub copied_bytes: u64,
}

impl Rows {
    /// Without a volume, its snapshots and its history.
    fn without_volume(mut self, number: u32) -> Self {
        self.volumes.remove(&number);
        self.receiving.remove(&number);
        self.snapshots.retain(|(of, _), _| *of != number);
        self.without_abandoned()
    }

    /// Without the snapshots and the history of a volume.
    fn without_past(mut self, number: u32) -> Self {
        self.snapshots.retain(|(of, _), _| *of != number);
        if let Some(row) = self.volumes.get_mut(&number) {
            row.history = History::OFF;
            row.epochs.drain(..row.epochs.len() - 1);
        }
        self.without_abandoned()
    }

    /// Without branches at which nobody looks, which may be all that looks at others.
    fn without_abandoned(mut self) -> Self {
        loop {
            let known = self.branches.len();
            let living: BTreeMap<_, _> = self
                .branches
                .iter()
                .filter(|(branch, _)| self.kept(**branch) != Kept::default())
                .map(|(branch, row)| (*branch, *row))
                .collect();
            self.branches = living;
            if self.branches.len() == known {
                return self;
            }
        }
    }
}

/// What would be kept of a branch in one case.
struct Case {
    /// The place of the count of what would be dead.
    count: usize,
    kept: Kept,
}

/// Slots of entries of the map.
struct Count {
    /// All.
    slots: u64,
    /// How many are dead: as things are, and then in each case.
    dead: Vec<u64>,
}

impl Volumes {
    /// What payload has been written to the devices since the store was opened. Cost: O(1).
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let taken = &self.inner.payload.taken;
        let [written_bytes, copied_bytes] = [&taken.by_writes, &taken.by_cleaning]
            .map(|slots| slots.load(Ordering::Relaxed) * BLOCK_BYTES);
        Traffic { written_bytes, copied_bytes }
    }

    /// How much space volumes take. It flushes first. Cost: scans of the map, one of all and one
    /// for each volume.
    ///
    /// # Errors
    /// [`Error::Tables`]; [`Error::Store`].
    pub fn usage(&self) -> Result<Usage, Error> {
        let inner = &self.inner;
        inner.flush()?;
        let _looking = inner.stamps.look();
        let mut rows = inner.catalog.read().rows.clone();
        // Nobody looks at anything because of these, and there may be many.
        (rows.moments, rows.origins) = Default::default();
        let Count { slots, dead } = inner.count(&rows)?;
        let mut volumes = Vec::new();
        for (nth, (number, row)) in rows.volumes.iter().enumerate() {
            let freed = |case: usize| (dead[case] - dead[0]) * BLOCK_BYTES;
            let (own_bytes, history_bytes) = (freed(1 + 2 * nth), freed(2 + 2 * nth));
            let shown_bytes = inner.shown_blocks(*number)? * BLOCK_BYTES;
            let shared_bytes = shown_bytes.saturating_sub(own_bytes - history_bytes);
            // It may have been deleted meanwhile.
            let catalog = inner.catalog.read();
            let used_blocks = catalog.activity(*number).map_or(0, |of| of.used.blocks());
            drop(catalog);
            volumes.push(VolumeUsage {
                name: row.name.clone(),
                bytes: row.now().bytes,
                own_bytes,
                history_bytes,
                shared_bytes,
                used_bytes: used_blocks * BLOCK_BYTES,
                quota_bytes: row.settings.quota_bytes.map(NonZeroU64::get),
            });
        }
        volumes.sort_by(|left, right| left.name.cmp(&right.name));
        let reserved_bytes = inner.store.status().reserved_bytes;
        let payload_bytes = (slots - dead[0]) * BLOCK_BYTES;
        let reclaimable_bytes = reserved_bytes.saturating_sub(payload_bytes);
        Ok(Usage { volumes, payload_bytes, reclaimable_bytes })
    }
}

impl Inner {
    /// Counts slots, with two cases for each volume: without it, and without its past.
    fn count(&self, rows: &Rows) -> Result<Count, Error> {
        let numbers = rows.volumes.keys();
        let cases = numbers.flat_map(|number| {
            [rows.clone().without_volume(*number), rows.clone().without_past(*number)]
        });
        let cases: Vec<Rows> = cases.collect();
        let mut all = Count { slots: 0, dead: vec![0; 1 + cases.len()] };
        for (branch, row) in &rows.branches {
            let now = rows.kept(*branch);
            let kept = |case: &Rows| match case.branches.contains_key(branch) {
                true => case.kept(*branch),
                false => Kept::default(),
            };
            let others = cases.iter().enumerate().map(|(nth, case)| (1 + nth, kept(case)));
            let others: Vec<Case> = others
                .filter(|(_, kept)| *kept != now)
                .map(|(count, kept)| Case { count, kept })
                .collect();
            let Count { slots, dead } =
                self.count_of(*branch, row.parent.is_some(), &now, &others)?;
            all.slots += slots;
            // In all other cases as many as now.
            all.dead.iter_mut().for_each(|count| *count += dead[0]);
            for (case, count) in others.iter().zip(&dead[1..]) {
                all.dead[case.count] += count - dead[0];
            }
        }
        Ok(all)
    }

    /// Counts slots of one branch, as it is kept now and in other cases.
    fn count_of(
        &self,
        branch: Branch,
        has_parent: bool,
        now: &Kept,
        others: &[Case],
    ) -> Result<Count, Error> {
        let mut count = Count { slots: 0, dead: vec![0; 1 + others.len()] };
        let until = self.trimming.needs.lock().until;
        for chunk in self.chunks(branch, 0..=CHUNKS_MAX) {
            let (chunk, entries) = chunk?;
            count.slots += entries.iter().map(Entry::slots).sum::<u64>();
            let long_zeros = self.trimming.zeros.read().over(branch, chunk);
            let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
            let kepts = [now].into_iter().chain(others.iter().map(|case| &case.kept));
            for (dead, kept) in count.dead.iter_mut().zip(kepts) {
                let trims = versions.trim(kept, until, has_parent);
                *dead += trims.iter().map(|trim| trim.dead().count() as u64).sum::<u64>();
            }
        }
        Ok(count)
    }

    /// How many blocks with payload a volume shows now.
    fn shown_blocks(&self, volume: u32) -> Result<u64, Error> {
        let look = match self.catalog.read().shown(volume) {
            Err(Error::Deleted | Error::Incomplete(_)) => return Ok(0),
            look => look?,
        };
        let line = self.line(look);
        let (mut next, blocks, mut shown) = (0, blocks_of(0, look.bytes).end, 0);
        while next < blocks {
            let chunks = next / CHUNK_BLOCKS..=(blocks - 1) / CHUNK_BLOCKS;
            let end = self.part_end(line.iter().map(|(branch, _)| *branch), chunks)?;
            let part = next..((end + 1) * CHUNK_BLOCKS).min(blocks);
            let sight = self.see(&line, part.clone())?;
            let in_chunks =
                sight.chunks().flat_map(|of| of * CHUNK_BLOCKS..(of + 1) * CHUNK_BLOCKS);
            let is_shown = |block: &u64| {
                part.contains(block) && matches!(sight.of(*block).seen, Seen::Slot(..))
            };
            shown += in_chunks.filter(is_shown).count() as u64;
            next = part.end;
        }
        Ok(shown)
    }
}
