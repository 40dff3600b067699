//! Trimming: entries that no one can see any more are deleted, and their slots are dead.
//!
//! The sweep shows every block of the map that it writes, and with it the chunks of which a version
//! has been superseded. So trimming needs no reads of its own. Where something else than a write
//! made versions needless, such as the end of a snapshot, the branch is walked.
//!
//! Invariants: what is trimmed is superseded by a version whose payload is stable, and was not
//! needed at any moment that is kept, or could be kept later, nor by anyone who was looking at the
//! present before it was superseded; an entry is deleted and its slots die in one record.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use upsweep::Durability;
use upsweep::layers::engine::block_format::BlockFormat;
use upsweep::layers::runtime::{BlockVisitor, VisitedBlock};

use crate::address::{Branch, Stamp};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::stamps::Stamps;
use crate::unsettled::{Range, Unsettled};
use crate::versions::{Kept, Trim, Versions};
use crate::volumes::Inner;
use crate::zeros::LongZeros;

/// What decides what can be trimmed, as of a moment. It is replaced as a whole.
#[derive(Debug, Default)]
pub struct Needs {
    /// Versions after this one supersede nothing yet: their payload may be lost in a power cut, or
    /// someone may keep a moment before them.
    pub until: Stamp,
    /// By branch; one that is missing is not looked at.
    pub branches: Arc<BTreeMap<Branch, BranchNeeds>>,
    /// How often the catalog had changed from which they are.
    pub changes: u64,
}

/// Of one branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchNeeds {
    /// The moments that someone may look at.
    pub kept: Kept,
    /// Whether blocks without a version are those of a parent.
    pub has_parent: bool,
}

/// What can be trimmed of entries.
pub type Trims = Vec<(Branch, Trim)>;

/// Entries that are trimmed in one record.
const TRIMS_PER_RECORD: usize = 256;
/// Most entries of a chunk that are compared with each other. Of a chunk that has more, each is
/// compared with the next one of its span at least, which is what supersedes it most often.
const COMPARED_MAX: usize = 1 << 14;

/// Collects the entries of one chunk after another, in the order of the map, and what can be
/// trimmed of them. It may miss entries of the first and the last chunk.
pub struct Trimmer<'a> {
    needs: &'a Needs,
    /// Someone looks at moments from here on, of any branch.
    looks: Stamp,
    zeros: &'a RwLock<LongZeros>,
    chunk: Option<(Branch, u64)>,
    /// No entries are missing at the ends.
    is_whole: bool,
    /// Entries of that chunk may be missing.
    is_partial: bool,
    entries: Vec<Entry>,
    /// The first moment of payload that stays.
    oldest: Stamp,
    /// What could be trimmed later, by range of chunks.
    unsettled: Vec<Range>,
    trims: Trims,
}

/// What a [`Trimmer`] has found.
#[derive(Debug, Default)]
pub struct Found {
    /// What can be trimmed, of that which was not asked for before.
    pub trims: Trims,
    /// All chunks, with what could be trimmed later.
    pub unsettled: Vec<Range>,
    /// The first moment of payload that stays.
    pub oldest: Stamp,
}

impl<'a> Trimmer<'a> {
    /// One that has seen nothing. Someone looks at moments from `looks` on, of any branch.
    pub fn new(needs: &'a Needs, looks: Stamp, zeros: &'a RwLock<LongZeros>) -> Self {
        let (chunk, is_whole, is_partial, oldest) = (None, false, true, Stamp::NOW);
        let (entries, unsettled, trims) = (Vec::new(), Vec::new(), Vec::new());
        Self { needs, looks, zeros, chunk, is_whole, is_partial, entries, oldest, unsettled, trims }
    }

    /// As [`Trimmer::new`], for whole chunks only.
    pub fn whole(needs: &'a Needs, looks: Stamp, zeros: &'a RwLock<LongZeros>) -> Self {
        Self { is_whole: true, is_partial: false, ..Self::new(needs, looks, zeros) }
    }

    /// Takes the next entry of the map.
    pub fn see(&mut self, branch: Branch, entry: Entry) {
        let Some(chunk) = entry::chunk_of_span(entry.span) else { return };
        if self.chunk != Some((branch, chunk)) {
            let is_partial = self.chunk.is_none() && !self.is_whole;
            self.end_chunk();
            (self.chunk, self.is_partial) = (Some((branch, chunk)), is_partial);
        }
        if self.entries.len() == COMPARED_MAX {
            self.is_partial = true;
            let last = self.entries.last().cloned();
            self.compare();
            self.entries.extend(last);
        }
        self.entries.push(entry);
    }

