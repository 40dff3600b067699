//! Scrub: payload is read and compared with its checksums, so that damage is found while there is
//! still a copy elsewhere.
//!
//! Steps: the entries of some chunks are read, in the order of the map; their slots are read, in
//! the order of their places; for those that are not what the entries say, it is found out whether
//! anybody needs them, and who.
//!
//! Invariant: a slot that is trimmed or moved meanwhile is not damage. A look begins before the
//! entries are read, so what can be seen from then on stays. Who needs what is decided after the
//! payload was read, and of what an entry has, ever less is needed. A segment that is being read
//! keeps its content.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use upsweep::layers::device::{Buffer, Class};
use upsweep::{Durability, Location};

use crate::address::{BLOCK_BYTES, Branch, Physical, Stamp, chunk_of};
use crate::catalog::Catalog;
use crate::entry::{Content, Entry};
use crate::error::Error;
use crate::looks::Rows;
use crate::payload::{Place, Slot};
use crate::rows::{Key, VolumeRow};
use crate::trim::BranchNeeds;
use crate::versions::{Seen, Trim, Versions};
use crate::volumes::{CHUNKS_MAX, Inner, Volumes};
use crate::walks::CHUNKS_PER_STEP;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Slots that are read with one request at most: 1 MiB.
const READ_SLOTS_MAX: usize = 256;
/// The position of a pass is recorded after so many bytes.
const RECORD_BYTES: u64 = 64 << 20;

/// How far a scrub has come; the default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPosition {
    branch: u32,
    chunk: u64,
}

/// What a step of a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrubbed {
    /// Payload that was read and compared, in bytes.
    pub bytes: u64,
    /// All damage that was found.
    pub damage: Vec<DamagedRange>,
    /// Where to go on; `None` at the end.
    pub next: Option<ScrubPosition>,
}

/// Blocks that are not what was written, of which neighbours with the same fault are together.
/// It displays as `bytes 4096 to 8191 of volume "disk" on device 0 at offset 8192: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRange {
    /// The branch of the map that has them.
    pub branch: u32,
    /// Where they can be seen; empty only if that has changed meanwhile.
    pub seen_in: Vec<SeenIn>,
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Where the payload is, if it is known.
    pub location: Option<Location>,
    /// What is wrong.
    pub fault: Fault,
}

/// Where a block can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeenIn {
    /// In this volume as it is now.
    Volume(String),
    /// In a snapshot.
    Snapshot {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// In the history of this volume, and not in it as it is now.
    History(String),
}

/// What is wrong with a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Its content differs from what was written.
    Checksum,
    /// The device cannot read it, for this reason.
    Unreadable(String),
    /// The tables do not say where it is.
    Missing,
    /// The tables say that nobody needs it.
    Dead,
}

/// The scrub of all payload that goes on in steps, pass after pass, also when the store is opened
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScrubPass {
    /// When the last pass began, in microseconds since the Unix epoch; 0: never.
    pub began_at: u64,
    /// How far it has come; `None` if it has ended.
    pub position: Option<ScrubPosition>,
    /// When the last complete pass ended, in microseconds since the Unix epoch.
    pub ended_at: Option<u64>,
    /// Payload that was checked, of all passes, in bytes.
    pub bytes: u64,
    /// Blocks that the last pass has found damaged so far.
    pub damaged_blocks: u64,
    /// Blocks that the one before it had found damaged.
    pub damaged_blocks_before: u64,
}

impl SeenIn {
    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &str {
        match self {
            Self::Volume(volume) | Self::Snapshot { volume, .. } | Self::History(volume) => volume,
        }
    }
}

impl Display for SeenIn {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => write!(formatter, "volume {volume:?}"),
            Self::Snapshot { volume, snapshot } => {
                write!(formatter, "snapshot {snapshot:?} of volume {volume:?}")
            }
            Self::History(volume) => write!(formatter, "the history of volume {volume:?}"),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => formatter.write_str("checksum mismatch"),
            Self::Unreadable(reason) => formatter.write_str(reason),
            Self::Missing => formatter.write_str("the table of homes does not have its payload"),
            Self::Dead => formatter.write_str("its payload is noted as dead"),
        }
    }
}

