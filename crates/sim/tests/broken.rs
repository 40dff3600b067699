//! A simulator that cannot fail proves nothing: engines that are broken on purpose must be caught.
//!
//! Each fault that the simulator lists has to make it report a failure within [`SEEDS`] seeds.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Seeds within which a broken engine is caught.
const SEEDS: &str = "50";

fn simulate(arguments: &[&str]) -> Output {
    let simulator = env!("CARGO_BIN_EXE_upsweep-sim");
    Command::new(simulator).args(arguments).output().expect("the simulator runs")
}

/// What is wrong with a run of the simulator on a broken engine, if so.
fn complaint(fault: &str) -> Option<String> {
    let seeds = ["--seed", "1", "--runs", SEEDS, "--steps", "1000", "--failures-max", "1"];
    let run = simulate(&[&["--jobs", "1", "--break", fault][..], &seeds].concat());
    let output = String::from_utf8_lossy(&run.stdout);
    let verdict = output.lines().last().unwrap_or_default();
    if run.status.success() {
        return Some(format!("{fault} was not caught: {verdict}"));
    }
    let is_verdict = verdict.ends_with(" passed, 1 failed");
    (!is_verdict).then(|| format!("{fault} ended in {verdict:?}: {run:?}"))
}

#[test]
fn broken_engines_are_caught() {
    let list = simulate(&["--list-faults"]);
    assert!(list.status.success(), "{list:?}");
    let list = String::from_utf8_lossy(&list.stdout);
    let faults: Vec<&str> = list.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(!faults.is_empty(), "there are faults to choose from");
    let next = AtomicUsize::new(0);
    let try_the_rest = || {
        let mut complaints = Vec::new();
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            complaints.extend(complaint(fault));
        }
        complaints
    };
    let complaints: Vec<String> = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(try_the_rest)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no panic in there"));
        ended.flatten().collect()
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
