//! What somebody sees of a range of blocks, through all branches that a look goes through.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use upsweep::Scan;

use crate::address::{Branch, CHUNK_BLOCKS, CHUNK_LEVEL, Span, Stamp, chunk_of};
use crate::entry::{self, Entry, KEY_BYTES};
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

/// What blocks of a range are; those of chunks that are missing are absent in all branches.
pub struct Sight {
    chunks: BTreeMap<u64, [Found; CHUNK_BLOCKS as usize]>,
}

impl Sight {
    /// What a block of the range is.
    pub fn of(&self, block: u64) -> Found {
        let found = self.chunks.get(&chunk_of(block));
        found.map_or(ABSENT, |blocks| blocks[(block % CHUNK_BLOCKS) as usize])
    }

    /// Chunks of which some blocks may not be absent, in order.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().copied()
    }

    /// Whether none of these blocks is absent.
    fn is_complete(&self, blocks: &Range<u64>) -> bool {
        blocks.clone().all(|block| self.of(block).seen != Seen::Absent)
    }
}

/// The entries of one chunk of a branch after another, long spans excepted.
pub struct Chunks {
    scan: Scan,
    /// Only entries that cover some of these blocks, and of each span only the last one at or
    /// before this moment.
    wanted: Option<(Range<u64>, Stamp)>,
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
            let Some((blocks, at)) = &self.wanted else { return Ok(Some(entry)) };
            let is_other = entry.span.level == 0 && !blocks.contains(&entry.span.index);
            if is_other || self.seen == Some(entry.span) {
                self.scan.skip_to(&behind(branch, entry.span, blocks, *at));
            } else if entry.stamp > *at {
                self.scan.skip_to(&entry::key(branch, entry.span, *at));
            } else {
                self.seen = Some(entry.span);
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// The first key behind the entries of a span at which there may be one that is seen of these
/// blocks at a moment.
fn behind(branch: Branch, span: Span, blocks: &Range<u64>, at: Stamp) -> Vec<u8> {
    let (next, chunk) = (Span::block(span.blocks().end), span.at(CHUNK_LEVEL));
    let is_next_wanted = blocks.contains(&next.index) && next.at(CHUNK_LEVEL) == chunk;
    match span.level {
        0 if is_next_wanted => entry::key(branch, next, at).to_vec(),
        0 => entry::key(branch, chunk, at).to_vec(),
        _ => entry::end_of(branch, span),
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

/// The keys between which the entries of a branch are that may be seen of some blocks, of which
/// there is at least one, at a moment.
fn keys_at(branch: Branch, blocks: &Range<u64>, at: Stamp) -> Range<[u8; KEY_BYTES]> {
    let chunks = chunk_of(blocks.start)..=chunk_of(blocks.end - 1);
    let [_, end] = entry::keys_of_chunks(branch, chunks);
    entry::key(branch, Span::block(blocks.start), at)..end
}

impl Inner {
    /// The entries of a branch about these chunks, long spans excepted.
    pub fn chunks(&self, branch: Branch, chunks: RangeInclusive<u64>) -> Chunks {
        let [from, to] = entry::keys_of_chunks(branch, chunks);
        Chunks { scan: self.map.scan(from..to), wanted: None, seen: None, next: None }
    }

    /// As [`Inner::chunks`], those that may be seen of some blocks at a moment: of each span the
    /// last one at or before it. Cost: a look-up for the others of a span, however many these are,
    /// and one for the other blocks of a chunk.
    fn chunks_at(&self, branch: Branch, blocks: Range<u64>, at: Stamp) -> Chunks {
        let scan = self.map.scan(keys_at(branch, &blocks, at));
        Chunks { scan, wanted: Some((blocks, at)), seen: None, next: None }
    }

    /// As [`Inner::chunks_at`], for several ranges, which are looked up at the same time.
    fn chunks_of_all(&self, branch: Branch, all: &[Range<u64>], at: Stamp) -> Vec<Chunks> {
        let scans = self.map.scans(all.iter().map(|blocks| keys_at(branch, blocks, at)));
        let of = |(scan, blocks): (_, &Range<u64>)| {
            let wanted = Some((blocks.clone(), at));
            Chunks { scan, wanted, seen: None, next: None }
        };
        scans.into_iter().zip(all).map(of).collect()
    }

    /// What blocks are that are seen through a line of branches. It reads parents only as far as
    /// blocks are absent before.
    pub fn see(&self, line: &[(Branch, Stamp)], blocks: Range<u64>) -> Result<Sight, Error> {
        let mut all = self.see_all(line, std::slice::from_ref(&blocks))?;
        Ok(all.pop().expect("there is one for each range"))
    }

    /// As [`Inner::see`], for several ranges, which are looked up at the same time.
    pub fn see_all(
        &self,
        line: &[(Branch, Stamp)],
        all: &[Range<u64>],
    ) -> Result<Vec<Sight>, Error> {
        let mut sights: Vec<Sight> =
            all.iter().map(|_| Sight { chunks: BTreeMap::new() }).collect();
        for depth in 0..line.len() {
            let is_open = |(sight, blocks): &(&mut Sight, &Range<u64>)| !sight.is_complete(blocks);
            let open: Vec<_> = sights.iter_mut().zip(all).filter(is_open).collect();
            let ranges: Vec<Range<u64>> =
                open.iter().map(|(_, blocks)| (*blocks).clone()).collect();
            let (branch, at) = line[depth];
            let looked_up = self.chunks_of_all(branch, &ranges, at);
            for ((sight, _), chunks) in open.into_iter().zip(looked_up) {
                self.look_at(line, depth, chunks, sight)?;
            }
        }
        Ok(sights)
    }

    /// Takes in what blocks are in one of the branches of a line, as far as they are absent in
    /// those before it.
    fn look_at(
        &self,
        line: &[(Branch, Stamp)],
        depth: usize,
        chunks: Chunks,
        sight: &mut Sight,
    ) -> Result<(), Error> {
        let (branch, at) = line[depth];
        for chunk in chunks {
            let (chunk, entries) = chunk?;
            let known = sight.chunks.entry(chunk).or_insert([ABSENT; CHUNK_BLOCKS as usize]);
            let hidden = self.hidden(&line[..depth], chunk);
            let long_zeros = self.trimming.zeros.read().over(branch, chunk);
            let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
            for (known, seen) in known.iter_mut().zip(versions.at(at)) {
                if known.seen == Seen::Absent {
                    *known = hidden.unwrap_or(Found { seen, depth: depth as u16 });
                }
            }
        }
        Ok(())
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
            let blocks = chunks.start() * CHUNK_BLOCKS..(end + 1) * CHUNK_BLOCKS;
            let of_branch = self.chunks_at(branch, blocks, Stamp::NOW);
            if let Some(last) = of_branch.take(CHUNKS_TOGETHER).nth(CHUNKS_TOGETHER - 1) {
                end = last?.0;
            }
        }
        Ok(end)
    }
}