impl Display for DamagedRange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { offset, bytes, location, fault, .. } = self;
        let seen_in: Vec<String> = self.seen_in.iter().map(SeenIn::to_string).collect();
        let seen_in = match seen_in.is_empty() {
            true => format!("branch {}", self.branch),
            false => seen_in.join(", "),
        };
        write!(formatter, "bytes {offset} to {} of {seen_in}", offset + bytes - 1)?;
        location.iter().try_for_each(|location| write!(formatter, " on {location}"))?;
        write!(formatter, ": {fault}")
    }
}

/// What is checked.
pub struct Scope {
    /// Entries of these branches.
    pub branches: BTreeSet<Branch>,
    /// Without slots from this one on.
    pub end: Option<Physical>,
}

/// The entries of a chunk of a branch.
struct Chunk {
    number: u64,
    entries: Vec<Entry>,
}

/// A block to be checked.
struct Check {
    slot: Physical,
    checksum: u32,
    block: u64,
    stamp: Stamp,
}

/// Looks at a branch at any moment of a range.
struct Looks {
    branch: Branch,
    from: Stamp,
    to: Stamp,
    /// What is seen by them is seen there.
    seen_in: SeenIn,
}

impl Looks {
    fn is_history(&self) -> bool {
        matches!(self.seen_in, SeenIn::History(_))
    }
}

/// A block that is not what its entry says.
struct Found {
    slot: Physical,
    block: u64,
    stamp: Stamp,
    location: Option<Location>,
    fault: Fault,
}

impl Volumes {
    /// Checks the payload of a part of all volumes, with their snapshots and histories, or of one
    /// (`volume`), from a position on: about `bytes_max` bytes, of one chunk of 64 KiB at least and
    /// 1,000 at most. Payload that is shared is checked once. With one volume, damage that only
    /// others see is left out. Damage does not end it. Cost: a scan of the map for that part, and
    /// reads of its payload.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::Tables`]; [`Error::Store`].
    pub fn scrub(
        &self,
        volume: Option<&str>,
        from: ScrubPosition,
        bytes_max: u64,
    ) -> Result<Scrubbed, Error> {
        let scope = {
            let catalog = self.inner.catalog.read();
            let number = volume.map(|name| catalog.number(name)).transpose()?;
            Scope { branches: catalog.rows.branches_of(number), end: None }
        };
        let mut scrubbed = self.inner.scrub(&scope, from, bytes_max)?;
        if let Some(name) = volume {
            let is_of_it =
                |range: &DamagedRange| range.seen_in.iter().any(|of| of.volume() == name);
            scrubbed.damage.retain(is_of_it);
        }
        Ok(scrubbed)
    }

    /// Payload that is not known to be dead, in bytes: about what a scrub of all volumes checks.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.inner.payload.living() * BLOCK_BYTES
    }

    /// How far the scrub that goes on has come; see [`Volumes::continue_scrub`].
    #[must_use]
    pub fn scrub_pass(&self) -> ScrubPass {
        self.inner.catalog.read().scrub_pass.clone()
    }

    /// Does a step of the scrub of all volumes that goes on, as [`Volumes::scrub`]; begins the next
    /// pass if the last one has ended. The position is recorded every 64 MiB, so if the store is
    /// closed meanwhile, so much at most is checked again.
    ///
    /// # Errors
    /// As [`Volumes::scrub`].
    pub fn continue_scrub(&self, bytes_max: u64) -> Result<Scrubbed, Error> {
        let inner = &self.inner;
        let mut pass = self.scrub_pass();
        let is_new = pass.position.is_none();
        if is_new {
            pass.began_at = inner.now_us();
            (pass.damaged_blocks_before, pass.damaged_blocks) = (pass.damaged_blocks, 0);
        }
        let scrubbed = self.scrub(None, pass.position.unwrap_or_default(), bytes_max)?;
        let damaged_bytes: u64 = scrubbed.damage.iter().map(|range| range.bytes).sum();
        pass.damaged_blocks += damaged_bytes / BLOCK_BYTES;
        let is_due = (pass.bytes + scrubbed.bytes) / RECORD_BYTES > pass.bytes / RECORD_BYTES;
        pass.bytes += scrubbed.bytes;
        pass.position = scrubbed.next;
        if pass.position.is_none() {
            pass.ended_at = Some(inner.now_us());
        }
        let is_recorded = is_new || is_due || damaged_bytes > 0 || pass.position.is_none();
        inner.catalog.write().note_scrub(pass, is_recorded)?;
        Ok(scrubbed)
    }
}

