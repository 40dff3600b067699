//! Measurements and raw-device checks, run by hand (`--ignored --nocapture`, release build).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::device::{
    EngineChoice, HostDevices, HostOptions, HostPath, ScratchRange, probe, read_alone, run_alone,
    write_alone,
};

const DEVICE: DeviceId = DeviceId(0);
const BYTES: u64 = 256 << 20;

fn open(path: PathBuf, create: bool, engine: EngineChoice) -> HostDevices {
    let options = HostOptions { engine, direct: true };
    HostDevices::open(&[HostPath { path, create }], options).expect("opened")
}

#[expect(clippy::print_stderr, reason = "a measurement for people")]
fn report(text: &str) {
    eprintln!("{text}");
}

fn percentiles(name: &str, mut samples: Vec<Duration>) {
    samples.sort_unstable();
    let at = |per_cent: usize| samples[(samples.len() - 1) * per_cent / 100].as_nanos() / 100;
    let [low, median, high] = [5, 50, 90].map(|per_cent| at(per_cent) as f64 / 10.0);
    report(&format!("{name}: p5 {low} us, p50 {median} us, p90 {high} us"));
}

/// Latency of single operations and the probe, on a file in `UPSWEEP_MEASURE_FOLDER`.
#[test]
#[ignore = "a measurement: run it in a release build, on a quiet machine"]
fn latency() {
    let folder = std::env::var("UPSWEEP_MEASURE_FOLDER").unwrap_or_else(|_| "/tmp".to_owned());
    for round in 0..2 {
        for engine in [EngineChoice::IoUring, EngineChoice::ThreadPool] {
            let folder = tempfile::tempdir_in(&folder).expect("a folder");
            let mut devices = open(folder.path().join("device"), true, engine);
            run_alone(&mut devices, DEVICE, Operation::Grow { bytes: BYTES }).expect("grown");
            let start = Instant::now();
            let scratch = ScratchRange { offset: 0, bytes: 64 << 20 };
            let profile = probe(&mut devices, DEVICE, scratch, || start.elapsed());
            report(&format!("{round} {:?} {profile:?}", devices.description(DEVICE)));
            for (name, stable) in [("dsync write", true), ("read", false)] {
                let mut samples = Vec::new();
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_secs(3) {
                    let offset = (samples.len() as u64 * 7919 % (16 << 10)) * 4096;
                    let start = Instant::now();
                    if stable {
                        write_alone(&mut devices, DEVICE, offset, filled(4096, 1)).expect("ok");
                    } else {
                        read_alone(&mut devices, DEVICE, offset, 4096).expect("ok");
                    }
                    samples.push(start.elapsed());
                }
                percentiles(&format!("{engine:?} {name} 4 KiB, depth 1"), samples);
            }
            across_threads(devices, &format!("{engine:?} dsync write through a driver thread"));
        }
    }
}

/// A caller submits, a driver thread waits and tells the caller.
fn across_threads(mut devices: HostDevices, name: &str) {
    let waiter = devices.waiter();
    let (tell, told) = std::sync::mpsc::channel();
    let driver = std::thread::spawn(move || {
        let mut completions = Vec::new();
        loop {
            waiter.wait(None, &mut completions);
            for done in completions.drain(..) {
                if done.token == Token(1) || tell.send(done).is_err() {
                    return;
                }
            }
        }
    });
    let mut samples = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        let start = Instant::now();
        let offset = samples.len() as u64 * 7919 % (16 << 10) * 4096;
        submit(&mut devices, 0, write(offset, 4096, 1, Durability::Stable));
        told.recv().expect("the driver lives");
        samples.push(start.elapsed());
    }
    submit(&mut devices, 1, Operation::Flush);
    driver.join().expect("the driver ends");
    percentiles(name, samples);
}

/// A raw block device, whose content is lost.
#[test]
#[ignore = "destroys the content of the block device in UPSWEEP_TEST_BLOCK_DEVICE"]
fn block_device() {
    let path = PathBuf::from(std::env::var("UPSWEEP_TEST_BLOCK_DEVICE").expect("a path"));
    for engine in [EngineChoice::IoUring, EngineChoice::ThreadPool] {
        let mut devices = open(path.clone(), false, engine);
        report(&format!("{:?} {:?}", devices.description(DEVICE), devices.geometry(DEVICE)));
        assert!(devices.geometry(DEVICE).size_bytes > 0 && !devices.geometry(DEVICE).growable);
        for round in 0..3 {
            write_alone(&mut devices, DEVICE, 0, filled(1 << 20, 5)).expect("written");
            let discard = Operation::Discard { offset: 65536, bytes: 65536 };
            run_alone(&mut devices, DEVICE, discard).expect("discarded");
            let content = read_alone(&mut devices, DEVICE, 0, 1 << 20).expect("read");
            let zeros = content.iter().filter(|byte| **byte == 0).count();
            report(&format!("round {round}: {zeros} bytes are zero after a discard of 65536"));
            assert!(content[..65536].iter().all(|byte| *byte == 5));
        }
        for token in 0..100 {
            submit(&mut devices, token, Operation::Discard { offset: 4096 * token, bytes: 4096 });
        }
        wait_for(&mut devices, 100);
        let grown = run_alone(&mut devices, DEVICE, Operation::Grow { bytes: 1 << 40 });
        assert!(grown.is_err(), "a raw device does not grow");
        run_alone(&mut devices, DEVICE, Operation::Flush).expect("flushed");
    }
}
