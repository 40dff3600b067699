//! What the compound experiments of Lachesis share: a store with or without what is known of its
//! drives, access patterns of queries, and traffic beside them.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::device::{Profile, Simulated};
use upsweep_sim::random::Random;

use crate::experiment::Scale;
use crate::outcome::Cell;
use crate::problem::Problem;
use crate::systems::banks::{self, Ordering};
use crate::systems::in_place::Access;
use crate::systems::load::{Beside, Others, SeenBeside};
use crate::systems::pages::Records;
use crate::systems::plan::{Memory, Plan, ReadAhead};
use crate::systems::store::Store;

/// The drive of the paper.
pub(super) const DRIVE: &str = "atlas10k3";
/// Pages of the paper.
pub(super) const PAGE_BYTES: u32 = 8 << 10;
/// Bytes of a record: eight of them fill a page.
const RECORD_BYTES: u64 = 992;
const RECORDS_PER_PAGE: u64 = 8;
/// Part of the table that the cache holds: as much as of the paper's, whose memory is 768 MB.
const CACHE_PART: u64 = 100;
/// Bytes of a prefetch of the paper's DB2, hand-tuned, and how many are outstanding.
pub(super) const PREFETCH_BYTES: u32 = 384 << 10;
pub(super) const OUTSTANDING: usize = 2;
/// Reads of random pages in a second: none, light and heavy traffic.
pub(super) const TRAFFIC: [(&str, f64); 3] =
    [("no traffic", 0.0), ("light traffic", 25.0), ("heavy traffic", 150.0)];

/// Drives that serve requests in the order of their arrival.
pub(super) const IN_ORDER: Ordering = Ordering { depth: 64, scheduler: Scheduler::Fcfs };

/// A store with or without what is known of its drives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm<'a> {
    /// What is known of them.
    pub(super) profile: Option<&'a Profile>,
    /// How scans read ahead.
    pub(super) read_ahead: ReadAhead,
}

impl<'a> Arm<'a> {
    /// Nothing is known, and somebody has chosen these requests.
    pub(super) fn tuned(request_bytes: u32) -> Self {
        let (request_bytes, requests_in_flight) = (Some(request_bytes), Some(OUTSTANDING));
        Self { profile: None, read_ahead: ReadAhead { request_bytes, requests_in_flight } }
    }

    /// The same with one request in flight.
    pub(super) fn one_by_one(self) -> Self {
        let read_ahead = ReadAhead { requests_in_flight: Some(1), ..self.read_ahead };
        Self { read_ahead, ..self }
    }

    /// All follows from a profile.
    pub(super) fn known(profile: &'a Profile) -> Self {
        Self { profile: Some(profile), read_ahead: ReadAhead::CHOSEN }
    }
}

/// How much shorter a time is than before, in per cent.
pub(super) fn improvement(before: f64, now: f64) -> f64 {
    100.0 * (1.0 - now / before)
}

/// A latency in milliseconds; nothing if no operation ended.
pub(super) fn latency(ms: Option<f64>) -> Cell {
    ms.map_or("".into(), Cell::Number)
}

/// The name of the row with the mean of all queries.
pub(super) const MEAN: &str = "mean of 22";
/// What stands for the queries of the paper.
pub(super) const PATTERNS: &str = "\
    The paper replays traces of the 22 queries of TPC-H, which are not published. Five patterns \
    stand for them. The paper says of nine queries what they do: scans (Q1, 4, 12, 15), \
    interleaved scans (Q9, 21), short runs (Q10), random pages (Q17, 20). The others have as many \
    scans at a time as they read tables: one (Q6), two for two or three, four for more. In the \
    means, a pattern counts as often as there are queries like it. Processors take no time.";

/// What a query does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// So many scans at a time, of parts of the table.
    Scans(u64),
    /// Short scans, each somewhat behind the last one.
    ShortRuns,
    /// Pages at random.
    Pages,
}

