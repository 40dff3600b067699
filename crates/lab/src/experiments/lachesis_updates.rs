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
use crate::systems::load::{Beside, Others, SeenBeside, Turn};
use crate::systems::pages::Records;
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::Store;
use crate::workloads::tpcc::{Change, Kind, Layout, RECORD_BYTES, TpcC};

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
        Terminals do what transactions of TPC-C do, row by row: a row that is updated or deleted \
        is read first, one that is inserted is not, and the change lasts until it is durable. \
        Then a terminal thinks, and goes on to the next row. Light traffic is one terminal that \
        thinks 100 ms on average; heavy traffic is one that does not think, the client of the \
        paper at its maximum rate. In two scenarios terminals only change rows and read none. The \
        engine sweeps the changes into the pages. Beside this, a part of the table is scanned. Two \
        base stores know nothing of their drives, and scans have two requests in flight: of 64 KB, \
        the extents of the paper's Basic-Shore, or of 384 KB. Ours has the profile of the drives \
        with their tracks. Drives serve requests in the order of their arrival.",
    scaling: "\
        A full run has an index of 1 GB, of which 384 MB are scanned; terminals are busy for 60 \
        seconds before the scan begins. The rate of one terminal varies by chance, so beside one \
        terminal four parts are scanned, one after another: times are means, rates and latencies \
        are those of all scans. A quick run has 64 MB, of which it scans 8 MB once, and 5 seconds. \
        Memory is 64 MB.",
    papers: &[FIG_7, FIG_8],
    bindings: &[
        Binding::value(FIG_8, PEAK, PEAK, Better::More),
        Binding::value(FIG_8, SPEED_UP, SPEED_UP, Better::More),
    ],
    run,
};

/// Extents of Basic-Shore.
const EXTENT_BYTES: u32 = 64 << 10;
const MB: f64 = 1_048_576.0;
const MEMORY_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 256 << 20;

/// Terminals beside a scan.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    terminals: usize,
    /// The mean time for which each thinks, in microseconds.
    think_us: f64,
    /// Whether they read the rows that they update or delete.
    reads: bool,
}

impl Scenario {
    const fn new(name: &'static str, terminals: usize, think_us: f64) -> Self {
        Self { name, terminals, think_us, reads: true }
    }

    const fn without_reads(self) -> Self {
        Self { reads: false, ..self }
    }

    /// How many parts of the table are scanned. The rate of many terminals hardly varies by chance.
    fn scans(&self, scale: &Scale) -> u64 {
        if self.terminals == 1 { scale.pick(1, SCANS) } else { 1 }
    }

    fn others(&self) -> Others {
        match self.terminals {
            0 => Others::None,
            count => Others::Terminals(count, self.think_us),
        }
    }

    /// What a terminal does for this change.
    fn turn(&self, layout: &Layout, change: Change) -> Turn<Access> {
        let key = layout.key(change.row);
        let last = match change.kind {
            Kind::Insert | Kind::Update => Access::Put(key, ANY_VALUE),
            Kind::Delete => Access::Remove(key),
        };
        let is_read = self.reads && change.kind != Kind::Insert;
        Turn { first: is_read.then_some(Access::Get(key)), last }
    }
}

const SCENARIOS: [Scenario; 6] = [
    Scenario::new("no traffic", 0, 0.0),
    Scenario::new("light traffic", 1, 100_000.0),
    Scenario::new("heavy traffic", 1, 0.0),
    Scenario::new("ten terminals", 10, 0.0),
    Scenario::new("ten terminals, updates only", 10, 0.0).without_reads(),
    Scenario::new("forty terminals, updates only", 40, 0.0).without_reads(),
];
/// The scenario with the maximum rate of one terminal.
const HEAVY: usize = 2;
/// Scans beside a single terminal in a full run.
const SCANS: u64 = 4;

/// What was seen of the scenarios with an arm, one scan after another.
struct Measured<'a> {
    arm: &'static str,
    seen: &'a [Vec<SeenBeside>],
}

