//! Walks through the map, for what no sweep shows: what the end of a snapshot, of a history or of a
//! volume made needless, and what is under long spans of zeros. The sweep shows only blocks of the
//! map that have changed, and a span of zeros is one entry, far from those that it supersedes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use upsweep::{Batch, Durability};

use crate::address::{Branch, CHUNK_LEVEL, Span, Stamp, chunk_of};
use crate::catalog::Catalog;
use crate::entry::{self, Entry};
use crate::error::Error;
use crate::rows::{Key, RowChange, WALK_AGAIN};
use crate::trim::{Found, Trimmed, Trimmer};
use crate::versions::Kept;
use crate::volumes::{CHUNKS_MAX, Inner, malformed};

/// Chunks that a step of a walk looks at.
pub const CHUNKS_PER_STEP: usize = 1000;
/// A step ends with the chunk with which it has looked at so many entries.
const ENTRIES_PER_STEP: usize = 1 << 15;

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

/// A walk through a branch.
struct Walk {
    branch: Branch,
    /// The next chunk to look at.
    next: u64,
    /// Nobody looks at the branch.
    is_abandoned: bool,
    /// How often it had been begun.
    begun: u64,
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
    /// The next walk that can go on, of one branch after another. One through a branch that is
    /// being sent waits, because what is held for that is not recorded.
    fn next_walk(&self) -> Result<Option<Walk>, Error> {
        let last = *self.last_walk.lock();
        let mut walks: Vec<Branch> = self.catalog.read().rows.walks_now().into_keys().collect();
        let behind = walks.partition_point(|branch| *branch <= last);
        walks.rotate_left(behind);
        for branch in walks {
            let catalog = self.catalog.read();
            let begun = catalog.walks_begun(branch);
            let Some(walk) = catalog.rows.walks.get(&branch) else { continue };
            let next = walk & !WALK_AGAIN;
            let is_abandoned = catalog.rows.kept(branch) == Kept::default();
            drop(catalog);
            if !is_abandoned || self.is_at_rest(branch)? {
                *self.last_walk.lock() = branch;
                return Ok(Some(Walk { branch, next, is_abandoned, begun }));
            }
        }
        Ok(None)
    }

    /// Whether nothing of a branch that has been abandoned is being read or written any more.
    fn is_at_rest(&self, branch: Branch) -> Result<bool, Error> {
        let first_look = self.stamps.first_look();
        let mut abandoned = self.abandoned.lock();
        let since = *abandoned.entry(branch).or_insert_with(|| self.between(|stamp| stamp));
        drop(abandoned);
        Ok(first_look >= since && self.is_stable(since)?)
    }

    /// Whether everything up to a moment is stable, if necessary after a flush.
    pub fn is_stable(&self, stamp: Stamp) -> Result<bool, Error> {
        let is_stable = || self.trimming.needs.lock().until >= stamp;
        if !is_stable() {
            self.flush()?;
        }
        Ok(is_stable())
    }

    /// Walks a part of the next branch that has something to trim; returns whether there is one.
    pub fn walk(&self) -> Result<bool, Error> {
        let Some(walk) = self.next_walk()? else { return Ok(false) };
        let Walk { branch, next, is_abandoned, .. } = walk;
        if next == 0 {
            // What was written last can be trimmed, too.
            self.flush()?;
        }
        // Not less than what has begun the walk.
        self.publish_needs(None);
        match self.trim_chunks(branch, next..=CHUNKS_MAX, is_abandoned)?.next {
            Some(chunk) => self.note_walk(&walk, chunk)?,
            None => self.end_walk(&walk)?,
        }
        Ok(true)
    }

    /// Trims the first of these chunks of a branch that have entries. Cost: memory for
    /// [`COMPARED_MAX`](crate::trim) entries, whatever a chunk has.
    pub fn trim_chunks(
        &self,
        branch: Branch,
        chunks: RangeInclusive<u64>,
        is_abandoned: bool,
    ) -> Result<Trimmed, Error> {
        let needs = Arc::clone(&self.trimming.needs.lock());
        // In this order: who begins to look later looks at what is later than these.
        let looks = if is_abandoned { Stamp::NOW } else { self.stamps.first_look() };
        let mut trimmer = Trimmer::whole(&needs, looks, &self.trimming.zeros);
        let [from, to] = entry::keys_of_chunks(branch, chunks);
        let (mut last, mut seen_chunks, mut seen, mut next) = (None, 0, 0, None);
        for record in self.map.scan(from..to) {
            let (key, value) = record?;
            let (_, entry) = entry::decode(&key, &value).map_err(malformed)?;
            let chunk = entry::chunk_of_span(entry.span);
            if last != chunk {
                if seen_chunks == CHUNKS_PER_STEP || seen >= ENTRIES_PER_STEP {
                    next = chunk;
                    break;
                }
                (last, seen_chunks) = (chunk, seen_chunks + 1);
            }
            seen += 1;
            trimmer.see(branch, entry);
            if seen.is_multiple_of(ENTRIES_PER_STEP) {
                self.trim(trimmer.take())?;
            }
        }
        let Found { trims, oldest, .. } = trimmer.end();
        self.trim(trims)?;
        Ok(Trimmed { next, oldest })
    }

