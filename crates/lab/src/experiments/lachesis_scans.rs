//! Scans beside reads of random pages, on a drive whose tracks are known or not.

use upsweep::layers::device::drive::Scheduler;

use super::lachesis_compound::{
    Arm, DRIVE, IN_ORDER, MEAN, PATTERNS, PREFETCH_BYTES, Pattern, TRAFFIC, Table as Pages, drives,
    improvement, latency,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::profile;
use crate::progress::Progress;
use crate::systems::banks::Ordering;
use crate::systems::load::SeenBeside;

const PAPER: &str = "lachesis-fig-5-tpch-db2";
const QUERY_12: &str = "lachesis-fig-1-query12";
const HEADLINE: &str = "lachesis-headline";
const GROWTH: &str = "growth of original I/O time, heavy against none, mean";
const SPEED_UP_12: &str = "speed-up of query 12 under heavy traffic (sec 5.4)";
const MEAN_ALONE: &str = "mean gain of standalone decision support";
const BEST_ALONE: &str = "largest gain of standalone decision support";
const BEST_BESIDE: &str = "largest gain of decision support beside OLTP";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-fig-5",
    title: "Scans beside random reads, with and without the tracks of the drive",
    method: "\
        The product's engine with a table in pages of 8 KB on a simulated Maxtor Atlas 10K III, \
        in full detail, and its log on another one. The base store knows nothing of its drive: \
        images follow each other across tracks, and all scans together have two requests of 384 \
        KB in flight, as the hand-tuned DB2 of the paper. Ours has the profile of the drive with \
        its tracks, and chooses everything by it. A query is one of five patterns that the paper \
        describes: one scan, two and four scans at a time as in nested joins, short runs of two \
        to four extents of 384 KB that are some cylinders apart, and two pages at a time at \
        random. Beside it, pages at random are read, at moments of a Poisson process: none, 25 \
        and 150 in a second. The time of a query is that until its last read has ended; \
        processors take no time. The drive serves requests in the order of their arrival; what it \
        does otherwise is measured, too.",
    scaling: "\
        A full run has a table of 10 GB, as the paper, of which a query reads 768 MB, or 6,144 \
        random pages; a quick run 1 GB and 24 MB. The cache holds a hundredth of the table. In a \
        quick run each of four scans has too little memory to read whole tracks.",
    papers: &[PAPER, QUERY_12, HEADLINE],
    bindings: &[
        Binding::value(PAPER, GROWTH, GROWTH, Better::Neither),
        Binding::value(QUERY_12, SPEED_UP_12, SPEED_UP_12, Better::More),
        Binding::value(HEADLINE, MEAN_ALONE, MEAN_ALONE, Better::More),
        Binding::value(HEADLINE, BEST_ALONE, BEST_ALONE, Better::More),
        Binding::value(HEADLINE, BEST_BESIDE, BEST_BESIDE, Better::More),
    ],
    run,
};

/// Rates of random reads at which one scan is measured.
const RATES: [f64; 7] = [0.0, 25.0, 50.0, 75.0, 100.0, 150.0, 175.0];

/// What was measured of a store.
struct Measured {
    /// Random reads in a second, one at a time.
    one_at_a_time: f64,
    /// By pattern, and then by traffic.
    seen: Vec<Vec<SeenBeside>>,
    /// One scan, by [`RATES`].
    by_rate: Vec<(f64, f64)>,
    remainder_percent: f64,
    requests: String,
}

fn measure(arm: Arm<'_>, ordering: Ordering, scale: &Scale) -> Result<Measured, Problem> {
    let pages = Pages::of(scale.pick(1 << 30, 10 << 30));
    let bytes = scale.pick(24 << 20, 768 << 20);
    let mut store = pages.store(drives(ordering, scale)?, arm)?;
    let remainder = store.remainder_bytes() as f64;
    let one_at_a_time = pages.pages_one_at_a_time(&mut store, scale)?;
    let mut seen = Vec::new();
    for (pattern, _) in Pattern::ALL {
        let of =
            |(_, rate): &(&str, f64)| pages.measure(&mut store, (pattern, bytes), *rate, scale);
        seen.push(TRAFFIC.iter().map(of).collect::<Result<Vec<_>, Problem>>()?);
    }
    let one_scan = (Pattern::Scans(1), bytes);
    let of_rate = |rate| Ok((rate, pages.measure(&mut store, one_scan, rate, scale)?.seconds));
    let by_rate = RATES.into_iter().map(of_rate).collect::<Result<Vec<_>, Problem>>()?;
    let remainder_percent = 100.0 * remainder / (remainder + pages.bytes() as f64);
    let requests = store.scan_requests();
    Ok(Measured { one_at_a_time, seen, by_rate, remainder_percent, requests })
}

/// The base and ours.
struct Pair<'a>(&'a Measured, &'a Measured);

