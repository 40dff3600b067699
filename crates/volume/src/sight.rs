//! What somebody sees of a range of blocks, through all branches that a look goes through.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use upsweep::Scan;

use crate::address::{Branch, CHUNK_BLOCKS, Span, Stamp, chunk_of};
use crate::entry::{self, Entry};
use crate::error::Error;
use crate::versions::{Seen, Versions};
use crate::volumes::{Inner, malformed};

/// Chunks with entries that are looked at together in walks through a volume.
const CHUNKS_TOGETHER: usize = 1000;

/// What a block is, and in which branch it was found: 0 is that of the volume itself, 1 its
/// parent, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub seen: Seen,
    pub depth: u16,
}

const ABSENT: Found = Found { seen: Seen::Absent, depth: 0 };

/// What blocks are; those of chunks that are missing are absent in all branches.
pub struct Sight {
    chunks: BTreeMap<u64, [Found; CHUNK_BLOCKS as usize]>,
}

impl Sight {
    /// What a block is.
    pub fn of(&self, block: u64) -> Found {
        let found = self.chunks.get(&chunk_of(block));
        found.map_or(ABSENT, |blocks| blocks[(block % CHUNK_BLOCKS) as usize])
    }

    /// Chunks of which some blocks may not be absent, in order.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().copied()
    }

    /// Whether none of these blocks is absent.
    fn is_complete(&self, mut blocks: Range<u64>) -> bool {
        blocks.all(|block| self.of(block).seen != Seen::Absent)
    }
}

/// The entries of one chunk of a branch after another, long spans excepted.
pub struct Chunks {
    scan: Scan,
    /// Only the last entry of each span at or before this moment.
    seen_at: Option<Stamp>,
    /// The span of which that has been found.
    seen: Option<Span>,
    next: Option<(u64, Entry)>,
}

impl Chunks {
    /// The next entry. Whatever the number of those that are not wanted, they are passed over.
    fn entry(&mut self) -> Result<Option<Entry>, Error> {
        while let Some(record) = self.scan.next() {
            let (key, value) = record?;
            let (branch, entry) = entry::decode(&key, &value).map_err(malformed)?;
            match self.seen_at {
                Some(_) if self.seen == Some(entry.span) => {
                    self.scan.skip_to(&entry::end_of(branch, entry.span));
                }
                Some(at) if entry.stamp > at => {
                    self.scan.skip_to(&entry::key(branch, entry.span, at));
                }
                _ => {
                    self.seen = Some(entry.span);
                    return Ok(Some(entry));
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Chunks {
    type Item = Result<(u64, Vec<Entry>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunk: Option<(u64, Vec<Entry>)> =
            self.next.take().map(|(chunk, entry)| (chunk, vec![entry]));
        while let Some(entry) = self.entry().transpose() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let Some(of) = entry::chunk_of_span(entry.span) else { continue };
            match &mut chunk {
                Some((chunk, entries)) if *chunk == of => entries.push(entry),
                Some(_) => {
                    self.next = Some((of, entry));
                    break;
                }
                None => chunk = Some((of, vec![entry])),
            }
        }
        chunk.map(Ok)
    }
}

impl Inner {
    /// The entries of a branch about these chunks, long spans excepted.
    pub fn chunks(&self, branch: Branch, chunks: RangeInclusive<u64>) -> Chunks {
        let [from, to] = entry::keys_of_chunks(branch, chunks);
        Chunks { scan: self.map.scan(from..to), seen_at: None, seen: None, next: None }
    }

    /// As [`Inner::chunks`], those that may be seen at a moment: of each span the last one at or
    /// before it. Cost: a look-up for the others of a span, however many these are.
    fn chunks_at(&self, branch: Branch, chunks: RangeInclusive<u64>, at: Stamp) -> Chunks {
        Chunks { seen_at: Some(at), ..self.chunks(branch, chunks) }
    }

    /// What blocks are that are seen through a line of branches. It reads parents only as far as
    /// blocks are absent before.
    pub fn see(&self, line: &[(Branch, Stamp)], blocks: Range<u64>) -> Result<Sight, Error> {
        let mut sight = Sight { chunks: BTreeMap::new() };
        if blocks.is_empty() {
            return Ok(sight);
        }
        let range = chunk_of(blocks.start)..=chunk_of(blocks.end - 1);
        for (depth, (branch, at)) in line.iter().enumerate() {
            for chunk in self.chunks_at(*branch, range.clone(), *at) {
                let (chunk, entries) = chunk?;
                let known = sight.chunks.entry(chunk).or_insert([ABSENT; CHUNK_BLOCKS as usize]);
                let hidden = self.hidden(&line[..depth], chunk);
                let long_zeros = self.trimming.zeros.read().over(*branch, chunk);
                let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
                for (known, seen) in known.iter_mut().zip(versions.at(*at)) {
                    if known.seen == Seen::Absent {
                        *known = hidden.unwrap_or(Found { seen, depth: depth as u16 });
                    }
                }
            }
            if sight.is_complete(blocks.clone()) {
                break;
            }
        }
        Ok(sight)
    }

    /// What long spans of zeros in these branches make of the blocks of a chunk that are absent in
    /// them.
    fn hidden(&self, line: &[(Branch, Stamp)], chunk: u64) -> Option<Found> {
        let zeros = self.trimming.zeros.read();
        let is_hidden = |(branch, at): &(Branch, Stamp)| {
            zeros.over(*branch, chunk).iter().any(|stamp| stamp <= at)
        };
        let depth = line.iter().position(is_hidden)?;
        Some(Found { seen: Seen::Zero, depth: depth as u16 })
    }

    /// The end of the part of `chunks` in which these branches have entries of a bounded number of
    /// chunks, from its first one on.
    pub fn part_end(
        &self,
        branches: impl Iterator<Item = Branch>,
        chunks: RangeInclusive<u64>,
    ) -> Result<u64, Error> {
        let mut end = *chunks.end();
        for branch in branches {
            // As it is now: that has all chunks, and few entries of each.
            let of_branch = self.chunks_at(branch, *chunks.start()..=end, Stamp::NOW);
            if let Some(last) = of_branch.take(CHUNKS_TOGETHER).nth(CHUNKS_TOGETHER - 1) {
                end = last?.0;
            }
        }
        Ok(end)
    }
}
