//! A scan beside the updates of TPC-C, on a drive whose tracks are known or not.

use upsweep_sim::random::Random;

use super::lachesis_compound::{
    Arm, DRIVE, IN_ORDER, PAGE_BYTES, PREFETCH_BYTES, drives, improvement, latency,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::profile;
use crate::progress::Progress;
use crate::systems::in_place::{ANY_VALUE, Access};
use crate::systems::load::{Beside, Others, SeenBeside};
use crate::systems::pages::Records;
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::Store;
use crate::workloads::tpcc::{Layout, RECORD_BYTES, TpcC};

const FIG_7: &str = "lachesis-fig-7-tpch-shore";
const FIG_8: &str = "lachesis-fig-8-query12-shore";
const PEAK: &str = "gain in maximum TPC-C rate";
const SPEED_UP: &str = "speed-up of query 12 under heavy traffic, Shore (sec 5.4)";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-fig-7",
    title: "A scan beside the updates of TPC-C",
    method: "\
        The product's engine with an index of the tables of TPC-C in pages of 8 KB, on a \
        simulated Maxtor Atlas 10K III, in full detail; updates are logged to another one. \
        Terminals change rows as TPC-C does, one after another, each until the change is \
        durable, with a time to think between two of them. The engine sweeps the changes into \
        the pages. Beside this, a part of the table is scanned. Two base stores know nothing \
        of their drives, and scans have two requests in flight: of 64 KB, the extents of the \
        paper's Basic-Shore, or of 384 KB. Ours has the profile of the drives with their tracks. \
        Drives serve requests in the order of their arrival.",
    scaling: "\
        A full run has an index of 1 GB, of which 384 MB are scanned; updates come for 60 \
        seconds before the scan begins. A quick run has 64 MB, of which it scans 8 MB, and 5 \
        seconds. Memory is 64 MB.",
    papers: &[FIG_7, FIG_8],
    bindings: &[
        Binding::value(FIG_8, PEAK, PEAK, Better::More),
        Binding::value(FIG_8, SPEED_UP, SPEED_UP, Better::More),
    ],
    run,
};

/// Extents of Basic-Shore.
const EXTENT_BYTES: u32 = 64 << 10;
/// Scenarios: terminals, and the mean time in which each thinks, in microseconds.
const SCENARIOS: [(&str, usize, f64); 4] = [
    ("no traffic", 0, 0.0),
    ("light traffic", 10, 100_000.0),
    ("heavy traffic", 10, 0.0),
    ("forty terminals", 40, 0.0),
];
const MB: f64 = 1_048_576.0;
const MEMORY_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 256 << 20;

fn measure(
    arm: Arm<'_>,
    (terminals, think_us): (usize, f64),
    scale: &Scale,
) -> Result<SeenBeside, Problem> {
    let index_bytes = scale.pick(64 << 20, 1 << 30);
    let layout = Layout::of(1, index_bytes / RECORD_BYTES * 7 / 10);
    let plan = Plan {
        memory: Memory::Whole(MEMORY_BYTES),
        log_bytes: LOG_BYTES,
        block_bytes: Some(PAGE_BYTES),
        record_bytes: RECORD_BYTES,
        read_ahead: arm.read_ahead,
        ..Plan::TABLE
    };
    let drives = drives(IN_ORDER, scale)?;
    let mut store = Store::create_with(plan, layout.records(), drives, arm.profile)?;
    let mut stream = TpcC::new(layout.size, scale.seed);
    let mut next = || Access::Put(layout.key(stream.next_change().row), ANY_VALUE);
    let others = match terminals {
        0 => Others::None,
        _ => Others::Terminals(terminals, think_us),
    };
    let mut random = Random::new(scale.seed, "terminals");
    if terminals > 0 {
        let us_min = scale.pick(5_000_000, 60_000_000);
        let before = Beside { callers: 0, others, us_min };
        before.run(&mut store, std::iter::empty(), &mut next, &mut random)?;
        store.settle()?;
    }
    let beside = Beside { callers: 1, others, us_min: 0 };
    let Records { count, stride } = layout.records();
    let scanned = scale.pick(8.0, 384.0) * MB / index_bytes as f64 * count as f64;
    let (from, to) = (count / 3, count / 3 + scanned as u64);
    let scan = Access::Scan(from * stride, to * stride);
    beside.run(&mut store, std::iter::once(scan), next, &mut random)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let known = profile::with_tracks(DRIVE, scale.seed)?;
    let arms = [Arm::tuned(EXTENT_BYTES), Arm::tuned(PREFETCH_BYTES), Arm::known(&known)];
    let cases = SCENARIOS.map(|(_, terminals, think_us)| (terminals, think_us));
    let cases: Vec<_> =
        arms.into_iter().flat_map(|arm| cases.map(|scenario| (arm, scenario))).collect();
    let found = progress.each(&cases, |(arm, scenario)| measure(*arm, *scenario, scale))?;
    let all: Vec<&[SeenBeside]> = found.chunks(SCENARIOS.len()).collect();
    let [basic, tuned, ours] = [all[0], all[1], all[2]];
    let mut outcome = Outcome::default();
    outcome.setup("drives", "two Maxtor Atlas 10K III, with buffers and queues");
    let (heavy, peak) = (2, 3);
    outcome.value(SPEED_UP, basic[heavy].seconds / ours[heavy].seconds, "x");
    let rates = [basic, ours].map(|seen| seen[peak].others_per_second());
    outcome.value(PEAK, 100.0 * (rates[1] / rates[0] - 1.0), "%");
    let name = "table";
    let title = "Times of a scan, against requests of 64 KB";
    outcome.tables.push(times(name, title, Some(FIG_7), basic, ours));
    let title = "Times of a scan, against requests of 384 KB";
    outcome.tables.push(times("tuned", title, None, tuned, ours));
    outcome.tables.push(rates_of_updates(&all));
    let names = ["requests of 64 KB", "requests of 384 KB", "ours"];
    let curve = |(name, seen): (&str, &[SeenBeside])| {
        let point = |seen: &SeenBeside| (seen.others_per_second(), seen.seconds);
        Curve { name: name.into(), points: seen.iter().map(point).collect() }
    };
    outcome.figures.push(Figure {
        name: "rates".into(),
        title: "Time of a scan beside updates".into(),
        across: Axis::linear("updates in a second"),
        up: Axis::linear("time [s]"),
        curves: names.into_iter().zip(all).map(curve).collect(),
        papers: Vec::new(),
    });
    outcome.caveat(&[PEAK, SPEED_UP], UPDATES);
    Ok(outcome)
}