impl Pair<'_> {
    fn seconds(&self, pattern: usize, traffic: usize) -> [f64; 2] {
        [self.0, self.1].map(|measured| measured.seen[pattern][traffic].seconds)
    }

    /// How many times as fast ours is, by pattern.
    fn speed_ups(&self, traffic: usize) -> impl Iterator<Item = f64> + Clone {
        let of = move |pattern| self.seconds(pattern, traffic);
        (0..Pattern::ALL.len()).map(of).map(|[base, ours]| base / ours)
    }

    fn improvements(&self, traffic: usize) -> impl Iterator<Item = f64> + Clone {
        self.speed_ups(traffic).map(|times| improvement(times, 1.0))
    }

    /// The scans and the improvement, by scenario.
    fn times(&self, name: &str, title: &str, paper: Option<&str>) -> Table {
        let mut rows = Vec::new();
        for (traffic, (scenario, _)) in TRAFFIC.into_iter().enumerate() {
            for (pattern, (_, query)) in Pattern::ALL.into_iter().enumerate() {
                let [base, ours] = self.seconds(pattern, traffic);
                let numbers = [improvement(base, ours), base / ours, base, ours];
                let row: Vec<Cell> = vec![scenario.into(), query.into()];
                rows.push(row.into_iter().chain(numbers.map(Cell::Number)).collect());
            }
            let row: Vec<Cell> = vec![scenario.into(), MEAN.into()];
            let numbers = [
                Pattern::mean_of_queries(self.improvements(traffic)),
                Pattern::mean_of_queries(self.speed_ups(traffic)),
            ];
            let own = ["", ""].map(Cell::from);
            rows.push(row.into_iter().chain(numbers.map(Cell::Number)).chain(own).collect());
        }
        let columns = ["scenario", "query", "improvement in I/O time [%]", "speed-up [x]"];
        let own = ["base [s]", "ours [s]"].map(Column::own);
        let of_paper = |title| match paper {
            Some(_) => Column::published(title),
            None => Column::own(title),
        };
        Table {
            name: name.into(),
            title: title.into(),
            paper: paper.map(str::to_owned),
            keys: 2,
            columns: columns.map(of_paper).into_iter().chain(own).collect(),
            rows,
        }
    }

    /// The latency of the random reads.
    fn latencies(&self, name: &str, title: &str) -> Table {
        let mut rows = Vec::new();
        for (traffic, (scenario, _)) in TRAFFIC.into_iter().enumerate().skip(1) {
            for (pattern, (_, query)) in Pattern::ALL.into_iter().enumerate() {
                let seen = [self.0, self.1].map(|measured| &measured.seen[pattern][traffic]);
                let [base, ours] = seen.map(|seen| &seen.last);
                let numbers = [base.mean_ms(), ours.mean_ms(), base.p99_ms(), ours.p99_ms()];
                let row: Vec<Cell> = vec![scenario.into(), query.into()];
                rows.push(row.into_iter().chain(numbers.map(latency)).collect());
            }
        }
        let columns = [
            "scenario",
            "query",
            "mean, base [ms]",
            "mean, ours [ms]",
            "p99, base [ms]",
            "p99, ours [ms]",
        ];
        Table {
            name: name.into(),
            title: title.into(),
            paper: None,
            keys: 2,
            columns: columns.map(Column::own).into(),
            rows,
        }
    }
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let known = profile::with_tracks(DRIVE, scale.seed)?;
    let (base, ours) = (Arm::tuned(PREFETCH_BYTES), Arm::known(&known));
    let orderings = [Scheduler::Fcfs, Scheduler::Sptf, Scheduler::CLook]
        .map(|scheduler| Ordering { scheduler, ..IN_ORDER });
    let arms = [base, ours, base.one_by_one()];
    let cases: Vec<_> =
        orderings.into_iter().flat_map(|order| arms.map(|arm| (arm, order))).collect();
    let found = progress.each(&cases, |(arm, ordering)| measure(*arm, *ordering, scale))?;
    let pairs = [0, 3, 6].map(|at| Pair(&found[at], &found[at + 1]));
    let one_by_one = [0, 3, 6].map(|at| Pair(&found[at + 2], &found[at + 1]));
    let [in_order, by_place, by_address] = &pairs;
    let mut outcome = Outcome::default();
    outcome.setup("drives", "two Maxtor Atlas 10K III, with buffers and queues");
    outcome.setup("requests of scans, base", found[0].requests.as_str());
    outcome.setup("requests of scans, ours", found[1].requests.as_str());
    outcome.setup("random reads, one at a time", short(found[1].one_at_a_time) + " a second");
    let growth =
        |pattern: usize| found[0].seen[pattern][2].seconds / found[0].seen[pattern][0].seconds;
    outcome.value(GROWTH, Pattern::mean_of_queries((0..Pattern::ALL.len()).map(growth)), "x");
    let [base, ours] = in_order.seconds(0, 2);
    outcome.value(SPEED_UP_12, base / ours, "x");
    outcome.value(MEAN_ALONE, Pattern::mean_of_queries(in_order.improvements(0)), "%");
    outcome.value(BEST_ALONE, in_order.improvements(0).fold(f64::MIN, f64::max), "%");
    let beside = in_order.speed_ups(1).chain(in_order.speed_ups(2));
    outcome.value(BEST_BESIDE, beside.fold(f64::MIN, f64::max), "x");
    let tracks = known.tracks.as_ref();
    let kb = tracks.map_or(0.0, |tracks| tracks.memory_bytes() as f64 / 1024.0);
    outcome.finding(format!(
        "{} % of the space is lost at boundaries. The tracks take {} KB of memory.",
        short(found[1].remainder_percent),
        short(kb)
    ));
    outcome.tables.push(in_order.times("table", "Times of queries", Some(PAPER)));
    outcome.tables.push(in_order.latencies("latencies", "Latency of the random reads beside"));
    let title = "Times of queries, if the drive serves what is nearest";
    outcome.tables.push(by_place.times("nearest", title, None));
    let title = "Latency of the random reads beside, if the drive serves what is nearest";
    outcome.tables.push(by_place.latencies("nearest-latencies", title));
    let title = "Times of queries, if the drive goes upwards from one request to the next";
    outcome.tables.push(by_address.times("upwards", title, None));
    let title = "Latency of the random reads beside, if the drive goes upwards";
    outcome.tables.push(by_address.latencies("upwards-latencies", title));
    outcome.tables.push(one_in_flight(&one_by_one));
    outcome.figures.push(by_rate(&pairs));
    outcome.caveat(&[GROWTH, SPEED_UP_12, BEST_BESIDE, MEAN_ALONE, BEST_ALONE], PATTERNS);
    outcome.caveat(&[GROWTH, SPEED_UP_12, BEST_BESIDE], QUEUE);
    outcome.caveat(&[GROWTH, SPEED_UP_12], MAXIMUM);
    outcome.caveat(&[MEAN_ALONE], SHORT);
    Ok(outcome)
}

