//! What has changed of a volume between two moments.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::address::{BLOCK_BYTES, Branch, CHUNK_BLOCKS, Stamp};
use crate::catalog::{Past, blocks_of};
use crate::error::Error;
use crate::looks::Look;
use crate::stamps::Looking;
use crate::versions::Seen;
use crate::volumes::{Inner, Volumes};

/// Ranges of a volume that have changed, in order, in bytes. A block that was written again with
/// the same content has changed, too. See [`Volumes::changes`].
pub struct Changes<'a> {
    inner: &'a Arc<Inner>,
    /// Keeps what is compared of the present; `None` if all is kept otherwise.
    looking: Option<Looking<'a>>,
    volume: String,
    /// What is compared; each must be kept until the end.
    looks: Vec<Look>,
    lines: [Vec<(Branch, Stamp)>; 2],
    /// The larger size of both, in bytes.
    bytes: u64,
    /// What is yet to be compared.
    blocks: Range<u64>,
    found: VecDeque<Range<u64>>,
}

impl Volumes {
    /// What has changed of a volume since a moment in the past: ranges in bytes, up to the larger
    /// size of both moments; what only one of them has is compared with zeros. `until` is the
    /// present, if it is `None`. Cost: scans of the map of the volume at both moments, and of what
    /// it was cloned from. As long as it is read, nothing is trimmed that has been superseded
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`], [`Error::NoMark`], [`Error::NoMoment`] or
    /// [`Error::NoHistory`] if there is no such past. The iterator may fail with
    /// [`Error::Forgotten`] or [`Error::Store`].
    pub fn changes(
        &self,
        volume: &str,
        since: Past<'_>,
        until: Option<Past<'_>>,
    ) -> Result<Changes<'_>, Error> {
        let inner = &self.inner;
        let looking = inner.stamps.look();
        let [from, to] = inner.between(|now| {
            let catalog = inner.catalog.read();
            let from = catalog.past(volume, since, now)?;
            let to = match until {
                Some(past) => catalog.past(volume, past, now)?,
                None => catalog.present(volume, now)?,
            };
            Ok::<_, Error>([from, to])
        })?;
        let blocks = blocks_of(0, from.bytes.max(to.bytes));
        Ok(Changes::new(inner, Some(looking), volume, Some(from), to, blocks))
    }
}

impl<'a> Changes<'a> {
    /// What has changed of these blocks between two moments; without `from` since all was zero.
    pub(crate) fn new(
        inner: &'a Arc<Inner>,
        looking: Option<Looking<'a>>,
        volume: &str,
        from: Option<Look>,
        to: Look,
        blocks: Range<u64>,
    ) -> Self {
        let lines = [from.map(|from| inner.line(from)).unwrap_or_default(), inner.line(to)];
        let looks: Vec<Look> = from.into_iter().chain([to]).collect();
        let bytes = looks.iter().map(|look| look.bytes).fold(0, u64::max);
        let (volume, found) = (volume.to_owned(), VecDeque::new());
        Self { inner, looking, volume, looks, lines, bytes, blocks, found }
    }

    /// The second moment.
    pub(crate) fn until(&self) -> Stamp {
        self.looks.last().map_or(Stamp::NOW, |look| look.at)
    }

    /// Checks that what is compared has not been trimmed.
    fn check(&self) -> Result<(), Error> {
        let catalog = self.inner.catalog.read();
        let is_kept = |look: &Look| {
            let mut kept = catalog.rows.kept(look.branch);
            if let Some(looking) = &self.looking {
                kept = kept.and_from(looking.from());
            }
            kept.is_any_in(look.at, Some(Stamp(look.at.0 + 1)))
        };
        let are_kept = self.looks.iter().all(is_kept);
        if are_kept { Ok(()) } else { Err(Error::Forgotten(self.volume.clone())) }
    }

    /// Looks at the next part of the volume.
    fn step(&mut self) -> Result<(), Error> {
        let chunks = self.blocks.start / CHUNK_BLOCKS..=(self.blocks.end - 1) / CHUNK_BLOCKS;
        let branches = self.lines.iter().flatten().map(|(branch, _)| *branch);
        let end = self.inner.part_end(branches, chunks)?;
        let part = self.blocks.start..((end + 1) * CHUNK_BLOCKS).min(self.blocks.end);
        let [from, to] = &self.lines;
        let [from, to] = [self.inner.see(from, part.clone())?, self.inner.see(to, part.clone())?];
        self.check()?;
        let mut chunks: Vec<u64> = from.chunks().chain(to.chunks()).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let blocks = chunks.into_iter().flat_map(|of| of * CHUNK_BLOCKS..(of + 1) * CHUNK_BLOCKS);
        let content = |seen| if seen == Seen::Absent { Seen::Zero } else { seen };
        for block in blocks.filter(|block| part.contains(block)) {
            if content(from.of(block).seen) == content(to.of(block).seen) {
                continue;
            }
            match self.found.back_mut() {
                Some(last) if last.end == block => last.end = block + 1,
                _ => self.found.push_back(block..block + 1),
            }
        }
        self.blocks.start = part.end;
        Ok(())
    }
}

impl Iterator for Changes<'_> {
    type Item = Result<Range<u64>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        // The last range may go on in the next part.
        while self.found.len() < 2 && !self.blocks.is_empty() {
            if let Err(error) = self.step() {
                self.blocks.start = self.blocks.end;
                return Some(Err(error));
            }
        }
        let Range { start, end } = self.found.pop_front()?;
        Some(Ok(start * BLOCK_BYTES..(end * BLOCK_BYTES).min(self.bytes)))
    }
}
