//! Rotating drives in a bank.

use super::*;
use crate::device::drive::{
    Command, Detail, Drive, DriveDescription, Operation as Kind, Overheads, Queue, ReadAhead,
    Scheduler, WriteBack,
};
use crate::device::random::SplitMix64;
use crate::device::{DeviceError, MemoryDevices, Simulated, run_alone};

/// Cylinders of the drive: 200 of them hold 26,214,400 bytes.
const CYLINDERS: u32 = 200;

fn description(scheduler: Scheduler) -> DriveDescription {
    let mut drive = DriveDescription::plain(CYLINDERS);
    drive.queue = Queue { depth: 4, scheduler, ..drive.queue };
    drive.overhead_ms = Overheads { other: 0.3, ..Overheads::default() };
    drive.cache.enabled = true;
    drive.cache.read_ahead = ReadAhead::UntilSegmentFull;
    drive.cache.read_ahead_max_sectors = 256;
    drive.cache.segment_sectors = 512;
    drive.cache.segments = 4;
    drive.cache.write_back = WriteBack::Any;
    drive.cache.write_segments_max = 2;
    assert_eq!(drive.check(), Ok(()));
    drive
}

fn bank(scheduler: Scheduler, detail: Detail) -> MemoryDevices {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    let drive = Drive::new(&description(scheduler), detail);
    devices.set_drive(DeviceId(0), drive);
    devices
}

/// When a request arrives in microseconds, whether it reads, its offset and length.
type Arrival = (u64, bool, u64, usize);

/// Requests, some of them at the same time.
fn load(seed: u64) -> Vec<Arrival> {
    let (mut random, mut now_us) = (SplitMix64::new(seed), 0);
    let request = |_| {
        now_us += [0, 0, 700, 9000, 40_000][random.below(5) as usize];
        let bytes = 4096 << random.below(5);
        let offset = random.below((SIZE - bytes) / 4096) * 4096;
        (now_us, random.coin(), offset, bytes as usize)
    };
    (0..300).map(request).collect()
}

/// When each request of the load completes, in microseconds. Between events the bank is asked
/// whether something has happened every `step_us`.
fn completions(devices: &mut MemoryDevices, load: &[Arrival], step_us: u64) -> Vec<u64> {
    let mut times = vec![0; load.len()];
    let mut found = Vec::new();
    let mut next = 0;
    while next < load.len() || devices.in_flight() > 0 {
        while next < load.len() && load[next].0 == devices.now_us() {
            let (_, reads, offset, bytes) = load[next];
            let operation = if reads {
                read(offset, bytes)
            } else {
                write(offset, bytes, 1, WriteMode::Stable)
            };
            submit(devices, next as u64, operation);
            next += 1;
        }
        let arrival = load.get(next).map(|(us, ..)| *us);
        let step = devices.now_us() + step_us;
        let event = devices.next_event_us().map(|us| us.max(devices.now_us() + 1));
        let until = [arrival, event, Some(step)].into_iter().flatten().min();
        devices.advance_to(until.expect("a step"));
        devices.reap(&mut found);
        let now_us = devices.now_us();
        found.drain(..).for_each(|done| times[done.token.0 as usize] = now_us);
    }
    times
}

#[test]
fn requests_take_the_time_of_the_drive() {
    let schedulers = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::Sptf, Scheduler::CLook];
    let details = [Detail::Overheads, Detail::Full];
    for (scheduler, detail) in schedulers.iter().flat_map(|one| details.map(|two| (*one, two))) {
        let load = load(1);
        let mut drive = Drive::new(&description(scheduler), detail);
        for (number, (arrival_us, reads, offset, bytes)) in (0..).zip(&load) {
            let operation = if *reads { Kind::Read } else { Kind::StableWrite };
            let (arrival_ms, lbn, sectors) =
                (*arrival_us as f64 / 1e3, offset / 512, *bytes as u64 / 512);
            drive.offer(number, Command { arrival_ms, operation, lbn, sectors });
        }
        let mut expected = vec![0; load.len()];
        while let Some((number, served)) = drive.serve_next() {
            expected[number as usize] = (served.completion_ms * 1e3).ceil() as u64;
        }
        let found = completions(&mut bank(scheduler, detail), &load, u64::MAX / 2);
        // One that ends at the moment of a decision of the drive is known a microsecond later.
        let late = |(found, expected): (&u64, &u64)| found.wrapping_sub(*expected);
        let late: Vec<_> = found.iter().zip(&expected).map(late).collect();
        assert!(late.iter().all(|us| *us <= 1), "{scheduler:?}, {detail:?}: {late:?}");
        assert!(late.iter().sum::<u64>() <= 3, "{scheduler:?}, {detail:?}: {late:?}");
    }
}

#[test]
fn it_does_not_matter_how_often_the_bank_is_asked() {
    let load = load(2);
    let mut seldom = bank(Scheduler::Sptf, Detail::Full);
    let expected = completions(&mut seldom, &load, u64::MAX / 2);
    for step_us in [1, 37, 5000] {
        let mut often = bank(Scheduler::Sptf, Detail::Full);
        assert_eq!(completions(&mut often, &load, step_us), expected, "every {step_us} us");
        assert_eq!(often.digest(), seldom.digest());
    }
}

#[test]
fn requests_of_the_same_moment_are_ordered_by_the_drive() {
    let mut devices = bank(Scheduler::Sstf, Detail::Overheads);
    let (near, far) = (0, SIZE - 4096);
    submit(&mut devices, 1, read(far, 4096));
    devices.reap(&mut Vec::new());
    submit(&mut devices, 2, read(near, 4096));
    let mut completions = Vec::new();
    devices.wait(&mut completions);
    assert_eq!(completions[0].token.0, 2, "the head is nearer to the second");
}

#[test]
fn a_drive_has_a_size() {
    let mut devices = bank(Scheduler::Fcfs, Detail::Full);
    let size = Drive::new(&description(Scheduler::Fcfs), Detail::Overheads).bytes();
    let all = Operation::Allocate { offset: 0, bytes: size };
    assert_eq!(run_alone(&mut devices, DeviceId(0), all).map(|_| ()), Ok(()));
    let more = Operation::Allocate { offset: size, bytes: 4096 };
    let refused = run_alone(&mut devices, DeviceId(0), more).map(|_| ());
    assert_eq!(refused, Err(DeviceError::NoSpace));
    assert_eq!(devices.geometry(DeviceId(0)).size_bytes, size);
}

#[test]
fn a_copy_goes_on_where_the_drive_is() {
    let mut devices = bank(Scheduler::Fcfs, Detail::Full);
    run_alone(&mut devices, DeviceId(0), read(SIZE - 4096, 4096)).expect("read");
    let mut copy = devices.copy();
    for bank in [&mut devices, &mut copy] {
        run_alone(bank, DeviceId(0), read(0, 4096)).expect("read");
    }
    assert_eq!(devices.now_us(), copy.now_us());
}
