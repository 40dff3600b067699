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
        The product's engine with an index in pages of 8 KB, on a simulated Maxtor Atlas 10K III, \
        in full detail; updates are logged to another one. The index has the tables of TPC-C with \
        one warehouse as it is initially, 78 MB of records, and behind them a table that nobody \
        changes, as the paper's volumes of TPC-C and TPC-H are next to each other on one disk. \
        Clients make transactions of TPC-C: rows that are updated or deleted are read, one after \
        another; then all rows of the transaction are changed, and it ends when all changes are \
        durable. Then a client thinks. Light traffic is one client that thinks 700 ms on average; \
        heavy traffic are ten that do not think, because one leaves the drive idle while it waits \
        for the log. Beside this, a part of the other table is scanned, by a query that processes \
        10 or 20 MB in a second at most, or only reads. In two more scenarios the tables of \
        TPC-C take the whole index, and a part of them is scanned, while terminals change rows, \
        one after another, and read none. The engine sweeps the changes into the pages. Two base \
        stores know nothing of their drives, and scans have two requests in flight: of 64 KB, the \
        extents of the paper's Basic-Shore, or of 384 KB. Ours has the profile of the drives with \
        their tracks. Drives serve requests in the order of their arrival. The cache has 64 MB, as \
        the paper's pool of buffers. In four scenarios it has 8 MB, because in the paper the pages \
        of a scan pass through the pool, where they can drive out those of clients. Rates and \
        latencies are of the same transactions: the first ones beside each scan, as many as beside \
        the one that had the fewest. How much transactions read from the drive changes with their \
        number, so that beside a longer scan they would be others. Clients go on when the scans \
        are over: their rate over the time of the longest scan, with whichever store, is what they \
        did beside their own scan and after it.",
    scaling: "\
        In a full run the scanned table has 1 GB, of which 384 MB are scanned; terminals are busy \
        for 60 seconds before the scan begins. The rate of one client varies by chance, so beside \
        one client four parts are scanned, one after another: times are means, rates and latencies \
        are those of all scans. A quick run has 64 MB, of which it scans 8 MB once, and 5 seconds: \
        too short for rates, since most pages are not in memory yet.",
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
const CACHE_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 256 << 20;

/// A cache that has few of the pages of clients.
const SMALL_CACHE_BYTES: u64 = 8 << 20;

/// What terminals do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Whole transactions on a small database, next to the table that is scanned.
    Transactions,
    /// Changes of rows of the table that is scanned, one after another. No row is read.
    Changes,
}

/// Terminals beside a scan.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    work: Work,
    terminals: usize,
    /// The mean time for which each thinks, in microseconds.
    think_us: f64,
    /// For how long a page of the scan is processed, in microseconds.
    page_us: u64,
    cache_bytes: u64,
}

impl Scenario {
    const fn clients(name: &'static str, clients: usize, think_us: f64) -> Self {
        let work = Work::Transactions;
        Self { name, work, terminals: clients, think_us, page_us: 0, cache_bytes: CACHE_BYTES }
    }

    const fn changes(name: &'static str, terminals: usize) -> Self {
        Self { work: Work::Changes, ..Self::clients(name, terminals, 0.0) }
    }

    const fn processing(self, page_us: u64) -> Self {
        Self { page_us, ..self }
    }

    const fn with_small_cache(self) -> Self {
        Self { cache_bytes: SMALL_CACHE_BYTES, ..self }
    }

    /// The tables of TPC-C and the records of the whole index, of which so many bytes are scanned
    /// in parts.
    fn index(&self, scanned_bytes: u64) -> (Layout, Records) {
        let count = scanned_bytes / RECORD_BYTES * 7 / 10;
        match self.work {
            Work::Transactions => {
                let layout = Layout::of(1, 0);
                let Records { count: before, stride } = layout.records();
                (layout, Records { count: before + count, stride })
            }
            Work::Changes => {
                let layout = Layout::of(1, count);
                (layout, layout.records())
            }
        }
    }

