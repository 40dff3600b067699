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
        assert!(tree["is_least_memory"] == true && tree["cache_percent"].as_f64() > Some(5.0));
        // One line for each workload of reads, three for each with updates; so with operations.
        let throughput = tree["throughput"].as_array().expect("workloads");
        assert_eq!((throughput.len(), tree["latency"].as_array().map(Vec::len)), (10, Some(11)));
        let paper_gain = throughput[0]["paper_gain"].as_f64().expect("a number");
        assert!((paper_gain - gain).abs() < 0.05, "{paper_gain}");
        let rates = throughput.iter().flat_map(|line| [&line["with_one"], &line["with_ten"]]);
        assert!(rates.into_iter().all(|rate| rate["lowest"].as_f64() > Some(0.0)));
    }
    let left = std::fs::read_dir(world.path("")).expect("the folder").count();
    assert_eq!(left, 0, "the stores are gone");
}

#[test]
fn bench_wants_a_folder() {
    let world = World::empty();
    let file = world.file("file", "");
    for arguments in [&["bench", &file][..], &["bench", "rodeh", &file]] {
        let run: Run = upsweep(arguments).output().expect("runs").into();
        refused(&run, "not a folder");
    }
    for arguments in [&["bench"][..], &["bench", "rodeh"], &["bench", "--log-only"]] {
        let run: Run = upsweep(arguments).output().expect("runs").into();
        assert_eq!((run.status, run.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.errors.contains("<DIR>"), "{}", run.errors);
    }
}
