//! The measurement, on banks that are known.

use std::time::Duration;

use super::*;
use crate::device::drive::{Detail, Drive, DriveDescription};
use crate::device::{
    Access, BlockWrites, Curve, DeviceError, Effort, Geometry, LatencyModel, Measurement,
    MemoryDevices, Order, Profile, Progress, Range, Simulated, Stretch, Tracks, Varies, measure,
    probe_block_writes,
};

const MEBIBYTE: u64 = 1 << 20;

fn measured(
    bank: &mut MemoryDevices,
    measurement: &Measurement,
) -> Result<(Profile, Vec<Progress>), DeviceError> {
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let mut steps = Vec::new();
    let mut progress = |step| steps.push(step);
    let profile = measure(bank, DeviceId(0), measurement, now, &mut progress)?;
    Ok((profile, steps))
}

fn with_latency(latency: LatencyModel) -> MemoryDevices {
    let mut bank = MemoryDevices::with_sizes(&[8 * MEBIBYTE], 1);
    bank.set_latency(latency);
    bank
}

/// Measures the second half of a device of 8 MiB.
fn second_half(latency: LatencyModel, effort: Effort) -> Profile {
    let mut bank = with_latency(latency);
    let range = Range { offset: 4 * MEBIBYTE, bytes: 4 * MEBIBYTE };
    let measurement = Measurement { effort, range, writes: true };
    let (profile, steps) = measured(&mut bank, &measurement).expect("measured");
    let before = bank.peek(DeviceId(0), 0, 4 << 20);
    assert!(before.iter().all(|byte| *byte == 0), "only the range is written");
    assert!(steps.windows(2).all(|pair| pair[0].done < pair[1].done && pair[1].done < pair[1].of));
    assert_eq!(profile.check(), Ok(()));
    profile
}

const SOLID: LatencyModel = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 0 };

#[test]
fn finds_the_speed_of_a_solid_state_disk() {
    for effort in [Effort::Short, Effort::Full] {
        let profile = second_half(SOLID, effort);
        let writes = profile.writes.expect("measured");
        for rate in [profile.reads.streaming_bytes_per_second, writes.streaming_bytes_per_second] {
            assert!((480_000_000..=512_000_000).contains(&rate), "{rate}");
        }
        assert_eq!((profile.reads.small_us, profile.reads.small_p99_us), (108, 108));
        assert_eq!(writes.small_durable_us, 108);
        assert!(!profile.rotational && profile.reason.contains("108 us"), "{profile:?}");
        // The range holds only two of the longer requests.
        assert!(
            profile
                .curves
                .iter()
                .all(|curve| curve.request_bytes.iter().max() <= Some(&(2 * MEBIBYTE)))
        );
        let figures = profile.figures().expect("writes were measured");
        assert_eq!((figures.random_read_us, figures.sync_write_us), (108, 108));
    }
}

#[test]
fn the_smallest_request_that_streams_follows_from_the_time_of_a_request() {
    // One request of b bytes takes 100 us and b / 512 us: nine tenths of the rate of the longest
    // takes about nine times 100 us of transfer, if there is one in flight at a time.
    let profile = second_half(SOLID, Effort::Full);
    let curve = |access, order, varies| {
        let is_wanted =
            |curve: &&Curve| (curve.access, curve.order, curve.varies) == (access, order, varies);
        profile.curves.iter().find(is_wanted).expect("measured")
    };
    for access in [Access::Read, Access::Write, Access::Mixed, Access::DurableWrite] {
        let curve = curve(access, Order::Sequential, Varies::RequestBytes);
        let knee = curve.knee().expect("points");
        let rate = |bytes: u64| {
            let row = curve.request_bytes.iter().position(|size| *size == bytes).expect("a row");
            curve.bytes_per_second[row]
        };
        assert!(10 * rate(knee) >= 9 * curve.best(), "{curve:?}");
        assert!(10 * rate(knee / 2) < 9 * curve.best(), "{curve:?}");
        assert!(curve.median_us.iter().zip(&curve.p99_us).all(|(median, p99)| median <= p99));
    }
    assert_eq!(profile.curves.len(), 13, "six kinds by size and by number, and durable writes");
}

