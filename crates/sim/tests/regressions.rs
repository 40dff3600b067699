//! Seeds that once failed must pass. The history behind a seed changes with the simulator, so a
//! seed is no substitute for a test of the rule; the list shows what to expect of engine changes.

use std::thread;

use upsweep_sim::history;

/// Seed, steps, and what it once found.
const FOUND: [(u64, u64, &str); 39] = [
    (2, 2000, "a log full of updates had no room for the changes that would release it"),
    (36, 2000, "a store that was opened to look at was written to"),
    (50, 2000, "pages of a dropped space, listed in the root on its way, were given to others"),
    (86, 2000, "a data device that could grow by less than 16 MiB counted as full"),
    (103, 2000, "replay of changes that some pages hold lost a block from the index of places"),
    (147, 2000, "the same, seen as an extent that was freed twice"),
    (251, 2000, "a long record waited though no threshold had been reached"),
    (427, 2000, "replay took the completions of its own sweeps for the reads of the log"),
    (434, 2000, "values of a dropped space left those of other blocks of the run empty"),
    (459, 2000, "a record waited for the log, and no checkpoint was due"),
    (561, 2000, "tables that were made and dropped used up the log's reserve"),
    (702, 2000, "the change record of a damaged block exceeded a segment"),
    (704, 2000, "a damaged block of a dropped space was freed twice"),
    (1076, 2000, "a record of many keys claimed more of the log than was left"),
    (1335, 2000, "the same, with several log devices"),
    (10_447, 2000, "a log full of quarantined updates"),
    (10_495, 2000, "the same, with few blocks"),
    (20_027, 2000, "updates of a damaged quarantine block went to the quarantine for ever"),
    (605, 2000, "the model could not lose what had survived an earlier crash of a damaged log"),
    (1808, 2000, "a checkpoint had no room, for the keys of its pages were not counted"),
    (22_485, 2000, "a device that cannot grow was asked to grow by nothing, for ever"),
    (70_002, 2000, "log batches whose write had failed were trusted, and taken by the next cut"),
    (70_057, 2000, "the same: records that were durable are gone"),
    (520, 2000, "a run's frontier passed an update that was pending for a shared block"),
    (874, 2000, "what waited for blocks of a dropped table pinned a full log for ever"),
    (904, 2000, "a run looked for large values in a space that no longer had the block"),
    (1340, 2000, "a compaction woke the core for ever"),
    (1362, 2000, "copies of what waits counted for the length of a record"),
    (278, 2000, "a run that took loaded blocks along passed what was pending for them"),
    (824, 2000, "a table dropped while its load ended left a hidden one that runs waited for"),
    (1906, 2000, "a block that no space has any more was swept for ever for its spilled updates"),
    (101_112, 2000, "a large value that was lost is replaced, and the block answers again"),
    (35, 2000, "what a checkpoint was to give free that had no room counted as leaked"),
    (127, 2000, "a sweep of replay moved a block back to before updates that its image had"),
    (296, 2000, "the same of the quarantine, for what replay sends there waited as of too early"),
    (314, 2000, "a run took a large value along, and put it back after the run of its leaf"),
    (100_201, 2000, "the same, where two runs wrote images of the same sequence"),
    (266, 2000, "spills used all their memory early in a cycle, and nothing was accepted after"),
    (879, 2000, "the same"),
];

fn failures(part: &[(u64, u64, &str)]) -> Vec<String> {
    let failure = |(seed, steps, found): &(u64, u64, &str)| {
        let reason = history::run(*seed, *steps).failure?;
        Some(format!("seed {seed} ({found}): {reason}"))
    };
    part.iter().filter_map(failure).collect()
}

#[test]
fn seeds_that_once_failed_pass() {
    history::catch_panics(false);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = thread::scope(|scope| {
        let parts = FOUND.chunks(FOUND.len().div_ceil(threads));
        let parts: Vec<_> = parts.map(|part| scope.spawn(|| failures(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic in there")).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
