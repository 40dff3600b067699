//! `bench` in its ways to be called; what it measures is not for tests.

use super::common::{Run, World, refused, text, upsweep};

#[test]
fn the_workloads_of_a_paper_run_on_small_trees() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let small = ["--scale", "0.0001", "--operations", "20", "--runs", "2"];
    let log = ["--log-size", "16MiB", "--json"];
    let arguments = [&["bench", "rodeh", &folder][..], &small, &log].concat();
    let run: Run = upsweep(&arguments).output().expect("runs").into();
    assert_eq!(run.status, Some(0), "{}", run.errors);
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    for (tree, gain) in found["trees"].as_array().expect("trees").iter().zip([6.2, 6.6]) {
        assert_eq!(tree["keys"], 1000);
        assert!(tree["cache_and_queues_percent"].as_f64() > Some(5.0), "the least memory");
        // One line for each workload of reads, three for each with updates; so with operations,
        // but for removals of ranges, which are never relaxed.
        let throughput = tree["throughput"].as_array().expect("workloads");
        assert_eq!((throughput.len(), tree["latency"].as_array().map(Vec::len)), (10, Some(16)));
        let paper_gain = throughput[0]["paper_gain"].as_f64().expect("a number");
        assert!((paper_gain - gain).abs() < 0.05, "{paper_gain}");
        let rates = throughput.iter().flat_map(|line| [&line["with_one"], &line["with_ten"]]);
        assert!(rates.into_iter().all(|rate| rate["lowest"].as_f64() > Some(0.0)));
    }
    let left = std::fs::read_dir(world.path("")).expect("the folder").count();
    assert_eq!(left, 0, "the stores are gone");
}

#[test]
fn structures_are_measured_on_small_tables() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let sizes = ["--sizes", "100,3000,5000", "--records", "3000", "--block-size", "4KiB"];
    let small = ["--clones", "2", "--runs", "1", "--updates", "2000", "--log-size", "16MiB"];
    let arguments = [&["bench", "structures", &folder][..], &sizes, &small].concat();
    let run: Run = upsweep(&[&arguments[..], &["--json"]].concat()).output().expect("runs").into();
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let is_spread = |spread: &serde_json::Value| {
        let [low, middle, high] =
            ["lowest", "median", "highest"].map(|part| spread[part].as_f64().expect("a number"));
        assert!(0.0 < low && low <= middle && middle <= high, "{spread}");
    };
    let rows = |part: &serde_json::Value| part.as_array().expect("rows").clone();
    let sizes = rows(&found["clones"]["sizes"]);
    assert_eq!(
        sizes.iter().map(|size| size["records"].as_u64()).collect::<Vec<_>>(),
        [Some(100), Some(3000)]
    );
    for size in &sizes {
        ["update_us", "clone_us", "first_update_us", "drop_us", "snapshot_us"]
            .iter()
            .for_each(|time| is_spread(&size[*time]));
    }
    assert!(found["clones"]["largest_by_smallest"]["clone"].as_f64() > Some(0.0));
    let bound = found["ranges"]["nodes_changed_bound"].as_f64().expect("a number");
    for part in rows(&found["ranges"]["parts"]) {
        is_spread(&part["us"]);
        let [changed, in_all] = ["nodes_changed", "nodes_changed_in_all"]
            .map(|nodes| part[nodes]["highest"].as_f64().expect("a number"));
        assert!(changed <= bound && changed <= in_all, "{part}");
    }
    assert!(found["ranges"]["parts"][2]["nodes_changed"]["lowest"].as_f64() > Some(0.0));
    for load in rows(&found["loads"]["loads"]) {
        is_spread(&load["mb_per_second"]);
        // Where the folder takes no direct I/O, or dd is not there, a reason is there instead.
        assert_ne!(load["by_dd"].is_null(), found["loads"]["dd_problem"].is_null());
    }
    for dropped in rows(&found["drops"]) {
        assert!(dropped["bytes"].as_u64() > Some(0), "{dropped}");
        ["seconds", "foreground_ms_max"].iter().for_each(|time| is_spread(&dropped[*time]));
    }
    assert_eq!(rows(&found["drops"]).len(), 2);
    let structures = rows(&found["additions"]["structures"]);
    structures.iter().for_each(|structure| is_spread(&structure["swept_per_second"]));
    assert_eq!(structures.len(), 3);
    let run: Run = upsweep(&arguments).output().expect("runs").into();
    assert!(run.out.contains(" hash table "), "{}", run.out);
    let left = std::fs::read_dir(world.path("")).expect("the folder").count();
    assert_eq!(left, 0, "the stores are gone");
}

