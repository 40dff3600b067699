//! Device profiles: what a device does, as it was measured. Virtual disks and drives behind
//! controllers often misreport their properties, so nothing but measurements counts.
//!
//! A [`Profile`] is data: figures that choices follow from, and the curves behind them. [`measure`]
//! makes one, in seconds or, in full, in a minute or more. [`probe_block_writes`] compares durable
//! writes of less than 4 KiB with those of 4 KiB. Invariants: only the range that is given is
//! written, and its content is lost; the clock is a parameter, and in simulation it is virtual.

mod block_writes;
mod curve;
mod load;
mod measure;
mod plan;
mod rows;

use serde::{Deserialize, Serialize};

use super::{Parallelism, Stretch, Stripes, Tracks};
pub use block_writes::{BlockWrites, probe_block_writes};
pub use curve::{Access, Curve, Load, Order, Varies};
pub use load::Range;
pub use measure::{Measurement, Progress, measure};

/// How thoroughly a device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// What the settings of a store follow from. Cost: about three seconds; the first 256 MiB of
    /// the range are written, and then parts of it again.
    Short,
    /// All curves, and the stripe unit of an array and how many reads it serves in parallel. Cost:
    /// about a minute on a solid-state device, some ten on a rotating drive; the first GiB of the
    /// range is written, and then parts of it again and again.
    Full,
}

/// What a device does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What was measured, for people.
    #[serde(default)]
    pub name: String,
    /// Numbers of the devices of a store that are like this; none if it is of no store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<u16>,
    /// How thoroughly.
    pub effort: Effort,
    /// Bytes of the device.
    pub size_bytes: u64,
    /// Smallest unit of I/O in bytes, as the host reports it.
    pub logical_block_bytes: u32,
    /// Smallest unit that is written without a read, in bytes, as the host reports it.
    pub physical_block_bytes: u32,
    /// Whether access time depends on distance.
    pub rotational: bool,
    /// Why it counts as rotational or not, for people.
    pub reason: String,
    /// Reads.
    pub reads: Reads,
    /// Writes; `None` if only reads were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
    /// The stripe unit, and how many reads the device serves in parallel; `None` if that was not
    /// looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<Parallelism>,
    /// The tracks of a rotating drive; `None` if they were not looked for, and without any if none
    /// were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracks: Option<Tracks>,
    /// Regions of a rotating drive, in order.
    #[serde(default, rename = "region", skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Region>,
    /// The curves that the figures come from.
    #[serde(default, rename = "curve", skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
}

/// How a device reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Most bytes per second, in sequence.
    pub streaming_bytes_per_second: u64,
    /// The smallest requests that reach 90 % of that with four in flight, in bytes.
    pub streaming_request_bytes: u64,
    /// The fewest random reads of 16 KiB in flight that reach 90 % of the most of them per second.
    pub requests_in_flight: u32,
    /// Median time of a random read of 4 KiB by itself, in microseconds.
    pub small_us: u64,
    /// The time within which 99 % of them complete.
    pub small_p99_us: u64,
}

/// How a device writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// Most bytes per second, in sequence, without waiting for stable media.
    pub streaming_bytes_per_second: u64,
    /// The smallest requests that reach 90 % of that with four in flight, in bytes.
    pub streaming_request_bytes: u64,
    /// Most bytes per second if half of the requests read one range in sequence and the others
    /// write another one: reads and writes together.
    pub mixed_bytes_per_second: u64,
    /// The smallest requests that reach 90 % of that, in bytes.
    pub mixed_request_bytes: u64,
    /// The smallest requests that reach 90 % of the streaming rate at random places, in bytes: what
    /// erase blocks or zones are, where they show. `None` if none do, or it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_request_bytes: Option<u64>,
    /// Median time of a durable write of 4 KiB at a random place, by itself, in microseconds.
    pub small_durable_us: u64,
    /// The time within which 99 % of them complete.
    pub small_durable_p99_us: u64,
    /// Median time of a durable write of 4 KiB beside a stream of cached writes.
    pub durable_beside_stream_us: u64,
    /// Median time of a flush after a write of 1 MiB, in microseconds.
    pub flush_us: u64,
    /// The smallest durable writes, one behind the other with two in flight, that reach 90 % of the
    /// most bytes per second: how long a batch of the log is worth being.
    pub log_batch_bytes: u64,
    /// Durable writes of less than 4 KiB compared with those of 4 KiB, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_writes: Option<BlockWrites>,
}

/// A region of a rotating drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Its first byte.
    pub offset: u64,
    /// Bytes read per second, in sequence.
    pub read_bytes_per_second: u64,
    /// Bytes written per second, in sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_second: Option<u64>,
    /// As [`Writes::log_batch_bytes`], there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_batch_bytes: Option<u64>,
}

