//! A solid-state device as data: flash, mapping, cleaning, buffer and interface.
//!
//! The shape is that of the files in `crates/lab/drives/solid-state`, whose README gives the
//! meaning of every key. Times are nanoseconds, rates 10^6 bytes a second, sizes bytes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::drive::{BadDrive, Source, Status, ensure};

/// A solid-state device. [`check`](SolidStateDescription::check) says whether it can be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolidStateDescription {
    /// Version of the shape: 1.
    pub schema: u32,
    /// Short name, unique among devices.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Model number of the maker.
    pub model: String,
    /// Where the values come from.
    pub status: Status,
    /// What the host sees.
    pub capacity: Capacity,
    /// The flash memory.
    pub flash: Flash,
    /// From addresses of the host to places in flash.
    pub mapping: Mapping,
    /// When blocks are cleaned.
    pub cleaning: Cleaning,
    /// The buffer for writes.
    pub buffer: WriteBuffer,
    /// The connection to the host.
    pub host: Host,
    /// The state at time 0.
    #[serde(default)]
    pub start: Start,
    /// Published figures to compare the model with; they are no inputs.
    #[serde(default)]
    pub datasheet: BTreeMap<String, f64>,
    /// Which values are known, by key.
    #[serde(default)]
    pub source: BTreeMap<String, Source>,
}

/// What the host sees.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bytes that the host may use.
    pub bytes: u64,
    /// The smallest command: 512 or 4096.
    pub logical_block_bytes: u32,
}

/// The flash memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Channels.
    pub channels: u32,
    /// Dies on each channel. A die does one thing at a time.
    pub dies_per_channel: u32,
    /// Erase blocks of a die that hold data, spare ones included.
    pub blocks_per_die: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Bytes that a die reads or programs at once, on all planes together.
    pub page_bytes: u32,
    /// Time to read a page from the cells.
    pub read_ns: u64,
    /// Time to program a page.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// Rate of a channel.
    pub channel_mb_s: u32,
}

/// From addresses of the host to places in flash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The unit of the mapping; a page holds a whole number of them.
    pub unit_bytes: u32,
    /// Time to make the mapping persistent, once data that must survive is programmed.
    pub persist_ns: u64,
}

/// When blocks are cleaned. Both are per die; open blocks count with the slots that are free.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cleaning {
    /// With less free than these blocks, at least 4, cleaning keeps pace with the host.
    pub free_blocks_low: u32,
    /// With less free than these blocks, a die that has nothing else to do cleans.
    pub free_blocks_idle: u32,
}

/// The buffer for writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBuffer {
    /// Its size, at least a page: data that is not yet programmed.
    pub bytes: u64,
    /// Whether a write is complete when it is in the buffer.
    pub write_back: bool,
    /// Whether the buffer survives a power cut, so that stable writes and flushes do not wait.
    pub power_protected: bool,
}

/// The connection to the host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Time in which the controller begins one command, and no other.
    pub command_ns: u64,
    /// Time of every command, besides, in which the device also serves others.
    pub latency_ns: u64,
    /// Rate of the interface.
    pub mb_s: u32,
    /// Whether data crosses in both directions at once.
    pub full_duplex: bool,
    /// Its name.
    #[serde(default)]
    pub interface: Option<String>,
}

/// The state of a device at time 0.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The part of the capacity that was written, from address 0 on: 0 to 100.
    pub filled_percent: u32,
    /// In which order.
    pub order: FillOrder,
}

/// The order of the writes before time 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillOrder {
    /// Once, by ascending address.
    #[default]
    Sequential,
    /// At random and so often that cleaning is in its steady state.
    Random,
}

/// The numbers that the model computes with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) dies: u32,
    /// Of a die.
    pub(super) blocks: u32,
    /// Units of a block.
    pub(super) slots: u32,
    /// Units of a page.
    pub(super) page_slots: u32,
    pub(super) unit_bytes: u64,
    /// Units that the host may use, the last one perhaps only in part.
    pub(super) units: u32,
}

impl Geometry {
    /// The place of a slot of a block. Places count along blocks, then dies.
    pub(super) fn place(&self, die: u32, block: u32, slot: u32) -> u32 {
        (die * self.blocks + block) * self.slots + slot
    }

    /// The die, block and slot of a place.
    pub(super) fn parts(&self, place: u32) -> (u32, u32, u32) {
        let block = place / self.slots;
        (block / self.blocks, block % self.blocks, place % self.slots)
    }

    /// The first place of the page of a place.
    pub(super) fn page(&self, place: u32) -> u32 {
        // Blocks are whole pages.
        place - place % self.page_slots
    }
}

/// Time in which these bytes pass, rounded up.
pub(super) fn transfer_ns(bytes: u64, mb_s: u32) -> u64 {
    (bytes * 1000).div_ceil(u64::from(mb_s))
}