#[test]
fn without_writes_nothing_is_written_and_reads_are_the_same() {
    let range = Range { offset: 0, bytes: 8 * MEBIBYTE };
    let mut bank = with_latency(SOLID);
    let before = bank.digest();
    let measurement = Measurement { effort: Effort::Full, range, writes: false };
    let (profile, _) = measured(&mut bank, &measurement).expect("measured");
    assert_eq!(bank.digest(), before);
    assert_eq!((profile.writes, profile.figures()), (None, None));
    assert!(profile.curves.iter().all(|curve| curve.access == Access::Read));
    assert_eq!(profile.curves.len(), 4);
    let with_writes = second_half(SOLID, Effort::Full).reads;
    assert_eq!(profile.reads.small_us, with_writes.small_us);
}

#[test]
fn finds_a_rotating_disk_whatever_the_host_says() {
    // 7,200 turns a minute and seeks; 15,000 and hardly a seek, as in a small range.
    for (base_us, jitter_us) in [(8000, 4000), (500, 4000)] {
        let latency = LatencyModel { base_us, bytes_per_us: 150, jitter_us };
        let profile = second_half(latency, Effort::Short);
        assert!(profile.rotational, "{profile:?}");
        assert!(profile.reason.contains("although the host reports rotational=0"), "{profile:?}");
    }
}

#[test]
fn a_busy_solid_state_disk_does_not_count_as_rotating() {
    let latency = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 3000 };
    let profile = second_half(latency, Effort::Short);
    assert!(profile.reads.small_us > 1000 && !profile.rotational, "{profile:?}");
}

#[test]
fn outer_tracks_of_a_drive_are_faster_than_inner_ones() {
    let mut description = DriveDescription::plain(3000);
    let mut inner = description.zones[0].clone();
    let outer = &mut description.zones[0];
    outer.last_cylinder = 1499;
    outer.lbns /= 2;
    inner.first_cylinder = 1500;
    inner.sectors_per_track /= 2;
    inner.first_lbn = outer.lbns;
    inner.lbns = outer.lbns / 2;
    description.capacity.lbns = outer.lbns + inner.lbns;
    description.capacity.mapped_lbns = description.capacity.lbns;
    description.zones.push(inner);
    assert_eq!(description.check(), Ok(()));
    let drive = Drive::new(&description, Detail::Full);
    let bytes = drive.bytes();
    let mut bank = MemoryDevices::with_sizes(&[bytes], 1);
    bank.set_drive(DeviceId(0), drive);
    let range = Range { offset: 0, bytes };
    let measurement = Measurement { effort: Effort::Full, range, writes: true };
    let (profile, _) = measured(&mut bank, &measurement).expect("measured");
    assert!(profile.rotational);
    let rates: Vec<u64> =
        profile.regions.iter().map(|region| region.read_bytes_per_second).collect();
    assert_eq!(rates.len(), 8);
    let ratio = rates[0] as f64 / rates[7] as f64;
    assert!((1.8..2.4).contains(&ratio), "{rates:?}");
    assert!(profile.regions.iter().all(|region| region.log_batch_bytes.is_some()));
}

#[test]
fn measures_the_smallest_device() {
    let mut bank = MemoryDevices::with_sizes(&[MEBIBYTE + 4096], 1);
    bank.set_latency(SOLID);
    for (effort, writes) in [(Effort::Short, true), (Effort::Full, true), (Effort::Full, false)] {
        for bytes in [MEBIBYTE, MEBIBYTE + 4096] {
            let measurement = Measurement { effort, range: Range { offset: 0, bytes }, writes };
            let (profile, _) = measured(&mut bank, &measurement).expect("measured");
            assert_eq!(profile.check(), Ok(()));
        }
    }
}

