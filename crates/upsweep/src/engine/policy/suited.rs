//! Sizes and numbers of requests that suit the devices of a store.

use crate::device::{Profile, Stripes};
use crate::placement::Boundaries;

/// Bytes of a run, of a batch of the log and of a request of a scan where no device was measured.
const RUN_BYTES: u64 = 512 << 10;
const LOG_BATCH_BYTES: u64 = 128 << 10;
const SCAN_REQUEST_BYTES: u64 = 256 << 10;
/// The gap to read over on a rotating drive of which nothing else is known: less than passes under
/// the head in a turn.
const GAP_BYTES: u64 = 256 << 10;
/// Bounds of what a measurement may ask for, so that buffers do not take the memory of waiting
/// updates. Of rotating drives longer requests are better without end.
const RUN_BYTES_RANGE: (u64, u64) = (128 << 10, 4 << 20);
const LOG_BATCH_BYTES_RANGE: (u64, u64) = (64 << 10, 1 << 20);
const SCAN_REQUEST_BYTES_RANGE: (u64, u64) = (128 << 10, 1 << 20);
/// The least such request that goes on where the head is: a measurement in short knows no smaller
/// ones.
const FOLLOWING_BYTES_MIN: u64 = 64 << 10;
const GAP_BYTES_RANGE: (u64, u64) = (16 << 10, 512 << 10);
const BULK_REQUEST_BYTES_RANGE: (u64, u64) = (1 << 20, 4 << 20);
/// Profiles are measured with up to 64 requests in flight. Where nothing else waits, more than it
/// takes do no harm.
const BULK_REQUESTS_RANGE: (u64, u64) = (64, 256);
/// Images are kept from straddling the boundaries of units of at least so many blocks.
const UNIT_BLOCKS_MIN: u64 = 4;

/// What suits the devices of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suited {
    /// Bytes of a run from which on longer ones are hardly faster: of the smallest requests that
    /// stream on every data device while others are written.
    pub run_bytes: u64,
    /// Bytes of a batch from which on longer ones are hardly faster, on every log device.
    pub log_batch_bytes: u64,
    /// Bytes of a request of a scan from which on longer ones are hardly faster, on every data
    /// device: half of those that stream alone, as several are in flight. On a rotating drive that
    /// counts beside other requests, between which it moves the head: alone it reads ahead itself,
    /// and any length will do.
    pub scan_request_bytes: u64,
    /// Bytes of a request from which on longer ones are hardly faster on every rotating drive, if
    /// it goes on where the last one ended: the drive reads ahead itself. `None` if none was
    /// measured.
    pub following_request_bytes: Option<u64>,
    /// Bytes of a stripe over all drives of an array, of the longest of them; 0 without one. A
    /// profile alone does not tell: its stripe units have to hold. See [`stripe_bytes`].
    pub stripe_bytes: u64,
    /// The longest gap that a request reads over, in bytes: what every rotating drive streams in
    /// the time of a small read. Other devices read what is on both sides by itself.
    pub gap_bytes: u64,
    /// Bytes of a request from which on longer ones are hardly faster where nothing else waits, on
    /// every device, for reads and for writes.
    pub bulk_request_bytes: u64,
    /// Requests in flight from which on more are hardly faster, likewise.
    pub bulk_requests_in_flight: usize,
}

/// Bytes of a stripe over all drives of an array with this profile; 0 without stripe units.
#[must_use]
pub fn stripe_bytes(profile: &Profile) -> u64 {
    let stripes = profile.parallelism.and_then(|found| found.stripes);
    stripes.map_or(0, |Stripes { unit_bytes, ways, .. }| unit_bytes.saturating_mul(ways))
}

/// The boundaries of a data device with this profile that images should not straddle: none if
/// images would leave too much of the units.
#[must_use]
pub fn boundaries(profile: &Profile, block_bytes: u32) -> Boundaries {
    let unit_bytes_min = UNIT_BLOCKS_MIN * u64::from(block_bytes);
    let units = profile.units().into_iter().filter(|unit| unit.1 >= unit_bytes_min);
    Boundaries::new(units).expect("checked when the profile was read")
}

