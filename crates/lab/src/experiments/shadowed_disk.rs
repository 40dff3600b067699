//! The disk subsystem of the paper on shadowed B-trees by itself.

use super::shadowed::{DRIVES_OPEN, HARDWARE, Hardware, TASKS, any_page, open_table, setup};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::bare::PageAccess;
use crate::systems::load::Seen;

const PAPER: &str = "sbt-table-1";
const GAIN: &str = "ten threads over one";
const WRITES: &str = "physical I/Os per short RAID5 write (2 reads, 2 writes)";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "sbt-table-1",
    title: "The disks of the shadowed B-trees by themselves",
    method: "\
        Pages of 4 KB at random places of an area of 1 GB are read, written, or read and then \
        written elsewhere, by one thread and by ten, on a simulated RAID 5 array of nine Seagate \
        ST39133LWV (eight strips of 64 KB of data and one of parity), and on one such drive. A \
        short write of the array reads the old data and the old parity, and then writes both. \
        Nothing is cached. The last table varies what the paper leaves open of its array, and has \
        inserts into the tree in place of sbt-table-2 beside it.",
    scaling: "A quick run measures 2,000 operations in each case, a full run 12,000.",
    papers: &[PAPER],
    bindings: &[Binding::ratio(
        PAPER,
        GAIN,
        ("RAID 5, 8+P: read, 10 threads", "RAID 5, 8+P: read, 1 threads"),
        Better::Neither,
    )],
    run,
};

/// What a thread does, as the paper calls it.
type Kind = (&'static str, fn(&mut upsweep_sim::random::Random) -> PageAccess);

const KINDS: [Kind; 3] = [
    ("read", |random| PageAccess::Read(any_page(random))),
    ("write", |random| PageAccess::Write(any_page(random))),
    ("read+write", |random| PageAccess::ReadWrite(any_page(random), any_page(random))),
];

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let cases: Vec<(Hardware, usize, Kind)> = HARDWARE
        .iter()
        .flat_map(|hardware| TASKS.map(|tasks| (*hardware, tasks)))
        .flat_map(|(hardware, tasks)| KINDS.map(|kind| (hardware, tasks, kind)))
        .collect();
    let seen = progress
        .each(&cases, |(hardware, tasks, (_, access))| hardware.bare(*access, *tasks, scale))?;
    let mut outcome = Outcome::default();
    setup(&mut outcome);
    for ((hardware, tasks, (kind, _)), seen) in cases.iter().zip(&seen) {
        let name = format!("{}: {kind}, {tasks} threads", hardware.name());
        outcome.value(name, seen.per_second, "ops/s");
    }
    let row = |((hardware, tasks, (kind, _)), seen): (&(Hardware, usize, Kind), &Seen)| {
        vec![
            hardware.name().into(),
            (*tasks as f64).into(),
            (*kind).into(),
            Cell::Number(seen.latency_ms),
            Cell::Number(seen.per_second),
        ]
    };
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Random pages of 4 KB in 1 GB".into(),
        paper: Some(PAPER.into()),
        keys: 3,
        columns: vec![
            Column::own("disks"),
            Column::published("threads"),
            Column::published("operation"),
            Column::published("time per operation [ms]"),
            Column::published("operations per second"),
        ],
        rows: cases.iter().zip(&seen).map(row).collect(),
    });
    outcome.tables.push(open_table(scale, progress)?);
    outcome.caveat(&[GAIN], DRIVES_OPEN);
    outcome.caveat(&[WRITES], "The requests of a short write are what the model of the array is.");
    Ok(outcome)
}
