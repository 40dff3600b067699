//! What the experiments with indexes share: the testbed, the vanilla stores, and what is reported
//! of several stores under one workload with more and more memory.

use upsweep::layers::device::drive::Scheduler;
use upsweep_sim::random::Random;

use crate::experiment::Scale;
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::Bench;
use crate::systems::banks::{self, Ordering};
use crate::systems::in_place::{ANY_VALUE, Access, InPlace, Sizes};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::{Leaves, Records, Shape};
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::Store;

/// Data disks of a vanilla store, unless it is to have as many as Upsweep.
pub(super) const DISKS: u16 = 5;
/// How many callers have an operation under way.
pub(super) const CALLERS: [usize; 3] = [1, 16, 64];
/// How much of a leaf is filled initially, of ten.
pub(super) const FILL_TENTHS: u64 = 7;
/// Processor time of an operation.
pub(super) const PROCESSOR_US: u64 = 10;
/// How the host orders the requests to a disk.
pub(super) const ORDERING: Ordering = Ordering { depth: 128, scheduler: Scheduler::CLook };

/// A store that is updated in place.
pub(super) struct Vanilla<S> {
    /// Tree or hash table.
    pub(super) shape: S,
    /// Bytes of a page.
    pub(super) page_bytes: u64,
    /// Bytes of a record.
    pub(super) record_bytes: u64,
    /// Memory of the cache.
    pub(super) memory_mb: u64,
    /// Whether the pages that are in the cache at first were changed.
    pub(super) are_changed: bool,
    /// Its disks.
    pub(super) disks: u16,
}

impl<S: Shape> Vanilla<S> {
    /// Measures it, with a full cache from the beginning.
    pub(super) fn measure(
        self,
        load: Load,
        seed: u64,
        next: impl FnMut() -> Access,
    ) -> Result<Seen, Problem> {
        load.run(&mut self.make(seed)?, next)
    }

    /// Makes it, with a full cache.
    pub(super) fn make(self, seed: u64) -> Result<Bench<InPlace<S>>, Problem> {
        let Self { shape, page_bytes, record_bytes, memory_mb, are_changed, disks } = self;
        let sizes = Sizes {
            page_bytes,
            records_max: page_bytes / record_bytes,
            frames: ((memory_mb << 20) / page_bytes) as usize,
            devices: disks,
        };
        let pages = shape.pages();
        let mut random = Random::new(seed, "pages in the cache");
        let numbers = std::iter::repeat_with(|| random.below(pages));
        let mut store = InPlace::new(shape, sizes);
        store.fill(numbers.take(8 * sizes.frames), are_changed);
        let disks = banks::drives("dtla307030", disks, Some(ORDERING), seed)?;
        Ok(Bench::new(store, disks, PROCESSOR_US))
    }
}

/// A tree of so many GB in leaves, and its records.
pub(super) fn tree(index_gb: u64, leaf_bytes: u64, record_bytes: u64) -> (Leaves, Records) {
    tree_of(index_gb << 30, leaf_bytes, record_bytes)
}

/// A tree of so many bytes in leaves, and its records.
pub(super) fn tree_of(index_bytes: u64, leaf_bytes: u64, record_bytes: u64) -> (Leaves, Records) {
    let per_leaf = leaf_bytes / record_bytes * FILL_TENTHS / 10;
    let leaves = index_bytes / leaf_bytes;
    // Far enough apart that random keys hardly meet a record or each other.
    let records = Records { count: leaves * per_leaf, stride: 1 << 30 };
    (Leaves::new(records, per_leaf), records)
}

/// What random changes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Add records with new keys.
    Insert,
    /// Change records that are there.
    Update,
}

impl Changes {
    /// The unit of their rate.
    fn unit(self) -> &'static str {
        match self {
            Self::Insert => "inserts/s",
            Self::Update => "updates/s",
        }
    }

    /// Random ones among these records.
    pub(super) fn random(self, records: Records, seed: u64) -> impl FnMut() -> Access {
        let mut random = Random::new(seed, self.unit());
        move || {
            let key = match self {
                Self::Insert => random.below(records.count * records.stride),
                Self::Update => random.below(records.count) * records.stride,
            };
            Access::Put(key, ANY_VALUE)
        }
    }
}

/// Data disks of Upsweep; one more holds the log.
pub(super) const DATA_DISKS: u16 = 4;
/// How many callers of Upsweep have an update under way.
pub(super) const UPSWEEP_CALLERS: [usize; 2] = [64, 16_384];
/// By how much the store and the memory of Upsweep are smaller, as its content is real: in a quick
/// run, and in a full run.
const SHRUNK: (u64, u64) = (128, 64);
/// Changes by each caller that are measured, at most: so few callers that this is less never fill
/// the memory.
pub(super) const CHANGES_OF_CALLER: u64 = 1000;

/// By how much Upsweep is smaller at this scale.
pub(super) fn shrunk(scale: &Scale) -> u64 {
    scale.pick(SHRUNK.0, SHRUNK.1)
}