    /// The number of the first record that is scanned.
    fn scanned_from(&self, layout: &Layout) -> u64 {
        match self.work {
            Work::Transactions => layout.records().count,
            Work::Changes => 0,
        }
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

    /// What a terminal does next.
    fn turn(&self, layout: &Layout, stream: &mut TpcC) -> Turn<Access> {
        match self.work {
            Work::Transactions => transaction(layout, &stream.next_transaction()),
            Work::Changes => change(layout, &stream.next_change()).into(),
        }
    }
}

fn change(layout: &Layout, change: &Change) -> Access {
    let key = layout.key(change.row);
    match change.kind {
        Kind::Insert | Kind::Update => Access::Put(key, ANY_VALUE),
        Kind::Delete => Access::Remove(key),
    }
}

/// A transaction that makes these changes.
fn transaction(layout: &Layout, changes: &[Change]) -> Turn<Access> {
    let old = changes.iter().filter(|change| change.kind != Kind::Insert);
    Turn {
        first: old.map(|change| Access::Get(layout.key(change.row))).collect(),
        last: changes.iter().map(|one| change(layout, one)).collect(),
    }
}

/// For how long a query of 10 MB/s processes a page, and one of 20 MB/s.
const PAGE_US: u64 = 800;
const FAST_PAGE_US: u64 = 400;

const SCENARIOS: [Scenario; 15] = [
    Scenario::clients("no traffic", 0, 0.0).processing(PAGE_US),
    Scenario::clients("light traffic", 1, 700_000.0).processing(PAGE_US),
    Scenario::clients("heavy traffic", 10, 0.0).processing(PAGE_US),
    Scenario::clients("heavy traffic, query of 20 MB/s", 10, 0.0).processing(FAST_PAGE_US),
    Scenario::clients("one busy client", 1, 0.0).processing(PAGE_US),
    Scenario::clients("no traffic, query only reads", 0, 0.0),
    Scenario::clients("light traffic, query only reads", 1, 700_000.0),
    Scenario::clients("one busy client, query only reads", 1, 0.0),
    Scenario::clients("heavy traffic, query only reads", 10, 0.0),
    Scenario::changes("ten terminals, updates only", 10),
    Scenario::changes("forty terminals, updates only", 40),
    Scenario::clients("one busy client, 8 MB cache", 1, 0.0).processing(PAGE_US).with_small_cache(),
    Scenario::clients("heavy traffic, 8 MB cache", 10, 0.0).processing(PAGE_US).with_small_cache(),
    Scenario::clients("one busy client, 8 MB cache, query only reads", 1, 0.0).with_small_cache(),
    Scenario::clients("heavy traffic, 8 MB cache, query only reads", 10, 0.0).with_small_cache(),
];
/// Heavy traffic beside a query of 10 MB/s.
const HEAVY: usize = 2;
/// Scans beside a single terminal in a full run.
const SCANS: u64 = 4;

/// What was seen of a scenario.
struct Seen {
    /// One scan after another.
    scans: Vec<SeenBeside>,
    /// After them.
    alone: Option<SeenBeside>,
}

impl Seen {
    /// Turns in a second beside the scans.
    fn turns_per_second(&self) -> f64 {
        let turns: usize = self.scans.iter().map(|scan| scan.last.count()).sum();
        turns as f64 / self.scans.iter().map(|scan| scan.seconds).sum::<f64>()
    }
}

/// How many turns have ended in each arm beside each scan of a scenario.
fn same_turns(arms: &[&[Seen]], scenario: usize) -> Vec<usize> {
    let scans = arms.iter().map(|arm| arm[scenario].scans.len()).min().unwrap_or(0);
    let ended = |scan: usize| arms.iter().map(move |arm| arm[scenario].scans[scan].last.count());
    (0..scans).map(|scan| ended(scan).min().unwrap_or(0)).collect()
}

/// What was seen of the scenarios with an arm.
struct Measured<'a> {
    arm: &'static str,
    seen: &'a [Seen],
    /// Beside all scans of each scenario, the turns that have ended in each arm. What turns read
    /// from the drive changes with their number, so others say little.
    same: Vec<SeenBeside>,
}

