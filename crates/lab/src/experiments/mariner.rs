//! Continuous data protection by volumes.

use upsweep_sim::random::Random;

use super::indexes::{DATA_DISKS, ORDERING, PROCESSOR_US};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::versions::{Clients, Keeping, Lasting, Setup, Versions, Written};

const GOALS: &str = "goals-volumes";
const PAPER: &str = "bosc-fig-10-mariner";
const DRIVE: &str = "dtla307030";
const AGAINST_OFF: &str = "worst loss of write throughput with a history against without";
const AGAINST_NONE: &str = "worst loss of write throughput with a history against no index";
const ONE_AGAINST_OFF: &str = "the same against without, one data disk";
const ONE_AGAINST_NONE: &str = "the same against no index, one data disk";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mariner",
    title: "Continuous data protection by volumes",
    method: "\
        Clients write blocks of 4 KB at random places of a volume of the product, in a store on \
        simulated IBM DTLA-307030: four for data, payload and map alike, and one for the log; and \
        again with a single one for data. The volume keeps a history of every version, or none, \
        and then versions that are overwritten are trimmed. Without an index, the same payload is \
        written in requests of the same lengths to ranges of the data disks that are reserved in \
        the same way, and nothing says where it is. A request comes at an interval after the one \
        before it, and up to 64 are under way. All that have come are written, and end together \
        with a flush, as clients of the server that want their writes durable share a flush; what \
        comes meanwhile waits for the next one. Before it is measured, a volume takes five \
        versions for each block of it. Afterwards some blocks are read, as they are and as they \
        were at a moment in between, and compared with what was written. \
        bosc-fig-10 compares maps by themselves, each beside a log of versions on a disk of its \
        own, where a version is a write; it has the maps of the paper that are slow.",
    scaling: "\
        A full run has a quarter of the paper's 20 GB of versions and 64 MB of memory, and \
        measures 30 seconds for each of eight intervals. A quick run has a 128th of the versions, \
        and 14 MB of memory, hardly more than a store needs, which their entries do not fill; it \
        measures 3 seconds for each of two intervals.",
    papers: &[GOALS],
    bindings: &[
        Binding::value(GOALS, AGAINST_OFF, AGAINST_OFF, Better::Less),
        Binding::value(GOALS, AGAINST_NONE, AGAINST_NONE, Better::Less),
        Binding::value(GOALS, ONE_AGAINST_OFF, ONE_AGAINST_OFF, Better::Less),
        Binding::value(GOALS, ONE_AGAINST_NONE, ONE_AGAINST_NONE, Better::Less),
    ],
    run,
};

/// What the paper has.
const VERSIONS: u64 = (20 << 30) / 4096;
const MEMORY_BYTES: u64 = 64 << 20;
/// Versions for each block of the volume.
const VERSIONS_PER_BLOCK: u64 = 5;
/// By how much all of it is smaller.
const SHRUNK: u64 = 4;
const SHRUNK_QUICK: u64 = 128;
/// The least memory of a store on these disks is 14 MiB.
const MEMORY_BYTES_QUICK: u64 = 14 << 20;
const LOG_BYTES: u64 = 256 << 20;
/// Clients, and fewer of them without an interval.
const CLIENTS: usize = 64;
const FEWER: [usize; 2] = [16, 1];
/// Blocks that are compared.
const COMPARED: usize = 200;

const KEEPINGS: [Keeping; 3] = [Keeping::Payload, Keeping::Present, Keeping::History];

fn name(keeping: Keeping) -> &'static str {
    match keeping {
        Keeping::Payload => "no index",
        Keeping::Present => "history off",
        Keeping::History => "history on",
    }
}

/// What one store did.
struct Seen {
    /// While it took the versions that come before.
    before: Written,
    /// For each interval.
    by_interval: Vec<Written>,
    /// With fewer clients, without an interval.
    by_clients: Vec<Written>,
}