/// The records of an index of so many bytes that is filled as a vanilla one.
pub(super) fn records_of(index_bytes: u64, record_bytes: u64) -> Records {
    Records { count: index_bytes / record_bytes * FILL_TENTHS / 10, stride: 1 << 30 }
}

/// The product's engine, on as many data disks as the paper has and one for the log.
#[derive(Clone, Copy)]
pub(super) struct Upsweep {
    /// What it is to be.
    pub(super) plan: Plan,
    /// Its records.
    pub(super) records: Records,
}

impl Upsweep {
    /// A table of these records in blocks that are filled as vanilla leaves.
    pub(super) fn table(records: Records, record_bytes: u64, memory: Memory) -> Self {
        let plan = Plan {
            data_devices: DATA_DISKS,
            log_bytes: 4 * memory.bytes().max(64 << 20),
            memory,
            record_bytes,
            fill_percent: 10 * FILL_TENTHS as u32,
            processor_us: PROCESSOR_US,
            ..Plan::TABLE
        };
        Self { plan, records }
    }

    /// Makes it.
    pub(super) fn make(self, seed: u64) -> Result<Store, Problem> {
        let disks = banks::drives("dtla307030", DATA_DISKS + 1, Some(ORDERING), seed)?;
        Store::create(self.plan, self.records, disks)
    }

    /// Measures changes in the steady state: a quarter as many as it has records, or eight times
    /// as many bytes of them as it has memory. It comes to that state by updates, so that it does
    /// not grow.
    pub(super) fn measure(
        self,
        callers: usize,
        changes: Changes,
        scale: &Scale,
    ) -> Result<Seen, Problem> {
        let Self { records, .. } = self;
        let (before, next) = (Changes::Update.random(records, scale.seed + 1), changes);
        let next = next.random(records, scale.seed);
        let of_memory = 8 * self.plan.memory.bytes() / self.plan.record_bytes;
        let measured = (records.count / 4).min(of_memory).min(callers as u64 * CHANGES_OF_CALLER);
        self.make(scale.seed)?.measure_steady(callers, before, measured, next)
    }
}

/// Upsweep with every number of callers; `measure` gets megabytes of memory and the callers.
pub(super) fn upsweep<'a>(
    measure: &'a (impl Fn(u64, usize) -> Result<Seen, Problem> + Sync),
) -> Vec<Contender<'a>> {
    let contender = |callers: usize| Contender {
        store: "Upsweep",
        name: format!("Upsweep, {callers} callers"),
        measure: Box::new(move |memory_mb| measure(memory_mb, callers)),
    };
    UPSWEEP_CALLERS.map(contender).into()
}

/// One of the stores that are compared, in one way of using it.
pub(super) struct Contender<'a> {
    /// The store: of several ways of using it, the best counts.
    pub(super) store: &'static str,
    /// The way.
    pub(super) name: String,
    /// Measures it with so many MB of memory.
    pub(super) measure: Box<dyn Fn(u64) -> Result<Seen, Problem> + Sync + 'a>,
}

/// A vanilla store with every number of callers; `measure` gets megabytes of memory and the load.
pub(super) fn vanilla<'a>(
    measured: u64,
    measure: &'a (impl Fn(u64, Load) -> Result<Seen, Problem> + Sync),
) -> Vec<Contender<'a>> {
    let contender = |callers: usize| {
        let load = Load { callers, warm_up: 2 * callers as u64, measured };
        let plural = if callers == 1 { "" } else { "s" };
        Contender {
            store: "vanilla",
            name: format!("vanilla, {callers} caller{plural}"),
            measure: Box::new(move |memory_mb| measure(memory_mb, load)),
        }
    };
    CALLERS.map(contender).into()
}

/// What a paper says of a sweep: its experiment, and its column for each store.
pub(super) struct Published {
    pub(super) id: &'static str,
    pub(super) columns: &'static [(&'static str, &'static str)],
}

/// The rates of several stores with more and more memory.
pub(super) struct Sweep {
    /// For people.
    pub(super) title: &'static str,
    /// What is counted, in a second.
    pub(super) changes: Changes,
    /// Sizes of memory.
    pub(super) memory_mb: Vec<u64>,
    /// What the paper says of it.
    pub(super) published: Option<Published>,
}

/// The title of the first column.
const MEMORY: &str = "buffer memory [MB]";

