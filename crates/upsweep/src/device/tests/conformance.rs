//! The conformance suite of [`Devices`], run on every implementation.

#![expect(clippy::disallowed_methods, reason = "tests of real files and threads")]

use super::*;
use crate::device::drive::{Detail, Drive, DriveDescription, Queue, Scheduler};
use crate::device::sim::solid_state::tests::small;
use crate::device::solid_state::SolidState;
use crate::device::{
    Bank, DeviceError, EngineChoice, HostDevices, HostOptions, HostPath, HostileDevices,
    JoinedDevices, MemoryDevices, Performer, ThreadedDevices, read_alone, run_alone, write_alone,
};

const DEVICE: DeviceId = DeviceId(0);
/// Whether every bank of the tests can discard.
const HOLES: bool = cfg!(all(target_os = "linux", not(feature = "generic-unix")));

/// Runs the suite; `open` returns a new bank whose device 0 is growable, has [`SIZE`] bytes, and
/// supports I/O of 4 KiB.
pub(crate) fn suite<D: Devices>(mut open: impl FnMut() -> D) {
    round_trip(&mut open());
    many_in_flight(&mut open());
    invalid_ranges(&mut open());
    allocate(&mut open());
    flush_and_discard(&mut open());
    nothing_in_flight(&mut open());
    drop_with_requests_in_flight(open());
}

fn round_trip(devices: &mut dyn Devices) {
    for (offset, bytes, byte) in [(0, 4096, 1), (SIZE - 65536, 65536, 2), (40960, 12288, 3)] {
        write_alone(devices, DEVICE, offset, filled(bytes, byte)).expect("written");
        let content = read_alone(devices, DEVICE, offset, bytes).expect("read");
        assert!(content.iter().all(|found| *found == byte));
    }
    let start = read_alone(devices, DEVICE, 0, 8192).expect("read");
    assert!(start[..4096].iter().all(|byte| *byte == 1));
}

fn many_in_flight(devices: &mut dyn Devices) {
    // More than any implementation passes on at once, so that its own queue is used.
    let count = 1500_u64;
    let place = |token: u64| (token % 256) * 4096;
    for token in 0..256 {
        submit(devices, token, write(place(token), 4096, token as u8, WriteMode::Cached));
    }
    let mut tokens: Vec<u64> = wait_for(devices, 256).iter().map(|done| done.token.0).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..256), "each request completes exactly once");
    for token in 0..count {
        submit(devices, token, read(place(token), 4096));
    }
    let mut seen = vec![false; count as usize];
    for done in wait_for(devices, count as usize) {
        assert_eq!((done.device, done.result), (DEVICE, Ok(())));
        let content = done.buffer.expect("a read gives its buffer back");
        assert!(content.iter().all(|byte| *byte == done.token.0 as u8));
        assert!(!std::mem::replace(&mut seen[done.token.0 as usize], true));
    }
}

fn invalid_ranges(devices: &mut dyn Devices) {
    let stable = WriteMode::Stable;
    let operations = [
        read(SIZE, 4096),
        read(SIZE - 4096, 8192),
        write(SIZE, 4096, 1, stable),
        write(u64::MAX - 4095, 4096, 1, stable),
        write(1, 4096, 1, stable),
        write(0, 100, 1, stable),
        read(0, 0),
        Operation::Discard { offset: SIZE, bytes: 4096 },
        Operation::Allocate { offset: SIZE + 4096, bytes: 4096 },
        Operation::Allocate { offset: 100, bytes: 4096 },
        Operation::Allocate { offset: 0, bytes: 0 },
        Operation::Allocate { offset: 4096, bytes: u64::MAX - 4095 },
    ];
    for operation in operations {
        let with_buffer = matches!(operation, Operation::Read { .. } | Operation::Write { .. });
        submit(devices, 7, operation);
        let done = wait_for(devices, 1).remove(0);
        assert_eq!(done.result, Err(DeviceError::InvalidRange));
        assert_eq!(done.buffer.is_some(), with_buffer, "a failed request gives its buffer back");
    }
    let device = DeviceId(devices.count());
    let (token, hint) = (Token(3), Class::Flush.into());
    devices.submit(Request { device, token, hint, operation: Operation::Flush });
    let done = wait_for(devices, 1).remove(0);
    assert_eq!((done.device, done.result), (device, Err(DeviceError::InvalidRange)));
}