#[test]
fn refuses_a_bad_range() {
    for (offset, bytes) in [(0, 4096), (4 * MEBIBYTE, 8 * MEBIBYTE)] {
        let range = Range { offset, bytes };
        let measurement = Measurement { effort: Effort::Short, range, writes: true };
        let refused = measured(&mut with_latency(SOLID), &measurement);
        assert_eq!(refused.err(), Some(DeviceError::InvalidRange));
    }
}

#[test]
fn figures_of_no_use_are_refused_by_name() {
    let good = second_half(SOLID, Effort::Short);
    let refused = |edit: &dyn Fn(&mut Profile)| {
        let mut profile = good.clone();
        edit(&mut profile);
        profile.check().expect_err("out of range")
    };
    let shown = refused(&|profile| profile.reads.streaming_request_bytes = 5000);
    assert!(shown.starts_with("reads.streaming_request_bytes is 5000; give"), "{shown}");
    let shown = refused(&|profile| profile.reads.requests_in_flight = 0);
    assert_eq!(shown, "reads.requests_in_flight is 0; give 1 to 256");
    let shown = refused(&|profile| profile.reads.streaming_bytes_per_second = 0);
    assert_eq!(shown, "reads.streaming_bytes_per_second is 0; give at least 1");
    let tracks = |stretches: &[(u64, u64, u64)]| {
        let stretch = |&(offset, track_bytes, tracks): &(u64, u64, u64)| Stretch {
            offset,
            track_bytes,
            tracks,
        };
        let stretches = stretches.iter().map(stretch).collect();
        Some(Tracks { stretches, turn_ns: 6_000_000, ..Tracks::default() })
    };
    for wrong in [&[(0, 8192, 3), (16384, 8192, 1)][..], &[(0, 8192, 0)], &[(1, u64::MAX, 2)]] {
        let shown = refused(&|profile| profile.tracks = tracks(wrong));
        assert!(shown.contains("tracks or stripe units of"), "{shown}");
    }
    let mut known = good.clone();
    known.tracks = tracks(&[(0, 8192, 3), (24576, 4096, 1)]);
    assert_eq!((known.check(), known.units()), (Ok(()), vec![(0, 8192, 3), (24576, 4096, 1)]));
    let shown = refused(&|profile| profile.curves[0].p99_us.clear());
    assert!(shown.starts_with("the curve of Read, Sequential, has 6 rates but"), "{shown}");
}

/// Compares writes of blocks of this many bytes, on a device of this latency.
fn block_writes(block_bytes: u32, latency: LatencyModel) -> BlockWrites {
    let geometry = Geometry {
        size_bytes: 8 << 20,
        logical_block_bytes: block_bytes,
        physical_block_bytes: 4096,
        rotational: false,
        growable: false,
    };
    let mut bank = MemoryDevices::new(vec![geometry], 1);
    bank.set_latency(latency);
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let scratch = Range { offset: 1 << 20, bytes: 256 << 10 };
    let found =
        probe_block_writes(&mut bank, DeviceId(0), block_bytes, scratch, now).expect("measured");
    for (offset, bytes) in [(0, 1 << 20), ((1 << 20) + (256 << 10), 1 << 20)] {
        let outside = bank.peek(DeviceId(0), offset, bytes);
        assert!(outside.iter().all(|byte| *byte == 0), "only the scratch range is written");
    }
    let small = Range { offset: 0, bytes: 128 << 10 };
    let refused = probe_block_writes(&mut bank, DeviceId(0), block_bytes, small, now);
    assert_eq!(refused, Err(DeviceError::InvalidRange));
    found
}

#[test]
fn compares_writes_of_a_block_with_those_of_4_kib() {
    let latency = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 0 };
    let found = block_writes(512, latency);
    assert_eq!(found, BlockWrites { block_bytes: 512, block_us: 101, unit_us: 108 });
    assert!(found.are_fast());
    let slow = LatencyModel { base_us: 20_000, ..latency };
    assert_eq!(block_writes(512, slow).unit_us, 20_008, "fewer pairs");
    for (block_us, are_fast) in [(125, true), (126, false)] {
        assert_eq!(BlockWrites { block_bytes: 512, block_us, unit_us: 100 }.are_fast(), are_fast);
    }
}
