//! The log, a *toy train* (thesis 6.2): a ring on each of one or more log devices, fed with batches
//! through a short pipeline, so that small records become durable at a device's full write rate.
//!
//! It is a synchronous state machine: time comes in as `now_us`, writes leave as
//! [`Request`](crate::device::Request)s and return as [`Completion`](crate::device::Completion)s.
//!
//! Steps of a record:
//! 1. [`Log::append`] copies it once, into the open batch (*accumulate*). If the next record does
//!    not fit into that batch, it is sealed and queued.
//! 2. [`Log::dispatch`] gives batches to devices (*submit*): the batch's number, device and address
//!    are bound here, as late as possible. Each device has `depth` places in its pipeline, in use
//!    until a write completes; free places queue first in, first out, so the device that completed
//!    first takes the next batch. A device has one place until its first completion, which staggers
//!    several devices. While its device writes, an open batch that is not full waits until recently
//!    active committers have queued again.
//! 3. [`Log::complete`] frees the place and advances [`Log::durable`], strictly in batch order.
//! 4. [`Log::release`] sets what is no longer needed; whole segments become free.
//! 5. [`recover`] finds the end after a crash; [`LogReader`] replays, then becomes the new [`Log`].
//!
//! A ring can be extended while it is in use, if its owner requests that and its device can be
//! extended ([`Log::want`]).
//!
//! With [`LogMode::Full`] or [`LogMode::Sentinel`] the log never leaves a device idle: batches
//! without records keep the head of a rotating drive near the cursor of its ring (*sparse mode*,
//! thesis 6.2.5). See `writer/train.rs`. With [`LogMode::Sentinel`] or [`LogMode::Predict`] a lone
//! batch goes where the head will be: see `writer/head.rs`.
//!
//! Invariants:
//! - `durable` never passes a batch that is not on stable media.
//! - A segment is entered only if every sequence in it is below both the released sequence and the
//!   youngest durable one: what recovery needs, and the youngest durable batch, are never
//!   overwritten. A batch without records counts as the record that follows it, because it is a
//!   link of the chain that leads there; so the links from the record before the released sequence
//!   to the youngest batch are all there, or all from the first batch on that begins with it.
//! - Every accepted record can be dispatched without any further release: see `Quota`.
//! - At most `8 * devices * depth` batches are beyond the youngest durable one. If there may be
//!   batches without records among them, they enter at most one segment of each ring, so that
//!   recovery finds all of them.
//!
//! Deviation from the thesis: without a train, batches have variable sizes. A lone record is
//! written as one page, not as a padded 128 KiB batch. The thesis pads because only fixed strides
//! keep a disk head's position known; on solid-state devices padding would only cost bandwidth. The
//! size of a page, a logical block of the device or 4096 bytes, is fixed when the log is created.

mod assembly;
#[doc(hidden)]
pub mod format;
mod media;
mod reader;
mod recover;
mod ring;
mod seq;
mod windows;
mod writer;

pub use format::RecordRef;
pub use reader::{BatchRecords, LogReader, Record, read_back};
pub use recover::recover;
pub use seq::Seq;
pub use writer::{Log, LogRoom};

use serde::{Deserialize, Serialize};

use crate::device::{Bulk, DeviceError, DeviceId, Devices};
use crate::error::{Location, RequestError};
use format::{
    BATCH_HEADER_BYTES, DEVICES_MAX, PAGE_BYTES_MAX, PAGE_BYTES_MIN, RECORD_HEADER_BYTES,
};

/// The bit that is set in every token of the log; other users of the bank keep it clear, except for
/// `u64::MAX`, the token of [`run_alone`](crate::device::run_alone), which the log never uses.
pub const LOG_TOKEN_BIT: u64 = 1 << 63;

/// Regions, segments and batches are multiples of this many bytes, whatever the page size.
const UNIT_BYTES: u64 = PAGE_BYTES_MAX as u64;
/// Most batches in flight per device.
pub const DEPTH_MAX: u8 = 16;
/// Least number of segments of a region, besides one for each batch in flight.
pub const SPARE_SEGMENTS: u64 = 2;

/// One stream of records: the crc32c of its name. Nothing about streams is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The identity of the stream called `name`, stable over time and stores.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(crc32c::crc32c(name.as_bytes()))
    }
}

/// Part of a device that the log uses as a ring, in bytes: multiples of 4096. Bytes after the last
/// whole segment stay unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRegion {
    /// The device.
    pub device: DeviceId,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl LogRegion {
    /// The region with its present length, given by the length of its device: `self` has the
    /// maximum length, in segments of `segment_bytes`.
    #[must_use]
    pub fn present(self, devices: &dyn Devices, segment_bytes: u32) -> Self {
        let room = devices.geometry(self.device).size_bytes.saturating_sub(self.offset);
        let whole = room - room % u64::from(segment_bytes);
        Self { bytes: if room < self.bytes { whole } else { self.bytes }, ..self }
    }
}

