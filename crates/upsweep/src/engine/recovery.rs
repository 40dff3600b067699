//! Creation and recovery: from bytes on devices to a running core.
//!
//! Steps of recovery: choose the younger valid superblock; load the directory from its checkpoint;
//! find the end of the log; first pass over the log: everything that changes the directory, through
//! the same functions that changed it originally (see `index/publish.rs`); claim the space of
//! everything that the directory names; read the spill segments, for the filters of their keys;
//! raise the epoch durably; second pass: every update that is younger than the frontier of its
//! block and not in a spill segment goes to the queue of its block, and to those of the clones that
//! were made later. Two passes, because a frontier must be known before updates are queued and
//! folded. Recovery rebuilds queues and stops there: the next sweep does the writing. (Bosc paper,
//! section 4.3.)
//!
//! If the queues outgrow the memory budget, which happens when a store is opened with less memory
//! than before, the second pass waits for sweeps as any caller would.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use super::base::Base;
use super::catalog::LARGE_VALUE_FORMAT;
use super::checkpoint::{Checkpointer, Listing};
use super::config::{Config, DATA_START, SUPERBLOCK_SLOTS};
use super::core::Core;
use super::format::checkpoint_format::{
    ImageRecord, Root, SLOT_BYTES, Superblock, decode_node, decode_page, decode_root,
    decode_superblock, encode_superblock,
};
use super::format::codec_format::Malformed;
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::SpaceRecord;
use super::gate::Access;
use super::growth::Growth;
use super::held::Held;
use super::ids::{SnapshotId, SpaceId};
use super::index::Index;
use super::journal::Journal;
use super::log_growth::LogGrowth;
use super::quarantine::{
    FIRST_USER_SPACE, QUARANTINE_COMPANION, QUARANTINE_SPACE, REFERENCES_SPACE,
};
use super::registry::{OwnFormats, Registry};
use crate::device::{self, Buffer, Bulk, DeviceId, Devices};
use crate::error::{ClosedError, Damage, Error, Location, RequestError};
use crate::events::event;
use crate::log::{self, Log, LogConfig, LogRegion, Seq};
use crate::placement::{DEVICE_BYTES_MAX, Extent, SpaceMap, UNIT_BYTES};

/// Name of the reference array.
const REFERENCES_NAME: &str = "(references)";
/// Numbers of nodes and blocks that exceed the units of the devices by more than this are damage.
const NUMBERS_BEYOND_UNITS: u64 = 1 << 20;
/// Name of the quarantine table.
pub const QUARANTINE_NAME: &str = "(quarantine)";

/// The configuration of the log with the present lengths of these devices.
fn log_config(config: &Config, devices: &dyn Devices, epoch: u64) -> LogConfig {
    let regions = config.log_regions.iter();
    let regions = regions.map(|region| region.present(devices, config.log_segment_bytes));
    LogConfig {
        store: config.store,
        epoch,
        batch_bytes: config.log_batch_bytes,
        depth: config.log_depth,
        delay_us_max: config.log_delay_us_max,
        regions: regions.collect(),
        segment_bytes: config.log_segment_bytes,
        page_bytes: config.log_page_bytes,
        mode: config.log_mode,
        motion: config.log_motion,
        kept_bytes: config.log_kept_bytes(),
        bulk: config.bulk,
    }
}

/// Makes an empty store on the devices: writes every log ring once in full, then the superblocks.
///
/// # Errors
/// [`RequestError`] for a setting out of range; [`ClosedError::WriteFailed`] if a write fails.
pub fn create(devices: &mut dyn Devices, config: &Config) -> Result<(), Error> {
    config.check()?;
    let log = log_config(config, devices, 1);
    Log::format(devices, &log)?;
    let superblock = Superblock {
        store: config.store,
        generation: 1,
        epoch: 0,
        replay_from: Seq::FIRST,
        root_seq: Seq::NONE,
        next_space: FIRST_USER_SPACE,
        root: None,
        durable: Seq::NONE,
    };
    for generation in [1, 2] {
        write_superblock(devices, &Superblock { generation, ..superblock })?;
    }
    Ok(())
}

