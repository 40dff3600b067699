//! Reads of single keys from a tree.

use upsweep_sim::random::Random;

use super::indexes::{Vanilla, tree};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::in_place::Access;
use crate::systems::load::{Load, Seen};

const PAPER: &str = "bosc-table-1";
const INDEX_GB: [u64; 4] = [16, 32, 64, 128];
const LEAF_BYTES: u64 = 4096;
const RECORD_BYTES: u64 = 64;
const MEMORY_MB: u64 = 256;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-table-1",
    title: "Latency of reads from a tree",
    method: "\
        A B+ tree in leaves of 4 KB over five simulated IBM DTLA-307030, with 256 MB of memory. \
        One caller reads records with random keys, one after another. The vanilla tree reads the \
        leaf unless it is in its cache, which is full from the beginning.",
    scaling: "A quick run measures 300 reads, a full run 5,000.",
    papers: &[PAPER, "goals-reads"],
    bindings: &[],
    run,
};

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let load = Load { callers: 1, warm_up: 10, measured: scale.pick(300, 5000) };
    let seen = progress.each(&INDEX_GB, |index_gb| {
        let (shape, records) = tree(*index_gb, LEAF_BYTES, RECORD_BYTES);
        let store = Vanilla {
            shape,
            page_bytes: LEAF_BYTES,
            record_bytes: RECORD_BYTES,
            memory_mb: MEMORY_MB,
            are_changed: false,
        };
        let mut random = Random::new(scale.seed, "reads");
        let next = || Access::Get(random.below(records.count) * records.stride);
        store.measure(load, scale.seed, next)
    })?;
    let mut outcome = Outcome::default();
    outcome.setup("reads measured", short(load.measured as f64));
    let row = |(index_gb, seen): (&u64, &Seen)| {
        vec!["B+ tree".into(), (*index_gb as f64).into(), seen.latency_ms.into()]
    };
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Mean latency of a read of one record".into(),
        paper: Some(PAPER.into()),
        keys: 2,
        columns: vec![
            Column::published("index"),
            Column::own("size [GB]"),
            Column::published("point query without BOSC [ms]"),
        ],
        rows: INDEX_GB.iter().zip(&seen).map(row).collect(),
    });
    outcome.caveat(&[], SIZE_OPEN);
    outcome.caveat(&[], "Queries of ranges are not measured.");
    Ok(outcome)
}

const SIZE_OPEN: &str = "\
    The paper does not give the size of the index, nor where on the disks it lies. All sizes of \
    its other experiments are measured; they begin at the outer edge of each disk, so that a \
    larger one has longer seeks.";
