//! The search on simulated drives, whose layout is known, and on devices without tracks.

use std::time::Duration;

use super::*;
use crate::device::drive::{Detail, Drive, DriveDescription, Layout, Overheads, ReadAhead, Zone};
use crate::device::{DeviceId, Devices, LatencyModel, MemoryDevices, Simulated, read_alone};

/// A drive of three zones with slipped sectors here and there, and a buffer that reads ahead.
fn description() -> DriveDescription {
    let mut drive = DriveDescription::plain(1500);
    let surfaces = drive.mechanics.surfaces;
    let mut random = SplitMix64::new(3);
    let (mut first_lbn, mut zones) = (0, Vec::new());
    for (number, sectors_per_track) in [(0, 150), (1, 128), (2, 121)] {
        let mut zone = Zone {
            first_lbn,
            first_cylinder: number * 500,
            last_cylinder: number * 500 + 499,
            sectors_per_track,
            reserved_at_front: 70 * u64::from(number),
            spares_at_end: 1000,
            ..drive.zones[0].clone()
        };
        let sectors = zone.sectors(surfaces);
        let mut at = 0;
        while at + 2000 < sectors {
            at += 1 + random.below(9000);
            zone.slips.push((at, 1 + random.below(2)));
            at += 3;
        }
        zone.slips.retain(|(at, _)| *at + 2000 < sectors && *at > 200);
        let slipped: u64 = zone.slips.iter().map(|(_, count)| count).sum();
        zone.lbns = sectors - zone.reserved_at_front - zone.spares_at_end - slipped;
        first_lbn += zone.lbns;
        zones.push(zone);
    }
    drive.zones = zones;
    drive.capacity.lbns = first_lbn;
    drive.capacity.mapped_lbns = first_lbn;
    drive.overhead_ms = Overheads { other: 0.3, ..Overheads::default() };
    drive.cache.enabled = true;
    drive.cache.read_ahead = ReadAhead::UntilSegmentFull;
    drive.cache.read_ahead_max_sectors = 256;
    drive.cache.segment_sectors = 512;
    drive.cache.segments = 4;
    assert_eq!(drive.check(), Ok(()));
    drive
}

/// The time of a turn of such drives.
const TURN_NS: u64 = 60_000_000_000 / 7200;

fn bank(description: &DriveDescription, detail: Detail) -> MemoryDevices {
    let drive = Drive::new(description, detail);
    let geometry = Geometry {
        size_bytes: drive.bytes(),
        logical_block_bytes: drive.sector_bytes(),
        physical_block_bytes: drive.sector_bytes(),
        rotational: true,
        growable: false,
    };
    let mut devices = MemoryDevices::new(vec![geometry], 1);
    devices.set_drive(DeviceId(0), drive);
    devices
}

/// The tracks as they are.
fn truth(description: &DriveDescription) -> Tracks {
    let layout = Layout::new(description);
    let pieces = layout.pieces(0, layout.lbns());
    let mut next = 0;
    let ends = pieces.iter().map(|piece| {
        next += u64::from(piece.sectors);
        next * 512
    });
    Tracks::between(std::iter::once(0).chain(ends), TURN_NS)
}

/// Reads a block of a bank; completions are late by up to so many microseconds.
fn reader(
    devices: &mut MemoryDevices,
    late_us: u64,
) -> impl FnMut(u64, u64) -> Result<Duration, DeviceError> + '_ {
    let mut random = SplitMix64::new(5);
    move |offset, bytes| {
        read_alone(devices, DeviceId(0), offset, bytes as usize)?;
        Ok(Duration::from_micros(devices.now_us() + random.below(late_us + 1)))
    }
}

fn found(devices: &mut MemoryDevices, late_us: u64) -> Result<(Tracks, u64), TracksError> {
    let mut search = TrackSearch::new(&devices.geometry(DeviceId(0)));
    let mut read = reader(devices, late_us);
    while !search.round(&mut read)? {}
    assert!(search.progress() >= 1.0);
    Ok((search.tracks()?, search.reads()))
}

#[test]
fn every_track_is_found_with_zones_slips_and_a_buffer() {
    let description = description();
    let expected = truth(&description);
    for (detail, late_us) in [(Detail::Overheads, 0), (Detail::Full, 0), (Detail::Full, 30)] {
        let (tracks, reads) = found(&mut bank(&description, detail), late_us).expect("it turns");
        assert!(
            tracks.stretches == expected.stretches,
            "{detail:?}: {} of {}",
            tracks.count(),
            expected.count()
        );
        assert!(tracks.turn_ns.abs_diff(TURN_NS) <= 10, "{}", tracks.turn_ns);
        let each = reads as f64 / expected.count() as f64;
        assert!(each < 12.0, "{detail:?}: {each} reads for a track");
    }
}