impl SolidStateDescription {
    /// Whether the description is complete and consistent.
    ///
    /// # Errors
    /// [`BadDrive`] with the first value that is wrong: correct the file.
    pub fn check(&self) -> Result<(), BadDrive> {
        let schema = self.schema;
        ensure(schema == 1, || format!("schema is {schema}, and only 1 is known"))?;
        let sector = self.capacity.logical_block_bytes;
        ensure(sector == 512 || sector == 4096, || {
            format!("capacity.logical_block_bytes is {sector}, and must be 512 or 4096")
        })?;
        self.check_counts()?;
        self.check_times()?;
        self.check_sizes()?;
        let percent = self.start.filled_percent;
        ensure(percent <= 100, || {
            format!("start.filled_percent is {percent}, and must be 0 to 100")
        })
    }

    fn check_counts(&self) -> Result<(), BadDrive> {
        let counts = [
            ("flash.channels", self.flash.channels, 1024),
            ("flash.dies_per_channel", self.flash.dies_per_channel, 1024),
            ("flash.blocks_per_die", self.flash.blocks_per_die, 1 << 24),
            ("flash.pages_per_block", self.flash.pages_per_block, 1 << 16),
            ("flash.channel_mb_s", self.flash.channel_mb_s, 1_000_000),
            ("cleaning.free_blocks_low", self.cleaning.free_blocks_low, 1 << 16),
            ("cleaning.free_blocks_idle", self.cleaning.free_blocks_idle, 1 << 16),
            ("host.mb_s", self.host.mb_s, 1_000_000),
        ];
        for (key, count, most) in counts {
            ensure((1..=most).contains(&count), || {
                format!("{key} is {count}, and must be 1 to {most}")
            })?;
        }
        let Cleaning { free_blocks_low: low, free_blocks_idle: idle } = self.cleaning;
        // The block that is being cleaned, the last free one, and two that are open.
        ensure(low >= 4, || format!("cleaning.free_blocks_low is {low}, and must be at least 4"))?;
        ensure(low <= idle, || {
            format!("cleaning.free_blocks_low is {low}, above free_blocks_idle, {idle}")
        })
    }

    fn check_times(&self) -> Result<(), BadDrive> {
        let times = [
            ("flash.read_ns", self.flash.read_ns),
            ("flash.program_ns", self.flash.program_ns),
            ("flash.erase_ns", self.flash.erase_ns),
            ("mapping.persist_ns", self.mapping.persist_ns),
            ("host.command_ns", self.host.command_ns),
            ("host.latency_ns", self.host.latency_ns),
        ];
        let most = 60_000_000_000;
        let bad = times.into_iter().find(|(_, time)| *time > most);
        bad.map_or(Ok(()), |(key, time)| {
            Err(BadDrive(format!("{key} is {time}, and must be 0 to {most}")))
        })
    }

    fn check_sizes(&self) -> Result<(), BadDrive> {
        let Flash { page_bytes: page, pages_per_block, blocks_per_die, .. } = self.flash;
        let unit = self.mapping.unit_bytes;
        ensure(unit >= 512 && unit.is_power_of_two(), || {
            format!("mapping.unit_bytes is {unit}, and must be 512 or a greater power of two")
        })?;
        ensure(page >= unit && page.is_multiple_of(unit), || {
            format!("flash.page_bytes is {page}, and must be a multiple of the unit, {unit}")
        })?;
        ensure(self.buffer.bytes >= u64::from(page), || {
            format!("buffer.bytes is {}, and must be at least a page, {page}", self.buffer.bytes)
        })?;
        let (bytes, sector) = (self.capacity.bytes, self.capacity.logical_block_bytes);
        ensure(bytes > 0 && bytes.is_multiple_of(u64::from(sector)), || {
            format!("capacity.bytes is {bytes}, and must be a multiple of {sector}, above 0")
        })?;
        let dies = u128::from(self.dies());
        let block = u128::from(page) * u128::from(pages_per_block);
        let all = dies * u128::from(blocks_per_die) * block;
        // Places and two marks fit into 32 bits.
        ensure(all / u128::from(unit) < u128::from(u32::MAX - 1), || {
            "flash holds 2^32 units of the mapping or more: choose a greater mapping.unit_bytes"
                .to_owned()
        })?;
        // Two blocks of a die are open, one is kept for cleaning; with one more than these and
        // with those that must be free, there always is a block with something to gain.
        let spare = u128::from(self.cleaning.free_blocks_idle + 4) * dies * block;
        ensure(u128::from(bytes) + spare <= all, || {
            format!(
                "capacity.bytes is {bytes}, and {} blocks a die must be spare: flash has {all} \
                     bytes, and needs {}",
                self.cleaning.free_blocks_idle + 4,
                u128::from(bytes) + spare
            )
        })
    }

    fn dies(&self) -> u32 {
        self.flash.channels * self.flash.dies_per_channel
    }

    pub(super) fn geometry(&self) -> Geometry {
        let page_slots = self.flash.page_bytes / self.mapping.unit_bytes;
        let unit_bytes = u64::from(self.mapping.unit_bytes);
        Geometry {
            dies: self.dies(),
            blocks: self.flash.blocks_per_die,
            slots: page_slots * self.flash.pages_per_block,
            page_slots,
            unit_bytes,
            units: self.capacity.bytes.div_ceil(unit_bytes) as u32,
        }
    }
}
