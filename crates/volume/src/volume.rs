//! One volume: reads and writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use upsweep::Durability;
use upsweep::layers::device::{Buffer, Class, WriteMode};

use crate::address::{
    BLOCK_BYTES, Branch, CHUNK_BLOCKS, CHUNK_LEVEL, LEVEL_MAX, Physical, Span, Stamp, chunk_of,
    spans,
};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::versions::{Seen, Versions};
use crate::volumes::{Inner, malformed};

const BLOCK: usize = BLOCK_BYTES as usize;
/// How often a read looks up again what has been trimmed in between.
const READ_TRIES: usize = 100;
/// Blocks whose entries are declared in one record.
const RECORD_BLOCKS: u64 = 16 * CHUNK_BLOCKS;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// When it can be read. It is durable after a later [`Volume::flush`]; a power cut before may
    /// lose it, block by block.
    #[default]
    Written,
    /// When it is on stable media.
    Durable,
}

/// A volume, which several threads may use at a time. Requests that overlap in time and place have
/// their effects in any order, block by block.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    pub(crate) number: u32,
}

/// What a volume looks at.
struct Shape {
    branch: Branch,
    bytes: u64,
    at: Stamp,
}

/// A volume that is written to, and its branch when that began.
#[derive(Clone, Copy)]
struct Target {
    volume: u32,
    branch: Branch,
}

/// Blocks that a request covers in whole or in part.
fn blocks_of(offset: u64, bytes: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + bytes).div_ceil(BLOCK_BYTES)
}

impl Volume {
    fn shape(&self) -> Result<Shape, Error> {
        let catalog = self.inner.catalog.read();
        let gone = || Error::NoVolume(format!("number {}", self.number));
        let row = catalog.volumes.get(&self.number).ok_or_else(gone)?;
        let at = row.fixed_at.map_or(Stamp::NOW, Stamp);
        Ok(Shape { branch: Branch(row.branch), bytes: row.bytes, at })
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<Shape, Error> {
        let shape = self.shape()?;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= shape.bytes);
        let volume_bytes = shape.bytes;
        if is_inside { Ok(shape) } else { Err(Error::OutOfRange { offset, bytes, volume_bytes }) }
    }

    /// Checks that a range can be written.
    fn check_write(&self, offset: u64, bytes: u64) -> Result<Target, Error> {
        let shape = self.check(offset, bytes)?;
        match shape.at == Stamp::NOW {
            true => Ok(Target { volume: self.number, branch: shape.branch }),
            false => Err(Error::ReadOnly(format!("number {}", self.number))),
        }
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// [`Error::NoVolume`] if it has been deleted.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.shape()?.bytes)
    }

    /// Reads `into.len()` bytes at `offset`. Cost: a look-up in the map for neighbouring blocks,
    /// and a read of the devices for what was written together.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Damaged`] if a checksum does not match; [`Error::NoVolume`];
    /// [`Error::Store`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let shape = self.check(offset, into.len() as u64)?;
        let blocks = blocks_of(offset, into.len() as u64);
        if offset.is_multiple_of(BLOCK_BYTES) && (into.len() as u64).is_multiple_of(BLOCK_BYTES) {
            return self.inner.read_blocks(shape.branch, shape.at, blocks, into);
        }
        let mut whole = vec![0; ((blocks.end - blocks.start) * BLOCK_BYTES) as usize];
        let from = (offset - blocks.start * BLOCK_BYTES) as usize;
        self.inner.read_blocks(shape.branch, shape.at, blocks, &mut whole)?;
        into.copy_from_slice(&whole[from..from + into.len()]);
        Ok(())
    }

    /// Writes `data` at `offset`. Blocks that are covered in part are read first. Cost: the payload
    /// once, and a log record with 31 bytes for each block, or 93 for a chunk of 64 KiB.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::ReadOnly`]; [`Error::NoVolume`]; [`Error::Store`], after
    /// which the range has its old or its new content, block by block.
    pub fn write(&self, offset: u64, data: &[u8], acknowledge: Acknowledge) -> Result<(), Error> {
        let target = self.check_write(offset, data.len() as u64)?;
        let blocks = blocks_of(offset, data.len() as u64);
        let whole_bytes = (blocks.end - blocks.start) * BLOCK_BYTES;
        if offset.is_multiple_of(BLOCK_BYTES) && whole_bytes == data.len() as u64 {
            return self.inner.write_blocks(target, blocks, data, acknowledge);
        }
        let locks = self.inner.partial.lock();
        let mut whole = vec![0; whole_bytes as usize];
        let from = (offset - blocks.start * BLOCK_BYTES) as usize;
        self.inner.read_blocks(target.branch, Stamp::NOW, blocks.clone(), &mut whole)?;
        whole[from..from + data.len()].copy_from_slice(data);
        let written = self.inner.write_blocks(target, blocks, &whole, acknowledge);
        drop(locks);
        written
    }

    /// Makes a range zero. Cost: a log record; blocks that are covered in part are written.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn zero(&self, offset: u64, bytes: u64, acknowledge: Acknowledge) -> Result<(), Error> {
        let target = self.check_write(offset, bytes)?;
        let (end, first) = (offset + bytes, offset.next_multiple_of(BLOCK_BYTES));
        let last = end / BLOCK_BYTES * BLOCK_BYTES;
        if first >= last {
            return self.write(offset, &vec![0; bytes as usize], acknowledge);
        }
        if offset < first {
            self.write(offset, &vec![0; (first - offset) as usize], acknowledge)?;
        }
        if last < end {
            self.write(last, &vec![0; (end - last) as usize], acknowledge)?;
        }
        self.inner.zero_blocks(target, first / BLOCK_BYTES..last / BLOCK_BYTES, acknowledge)
    }

    /// Makes everything durable that was acknowledged before the call, of all volumes of the store.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }
}