impl<'a> Measured<'a> {
    fn all(arms: &[&'static str], seen: &'a [Seen]) -> Vec<Self> {
        let seen: Vec<&[Seen]> = seen.chunks(SCENARIOS.len()).collect();
        let turns: Vec<_> = (0..SCENARIOS.len()).map(|place| same_turns(&seen, place)).collect();
        let same = |(seen, turns): (&Seen, &Vec<usize>)| {
            let scans = seen.scans.iter().zip(turns);
            let same = scans.filter_map(|(scan, turns)| scan.until(*turns));
            same.fold(SeenBeside::default(), SeenBeside::and)
        };
        let measured = |(arm, seen): (&&'static str, &&'a [Seen])| Self {
            arm,
            seen,
            same: seen.iter().zip(&turns).map(same).collect(),
        };
        arms.iter().zip(&seen).map(measured).collect()
    }

    /// Turns in a second beside the scans of a scenario, if any have ended in each arm.
    fn rate(&self, scenario: usize) -> Option<f64> {
        let same = &self.same[scenario];
        (same.last.count() > 0).then(|| same.turns_per_second())
    }

    /// The mean time of a scan.
    fn seconds(&self, scenario: usize) -> f64 {
        let scans = &self.seen[scenario].scans;
        scans.iter().map(|scan| scan.seconds).sum::<f64>() / scans.len() as f64
    }

    /// Turns in a second over so many seconds, in which there is one scan.
    fn turns_per_second_over(&self, scenario: usize, seconds: f64) -> Option<f64> {
        let alone = self.seen[scenario].alone.as_ref()?.turns_per_second();
        let scanned = self.seconds(scenario).min(seconds);
        let beside = self.seen[scenario].turns_per_second();
        Some((beside * scanned + alone * (seconds - scanned)) / seconds)
    }
}

fn measure(arm: Arm<'_>, scenario: &Scenario, scale: &Scale) -> Result<Seen, Problem> {
    let table_bytes = scale.pick(64 << 20, 1 << 30);
    let (layout, records) = scenario.index(table_bytes);
    let plan = Plan {
        memory: Memory::Cache(scenario.cache_bytes),
        log_bytes: LOG_BYTES,
        block_bytes: Some(PAGE_BYTES),
        record_bytes: RECORD_BYTES,
        read_ahead: arm.read_ahead,
        scan_block_us: scenario.page_us,
        ..Plan::TABLE
    };
    let drives = drives(IN_ORDER, scale)?;
    let mut store = Store::create_with(plan, records, drives, arm.profile)?;
    let mut random = Random::new(scale.seed, "terminals");
    let mut stream = TpcC::new(layout.size, scale.seed);
    let mut next = || scenario.turn(&layout, &mut stream);
    let others = scenario.others();
    let alone = Beside { callers: 0, others, us_min: scale.pick(5_000_000, 60_000_000) };
    if others != Others::None {
        alone.run(&mut store, std::iter::empty(), &mut next, &mut random)?;
        store.settle()?;
    }
    let beside = Beside { callers: 1, others, us_min: 0 };
    let (first, Records { count, stride }) = (scenario.scanned_from(&layout), records);
    let scanned =
        (scale.pick(8.0, 384.0) * MB / table_bytes as f64 * (count - first) as f64) as u64;
    let scans = scenario.scans(scale);
    let mut scan = |number: u64| {
        // Evenly spread from end to end; one alone is in the middle.
        let from = first + (count - first - scanned) * (number + 1) / (scans + 1);
        let scan = Access::Scan(from * stride, (from + scanned) * stride);
        let seen = beside.run(&mut store, std::iter::once(scan), &mut next, &mut random)?;
        store.settle()?;
        Ok(seen)
    };
    let scans = (0..scans).map(&mut scan).collect::<Result<_, Problem>>()?;
    let alone = match others {
        Others::None => None,
        _ => Some(alone.run(&mut store, std::iter::empty(), &mut next, &mut random)?),
    };
    Ok(Seen { scans, alone })
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
    let all = Measured::all(&arms.map(|(arm, _)| arm), &found);
    let [basic, tuned, ours] = all.as_slice() else { unreachable!("as many as arms") };
    let mut outcome = Outcome::default();
    outcome.setup("drives", "two Maxtor Atlas 10K III, with buffers and queues");
    outcome.value(SPEED_UP, basic.seconds(HEAVY) / ours.seconds(HEAVY), "x");
    if let (Some(basic), Some(ours)) = (basic.rate(HEAVY), ours.rate(HEAVY)) {
        outcome.value(PEAK, gain(basic, ours), "%");
    }
    let title = "Times of a scan, against requests of 64 KB";
    outcome.tables.push(times("table", title, Some(FIG_7), basic, ours));
    let title = "Times of a scan, against requests of 384 KB";
    outcome.tables.push(times("tuned", title, None, tuned, ours));
    outcome.tables.push(gains(basic, ours, |scenario| longest(&all, scenario)));
    outcome.tables.push(updates(&all));
    outcome.figures.push(rates(&all));
    outcome.caveat(&[PEAK, SPEED_UP], UPDATES);
    Ok(outcome)
}

const UPDATES: &str = "\
    In the paper a client reads pages and writes them in place, all on the drive of the scan. Here \
    only the reads of rows wait for that drive, unless their pages are in memory: for the requests \
    of the scan that came before them, which are longer in ours than 64 KB. A change is durable \
    when it is logged, on a drive of its own. The sweep, which writes the pages, leaves the drive \
    to those who read as long as there is room for changes, with and without a profile. How fast \
    the paper's query processes what it reads is not known, and 10 MB/s is an assumption. A \
    single client that does not think, with a cache of 64 MB, waits for the log most of the time, \
    and gains nothing beside a query of 10 MB/s: from -0.40 to +0.25 % with six seeds, -0.02 % on \
    average.";

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

/// By how much more a rate is, in percent.
fn gain(base: f64, ours: f64) -> f64 {
    100.0 * (ours / base - 1.0)
}

/// What terminals do beside the scan, and over the time of the longest of the scans.
fn gains(base: &Measured<'_>, ours: &Measured<'_>, longest: impl Fn(usize) -> f64) -> Table {
    let row = |place: usize| {
        let over = |arm: &Measured<'_>| arm.turns_per_second_over(place, longest(place));
        let pairs = [(base.rate(place), ours.rate(place)), (over(base), over(ours))];
        let numbers = pairs.into_iter().flat_map(|(base, ours)| {
            let gain = base.zip(ours).map(|(base, ours)| gain(base, ours));
            [base, ours, gain].map(|number| number.map_or("".into(), Cell::Number))
        });
        [SCENARIOS[place].name.into()].into_iter().chain(numbers).collect()
    };
    let columns = [
        "scenario",
        "base/s",
        "ours/s",
        "gain [%]",
        "base, over the longest scan/s",
        "ours, over the longest scan/s",
        "gain over the longest scan [%]",
    ];
    let places = (0..SCENARIOS.len()).filter(|place| SCENARIOS[*place].terminals > 0);
    Table {
        name: "gains".into(),
        title: "Transactions or updates, against requests of 64 KB".into(),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows: places.map(row).collect(),
    }
}

/// The time of the longest scan of a scenario.
fn longest(all: &[Measured<'_>], scenario: usize) -> f64 {
    all.iter().map(|measured| measured.seconds(scenario)).fold(0.0, f64::max)
}

fn updates(all: &[Measured<'_>]) -> Table {
    let mut rows = Vec::new();
    for (place, scenario) in SCENARIOS.iter().enumerate().filter(|(_, one)| one.terminals > 0) {
        for measured in all {
            let seen = &measured.same[place];
            let (reads, changes) = (&seen.first, &seen.last);
            let latencies =
                [reads.mean_ms(), reads.p99_ms(), changes.mean_ms(), changes.p99_ms()].map(latency);
            let keys = [scenario.name, measured.arm].map(Cell::from);
            let rate = measured.rate(place).map_or("".into(), Cell::Number);
            rows.push(keys.into_iter().chain([rate]).chain(latencies).collect());
        }
    }
    let columns = [
        "scenario",
        "scans",
        "transactions or updates/s",
        "reads, mean [ms]",
        "reads, p99 [ms]",
        "commits, mean [ms]",
        "commits, p99 [ms]",
    ];
    Table {
        name: "updates".into(),
        title: "What terminals do beside the scan, and latencies of reads and of commits".into(),
        paper: None,
        keys: 2,
        columns: columns.map(Column::own).into(),
        rows,
    }
}

/// Times of scans and rates of transactions.
fn rates(all: &[Measured<'_>]) -> Figure {
    let curve = |(query, page_us): (&str, u64), measured: &Measured<'_>| {
        let is_of = |one: &Scenario| {
            (one.work, one.page_us, one.cache_bytes) == (Work::Transactions, page_us, CACHE_BYTES)
        };
        let places = SCENARIOS.iter().enumerate().filter(|(_, one)| is_of(one));
        let point = |place: usize| (measured.rate(place).unwrap_or(0.0), measured.seconds(place));
        let mut points: Vec<_> = places.map(|(place, _)| point(place)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Curve { name: format!("{}, {query}", measured.arm), points }
    };
    let queries = [("10 MB/s", PAGE_US), ("only reads", 0)];
    let curves = queries.iter().flat_map(|query| all.iter().map(|one| curve(*query, one)));
    Figure {
        name: "rates".into(),
        title: "Time of a scan beside clients of TPC-C".into(),
        across: Axis::linear("transactions in a second"),
        up: Axis::linear("time [s]"),
        curves: curves.collect(),
        papers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_reads_the_rows_that_it_changes_except_new_ones() {
        let (layout, _) = SCENARIOS[HEAVY].index(1 << 20);
        let mut stream = TpcC::new(layout.size, 1);
        for changes in (0..100).map(|_| stream.next_transaction()) {
            let Turn { first, last } = transaction(&layout, &changes);
            let mut reads = first.into_iter();
            assert_eq!(last.len(), changes.len());
            for (Change { kind, row }, access) in changes.into_iter().zip(last) {
                assert_eq!(access.key(), layout.key(row));
                assert_eq!(matches!(access, Access::Remove(_)), kind == Kind::Delete);
                if kind != Kind::Insert {
                    let read = reads.next();
                    assert!(matches!(read, Some(Access::Get(key)) if key == access.key()));
                }
            }
            assert!(reads.next().is_none());
        }
    }

    #[test]
    fn transactions_leave_the_scanned_table_alone_and_changes_are_of_it() {
        for (work, is_apart) in [(Work::Transactions, true), (Work::Changes, false)] {
            let scenario = Scenario { work, ..SCENARIOS[HEAVY] };
            let (layout, records) = scenario.index(16 << 20);
            let from = scenario.scanned_from(&layout);
            assert!(from < records.count);
            let mut stream = TpcC::new(layout.size, 1);
            for _ in 0..1000 {
                let Turn { first, last } = scenario.turn(&layout, &mut stream);
                let is_before = |access: &Access| access.key() < from * records.stride;
                assert!(last.iter().chain(&first).all(|access| is_before(access) == is_apart));
                assert!(is_apart || first.is_empty());
            }
        }
    }

    #[test]
    fn rates_are_of_the_turns_that_all_arms_have_ended() {
        // Turns become shorter; beside the longer scan of the first arm there are more.
        let arm = |ends_us: &[u64]| {
            let scan = || SeenBeside::of_turns(ends_us);
            SCENARIOS.map(|_| Seen { scans: vec![scan(), scan()], alone: None })
        };
        let both = |one: &[u64], other: &[u64]| arm(one).into_iter().chain(arm(other)).collect();
        let seen: Vec<Seen> = both(&[1_000_000, 1_500_000, 1_750_000], &[2_000_000, 3_000_000]);
        let all = Measured::all(&["longer", "shorter"], &seen);
        let rates: Vec<Option<f64>> = all.iter().map(|arm| arm.rate(HEAVY)).collect();
        assert_eq!(rates, [Some(4.0 / 3.0), Some(4.0 / 6.0)]);
        let seen: Vec<Seen> = both(&[1_000_000], &[]);
        let all = Measured::all(&["one", "none"], &seen);
        assert!(all.iter().all(|arm| arm.rate(HEAVY).is_none()));
    }
}
