//! Verification: reads everything a store refers to and checks every checksum and invariant.
//!
//! Checked: superblock, checkpoint root, nodes and pages, the log from the replay point on, the
//! shape of the trees and all references, counted from the roots; the directory against the map of
//! free space (no two images overlap, all lie inside their devices); every block: readable,
//! checksum, identity as in the directory, layout, order, keys inside the block's range in every
//! space that has it, number of records; every large value: present, of the right length, and
//! referred to; every spill segment: readable, checksum, identity as in the directory, sections in
//! order, number and age of updates as recorded, positions within its range. Blocks that several
//! spaces share are read once. Of a space whose format is not registered, everything is checked
//! except the layout of its blocks and what they refer to. Nothing is written. Memory: the
//! directory and the waiting updates, whatever the budget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::block_format::ApplyInput;
use super::config::Config;
use super::core::Core;
use super::directory::{BlockId, Space};
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::LOST_UPDATES;
use super::format::reference_format::decode_cell;
use super::format::spill_segment_format::SpillSegmentRecord;
use super::gate::Access;
use super::ids::SpaceId;
use super::quarantine::{FIRST_USER_SPACE, REFERENCES_SPACE};
use super::queue::Waiting;
use super::recovery;
use super::registry::Registry;
use super::spill_segments;
use crate::device::{self, Buffer, Devices};
use crate::error::{Damage, Error};
use crate::placement::Extent;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Blocks read and checked, large values included.
    pub blocks: u64,
    /// Bytes of their images.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
    /// Updates of the application that wait in the log or in spill segments for a sweep. The
    /// store's own are not counted.
    pub waiting: u64,
    /// Spill segments of spilled updates.
    pub spill_segments: u64,
    /// All damage found; empty if the store is sound.
    pub damage: Vec<Damage>,
}