#[test]
fn scans_are_measured_beside_queries_and_updates() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let small = ["--records", "200000", "--memory", "32MiB", "--log-size", "16MiB"];
    let requests = ["--requests", "2", "--request-size", "64KiB", "--seconds", "1"];
    let arguments = [&["bench", "scan", &folder][..], &small, &requests].concat();
    let run: Run = upsweep(&[&arguments[..], &["--json"]].concat()).output().expect("runs").into();
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert!(found["device_mb_per_second"].as_f64() > Some(0.0), "{found}");
    let phases = found["phases"].as_array().expect("phases");
    let part = |part: &str| phases.iter().map(|phase| !phase[part].is_null()).collect::<Vec<_>>();
    assert_eq!(part("scan"), [true, false, true, false, true]);
    assert_eq!(part("queries"), [false, true, true, false, false]);
    assert_eq!(part("updates_per_second"), [false, false, false, true, true]);
    let scan = &phases[0]["scan"];
    let [ahead, all] =
        ["read_ahead_mb_per_second", "mb_per_second"].map(|rate| scan[rate].as_f64());
    assert!(ahead > Some(0.0) && all > Some(0.0), "{scan}");
    let run: Run = upsweep(&arguments).output().expect("runs").into();
    assert!(run.out.contains("  scan, updates  "), "{}", run.out);
    let left = std::fs::read_dir(world.path("")).expect("the folder").count();
    assert_eq!(left, 0, "the stores are gone");
}

#[test]
fn the_choice_of_a_store_is_measured_beside_a_grid() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let small = ["--records", "50000", "--memory", "32MiB", "--log-size", "16MiB"];
    let points = ["--runs", "8", "--batches", "64KiB", "--requests", "1", "--request-sizes"];
    let times = ["64KiB", "--seconds", "1", "--rounds", "1", "--pairs", "1"];
    let arguments = [&["bench", "grid", &folder][..], &small, &points, &times].concat();
    let run: Run = upsweep(&[&arguments[..], &["--json"]].concat()).output().expect("runs").into();
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let points = found["points"].as_array().expect("points");
    let goals = |point: &serde_json::Value| {
        let of = point["found"].as_array().expect("what was found").iter();
        of.filter(|of| of[1]["median"].as_f64() > Some(0.0)).map(|of| of[0].to_string()).collect()
    };
    let goals: Vec<Vec<String>> = points.iter().map(goals).collect();
    let [updates, scan, queries] =
        ["updates", "scan_beside_updates", "queries_beside_scan"].map(|goal| format!("{goal:?}"));
    let of_scans = vec![scan.clone(), queries.clone()];
    let expected = [vec![updates.clone(), scan.clone(), queries], vec![updates, scan], of_scans];
    assert_eq!(goals, expected);
    for compared in found["compared"].as_array().expect("comparisons") {
        let is_choice =
            compared["best"]["run_blocks"].is_null() && compared["best"]["scan_requests"].is_null();
        let ratio = compared["ratio"]["median"].as_f64();
        assert_eq!(ratio.is_none(), is_choice, "{compared}");
        assert!(ratio.is_none_or(|ratio| ratio > 0.0), "{compared}");
    }
    let left = std::fs::read_dir(world.path("")).expect("the folder").count();
    assert_eq!(left, 0, "the stores are gone");
}

