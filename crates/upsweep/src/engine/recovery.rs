//! Creation and recovery: from bytes on devices to a running core.
//!
//! Steps of recovery: choose the younger valid superblock; load the directory from its checkpoint;
//! find the end of the log; first pass over the log: changes of the directory, spaces, modifiers,
//! each page skipping what its image holds already; claim the space of everything that the
//! directory names; raise the epoch durably; second pass: every update that is younger than the
//! frontier of its block goes to the queue of its block. Two passes, because a frontier must be
//! known before updates are queued and folded. Recovery rebuilds queues and stops there: the next
//! sweep does the writing. (Bosc paper, section 4.3.)
//!
//! If the queues outgrow the memory budget, which happens when a store is opened with less memory
//! than before, the second pass waits for sweeps as any caller would.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_format::BlockFormat;
use super::cache::Cache;
use super::checkpoint::CheckpointState;
use super::config::{Config, DATA_START, SUPERBLOCK_SLOTS};
use super::core::{Core, Release};
use super::directory::{Directory, Page};
use super::drive;
use super::format::checkpoint_format::{
    self, Root, SLOT_BYTES, Superblock, decode_superblock, encode_superblock,
};
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::{self, Change, ModifierRecord, Payload, SpaceRecord};
use super::growth::Growth;
use super::modifier::Modifier;
use super::quarantine::{FIRST_USER_SPACE, QUARANTINE_COMPANION, QUARANTINE_SPACE};
use super::queue::Arena;
use super::registry::Modifiers;
use super::spaces::LARGE_VALUE_FORMAT;
use super::statistics::Statistics;
use super::sweep::Sweep;
use super::view::Views;
use crate::device::{self, Buffer, DeviceId, Devices};
use crate::error::{ClosedError, Damage, Error, RequestError};
use crate::log::{self, Log, LogConfig, LogReader};
use crate::placement::{Extent, SpaceMap};

/// Name of the log stream of updates.
const UPDATE_STREAM: &str = "updates";
/// Name of the log stream of changes: directory, spaces, modifiers.
const CHANGE_STREAM: &str = "changes";
/// Name of the format of the quarantine table.
const TABLE_FORMAT: &str = "table";
/// What the quarantine table is called.
pub const QUARANTINE_NAME: &str = "(quarantine)";

/// What the application brings to a store: formats and modifiers.
#[derive(Clone, Default)]
pub struct Registry {
    /// Block formats by name.
    pub formats: BTreeMap<&'static str, Arc<dyn BlockFormat>>,
    /// Built-in modifiers under their numbers.
    pub builtins: Modifiers,
    /// Modifiers of the application.
    pub modifiers: Vec<Arc<dyn Modifier>>,
}

/// Whether a store is opened to work on it or to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Updates and sweeps are allowed.
    ReadWrite,
    /// Nothing is written, whatever happens; memory may exceed the budget. Modifiers of the
    /// application may be missing.
    ReadOnly,
}

fn log_config(config: &Config, epoch: u64) -> LogConfig {
    LogConfig {
        store: config.store,
        epoch,
        batch_bytes: config.log_batch_bytes,
        depth: config.log_depth,
        delay_us_max: config.log_delay_us_max,
        regions: config.log_regions.clone(),
        segment_bytes: config.log_segment_bytes,
    }
}