impl Rows {
    /// All branches, or those that somebody looks through who looks at a volume, its snapshots or
    /// its history.
    fn branches_of(&self, volume: Option<u32>) -> BTreeSet<Branch> {
        let Some(number) = volume else { return self.branches.keys().copied().collect() };
        let kept = self.volumes.get(&number).into_iter().flat_map(VolumeRow::kept);
        let snapshots = self.snapshots_of(number);
        let snapshots = snapshots.map(|(_, row)| (Branch(row.branch), Stamp(row.stamp)));
        let looks = kept.map(|(branch, _, to)| (branch, to)).chain(snapshots);
        let lines = looks.flat_map(|(branch, at)| self.line(branch, at));
        lines.map(|(branch, _)| branch).collect()
    }

    /// All that anybody may look at: of each volume the present first, and the history last.
    fn looks(&self) -> Vec<Looks> {
        let mut looks = Vec::new();
        let mut add = |branch: u32, from, to, seen_in| {
            looks.push(Looks { branch: Branch(branch), from, to, seen_in });
        };
        for (number, row) in &self.volumes {
            let now = row.fixed_at.map_or(Stamp::NOW, Stamp);
            add(row.now().branch, now, now, SeenIn::Volume(row.name.clone()));
            for (snapshot, of) in self.snapshots_of(*number) {
                let (volume, snapshot) = (row.name.clone(), snapshot.to_owned());
                let at = Stamp(of.stamp);
                add(of.branch, at, at, SeenIn::Snapshot { volume, snapshot });
            }
            for (branch, from, to) in row.kept() {
                add(branch.0, from, to, SeenIn::History(row.name.clone()));
            }
        }
        looks
    }
}

impl Inner {
    /// Checks payload, from a position on.
    pub fn scrub(
        &self,
        Scope { branches, end }: &Scope,
        from: ScrubPosition,
        bytes_max: u64,
    ) -> Result<Scrubbed, Error> {
        let _looking = self.stamps.look();
        let Some(branch) = branches.range(Branch(from.branch)..).next().copied() else {
            return Ok(Scrubbed::default());
        };
        let first = if branch.0 == from.branch { from.chunk } else { 0 };
        let (chunks, following) = self.some_chunks(branch, first, bytes_max)?;
        let entries = chunks.iter().flat_map(|chunk| &chunk.entries);
        let mut checks: Vec<Check> = entries.flat_map(checks).collect();
        checks.retain(|check| end.is_none_or(|end| check.slot < end));
        checks.sort_unstable_by_key(|check| check.slot);
        let (bytes, found) = self.check(&checks)?;
        let damage = self.needed(branch, &chunks, found)?;
        let next = match following {
            Some(chunk) => Some(ScrubPosition { branch: branch.0, chunk }),
            None => {
                let next = branches.range(Branch(branch.0 + 1)..).next();
                next.map(|branch| ScrubPosition { branch: branch.0, chunk: 0 })
            }
        };
        Ok(Scrubbed { bytes, damage, next })
    }

    /// Chunks of a branch from one on, with about so many bytes of payload, and the one that
    /// follows.
    fn some_chunks(
        &self,
        branch: Branch,
        first: u64,
        bytes_max: u64,
    ) -> Result<(Vec<Chunk>, Option<u64>), Error> {
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        for chunk in self.chunks(branch, first..=CHUNKS_MAX) {
            let (number, entries) = chunk?;
            if !chunks.is_empty() && (bytes >= bytes_max || chunks.len() == CHUNKS_PER_STEP) {
                return Ok((chunks, Some(number)));
            }
            bytes += entries.iter().map(Entry::slots).sum::<u64>() * BLOCK_BYTES;
            chunks.push(Chunk { number, entries });
        }
        Ok((chunks, None))
    }

