//! Files through both engines: waiters, wakers, threads that end, and refused paths.

#![expect(clippy::disallowed_methods, reason = "tests of real files and threads")]
#![expect(clippy::disallowed_types, reason = "tests of real files and threads")]

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::file::{extended_in_vain, io_error};
use super::os::{Basics, System};
use super::{EngineChoice, HostDevices, HostOptions, HostPath};
use crate::device::tests::*;
use crate::device::{
    Bank, DeviceError, DeviceId, Devices, Operation, WriteMode, read_alone, run_alone, write_alone,
};
use crate::{Error, RequestError};

const DEVICE: DeviceId = DeviceId(0);
const SECOND: Duration = Duration::from_secs(1);

/// Runs a test on each engine that this host allows, with a bank of one file of [`SIZE`] bytes.
fn on_each_engine(test: impl Fn(HostDevices)) {
    for engine in [EngineChoice::ThreadPool, EngineChoice::IoUring] {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = HostPath { path: folder.path().join("device"), create: true };
        let Ok(mut devices) =
            HostDevices::open(&[path], HostOptions { engine, ..HostOptions::default() })
        else {
            assert_eq!(engine, EngineChoice::IoUring, "the thread pool always works");
            continue;
        };
        let allocate = Operation::Allocate { offset: 0, bytes: SIZE };
        run_alone(&mut devices, DEVICE, allocate).expect("allocated");
        test(devices);
    }
}

#[test]
fn a_wake_ends_the_wait_and_a_timeout_too() {
    on_each_engine(|devices| {
        let waiter = devices.waiter();
        let mut completions = Vec::new();
        let start = Instant::now();
        waiter.wait(Some(Duration::from_millis(20)), &mut completions);
        assert!(start.elapsed() >= Duration::from_millis(15));
        let waker = devices.waker();
        waker.wake();
        waker.wake();
        let start = Instant::now();
        waiter.wait(None, &mut completions);
        assert!(start.elapsed() < SECOND, "a wake before the wait counts");
        waiter.wait(Some(Duration::ZERO), &mut completions);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            waiter.wait(None, &mut completions);
        });
        assert!(completions.is_empty());
    });
}

#[test]
fn dropping_the_bank_ends_the_wait() {
    on_each_engine(|devices| {
        let (waiter, waker) = (devices.waiter(), devices.waker());
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| waiter.wait(None, &mut Vec::new()));
            std::thread::sleep(Duration::from_millis(10));
            drop(devices);
            wait.join().expect("the waiter returns");
        });
        waiter.wait(None, &mut Vec::new());
        waker.wake();
    });
}

#[test]
fn many_submitters_one_driver() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    on_each_engine(|devices| {
        let waiter = devices.waiter();
        let devices = Mutex::new(devices);
        let seen = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let devices = &devices;
                // The thread ends with its requests in flight, which the kernel may then cancel.
                scope.spawn(move || {
                    for number in 0..EACH {
                        let token = thread * EACH + number;
                        let operation = match number % 50 {
                            0 => Operation::Flush,
                            1..25 => read(number % 200 * 4096, 4096),
                            _ => write(number % 200 * 4096, 4096, 1, WriteMode::Cached),
                        };
                        submit(&mut *devices.lock().expect("no panic"), token, operation);
                    }
                });
            }
            scope.spawn(|| {
                let mut tokens = std::collections::BTreeSet::new();
                let mut completions = Vec::new();
                while tokens.len() < (THREADS * EACH) as usize {
                    waiter.wait(Some(10 * SECOND), &mut completions);
                    assert!(!completions.is_empty(), "completions are missing");
                    for done in completions.drain(..) {
                        assert_eq!(done.result, Ok(()));
                        assert!(tokens.insert(done.token), "a request completed twice");
                    }
                }
                seen.store(tokens.len(), Ordering::Relaxed);
            });
        });
        assert_eq!(seen.load(Ordering::Relaxed), (THREADS * EACH) as usize);
    });
}

#[test]
fn a_file_that_shrank_gives_an_error() {
    on_each_engine(|mut devices| {
        let path = PathBuf::from(devices.description(DEVICE).name);
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("opened");
        file.set_len(4096).expect("truncated");
        let read = read_alone(&mut devices, DEVICE, SIZE - 8192, 8192).map(|_| ());
        assert_eq!(read, Err(DeviceError::InvalidRange));
        let read = read_alone(&mut devices, DEVICE, 0, 4096).map(|_| ());
        assert_eq!(read, Ok(()));
    });
}