fn measure(
    (data_devices, keeping): (u16, Keeping),
    intervals_us: &[u64],
    scale: &Scale,
) -> Result<Seen, Problem> {
    let before = VERSIONS / scale.pick(SHRUNK_QUICK, SHRUNK);
    let setup = Setup {
        memory_bytes: scale.pick(MEMORY_BYTES_QUICK, MEMORY_BYTES / SHRUNK),
        data_devices,
        blocks: before / VERSIONS_PER_BLOCK,
        processor_us: PROCESSOR_US,
    };
    let drives = banks::drives_and_log(DRIVE, data_devices, LOG_BYTES, Some(ORDERING), scale.seed)?;
    let mut store = Versions::create(keeping, setup, drives)?;
    let mut random = Random::new(scale.seed, "blocks");
    let mut next = || random.below(setup.blocks);
    let all = Clients { count: CLIENTS, interval_us: 0 };
    let before = store.write(all, Lasting { versions: before, us: 0 }, &mut next)?;
    store.note();
    let lasting = Lasting { versions: 0, us: scale.pick(3, 30) * 1_000_000 };
    // The first without an interval, when as many entries wait as ever.
    let by_interval = intervals_us
        .iter()
        .map(|us| store.write(Clients { interval_us: *us, ..all }, lasting, &mut next))
        .collect::<Result<_, _>>()?;
    let by_clients = FEWER
        .iter()
        .map(|count| store.write(Clients { count: *count, ..all }, lasting, &mut next))
        .collect::<Result<_, _>>()?;
    let compared: Vec<u64> = std::iter::repeat_with(next).take(COMPARED).collect();
    store.check(&compared)?;
    Ok(Seen { before, by_interval, by_clients })
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let intervals_us: Vec<u64> =
        scale.pick(vec![0, 5000], vec![0, 200, 500, 1000, 2000, 5000, 10_000, 20_000]);
    let disks = [DATA_DISKS, 1];
    let cases: Vec<(u16, Keeping)> =
        disks.iter().flat_map(|disks| KEEPINGS.map(|keeping| (*disks, keeping))).collect();
    let seen = progress.each(&cases, |case| measure(*case, &intervals_us, scale))?;
    let mut outcome = Outcome::default();
    outcome.setup("disks", "simulated IBM DTLA-307030, write cache off");
    outcome.setup("requests to a disk", format!("up to {} are ordered by C-LOOK", ORDERING.depth));
    outcome.setup("processor time of a version and of an entry", format!("{PROCESSOR_US} us each"));
    outcome.setup("writes under way", short(CLIENTS as f64));
    outcome.setup(
        "versions and memory",
        scale.pick("1/128 of the paper's, and 14 MB", "1/4 of the paper's"),
    );
    let claims = [[AGAINST_OFF, AGAINST_NONE], [ONE_AGAINST_OFF, ONE_AGAINST_NONE]];
    for ((disks, seen), [off, none]) in disks.iter().zip(seen.chunks(KEEPINGS.len())).zip(claims) {
        let [payload, present, history] = seen else { continue };
        let worst = |other: &Seen| worst_loss(&history.by_interval, &other.by_interval);
        outcome.value(off, worst(present), "%");
        outcome.value(none, worst(payload), "%");
        outcome.tables.push(by_interval(*disks, &intervals_us, seen));
        outcome.tables.push(by_clients(*disks, seen));
        outcome.tables.push(before(*disks, seen));
        outcome.figures.push(figure(*disks, &intervals_us, seen));
    }
    if let [payload, _, history, ..] = &seen[..] {
        let loss = worst_loss(&history.by_interval, &payload.by_interval);
        outcome.tables.push(losses(loss));
    }
    outcome.caveat(&[AGAINST_OFF, ONE_AGAINST_OFF], OFF);
    outcome.caveat(&[AGAINST_NONE], OPEN);
    outcome.caveat(&[ONE_AGAINST_NONE], ONE);
    Ok(outcome)
}

const OFF: &str = "\
    In a simulation, the work of volumes in the background does not go on beside writes, but \
    between them. Its time is left out of all rates; for a volume without a history, it is \
    trimming and cleaning. What that work costs clients is therefore only what its records add to \
    the log and to the sweep, the sweep goes on while it lasts, and requests that have come \
    meanwhile are served together. So the rates without a history are higher than those that \
    clients would see, even above one request for each interval, and the losses are too large \
    rather than too small.";

const OPEN: &str = "\
    The paper gives neither its intervals nor its rates, nor how many versions are under way, nor \
    its disks. Its block numbers are so many that hardly any is written twice, and then a volume \
    does the same with a history and without; here each is written several times. Writes that are \
    under way together become one request for payload, and one of the log. Without an index there \
    is only the former, and it alone bounds the rate, because one disk at a time gets such a \
    request, and turns on before it gets the next one.";

const ONE: &str = "\
    With one data disk, the reads and writes of the sweep come between the requests for payload. \
    The paper does not say which disks its map is on.";

fn data_disks(disks: u16) -> String {
    if disks == 1 { "one data disk".into() } else { format!("{disks} data disks") }
}

