//! The search on simulated drives, whose layout is known, and on devices without tracks.

use std::time::Duration;

use super::*;
use crate::device::drive::{Detail, Drive, DriveDescription, Layout, Overheads, ReadAhead, Zone};
use crate::device::{DeviceId, Devices, MemoryDevices, Simulated, read_alone};

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
    Tracks::between(std::iter::once(0).chain(ends))
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
        assert!(tracks == expected, "{detail:?}: {} of {}", tracks.count(), expected.count());
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
    assert!(search.tracks().expect("they agree") == truth(&description));
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

/// The last track of the first zone ends nearly at the angle at which the second one begins.
#[test]
fn a_zone_that_begins_where_the_last_one_ends_is_found() {
    let mut description = description();
    let zone = &mut description.zones[0];
    (zone.reserved_at_front, zone.spares_at_end, zone.slips) = (0, 0, Vec::new());
    (zone.track_skew, zone.cylinder_skew) = (15, 46);
    let skewed = 500 * zone.track_skew + 499 * zone.cylinder_skew;
    assert_eq!(skewed % zone.sectors_per_track, 4);
    let more = zone.sectors(2) - zone.lbns;
    zone.lbns += more;
    description.zones[1..].iter_mut().for_each(|zone| zone.first_lbn += more);
    description.zones[1].reserved_at_front = 0;
    description.zones[1].lbns += 70;
    description.zones[2].first_lbn += 70;
    description.capacity.lbns += more + 70;
    description.capacity.mapped_lbns += more + 70;
    assert_eq!(description.check(), Ok(()));
    let (tracks, _) = found(&mut bank(&description, Detail::Full), 0).expect("it turns");
    assert!(tracks == truth(&description));
}

#[test]
fn equal_tracks_are_one_stretch() {
    let tracks = Tracks::between([0, 10, 20, 29, 39, 49]);
    let stretch = |offset, track_bytes, tracks| Stretch { offset, track_bytes, tracks };
    assert_eq!(tracks.stretches, [stretch(0, 10, 2), stretch(20, 9, 1), stretch(29, 10, 2)]);
    assert_eq!(tracks.count(), 5);
    assert_eq!(tracks.starts().collect::<Vec<_>>(), [0, 10, 20, 29, 39]);
}