fn write_superblock(devices: &mut dyn Devices, superblock: &Superblock) -> Result<(), Error> {
    let mut buffer = Buffer::zeroed(SLOT_BYTES);
    let bytes = encode_superblock(superblock);
    buffer[..bytes.len()].copy_from_slice(&bytes);
    let (device, offset) = (DeviceId(0), SUPERBLOCK_SLOTS[(superblock.generation % 2) as usize]);
    device::write_alone(devices, device, offset, buffer)
        .map_err(|error| ClosedError::WriteFailed { device, offset: Some(offset), error }.into())
}

/// The valid superblock with the highest generation.
fn read_superblock(devices: &mut dyn Devices, config: &Config) -> Result<Superblock, Error> {
    let mut found: Option<Superblock> = None;
    let mut reason = String::new();
    let slots = SUPERBLOCK_SLOTS.map(|offset| (DeviceId(0), offset, SLOT_BYTES));
    let Ok(()) =
        device::read_all(devices, &slots, &config.bulk, |_, slot| -> Result<(), Infallible> {
            let decoded = slot
                .map_err(|error| error.to_string())
                .and_then(|slot| decode_superblock(slot).map_err(|error| error.to_string()));
            match decoded {
                Ok(superblock) if superblock.store == config.store => {
                    if found.is_none_or(|found| superblock.generation > found.generation) {
                        found = Some(superblock);
                    }
                }
                Ok(_) => "belongs to another store".clone_into(&mut reason),
                Err(error) => reason = error,
            }
            Ok(())
        });
    found.ok_or_else(|| {
        let location = Some(Location { device: DeviceId(0), offset: SUPERBLOCK_SLOTS[0] });
        Damage { location, what: "both superblocks".to_owned(), reason }.into()
    })
}

/// Recovers a store. The returned core is ready for calls; drive it with [`Core::pump`].
///
/// # Errors
/// [`RequestError`] for a setting out of range, or for an unregistered format or modifier that is
/// needed; [`Error::Damaged`] for damage to the superblock, the checkpoint or the log;
/// [`ClosedError::WriteFailed`] if a write fails.
pub fn open(
    devices: &mut dyn Devices,
    config: Config,
    registry: &Registry,
    access: Access,
) -> Result<Core, Error> {
    config.check()?;
    let mut superblock = read_superblock(devices, &config)?;
    let found = log_config(&config, devices, 1);
    check_length(&found)?;
    let mut reader = log::recover(devices, &found, superblock.replay_from)?;
    let last = reader.last_seq();
    let wanted = superblock.root_seq.max(superblock.durable);
    if last < wanted {
        return Err(lost_log(wanted, last));
    }
    superblock.epoch = superblock.epoch.max(reader.epoch_seen()) + 1;
    let epoch = superblock.epoch;
    let ends = (0..config.data_devices)
        .map(|index| devices.geometry(DeviceId(index)).size_bytes)
        .map(|bytes| (DATA_START, bytes.clamp(DATA_START, DEVICE_BYTES_MAX)));
    let mut space_map = SpaceMap::new(&ends.collect::<Vec<_>>());
    space_map.set_boundaries(&config.boundaries);
    let is_growable = |device| devices.geometry(device).growable && access != Access::ReadOnly;
    let growable: Vec<bool> = (0..config.data_devices).map(DeviceId).map(is_growable).collect();
    let logs = config.log_regions.iter().map(|region| region.device);
    let log_growth = LogGrowth::new(logs.map(is_growable).collect());
    let root = read_root(devices, &config, &superblock)?;
    let log = match access {
        Access::ReadWrite | Access::Upkeep => {
            let log = reader.to_log(devices, LogConfig { epoch, ..found })?;
            // What was found is stable now, and nothing of the new epoch is written yet.
            superblock.generation += 1;
            superblock.durable = last;
            write_superblock(devices, &superblock)?;
            log
        }
        Access::ReadOnly => reader.to_log_read_only(LogConfig { epoch, ..found })?,
    };
    event!(
        info,
        replay_from = superblock.replay_from.get(),
        last = last.get(),
        "the end of the log is found"
    );
    check_formats(registry)?;
    let swept = (superblock.replay_from.previous(), superblock.next_space);
    let index = Index::new(&config, registry, space_map, swept);
    let mut base = Base::new(config, Journal::new(log)?, index);
    base.held = (access == Access::Upkeep).then(Held::default);
    let listed = load_checkpoint(&mut base, devices, &root, superblock.root, &registry.own)?;
    let checkpointer = Checkpointer::after_open(superblock, listed);
    let mut core = Core::new(base, checkpointer, Growth::new(&growable), log_growth);
    event!(info, blocks = core.directory_size().0, "the checkpoint is loaded");
    core.replay_changes(devices, &mut reader)?;
    event!(info, blocks = core.directory_size().0, "changes of the directory are replayed");
    core.claim_space()?;
    core.base.index.pin_unregistered();
    core.load_spill_segments(devices, access)?;
    core.base.journal.recovered_through(last);
    core.replay_updates(devices, &mut reader, access)?;
    core.base.index.accept_through(last);
    event!(info, entries = core.base.index.arena().entries(), "updates are replayed");
    if access != Access::ReadOnly {
        begin_work(&mut core, registry)?;
    }
    core.note_levels();
    Ok(core)
}

