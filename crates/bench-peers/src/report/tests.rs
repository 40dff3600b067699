//! Reports and plots of made-up results: what stands in them, and what older results give.

use super::*;
use crate::cell::resources::Used;
use crate::engine::Turns;
use crate::outcome::{CellRun, Latency, Settings};
use crate::workload::{Class, Workload};

/// A run of three seconds with so many updates in the second of them.
fn outcome(rate: f64, turns: Option<Turns>) -> Outcome {
    let latency = Latency { samples: 9, p50_us: 50.0, max_us: 900.0, ..Latency::default() };
    let mut outcome = Outcome {
        seconds: 3.2,
        callers_seconds: Some(3.0),
        turns,
        is_steady: Some(turns.is_none_or(|turns| turns.are_enough())),
        updates: 1_000_000,
        updates_per_second: rate,
        paid_updates_per_second: rate / 2.0,
        update_latency: Some(latency),
        in_run: Some(Used { written_bytes: 64_000_000, ..Used::default() }),
        written_bytes: 128_000_000,
        ..Outcome::default()
    };
    outcome.series.counts = [[rate as u64 / 2; 8], [rate as u64 / 8; 8], [rate as u64; 8]].concat();
    // What ends after callers were told to end is in no second.
    outcome.series.counts.push(7);
    outcome.series.longest_us = (1..=25).collect();
    outcome
}

fn results() -> Results {
    let settings = Settings {
        memory_bytes: 128 << 20,
        engines: ["upsweep", "rocksdb-merge"].map(str::to_owned).to_vec(),
        configurations: [("upsweep".to_owned(), "like this".to_owned())].into(),
        increments_seconds: Some((60.0, 300.0)),
        ..Settings::default()
    };
    let reference = Reference {
        read_bytes_per_second: 1e9,
        write_bytes_per_second: 1e9,
        pairs_per_second: 20_000.0,
        syncs_per_second: 5_000.0,
        ..Reference::default()
    };
    let notes = vec!["a note".to_owned()];
    let mut results = Results { settings, reference: Some(reference), notes, ..Results::default() };
    for (ratio, key_bytes) in [(2, 8), (8, 8), (8, 56)] {
        for (engine, rate, done) in [("upsweep", 100_000.0, 0.4), ("rocksdb-merge", 800.0, 4.5)] {
            for repeat in 0..2u32 {
                let (workload, class) = (Workload::Increments, Class::Relaxed);
                let set = DataSet { ratio, key_bytes };
                let name = CellName { set, workload, class, engine: engine.to_owned() };
                let turns = Turns { done, enough: 3.0 };
                let outcome = outcome(rate + f64::from(repeat) * 80.0, Some(turns));
                results.add(name, Ok(outcome));
            }
        }
    }
    let name = results.cells[11].name.clone();
    results.add(name, Err("it broke".to_owned()));
    results
}

fn remade(results: &Results) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    results.write(folder.path()).expect("written");
    remake(folder.path()).expect("a report");
    let text = std::fs::read_to_string(folder.path().join(FILE)).expect("read");
    (folder, text)
}

#[test]
fn report_and_plots_have_every_engine_and_every_failure() {
    let (folder, text) = remade(&results());
    // Seconds of 400,000, 100,000 and 800,000 updates, and somewhat more in the second run.
    assert!(text.contains("| upsweep, 2 runs | 3.00 | 400,160 (400,000 to 400,320) | 100,0"));
    assert!(text.contains("rocksdb-merge: it broke") && text.contains("a note"), "{text}");
    assert!(text.contains("- **upsweep**: like this"), "{text}");
    assert!(text.contains("| upsweep, 2 runs | 64.0 | 0 | 0 | 128 |"), "{text}");
    for name in ["time-8-increments-relaxed", "longest-8-key56-increments-relaxed"] {
        assert!(text.contains(&format!("({name}.svg)")), "{text}");
        let svg = std::fs::read_to_string(folder.path().join(format!("{name}.svg")));
        assert!(svg.expect("a plot").contains("rocksdb-merge"));
    }
}

#[test]
fn a_chart_over_ratios_has_two_of_them_and_the_bound() {
    let mut results = results();
    let chart = |folder: &Path, class: Class| {
        let path = folder.join(format!("throughput-{}.svg", class.name()));
        std::fs::read_to_string(path).expect("a plot")
    };
    let (folder, text) = remade(&results);
    assert!(chart(folder.path(), Class::Relaxed).contains(">\nbound of the sweep\n<"));
    results.cells.iter_mut().for_each(|run| run.name.class = Class::Single);
    let (folder, _) = remade(&results);
    assert!(chart(folder.path(), Class::Single).contains(">\nbound of syncs\n<"));
    assert!(!text.contains("throughput-relaxed-key56.svg"), "{text}");
}