#[test]
fn a_search_goes_on_from_what_was_kept() {
    let description = description();
    let mut devices = bank(&description, Detail::Full);
    let mut search = TrackSearch::new(&devices.geometry(DeviceId(0)));
    while search.progress() < 0.3 {
        assert_eq!(search.round(reader(&mut devices, 0)), Ok(false));
    }
    let kept = serde_json::to_string(&search).expect("it is data");
    // In the meantime the drive was used, and its phase is another one.
    devices.advance_to(devices.now_us() + 12_345_678);
    let mut search: TrackSearch = serde_json::from_str(&kept).expect("it is the same data");
    let before = search.reads();
    while !search.round(reader(&mut devices, 0)).expect("it turns") {}
    assert!(search.tracks().expect("they agree").stretches == truth(&description).stretches);
    assert!(search.reads() > before);
}

#[test]
fn without_rotation_no_boundary_is_found() {
    let mut devices = MemoryDevices::with_sizes(&[64 << 20], 1);
    assert_eq!(found(&mut devices, 0), Err(TracksError::NoRotation));
    let text = TracksError::NoRotation.to_string();
    assert!(text.starts_with("no boundary found"), "{text}");
}

#[test]
fn a_disturbed_device_has_no_tracks_rather_than_wrong_ones() {
    let description = description();
    let late = found(&mut bank(&description, Detail::Full), 4000);
    assert!(matches!(late, Err(TracksError::NoRotation | TracksError::Disturbed(_))));
}

/// A drive of two zones. The last track of the first one has `rest` sectors, and the second zone,
/// with so many sectors in a track, begins so many sectors before the angle at which that ends.
fn zones_that_meet(rest: u64, sectors_per_track: u32, before: i64) -> DriveDescription {
    let mut drive = description();
    drive.zones.truncate(2);
    for zone in &mut drive.zones {
        (zone.slips, zone.reserved_at_front, zone.spares_at_end) = (Vec::new(), 0, 0);
    }
    // Skews by which tracks begin at all angles.
    (drive.zones[0].track_skew, drive.zones[0].cylinder_skew) = (15, 46);
    let begins =
        |lbn: u64, of: &DriveDescription| i64::from(Layout::new(of).pieces(lbn, 1)[0].first_slot);
    let slots = drive.zones[0].sectors_per_track;
    drive.zones[0].lbns = drive.zones[0].sectors(2);
    let start = (before - rest as i64).rem_euclid(i64::from(slots));
    let mut tracks = (1..1000).rev().map(|track| track * u64::from(slots));
    let last = tracks.find(|lbn| begins(*lbn, &drive) == start).expect("there is one");
    let [first, second] = &mut drive.zones[..] else { panic!("there are two") };
    first.lbns = last + rest;
    first.spares_at_end = first.sectors(2) - first.lbns;
    second.sectors_per_track = sectors_per_track;
    (second.first_lbn, second.lbns) = (first.lbns, second.sectors(2));
    drive.capacity.lbns = first.lbns + second.lbns;
    drive.capacity.mapped_lbns = drive.capacity.lbns;
    assert_eq!(drive.check(), Ok(()));
    drive
}

#[test]
fn a_zone_that_begins_near_where_the_last_one_ends_is_found() {
    let rests = [10, 40, 75, 120, 149, 150];
    for (rest, sectors, before) in rests.into_iter().flat_map(|rest| {
        let of_142 = [-6, -3, -1, 0, 1, 3, 6].map(|before| (rest, 142, before));
        of_142.into_iter().chain([(rest, 150, 6), (rest, 150, -6), (rest, 128, 4)])
    }) {
        let description = zones_that_meet(rest, sectors, before);
        let (tracks, _) = found(&mut bank(&description, Detail::Full), 0).expect("it turns");
        let expected = truth(&description);
        let near = |tracks: &Tracks| {
            let zone = description.zones[0].lbns;
            let starts = tracks.starts().map(|start| (start / 512) as i64 - zone as i64);
            starts.filter(|start| start.abs() < 500).collect::<Vec<_>>()
        };
        assert!(
            tracks.stretches == expected.stretches,
            "{rest}, {sectors}, {before}: {:?}, not {:?}",
            near(&tracks),
            near(&expected)
        );
    }
}

