//! What the store tells those who trace it. One subscriber for all threads, hence one test.

#![expect(clippy::disallowed_types, reason = "tests with threads")]

#[path = "all/gate.rs"]
mod gate;
#[path = "all/stall.rs"]
mod stall;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use stall::stalled;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use upsweep::layers::device::{FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, Durability, Error, Store};

/// Keeps all events of the store as lines: level, and fields with the message among them.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "upsweep"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// Takes out all lines, one of which must have all these parts for each of `wanted`.
    fn expect(&self, wanted: &[&[&str]]) {
        let lines = std::mem::take(&mut *self.0.lock().expect("no panic"));
        for parts in wanted {
            let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
            assert!(lines.iter().any(|line| has_all(&line)), "no {parts:?} in {lines:#?}");
        }
    }
}

fn open_and_recovery(lines: &Lines, bank: &ThreadedDevices<HostileDevices>) {
    let options = CreateOptions::default().log_bytes(64 << 20);
    let store = Store::builder().create_on(bank.clone(), 1, &options).expect("made");
    lines.expect(&[&["INFO", "the store is open", "seconds="]]);
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    // They fold, so no queue becomes so long that it is swept, and all have to be replayed.
    for number in 0..110_000u32 {
        table.add(&(number % 16).to_be_bytes(), 1).expect("accepted");
    }
    store.close().expect("closed");
    let store = Store::builder().open_on(bank.clone()).expect("opens");
    lines.expect(&[
        &["INFO", "the end of the log is found", "last="],
        &["INFO", "the checkpoint is loaded", "blocks="],
        &["INFO", "changes of the directory are replayed"],
        &["INFO", "updates are being replayed", "sequence="],
        &["INFO", "updates are replayed", "entries="],
        &["INFO", "the store is open", "seconds="],
    ]);
    store.close().expect("closed");
}

fn growth_and_sweep(lines: &Lines, bank: &ThreadedDevices<HostileDevices>) {
    let store = Store::builder().open_on(bank.clone()).expect("opens");
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    // The more data there is, the longer the log becomes. What is new of it is written before that
    // has ended, while updates go on.
    let has_ended =
        || lines.0.lock().expect("no panic").iter().any(|line| line.contains("of=\"log\""));
    for round in (0..64u32).take_while(|_| !has_ended()) {
        for number in 0..10_000u32 {
            let key = (10_000 * round + number).to_be_bytes();
            table.put(&key, &[7; 200]).expect("accepted");
        }
    }
    // A cycle rests where nothing waits, and goes on with the next sweep.
    for _ in (0..10).take_while(|_| store.metrics().sweep_cycles_total == 0) {
        table.put(b"one more", b"").expect("accepted");
        store.sweep().expect("swept");
    }
    store.sweep().expect("swept");
    store.close().expect("closed");
    lines.expect(&[
        &["INFO", "growth has ended", "of=\"log\"", "log_bytes="],
        &["INFO", "growth has ended", "of=\"data\"", "data_bytes="],
        &["DEBUG", "a cycle of the sweep begins"],
        &["INFO", "a cycle of the sweep is complete", "cycle=1", "seconds="],
        &["INFO", "a checkpoint is complete", "seconds="],
    ]);
}

fn damage(lines: &Lines, bank: &ThreadedDevices<HostileDevices>) {
    let store = Store::builder().open_on(bank.clone()).expect("opens");
    bank.with(|hostile| hostile.fail_after(0, FailureKind::Reads));
    let table = store.existing_table("main").expect("the table");
    assert!(matches!(table.get(&1u32.to_be_bytes()), Err(Error::Damaged(_))));
    lines.expect(&[&["ERROR", "damage was met", "device=0", "offset=", "reason=\"block"]]);
    assert_eq!(store.metrics().damage_total["query"], 1);
    assert_eq!(store.status().damage.len(), 1);
}

fn stall(lines: &Lines) {
    stalled(|_| {
        // It is told before it ends, for it might not.
        lines.expect(&[&["WARN", "waits for room for more than 100 ms", "cause=\"pipeline\""]]);
    });
    lines.expect(&[&["WARN", "a wait has ended", "cause=\"pipeline\"", "seconds=0."]]);
}

#[test]
fn what_an_operator_wants_to_know_is_told() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    let memory = MemoryDevices::with_sizes(&[0, 0], 1);
    let bank = ThreadedDevices::new(HostileDevices::new(memory, 1));
    open_and_recovery(&lines, &bank);
    growth_and_sweep(&lines, &bank);
    damage(&lines, &bank);
    stall(&lines);
}