/// Makes an empty store on the devices: writes every log ring once in full, then the superblocks.
///
/// # Errors
/// A setting out of range; a failed write.
pub fn create(devices: &mut dyn Devices, config: &Config) -> Result<(), Error> {
    config.check()?;
    Log::format(devices, &log_config(config, 1))?;
    let superblock = Superblock {
        store: config.store,
        generation: 1,
        epoch: 0,
        replay_from: 1,
        root_seq: 0,
        next_space: FIRST_USER_SPACE,
        root: None,
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
        .map_err(|error| ClosedError::WriteFailed { device, offset, error }.into())
}

/// The valid superblock with the highest generation.
fn read_superblock(devices: &mut dyn Devices, store: [u8; 16]) -> Result<Superblock, Error> {
    let mut found: Option<Superblock> = None;
    let mut reason = String::new();
    for offset in SUPERBLOCK_SLOTS {
        let decoded = device::read_alone(devices, DeviceId(0), offset, SLOT_BYTES)
            .map_err(|error| error.to_string())
            .and_then(|slot| decode_superblock(&slot).map_err(|error| error.to_string()));
        match decoded {
            Ok(superblock) if superblock.store == store => {
                if found.is_none_or(|found| superblock.generation > found.generation) {
                    found = Some(superblock);
                }
            }
            Ok(_) => "belongs to another store".clone_into(&mut reason),
            Err(error) => reason = error,
        }
    }
    found.ok_or_else(|| {
        let (device, offset) = (DeviceId(0), SUPERBLOCK_SLOTS[0]);
        Damage { device, offset, what: "both superblocks".to_owned(), reason }.into()
    })
}

/// Recovers a store. The returned core is ready for calls; drive it with [`Core::pump`].
///
/// # Errors
/// A setting out of range, an unregistered format or modifier that is needed, damage of the
/// superblock, checkpoint or log, a failed write.
pub fn open(
    devices: &mut dyn Devices,
    config: Config,
    registry: &Registry,
    access: Access,
) -> Result<Core, Error> {
    config.check()?;
    let mut superblock = read_superblock(devices, config.store)?;
    let mut reader = log::recover(devices, &log_config(&config, 1), superblock.replay_from)?;
    if reader.last_seq() < superblock.root_seq {
        return Err(lost_log(&config, superblock.root_seq, reader.last_seq()));
    }
    let last = reader.last_seq();
    superblock.epoch = superblock.epoch.max(reader.epoch_seen()) + 1;
    let epoch = superblock.epoch;
    if access == Access::ReadWrite {
        superblock.generation += 1;
        write_superblock(devices, &superblock)?;
    }
    let ends = (0..config.data_devices)
        .map(|index| (DATA_START, devices.geometry(DeviceId(index)).size_bytes.max(DATA_START)));
    let space_map = SpaceMap::new(&ends.collect::<Vec<_>>());
    let growable = (0..config.data_devices)
        .map(|index| devices.geometry(DeviceId(index)).growable && access == Access::ReadWrite)
        .collect();
    let root = read_root(devices, &config, &superblock)?;
    let log = log::recover(devices, &log_config(&config, 1), superblock.replay_from)?;
    let log = match access {
        Access::ReadWrite => log.into_log(devices, log_config(&config, epoch))?,
        Access::ReadOnly => log.into_log_read_only(log_config(&config, epoch))?,
    };
    let mut core = Core::assemble(config, registry, superblock, log, space_map, growable)?;
    core.load_checkpoint(devices, &root)?;
    core.replay_changes(devices, &mut reader)?;
    core.claim_space(&root)?;
    core.published = last;
    core.replay_updates(devices, &mut reader, access)?;
    core.accepted = core.accepted.max(last);
    if access == Access::ReadWrite {
        for modifier in &registry.modifiers {
            core.register_modifier(Arc::clone(modifier))?;
        }
    }
    Ok(core)
}

fn lost_log(config: &Config, wanted: u64, last: u64) -> Error {
    let region = config.log_regions[0];
    let what = format!("log record {wanted}");
    let reason = format!("the log ends at record {last}, before what the checkpoint has seen");
    Damage { device: region.device, offset: region.offset, what, reason }.into()
}

fn read_root(
    devices: &mut dyn Devices,
    config: &Config,
    superblock: &Superblock,
) -> Result<Root, Error> {
    let Some(extent) = superblock.root else { return Ok(Root::default()) };
    let seq = superblock.root_seq;
    let identity = Identity { store: config.store, kind: ImageKind::Root, space: 0, seq, key: &[] };
    let decode = |body: &[u8]| checkpoint_format::decode_root(body).map_err(|e| e.to_string());
    read_image(devices, extent, &identity, decode)
}

/// Reads, checks and decodes one page or root.
fn read_image<T>(
    devices: &mut dyn Devices,
    extent: Extent,
    identity: &Identity<'_>,
    decode: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T, Error> {
    device::read_alone(devices, extent.device, extent.offset, extent.bytes as usize)
        .map_err(|error| error.to_string())
        .and_then(|buffer| {
            let body = image_format::decode(&buffer, identity)?;
            decode(&buffer[body])
        })
        .map_err(|reason| {
            let key = String::from_utf8_lossy(identity.key);
            let what = format!("{:?} {key:?} of space {}", identity.kind, identity.space);
            Damage { device: extent.device, offset: extent.offset, what, reason }.into()
        })
}

impl Core {
    fn assemble(
        config: Config,
        registry: &Registry,
        superblock: Superblock,
        mut log: Log,
        space_map: SpaceMap,
        growable: Vec<bool>,
    ) -> Result<Self, Error> {
        for needed in [TABLE_FORMAT, LARGE_VALUE_FORMAT] {
            if !registry.formats.contains_key(needed) {
                return Err(RequestError::UnknownFormat(needed.to_owned()).into());
            }
        }
        let frontier = superblock.replay_from - 1;
        Ok(Self {
            update_stream: log.open(UPDATE_STREAM)?,
            change_stream: log.open(CHANGE_STREAM)?,
            formats: registry.formats.clone(),
            modifiers: Arc::new(registry.builtins.clone()),
            modifier_records: Vec::new(),
            application_modifiers: registry.modifiers.clone(),
            log,
            directory: Directory::default(),
            arena: Arena::new(config.fold_bytes_min),
            space_map,
            physical: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            sweep: Sweep::new(frontier),
            checkpoint: CheckpointState::after_open(superblock.root_seq),
            superblock,
            publishes: std::collections::VecDeque::new(),
            published: 0,
            accepted: frontier,
            views: Views::default(),
            visitors: Arc::default(),
            cache: Cache::new(config.cache_bytes),
            frozen_bytes: 0,
            dropped: std::collections::VecDeque::new(),
            growth: Growth::new(growable),
            full: false,
            room_events: 0,
            waits_for_log: false,
            closed: None,
            purposes: BTreeMap::new(),
            next_token: 0,
            now_us: 0,
            scratch: Vec::new(),
            statistics: Statistics::default(),
            replaying: false,
            paused: false,
            overdraft_bytes: 0,
            carried: Vec::new(),
            carried_replay: std::collections::VecDeque::new(),
            deferred: Vec::new(),
            config,
        })
    }

    fn load_checkpoint(&mut self, devices: &mut dyn Devices, root: &Root) -> Result<(), Error> {
        self.carried.clone_from(&root.carried);
        self.carried_replay = root.carried.iter().cloned().collect();
        for record in &root.modifiers {
            self.bind_modifier(record.clone());
        }
        if root.spaces.is_empty() {
            self.add_space(SpaceRecord {
                space: QUARANTINE_SPACE,
                companion: QUARANTINE_COMPANION,
                format: TABLE_FORMAT.to_owned(),
                name: QUARANTINE_NAME.to_owned(),
            });
            return Ok(());
        }
        for record in &root.spaces {
            let format = self.format_named(&record.format)?;
            let of_space = root.pages.iter().filter(|page| page.space == record.space);
            let pages = of_space
                .clone()
                .map(|page| Page::restored(page.low.clone(), page.extent, page.image_seq))
                .collect();
            self.directory.restore_space(record.clone(), format, pages);
            for page in of_space {
                let identity = Identity {
                    store: self.config.store,
                    kind: ImageKind::Page,
                    space: page.space,
                    seq: page.image_seq,
                    key: &page.low,
                };
                let decode = |body: &[u8]| {
                    checkpoint_format::decode_page(body, page.space).map_err(|e| e.to_string())
                };
                let placed = read_image(devices, page.extent, &identity, decode)?;
                self.apply_change(&Change { removed: Vec::new(), placed }, Release::Never);
            }
            self.directory.mark_clean(record.space);
        }
        Ok(())
    }

    fn bind_modifier(&mut self, record: ModifierRecord) {
        let known = self.application_modifiers.iter().find(|modifier| {
            modifier.name() == record.name && modifier.version() == record.version
        });
        if let Some(modifier) = known {
            let modifier = Arc::clone(modifier);
            Arc::make_mut(&mut self.modifiers).bind(record.id, modifier);
        }
        if self.modifier_records.iter().all(|known| known.id != record.id) {
            self.modifier_records.push(record);
        }
    }

    /// First pass: everything but updates.
    fn replay_changes(
        &mut self,
        devices: &mut dyn Devices,
        reader: &mut LogReader,
    ) -> Result<(), Error> {
        while let Some(record) = reader.next(devices)? {
            if record.stream != self.change_stream {
                continue;
            }
            let seq = record.seq;
            let payload = record_format::decode(record.payload)
                .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
            match payload {
                Payload::Change(change, _) => {
                    let change = self.not_in_pages(change, seq);
                    self.apply_change(&change, Release::Never);
                }
                Payload::CreateSpace(record) => {
                    self.format_named(&record.format)?;
                    self.add_space(record);
                }
                Payload::DropSpace(space) => self.drop_space_in_replay(space),
                Payload::Modifier(record) => self.bind_modifier(record),
                Payload::Updates(_) => {}
            }
        }
        reader.rewind();
        self.index_places();
        Ok(())
    }

    /// Builds the index of places anew. Changes that some pages hold already and others do not are
    /// replayed in part, so on the way two blocks may seem to be in one place.
    fn index_places(&mut self) {
        self.physical.clear();
        for space in self.directory.spaces() {
            for id in space.pages.iter().flat_map(Page::blocks) {
                if let Some(extent) = self.directory.block(*id).extent {
                    self.physical.insert((extent.device, extent.offset), *id);
                }
            }
        }
    }

    /// What of a change the page images do not hold yet.
    fn not_in_pages(&self, mut change: Change, seq: u64) -> Change {
        let is_new = |space: u32, key: &[u8]| {
            self.directory.page_of(space, key).is_some_and(|page| page.image_seq < seq)
        };
        change.removed.retain(|(space, key)| is_new(*space, key));
        change.placed.retain(|placed| is_new(placed.space, &placed.key));
        change
    }

    fn drop_space_in_replay(&mut self, space: u32) {
        let Some(dropped) = self.directory.remove_space(space) else { return };
        let companion = self.directory.remove_space(dropped.record.companion);
        for space in [Some(dropped), companion].into_iter().flatten() {
            for id in space.pages.iter().flat_map(Page::blocks) {
                let block = self.directory.forget(*id);
                if let Some(extent) = block.extent {
                    self.physical.remove(&(extent.device, extent.offset));
                }
            }
        }
    }

    /// Marks the space of all blocks, of all pages and of the root as used.
    ///
    /// Pages of spaces that were dropped since the checkpoint stay used until the next one.
    fn claim_space(&mut self, root: &Root) -> Result<(), Error> {
        let mut claims: Vec<(Extent, String)> = Vec::new();
        if let Some(extent) = self.superblock.root {
            claims.push((extent, "checkpoint root".to_owned()));
        }
        for page in &root.pages {
            claims.push((page.extent, format!("page of space {}", page.space)));
            if self.directory.space(page.space).is_none() {
                self.checkpoint.outdated.push(page.extent);
            }
        }
        for (extent, what) in claims {
            self.claim(extent, &what)?;
        }
        let spaces = self.directory.spaces();
        let blocks: Vec<_> =
            spaces.flat_map(|space| &space.pages).flat_map(Page::blocks).copied().collect();
        for id in blocks {
            let block = self.directory.block(id);
            let what =
                format!("block {:?} of space {}", String::from_utf8_lossy(&block.key), block.space);
            let Some(extent) = block.extent else { continue };
            self.claim(extent, &what)?;
        }
        Ok(())
    }

    fn claim(&mut self, extent: Extent, what: &str) -> Result<(), Error> {
        self.space_map.claim(extent).map_err(|_| {
            let (device, offset) = (extent.device, extent.offset);
            let reason = format!("its {} bytes overlap another image or the end", extent.bytes);
            Damage { device, offset, what: what.to_owned(), reason }.into()
        })
    }

    /// Second pass: updates that are not inside an image go to the queues.
    fn replay_updates(
        &mut self,
        devices: &mut dyn Devices,
        reader: &mut LogReader,
        access: Access,
    ) -> Result<(), Error> {
        self.replaying = true;
        while let Some(record) = reader.next(devices)? {
            let seq = record.seq;
            self.replay_carried(seq);
            let payload = record_format::decode(record.payload)
                .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
            let (Payload::Updates(mut updates) | Payload::Change(_, mut updates)) = payload else {
                continue;
            };
            loop {
                let next = updates
                    .next_update()
                    .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
                let Some(update) = next else { break };
                self.replay_update(seq, &update, access)?;
            }
            self.accepted = seq;
            if access == Access::ReadWrite && self.queue_bytes() > self.queue_limit_bytes() {
                // The log is read with nothing else in flight. A full store is opened all the same,
                // with more memory than it was given: else nothing could be deleted from it.
                drive::until(self, devices, |core| {
                    let fits = core.queue_bytes() <= core.queue_limit_bytes() / 2;
                    fits || core.full || core.closed.is_some()
                });
                self.come_to_rest(devices);
                if let Some(closed) = &self.closed {
                    return Err(closed.clone().into());
                }
            }
        }
        self.replay_carried(u64::MAX);
        if access == Access::ReadWrite {
            // Runs that replay has started must not be in flight when callers come in: their
            // requests belong to this function's use of the devices.
            self.come_to_rest(devices);
        }
        self.replaying = false;
        self.enqueue_deferred();
        self.overdraft_bytes = self.queue_bytes().saturating_sub(self.queue_limit_bytes());
        Ok(())
    }

    /// Ends all that is on its way, so that nobody else's completions come in between.
    fn come_to_rest(&mut self, devices: &mut dyn Devices) {
        self.paused = true;
        drive::until(self, devices, |core| core.is_quiet() || core.closed.is_some());
        self.paused = false;
    }

    fn replay_update(
        &mut self,
        seq: u64,
        update: &record_format::LoggedUpdate<'_>,
        access: Access,
    ) -> Result<(), Error> {
        let Some(id) = self.route(update.space, update.key) else { return Ok(()) };
        if self.directory.block(id).frontier >= seq && !cfg!(feature = "broken-frontier") {
            return Ok(());
        }
        // Who only looks applies nothing: an update may wait whose modifier is not known here.
        if access == Access::ReadWrite && self.modifiers.get(update.modifier).is_none() {
            let known = self.modifier_records.iter().find(|known| known.id == update.modifier);
            let (name, version) = known.map_or_else(
                || (format!("number {}", update.modifier.0), 0),
                |known| (known.name.clone(), known.version),
            );
            return Err(RequestError::UnknownModifier { name, version }.into());
        }
        self.enqueue(seq, update);
        Ok(())
    }
}

fn malformed_record(
    config: &Config,
    seq: u64,
    malformed: super::format::codec_format::Malformed,
) -> Error {
    let region = config.log_regions[0];
    let what = format!("log record {seq}");
    let reason = format!("checksum holds, but the content is not known here: {malformed}");
    Damage { device: region.device, offset: region.offset, what, reason }.into()
}