impl Sweep {
    /// Measures all, and reports them.
    pub(super) fn run(
        &self,
        contenders: &[Contender<'_>],
        progress: &Progress,
    ) -> Result<Outcome, Problem> {
        let cases: Vec<(u64, &Contender<'_>)> = self
            .memory_mb
            .iter()
            .flat_map(|mb| contenders.iter().map(|contender| (*mb, contender)))
            .collect();
        let seen = progress.each(&cases, |(mb, contender)| (contender.measure)(*mb))?;
        let rows: Vec<(u64, &[Seen])> =
            self.memory_mb.iter().copied().zip(seen.chunks(contenders.len())).collect();
        let mut outcome = Outcome::default();
        outcome.setup("disks", format!("{DISKS} simulated IBM DTLA-307030, write cache off"));
        let depth = ORDERING.depth;
        outcome.setup("requests to a disk", format!("up to {depth} are ordered by C-LOOK"));
        outcome.setup("processor time of an operation", format!("{PROCESSOR_US} us"));
        let measured = seen.iter().map(|seen| seen.operations);
        if let (Some(least), Some(most)) = (measured.clone().min(), measured.max()) {
            let range = format!("{} to {}", short(least as f64), short(most as f64));
            outcome.setup("operations measured in a case", range);
        }
        for (mb, seen) in &rows {
            for store in stores(contenders) {
                let name = format!("{store} with {mb} MB");
                outcome.value(name, best(store, contenders, seen), self.changes.unit());
            }
        }
        outcome.tables.push(self.table(contenders, &rows));
        outcome.figures.push(self.figure(contenders, &rows));
        outcome.caveat(&[], CALLERS_OPEN);
        outcome.caveat(&[], NOT_DURABLE);
        Ok(outcome)
    }

    fn table(&self, contenders: &[Contender<'_>], rows: &[(u64, &[Seen])]) -> Table {
        let unit = self.changes.unit();
        let row = |(mb, seen): &(u64, &[Seen])| {
            let mut row: Vec<Cell> = vec![(*mb as f64).into()];
            row.extend(stores(contenders).map(|of| Cell::Number(best(of, contenders, seen))));
            row.extend(seen.iter().map(|seen| Cell::Number(seen.per_second)));
            row
        };
        let mut columns = vec![Column {
            title: MEMORY.into(),
            paper: self.published.as_ref().map(|_| MEMORY.to_owned()),
        }];
        columns.extend(stores(contenders).map(|store| Column {
            title: format!("{store}, best [{unit}]"),
            paper: self.columns().find(|(of, _)| *of == store).map(|(_, column)| column.to_owned()),
        }));
        columns.extend(contenders.iter().map(|contender| Column::own(&contender.name)));
        Table {
            name: "table".into(),
            title: format!("{}, {unit}", self.title),
            paper: self.published.as_ref().map(|published| published.id.to_owned()),
            keys: 1,
            columns,
            rows: rows.iter().map(row).collect(),
        }
    }

    fn figure(&self, contenders: &[Contender<'_>], rows: &[(u64, &[Seen])]) -> Figure {
        let curve = |(place, contender): (usize, &Contender<'_>)| Curve {
            name: contender.name.clone(),
            points: rows.iter().map(|(mb, seen)| (*mb as f64, seen[place].per_second)).collect(),
        };
        let points = |(_, column): (&str, &str)| PaperPoints {
            name: format!("paper: {}", column.split(" [").next().unwrap_or(column)),
            paper: self.published.as_ref().map(|published| published.id).unwrap_or_default().into(),
            across: MEMORY.to_owned(),
            up: column.to_owned(),
            only: None,
        };
        Figure {
            name: "rates".into(),
            title: self.title.into(),
            across: Axis::logarithmic(MEMORY),
            up: Axis::logarithmic(self.changes.unit()),
            curves: contenders.iter().enumerate().map(curve).collect(),
            papers: self.columns().map(points).collect(),
        }
    }

    /// The paper's column for each store.
    fn columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let columns = self.published.as_ref().map(|published| published.columns);
        columns.unwrap_or_default().iter().copied()
    }
}

/// The stores that are compared, each once; ways of using one are next to each other.
fn stores<'a>(contenders: &'a [Contender<'_>]) -> impl Iterator<Item = &'static str> + 'a {
    let groups = contenders.chunk_by(|one, other| one.store == other.store);
    groups.map(|group| group[0].store)
}

/// The highest rate of a store in all ways of using it.
fn best(store: &str, contenders: &[Contender<'_>], seen: &[Seen]) -> f64 {
    let of_it = contenders.iter().zip(seen).filter(|(contender, _)| contender.store == store);
    of_it.map(|(_, seen)| seen.per_second).fold(0.0, f64::max)
}

const CALLERS_OPEN: &str = "\
    The paper does not say how many callers there are, nor how requests are ordered, on which the \
    rate of the vanilla store depends. The best rate of all numbers of callers is compared.";
/// What is to be said of each vanilla store.
pub(super) const NOT_DURABLE: &str = "\
    A change of the vanilla store has ended when its page in memory is changed. Nothing is \
    logged, so that all costs of durability are spared.";
/// What is to be said where Upsweep is smaller than a vanilla store.
pub(super) const SHRUNK_CAVEAT: &str = "\
    The blocks of Upsweep are real, so that what it holds and its memory are smaller than those of \
    the vanilla store, in the same proportion. What bounds it is that proportion and the bandwidth \
    of the disks, of which it uses only the outer tracks.";
