//! The memory bank: virtual time, determinism, sparse content.

use super::*;
use crate::device::{Bulk, LatencyModel, MemoryDevices, Simulated, read_all, run_alone};

#[test]
fn time_moves_by_the_latency_model() {
    let mut devices = MemoryDevices::with_sizes(&[SIZE, SIZE], 1);
    devices.set_latency(LatencyModel { base_us: 100, bytes_per_us: 4096, jitter_us: 0 });
    submit(&mut devices, 1, read(0, 4096));
    submit(&mut devices, 2, read(0, 8192));
    let mut completions = Vec::new();
    devices.wait(&mut completions);
    assert_eq!((devices.now_us(), completions.len()), (101, 1));
    devices.advance_to(102);
    devices.reap(&mut completions);
    assert_eq!(completions.len(), 1, "the second transfer waits for the first");
    devices.advance_to(103);
    devices.reap(&mut completions);
    assert_eq!(completions.len(), 2);
    devices.advance_to(50);
    assert_eq!(devices.now_us(), 103, "time never goes back");
}

#[test]
fn a_request_takes_effect_when_it_completes() {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    submit(&mut devices, 1, write(0, 4096, 7, WriteMode::Stable));
    assert_eq!(devices.peek(DeviceId(0), 0, 1), [0]);
    wait_for(&mut devices, 1);
    assert_eq!(devices.peek(DeviceId(0), 0, 1), [7]);
    submit(&mut devices, 2, write(0, 4096, 8, WriteMode::Stable));
    devices.forget_requests();
    assert_eq!((devices.in_flight(), devices.peek(DeviceId(0), 0, 1)), (0, vec![7]));
}

/// One run of a fixed load, as the order of completions with their times, and the digest.
fn history(seed: u64) -> (Vec<(u64, u64)>, u64) {
    let mut devices = MemoryDevices::with_sizes(&[SIZE, SIZE], seed);
    let mut history = Vec::new();
    for round in 0..4 {
        for token in 0..50 {
            let offset = (token * 7 + round) % 200 * 4096;
            submit(&mut devices, token, write(offset, 4096, token as u8, WriteMode::Cached));
        }
        submit(&mut devices, 99, Operation::Discard { offset: SIZE - 131_072, bytes: 131_072 });
        let mut completions = Vec::new();
        while devices.in_flight() > 0 {
            devices.wait(&mut completions);
            let now_us = devices.now_us();
            history.extend(completions.drain(..).map(|done| (now_us, done.token.0)));
        }
    }
    (history, devices.digest())
}

#[test]
fn equal_seeds_give_equal_histories() {
    assert_eq!(history(42), history(42));
    assert_ne!(history(42), history(43));
}

#[test]
fn the_digest_depends_on_content_alone() {
    let mut one = MemoryDevices::with_sizes(&[SIZE], 1);
    let mut two = MemoryDevices::with_sizes(&[SIZE], 2);
    assert_eq!(one.digest(), two.digest());
    one.poke(DeviceId(0), 5000, b"abc");
    two.poke(DeviceId(0), 200_000, b"x");
    assert_ne!(one.digest(), two.digest());
    two.poke(DeviceId(0), 200_000, &[0]);
    two.poke(DeviceId(0), 5000, b"abc");
    assert_eq!(one.digest(), two.digest());
    let extend = Operation::Allocate { offset: SIZE, bytes: SIZE };
    run_alone(&mut two, DeviceId(0), extend).expect("extended");
    assert_ne!(one.digest(), two.digest(), "the size belongs to the image");
}

