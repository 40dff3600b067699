//! The operations of one caller, one after the other, the same for the same seed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Workload;
use super::keys::{Keys, NewKeys};
use super::ngrams::Ngrams;
use super::random::Random;
use super::zipf::Zipf;
use crate::engine::{Change, Key};
use crate::failure::Failure;

/// Records of a scan.
pub(crate) const SCAN_RECORDS: u64 = 1000;
/// Most records of a scan of YCSB.
const YCSB_SCAN_RECORDS_MAX: u64 = 100;

/// One operation.
pub(crate) enum Operation {
    /// A change of a record.
    Update(Key, Change),
    /// A point read.
    Read(Key),
    /// A point read, and then an increment of the same record.
    ReadAndIncrement(Key),
    /// A scan of so many records.
    Scan(Key, u64),
}

/// What all callers of a run share.
#[derive(Clone)]
pub(crate) struct Shared<'a> {
    /// The loaded records.
    pub(crate) keys: Keys,
    /// Number of the run in its store, which sets new keys apart from those of other runs.
    pub(crate) run: u64,
    /// The seed of the run.
    pub(crate) seed: u64,
    /// New records so far.
    pub(crate) inserted: Arc<AtomicU64>,
    /// The text whose sequences of words are counted.
    pub(crate) text: Option<&'a Path>,
}

/// The operations of one caller.
pub(crate) struct Stream<'a> {
    workload: Workload,
    shared: Shared<'a>,
    new_keys: NewKeys,
    random: Random,
    zipf: Option<Zipf>,
    ngrams: Option<Ngrams>,
}

impl<'a> Stream<'a> {
    /// The operations of caller `caller` out of `callers`.
    ///
    /// # Errors
    /// What [`Ngrams::open`] gives; [`Failure::Refused`] if the workload needs a text and there is
    /// none.
    pub(crate) fn new(
        workload: Workload,
        shared: Shared<'a>,
        (caller, callers): (usize, usize),
    ) -> Result<Self, Failure> {
        use Workload::{Ngrams as Text, YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF, Zipfian};
        let is_zipfian =
            matches!(workload, Zipfian | YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF);
        let ngrams = match (workload, shared.text) {
            (Text, Some(text)) => Some(Ngrams::open(text, caller as f64 / callers as f64)?),
            (Text, None) => return Err(Failure::Refused("there is no text; give one".to_owned())),
            _ => None,
        };
        Ok(Self {
            workload,
            new_keys: shared.keys.new_ones(super::random::scramble(shared.run)),
            random: Random::new(shared.seed ^ (shared.run << 32), caller as u64),
            zipf: is_zipfian.then(|| Zipf::new(shared.keys.records())),
            ngrams,
            shared,
        })
    }

    /// The next operation.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the text cannot be read.
    pub(crate) fn next(&mut self) -> Result<Operation, Failure> {
        use Operation::{Read, ReadAndIncrement, Scan, Update};
        let percent = self.random.below(100);
        Ok(match self.workload {
            Workload::Mixed95 if percent < 5 => Read(self.uniform()),
            Workload::Mixed50 if percent < 50 => Read(self.uniform()),
            Workload::Reads => Read(self.uniform()),
            Workload::Scans => Scan(self.uniform(), SCAN_RECORDS),
            Workload::Zipfian => Update(self.ranked(), Change::Increment),
            Workload::Ngrams if let Some(ngrams) = &mut self.ngrams => {
                Update(ngrams.next()?, Change::Increment)
            }
            Workload::DeleteHeavy if percent < 50 => Update(self.uniform(), Change::Delete),
            Workload::InsertRandom
            | Workload::InsertClustered
            | Workload::InsertSequential
            | Workload::DeleteHeavy => self.insert(),
            Workload::YcsbA if percent < 50 => self.replace(),
            Workload::YcsbB if percent < 5 => self.replace(),
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbC => Read(self.ranked()),
            Workload::YcsbD | Workload::YcsbE if percent < 5 => self.insert(),
            Workload::YcsbD => Read(self.latest()),
            Workload::YcsbE => Scan(self.ranked(), 1 + self.random.below(YCSB_SCAN_RECORDS_MAX)),
            Workload::YcsbF if percent < 50 => ReadAndIncrement(self.ranked()),
            Workload::YcsbF => Read(self.ranked()),
            Workload::Increments
            | Workload::Mixed95
            | Workload::Mixed50
            | Workload::Ngrams
            | Workload::BesideScans
            | Workload::Latency50
            | Workload::Latency80
            | Workload::ReadsWhileUpdating
            | Workload::Recovery => Update(self.uniform(), Change::Increment),
        })
    }

