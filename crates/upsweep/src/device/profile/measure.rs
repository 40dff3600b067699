//! The measurement of a device.
//!
//! 1. The range is written, if it may be, so that it is allocated and holds bytes that no device
//!    can compress.
//! 2. Small reads, one at a time, decide whether the device rotates: then each takes milliseconds.
//! 3. Rates by the size of requests, with as many in flight as the sweep has: the knee says which
//!    size is enough.
//! 4. Rates by how many requests are in flight.
//! 5. Durable writes one behind another, by size, as the log makes them; what a flush takes, and
//!    what a small durable write takes beside a stream of cached ones.
//! 6. Of a rotating drive, the rates in several regions, because outer tracks are longer.
//! 7. Reads that are under way together, which show stripe units and how many are served in
//!    parallel (`device/stripes.rs`).
//!
//! Each load is made twice, some time apart, and the better rate counts: other users of a device
//! only ever slow it down.

use std::time::Duration;

use super::curve::{Access, Curve, Load, Order};
use super::load::{Achieved, Bench, Range, Span};
use super::plan::{LOG_PIPELINE, Plan, ROUNDS};
use super::rows::Rows;
use super::{Effort, Profile, Reads, Region, Writes};
use crate::device::random::SplitMix64;
use crate::device::{DeviceError, DeviceId, Devices, Parallelism, find_parallelism, read_together};

/// Least length of a range to measure.
pub(super) const RANGE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a small request.
const SMALL_BYTES: u64 = 4096;
/// Bytes that are written before a flush, and of the requests of a stream.
const STREAM_BYTES: u64 = 1 << 20;
/// Flushes to time.
const FLUSHES: usize = 15;
/// A device that serves a quarter of small random reads in less than this does not rotate: at
/// 15,000 turns a minute, a quarter of a turn alone takes 1,000 us, without the seek. The median is
/// a worse criterion, because other load delays the reads of a solid-state disk.
const SOLID_STATE_US: u64 = 1000;
/// Times at which small reads are tried before a device counts as rotating: other load may slow one
/// of them down, but a property of the device slows all.
const ROTATION_ROUNDS: usize = 3;

/// What is measured, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// How thoroughly.
    pub effort: Effort,
    /// The range that is measured, of at least 1 MiB, and 256 MiB or more for a good measurement;
    /// of a device with a write cache, more than that holds.
    pub range: Range,
    /// Whether it may be written: its content is lost. If not, only reads are measured.
    pub writes: bool,
}

/// How far a measurement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps that are done.
    pub done: usize,
    /// All steps, as far as is known.
    pub of: usize,
    /// What is measured now, for people.
    pub what: &'static str,
}

