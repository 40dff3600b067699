//! Walks through the map, for what no sweep shows: what the end of a snapshot, of a history or of a
//! volume made needless, and what is under long spans of zeros. The sweep shows only blocks of the
//! map that have changed, and a span of zeros is one entry, far from those that it supersedes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use upsweep::Durability;

use crate::address::{Branch, CHUNK_LEVEL, Span, Stamp, chunk_of};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::trim::{Trimmer, Trims};
use crate::versions::Kept;
use crate::volumes::{CHUNKS_MAX, Inner, malformed};

/// Chunks that a step of a walk looks at.
pub const CHUNKS_PER_STEP: usize = 1000;

/// A long span of zeros under which there may be something to trim. Those of before are known again
/// at the next open, from the map.
#[derive(Clone, Copy, Debug)]
pub struct ZeroWalk {
    branch: Branch,
    span: Span,
    stamp: Stamp,
    /// The next chunk to look at.
    next: u64,
    /// Under it is something that somebody sees at an earlier moment.
    hides: bool,
    /// When nothing was under it any more: who began to read before may still know of something.
    over: Option<Stamp>,
}

/// What becomes of a walk.
enum Step {
    /// It goes on.
    On(ZeroWalk),
    /// It goes on when others have ended.
    Later,
    Done,
}

impl ZeroWalk {
    /// The walk under an entry, if that is a long span of zeros.
    pub fn of(branch: Branch, entry: &Entry) -> Option<Self> {
        let Entry { span, stamp, .. } = *entry;
        let next = chunk_of(span.blocks().start);
        let walk = Self { branch, span, stamp, next, hides: false, over: None };
        (span.level > CHUNK_LEVEL).then_some(walk)
    }
}

impl Inner {
    /// A branch to walk, from which chunk on, and from which moment on someone looks at it. One
    /// that is being sent waits, because what is held for that is not recorded.
    fn next_walk(&self) -> Option<(Branch, u64, Stamp)> {
        let walks = self.catalog.read().rows.walks_now();
        walks.into_iter().find_map(|(branch, next)| {
            let first_look = self.stamps.first_look();
            if self.catalog.read().rows.kept(branch) != Kept::default() {
                return Some((branch, next, first_look));
            }
            // Nobody has looked at it since this moment, except those who had begun before.
            let mut abandoned = self.abandoned.lock();
            let since = abandoned.entry(branch).or_insert_with(|| self.between(|stamp| stamp));
            (first_look >= *since).then_some((branch, next, Stamp::NOW))
        })
    }

    /// Walks a part of the next branch that has something to trim; returns whether there is one.
    pub fn walk(&self) -> Result<bool, Error> {
        let Some((branch, next, looks)) = self.next_walk() else { return Ok(false) };
        if next == 0 {
            // What was written last can be trimmed, too.
            self.flush()?;
        }
        match self.trim_chunks(branch, next..=CHUNKS_MAX, looks)?.0 {
            Some(chunk) => self.catalog.write().note_walk(branch, chunk)?,
            None => self.end_walk(branch)?,
        }
        Ok(true)
    }

    /// Trims the first of these chunks of a branch that have entries, at which someone looks from a
    /// moment on. Returns the chunk from which on to continue, and the entries that stay.
    fn trim_chunks(
        &self,
        branch: Branch,
        chunks: RangeInclusive<u64>,
        looks: Stamp,
    ) -> Result<(Option<u64>, Vec<Entry>), Error> {
        let needs = Arc::clone(&self.trimming.needs.lock());
        let [from, to] = entry::keys_of_chunks(branch, chunks);
        let (mut records, mut entries) = (Vec::new(), Vec::new());
        let (mut seen, mut next) = (BTreeSet::new(), None);
        for record in self.map.scan(from..to) {
            let (key, value) = record?;
            let (_, entry) = entry::decode(&key, &value).map_err(malformed)?;
            let chunk = entry::chunk_of_span(entry.span).unwrap_or(CHUNKS_MAX);
            if seen.insert(chunk) && seen.len() > CHUNKS_PER_STEP {
                next = Some(chunk);
                break;
            }
            records.push((key, value));
            entries.push(entry);
        }
        let zeros = self.trimming.zeros.read();
        let mut trimmer = Trimmer::whole(&needs, looks, &zeros);
        records.iter().for_each(|(key, value)| trimmer.see(key, value));
        let trims: Trims = trimmer.end();
        drop(zeros);
        let gone: BTreeSet<(Span, Stamp)> =
            trims.iter().flat_map(|(_, trim)| trim.entries.iter().copied()).collect();
        entries.retain(|entry| !gone.contains(&(entry.span, entry.stamp)));
        self.trim(trims)?;
        Ok((next, entries))
    }