impl Measured<'_> {
    /// All scans of a scenario together.
    fn all(&self, scenario: usize) -> SeenBeside {
        self.seen[scenario].iter().cloned().fold(SeenBeside::default(), SeenBeside::and)
    }

    /// The mean time of a scan.
    fn seconds(&self, scenario: usize) -> f64 {
        self.all(scenario).seconds / self.seen[scenario].len() as f64
    }
}

fn measure(arm: Arm<'_>, scenario: &Scenario, scale: &Scale) -> Result<Vec<SeenBeside>, Problem> {
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
    let mut random = Random::new(scale.seed, "terminals");
    let mut stream = TpcC::new(layout.size, scale.seed);
    let mut next = || scenario.turn(&layout, stream.next_change());
    let others = scenario.others();
    if others != Others::None {
        let us_min = scale.pick(5_000_000, 60_000_000);
        let before = Beside { callers: 0, others, us_min };
        before.run(&mut store, std::iter::empty(), &mut next, &mut random)?;
        store.settle()?;
    }
    let beside = Beside { callers: 1, others, us_min: 0 };
    let Records { count, stride } = layout.records();
    let scanned = (scale.pick(8.0, 384.0) * MB / index_bytes as f64 * count as f64) as u64;
    let scans = scenario.scans(scale);
    let mut scan = |number: u64| {
        // Evenly spread from end to end; one alone is in the middle.
        let from = (count - scanned) * (number + 1) / (scans + 1);
        let scan = Access::Scan(from * stride, (from + scanned) * stride);
        let seen = beside.run(&mut store, std::iter::once(scan), &mut next, &mut random)?;
        store.settle()?;
        Ok(seen)
    };
    (0..scans).map(&mut scan).collect()
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let known = profile::with_tracks(DRIVE, scale.seed)?;
    let arms = [
        ("requests of 64 KB", Arm::tuned(EXTENT_BYTES)),
        ("requests of 384 KB", Arm::tuned(PREFETCH_BYTES)),
        ("ours", Arm::known(&known)),
    ];
    let cases: Vec<_> =
        arms.into_iter().flat_map(|(_, arm)| SCENARIOS.map(|scenario| (arm, scenario))).collect();
    let found = progress.each(&cases, |(arm, scenario)| measure(*arm, scenario, scale))?;
    let mut seen = found.chunks(SCENARIOS.len());
    let all = arms.map(|(arm, _)| Measured { arm, seen: seen.next().unwrap_or_default() });
    let [basic, tuned, ours] = &all;
    let mut outcome = Outcome::default();
    outcome.setup("drives", "two Maxtor Atlas 10K III, with buffers and queues");
    outcome.value(SPEED_UP, basic.seconds(HEAVY) / ours.seconds(HEAVY), "x");
    let gain = |basic: &SeenBeside, ours: &SeenBeside| {
        100.0 * (ours.turns_per_second() / basic.turns_per_second() - 1.0)
    };
    outcome.value(PEAK, gain(&basic.all(HEAVY), &ours.all(HEAVY)), "%");
    let pairs = basic.seen[HEAVY].iter().zip(&ours.seen[HEAVY]);
    let gains = pairs.map(|(basic, ours)| format!("{:.1} %", gain(basic, ours)));
    outcome.finding(format!(
        "Under heavy traffic, the gain in updates in a second is, scan by scan: {}.",
        gains.collect::<Vec<_>>().join(", ")
    ));
    let title = "Times of a scan, against requests of 64 KB";
    outcome.tables.push(times("table", title, Some(FIG_7), basic, ours));
    let title = "Times of a scan, against requests of 384 KB";
    outcome.tables.push(times("tuned", title, None, tuned, ours));
    outcome.tables.push(updates(&all));
    outcome.figures.push(rates(&all));
    outcome.caveat(&[PEAK, SPEED_UP], UPDATES);
    Ok(outcome)
}