/// Measures `device`, with nothing else in flight on its bank. `now` returns the time since any
/// fixed moment; `progress` is called before each step. Cost: see [`Effort`].
///
/// # Errors
/// [`DeviceError::InvalidRange`] if the range is below 1 MiB or outside the device; otherwise the
/// error that the device reports.
pub fn measure(
    devices: &mut dyn Devices,
    device: DeviceId,
    measurement: &Measurement,
    now: impl Fn() -> Duration,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, DeviceError> {
    let Measurement { effort, range, writes } = *measurement;
    if range.bytes < RANGE_BYTES_MIN {
        return Err(DeviceError::InvalidRange);
    }
    let bench = Bench { devices, device, random: SplitMix64::new(1), now };
    let plan = Plan::new(effort, false);
    let mut session = Session { bench, plan, range, writes, progress, done: 0, of: 0 };
    session.count_steps();
    session.fill()?;
    let (small_reads, quarter_us) = session.small_reads()?;
    let geometry = session.bench.devices.geometry(device);
    let rotational = quarter_us >= SOLID_STATE_US;
    session.plan = Plan::new(effort, rotational);
    session.count_steps();
    if rotational {
        // What was never written takes a rotating drive as long as anything else.
        session.range = range;
    }
    let mut curves =
        session.curves("rates by size", session.range, session.plan.by_size(writes))?;
    let streaming = knee(&curves, Access::Read, Order::Sequential).unwrap_or(STREAM_BYTES);
    let by_depth = session.plan.by_depth(writes, streaming);
    curves.extend(session.curves("rates by requests in flight", session.range, by_depth)?);
    let writes = if writes { Some(session.writes(&mut curves)?) } else { None };
    let regions = session.regions(streaming)?;
    let parallelism = if effort == Effort::Full { Some(session.parallelism()?) } else { None };
    Ok(Profile {
        name: String::new(),
        devices: Vec::new(),
        effort,
        size_bytes: geometry.size_bytes,
        logical_block_bytes: geometry.logical_block_bytes,
        physical_block_bytes: geometry.physical_block_bytes,
        rotational,
        reason: reason(quarter_us, rotational, geometry.rotational),
        reads: reads(&curves, &small_reads),
        writes,
        parallelism,
        tracks: None,
        regions,
        curves,
    })
}

fn reason(quarter_us: u64, rotational: bool, claimed: bool) -> String {
    let verdict = if rotational { "rotating" } else { "solid-state" };
    let bound = if rotational { "at or above" } else { "below" };
    let agreement = if rotational == claimed {
        "as the host says".to_owned()
    } else {
        format!("although the host reports rotational={}", u8::from(claimed))
    };
    format!(
        "{verdict}: the fastest quarter of random reads takes up to {quarter_us} us, {bound} the \
         limit of {SOLID_STATE_US} us; {agreement}"
    )
}

fn curve_of(curves: &[Curve], access: Access, order: Order, by_size: bool) -> Option<&Curve> {
    let is_wanted = |curve: &&Curve| {
        (curve.access, curve.order, curve.is_by_size()) == (access, order, by_size)
    };
    curves.iter().find(is_wanted)
}

/// The smallest size of requests with which the rate is as good as the best.
fn knee(curves: &[Curve], access: Access, order: Order) -> Option<u64> {
    curve_of(curves, access, order, true)?.knee()
}

/// The best rate in sequence.
fn best(curves: &[Curve], access: Access) -> u64 {
    curve_of(curves, access, Order::Sequential, true).map_or(0, Curve::best)
}

fn reads(curves: &[Curve], small: &Achieved) -> Reads {
    let in_flight = curve_of(curves, Access::Read, Order::Random, false).and_then(Curve::knee);
    Reads {
        streaming_bytes_per_second: best(curves, Access::Read),
        streaming_request_bytes: knee(curves, Access::Read, Order::Sequential)
            .unwrap_or(STREAM_BYTES),
        requests_in_flight: in_flight.map_or(1, |depth| depth as u32),
        small_us: small.percentile_us(50),
        small_p99_us: small.percentile_us(99),
    }
}

struct Session<'a, Now> {
    bench: Bench<'a, Now>,
    plan: Plan,
    range: Range,
    writes: bool,
    progress: &'a mut dyn FnMut(Progress),
    done: usize,
    of: usize,
}