/// What the log writes while there are no records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogMode {
    /// Nothing: right for solid-state devices, and for drives that hold other things too.
    #[default]
    Idle,
    /// Full batches without records, one after another, so that the head of a rotating drive stays
    /// over the place of the next record (thesis 6.2.5, full Beluga): for drives that hold only the
    /// log. The writing stops when less than half of the log is free, and goes on when there is
    /// more.
    Full,
    /// Single pages without records, *sentinels*, at a distance from one another (thesis 6.2.5, low
    /// power): as [`LogMode::Full`], but the drive writes a small part of its rate, and a lone
    /// record waits longer. Its place is predicted as in [`LogMode::Predict`]; sentinels keep the
    /// prediction exact.
    Sentinel,
    /// Nothing, but a lone record is written where the head of the drive is about to be, not right
    /// behind the one before (Trail: BOSC, section 4.1). The log measures how the drive moves with
    /// about a hundred single pages after the open, with records or without; on a device where that
    /// is not possible it is as [`LogMode::Idle`]. Space of the ring is used as by
    /// [`LogMode::Full`] while records arrive, until less than a fourth of the log is free.
    Predict,
}

impl LogMode {
    /// Its name in lower case, as in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Full => "full",
            Self::Sentinel => "sentinel",
            Self::Predict => "predict",
        }
    }

    /// Whether batches may begin behind the cursor, where the head is expected.
    fn skips(self) -> bool {
        match self {
            Self::Sentinel | Self::Predict => true,
            Self::Idle | Self::Full => false,
        }
    }
}

/// How the surface of a drive moves under its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Motion {
    /// Time of a turn, in nanoseconds; above 0.
    pub turn_ns: u64,
    /// Bytes that pass in a turn: those of a track; above 0.
    pub turn_bytes: u64,
}

impl Motion {
    /// Bytes that pass in this time.
    fn bytes_in(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.turn_bytes) / u128::from(self.turn_ns)) as u64
    }

    /// Time in which these bytes pass, in nanoseconds.
    fn ns_for(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.turn_ns) / u128::from(self.turn_bytes)) as u64
    }
}

/// Configuration of a log. Offsets of regions, segment size, page size and store are fixed when it
/// is created; the rest may differ at every open. For the length of regions see
/// [`LogRegion::present`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Identity of the store, in every batch.
    pub store: [u8; 16],
    /// Higher, at every open, than at any previous open, and durable elsewhere before the first
    /// append; from 1.
    pub epoch: u64,
    /// Capacity of a batch in bytes, header included: a multiple of 4096, at most a segment.
    pub batch_bytes: u32,
    /// Writes in flight per device, 1 to 16. The thesis has 2.
    pub depth: u8,
    /// Longest time in microseconds that a relaxed record waits for others to share its batch.
    pub delay_us_max: u64,
    /// One to eight regions that do not overlap.
    pub regions: Vec<LogRegion>,
    /// Length of a segment in bytes: a multiple of 4096, at most 1 GiB. Each region has at least
    /// `max(4, depth + 2)` segments; about 64 is good: opening reads the first page of each.
    pub segment_bytes: u32,
    /// Batches are whole pages of this many bytes: a power of two from 512 to 4096, and no less
    /// than a logical block of any of the devices. A region has less than `2^32` of them.
    pub page_bytes: u32,
    /// What the log writes while there are no records, once [`Log::start_train`] was called.
    pub mode: LogMode,
    /// How all devices move, where that is known; if not, it is measured. It only matters with
    /// [`LogMode::Sentinel`] and [`LogMode::Predict`].
    pub motion: Option<Motion>,
    /// How much of the log recovery keeps in memory so that its next passes need not read it again,
    /// in bytes, besides two requests of `bulk` for each device. May be 0.
    pub kept_bytes: usize,
    /// Requests that make the log, and with which recovery reads it.
    pub bulk: Bulk,
}

impl LogConfig {
    /// 128 KiB batches in pages of 4096 bytes, two in flight per device, a delay of at most 200
    /// microseconds, 8 MiB kept by recovery, requests of 1 MiB.
    #[must_use]
    pub fn new(store: [u8; 16], epoch: u64, regions: Vec<LogRegion>, segment_bytes: u32) -> Self {
        Self {
            store,
            epoch,
            batch_bytes: segment_bytes.min(128 << 10),
            depth: 2,
            delay_us_max: 200,
            regions,
            segment_bytes,
            page_bytes: PAGE_BYTES_MAX,
            mode: LogMode::Idle,
            motion: None,
            kept_bytes: 8 << 20,
            bulk: Bulk::default(),
        }
    }

