//! What a store counts and times is there to read at any time, in a form that others read too.

#![expect(clippy::disallowed_methods, reason = "tests with threads")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::stall::stalled;
use prometheus_parse::{Sample, Scrape, Value};
use upsweep::metrics::{CATALOGUE, Descriptor, Kind};
use upsweep::{Durability, Modifier, Outcome, Refusal, Store, ValueRef};

const PAGE: &str = include_str!("../../../../docs/metrics.md");

/// What somebody else's parser makes of the text; it passes by lines that it does not understand,
/// so none may be missing.
fn parsed(text: &str) -> Scrape {
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).expect("parses");
    let lines_of = |sample: &Sample| match &sample.value {
        Value::Histogram(buckets) => buckets.len(),
        Value::Summary(quantiles) => quantiles.len(),
        _ => 1,
    };
    let understood: usize = scrape.samples.iter().map(lines_of).sum();
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(understood, lines, "a line is not understood");
    scrape
}

fn worked() -> Store {
    let store = Store::in_memory().expect("made");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for number in 0..1000u32 {
        table.add(&number.to_be_bytes(), 1).expect("accepted");
    }
    store.sweep().expect("swept");
    store
}

#[test]
fn somebody_elses_parser_finds_every_metric_with_its_value() {
    let store = worked();
    let (text, readings) = (store.metrics_text(), store.metrics());
    let scrape = parsed(&text);
    for Descriptor { name, kind, label, help } in CATALOGUE {
        assert_eq!(scrape.docs.get(*name).map(String::as_str), Some(*help), "{name}");
        let values = label.map_or(vec![None], |(_, values)| values.iter().map(Some).collect());
        for value in values {
            let sample = scrape.samples.iter().find(|sample| {
                let found = label.and_then(|(label, _)| sample.labels.get(label));
                sample.metric == *name && found == value.copied()
            });
            let found = &sample.unwrap_or_else(|| panic!("{name} {value:?} is missing")).value;
            let is_its_kind = match kind {
                Kind::Counter => matches!(found, Value::Counter(_)),
                Kind::Gauge => matches!(found, Value::Gauge(_)),
                Kind::Histogram => matches!(found, Value::Histogram(_)),
            };
            assert!(is_its_kind, "{name}: {found:?}");
        }
    }
    let found = |name: &str| {
        let mut samples = scrape.samples.iter().filter(|sample| sample.metric == name);
        samples.next().expect("a sample").value.clone()
    };
    assert_eq!(readings.updates_total, 1000);
    assert_eq!(found("upsweep_updates_total"), Value::Counter(1000.0));
    assert_eq!(found("upsweep_closed"), Value::Gauge(0.0));
    let longest = readings.log_write_seconds.longest;
    assert!(longest > 0.0);
    assert_eq!(found("upsweep_log_write_longest_seconds"), Value::Gauge(longest));
    let Value::Histogram(buckets) = found("upsweep_log_write_seconds") else {
        panic!("no histogram")
    };
    assert!(buckets.is_sorted_by(|left, right| {
        left.less_than < right.less_than && left.count <= right.count
    }));
    let last = buckets.last().expect("a bucket");
    assert_eq!(
        (last.less_than, last.count),
        (f64::INFINITY, readings.log_write_seconds.count as f64)
    );
    assert_eq!(buckets.len(), 34, "1 µs to 2^32 µs by powers of two, and more");
}

#[test]
fn somebody_elses_parser_finds_what_the_last_session_did() {
    let readings = worked().metrics();
    let scrape = parsed(&readings.text_of_last_session());
    let of_session = CATALOGUE.iter().filter(|metric| metric.kind != Kind::Gauge).count();
    let times = CATALOGUE.iter().filter(|metric| metric.kind == Kind::Histogram).count();
    assert_eq!(scrape.docs.len(), of_session + times, "times have their longest beside");
    let found = |name: &str| {
        let name = format!("upsweep_last_session_{name}");
        let sample = scrape.samples.iter().find(|sample| sample.metric == name);
        sample.unwrap_or_else(|| panic!("{name} is missing")).value.clone()
    };
    assert_eq!(found("updates"), Value::Gauge(1000.0));
    let (times, longest) = (found("log_write_seconds"), found("log_write_longest_seconds"));
    let Value::Summary(quantiles) = times else { panic!("no summary: {times:?}") };
    let log_write = readings.log_write_seconds;
    let quantiles: Vec<_> = quantiles.iter().map(|found| (found.quantile, found.count)).collect();
    assert_eq!(quantiles, [(0.5, log_write.p50), (0.99, log_write.p99), (0.999, log_write.p999)]);
    assert_eq!(longest, Value::Gauge(log_write.longest));
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for metric in CATALOGUE {
        let (name, kind) = (metric.name, metric.kind);
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.starts_with("upsweep_") && name.chars().all(is_plain), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        assert_eq!(
            name.ends_with("_seconds") && kind != Kind::Gauge,
            kind == Kind::Histogram,
            "{name}"
        );
        let is_sentence = metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']);
        assert!(is_sentence, "{name}: {:?}", metric.help);
        assert!(
            metric.label.is_none_or(|(label, values)| label != "le" && values.len() > 1),
            "{name}"
        );
    }
}