const QUEUE: &str = "\
    The paper does not say in which order its drive serves what is in its queue. Served in the \
    order of arrival, random reads wait no longer than what came before them; the time of a scan \
    then grows with each of them. If the drive serves what is nearest, or goes upwards, the second \
    of two requests of a scan nearly always comes first: in the base the scan hardly becomes \
    slower, and random reads wait for it. Ours has one for all scans while others read: beside one \
    scan and few reads these wait far less, and beside several scans and many reads longer than in \
    the base, as the requests are longer. The last table has the base with one, too.";
const MAXIMUM: &str = "\
    150 reads in a second are as many as the drive of the paper served one at a time. The model \
    serves more, as the setup says, so that they take a smaller part of its time.";
const SHORT: &str = "\
    A short run begins and ends anywhere in a track, so that it has more requests if these are \
    tracks than if they are of 384 KB and begin with it, and a scan reads its first page alone. \
    The short runs of the paper consist of whole extents.";

/// Queries beside random reads, if the base, too, has one request in flight.
fn one_in_flight(pairs: &[Pair<'_>]) -> Table {
    let mut rows = Vec::new();
    for (traffic, (scenario, _)) in TRAFFIC.into_iter().enumerate().skip(1) {
        for (pattern, (_, query)) in Pattern::ALL.into_iter().enumerate() {
            let row: Vec<Cell> = vec![scenario.into(), query.into()];
            let both = pairs.iter().flat_map(|pair| pair.seconds(pattern, traffic));
            rows.push(row.into_iter().chain(both.map(Cell::Number)).collect());
        }
    }
    let columns = [
        "scenario",
        "query",
        "in order, base [s]",
        "in order, ours [s]",
        "nearest, base [s]",
        "nearest, ours [s]",
        "upwards, base [s]",
        "upwards, ours [s]",
    ];
    Table {
        name: "one".into(),
        title: "Times of queries, if the base has one request in flight while others read".into(),
        paper: None,
        keys: 2,
        columns: columns.map(Column::own).into(),
        rows,
    }
}

fn by_rate(pairs: &[Pair<'_>]) -> Figure {
    let names = [
        "base",
        "ours",
        "base, nearest first",
        "ours, nearest first",
        "base, upwards",
        "ours, upwards",
    ];
    let curve = |(name, measured): (&str, &Measured)| Curve {
        name: name.into(),
        points: measured.by_rate.clone(),
    };
    let found = pairs.iter().flat_map(|pair| [pair.0, pair.1]);
    Figure {
        name: "rates".into(),
        title: "Time of one scan beside random reads".into(),
        across: Axis::linear("random reads in a second"),
        up: Axis::linear("time [s]"),
        curves: names.into_iter().zip(found).map(curve).collect(),
        papers: Vec::new(),
    }
}
