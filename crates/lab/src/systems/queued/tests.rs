//! Content, requests and runs of trees with queues.

use std::collections::BTreeMap;

use upsweep::layers::device::{LatencyModel, MemoryDevices, Simulated};
use upsweep_sim::random::Random;

use super::super::loggers::RawAppend;
use super::super::pages::{Leaves, Records};
use super::super::{Bench, System};
use super::*;

const SIZES: Sizes =
    Sizes { page_bytes: 4096, records_max: 16, data_disks: 3, logged_bytes: 100, waiting_max: 40 };
const RECORDS: Records = Records { count: 600, stride: 100 };
const SWEPT: Queues = Queues::PerPage { run_pages: 4, density_percent: 50 };

/// A bank on which every request takes 1 ms.
fn bank() -> Box<dyn Simulated> {
    let mut devices = MemoryDevices::with_sizes(&[1 << 30; 4], 1);
    devices.set_latency(LatencyModel { base_us: 1000, bytes_per_us: 1 << 40, jitter_us: 0 });
    Box::new(devices)
}

fn tree(queues: Queues) -> Bench<Queued<RawAppend, Leaves>> {
    let log = RawAppend::new(4096, 1 << 30);
    Bench::new(Queued::new(log, Leaves::new(RECORDS, 11), SIZES, queues), bank(), 5)
}

/// Submits these at once, and waits until nothing happens any more.
fn run(system: &mut Bench<Queued<RawAppend, Leaves>>, updates: &[Update]) -> Vec<Finished> {
    let mut finished = Vec::new();
    (0..).zip(updates).for_each(|(number, update)| system.submit(number, *update));
    while let Some(us) = system.next_event_us() {
        system.advance_to(us, &mut finished).expect("no request fails");
    }
    finished
}

#[test]
fn everything_ends_and_gets_to_its_page() {
    for queues in [Queues::One { batch: 1 }, Queues::One { batch: 20 }, SWEPT] {
        let (mut system, mut random) = (tree(queues), Random::new(1, "queued"));
        let update = |_| Update { key: random.below(8000) * 8, value: random.word() };
        let updates: Vec<Update> = (0..4000).map(update).collect();
        let mut ended: Vec<u64> = run(&mut system, &updates).iter().map(|one| one.number).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..4000).collect::<Vec<_>>(), "{queues:?}");
        let oracle: BTreeMap<u64, u64> = updates.iter().map(|one| (one.key, one.value)).collect();
        let Queued { tree, waiting, .. } = &mut system.model;
        assert_eq!(*waiting, 0);
        for (key, value) in oracle {
            let page = tree.changed.get(&tree.shape.first_page(key)).expect("it was changed");
            assert_eq!(page.get(key), Some(value), "{queues:?}");
        }
        assert!(tree.pages > tree.shape.pages(), "pages were split");
        let fits = |page: &Page| page.records() <= SIZES.records_max;
        assert!(tree.changed.values().all(fits), "{queues:?}");
    }
}

#[test]
fn updates_that_come_together_are_logged_together() {
    // All in one page, and there already, so that it is not split.
    let updates: Vec<Update> = (0..10).map(|one| Update { key: one * 100, value: 1 }).collect();
    // The first is logged alone, and the others together after it. So the page is read and written
    // for the first one, and again for the others.
    let mut system = tree(Queues::One { batch: 20 });
    let finished = run(&mut system, &updates);
    assert_eq!((system.traffic().reads, system.traffic().writes), (2, 2 + 2));
    assert_eq!(finished.iter().filter(|one| one.begun_us < 1000).count(), 10);
}

#[test]
fn one_at_a_time_reads_and_writes_a_page_for_each_update() {
    let mut system = tree(Queues::One { batch: 1 });
    // Records that are there, so that no page is split.
    let updates: Vec<Update> = (0..10).map(|one| Update { key: one * 100, value: 1 }).collect();
    run(&mut system, &updates);
    let (reads, writes) = (system.traffic().reads, system.traffic().writes);
    assert_eq!((reads, writes), (10, 10 + 2));
}

#[test]
fn no_more_wait_than_there_is_room_for() {
    let mut system = tree(Queues::One { batch: 1 });
    let updates: Vec<Update> = (0..200).map(|one| Update { key: one * 100, value: 1 }).collect();
    (0..).zip(&updates).for_each(|(number, update)| system.submit(number, *update));
    let mut most = 0;
    while let Some(us) = system.next_event_us() {
        system.advance_to(us, &mut Vec::new()).expect("no request fails");
        most = most.max(system.model.waiting);
    }
    assert_eq!(most, SIZES.waiting_max);
}

#[test]
fn a_run_is_short_and_dense_and_the_sweep_goes_round() {
    let with = |pages: &[u64], next| {
        let waiting = pages.iter().map(|page| (*page, Vec::new())).collect();
        let disk = Disk { waiting, next, ..Disk::default() };
        disk.gather(4, 50).map(|run| (run.first, run.pages))
    };
    assert_eq!(with(&[], 0), None);
    assert_eq!(with(&[7], 0), Some((7, 1)));
    assert_eq!(with(&[7], 8), Some((7, 1)), "from the beginning again");
    assert_eq!(with(&[2, 7, 8], 3), Some((7, 2)));
    assert_eq!(with(&[2, 3, 4, 5, 6], 0), Some((2, 4)), "four pages at most");
    assert_eq!(with(&[2, 5], 0), Some((2, 4)), "half of them");
    assert_eq!(with(&[2, 6], 0), Some((2, 1)));
    assert_eq!(with(&[2, 4, 5], 0), Some((2, 4)));
}

#[test]
fn a_swept_run_is_one_read_and_one_write() {
    let mut system = tree(SWEPT);
    // Two pages of each disk, next to each other; those of the first update are swept alone.
    let updates: Vec<Update> =
        (0..6).map(|page| Update { key: page * 11 * 100, value: 1 }).collect();
    run(&mut system, &updates);
    assert_eq!((system.traffic().reads, system.traffic().writes), (4, 4 + 2));
}
