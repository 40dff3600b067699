//! Verification: reads everything a store refers to and checks every checksum and invariant.
//!
//! Checked: superblock, checkpoint root and pages, the log from the replay point on, the directory
//! against the map of free space (no two images overlap, all lie inside their devices), every
//! block: readable, checksum, names itself as the directory does, layout, order, keys inside the
//! block's range, number of records; every large value: there, of the right length, and referred
//! to. Nothing is written. Memory: the directory and the waiting updates, whatever the budget.

use std::collections::BTreeSet;

use super::config::Config;
use super::core::Core;
use super::directory::{BlockId, Page};
use super::format::image_format::{self, Identity, ImageKind};
use super::recovery::{self, Access, Registry};
use crate::device::{self, Buffer, Devices};
use crate::error::{Damage, Error};

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blocks read and checked, large values included.
    pub blocks: u64,
    /// Bytes of their images.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
    /// Updates that wait in the log for a sweep.
    pub waiting: u64,
    /// Everything that is wrong; empty if the store is sound.
    pub damage: Vec<Damage>,
}

/// Verifies a store. Cost: reads everything once.
///
/// # Errors
/// What keeps the store from being read at all, other than damage: unregistered formats, a setting
/// out of range.
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
    let mut verifier = Verifier { core: &core, devices, report, referred: BTreeSet::new() };
    verifier.check_spaces();
    Ok(verifier.report)
}

struct Verifier<'a> {
    core: &'a Core,
    devices: &'a mut dyn Devices,
    report: Report,
    /// Large values that blocks refer to: space and key.
    referred: BTreeSet<(u32, Vec<u8>)>,
}

impl Verifier<'_> {
    fn check_spaces(&mut self) {
        // A companion has a higher number than its space, so its references are known by then.
        for space in self.core.directory.spaces() {
            let ids: Vec<BlockId> = space.pages.iter().flat_map(Page::blocks).copied().collect();
            let is_companion = space.record.name.is_empty();
            for (position, id) in ids.iter().enumerate() {
                let block = self.core.directory.block(*id);
                self.report.waiting += u64::from(block.queue.count());
                let Some(extent) = block.extent else { continue };
                let high = ids.get(position + 1).map(|next| &*self.core.directory.block(*next).key);
                let checked = self.read(*id).and_then(|(buffer, body)| {
                    let body = &buffer[body];
                    if is_companion {
                        return self.check_large_value(space.record.space, &block.key, body);
                    }
                    let found = space.format.check(body, &block.key, high)?;
                    if found.records != block.records {
                        let (found, listed) = (found.records, block.records);
                        return Err(format!("{found} records; the directory says {listed}"));
                    }
                    let values = found.values.into_iter();
                    self.note_values(space.record.companion, values)?;
                    Ok(())
                });
                self.report.blocks += 1;
                self.report.bytes += u64::from(extent.bytes);
                self.report.records += u64::from(block.records);
                if let Err(reason) = checked {
                    self.damaged(*id, reason);
                }
            }
        }
    }

    fn damaged(&mut self, id: BlockId, reason: String) {
        let block = self.core.directory.block(id);
        let key = String::from_utf8_lossy(&block.key);
        let what = format!("block {key:?} of space {}", block.space);
        let Some(extent) = block.extent else { return };
        let (device, offset) = (extent.device, extent.offset);
        self.report.damage.push(Damage { device, offset, what, reason });
    }

    fn read(&mut self, id: BlockId) -> Result<(Buffer, std::ops::Range<usize>), String> {
        let block = self.core.directory.block(id);
        let extent = block.extent.ok_or("it has no image")?;
        let buffer =
            device::read_alone(self.devices, extent.device, extent.offset, extent.bytes as usize)
                .map_err(|error| error.to_string())?;
        let identity = Identity {
            store: self.core.config.store,
            kind: ImageKind::Block,
            space: block.space,
            seq: block.image_seq,
            key: &block.key,
        };
        let body = image_format::decode(&buffer, &identity)?;
        Ok((buffer, body))
    }

    fn note_values(
        &mut self,
        companion: u32,
        values: impl Iterator<Item = (Vec<u8>, u32)>,
    ) -> Result<(), String> {
        for (key, bytes) in values {
            let found = self.core.directory.exact(companion, &key);
            let extent = found.and_then(|found| self.core.directory.block(found).extent);
            let least = image_format::HEADER_BYTES + key.len() + bytes as usize;
            if extent.is_none_or(|extent| (extent.bytes as usize) < least) {
                let key = String::from_utf8_lossy(&key).into_owned();
                return Err(format!("its large value {key:?} of {bytes} bytes is missing"));
            }
            self.referred.insert((companion, key));
        }
        Ok(())
    }

    fn check_large_value(&mut self, space: u32, key: &[u8], body: &[u8]) -> Result<(), String> {
        if body.is_empty() {
            return Err("a large value without content".to_owned());
        }
        if !self.referred.remove(&(space, key.to_vec())) {
            return Err("a large value that no record refers to".to_owned());
        }
        Ok(())
    }
}