    /// The location of the batch with this header: device, and offset in bytes there.
    fn location_of(&self, header: &format::BatchHeader) -> Location {
        let region = self.regions[usize::from(header.device)];
        let offset = region.offset + u64::from(header.page) * u64::from(self.page_bytes);
        Location { device: region.device, offset }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] with the setting and its range.
    pub fn check(&self) -> Result<(), RequestError> {
        let unit = UNIT_BYTES as u32;
        let bad = |setting: &'static str, reason: String| {
            Err(RequestError::BadConfig { setting, reason })
        };
        if self.epoch == 0 {
            return bad("epoch", "0; must be at least 1".to_owned());
        }
        if self.segment_bytes == 0
            || !self.segment_bytes.is_multiple_of(unit)
            || self.segment_bytes > 1 << 30
        {
            let reason = format!("{}; a multiple of 4096 up to 1 GiB", self.segment_bytes);
            return bad("segment_bytes", reason);
        }
        let batch = self.batch_bytes;
        if batch == 0 || !batch.is_multiple_of(unit) || batch > self.segment_bytes {
            return bad("batch_bytes", format!("{batch}; a multiple of 4096 up to segment_bytes"));
        }
        let page = self.page_bytes;
        if !page.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page) {
            return bad("page_bytes", format!("{page}; a power of two from 512 to 4096"));
        }
        let request = self.bulk.request_bytes;
        if request == 0 || !request.is_multiple_of(unit) {
            return bad("bulk.request_bytes", format!("{request}; a multiple of 4096"));
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return bad("depth", format!("{}; 1 to {DEPTH_MAX}", self.depth));
        }
        if !(1..=DEVICES_MAX).contains(&self.regions.len()) {
            return bad("regions", format!("{} given; 1 to {DEVICES_MAX}", self.regions.len()));
        }
        for (index, region) in self.regions.iter().enumerate() {
            if let Err(reason) = self.check_region(index, region) {
                return bad("regions", format!("region {index}: {reason}"));
            }
        }
        Ok(())
    }

    /// Least number of segments of a region.
    fn segments_min(&self) -> u64 {
        (u64::from(self.depth) + SPARE_SEGMENTS).max(4)
    }

    /// Least length of a region in bytes.
    #[must_use]
    pub fn region_bytes_min(&self) -> u64 {
        self.segments_min() * u64::from(self.segment_bytes)
    }

    fn check_region(&self, index: usize, region: &LogRegion) -> Result<(), String> {
        let LogRegion { device, offset, bytes } = *region;
        let segments_min = self.segments_min();
        if !offset.is_multiple_of(UNIT_BYTES) || !bytes.is_multiple_of(UNIT_BYTES) {
            return Err("offset and bytes must be multiples of 4096".to_owned());
        }
        if bytes / u64::from(self.segment_bytes) < segments_min {
            return Err(format!("{bytes} bytes; at least {segments_min} segments are needed"));
        }
        let limit = u64::from(u32::MAX) * u64::from(self.page_bytes);
        if bytes > limit || offset.checked_add(bytes).is_none() {
            let page = self.page_bytes;
            return Err(format!(
                "{bytes} bytes at {offset}; at most {limit} bytes, in pages of {page}"
            ));
        }
        let overlaps = |other: &LogRegion| {
            other.device == device
                && other.offset < offset + bytes
                && offset < other.offset.saturating_add(other.bytes)
        };
        if self.regions[..index].iter().any(overlaps) {
            return Err("overlaps an earlier region".to_owned());
        }
        Ok(())
    }

    /// Checks that every device can write a page.
    fn check_devices(&self, devices: &dyn Devices) -> Result<(), RequestError> {
        for region in &self.regions {
            let block = devices.geometry(region.device).logical_block_bytes;
            if block > self.page_bytes {
                let (device, page) = (region.device.0, self.page_bytes);
                let reason = format!(
                    "{page} bytes, but device {device} has blocks of {block}: move the log to a \
                     device with blocks of at most {page} bytes, or restore a backup"
                );
                return Err(RequestError::BadConfig { setting: "log page", reason });
            }
        }
        Ok(())
    }

    /// Longest payload in bytes that one record can have: it fills a segment.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        let room = self.segment_bytes as usize - BATCH_HEADER_BYTES - RECORD_HEADER_BYTES;
        room.min(format::PAYLOAD_BYTES_MAX)
    }
}

/// Whether a caller waits for a record to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Written as soon as a device has a free place.
    Now,
    /// Written when its batch is full, or urgent for another record, or after `delay_us_max`.
    Relaxed,
}

/// How much of the ring an append may use.
///
/// Batches get their addresses late, so the space of an append is bounded from above: `k` waiting
/// batches of `P` bytes together enter at most `min(k, devices whose present segment has less than
/// P bytes left + floor(2 P / segment_bytes))` further segments, because the bytes of a segment and
/// of the batch that did not fit into it exceed `segment_bytes`. An append is refused unless that
/// many segments are free, beyond the reserve for [`Quota::User`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Leaves a reserve of `max(segments / 8, 2)` free segments over all devices.
    User,
    /// May use everything: for the records that let log space be released.
    Internal,
}

/// The reason why an append was refused. Nothing was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// No space in the ring: release up to [`Log::oldest_segment_last_seq`], then try again.
    Full,
    /// The queue of sealed batches is full: dispatch, wait for a completion, try again.
    Busy,
    /// The payload exceeds `limit` bytes: split it.
    TooLong {
        /// Longest payload in bytes.
        limit: usize,
    },
    /// A write failed earlier; the log accepts nothing more. Close the store and open it again.
    Failed,
}

/// A log write that failed. The log is poisoned: every append fails from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFailure {
    /// The device.
    pub device: DeviceId,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// What the device reported.
    pub error: DeviceError,
}

#[cfg(test)]
mod tests;