    fn end_walk(&self, branch: Branch) -> Result<(), Error> {
        let is_over = self.catalog.read().rows.kept(branch) == Kept::default();
        if is_over {
            let zeros = self.trimming.zeros.write().forget(branch);
            let mut batch = self.store.batch();
            for (span, stamp) in zeros {
                batch.delete(&self.map, &entry::key(branch, span, stamp));
            }
            batch.commit(Durability::Relaxed)?;
            self.abandoned.lock().remove(&branch);
        }
        self.catalog.write().end_walk(branch)?;
        self.publish_needs(None);
        Ok(())
    }

    /// Walks a part of what is under a long span of zeros; returns whether there is such a part.
    pub fn walk_long_zeros(&self) -> Result<bool, Error> {
        // One of those that wait must not keep the others from their turn.
        let count = self.zero_walks.lock().len();
        for _ in 0..count {
            let Some(walk) = self.zero_walks.lock().pop_front() else { break };
            match self.walk_under(walk) {
                Ok(Step::Later) => self.zero_walks.lock().push_back(walk),
                Ok(Step::On(walk)) => {
                    self.zero_walks.lock().push_front(walk);
                    return Ok(true);
                }
                Ok(Step::Done) => return Ok(true),
                Err(error) => {
                    self.zero_walks.lock().push_front(walk);
                    return Err(error);
                }
            }
        }
        Ok(false)
    }

    fn walk_under(&self, walk: ZeroWalk) -> Result<Step, Error> {
        let ZeroWalk { branch, span, stamp, next, hides, over } = walk;
        let first_look = self.stamps.first_look();
        let catalog = self.catalog.read();
        let is_held = catalog.rows.holds.keys().any(|(held, _)| *held == branch);
        if is_held || first_look <= over.unwrap_or(stamp) {
            return Ok(Step::Later);
        }
        let kept = catalog.rows.kept(branch);
        let row = catalog.rows.branches.get(&branch).filter(|_| kept != Kept::default());
        // All of an abandoned branch is walked.
        let Some(has_parent) = row.map(|row| row.parent.is_some()) else { return Ok(Step::Done) };
        drop(catalog);
        if over.is_some() {
            self.end_zeros(branch, span, &[stamp])?;
            return Ok(Step::Done);
        }
        let is_stable = || self.trimming.needs.lock().until >= stamp;
        if !is_stable() {
            self.flush()?;
        }
        if !is_stable() {
            return Ok(Step::Later);
        }
        let last = chunk_of(span.blocks().end - 1);
        let (next, stay) = self.trim_chunks(branch, next..=last, first_look)?;
        let is_hidden = |entry: &Entry| entry.stamp < stamp && entry.content != Content::Zero;
        let hides = hides || stay.iter().any(is_hidden);
        if let Some(next) = next {
            return Ok(Step::On(ZeroWalk { next, hides, ..walk }));
        }
        let superseded =
            self.trimming.zeros.read().superseded(branch, span, stamp, &kept.and_from(first_look));
        self.end_zeros(branch, span, &superseded)?;
        // What is seen through the branch would be seen again.
        if hides || has_parent {
            return Ok(Step::Done);
        }
        Ok(Step::On(ZeroWalk { over: Some(self.between(|now| now)), ..walk }))
    }

    /// Deletes long spans of zeros at which nobody looks, or under which there is nothing, in a
    /// branch without a parent.
    fn end_zeros(&self, branch: Branch, span: Span, stamps: &[Stamp]) -> Result<(), Error> {
        if stamps.is_empty() {
            return Ok(());
        }
        let mut batch = self.store.batch();
        for stamp in stamps {
            batch.delete(&self.map, &entry::key(branch, span, *stamp));
        }
        let ticket = batch.commit(Durability::Relaxed)?;
        self.note(&ticket);
        self.trimming.zeros.write().remove(branch, span, stamps);
        Ok(())
    }
}
