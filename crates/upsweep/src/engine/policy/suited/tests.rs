//! What follows from profiles, at the edges.

use super::*;
use crate::device::{Bank, DeviceId, MemoryDevices, Parallelism, Region, ThreadedDevices};

const KIB: u64 = 1 << 10;

/// A profile with these sizes.
fn profile(mixed_request_bytes: u64, log_batch_bytes: u64) -> Profile {
    let bank = ThreadedDevices::new(MemoryDevices::with_sizes(&[1 << 20], 1));
    let mut profile = bank.profile(DeviceId(0)).expect("known");
    let writes = profile.writes.as_mut().expect("known");
    (writes.mixed_request_bytes, writes.log_batch_bytes) = (mixed_request_bytes, log_batch_bytes);
    profile
}

#[test]
fn the_most_demanding_device_counts() {
    let profiles = [(256, 512), (1024, 128), (512, 256)]
        .map(|(mixed, batch)| profile(mixed * KIB, batch * KIB));
    let suited = Suited::of(&profiles, &profiles[1..]);
    let [run_bytes, log_batch_bytes, scan_request_bytes] = [1024, 256, 128].map(|kib| kib * KIB);
    let expected = Suited { run_bytes, log_batch_bytes, scan_request_bytes, ..Suited::default() };
    assert_eq!(suited, expected);
    assert_eq!(Suited::of(None, None), Suited::default());
    let of_log = Suited { log_batch_bytes: 128 * KIB, ..Suited::default() };
    assert_eq!(Suited::of(None, &profiles[1..2]), of_log);
}

#[test]
fn what_is_measured_is_taken_within_bounds() {
    let of = |mixed, batch| {
        let found = [profile(mixed, batch)];
        let Suited { run_bytes, log_batch_bytes, .. } = Suited::of(&found, &found);
        (run_bytes / KIB, log_batch_bytes / KIB)
    };
    assert_eq!(of(4 * KIB, 4 * KIB), (128, 64));
    assert_eq!(of(64 << 20, 64 << 20), (4096, 1024));
}

#[test]
fn where_writes_were_not_measured_reads_count() {
    let mut found = profile(256 * KIB, 256 * KIB);
    (found.writes, found.reads.streaming_request_bytes) = (None, 2048 * KIB);
    let found = [found];
    let suited = Suited {
        run_bytes: 2048 * KIB,
        scan_request_bytes: 1024 * KIB,
        bulk_request_bytes: 2048 * KIB,
        ..Suited::default()
    };
    assert_eq!(Suited::of(&found, &found), suited);
}

#[test]
fn a_scan_of_a_rotating_drive_has_requests_that_suit_it_beside_others() {
    let mut found = profile(768 * KIB, 128 * KIB);
    found.reads.streaming_request_bytes = 512 * KIB;
    assert_eq!(Suited::of([&found], None).scan_request_bytes, 256 * KIB);
    found.rotational = true;
    assert_eq!(Suited::of([&found], None).scan_request_bytes, 768 * KIB);
}

#[test]
fn requests_that_follow_another_stream_on_every_rotating_drive() {
    let of = |all: &[(bool, u64)]| {
        let profiles = all.iter().map(|(rotational, kib)| {
            let mut found = profile(768 * KIB, 128 * KIB);
            (found.rotational, found.reads.streaming_request_bytes) = (*rotational, kib * KIB);
            found
        });
        let bytes = Suited::of(&profiles.collect::<Vec<_>>(), None).following_request_bytes;
        bytes.map(|bytes| bytes / KIB)
    };
    assert_eq!(of(&[(true, 128), (true, 256), (false, 512)]), Some(256));
    assert_eq!(of(&[(true, 16)]), Some(64));
    assert_eq!(of(&[(false, 16)]), None);
}

#[test]
fn a_gap_is_read_over_if_that_takes_no_longer_than_a_small_read() {
    let rotating = |bytes_per_second, small_us| {
        let mut found = profile(256 * KIB, 128 * KIB);
        found.rotational = true;
        found.reads.streaming_bytes_per_second = bytes_per_second;
        found.reads.small_us = small_us;
        found
    };
    let gap_kib = |profiles: &[Profile]| Suited::of(profiles, None).gap_bytes / KIB;
    let solid = profile(256 * KIB, 128 * KIB);
    let [old, new] = [rotating(17 << 20, 6000), rotating(60 << 20, 5000)];
    assert_eq!(gap_kib(std::slice::from_ref(&old)), 104);
    assert_eq!(gap_kib(&[new.clone(), old, solid.clone()]), 104);
    assert_eq!(gap_kib(&[new, solid.clone()]), 304);
    assert_eq!(gap_kib(&[rotating(1, 1)]), 16);
    assert_eq!(gap_kib(&[rotating(u64::MAX, 9000)]), 512);
    assert_eq!(gap_kib(&[solid]), 256, "of none that rotates nothing is known");
}

#[test]
fn recovery_and_loads_suit_reads_and_writes_of_every_device() {
    let with = |read, write, requests| {
        let mut found = profile(256 * KIB, 128 * KIB);
        found.reads.streaming_request_bytes = read * KIB;
        found.reads.requests_in_flight = requests;
        found.writes.as_mut().expect("known").streaming_request_bytes = write * KIB;
        found
    };
    let of = |data: &[Profile], log: &[Profile]| {
        let suited = Suited::of(data, log);
        (suited.bulk_request_bytes / KIB, suited.bulk_requests_in_flight)
    };
    let [short, long] = [with(16, 64, 1), with(2048, 512, 128)];
    assert_eq!(of(std::slice::from_ref(&short), &[]), (1024, 64));
    assert_eq!(of(&[short.clone(), long.clone()], &[]), (2048, 128));
    assert_eq!(of(std::slice::from_ref(&short), &[long]), (2048, 128));
    assert_eq!(of(&[short], &[with(16, 64 << 10, 256)]), (4096, 256));
}

#[test]
fn the_region_with_the_longest_batches_counts() {
    let mut found = profile(256 * KIB, 128 * KIB);
    let region = |log_batch_bytes| Region {
        offset: 0,
        read_bytes_per_second: 1,
        write_bytes_per_second: None,
        log_batch_bytes,
    };
    found.regions = vec![region(None), region(Some(512 * KIB)), region(Some(64 * KIB))];
    assert_eq!(Suited::of(None, [&found]).log_batch_bytes, 512 * KIB);
}

#[test]
fn boundaries_are_of_units_that_hold_some_blocks() {
    let mut found = profile(256 * KIB, 128 * KIB);
    assert_eq!((boundaries(&found, 4096), stripe_bytes(&found)), none());
    let stripes = Stripes { unit_bytes: 64 * KIB, ways: 4, confidence: 1.0 };
    found.parallelism = Some(Parallelism { stripes: Some(stripes), ..Parallelism::default() });
    assert_eq!(stripe_bytes(&found), 256 * KIB);
    assert_eq!(boundaries(&found, 16 << 10).unit_bytes_max(), Some(64 * KIB));
    assert_eq!(boundaries(&found, 32 << 10), none().0, "of two blocks");
}

fn none() -> (Boundaries, u64) {
    (Boundaries::default(), 0)
}