/// Verifies a store. Cost: reads everything once.
///
/// # Errors
/// Damage is in the report. An error is any other reason that prevents reading the store: an
/// unregistered format, or a setting out of range.
pub fn verify(
    devices: &mut dyn Devices,
    config: Config,
    registry: &Registry,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let core = match recovery::open(devices, config, registry, Access::ReadOnly) {
        Ok(core) => core,
        Err(Error::Damaged(damage)) => {
            report.damage.push(damage);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let mut verifier = Verifier { core: &core, devices, report, read: BTreeMap::new() };
    verifier.check_directory();
    verifier.check_spaces();
    verifier.check_spill_segments();
    Ok(verifier.report)
}

/// Large values that a block refers to: their keys and lengths in bytes.
type Values = Vec<(Vec<u8>, u32)>;

/// How the reference array differs from what was counted from the roots, if it does.
fn difference(said: &BTreeMap<u64, i64>, counted: &BTreeMap<u64, i64>) -> Option<String> {
    let indexes = said.keys().chain(counted.keys());
    let index = indexes.into_iter().find(|index| said.get(index) != counted.get(index))?;
    let count = |cells: &BTreeMap<u64, i64>| cells.get(index).copied().unwrap_or(0);
    Some(format!(
        "cell {index} of the reference array says {}; counted from the roots it is {}",
        count(said),
        count(counted)
    ))
}

struct Verifier<'a> {
    core: &'a Core,
    devices: &'a mut dyn Devices,
    report: Report,
    /// Blocks that were read, with the large values that they refer to.
    read: BTreeMap<BlockId, Values>,
}

impl Verifier<'_> {
    fn check_directory(&mut self) {
        let mut faults = self.core.audit();
        let (_, counted) = self.core.base.index.directory().audit();
        match self.references() {
            Ok(said) => faults.extend(difference(&said, &counted)),
            Err(reason) => faults.push(format!("the reference array: {reason}")),
        }
        for reason in faults {
            let extent = self.core.checkpointer.superblock().root;
            let location = extent.map(Extent::location);
            let what = "the directory".to_owned();
            self.report.damage.push(Damage { location, what, reason });
        }
    }

    /// The nonzero cells of the reference array, with all updates that wait for them and their
    /// deferred counts.
    fn references(&mut self) -> Result<BTreeMap<u64, i64>, String> {
        let core = self.core;
        let mut cells = core.base.index.directory().trees.deferred().clone();
        let Some(space) = core.base.index.directory().space(REFERENCES_SPACE) else {
            return Ok(cells);
        };
        for id in core.base.index.directory().blocks_of(space) {
            let block = core.base.index.directory().block(id);
            let read = block.extent().map(|_| self.read(id)).transpose()?;
            let packed = core.base.index.arena().snapshot(&block.queue, &block.key);
            let waiting = packed.unpack();
            let mut updates: Vec<_> = waiting.updates().collect();
            updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
            let input = ApplyInput {
                body: read.as_ref().map(|(buffer, body)| &buffer[body.clone()]),
                updates: &updates,
                modifiers: core.base.index.bindings.modifiers(),
                values: &[],
                body_bytes_max: usize::MAX,
                inline_value_bytes_max: usize::MAX,
                expired_us: 0,
            };
            let body = space.format.read(&input).map_err(|error| format!("{error:?}"))?;
            space.format.for_each(&block.key, &body, &mut |key, value| {
                if let Some((index, count)) = decode_cell(key, value.bytes) {
                    *cells.entry(index).or_default() += count;
                }
            })?;
        }
        cells.retain(|_, count| *count != 0);
        Ok(cells)
    }

    fn check_spaces(&mut self) {
        let is_companion = |space: &&Space| space.record.name.is_empty();
        let directory = &self.core.base.index.directory();
        for space in directory.spaces().filter(|space| !is_companion(space)) {
            let ids: Vec<BlockId> = directory.blocks_of(space).collect();
            let mut referred: BTreeSet<Vec<u8>> = BTreeSet::new();
            for (position, id) in ids.iter().enumerate() {
                let high = ids.get(position + 1).map(|next| &*directory.block(*next).key);
                if let Err(reason) = self.check_block(space, *id, high, &mut referred) {
                    self.damaged(*id, reason);
                }
            }
            if space.record.space >= FIRST_USER_SPACE {
                self.report.waiting += space.pending.len() as u64;
            }
            if let Some(values) = directory.space(space.record.companion) {
                if !space.is_registered() {
                    // What it refers to is unknown.
                    let keys =
                        directory.blocks_of(values).map(|id| directory.block(id).key.to_vec());
                    referred.extend(keys);
                }
                for id in directory.blocks_of(values) {
                    if let Err(reason) = self.check_large_value(id, &mut referred) {
                        self.damaged(id, reason);
                    }
                }
            }
        }
    }

    /// Checks a block in one of its spaces; reads it in the first.
    fn check_block(
        &mut self,
        space: &Space,
        id: BlockId,
        high: Option<&[u8]>,
        referred: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), String> {
        let block = self.core.base.index.directory().block(id);
        if !self.read.contains_key(&id) {
            if space.record.space >= FIRST_USER_SPACE {
                self.report.waiting += u64::from(block.queue.count() + block.spilled);
            }
            let values = self.read_block(space, id, high)?;
            self.read.insert(id, values);
        }
        for (key, bytes) in self.read[&id].clone() {
            self.check_reference(space.record.companion, &key, bytes)?;
            referred.insert(key);
        }
        Ok(())
    }

    fn read_block(
        &mut self,
        space: &Space,
        id: BlockId,
        high: Option<&[u8]>,
    ) -> Result<Values, String> {
        let block = self.core.base.index.directory().block(id);
        let Some(extent) = block.extent() else { return Ok(Values::new()) };
        self.report.blocks += 1;
        self.report.bytes += u64::from(extent.bytes);
        self.report.records += u64::from(block.placement().records);
        let (buffer, body) = self.read(id)?;
        if !space.is_registered() {
            return Ok(Values::new());
        }
        let found = space.format.check(&buffer[body], &block.key, high)?;
        if found.records != block.placement().records {
            let (found, listed) = (found.records, block.placement().records);
            return Err(format!("{found} records; the directory says {listed}"));
        }
        Ok(found.values)
    }

    fn damaged(&mut self, id: BlockId, reason: String) {
        let block = self.core.base.index.directory().block(id);
        let key = String::from_utf8_lossy(&block.key);
        let what = format!("block {key:?} of space {}", block.space);
        let Some(extent) = block.extent() else { return };
        let location = Some(extent.location());
        self.report.damage.push(Damage { location, what, reason });
    }

    fn check_spill_segments(&mut self) {
        for segment in self.core.base.index.spill_segments.iter() {
            self.report.spill_segments += 1;
            if let Err(reason) = self.check_spill_segment(&segment.record) {
                let location = Some(segment.record.extent.location());
                let low = String::from_utf8_lossy(&segment.record.low);
                let what = format!("spill segment {low:?} of space {}", segment.record.space);
                self.report.damage.push(Damage { location, what, reason });
            }
        }
    }

    fn check_spill_segment(&mut self, record: &SpillSegmentRecord) -> Result<(), String> {
        let Extent { device, offset, bytes } = record.extent;
        let buffer = device::read_alone(self.devices, device, offset, bytes as usize)
            .map_err(|error| error.to_string())?;
        let identity = spill_segments::identity(self.core.base.config.store, record);
        let body = &buffer[image_format::decode(&buffer, &identity)?];
        let waiting =
            spill_segments::waiting_all(body).map_err(|malformed| malformed.to_string())?;
        let updates = || waiting.iter().flat_map(Waiting::updates);
        if updates().count() != record.updates as usize {
            return Err(format!("{} updates, not {}", updates().count(), record.updates));
        }
        let ages = record.first_seq..=record.through;
        // Blocks of a dropped space that live on in clones have the format of the clones.
        let holders =
            self.core.base.index.directory().clones.holders(record.space, record.first_seq);
        let mut spaces =
            holders.iter().filter_map(|space| self.core.base.index.directory().space(*space));
        let format = spaces.next().filter(|space| space.is_registered());
        let format = format.map(|space| Arc::clone(&space.format));
        for update in updates() {
            let position = format.as_ref().map(|format| format.position(update.key));
            let is_inside = position.is_none_or(|position| {
                *position >= *record.low
                    && record.high.as_ref().is_none_or(|high| *position < **high)
            });
            if !is_inside || !ages.contains(&update.seq) {
                let key = String::from_utf8_lossy(update.key);
                return Err(format!(
                    "an update of {key:?} at {} does not belong to it",
                    update.seq
                ));
            }
        }
        Ok(())
    }

    fn read(&mut self, id: BlockId) -> Result<(Buffer, std::ops::Range<usize>), String> {
        let block = self.core.base.index.directory().block(id);
        if block.placement().has_lost_updates() {
            return Err(LOST_UPDATES.to_owned());
        }
        let extent = block.extent().ok_or("it has no image")?;
        let buffer =
            device::read_alone(self.devices, extent.device, extent.offset, extent.bytes as usize)
                .map_err(|error| error.to_string())?;
        let identity = Identity {
            store: self.core.base.config.store,
            kind: ImageKind::Block,
            number: block.placement().image_space.get(),
            seq: block.placement().image_seq,
            key: &block.key,
        };
        let body = image_format::decode(&buffer, &identity)?;
        Ok((buffer, body))
    }

    fn check_reference(&self, companion: SpaceId, key: &[u8], bytes: u32) -> Result<(), String> {
        let found = self.core.base.index.directory().exact(companion, key);
        let extent = found.and_then(|found| self.core.base.index.directory().block(found).extent());
        let least = image_format::HEADER_BYTES + key.len() + bytes as usize;
        if extent.is_none_or(|extent| (extent.bytes as usize) < least) {
            let key = String::from_utf8_lossy(key).into_owned();
            return Err(format!("its large value {key:?} of {bytes} bytes is missing"));
        }
        Ok(())
    }

    fn check_large_value(
        &mut self,
        id: BlockId,
        referred: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), String> {
        let block = self.core.base.index.directory().block(id);
        let Some(extent) = block.extent() else { return Ok(()) };
        if !referred.remove(&*block.key) {
            return Err("a large value that no record refers to".to_owned());
        }
        if self.read.contains_key(&id) {
            return Ok(());
        }
        self.read.insert(id, Values::new());
        self.report.blocks += 1;
        self.report.bytes += u64::from(extent.bytes);
        self.report.records += u64::from(block.placement().records);
        let (_, body) = self.read(id)?;
        if body.is_empty() { Err("a large value without content".to_owned()) } else { Ok(()) }
    }
}