    /// Records how far a walk has come, unless something has begun it anew.
    fn note_walk(&self, walk: &Walk, next: u64) -> Result<(), Error> {
        let mut catalog = self.catalog.write();
        if catalog.walks_begun(walk.branch) == walk.begun {
            catalog.note_walk(walk.branch, next)
        } else {
            Ok(())
        }
    }

    /// Records that a walk has come to the end, unless something has begun it anew.
    fn end_walk(&self, walk: &Walk) -> Result<(), Error> {
        let branch = walk.branch;
        let mut catalog = self.catalog.write();
        if catalog.walks_begun(branch) != walk.begun {
            return Ok(());
        }
        let is_again = catalog.rows.walks.get(&branch).is_some_and(|walk| walk & WALK_AGAIN != 0);
        if is_again || !walk.is_abandoned && catalog.rows.kept(branch) == Kept::default() {
            return catalog.walk_again(branch);
        }
        let mut batch = self.store.batch();
        if walk.is_abandoned {
            for (span, stamp) in self.trimming.zeros.write().forget(branch) {
                batch.delete(&self.map, &entry::key(branch, span, stamp));
            }
        }
        catalog.end_walk(branch, walk.is_abandoned, batch)?;
        drop(catalog);
        self.abandoned.lock().remove(&branch);
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
        if !self.is_stable(stamp)? {
            return Ok(Step::Later);
        }
        let last = chunk_of(span.blocks().end - 1);
        let Trimmed { next, oldest } = self.trim_chunks(branch, next..=last, false)?;
        let hides = hides || oldest < stamp;
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

impl Catalog {
    /// How often the walk of a branch has been begun, or begun anew, since the store was opened.
    pub fn walks_begun(&self, branch: Branch) -> u64 {
        self.walks_begun.get(&branch).copied().unwrap_or(0)
    }

    /// Begins to walk all branches, if they are not being walked.
    pub fn walk_all(&mut self) -> Result<(), Error> {
        let walks = &self.rows.walks;
        let others = self.rows.branches.keys().filter(|branch| !walks.contains_key(branch));
        let changes = others.map(|branch| Key::Walk(*branch).put(&0_u64)).collect();
        self.change_with(self.store.batch(), changes, Durability::Relaxed).map(drop)
    }

    /// Lets walks that are begun anew go on to the end first, and then begin again: or the end
    /// would never be walked where something begins them all the time.
    pub fn go_on_with_walks(&self, changes: &mut [RowChange]) {
        for change in changes {
            let Key::Walk(branch) = change.key else { continue };
            let known = self.rows.walks.get(&branch).copied().unwrap_or(0);
            if known > 0 && change.value == Key::Walk(branch).put(&0_u64).value {
                *change = Key::Walk(branch).put(&(known | WALK_AGAIN));
            }
        }
    }

    /// Records how far a walk has come.
    pub fn note_walk(&mut self, branch: Branch, next: u64) -> Result<(), Error> {
        let again = self.rows.walks.get(&branch).map_or(0, |walk| walk & WALK_AGAIN);
        let changes = vec![Key::Walk(branch).put(&(next | again))];
        self.change_with(self.store.batch(), changes, Durability::Relaxed).map(drop)
    }

    /// A walk that has come to the end begins again.
    pub fn walk_again(&mut self, branch: Branch) -> Result<(), Error> {
        self.rows.walks.insert(branch, 0);
        self.note_walk(branch, 0)
    }

    /// A walk has come to the end. A branch that is abandoned is gone, together with what is in a
    /// batch, and its parent is walked: it may have been needed for this branch only.
    pub fn end_walk(
        &mut self,
        branch: Branch,
        is_abandoned: bool,
        batch: Batch,
    ) -> Result<(), Error> {
        let mut changes = vec![Key::Walk(branch).remove()];
        if is_abandoned {
            changes.push(Key::Branch(branch).remove());
            let parent = self.rows.branches.get(&branch).and_then(|row| row.parent);
            changes.extend(parent.map(|(parent, _)| Key::Walk(Branch(parent)).put(&0_u64)));
        }
        self.change_with(batch, changes, Durability::Wait).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use upsweep::Store;

    use super::*;
    use crate::address::BLOCK_BYTES;
    use crate::catalog::Past;
    use crate::volume::Acknowledge;
    use crate::volumes::Volumes;

    /// A store with a volume of which a snapshot has just been deleted, and the walk for that.
    fn begun() -> (Store, Volumes, Walk) {
        let store = Store::in_memory().expect("made");
        let volumes = Volumes::open_with(&store, 32).expect("opens");
        let disk = volumes.create("disk", 32 * BLOCK_BYTES).expect("made");
        let write = |blocks: u64| {
            let data = vec![blocks as u8; (blocks * BLOCK_BYTES) as usize];
            disk.write(0, &data, Acknowledge::Durable).expect("written");
        };
        write(32);
        volumes.snapshot(&["disk"], "before").expect("taken");
        write(8);
        volumes.delete_snapshot("disk", "before").expect("deleted");
        let walk = volumes.inner.next_walk().expect("no fault").expect("there is one");
        assert_eq!((walk.next, walk.is_abandoned), (0, false));
        (store, volumes, walk)
    }

    fn has_entries(store: &Store, volumes: &Volumes) -> bool {
        while volumes.work().expect("no fault") {}
        store.existing_table("volumes/map").expect("there").iter().next().is_some()
    }

    #[test]
    fn the_end_of_a_walk_does_not_count_if_it_was_begun_anew() {
        let (store, volumes, walk) = begun();
        volumes.delete("disk").expect("deleted");
        volumes.inner.end_walk(&walk).expect("no fault");
        assert!(!has_entries(&store, &volumes), "of a volume that is gone");
    }

    #[test]
    fn walks_of_several_branches_take_turns_and_do_not_disturb_each_other() {
        let (store, volumes, walk) = begun();
        volumes.create("other", BLOCK_BYTES).expect("made");
        volumes.delete("other").expect("deleted");
        let next = volumes.inner.next_walk().expect("no fault").expect("there are two");
        assert!(next.is_abandoned && next.branch != walk.branch);
        let again = volumes.inner.next_walk().expect("no fault").expect("there are two");
        assert_eq!(again.branch, walk.branch);
        volumes.inner.note_walk(&walk, 7).expect("no fault");
        assert_eq!(volumes.inner.catalog.read().rows.walks[&walk.branch], 7);
        assert!(has_entries(&store, &volumes));
    }

    #[test]
    fn the_progress_of_a_walk_does_not_count_if_it_was_begun_anew() {
        let (store, volumes, walk) = begun();
        volumes.delete("disk").expect("deleted");
        volumes.inner.note_walk(&walk, CHUNKS_MAX).expect("no fault");
        assert!(!has_entries(&store, &volumes), "of a volume that is gone");
    }

    #[test]
    fn a_walk_that_is_begun_anew_all_the_time_comes_to_the_end_and_begins_again() {
        let (store, volumes, walk) = begun();
        let row = || volumes.inner.catalog.read().rows.walks.get(&walk.branch).copied();
        let next_walk = || volumes.inner.next_walk().expect("no fault").expect("there is one");
        volumes.inner.note_walk(&walk, 1).expect("no fault");
        volumes.delete("disk").expect("deleted");
        assert_eq!(row(), Some(1 | WALK_AGAIN));
        volumes.inner.note_walk(&next_walk(), 2).expect("no fault");
        assert_eq!((row(), next_walk().next), (Some(2 | WALK_AGAIN), 2));
        volumes.inner.end_walk(&next_walk()).expect("no fault");
        assert_eq!((row(), next_walk().next), (Some(0), 0));
        assert!(!has_entries(&store, &volumes), "of a volume that is gone");
        assert_eq!(row(), None);
    }

    #[test]
    fn what_is_superseded_after_somebody_began_to_look_stays() {
        let (_store, volumes, walk) = begun();
        let disk = volumes.volume("disk").expect("there");
        let write = |content: u8| {
            let data = [content; BLOCK_BYTES as usize];
            disk.write(0, &data, Acknowledge::Durable).expect("written");
        };
        volumes.snapshot(&["disk"], "since").expect("taken");
        write(1);
        let changes = volumes.changes("disk", Past::Snapshot("since"), None).expect("kept");
        write(2);
        volumes.inner.trim_chunks(walk.branch, 0..=CHUNKS_MAX, false).expect("no fault");
        let changed: u64 =
            changes.map(|range| range.expect("kept")).map(|of| of.end - of.start).sum();
        assert_eq!(changed, BLOCK_BYTES);
    }

    #[test]
    fn a_walk_that_nothing_has_begun_anew_is_over() {
        let (store, volumes, walk) = begun();
        volumes.inner.end_walk(&walk).expect("no fault");
        assert!(volumes.inner.catalog.read().rows.walks.is_empty());
        assert!(has_entries(&store, &volumes));
    }
}