fn allocate(devices: &mut dyn Devices) {
    assert_eq!(devices.geometry(DEVICE).size_bytes, SIZE);
    assert!(devices.geometry(DEVICE).growable);
    write_alone(devices, DEVICE, SIZE - 4096, filled(4096, 8)).expect("written");
    // Part of the range is allocated already, and keeps its bytes.
    let allocate = Operation::Allocate { offset: SIZE - 8192, bytes: SIZE + 8192 };
    run_alone(devices, DEVICE, allocate).expect("allocated");
    assert_eq!(devices.geometry(DEVICE).size_bytes, 2 * SIZE);
    let allocate = Operation::Allocate { offset: 0, bytes: 4096 };
    run_alone(devices, DEVICE, allocate).expect("allocated");
    assert_eq!(devices.geometry(DEVICE).size_bytes, 2 * SIZE, "it never shrinks");
    let content = read_alone(devices, DEVICE, SIZE - 4096, 4096).expect("read");
    assert!(content.iter().all(|byte| *byte == 8), "what had space keeps its bytes");
    let content = read_alone(devices, DEVICE, 2 * SIZE - 4096, 4096).expect("read");
    assert!(content.iter().all(|byte| *byte == 0), "fresh space reads as zeros");
    write_alone(devices, DEVICE, 2 * SIZE - 4096, filled(4096, 9)).expect("written");
}

fn flush_and_discard(devices: &mut dyn Devices) {
    submit(devices, 1, write(0, 16384, 5, WriteMode::Cached));
    assert_eq!(wait_for(devices, 1)[0].result, Ok(()));
    assert!(run_alone(devices, DEVICE, Operation::Flush).expect("flushed").is_none());
    let discard = Operation::Discard { offset: 4096, bytes: 8192 };
    let discarded = run_alone(devices, DEVICE, discard);
    // A host may not support holes; Linux and all other banks do.
    if HOLES {
        assert!(discarded.expect("discarded").is_none());
    }
    let content = read_alone(devices, DEVICE, 0, 16384).expect("any bytes, but no error");
    for kept in [&content[..4096], &content[12288..]] {
        assert!(kept.iter().all(|byte| *byte == 5), "discard keeps to its range");
    }
    run_alone(devices, DEVICE, Operation::Allocate { offset: 0, bytes: 8192 }).expect("allocated");
    write_alone(devices, DEVICE, 4096, filled(4096, 6)).expect("written again");
    let content = read_alone(devices, DEVICE, 4096, 4096).expect("read");
    assert!(content.iter().all(|byte| *byte == 6));
}

fn nothing_in_flight(devices: &mut dyn Devices) {
    let mut completions = Vec::new();
    devices.wait(&mut completions);
    devices.reap(&mut completions);
    assert!(completions.is_empty());
}

fn drop_with_requests_in_flight(mut devices: impl Devices) {
    for token in 0..600 {
        submit(&mut devices, token, read((token % 256) * 4096, 4096));
        submit(&mut devices, token + 1000, write(0, 65536, 1, WriteMode::Stable));
    }
    submit(&mut devices, 5000, Operation::Flush);
    drop(devices);
}

/// [`suite`], and what a bank that threads share does besides.
fn bank_suite<D: Bank>(mut open: impl FnMut() -> D) {
    suite(&mut open);
    performers(open());
}

/// Writes to units of a thread, and meanwhile reads what has been written the time before.
fn write_beside_reads(
    performer: &dyn Performer,
    thread: u64,
    request: impl Fn(u64, Operation) -> Request,
) {
    let (units, token) = (SIZE / 4096, |nth: u64| thread * 1000 + nth);
    let mut known = (units - 1, (units - 1) as u8);
    for nth in 0..100 {
        let unit = thread * 4 + nth % 4;
        let write = write(unit * 4096, 4096, nth as u8, WriteMode::Stable);
        let mut found = None;
        let written = performer.perform_beside(request(token(nth), write), &mut || {
            found = Some(performer.perform(request(token(500 + nth), read(known.0 * 4096, 4096))));
        });
        assert_eq!((written.token, written.result), (Token(token(nth)), Ok(())));
        let read = found.expect("it is called");
        assert_eq!((read.token, read.result), (Token(token(500 + nth)), Ok(())));
        let content = read.buffer.expect("a read gives its buffer back");
        assert!(content.iter().all(|byte| *byte == known.1));
        known = (unit, nth as u8);
    }
    let outside = request(token(0), read(units * 4096, 4096));
    let refused = performer.perform_beside(outside, &mut || ()).result;
    assert_eq!(refused, Err(DeviceError::InvalidRange));
}