#[test]
fn a_short_run_says_that_its_state_is_not_steady() {
    let world = World::empty();
    let folder = world.path("measured");
    std::fs::create_dir(&folder).expect("a folder");
    let (folder, series) = (text(&folder), text(&world.path("series.csv")));
    // Neither memory nor log are half full after two seconds: no cycle of the sweep begins, unless
    // the device rotates.
    let store = ["--records", "500000", "--memory", "64MiB", "--log-size", "256MiB"];
    let arguments = [&["bench", &folder][..], &store, &["--seconds", "2"]].concat();
    let more = ["--key-bytes", "11", "--value-bytes", "9", "--series", &series, "--json"];
    let run: Run = upsweep(&[&arguments[..], &more].concat()).output().expect("runs").into();
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let rotates = found["device"].as_str().is_some_and(|reason| reason.starts_with("rotating: "));
    let is_short = found["is_steady"] == false && found["cycles"] == 0;
    assert!(found["seconds"] == 2 && (is_short || rotates), "{found}");
    assert!(found["load_seconds"].is_number() && found["rate_asked"].is_null(), "{found}");
    let updates = found["updates"].as_u64().expect("a number");
    assert!(updates > 0 && updates.is_multiple_of(64), "whole batches: {found}");
    assert!(found["reads"]["samples"].as_u64() > Some(0), "{found}");
    let csv = std::fs::read_to_string(series).expect("the series");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), &rows[0][..2]), (3, &["second", "updates"][..]));
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    let in_rows = rows[1..].iter().map(|row| row[1].parse::<u64>().expect("a number"));
    assert_eq!(in_rows.sum::<u64>(), updates);
    let left = std::fs::read_dir(folder).expect("the folder").count();
    assert_eq!(left, 0, "the store is gone");
}

#[test]
fn many_callers_make_the_records_of_a_new_table_at_a_rate() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let store = ["--records", "1000", "--memory", "32MiB", "--log-size", "16MiB", "--empty"];
    let callers = ["--callers", "64", "--batch", "1", "--rate", "200", "--value-bytes", "8"];
    for durability in ["durable", "ticket", "relaxed"] {
        let more = ["--seconds", "1", "--durability", durability];
        let arguments = [&["bench", &folder][..], &store, &callers, &more].concat();
        let run: Run = upsweep(&arguments).output().expect("runs").into();
        assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
        for part in [
            " possible records of 8 + 8 bytes\n",
            &format!("1 s of {durability} updates one by one, 64 callers, 200/s asked for\n"),
            " % of the updates that were due\n",
        ] {
            assert!(run.out.contains(part), "{part:?} not in {}", run.out);
        }
        // On a rotating device the sweep does not wait for memory or log to fill.
        let rotates = run.out.contains("rotating: ");
        let is_short = run.out.contains("\n0 cycles: too short for steady state");
        assert!(is_short || rotates, "{}", run.out);
    }
}

#[test]
fn the_log_is_measured_by_itself() {
    let world = World::empty();
    let folder = text(&world.path(""));
    let log = ["--log-only", "--log-size", "16MiB", "--seconds", "1", "--json"];
    let run: Run =
        upsweep(&[&["bench", &folder][..], &log].concat()).output().expect("runs").into();
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert!(found["records_per_second"].as_f64() > Some(0.0), "{found}");
}

#[test]
fn bench_wants_a_folder() {
    let world = World::empty();
    let file = world.file("file", "");
    let [rodeh, structures, scan, grid] =
        ["rodeh", "structures", "scan", "grid"].map(|of| ["bench", of, file.as_str()]);
    for arguments in [&["bench", &file][..], &rodeh, &structures, &scan, &grid] {
        let run: Run = upsweep(arguments).output().expect("runs").into();
        refused(&run, "not a folder");
    }
    for arguments in [
        &["bench"][..],
        &["bench", "rodeh"],
        &["bench", "structures"],
        &["bench", "scan"],
        &["bench", "grid"],
        &["bench", "--log-only"],
    ] {
        let run: Run = upsweep(arguments).output().expect("runs").into();
        assert_eq!((run.status, run.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.errors.contains("<DIR>"), "{}", run.errors);
    }
}