/// The figures of a [`Profile`] that a store keeps in its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Bandwidth of sequential reads in bytes per second.
    pub sequential_read_bytes_per_second: u64,
    /// Bandwidth of sequential writes in bytes per second.
    pub sequential_write_bytes_per_second: u64,
    /// Median latency of a read of 4 KiB at a random place, in microseconds.
    pub random_read_us: u64,
    /// Median latency of a stable write of 4 KiB at a random place, in microseconds.
    pub sync_write_us: u64,
    /// Whether access time depends on distance.
    pub rotational: bool,
    /// Why it counts as rotational or not, for people.
    pub reason: String,
    /// Latency of small durable writes compared with those of 4 KiB, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_writes: Option<BlockWrites>,
}

/// Most requests in flight that a profile may ask for.
const REQUESTS_IN_FLIGHT_MAX: u32 = 256;
/// Longest request that a profile may ask for, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

impl Profile {
    /// The figures for the description of a store; `None` if writes were not measured.
    #[must_use]
    pub fn figures(&self) -> Option<DeviceProfile> {
        let writes = self.writes.as_ref()?;
        Some(DeviceProfile {
            sequential_read_bytes_per_second: self.reads.streaming_bytes_per_second,
            sequential_write_bytes_per_second: writes.streaming_bytes_per_second,
            random_read_us: self.reads.small_us,
            sync_write_us: writes.small_durable_us,
            rotational: self.rotational,
            reason: self.reason.clone(),
            block_writes: writes.block_writes,
        })
    }

    /// The boundaries that an access should not cross, as units of one length: the first byte, the
    /// bytes of each, and how many. Tracks, or else stripe units; nothing if neither is known.
    #[must_use]
    pub fn units(&self) -> Vec<(u64, u64, u64)> {
        if let Some(tracks) = self.tracks.as_ref().filter(|tracks| !tracks.stretches.is_empty()) {
            let unit = |of: &Stretch| (of.offset, of.track_bytes, of.tracks);
            return tracks.stretches.iter().map(unit).collect();
        }
        let stripes = self.parallelism.and_then(|found| found.stripes);
        let unit = |found: Stripes| {
            (0, found.unit_bytes, self.size_bytes.div_ceil(found.unit_bytes.max(1)))
        };
        stripes.map(unit).into_iter().collect()
    }

    /// Checks that choices can follow from the figures, which people may have edited.
    ///
    /// # Errors
    /// The figure that is out of range, and its range, as text for people.
    pub fn check(&self) -> Result<(), String> {
        let Reads { streaming_bytes_per_second, streaming_request_bytes, .. } = self.reads;
        check_rate("reads.streaming_bytes_per_second", streaming_bytes_per_second)?;
        check_request("reads.streaming_request_bytes", streaming_request_bytes)?;
        let in_flight = self.reads.requests_in_flight;
        if !(1..=REQUESTS_IN_FLIGHT_MAX).contains(&in_flight) {
            let most = REQUESTS_IN_FLIGHT_MAX;
            return Err(format!("reads.requests_in_flight is {in_flight}; give 1 to {most}"));
        }
        if let Some(writes) = &self.writes {
            check_rate("writes.streaming_bytes_per_second", writes.streaming_bytes_per_second)?;
            check_rate("writes.mixed_bytes_per_second", writes.mixed_bytes_per_second)?;
            check_request("writes.streaming_request_bytes", writes.streaming_request_bytes)?;
            check_request("writes.mixed_request_bytes", writes.mixed_request_bytes)?;
            check_request("writes.log_batch_bytes", writes.log_batch_bytes)?;
        }
        for region in &self.regions {
            let bytes = region.log_batch_bytes.unwrap_or(4096);
            check_request("log_batch_bytes of a region", bytes)?;
        }
        let mut known = 0;
        for (offset, unit_bytes, count) in self.units() {
            let bytes = unit_bytes.checked_mul(count).filter(|bytes| *bytes > 0);
            let end = bytes.and_then(|bytes| bytes.checked_add(offset));
            known = end.filter(|_| offset >= known).ok_or_else(|| {
                format!(
                    "{count} tracks or stripe units of {unit_bytes} bytes at {offset}: give them \
                     in order, none inside of others, and none without a length"
                )
            })?;
        }
        self.curves.iter().try_for_each(Curve::check)
    }
}

fn check_rate(name: &str, bytes_per_second: u64) -> Result<(), String> {
    match bytes_per_second {
        0 => Err(format!("{name} is 0; give at least 1")),
        _ => Ok(()),
    }
}

fn check_request(name: &str, bytes: u64) -> Result<(), String> {
    if (4096..=REQUEST_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(4096) {
        return Ok(());
    }
    Err(format!("{name} is {bytes}; give a multiple of 4096 from 4096 to {REQUEST_BYTES_MAX}"))
}