    /// Those of the branch of the chunk.
    fn branch_needs(&self) -> Option<&'a BranchNeeds> {
        self.needs.branches.get(&self.chunk?.0)
    }

    fn end_chunk(&mut self) {
        self.compare();
        self.chunk = None;
    }

    /// Compares the entries of a chunk. Where some may be missing, zeros that hide one of them have
    /// to stay, as if it were one of a parent.
    fn compare(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let Some((branch, chunk)) = self.chunk else { return };
        let Some(BranchNeeds { kept, has_parent }) = self.branch_needs() else { return };
        let long_zeros = self.zeros.read().over(branch, chunk);
        let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
        let kept = match self.looks {
            Stamp::NOW => kept.clone(),
            from => kept.and_from(from),
        };
        let has_parent = *has_parent || self.is_partial;
        let trims = versions.trim(&kept, self.needs.until, has_parent);
        self.note_unsettled(&versions, &trims, has_parent);
        for (entry, trim) in entries.iter().zip(trims) {
            if !trim.is_none() {
                self.trims.push((branch, trim));
            }
            if !trim.is_gone && entry.content != Content::Zero {
                self.oldest = self.oldest.min(entry.stamp);
            }
        }
    }

    /// What can be trimmed of entries that were seen since this was last asked for.
    pub fn take(&mut self) -> Trims {
        std::mem::take(&mut self.trims)
    }

    /// What has been found.
    pub fn end(mut self) -> Found {
        self.is_partial |= !self.is_whole;
        self.end_chunk();
        let Self { trims, unsettled, oldest, .. } = self;
        Found { trims, unsettled, oldest }
    }

    /// Takes note of what could be trimmed of a chunk, besides what can be now, if all of it were
    /// stable and nobody looked at it.
    fn note_unsettled(&mut self, versions: &Versions<'_>, trims: &[Trim], has_parent: bool) {
        let (Some((branch, chunk)), Some(needs)) = (self.chunk, self.branch_needs()) else {
            return;
        };
        let last = versions.entries.iter().map(|entry| entry.stamp).max().unwrap_or_default();
        let mut slots = 0;
        if last > self.needs.until || self.looks <= last {
            let later = versions.trim(&needs.kept, last, has_parent);
            let dead = |trims: &[Trim]| trims.iter().map(|trim| trim.dead().count()).sum::<usize>();
            slots = (dead(&later) - dead(trims)) as u64;
        }
        match self.unsettled.last_mut() {
            Some(known) if known.from.0 == branch => {
                (known.to, known.slots, known.last) =
                    (chunk, known.slots + slots, known.last.max(last));
            }
            _ => self.unsettled.push(Range { from: (branch, chunk), to: chunk, slots, last }),
        }
    }
}

/// What a look at chunks has come to.
#[derive(Clone, Copy, Debug)]
pub struct Trimmed {
    /// The chunk from which on to continue; `None` at the end.
    pub next: Option<u64>,
    /// The first moment of payload that stays.
    pub oldest: Stamp,
}

/// Looks at what the sweep writes.
pub struct Visitor {
    /// Of the map's table.
    pub format: Arc<dyn BlockFormat>,
    pub shared: Arc<Shared>,
    pub stamps: Arc<Stamps>,
}

/// What the visitor shares with those who trim. None of its locks is held while anyone waits for
/// the store.
#[derive(Default)]
pub struct Shared {
    pub needs: Mutex<Arc<Needs>>,
    pub zeros: RwLock<LongZeros>,
    /// What the visitor has found.
    pub found: Mutex<Trims>,
    /// What it has found too early.
    pub unsettled: Mutex<Unsettled>,
}

/// Most entries that wait to be trimmed; others are looked at again later.
const FOUND_MAX: usize = 1 << 16;

impl BlockVisitor for Visitor {
    fn visit(&self, block: &VisitedBlock<'_>) {
        let needs = Arc::clone(&self.shared.needs.lock());
        let mut trimmer = Trimmer::new(&needs, self.stamps.first_look(), &self.shared.zeros);
        let seen = self.format.for_each(block.key, block.body, &mut |key, value| {
            // What is no entry is left alone.
            if let Ok((branch, entry)) = entry::decode(key, value.bytes) {
                trimmer.see(branch, entry);
            }
        });
        // The sweep reports a block that it cannot read.
        if seen.is_err() {
            return;
        }
        let Found { trims, mut unsettled, .. } = trimmer.end();
        let mut found = self.shared.found.lock();
        if found.len() < FOUND_MAX {
            found.extend(trims);
        } else {
            for (branch, trim) in trims {
                let of_it = unsettled.iter_mut().find(|range| range.from.0 == branch);
                of_it.expect("its range was seen").slots += trim.dead().count() as u64;
            }
        }
        drop(found);
        let mut known = self.shared.unsettled.lock();
        unsettled.into_iter().for_each(|range| known.show(range));
    }
}

impl Inner {
    /// Trims what sweeps have shown; returns whether that is anything.
    pub fn trim_found(&self) -> Result<bool, Error> {
        let found = std::mem::take(&mut *self.trimming.found.lock());
        let is_any = !found.is_empty();
        self.trim(found)?;
        Ok(is_any)
    }

    /// Trims what has been found; the rest waits if the store refuses.
    pub fn trim(&self, trims: Trims) -> Result<(), Error> {
        let (mut rest, mut most) = (VecDeque::from(trims), TRIMS_PER_RECORD);
        while !rest.is_empty() {
            let together: Trims = rest.drain(..rest.len().min(most)).collect();
            let Err(error) = self.trim_together(&together) else { continue };
            most = together.len() / 2;
            together.into_iter().rev().for_each(|trim| rest.push_front(trim));
            // On full devices there may be room for fewer, and these make room.
            if most == 0 || !error.is_full() {
                self.trimming.found.lock().extend(rest);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Trims some entries in one record.
    fn trim_together(&self, trims: &Trims) -> Result<(), Error> {
        let mut batch = self.store.batch();
        for (branch, Trim { span, stamp, .. }) in trims.iter().filter(|(_, trim)| trim.is_gone) {
            batch.delete(&self.map, &entry::key(*branch, *span, *stamp));
        }
        let dead = trims.iter().flat_map(|(_, trim)| trim.dead());
        let burial = self.payload.bury(dead, &mut batch);
        if burial.is_empty() && trims.iter().all(|(_, trim)| !trim.is_gone) {
            return Ok(());
        }
        // A volume that is deleted meanwhile must not be counted again.
        let catalog = self.catalog.read();
        let of_volumes = catalog.declare_dead(trims, &burial, &mut batch);
        let ticket = batch.commit(Durability::Relaxed)?;
        drop(catalog);
        self.note(&ticket);
        self.payload.state.lock().homes.bury(burial);
        self.note_dead(&of_volumes);
        Ok(())
    }
}