impl Pattern {
    /// All, with names and the queries of TPC-H that are like them. The paper says so of nine; the
    /// others have one scan for each table that they read, as far as there is a pattern for it.
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Scans(1), "one scan (Q1, 4, 6, 12, 15)"),
        (Self::Scans(2), "two scans (Q3, 11, 13, 14, 16, 18, 19, 22)"),
        (Self::Scans(4), "four scans (Q2, 5, 7, 8, 9, 21)"),
        (Self::ShortRuns, "short runs (Q10)"),
        (Self::Pages, "random pages (Q17, 20)"),
    ];
    /// How many queries are like each.
    const QUERIES: [f64; 5] = [5.0, 8.0, 6.0, 1.0, 2.0];

    /// The mean over the 22 queries of what was found of each pattern, in the order of
    /// [`Pattern::ALL`].
    pub(super) fn mean_of_queries(found: impl Iterator<Item = f64>) -> f64 {
        let sum: f64 = found.zip(Self::QUERIES).map(|(of, queries)| of * queries).sum();
        sum / Self::QUERIES.iter().sum::<f64>()
    }

    /// The operations, for so many bytes of the table, and callers that make them.
    fn operations(self, table: &Table, bytes: u64, random: &mut Random) -> (usize, Vec<Access>) {
        let records = |bytes: u64| bytes / u64::from(PAGE_BYTES) * RECORDS_PER_PAGE;
        let wanted = records(bytes);
        let scan = |first: u64, count: u64| {
            Access::Scan(first * table.records.stride, (first + count) * table.records.stride)
        };
        match self {
            Self::Scans(count) => {
                let each = table.records.count / count;
                let parts = (0..count).map(|part| scan(part * each + each / 3, wanted / count));
                (count as usize, parts.collect())
            }
            Self::ShortRuns => {
                let (mut first, mut left, mut all) = (table.records.count / 7, wanted, Vec::new());
                while left > 0 {
                    let run = records(random.between(2, 4) * u64::from(PREFETCH_BYTES)).min(left);
                    all.push(scan(first, run));
                    // A few cylinders of four tracks.
                    first += run + records(random.between(1, 4) << 20);
                    left -= run;
                }
                (1, all)
            }
            Self::Pages => {
                let pages = bytes / u64::from(PAGE_BYTES) / 16;
                (OUTSTANDING, (0..pages).map(|_| table.page(random)).collect())
            }
        }
    }
}

/// A table of pages of eight records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    records: Records,
}

impl Table {
    /// Of so many bytes.
    pub(super) fn of(bytes: u64) -> Self {
        let count = bytes / u64::from(PAGE_BYTES) * RECORDS_PER_PAGE;
        Self { records: Records { count, stride: 1 } }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.records.count / RECORDS_PER_PAGE * u64::from(PAGE_BYTES)
    }

    fn page(&self, random: &mut Random) -> Access {
        Access::Get(random.below(self.records.count))
    }

    /// A store with this table on drives of which this is known, and scans that read ahead so.
    pub(super) fn store(&self, drives: Box<dyn Simulated>, arm: Arm<'_>) -> Result<Store, Problem> {
        let plan = Plan {
            memory: Memory::Cache(self.bytes() / CACHE_PART),
            block_bytes: Some(PAGE_BYTES),
            record_bytes: RECORD_BYTES,
            fill_percent: 100,
            read_ahead: arm.read_ahead,
            ..Plan::TABLE
        };
        Store::create_with(plan, self.records, drives, arm.profile)
    }

    /// Makes the operations of a pattern, for so many bytes, beside so many reads of random pages
    /// in a second.
    pub(super) fn measure(
        &self,
        store: &mut Store,
        (pattern, bytes): (Pattern, u64),
        per_second: f64,
        scale: &Scale,
    ) -> Result<SeenBeside, Problem> {
        // Other places each time, so that the cache does not have them.
        let mut random = Random::new(scale.seed, &format!("{pattern:?} {per_second}"));
        let (callers, operations) = pattern.operations(self, bytes, &mut random);
        let others = if per_second > 0.0 { Others::Arriving(per_second) } else { Others::None };
        let beside = Beside { callers, others, us_min: 0 };
        let mut places = Random::new(random.word(), "pages");
        let next = || self.page(&mut places).into();
        let seen = beside.run(store, operations.into_iter(), next, &mut random)?;
        store.settle()?;
        Ok(seen)
    }

    /// Reads of random pages in a second, one at a time.
    pub(super) fn pages_one_at_a_time(
        &self,
        store: &mut Store,
        scale: &Scale,
    ) -> Result<f64, Problem> {
        let mut random = Random::new(scale.seed, "one at a time");
        let count = scale.pick(200u64, 2000);
        let reads: Vec<Access> = (0..count).map(|_| self.page(&mut random)).collect();
        let beside = Beside { callers: 1, others: Others::None, us_min: 0 };
        let seen = beside.run(store, reads.into_iter(), || Access::Get(0).into(), &mut random)?;
        Ok(count as f64 / seen.seconds)
    }
}

/// Two drives that are simulated in full: for the data, and for the log.
pub(super) fn drives(ordering: Ordering, scale: &Scale) -> Result<Box<dyn Simulated>, Problem> {
    banks::full_drives(DRIVE, 2, Some(ordering), scale.seed)
}