/// Several threads that each perform many requests at a time.
fn performers(bank: impl Bank) {
    // More than any implementation passes on at once.
    let count = 600_u64;
    let request = |token: u64, operation: Operation| {
        let hint = Class::ForegroundRead.into();
        Request { device: DEVICE, token: Token(token), hint, operation }
    };
    let performer = bank.performer();
    let units = SIZE / 4096;
    for unit in 0..units {
        let write = write(unit * 4096, 4096, unit as u8, WriteMode::Cached);
        assert_eq!(performer.perform(request(unit, write)).result, Ok(()));
    }
    std::thread::scope(|scope| {
        for thread in 1..4 {
            let performer = &performer;
            scope.spawn(move || {
                let token = |nth: u64| thread * 1000 + nth;
                let place = |nth: u64| nth * 31 % units;
                let reads = (0..count).map(|nth| {
                    // The last one is behind the end.
                    let unit = if nth == count - 1 { units } else { place(nth) };
                    request(token(nth), read(unit * 4096, 4096))
                });
                let mut done = performer.perform_all(reads.collect());
                done.sort_by_key(|done| done.token.0);
                assert!(done.iter().map(|done| done.token.0).eq((0..count).map(token)));
                let outside = done.pop().expect("the last one").result;
                assert_eq!(outside, Err(DeviceError::InvalidRange));
                for (nth, done) in (0..).zip(done) {
                    assert_eq!((done.device, done.result), (DEVICE, Ok(())));
                    let content = done.buffer.expect("a read gives its buffer back");
                    assert!(content.iter().all(|byte| *byte == place(nth) as u8));
                }
            });
        }
    });
    std::thread::scope(|scope| {
        for thread in 1..4 {
            let performer = &*performer;
            scope.spawn(move || write_beside_reads(performer, thread, request));
        }
    });
    assert!(performer.perform_all(Vec::new()).is_empty());
    drop(bank);
    let reads = (0..2).map(|token| request(token, read(0, 4096))).collect();
    assert!(performer.perform_all(reads).iter().all(|done| done.result.is_err()));
    let mut is_called = false;
    let gone = performer.perform_beside(request(0, read(0, 4096)), &mut || is_called = true);
    assert!(gone.result.is_err() && is_called);
}

#[test]
fn memory() {
    suite(|| MemoryDevices::with_sizes(&[SIZE], 1));
}

#[test]
fn rotating_drives() {
    suite(|| {
        let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
        let mut drive = DriveDescription::plain(200);
        drive.queue = Queue { depth: 8, scheduler: Scheduler::Sptf, ..drive.queue };
        devices.set_drive(DEVICE, Drive::new(&drive, Detail::Overheads));
        devices
    });
}

#[test]
fn solid_state_devices() {
    suite(|| {
        let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
        devices.set_solid_state(DEVICE, SolidState::new(&small()));
        devices
    });
}

#[test]
fn hostile_with_faults_off() {
    suite(|| HostileDevices::new(MemoryDevices::with_sizes(&[SIZE], 1), 1));
}

#[test]
fn memory_advances_only_on_demand() {
    let mut devices = MemoryDevices::with_sizes(&[SIZE], 1);
    submit(&mut devices, 1, read(0, 4096));
    let mut completions = Vec::new();
    devices.reap(&mut completions);
    assert!(completions.is_empty(), "nothing is due at the time of submission");
}

#[test]
fn threads_over_memory() {
    bank_suite(|| ThreadedDevices::new(MemoryDevices::with_sizes(&[SIZE], 1)));
}

#[test]
fn joined() {
    bank_suite(|| {
        let bank = |seed| -> Box<dyn Bank> {
            Box::new(ThreadedDevices::new(MemoryDevices::with_sizes(&[SIZE], seed)))
        };
        JoinedDevices::new(vec![bank(1), bank(2)]).expect("threads")
    });
}

/// Runs the suite over files in `folder`, through one engine.
fn host_suite(folder: &std::path::Path, options: HostOptions) {
    let folder = tempfile::tempdir_in(folder).expect("a folder for the test");
    let mut number = 0;
    bank_suite(|| {
        number += 1;
        let path = folder.path().join(number.to_string());
        let mut devices = HostDevices::open(&[HostPath { path, create: true }], options)
            .expect("the engine works on this host");
        let allocate = Operation::Allocate { offset: 0, bytes: SIZE };
        run_alone(&mut devices, DEVICE, allocate).expect("allocated");
        devices
    });
}

fn both_folders(engine: EngineChoice) {
    for direct in [true, false] {
        host_suite(&std::env::temp_dir(), HostOptions { engine, direct, read_only: false });
    }
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        host_suite(memory, HostOptions { engine, ..HostOptions::default() });
    }
}

#[test]
fn thread_pool() {
    both_folders(EngineChoice::ThreadPool);
}

#[test]
fn io_uring() {
    // Where the kernel refuses it, only the error can be tested.
    match HostDevices::open(
        &[],
        HostOptions { engine: EngineChoice::IoUring, ..HostOptions::default() },
    ) {
        Ok(_) => both_folders(EngineChoice::IoUring),
        Err(error) => assert!(error.to_string().contains("io_uring"), "{error}"),
    }
}