/// By how much less there is than in other measurements, in per cent.
fn loss(of: &Written, against: &Written) -> f64 {
    100.0 * (1.0 - of.per_second() / against.per_second())
}

fn worst_loss(of: &[Written], against: &[Written]) -> f64 {
    let losses = of.iter().zip(against).map(|(of, against)| loss(of, against));
    losses.fold(f64::NEG_INFINITY, f64::max)
}

/// Rates, and losses with a history, by what each row of measurements is of.
fn rates(key: &str, keys: &[f64], rows: &[Vec<Written>]) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let mut columns = vec![Column::own(key)];
    columns.extend(KEEPINGS.map(|keeping| Column::own(&format!("{} [versions/s]", name(keeping)))));
    columns.push(Column::own("loss against history off [%]"));
    columns.push(Column::own("loss against no index [%]"));
    let row = |(key, row): (&f64, &Vec<Written>)| {
        let mut cells: Vec<Cell> = vec![(*key).into()];
        cells.extend(row.iter().map(|written| Cell::Number(written.per_second())));
        let [payload, present, history] = &row[..] else { return cells };
        cells.extend([loss(history, present), loss(history, payload)].map(Cell::Number));
        cells
    };
    (columns, keys.iter().zip(rows).map(row).collect())
}

/// For each of so many measurements, that of each store.
fn across(count: usize, seen: &[Seen], of: fn(&Seen) -> &[Written]) -> Vec<Vec<Written>> {
    (0..count).map(|nth| seen.iter().map(|seen| of(seen)[nth]).collect()).collect()
}

fn by_interval(disks: u16, intervals_us: &[u64], seen: &[Seen]) -> Table {
    let keys: Vec<f64> = intervals_us.iter().map(|us| *us as f64).collect();
    let rows = across(keys.len(), seen, |seen| &seen.by_interval);
    let (columns, rows) = rates("interval [us]", &keys, &rows);
    Table {
        name: format!("intervals-{disks}"),
        title: format!("Durable writes by the interval between them, {}", data_disks(disks)),
        paper: None,
        keys: 1,
        columns,
        rows,
    }
}

fn by_clients(disks: u16, seen: &[Seen]) -> Table {
    let keys = FEWER.map(|count| count as f64);
    let rows = across(keys.len(), seen, |seen| &seen.by_clients);
    let (columns, rows) = rates("writes under way", &keys, &rows);
    Table {
        name: format!("clients-{disks}"),
        title: format!("Fewer durable writes under way, without interval, {}", data_disks(disks)),
        paper: None,
        keys: 1,
        columns,
        rows,
    }
}

/// The versions before those that are measured: more of them, while the map grows.
fn before(disks: u16, seen: &[Seen]) -> Table {
    let columns = [
        "",
        "versions/s",
        "work in the background [% of the time]",
        "written for a version [bytes]",
        "read for a version [bytes]",
    ];
    let row = |(keeping, seen): (&Keeping, &Seen)| {
        let (written, read) = seen.before.bytes_per_version();
        let (rate, work) = (seen.before.per_second(), seen.before.work_percent());
        let numbers = [rate, work, written, read].map(Cell::Number);
        std::iter::once(name(*keeping).into()).chain(numbers).collect()
    };
    Table {
        name: format!("first-{disks}"),
        title: format!(
            "The first versions, without interval, and the bytes of all disks for them and for the \
             work in the background, {}",
            data_disks(disks)
        ),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows: KEEPINGS.iter().zip(seen).map(row).collect(),
    }
}

/// The loss beside that of the paper.
fn losses(loss: f64) -> Table {
    Table {
        name: "losses".into(),
        title: "Loss of throughput against no index, at the worst of the intervals".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("map index"),
            Column::published("worst throughput loss against no index [%]"),
        ],
        rows: vec![vec!["BOSC B+ tree".into(), loss.into()]],
    }
}

fn figure(disks: u16, intervals_us: &[u64], seen: &[Seen]) -> Figure {
    let curve = |(keeping, seen): (&Keeping, &Seen)| Curve {
        name: name(*keeping).into(),
        points: intervals_us
            .iter()
            .zip(&seen.by_interval)
            .map(|(us, written)| (*us as f64, written.per_second()))
            .collect(),
    };
    Figure {
        name: format!("versions-{disks}"),
        title: format!("Durable writes of a volume, {}", data_disks(disks)),
        across: Axis::linear("interval between requests [us]"),
        up: Axis::logarithmic("versions/s"),
        curves: KEEPINGS.iter().zip(seen).map(curve).collect(),
        papers: Vec::new(),
    }
}