/// The last steps for a store that is not open for reading only.
fn begin_work(core: &mut Core, registry: &Registry) -> Result<(), Error> {
    for modifier in &registry.modifiers {
        core.register_modifier(Arc::clone(modifier))?;
    }
    core.base.journal.log_mut().start_train();
    Ok(())
}

/// A log below the minimum length has lost its end.
fn check_length(found: &LogConfig) -> Result<(), Error> {
    let is_short = |region: &&LogRegion| region.bytes < found.region_bytes_min();
    let Some(region) = found.regions.iter().find(is_short) else { return Ok(()) };
    let end = Location { device: region.device, offset: region.offset + region.bytes };
    let reason = "the device ends here: what was behind it is lost; restore a backup".to_owned();
    Err(Damage { location: Some(end), what: "the log".to_owned(), reason }.into())
}

fn lost_log(wanted: Seq, last: Seq) -> Error {
    let what = format!("log record {wanted}");
    let reason = format!(
        "the log ends at record {last}, but was on stable media up to there: what came between is \
         lost; restore a backup"
    );
    Damage { location: None, what, reason }.into()
}

fn read_root(
    devices: &mut dyn Devices,
    config: &Config,
    superblock: &Superblock,
) -> Result<Root, Error> {
    let Some(extent) = superblock.root else { return Ok(Root::default()) };
    let image = ImageRecord { number: 0, image_seq: superblock.root_seq, extent };
    let mut root = Root::default();
    let from = (config.store, &config.bulk);
    read_images(devices, from, ImageKind::Root, &[image], decode_root, |_, found| {
        root = found;
        Ok(())
    })?;
    Ok(root)
}