    /// Reads blocks that are in order of their slots; returns how many bytes were read, and what is
    /// wrong, be it needed or not.
    fn check(&self, checks: &[Check]) -> Result<(u64, Vec<Found>), Error> {
        let dead = |check: &&Check| self.payload.is_dead(check.slot);
        let (dead, living): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(dead);
        let mut found: Vec<Found> =
            dead.into_iter().map(|check| check.found(None, Fault::Dead)).collect();
        let mut bytes = 0;
        for run in living.chunk_by(|left, right| left.slot.is_before(right.slot)) {
            for part in run.chunks(READ_SLOTS_MAX) {
                bytes += self.check_run(part, &mut found)?;
            }
        }
        Ok((bytes, found))
    }

    /// Reads blocks in consecutive slots.
    fn check_run(&self, mut run: &[&Check], found: &mut Vec<Found>) -> Result<u64, Error> {
        let mut bytes = 0;
        while let Some(first) = run.first() {
            let slots = match self.payload.find(first.slot, run.len() as u16) {
                None => {
                    found.push(first.found(None, Fault::Missing));
                    1
                }
                // It is not on the devices yet.
                Some(Slot::Memory(data)) => data.len() / BLOCK,
                Some(Slot::Device(place)) => {
                    let slots = usize::from(place.slots);
                    found.extend(check_place(&place, &run[..slots])?);
                    bytes += slots as u64 * BLOCK_BYTES;
                    slots
                }
            };
            run = &run[slots..];
        }
        Ok(bytes)
    }

    /// What somebody needs of what was found, in order, neighbours together.
    fn needed(
        &self,
        branch: Branch,
        chunks: &[Chunk],
        found: Vec<Found>,
    ) -> Result<Vec<DamagedRange>, Error> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        self.publish_needs(None);
        let needs = Arc::clone(&self.trimming.needs.lock());
        let Some(BranchNeeds { kept, has_parent }) = needs.branches.get(&branch) else {
            return Ok(Vec::new());
        };
        let mut by_chunk: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for found in found {
            by_chunk.entry(chunk_of(found.block)).or_default().push(found);
        }
        let rows = self.catalog.read().rows.clone();
        let looks = rows.looks();
        let mut ranges: Vec<DamagedRange> = Vec::new();
        for (number, mut found) in by_chunk {
            let is_it = |chunk: &&Chunk| chunk.number == number;
            let entries = &chunks.iter().find(is_it).expect("it was found there").entries;
            let long_zeros = self.trimming.zeros.read().over(branch, number);
            let versions = Versions { chunk: number, entries, long_zeros: &long_zeros };
            let trims = versions.trim(kept, needs.until, *has_parent);
            let dead: BTreeSet<Physical> = trims.iter().flat_map(Trim::dead).collect();
            found.retain(|found| !dead.contains(&found.slot));
            found.sort_by_key(|found| (found.stamp, found.block));
            for found in found {
                let seen_in = self.seen_in(&rows, &looks, branch, &found)?;
                let range = found.range(branch, seen_in);
                match ranges.last_mut() {
                    Some(last) if range.follows(last) => last.bytes += range.bytes,
                    _ => ranges.push(range),
                }
            }
        }
        Ok(ranges)
    }

    /// Whether a block of a branch can be seen by one of these looks.
    fn is_seen(
        &self,
        rows: &Rows,
        look: &Looks,
        branch: Branch,
        of: &Found,
    ) -> Result<bool, Error> {
        // What is seen at any of the moments is seen at the first one at which it is there.
        let at = if look.branch == branch { look.from.max(of.stamp) } else { look.from };
        let line = rows.line(look.branch, at);
        if at > look.to || line.iter().all(|(through, _)| *through != branch) {
            return Ok(false);
        }
        let sight = self.see(&line, of.block..of.block + 1)?;
        Ok(matches!(sight.of(of.block).seen, Seen::Slot(slot, _) if slot == of.slot))
    }

    /// Where a block of a branch can be seen.
    fn seen_in(
        &self,
        rows: &Rows,
        looks: &[Looks],
        branch: Branch,
        of: &Found,
    ) -> Result<Vec<SeenIn>, Error> {
        let mut seen_in: Vec<SeenIn> = Vec::new();
        for look in looks {
            let name = look.seen_in.volume();
            let is_known = seen_in.contains(&look.seen_in)
                || look.is_history() && seen_in.contains(&SeenIn::Volume(name.to_owned()));
            if !is_known && self.is_seen(rows, look, branch, of)? {
                seen_in.push(look.seen_in.clone());
            }
        }
        Ok(seen_in)
    }
}