#[test]
fn equal_tracks_are_one_stretch() {
    let tracks = Tracks::between([0, 10, 20, 29, 39, 49], TURN_NS);
    let stretch = |offset, track_bytes, tracks| Stretch { offset, track_bytes, tracks };
    assert_eq!(tracks.stretches, [stretch(0, 10, 2), stretch(20, 9, 1), stretch(29, 10, 2)]);
    assert_eq!(tracks.count(), 5);
    assert_eq!(tracks.starts().collect::<Vec<_>>(), [0, 10, 20, 29, 39]);
    assert_eq!(tracks.end(), 49);
}

#[test]
fn every_byte_is_on_the_track_that_a_search_of_all_finds() {
    let tracks = truth(&description());
    let starts: Vec<u64> = tracks.starts().collect();
    let ends = starts.iter().copied().skip(1).chain([tracks.end()]);
    for (start, end) in starts.iter().copied().zip(ends) {
        for offset in [start, start + 1, (start + end) / 2, end - 1] {
            assert_eq!(tracks.track_at(offset), Some(start..end));
        }
    }
    assert_eq!(tracks.track_at(tracks.end()), None);
    assert_eq!(Tracks::default().track_at(0), None);
}

/// Tracks of a profile, looked at on a device; completions are late by up to 20 us.
fn checked(tracks: &Tracks, devices: &mut MemoryDevices, seed: u64) -> TracksCheck {
    let geometry = devices.geometry(DeviceId(0));
    let before_us = devices.now_us();
    let check = tracks.check(&geometry, 160, seed, reader(devices, 20)).expect("no read fails");
    assert!(devices.now_us() - before_us < 5_000_000, "it takes {} us", devices.now_us());
    check
}

#[test]
fn the_tracks_of_a_device_are_confirmed() {
    let description = description();
    let tracks = truth(&description);
    for seed in 0..20 {
        let check = checked(&tracks, &mut bank(&description, Detail::Full), seed);
        assert!(check.is_right() && check.confirmed >= 150, "{check:?}");
        assert!(check.confidence() > 0.9, "{}", check.confidence());
    }
}

#[test]
fn wrong_tracks_are_not_confirmed() {
    let description = description();
    let right = truth(&description);
    let boundaries = |shift: fn(u64) -> u64| {
        let inner = right.starts().skip(1).map(shift);
        let all: Vec<u64> = [0].into_iter().chain(inner).chain([right.end()]).collect();
        Tracks::between(all, TURN_NS)
    };
    let turned = |turn_ns| Tracks { turn_ns, ..right.clone() };
    let even = |bytes: u64| {
        let inner = (0..right.end() / bytes).map(|track| track * bytes);
        Tracks::between(inner.chain([right.end()]), TURN_NS)
    };
    let wrong = [
        boundaries(|start| start + 512),
        boundaries(|start| start - 512),
        boundaries(|start| start + 40 * 512),
        even(140 * 512),
        even(300 * 512),
        turned(60_000_000_000 / 10_000),
        turned(0),
    ];
    for (number, tracks) in wrong.iter().enumerate() {
        for seed in 0..20 {
            let check = checked(tracks, &mut bank(&description, Detail::Full), seed);
            assert!(!check.is_right() && check.confirmed <= 80, "{number}: {check:?}");
        }
    }
}

#[test]
fn no_tracks_are_confirmed_on_a_device_that_does_not_turn() {
    let tracks = truth(&description());
    for seed in 0..20 {
        let mut devices = MemoryDevices::with_sizes(&[tracks.end()], 1);
        devices.set_latency(LatencyModel { base_us: 80, bytes_per_us: 500, jitter_us: 60 });
        let check = checked(&tracks, &mut devices, seed);
        assert!(!check.is_right(), "{check:?}");
    }
}

#[test]
fn tracks_of_another_size_are_not_read_at_all() {
    let description = description();
    let tracks = Tracks::between([0, 75 << 10, 150 << 10], TURN_NS);
    let geometry = bank(&description, Detail::Full).geometry(DeviceId(0));
    let check = tracks.check(&geometry, 160, 1, |_, _| panic!("nothing is read"));
    assert_eq!(check, Ok(TracksCheck { looked_at: 160, confirmed: 0 }));
    assert_eq!(TracksCheck::default().confidence(), 0.0);
    assert!(!TracksCheck::default().is_right());
}