impl Acknowledge {
    fn durability(self) -> Durability {
        match self {
            Self::Written => Durability::Relaxed,
            Self::Durable => Durability::Ticket,
        }
    }
}

impl Inner {
    /// Lets a change of a volume declare its records, unless the volume has been deleted, or looks
    /// at another branch, since the change began.
    fn enter(&self, target: Target) -> Result<RwLockReadGuard<'_, ()>, Error> {
        let gate = self.stamps.enter();
        let catalog = self.catalog.read();
        let now = catalog.volumes.get(&target.volume);
        match now.is_some_and(|row| row.branch == target.branch.0) {
            true => Ok(gate),
            false => Err(Error::NoVolume(format!("number {}", target.volume))),
        }
    }

    fn write_blocks(
        &self,
        target: Target,
        blocks: Range<u64>,
        data: &[u8],
        acknowledge: Acknowledge,
    ) -> Result<(), Error> {
        let parts = data.chunks((RECORD_BLOCKS * BLOCK_BYTES) as usize);
        for (first, data) in blocks.step_by(RECORD_BLOCKS as usize).zip(parts) {
            let blocks = first..first + data.len() as u64 / BLOCK_BYTES;
            self.write_record(target, blocks, data, acknowledge)?;
        }
        Ok(())
    }

    /// Writes payload and record at the same time.
    fn write_record(
        &self,
        target: Target,
        blocks: Range<u64>,
        data: &[u8],
        acknowledge: Acknowledge,
    ) -> Result<(), Error> {
        let start = blocks.start;
        let spans: Vec<Span> = spans(blocks, CHUNK_LEVEL).collect();
        let lengths: Vec<u16> =
            spans.iter().map(|span| (span.blocks().end - span.blocks().start) as u16).collect();
        let gate = self.enter(target)?;
        let change = self.stamps.begin(self.now_us(), self.last_seq());
        let pieces = self.payload.allocate(&change, &lengths)?;
        let checksums = |span: &Span| {
            let range = span.blocks();
            let of = |block: u64| ((block - start) * BLOCK_BYTES) as usize;
            let data = &data[of(range.start)..of(range.end)];
            data.chunks(BLOCK_BYTES as usize).map(crc32c::crc32c).collect()
        };
        let entries: Vec<Entry> = spans
            .iter()
            .zip(&pieces)
            .map(|(span, piece)| Entry {
                span: *span,
                stamp: change.stamp,
                content: Content::Payload { first: piece.first, checksums: checksums(span) },
            })
            .collect();
        let declared = self.declare(target.branch, &entries, acknowledge.durability());
        drop(gate);
        let mode = match acknowledge {
            Acknowledge::Written => WriteMode::Cached,
            Acknowledge::Durable => WriteMode::Stable,
        };
        let written = self.payload.write(&pieces, data, mode);
        let ticket = declared?;
        if let Err(error) = written {
            // If this fails too, the store is closed, and the next open does it.
            self.withdraw(target.branch, &entries)?;
            return Err(error);
        }
        if acknowledge == Acknowledge::Durable {
            ticket.wait()?;
        }
        Ok(())
    }

    /// Removes entries whose payload could not be written.
    fn withdraw(&self, branch: Branch, entries: &[Entry]) -> Result<(), Error> {
        let mut batch = self.store.batch();
        for Entry { span, stamp, .. } in entries {
            batch.delete(&self.map, &entry::key(branch, *span, *stamp));
        }
        batch.commit(Durability::Wait)?;
        Ok(())
    }

    fn zero_blocks(
        &self,
        target: Target,
        blocks: Range<u64>,
        acknowledge: Acknowledge,
    ) -> Result<(), Error> {
        let gate = self.enter(target)?;
        let change = self.stamps.begin(self.now_us(), self.last_seq());
        let entry = |span| Entry { span, stamp: change.stamp, content: Content::Zero };
        let entries: Vec<Entry> = spans(blocks, LEVEL_MAX).map(entry).collect();
        let ticket = self.declare(target.branch, &entries, acknowledge.durability())?;
        let mut zeros = self.trimming.zeros.write();
        for entry in entries.iter().filter(|entry| entry.span.level > CHUNK_LEVEL) {
            zeros.add(target.branch, entry.span, entry.stamp);
        }
        drop((zeros, gate));
        if acknowledge == Acknowledge::Durable {
            ticket.wait()?;
        }
        Ok(())
    }

    /// What blocks of a branch are at a moment.
    fn look_up(&self, branch: Branch, at: Stamp, blocks: Range<u64>) -> Result<Vec<Seen>, Error> {
        let mut seen = vec![Seen::Absent; (blocks.end - blocks.start) as usize];
        let line = self.catalog.read().line(branch, at);
        for (branch, at) in line {
            if !seen.contains(&Seen::Absent) {
                break;
            }
            let chunks = chunk_of(blocks.start)..=chunk_of(blocks.end - 1);
            let mut entries = self.entries(branch, chunks.clone())?;
            for chunk in chunks {
                let entries = entries.remove(&chunk).unwrap_or_default();
                let long_zeros = self.trimming.zeros.read().over(branch, chunk);
                let versions = Versions { chunk, entries: &entries, long_zeros: &long_zeros };
                let first = chunk * CHUNK_BLOCKS;
                for (block, found) in (first..).zip(versions.at(at)) {
                    if blocks.contains(&block) {
                        let known = &mut seen[(block - blocks.start) as usize];
                        *known = if *known == Seen::Absent { found } else { *known };
                    }
                }
            }
        }
        Ok(seen)
    }

    /// The entries of chunks of a branch, long spans excepted.
    fn entries(
        &self,
        branch: Branch,
        chunks: std::ops::RangeInclusive<u64>,
    ) -> Result<BTreeMap<u64, Vec<Entry>>, Error> {
        let [from, to] = entry::keys_of_chunks(branch, chunks);
        let mut entries: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        for record in self.map.scan(from..to) {
            let (key, value) = record?;
            let (_, entry) = entry::decode(&key, &value).map_err(malformed)?;
            if let Some(chunk) = entry::chunk_of_span(entry.span) {
                entries.entry(chunk).or_default().push(entry);
            }
        }
        Ok(entries)
    }

    fn read_blocks(
        &self,
        branch: Branch,
        at: Stamp,
        blocks: Range<u64>,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if blocks.is_empty() {
            return Ok(());
        }
        // What was looked up may be superseded and trimmed before it is read.
        for _ in 0..READ_TRIES {
            let seen = self.look_up(branch, at, blocks.clone())?;
            if self.read_seen(branch, blocks.start, &seen, into)? {
                return Ok(());
            }
        }
        let reason = "its payload is missing".to_owned();
        Err(Error::Damaged { branch: branch.0, block: blocks.start, reason })
    }

    /// Reads blocks from `first` on that have been looked up; returns whether all payload is still
    /// there.
    fn read_seen(
        &self,
        branch: Branch,
        first: u64,
        seen: &[Seen],
        into: &mut [u8],
    ) -> Result<bool, Error> {
        let mut next = 0;
        while next < seen.len() {
            let Seen::Slot(slot, _) = seen[next] else {
                into[next * BLOCK..][..BLOCK].fill(0);
                next += 1;
                continue;
            };
            let checksums: Vec<u32> = seen[next..]
                .iter()
                .enumerate()
                .map_while(|(nth, seen)| match seen {
                    Seen::Slot(found, checksum) if *found == slot.plus(nth as u16) => {
                        Some(*checksum)
                    }
                    _ => None,
                })
                .collect();
            let bytes = next * BLOCK..(next + checksums.len()) * BLOCK;
            if !self.read_slots(branch, first + next as u64, slot, &checksums, &mut into[bytes])? {
                return Ok(false);
            }
            next += checksums.len();
        }
        Ok(true)
    }

    /// Reads consecutive slots, of blocks from `block` on; returns false if some are gone.
    fn read_slots(
        &self,
        branch: Branch,
        mut block: u64,
        mut first: Physical,
        mut checksums: &[u32],
        mut into: &mut [u8],
    ) -> Result<bool, Error> {
        while !checksums.is_empty() {
            let Some(place) = self.payload.find(first, checksums.len() as u16) else {
                return Ok(false);
            };
            let slots = usize::from(place.slots);
            let (now, later) = into.split_at_mut(slots * BLOCK);
            let buffer = Buffer::recycled(now.len());
            let read = place.segment.read(place.offset, buffer, Class::ForegroundRead)?;
            let parts = read.chunks(BLOCK).zip(checksums);
            for (block, (part, checksum)) in (block..).zip(parts) {
                let found = crc32c::crc32c(part);
                if found != *checksum {
                    let reason = format!("its checksum is {found:08x}, not {checksum:08x}");
                    return Err(Error::Damaged { branch: branch.0, block, reason });
                }
            }
            now.copy_from_slice(&read);
            (block, first) = (block + slots as u64, first.plus(place.slots));
            (checksums, into) = (&checksums[slots..], later);
        }
        Ok(true)
    }
}