/// The blocks of an entry.
fn checks(entry: &Entry) -> Vec<Check> {
    let Content::Payload { first, checksums } = &entry.content else { return Vec::new() };
    let one = |(nth, (block, checksum)): (u16, (u64, &u32))| Check {
        slot: first.plus(nth),
        checksum: *checksum,
        block,
        stamp: entry.stamp,
    };
    (0..).zip(entry.span.blocks().zip(checksums)).map(one).collect()
}

/// Reads blocks that lie at a place, one after another; one by one where the device fails.
fn check_place(place: &Place, checks: &[&Check]) -> Result<Vec<Found>, Error> {
    let Place { segment, offset, .. } = place;
    let read = |nth: usize, blocks: usize| {
        let buffer = Buffer::recycled(blocks * BLOCK);
        segment.read(offset + nth as u64 * BLOCK_BYTES, buffer, Class::SweepRead)
    };
    let location = |nth: usize| {
        let (extent, nth) = (segment.extent(), nth as u64);
        Location { device: extent.device, offset: extent.offset + offset + nth * BLOCK_BYTES }
    };
    let compare = |nth: usize, data: &[u8]| {
        let is_right = crc32c::crc32c(data) == checks[nth].checksum;
        (!is_right).then(|| checks[nth].found(Some(location(nth)), Fault::Checksum))
    };
    match read(0, checks.len()) {
        Ok(all) => {
            let each = all.chunks(BLOCK).enumerate();
            return Ok(each.filter_map(|(nth, data)| compare(nth, data)).collect());
        }
        Err(upsweep::Error::Damaged(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut found = Vec::new();
    for (nth, check) in checks.iter().enumerate() {
        match read(nth, 1) {
            Ok(data) => found.extend(compare(nth, &data)),
            Err(upsweep::Error::Damaged(damage)) => {
                let fault = Fault::Unreadable(damage.reason);
                found.push(check.found(Some(location(nth)), fault));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

impl Check {
    fn found(&self, location: Option<Location>, fault: Fault) -> Found {
        let Self { slot, block, stamp, .. } = *self;
        Found { slot, block, stamp, location, fault }
    }
}

impl Found {
    fn range(self, branch: Branch, seen_in: Vec<SeenIn>) -> DamagedRange {
        let Self { block, location, fault, .. } = self;
        let offset = block * BLOCK_BYTES;
        DamagedRange { branch: branch.0, seen_in, offset, bytes: BLOCK_BYTES, location, fault }
    }
}

impl DamagedRange {
    /// Whether it continues another one.
    fn follows(&self, before: &Self) -> bool {
        let Self { branch, seen_in, offset, bytes, location, fault } = before;
        let end = location.map(|at| Location { offset: at.offset + bytes, ..at });
        *branch == self.branch
            && *seen_in == self.seen_in
            && *fault == self.fault
            && offset + bytes == self.offset
            && end == self.location
    }
}

impl Catalog {
    /// Notes how far the scrub has come; for the next open as well if it `is_recorded`, without
    /// waiting for that to be durable.
    pub fn note_scrub(&mut self, pass: ScrubPass, is_recorded: bool) -> Result<(), Error> {
        if is_recorded {
            let changes = vec![Key::Scrub.put(&pass)];
            self.commit_with(self.store.batch(), changes, Durability::Relaxed)?;
        }
        self.scrub_pass = pass;
        Ok(())
    }
}