const UPDATES: &str = "\
    In the paper a client reads pages and writes them in place, all on the drive of the scan. Here \
    only the reads of rows wait for that drive, unless their pages are in memory: for the requests \
    of the scan that came before them, which are longer in ours than 64 KB. A change is durable \
    when it is logged, on a drive of its own, and later the sweep writes the pages, which competes \
    with the scan and the reads. Each change of a row waits for the log, where a transaction of \
    the paper waits once, and that wait is much the same however the table is scanned.";

fn times(
    name: &str,
    title: &str,
    paper: Option<&str>,
    base: &Measured<'_>,
    ours: &Measured<'_>,
) -> Table {
    let row = |(place, scenario): (usize, Scenario)| {
        let (base, ours) = (base.seconds(place), ours.seconds(place));
        let numbers = [improvement(base, ours), base / ours, base, ours].map(Cell::Number);
        let name: Cell = match (scenario.name, paper) {
            (name @ ("light traffic" | "heavy traffic"), Some(_)) => {
                format!("{name}, mean").as_str().into()
            }
            (name, _) => name.into(),
        };
        [name].into_iter().chain(numbers).collect()
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
        rows: SCENARIOS.into_iter().enumerate().map(row).collect(),
    }
}

fn updates(all: &[Measured<'_>]) -> Table {
    let mut rows = Vec::new();
    for (place, scenario) in SCENARIOS.iter().enumerate().filter(|(_, one)| one.terminals > 0) {
        for measured in all {
            let seen = measured.all(place);
            let (reads, changes) = (&seen.first, &seen.last);
            let latencies =
                [reads.mean_ms(), reads.p99_ms(), changes.mean_ms(), changes.p99_ms()].map(latency);
            let keys = [scenario.name, measured.arm].map(Cell::from);
            let rate = Cell::Number(seen.turns_per_second());
            rows.push(keys.into_iter().chain([rate]).chain(latencies).collect());
        }
    }
    let columns = [
        "scenario",
        "scans",
        "updates/s",
        "reads, mean [ms]",
        "reads, p99 [ms]",
        "changes, mean [ms]",
        "changes, p99 [ms]",
    ];
    Table {
        name: "updates".into(),
        title: "Changes of rows beside the scan, and latencies of reads and changes".into(),
        paper: None,
        keys: 2,
        columns: columns.map(Column::own).into(),
        rows,
    }
}

/// Times of scans and rates of updates, where terminals read.
fn rates(all: &[Measured<'_>]) -> Figure {
    let curve = |measured: &Measured<'_>| {
        let reading = SCENARIOS.iter().enumerate().filter(|(_, scenario)| scenario.reads);
        let point = |place| (measured.all(place).turns_per_second(), measured.seconds(place));
        Curve {
            name: measured.arm.into(),
            points: reading.map(|(place, _)| point(place)).collect(),
        }
    };
    Figure {
        name: "rates".into(),
        title: "Time of a scan beside terminals that read rows and change them".into(),
        across: Axis::linear("updates in a second"),
        up: Axis::linear("time [s]"),
        curves: all.iter().map(curve).collect(),
        papers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_reads_the_rows_that_it_changes_except_new_ones() {
        let layout = Layout::of(1, 1_000_000);
        let mut stream = TpcC::new(layout.size, 1);
        let (heavy, blind) = (SCENARIOS[HEAVY], SCENARIOS[HEAVY].without_reads());
        for change in (0..1000).map(|_| stream.next_change()) {
            let (key, turn) = (layout.key(change.row), heavy.turn(&layout, change));
            let is_read = matches!(turn.first, Some(Access::Get(read)) if read == key);
            assert_eq!(is_read, change.kind != Kind::Insert);
            let is_removed = matches!(turn.last, Access::Remove(_));
            assert!(turn.last.key() == key && is_removed == (change.kind == Kind::Delete));
            assert!(blind.turn(&layout, change).first.is_none());
        }
    }
}