impl Default for Suited {
    /// What suits devices of which nothing is known.
    fn default() -> Self {
        Self {
            run_bytes: RUN_BYTES,
            log_batch_bytes: LOG_BATCH_BYTES,
            scan_request_bytes: SCAN_REQUEST_BYTES,
            following_request_bytes: None,
            stripe_bytes: 0,
            gap_bytes: GAP_BYTES,
            bulk_request_bytes: BULK_REQUEST_BYTES_RANGE.0,
            bulk_requests_in_flight: BULK_REQUESTS_RANGE.0 as usize,
        }
    }
}

impl Suited {
    /// What suits devices with these profiles; those of which nothing is known do not count.
    #[must_use]
    pub fn of<'a>(
        data: impl IntoIterator<Item = &'a Profile>,
        log: impl IntoIterator<Item = &'a Profile>,
    ) -> Self {
        let most = |sizes: &mut dyn Iterator<Item = u64>, (least, most): (u64, u64)| {
            sizes.max().map(|bytes| bytes.clamp(least, most))
        };
        let of_run = |profile: &Profile| {
            let mixed = profile.writes.map(|writes| writes.mixed_request_bytes);
            mixed.unwrap_or(profile.reads.streaming_request_bytes)
        };
        // A batch has one length, whichever region it goes to.
        let of_batch = |profile: &'a Profile| {
            let regions = profile.regions.iter().filter_map(|region| region.log_batch_bytes);
            profile.writes.iter().map(|writes| writes.log_batch_bytes).chain(regions)
        };
        let of_scan = |profile: &Profile| match profile.rotational {
            true => of_run(profile),
            false => profile.reads.streaming_request_bytes / 2,
        };
        let of_following =
            |profile: &Profile| profile.reads.streaming_request_bytes.max(FOLLOWING_BYTES_MIN);
        let of_gap = |profile: &Profile| {
            let (rate, us) = (profile.reads.streaming_bytes_per_second, profile.reads.small_us);
            let bytes = rate.saturating_mul(us) / 1_000_000;
            bytes - bytes % 4096
        };
        let of_bulk = |profile: &Profile| {
            let writes = profile.writes.map_or(0, |writes| writes.streaming_request_bytes);
            profile.reads.streaming_request_bytes.max(writes)
        };
        let of_bulk_requests = |profile: &Profile| u64::from(profile.reads.requests_in_flight);
        let data: Vec<&Profile> = data.into_iter().collect();
        let log: Vec<&Profile> = log.into_iter().collect();
        let all = || data.iter().chain(&log).copied();
        let of_data = |of: &dyn Fn(&Profile) -> u64, range| {
            most(&mut data.iter().map(|profile| of(profile)), range)
        };
        let rotating = || data.iter().copied().filter(|profile| profile.rotational);
        let gap_bytes = rotating().map(of_gap).min();
        let log_batch_bytes =
            most(&mut log.iter().copied().flat_map(of_batch), LOG_BATCH_BYTES_RANGE);
        let bulk_request_bytes = most(&mut all().map(of_bulk), BULK_REQUEST_BYTES_RANGE);
        let bulk_requests = most(&mut all().map(of_bulk_requests), BULK_REQUESTS_RANGE);
        Self {
            run_bytes: of_data(&of_run, RUN_BYTES_RANGE).unwrap_or(RUN_BYTES),
            log_batch_bytes: log_batch_bytes.unwrap_or(LOG_BATCH_BYTES),
            scan_request_bytes: of_data(&of_scan, SCAN_REQUEST_BYTES_RANGE)
                .unwrap_or(SCAN_REQUEST_BYTES),
            following_request_bytes: rotating().map(of_following).max(),
            stripe_bytes: 0,
            gap_bytes: gap_bytes
                .map_or(GAP_BYTES, |bytes| bytes.clamp(GAP_BYTES_RANGE.0, GAP_BYTES_RANGE.1)),
            bulk_request_bytes: bulk_request_bytes.unwrap_or(BULK_REQUEST_BYTES_RANGE.0),
            bulk_requests_in_flight: bulk_requests.unwrap_or(BULK_REQUESTS_RANGE.0) as usize,
        }
    }
}

#[cfg(test)]
mod tests;