#[test]
fn what_is_not_steady_is_said_at_once_and_with_its_turns() {
    let (_, text) = remade(&results());
    let line = "- upsweep: not steady: 0.400 turns, where 3.00 are enough\n";
    assert_eq!(text.matches(line).count(), 6);
    assert!(!text.contains("rocksdb-merge: not steady"), "{text}");
    // Ratio, bytes of a key, class, upsweep, rocksdb-merge.
    assert!(text.contains("| 8 | 56 | relaxed | (400,160) | 3,360 |"), "{text}");
    assert!(!text.contains("**Short runs**"), "{text}");
    let mut short = results();
    short.settings.increments_seconds = Some((2.0, 2.0));
    assert!(remade(&short).1.contains("**Short runs**"));
    (short.settings.increments_seconds, short.settings.seconds) = (None, 5.0);
    let (_, text) = remade(&short);
    assert!(text.contains("**Short runs**") && text.contains("steady was not noted"), "{text}");
}

#[test]
fn the_report_says_where_upsweep_is_behind_and_nothing_where_it_is_not() {
    let mut results = results();
    for run in results.cells.iter_mut().filter(|run| run.name.engine == "rocksdb-merge") {
        let Ok(outcome) = &mut run.outcome else { continue };
        outcome.in_run = Some(Used { written_bytes: 32_000_000, ..Used::default() });
    }
    let (_, text) = remade(&results);
    let row = "| 2 | 8 | relaxed |  |  |  | rocksdb-merge 32.0 beside 64.0 |  |  |";
    assert!(text.contains(row), "{text}");
    // As if its store could not be loaded.
    results.cells.retain(|run| run.name.engine != "upsweep" || run.name.set.ratio == 2);
    let (_, text) = remade(&results);
    assert!(text.contains("| 8 | 8 | relaxed | rocksdb-merge 3,360 beside none |"), "{text}");
    assert!(text.contains("| 8 | 8 | relaxed |  | 3,360 |"), "{text}");
}

#[test]
fn repeats_of_an_engine_stand_in_one_row() {
    let results = results();
    let tables = tables(&results);
    assert_eq!(tables.len(), 3);
    let rows: Vec<(&str, usize)> =
        tables[2].rows.iter().map(|(name, outcomes)| (*name, outcomes.len())).collect();
    assert_eq!(rows, [("upsweep", 2), ("rocksdb-merge", 3)]);
    assert_eq!(measured(&tables[2].rows[1].1).len(), 2);
    let repeats: Vec<u32> = results.cells.iter().rev().take(3).map(|run| run.repeat).collect();
    assert_eq!(repeats, [2, 1, 0]);
}

#[test]
fn results_from_before_there_were_lengths_of_keys_and_steady_states_are_read() {
    let text = r#"{"ratio":8,"workload":"increments","class":"single","engine":"rocksdb-rmw",
        "repeat":0,"outcome":{"Ok":{"seconds":2.0,"quiesce_seconds":0.5,"rate":null,"updates":9,
        "updates_per_second":4.5,"paid_updates_per_second":3.6,"reads_per_second":0.0,
        "scans_per_second":0.0,"update_latency":{"samples":9,"p50_us":1.0,"p90_us":1.0,
        "p99_us":1.0,"p999_us":1.0,"p9999_us":1.0,"max_us":1.0},"read_latency":null,
        "scan_latency":null,"series":{"updates":[3,0,0,0,0,0,0,0,0,1,5],"latency_us_max":[1]},
        "pauses":null,"read_bytes":0,"written_bytes":0,"cpu_seconds":0.0,"disk_bytes":0,
        "resident_bytes_peak":0,"cgroup_bytes_peak":null,"check":null,"recovery":null,
        "statistics":{}}}}"#;
    let run: CellRun = serde_json::from_str(text).expect("it can be read");
    assert_eq!(run.name.set, DataSet { ratio: 8, key_bytes: 8 });
    let outcome = run.outcome.expect("an outcome");
    assert_eq!(outcome.updates_by_second(), Some(vec![4, 5]));
    assert!(outcome.is_steady.is_none() && outcome.turns.is_none());
    assert!((outcome.lasting_rate() - 3.6).abs() < 1e-9, "all paid");
}