#[test]
fn large_devices_cost_what_is_written() {
    let size = 1 << 50;
    let mut devices = MemoryDevices::with_sizes(&[size], 1);
    devices.poke(DeviceId(0), size - 10, &[1; 10]);
    assert_eq!(devices.peek(DeviceId(0), size - 12, 12), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let discard = Operation::Discard { offset: 4096, bytes: 1 << 30 };
    run_alone(&mut devices, DeviceId(0), discard).expect("discarded");
}

/// A device with a hole of 16 KiB at its second quarter of a MiB.
fn with_a_hole() -> (MemoryDevices, u64) {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    let offset = SIZE / 4;
    let discard = Operation::Discard { offset, bytes: 16_384 };
    run_alone(&mut devices, DeviceId(0), discard).expect("discarded");
    (devices, offset)
}

#[test]
fn a_hole_is_without_space_until_it_is_allocated() {
    let (mut devices, offset) = with_a_hole();
    assert_eq!(devices.unallocated_bytes(DeviceId(0), 0, 2 * SIZE), 16_384 + SIZE);
    let allocate = Operation::Allocate { offset: offset + 4096, bytes: 8192 };
    run_alone(&mut devices, DeviceId(0), allocate).expect("allocated");
    assert_eq!(devices.unallocated_bytes(DeviceId(0), offset, 16_384), 8192);
    submit(&mut devices, 1, write(offset + 4096, 8192, 7, WriteMode::Cached));
    assert_eq!(wait_for(&mut devices, 1)[0].result, Ok(()));
}

#[test]
#[should_panic(expected = "a part is a hole")]
fn a_write_into_a_hole_is_a_bug() {
    let (mut devices, offset) = with_a_hole();
    submit(&mut devices, 1, write(offset - 4096, 8192, 7, WriteMode::Cached));
}

#[test]
#[should_panic(expected = "a part is a hole")]
fn so_is_a_write_beside_the_discard() {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    submit(&mut devices, 1, Operation::Discard { offset: 8192, bytes: 8192 });
    submit(&mut devices, 2, write(12_288, 4096, 7, WriteMode::Cached));
}

/// Reads blocks of one device; returns those taken, each with its index and first byte, and the
/// time that it took.
fn read_blocks(blocks: &[u64], refuse_at: usize) -> (Vec<(usize, u8)>, u64) {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    devices.set_latency(LatencyModel { base_us: 1000, bytes_per_us: 4096, jitter_us: 3000 });
    for block in 0..SIZE / 4096 {
        submit(&mut devices, block, write(block * 4096, 4096, block as u8, WriteMode::Stable));
    }
    wait_for(&mut devices, (SIZE / 4096) as usize);
    let begun_us = devices.now_us();
    let ranges: Vec<_> = blocks.iter().map(|block| (DeviceId(0), block * 4096, 4096)).collect();
    let mut taken = Vec::new();
    let outcome = read_all(&mut devices, &ranges, &Bulk::default(), |index, read| {
        taken.push((index, read.expect("it is there")[0]));
        if index == refuse_at { Err(()) } else { Ok(()) }
    });
    assert_eq!(outcome.is_err(), refuse_at < blocks.len());
    assert_eq!(devices.in_flight(), 0);
    (taken, devices.now_us() - begun_us)
}

#[test]
fn each_read_is_taken_while_others_are_in_flight() {
    let blocks: Vec<u64> = (0..100).map(|number| number * 78 % 256).collect();
    let (mut taken, took_us) = read_blocks(&blocks, usize::MAX);
    let wanted: Vec<_> = blocks.iter().map(|block| *block as u8).enumerate().collect();
    taken.sort_unstable();
    assert_eq!(taken, wanted);
    assert!(took_us < 100 * 1000 / 4, "{took_us} us for 100 reads of 1000 us at least");
}

#[test]
fn no_read_is_taken_after_a_refusal() {
    let blocks: Vec<u64> = (0..100).map(|number| number * 2).collect();
    assert_eq!(read_blocks(&blocks, 70).0.last().map(|(index, _)| *index), Some(70));
    assert_eq!(read_blocks(&[], 0).0, []);
}

#[test]
fn gaps_are_read_over_and_so_many_requests_are_in_flight() {
    let ranges = [0, 2, 4, 6].map(|block: u64| (DeviceId(0), block * 4096, 4096));
    let took_ms = |requests_in_flight, gap_bytes_max| {
        let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
        devices.set_latency(LatencyModel { base_us: 1000, bytes_per_us: 4096, jitter_us: 0 });
        let bulk = Bulk { requests_in_flight, gap_bytes_max, ..Bulk::default() };
        let outcome: Result<(), ()> = read_all(&mut devices, &ranges, &bulk, |_, read| {
            assert_eq!(read.expect("it is there").len(), 4096);
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
        devices.now_us() / 1000
    };
    assert_eq!((took_ms(64, 0), took_ms(2, 0), took_ms(1, 0)), (1, 2, 4));
    assert_eq!((took_ms(1, 4096), took_ms(1, 4095)), (1, 4));
}

#[test]
fn a_range_may_be_longer_than_what_is_read_ahead() {
    let mut devices = MemoryDevices::with_sizes(&[16 << 20], 1);
    let ranges = [(DeviceId(0), 0, 10 << 20), (DeviceId(0), 12 << 20, 4096)];
    let mut lengths = [0; 2];
    let outcome: Result<(), ()> =
        read_all(&mut devices, &ranges, &Bulk::default(), |index, read| {
            lengths[index] = read.expect("it is there").len();
            Ok(())
        });
    assert_eq!((outcome, lengths), (Ok(()), [10 << 20, 4096]));
}