impl<Now: Fn() -> Duration> Session<'_, Now> {
    /// Counts the steps of the plan, for the progress.
    fn count_steps(&mut self) {
        let Self { plan, writes, .. } = self;
        let count = |rows: Vec<Rows>| rows.iter().map(Rows::len).sum::<usize>();
        let by_size = count(plan.by_size(*writes)) + count(plan.by_depth(*writes, STREAM_BYTES));
        let durable = if *writes { count(plan.durable()) } else { 0 };
        let regions = plan.regions() as usize * count(plan.region(*writes, STREAM_BYTES));
        let single = if *writes { 5 } else { 1 } + usize::from(plan.is_full());
        self.of = single + ROUNDS * (by_size + durable + regions);
    }

    fn step(&mut self, what: &'static str) {
        (self.progress)(Progress { done: self.done, of: self.of.max(self.done), what });
        self.done += 1;
    }

    /// Writes the range, as far as the plan goes.
    fn fill(&mut self) -> Result<(), DeviceError> {
        if !self.writes {
            return Ok(());
        }
        self.step("writing the range to measure");
        self.range.bytes = self.range.bytes.min(self.plan.fill_bytes_max);
        let load = Load {
            access: Access::Write,
            order: Order::Sequential,
            request_bytes: STREAM_BYTES.min(self.range.bytes / 2 / SMALL_BYTES * SMALL_BYTES),
            requests_in_flight: 4,
        };
        let requests = self.range.bytes / load.request_bytes;
        let span = Span { time: Duration::MAX, requests_min: requests, requests_max: requests };
        self.bench.run(load, self.range, span).map(drop)
    }

    /// Small reads, one at a time, and the time in which a quarter of them completes, in
    /// microseconds.
    fn small_reads(&mut self) -> Result<(Achieved, u64), DeviceError> {
        self.step("small reads");
        let mut found = self.small(Access::Read)?;
        for _ in 1..ROTATION_ROUNDS {
            if found.percentile_us(25) < SOLID_STATE_US {
                break;
            }
            found = self.small(Access::Read)?;
        }
        let quarter_us = found.percentile_us(25);
        Ok((found, quarter_us))
    }

    fn small(&mut self, access: Access) -> Result<Achieved, DeviceError> {
        let load = Load {
            access,
            order: Order::Random,
            request_bytes: SMALL_BYTES,
            requests_in_flight: 1,
        };
        self.bench.run(load, self.range, self.plan.small)
    }

    /// Makes all loads in a range, in rounds.
    fn curves(
        &mut self,
        what: &'static str,
        range: Range,
        mut all: Vec<Rows>,
    ) -> Result<Vec<Curve>, DeviceError> {
        for _ in 0..ROUNDS {
            for rows in &mut all {
                for (index, load) in rows.loads().into_iter().enumerate() {
                    self.step(what);
                    let count = range.bytes / load.request_bytes;
                    if count >= 2 {
                        let span = self.plan.span.with_at_most(count);
                        rows.record(index, self.bench.run(load, range, span)?);
                    }
                }
            }
        }
        Ok(all.into_iter().map(Rows::curve).collect())
    }

    /// What is known of writes; adds the curves of durable ones.
    fn writes(&mut self, curves: &mut Vec<Curve>) -> Result<Writes, DeviceError> {
        curves.extend(self.curves("durable writes by size", self.range, self.plan.durable())?);
        self.step("small durable writes");
        let small = self.small(Access::DurableWrite)?;
        self.step("flushes");
        let flush_us = self.flushes()?;
        self.step("durable writes beside a stream");
        let beside = self.beside_stream()?;
        let sequential = Order::Sequential;
        let size = |access, order| knee(curves, access, order).unwrap_or(STREAM_BYTES);
        let streaming = best(curves, Access::Write);
        let random = curve_of(curves, Access::Write, Order::Random, true);
        Ok(Writes {
            streaming_bytes_per_second: streaming,
            streaming_request_bytes: size(Access::Write, sequential),
            mixed_bytes_per_second: best(curves, Access::Mixed),
            mixed_request_bytes: size(Access::Mixed, sequential),
            random_request_bytes: random.and_then(|curve| curve.reaching(streaming)),
            small_durable_us: small.percentile_us(50),
            small_durable_p99_us: small.percentile_us(99),
            durable_beside_stream_us: beside.percentile_us(50),
            flush_us,
            log_batch_bytes: size(Access::DurableWrite, sequential),
            block_writes: None,
        })
    }

    /// Small durable writes in one half of the range, beside a stream of cached ones in the other.
    fn beside_stream(&mut self) -> Result<Achieved, DeviceError> {
        let load = |access, request_bytes, requests_in_flight| Load {
            access,
            order: Order::Sequential,
            request_bytes,
            requests_in_flight,
        };
        let [durable, cached] = self.range.halves(SMALL_BYTES);
        let stream_bytes = STREAM_BYTES.min(cached.bytes / 2);
        let loads = [
            (load(Access::DurableWrite, SMALL_BYTES, 1), durable),
            (load(Access::Write, stream_bytes, LOG_PIPELINE), cached),
        ];
        let achieved = self.bench.run_beside(&loads, self.plan.small)?;
        self.bench.flush()?;
        Ok(achieved)
    }

    /// The median time of a flush after a write, in microseconds.
    fn flushes(&mut self) -> Result<u64, DeviceError> {
        let mut times_us = Vec::with_capacity(FLUSHES);
        for number in 0..FLUSHES as u64 {
            let offset = number % (self.range.bytes / STREAM_BYTES) * STREAM_BYTES;
            self.bench.write(self.range.offset + offset, STREAM_BYTES)?;
            times_us.push(self.bench.flush()?.as_micros() as u64);
        }
        times_us.sort_unstable();
        Ok(times_us[FLUSHES / 2])
    }

    /// What reads under way together show.
    fn parallelism(&mut self) -> Result<Parallelism, DeviceError> {
        self.step("reads under way together");
        let Bench { devices, device, now, .. } = &mut self.bench;
        let geometry = devices.geometry(*device);
        find_parallelism(&geometry, 1, |offsets, bytes| {
            let begin = now();
            read_together(&mut **devices, *device, offsets, bytes as usize)?;
            Ok(now() - begin)
        })
    }

    /// The rates in regions of the range.
    fn regions(&mut self, streaming_bytes: u64) -> Result<Vec<Region>, DeviceError> {
        let count = self.plan.regions();
        let whole = self.range;
        let bytes = whole.bytes / count.max(1) / SMALL_BYTES * SMALL_BYTES;
        let mut regions = Vec::new();
        for number in 0..count {
            let range = Range { offset: whole.offset + number * bytes, bytes };
            let rows = self.plan.region(self.writes, streaming_bytes);
            let curves = self.curves("regions", range, rows)?;
            let of = |access| curve_of(&curves, access, Order::Sequential, true);
            regions.push(Region {
                offset: range.offset,
                read_bytes_per_second: best(&curves, Access::Read),
                write_bytes_per_second: of(Access::Write).map(Curve::best),
                log_batch_bytes: of(Access::DurableWrite).and_then(Curve::knee),
            });
        }
        Ok(regions)
    }
}