const UPDATES: &str = "\
    In the paper an update reads and writes its page in place, on the drive of the scan, and a \
    client waits for that. Here an update is durable when it is logged, on a drive of its own, and \
    what competes with the scan is the sweep. So the rate of updates depends on the log, and \
    on the drive of the scan only where the memory for updates is full.";

fn times(
    name: &str,
    title: &str,
    paper: Option<&str>,
    base: &[SeenBeside],
    ours: &[SeenBeside],
) -> Table {
    let row = |(((scenario, ..), base), ours): (((&str, usize, f64), &SeenBeside), &SeenBeside)| {
        let (base, ours) = (base.seconds, ours.seconds);
        let numbers = [improvement(base, ours), base / ours, base, ours].map(Cell::Number);
        let scenario: Cell = match (scenario, paper) {
            ("light traffic" | "heavy traffic", Some(_)) => {
                format!("{scenario}, mean").as_str().into()
            }
            _ => scenario.into(),
        };
        [scenario].into_iter().chain(numbers).collect()
    };
    let of_paper = |title| match paper {
        Some(_) => Column::published(title),
        None => Column::own(title),
    };
    let columns = ["scenario", "improvement [%]", "speed-up [x]"].map(of_paper);
    Table {
        name: name.into(),
        title: title.into(),
        paper: paper.map(str::to_owned),
        keys: 1,
        columns: columns.into_iter().chain(["base [s]", "ours [s]"].map(Column::own)).collect(),
        rows: SCENARIOS.into_iter().zip(base).zip(ours).map(row).collect(),
    }
}

fn rates_of_updates(all: &[&[SeenBeside]]) -> Table {
    let rows = SCENARIOS.into_iter().enumerate().skip(1).map(|(place, (scenario, ..))| {
        let rates = all.iter().map(|seen| seen[place].others_per_second());
        let means = all.iter().map(|seen| seen[place].mean_ms());
        let tails = all.iter().map(|seen| seen[place].p99_ms());
        let numbers = rates.map(Cell::Number).chain(means.chain(tails).map(latency));
        std::iter::once(Cell::from(scenario)).chain(numbers).collect()
    });
    let columns = [
        "scenario",
        "updates/s, 64 KB",
        "updates/s, 384 KB",
        "updates/s, ours",
        "mean, 64 KB [ms]",
        "mean, 384 KB [ms]",
        "mean, ours [ms]",
        "p99, 64 KB [ms]",
        "p99, 384 KB [ms]",
        "p99, ours [ms]",
    ];
    Table {
        name: "updates".into(),
        title: "Updates beside the scan, and their latency".into(),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows: rows.collect(),
    }
}
