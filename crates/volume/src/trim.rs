//! Trimming: entries that no one can see any more are deleted, and their slots are dead.
//!
//! The sweep shows every block of the map that it writes, and with it the chunks of which a version
//! has been superseded. So trimming needs no reads of its own. Where something else than a write
//! made versions needless, such as the end of a snapshot, the branch is walked.
//!
//! Invariants: what is trimmed is superseded by a version whose payload is stable, and was not
//! needed at any moment that is kept, or could be kept later, nor by anyone who was looking at the
//! present before it was superseded; an entry is deleted and its slots die in one record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use upsweep::layers::engine::block_format::BlockFormat;
use upsweep::layers::runtime::{BlockVisitor, VisitedBlock};

use crate::address::{Branch, Stamp};
use crate::entry::{self, Entry};
use crate::stamps::Stamps;
use crate::versions::{Kept, Trim, Versions};
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

/// What can be trimmed of one branch.
pub type Trims = Vec<(Branch, Trim)>;

/// Collects the entries of one chunk after another, in the order of the map, and what can be
/// trimmed of them. It may miss entries of the first and the last chunk.
pub struct Trimmer<'a> {
    needs: &'a Needs,
    /// Someone looks at moments from here on, of any branch.
    looks: Stamp,
    zeros: &'a LongZeros,
    chunk: Option<(Branch, u64)>,
    /// No entries are missing.
    is_whole: bool,
    /// Otherwise those of that chunk may be.
    is_partial: bool,
    entries: Vec<Entry>,
    trims: Trims,
}

impl<'a> Trimmer<'a> {
    /// One that has seen nothing. Someone looks at moments from `looks` on, of any branch.
    pub fn new(needs: &'a Needs, looks: Stamp, zeros: &'a LongZeros) -> Self {
        let (entries, trims) = (Vec::new(), Vec::new());
        let (chunk, is_whole, is_partial) = (None, false, true);
        Self { needs, looks, zeros, chunk, is_whole, is_partial, entries, trims }
    }

    /// As [`Trimmer::new`], for whole chunks only.
    pub fn whole(needs: &'a Needs, looks: Stamp, zeros: &'a LongZeros) -> Self {
        Self { is_whole: true, ..Self::new(needs, looks, zeros) }
    }

    /// Takes the next record of the map; what is no entry is left alone.
    pub fn see(&mut self, key: &[u8], value: &[u8]) {
        let Ok((branch, entry)) = entry::decode(key, value) else { return };
        let Some(chunk) = entry::chunk_of_span(entry.span) else { return };
        if self.chunk != Some((branch, chunk)) {
            let is_first = self.chunk.is_none();
            self.end_chunk(self.is_partial);
            (self.chunk, self.is_partial) = (Some((branch, chunk)), is_first);
        }
        self.entries.push(entry);
    }

    /// Ends a chunk. Where entries may be missing, zeros that hide one of them have to stay, as if
    /// it were one of a parent.
    fn end_chunk(&mut self, is_partial: bool) {
        let entries = std::mem::take(&mut self.entries);
        let Some((branch, chunk)) = self.chunk.take() else { return };
        let Some(BranchNeeds { kept, has_parent }) = self.needs.branches.get(&branch) else {
            return;
        };
        let long_zeros = self.zeros.over(branch, chunk);
        let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
        let is_partial = is_partial && !self.is_whole;
        let kept = match self.looks {
            Stamp::NOW => Cow::Borrowed(kept),
            from => Cow::Owned(kept.and_from(from)),
        };
        let trim = versions.trim(&kept, self.needs.until, *has_parent || is_partial);
        if !trim.entries.is_empty() || !trim.dead.is_empty() {
            self.trims.push((branch, trim));
        }
    }

    /// What can be trimmed.
    pub fn end(mut self) -> Trims {
        self.end_chunk(true);
        self.trims
    }
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
    pub zeros: parking_lot::RwLock<LongZeros>,
    /// What the visitor has found.
    pub found: Mutex<Trims>,
}

/// Most chunks that wait to be trimmed; others are found again when their block is next swept.
const FOUND_MAX: usize = 1 << 16;

impl BlockVisitor for Visitor {
    fn visit(&self, block: &VisitedBlock<'_>) {
        let needs = Arc::clone(&self.shared.needs.lock());
        let zeros = self.shared.zeros.read();
        let mut trimmer = Trimmer::new(&needs, self.stamps.first_look(), &zeros);
        let seen = self.format.for_each(block.key, block.body, &mut |key, value| {
            trimmer.see(key, value.bytes);
        });
        // The sweep reports a block that it cannot read.
        if seen.is_err() {
            return;
        }
        let trims = trimmer.end();
        drop(zeros);
        let mut found = self.shared.found.lock();
        let room = FOUND_MAX.saturating_sub(found.len());
        found.extend(trims.into_iter().take(room));
    }
}