#[test]
fn content_and_size_survive_reopening() {
    on_each_engine(|mut devices| {
        write_alone(&mut devices, DEVICE, 8192, filled(4096, 7)).expect("written");
        let path = PathBuf::from(devices.description(DEVICE).name);
        drop(devices);
        let path = HostPath { path, create: false };
        let mut devices = HostDevices::open(&[path], HostOptions::default()).expect("opened");
        assert_eq!(devices.geometry(DEVICE).size_bytes, SIZE);
        let content = read_alone(&mut devices, DEVICE, 8192, 4096).expect("read");
        assert!(content.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn descriptions_say_what_and_why() {
    on_each_engine(|devices| {
        let description = devices.description(DEVICE);
        assert!(["io_uring", "thread pool"].contains(&description.engine));
        assert!(description.reasons[0].contains(description.engine), "{description:?}");
        assert!(description.direct || description.reasons.len() > 1, "{description:?}");
    });
}

#[test]
fn a_device_without_room() {
    // /dev/full is no block device; a growth beyond any file system is the portable full device.
    on_each_engine(|mut devices| {
        let allocate = Operation::Allocate { offset: SIZE, bytes: 1 << 62 };
        let allocated = run_alone(&mut devices, DEVICE, allocate);
        assert_eq!(allocated.map(|_| ()), Err(DeviceError::NoSpace));
        assert_eq!(devices.geometry(DEVICE).size_bytes, SIZE);
    });
}

#[test]
fn an_error_of_the_system_keeps_its_number_unless_it_is_a_lack_of_room() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
        assert_eq!(io_error(&kind.into()), DeviceError::NoSpace);
        let in_vain = extended_in_vain(&kind.into());
        assert_eq!(in_vain, DeviceError::Failed { errno: System::IO_ERROR });
    }
    let failed = |error: std::io::Error| match io_error(&error) {
        DeviceError::Failed { errno } => errno,
        other => panic!("{other}"),
    };
    assert_eq!(failed(std::io::Error::from_raw_os_error(System::CLOSED)), System::CLOSED);
    assert_eq!(failed(ErrorKind::Unsupported.into()), System::UNSUPPORTED);
    assert_eq!(failed(ErrorKind::WriteZero.into()), System::IO_ERROR);
    let unsupported = std::io::Error::from_raw_os_error(System::UNSUPPORTED);
    assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
}

#[test]
fn refused_paths() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let open = |path: PathBuf, create| {
        HostDevices::open(&[HostPath { path, create }], HostOptions::default()).map(|_| ())
    };
    let path = folder.path().join("file");
    let missing = open(path.clone(), false);
    assert!(matches!(missing, Err(Error::Request(RequestError::Path { .. }))), "{missing:?}");
    open(path.clone(), true).expect("created");
    let again = open(path.clone(), true);
    assert_eq!(again, Err(RequestError::AlreadyExists(path).into()));
    for odd in [folder.path().to_owned(), PathBuf::from("/dev/null")] {
        let refused = open(odd, false);
        assert!(matches!(refused, Err(Error::Request(RequestError::Path { .. }))), "{refused:?}");
    }
}

#[test]
fn the_pool_stands_in_where_the_kernel_refuses_a_ring() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = HostPath { path: folder.path().join("device"), create: true };
    let refuse = |_| Err("the kernel refuses io_uring: EPERM".to_owned());
    let mut devices =
        HostDevices::open_with(std::slice::from_ref(&path), HostOptions::default(), refuse)
            .expect("opened");
    let description = devices.description(DEVICE);
    assert_eq!(description.engine, "thread pool");
    assert_eq!(description.reasons[0], "thread pool: the kernel refuses io_uring: EPERM");
    let allocate = Operation::Allocate { offset: 0, bytes: SIZE };
    run_alone(&mut devices, DEVICE, allocate).expect("allocated");
    drop(devices);
    let path = HostPath { create: false, ..path };
    let demanded = HostOptions { engine: EngineChoice::IoUring, ..HostOptions::default() };
    let error = HostDevices::open_with(&[path], demanded, refuse).map(|_| ());
    assert!(matches!(error, Err(Error::Request(RequestError::BadConfig { .. }))), "{error:?}");
}

#[test]
fn requests_of_a_thread_that_has_ended_complete() {
    on_each_engine(|devices| {
        let waiter = devices.waiter();
        let devices = Mutex::new(devices);
        for round in 0..20 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut devices = devices.lock().expect("no panic");
                    for token in 0..8 {
                        let mode = WriteMode::Cached;
                        submit(&mut *devices, token, write(token * 65536, 65536, 1, mode));
                        submit(&mut *devices, 100 + token, Operation::Flush);
                        let bytes = (round * 8 + token + 1) * 4096;
                        let extend = Operation::Allocate { offset: SIZE, bytes };
                        submit(&mut *devices, 200 + token, extend);
                    }
                });
            });
            let mut completions = Vec::new();
            while completions.len() < 24 {
                let before = completions.len();
                waiter.wait(Some(10 * SECOND), &mut completions);
                assert!(completions.len() > before, "completions are missing");
            }
            for done in completions {
                assert_eq!(done.result, Ok(()), "token {}", done.token.0);
            }
        }
    });
}

#[test]
fn a_hole_gives_space_back_to_the_file_system_until_it_is_allocated() {
    on_each_engine(|mut devices| {
        write_alone(&mut devices, DEVICE, 0, filled(SIZE as usize, 7)).expect("written");
        assert!(devices.allocated_bytes(DEVICE) >= SIZE);
        let (offset, bytes) = (SIZE / 4, SIZE / 2);
        let hole = run_alone(&mut devices, DEVICE, Operation::Discard { offset, bytes });
        if hole.is_err() {
            return; // The file system of temporary files does not support holes.
        }
        assert!(devices.allocated_bytes(DEVICE) < SIZE * 3 / 4);
        assert_eq!(devices.geometry(DEVICE).size_bytes, SIZE);
        let allocate = Operation::Allocate { offset: 0, bytes: SIZE };
        run_alone(&mut devices, DEVICE, allocate).expect("allocated");
        assert!(devices.allocated_bytes(DEVICE) >= SIZE);
        let content = read_alone(&mut devices, DEVICE, 0, SIZE as usize).expect("read");
        let (start, rest) = content.split_at(offset as usize);
        let (middle, end) = rest.split_at(bytes as usize);
        assert!(start.iter().chain(end).all(|byte| *byte == 7));
        assert!(middle.iter().all(|byte| *byte == 0));
    });
}