#[test]
fn the_page_lists_what_the_catalogue_has() {
    let mut expected =
        "| name | kind | unit | label | what it tells |\n|---|---|---|---|---|\n".to_owned();
    for metric in CATALOGUE {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let label = metric.label.map(|(label, values)| {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{label}`: {}", values.join(", "))
        });
        let (name, unit) = (metric.name, metric.unit());
        let label = label.unwrap_or_default();
        expected += &format!("| `{name}` | {kind} | {unit} | {label} | {} |\n", metric.help);
    }
    assert!(PAGE.contains(&expected), "docs/metrics.md must have this table:\n\n{expected}");
}

/// Reads the metrics of its store whenever the core asks it something, under the lock of the core.
#[derive(Clone, Default)]
struct Reader(Arc<OnceLock<Store>>);

impl Modifier for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }
    fn version(&self) -> u16 {
        1
    }
    fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, _: &[u8]) -> Result<Outcome, Refusal> {
        Ok(Outcome::Keep)
    }
    fn check_operand(&self, _: &[u8]) -> Result<(), Refusal> {
        let store = self.0.get().expect("it was given one");
        // Were the lock needed, this one would panic, and the other would wait for ever.
        let own = store.metrics_text();
        let other = std::thread::scope(|scope| scope.spawn(|| store.metrics_text()).join());
        assert!(!own.is_empty() && other.is_ok_and(|other| !other.is_empty()));
        Ok(())
    }
}

#[test]
fn metrics_are_read_while_the_core_is_locked() {
    let reader = Reader::default();
    let store = Store::builder().modifier(reader.clone()).in_memory().expect("made");
    let table = store.table("main").expect("a table");
    assert!(reader.0.set(store.clone()).is_ok());
    table.modify(b"key", &reader, b"").expect("the operand was checked under the lock");
}

#[test]
fn a_wait_for_room_is_seen_while_it_lasts_and_timed_with_its_cause() {
    let store = stalled(|store| {
        assert_eq!(store.metrics().admission_waiting["pipeline"], 1.0);
    });
    let found = store.metrics();
    assert!(found.admission_wait_seconds["pipeline"].longest >= 0.3, "{found:?}");
    assert_eq!(found.admission_waiting["pipeline"], 0.0);
    assert!(found.admission_refusals_total["pipeline"] > 0);
    assert!(found.log_write_seconds.longest >= 0.3, "the log was held up");
    assert!(found.core_lock_seconds["update"].count >= 600);
    assert!(found.core_lock_seconds["update"].longest < 0.3, "nobody waits with the lock");
}

#[test]
fn what_rises_and_falls_is_that_of_the_store() {
    let store = worked();
    let status = store.status();
    let found = store.metrics();
    assert_eq!(found.blocks, status.blocks as f64);
    assert_eq!(found.data_used_bytes, status.data_bytes as f64);
    assert_eq!(found.log_capacity_limit_bytes, status.log.capacity_bytes_max as f64);
    assert_eq!(found.memory_used_bytes["directory"], status.memory.directory as f64);
    assert_eq!(found.memory_budget_bytes, status.memory.budget as f64);
    assert!(found.open_seconds > 0.0 && found.log_last_sequence >= 1000.0, "{found:?}");
    assert_eq!(found.log_durable_sequence, found.log_last_sequence);
    assert!(found.flush_seconds.count > 0 && found.checkpoint_seconds.count > 0, "{found:?}");
    assert_eq!(found.sweep_cycle_seconds.count, found.sweep_cycles_total);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    table.add(b"more", 1).expect("accepted");
    // The driver looks after its store ten times a second.
    let mut tries = 0;
    while store.metrics().waiting_entries["memory"] == 0.0 {
        std::thread::sleep(Duration::from_millis(10));
        tries += 1;
        assert!(tries < 1000, "levels are not brought up to date");
    }
}