/// Reads, checks and decodes images of a store, several at a time; calls `take` with each, in any
/// order.
fn read_images<T>(
    devices: &mut dyn Devices,
    (store, bulk): ([u8; 16], &Bulk),
    kind: ImageKind,
    images: &[ImageRecord],
    decode: impl Fn(&[u8]) -> Result<T, Malformed>,
    mut take: impl FnMut(&ImageRecord, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let range = |image: &ImageRecord| image.extent.range();
    let ranges: Vec<_> = images.iter().map(range).collect();
    device::read_all(devices, &ranges, bulk, |index, read| {
        let image = &images[index];
        let identity =
            Identity { store, kind, number: image.number, seq: image.image_seq, key: &[] };
        let decoded = read.map_err(|error| error.to_string()).and_then(|buffer| {
            let body = image_format::decode(buffer, &identity)?;
            decode(&buffer[body]).map_err(|error| error.to_string())
        });
        let decoded = decoded.map_err(|reason| {
            let what = format!("{kind:?} {} of the checkpoint", image.number);
            Damage { location: Some(image.extent.location()), what, reason }
        });
        take(image, decoded?)
    })
}

/// Checks that the formats of the store's own spaces are registered.
fn check_formats(registry: &Registry) -> Result<(), Error> {
    let OwnFormats { quarantine, references } = &registry.own;
    for needed in [quarantine, references, LARGE_VALUE_FORMAT] {
        let (name, _) = needed.split_once(':').unwrap_or((needed, ""));
        if !registry.formats.contains_key(name) {
            return Err(RequestError::UnknownFormat(needed.to_owned()).into());
        }
    }
    Ok(())
}

impl Core {
    /// Marks the space of all blocks, nodes, pages and spill segments and of the root as used, and
    /// the possible holes in the rest.
    fn claim_space(&mut self) -> Result<(), Error> {
        let mut claims: Vec<(Extent, String)> = Vec::new();
        if let Some(extent) = self.checkpointer.superblock().root {
            claims.push((extent, "checkpoint root".to_owned()));
        }
        for (kind, image) in self.checkpointer.listed().images() {
            claims.push((image.extent, format!("{kind:?} {}", image.number)));
        }
        let mut claimed: BTreeSet<Extent> = BTreeSet::new();
        for id in self.base.index.directory().table.ids() {
            let block = self.base.index.directory().block(id);
            let Some(extent) = block.extent() else { continue };
            let (key, space) = (String::from_utf8_lossy(&block.key), block.space);
            if claimed.insert(extent) {
                claims.push((extent, format!("block {key:?} of space {space}")));
            }
        }
        for segment in self.base.index.spill_segments.iter() {
            let (low, space) = (String::from_utf8_lossy(&segment.record.low), segment.record.space);
            claims.push((segment.record.extent, format!("spill segment {low:?} of space {space}")));
        }
        for (space, extent) in self.base.index.reserved.iter() {
            claims.push((extent, format!("an extent that space {space} has reserved")));
        }
        for (extent, what) in claims {
            self.claim(extent, &what)?;
        }
        self.growth.find_holes(&mut self.base);
        Ok(())
    }

    fn claim(&mut self, extent: Extent, what: &str) -> Result<(), Error> {
        self.base.index.space_map.claim(extent).map_err(|_| {
            let location = Some(extent.location());
            let reason = format!("its {} bytes overlap another image or the end", extent.bytes);
            Damage { location, what: what.to_owned(), reason }.into()
        })
    }
}

/// Loads the directory of a checkpoint; returns the images that its root lists.
fn load_checkpoint(
    base: &mut Base,
    devices: &mut dyn Devices,
    root: &Root,
    root_extent: Option<Extent>,
    own: &OwnFormats,
) -> Result<Listing, Error> {
    base.quarantine.restore(&root.carried);
    for record in &root.modifiers {
        base.index.bindings.bind(record.clone());
    }
    if root.spaces.is_empty() {
        for record in own_spaces(own) {
            base.index.add_space(record, Seq::FIRST);
        }
        return Ok(Listing::default());
    }
    let mut listing = Listing::default();
    let (store, bulk) = (base.config.store, base.config.bulk);
    let from = (store, &bulk);
    read_images(devices, from, ImageKind::Page, &root.pages, decode_page, |page, records| {
        listing.pages.insert(page.number, *page);
        for record in records {
            check_number(base, record.block.number, page)?;
            base.index.restore_block(record);
        }
        Ok(())
    })?;
    read_images(devices, from, ImageKind::Node, &root.nodes, decode_node, |node, record| {
        listing.nodes.insert(node.number, *node);
        check_number(base, node.number, node)?;
        if record.level == 0 {
            for child in &record.children {
                check_number(base, *child, node)?;
            }
        }
        base.index.restore_node(node.number, record);
        Ok(())
    })?;
    restore_spaces(base, root, root_extent)?;
    Ok(listing)
}

/// Restores the spaces of a checkpoint.
fn restore_spaces(base: &mut Base, root: &Root, root_extent: Option<Extent>) -> Result<(), Error> {
    let restored = base.index.restore(root)?;
    restored.map_err(|reason| {
        let location = root_extent.map(Extent::location);
        let what = "the trees of the checkpoint".to_owned();
        Damage { location, what, reason }.into()
    })
}

/// Whether a number is plausible for this store: memory is allocated in proportion to it.
fn check_number(base: &Base, number: u32, image: &ImageRecord) -> Result<(), Error> {
    let units = base.index.space_map.capacity_bytes() / UNIT_BYTES;
    if u64::from(number) < units + NUMBERS_BEYOND_UNITS {
        return Ok(());
    }
    let location = Some(image.extent.location());
    let what = "the directory".to_owned();
    let reason = format!("number {number} is implausibly large");
    Err(Damage { location, what, reason }.into())
}

/// The spaces that the engine keeps for itself.
fn own_spaces(formats: &OwnFormats) -> [SpaceRecord; 2] {
    let own = |space, companion, format: &str, name: &str| SpaceRecord {
        space,
        companion,
        snapshot: SnapshotId::NONE,
        format: format.to_owned(),
        name: name.to_owned(),
    };
    [
        own(QUARANTINE_SPACE, QUARANTINE_COMPANION, &formats.quarantine, QUARANTINE_NAME),
        own(REFERENCES_SPACE, SpaceId::NONE, &formats.references, REFERENCES_NAME),
    ]
}