    fn uniform(&mut self) -> Key {
        self.shared.keys.loaded(self.random.below(self.shared.keys.records()))
    }

    fn rank(&mut self) -> u64 {
        self.zipf.as_ref().map_or(0, |zipf| zipf.draw(&mut self.random))
    }

    fn ranked(&mut self) -> Key {
        let rank = self.rank();
        self.shared.keys.ranked(rank)
    }

    /// A record, the newest most often; loaded ones once there are no newer ones.
    fn latest(&mut self) -> Key {
        let (rank, inserted) = (self.rank(), self.shared.inserted.load(Ordering::Relaxed));
        match inserted.checked_sub(rank + 1) {
            Some(number) => self.new_keys.random(number),
            None => self.shared.keys.ranked(rank - inserted),
        }
    }

    fn insert(&mut self) -> Operation {
        let number = self.shared.inserted.fetch_add(1, Ordering::Relaxed);
        let key = match self.workload {
            Workload::InsertClustered => self.new_keys.clustered(number),
            Workload::InsertSequential => self.new_keys.sequential(self.shared.run, number),
            _ => self.new_keys.random(number),
        };
        Operation::Update(key, Change::Put(number))
    }

    fn replace(&mut self) -> Operation {
        let stamp = self.random.next();
        Operation::Update(self.ranked(), Change::Put(stamp))
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn stream(workload: Workload, seed: u64, text: &Path) -> Stream<'_> {
        let inserted = Arc::default();
        let keys = Keys::new(1000, 1, 8);
        let shared = Shared { keys, run: 3, seed, inserted, text: Some(text) };
        Stream::new(workload, shared, (0, 2)).expect("a stream")
    }

    /// The first operations, with a letter for their kind in front.
    fn first(workload: Workload, seed: u64) -> Vec<(char, Vec<u8>)> {
        let text = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(text.path(), "to be or not to be that is the question").expect("written");
        let mut stream = stream(workload, seed, text.path());
        let operations = (0..2000).map(|_| match stream.next().expect("an operation") {
            Operation::Read(key) => ('r', key),
            Operation::Scan(key, _) => ('s', key),
            Operation::ReadAndIncrement(key) => ('f', key),
            Operation::Update(key, change) => {
                let kind = match change {
                    Change::Increment => 'i',
                    Change::Put(_) => 'p',
                    Change::Delete => 'd',
                };
                (kind, key)
            }
        });
        operations.map(|(kind, key)| (kind, key.to_vec())).collect()
    }

    #[test]
    fn equal_seeds_give_equal_operations_in_all_workloads() {
        for workload in Workload::value_variants() {
            assert_eq!(first(*workload, 1), first(*workload, 1), "{workload:?}");
        }
        assert_ne!(first(Workload::Increments, 1), first(Workload::Increments, 2));
    }

    #[test]
    fn operations_come_in_the_parts_that_the_workload_says() {
        let part = |workload, kind| {
            let found = first(workload, 1).iter().filter(|(found, _)| *found == kind).count();
            found as f64 / 2000.0
        };
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.04;
        assert!(near(part(Workload::Mixed95, 'r'), 0.05));
        assert!(near(part(Workload::Mixed50, 'r'), 0.5));
        assert!(near(part(Workload::DeleteHeavy, 'd'), 0.5));
        assert!(near(part(Workload::DeleteHeavy, 'p'), 0.5));
        assert!(near(part(Workload::YcsbA, 'p'), 0.5));
        assert!(near(part(Workload::YcsbB, 'p'), 0.05));
        assert!(near(part(Workload::YcsbE, 's'), 0.95));
        assert!(near(part(Workload::YcsbF, 'f'), 0.5));
        for workload in [Workload::Increments, Workload::Zipfian, Workload::Ngrams] {
            assert!(workload.is_counted() && near(part(workload, 'i'), 1.0));
        }
    }

    #[test]
    fn zipfian_increments_have_a_hot_record_and_uniform_ones_do_not() {
        let hottest = |workload| {
            let mut counts = std::collections::BTreeMap::<Vec<u8>, u32>::new();
            first(workload, 1)
                .into_iter()
                .for_each(|(_, key)| *counts.entry(key).or_default() += 1);
            counts.into_values().max().expect("some")
        };
        assert!(hottest(Workload::Zipfian) > 200);
        assert!(hottest(Workload::Increments) < 20);
    }
}
