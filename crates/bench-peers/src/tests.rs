//! Every engine that is built in goes through tiny cells, without a limit of memory: all workloads,
//! all classes, with their checks.

use std::path::Path;

use clap::ValueEnum;

use crate::cell;
use crate::cell::acknowledged::Acknowledged;
use crate::cell::spec::{Spec, Step};
use crate::engine::{Batch, Change, Config, Durability, Engine, KEY_BYTES_MAX, Key, record_bytes};
use crate::engines::{self, Entry};
use crate::outcome::Outcome;
use crate::workload::keys::Keys;
use crate::workload::{Class, Workload};

const RECORDS: u64 = 5000;
const MEMORY_BYTES: u64 = 64 << 20;

fn spec(folder: &Path, entry: &Entry) -> Spec {
    let text = folder.join("text");
    std::fs::write(&text, "so many words, so little memory\n").expect("a text");
    let store = folder.join("store");
    std::fs::create_dir_all(&store).expect("a folder");
    Spec {
        step: Step::Load,
        engine: entry.name.to_owned(),
        workload: Workload::Increments,
        class: Class::Relaxed,
        folder: store,
        cgroup: None,
        memory_bytes: MEMORY_BYTES,
        records: RECORDS,
        key_bytes: 8,
        seconds: 0.2,
        seconds_max: 0.2,
        warm_up_seconds: 0.05,
        rate: None,
        seed: 1,
        run: 0,
        counters: Some(0),
        has_check: true,
        text: Some(text),
        acknowledged: folder.join("acknowledged"),
        reply: folder.join("reply"),
    }
}

/// Does a step; the spec knows of it afterwards.
fn perform(spec: &mut Spec) -> Outcome {
    let about = format!("{} {:?} {:?}", spec.engine, spec.workload, spec.class);
    let reply = cell::perform(spec);
    spec.counters = reply.counters;
    spec.run += 1;
    reply.outcome.unwrap_or_else(|failure| panic!("{about}: {failure}"))
}

#[test]
fn every_engine_runs_every_workload_and_every_class_and_counts_right() {
    for entry in engines::ENTRIES {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spec = spec(folder.path(), entry);
        assert_eq!(perform(&mut spec).updates, RECORDS);
        spec.step = Step::Run;
        try_classes(&mut spec);
        spec.class = Class::Batches64;
        for workload in Workload::value_variants() {
            spec.workload = *workload;
            spec.rate = workload.load().map(|load| load * 20_000.0);
            spec.has_check = workload.is_counted() && workload.has_updates();
            let outcome = perform(&mut spec);
            let did = outcome.updates as f64 + outcome.reads_per_second + outcome.scans_per_second;
            assert!(did > 0.0, "{} {workload:?}", entry.name);
        }
    }
}

/// Increments in all classes, which must count right.
fn try_classes(spec: &mut Spec) {
    for class in Class::ALL {
        spec.class = class;
        let outcome = perform(spec);
        let check = outcome.check.expect("a check");
        assert!(outcome.updates > 0 && check.expected == check.found, "{}", spec.engine);
        let is_steady = outcome.turns.is_none_or(|turns| turns.are_enough());
        assert_eq!(outcome.is_steady, Some(is_steady), "{}", spec.engine);
    }
}

#[test]
fn every_engine_counts_right_with_the_longest_keys() {
    for entry in engines::ENTRIES {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spec = Spec { key_bytes: KEY_BYTES_MAX, ..spec(folder.path(), entry) };
        assert_eq!(perform(&mut spec).updates, RECORDS);
        spec.step = Step::Run;
        try_classes(&mut spec);
    }
}

#[test]
fn a_run_goes_on_until_it_is_steady_and_no_longer_than_allowed() {
    for entry in engines::ENTRIES {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spec = spec(folder.path(), entry);
        perform(&mut spec);
        (spec.step, spec.class, spec.seconds_max) = (Step::Run, Class::Single, 1.3);
        let outcome = perform(&mut spec);
        let (lasted, turns) = (outcome.callers_seconds, outcome.turns);
        let is_right = if outcome.is_steady == Some(true) {
            turns.is_none() && lasted.is_some_and(|lasted| lasted < 1.0)
        } else {
            turns.is_some_and(|turns| turns.done < turns.enough)
                && lasted.is_some_and(|lasted| lasted >= 1.3)
        };
        assert!(is_right, "{}: {lasted:?} s, {turns:?}", entry.name);
    }
}

#[test]
fn wrong_sums_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spec = spec(folder.path(), &engines::ENTRIES[0]);
    perform(&mut spec);
    spec.step = Step::Run;
    spec.counters = spec.counters.map(|counters| counters + 1);
    let failure = cell::perform(&spec).outcome.expect_err("a wrong sum");
    assert!(failure.contains("WRONG"), "{failure}");
}

#[test]
fn a_recovery_must_find_what_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spec = spec(folder.path(), &engines::ENTRIES[0]);
    perform(&mut spec);
    spec.step = Step::Recover;
    for (acknowledged, is_right) in [(5, false), (0, true)] {
        let noted = Acknowledged::create(&spec.acknowledged, 0).expect("made");
        // As if 5 had been handed over; or as if 5 were there, of which none was acknowledged.
        noted.issue(0, 5).expect("noted");
        noted.acknowledge(0, acknowledged).expect("noted");
        let found = cell::perform(&spec).outcome;
        let refused = found.expect_err("nothing was acknowledged, or all is lost");
        assert_eq!(refused.contains("WRONG"), !is_right, "{refused}");
    }
}

#[test]
fn engines_agree_on_what_updates_do() {
    for entry in engines::ENTRIES {
        let folder = tempfile::tempdir().expect("a folder");
        let (data_bytes, durability) = (10 * record_bytes(8), Durability::Durable);
        let config = Config { memory_bytes: MEMORY_BYTES, data_bytes, key_bytes: 8, durability };
        let engine = (entry.open)(folder.path(), &config).expect("opened");
        engine.load(&mut Keys::new(10, 1, 8).all()).expect("loaded");
        try_updates(entry.name, engine.as_ref());
        engine.quiesce().expect("at rest");
        drop(engine);
        let engine = (entry.open)(folder.path(), &config).expect("opened again");
        assert_eq!(engine.get(b"new").expect("read"), Some(2), "{}", entry.name);
        let scanned = engine.scan(&[], u64::MAX).expect("scanned");
        assert_eq!((scanned.records, scanned.counters), (10, 2), "{}", entry.name);
    }
}

fn try_updates(name: &str, engine: &dyn Engine) {
    let (new, first) = (Key::text(b"new"), Keys::new(10, 1, 8).loaded(0));
    let apply = |updates: &[(Key, Change)]| {
        let mut batch = Batch::default();
        updates.iter().for_each(|(key, change)| batch.push(key, *change));
        engine.apply(&batch.updates(), Durability::Durable).expect("applied");
    };
    let get = |key: Key| engine.get(&key.to_vec()).expect("read");
    assert_eq!((get(new), get(first)), (None, Some(0)), "{name}");
    apply(&[(new, Change::Increment), (first, Change::Increment), (new, Change::Increment)]);
    assert_eq!((get(new), get(first)), (Some(2), Some(1)), "{name}");
    apply(&[(first, Change::Put(9))]);
    assert_eq!(get(first), Some(0), "{name}");
    apply(&[(first, Change::Delete)]);
    assert_eq!(get(first), None, "{name}");
    let scanned = engine.scan(&first.to_vec(), 3).expect("scanned");
    assert_eq!(scanned.records, 3, "{name}");
}
