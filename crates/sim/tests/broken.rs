//! A simulator that cannot fail proves nothing: deliberately broken engines must be caught.
//!
//! Each variant is the whole simulator, built with a feature that breaks the engine, in a target
//! folder of its own. It has to report a failure within [`SEEDS`] seeds.

use std::path::Path;
use std::process::Command;

/// Seeds within which a broken engine is caught.
const SEEDS: &str = "50";

fn is_caught(feature: &str) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "upsweep-sim", "--features", feature])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "{feature} does not build");
    let run = Command::new(target.join("debug/upsweep-sim"))
        .args(["--seed", "1", "--runs", SEEDS, "--steps", "1000", "--failures-max", "1"])
        .output()
        .expect("the simulator runs");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success(), "{feature} was not caught: {output}");
    let verdict = output.lines().last().unwrap_or_default();
    assert!(verdict.ends_with(" passed, 1 failed"), "{feature} ended in {verdict:?}");
}

/// What is broken: acknowledging before the log is durable, the check of frontiers, writing to free
/// space only, giving images back, shadowing what is shared, what waits when a block is cloned,
/// replay that passes by what spill segments have, telling those who wait for room that a run has
/// made some, full speed while somebody waits, spills that begin before what they relieve is full,
/// long updates that are refused, allocating holes before they are written to, and when a ring of
/// the log may become longer.
const BROKEN: [&str; 13] = [
    "broken-early-acknowledge",
    "broken-frontier",
    "broken-overwrite-in-place",
    "broken-leak",
    "broken-shared-in-place",
    "broken-clone-without-waiting",
    "broken-spill",
    "broken-lost-wake",
    "broken-rest",
    "broken-late-spill",
    "broken-lost-refusal",
    "broken-hole",
    "broken-log-growth",
];

/// One test for all: they share a target folder, and so the dependencies.
#[test]
fn broken_engines_are_caught() {
    BROKEN.into_iter().for_each(is_caught);
}
