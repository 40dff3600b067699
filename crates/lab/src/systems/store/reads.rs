//! Reads of a store: of one key, and of a range, which takes one block after another.

use upsweep::layers::engine::{View, ViewId, ViewPoll, Wanted};
use upsweep::layers::structures::hash::ByHash;
use upsweep::layers::structures::table::{ByKey, Lookup, PageRequest, get, page, sort};

use super::{Kind, Store, problem};
use crate::problem::Problem;
use crate::systems::Finished;
use crate::systems::in_place::Access;

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) number: u64,
    pub(super) begun_us: u64,
    /// What is left of it.
    pub(super) access: Access,
    /// Records of a range that were found in other blocks.
    pub(super) counted: u64,
}

impl Store {
    /// Reads until the operation has ended, or waits for a block.
    pub(super) fn read(&mut self, reading: Reading) -> Result<(), Problem> {
        let mut rest = Some(reading);
        while let Some(reading) = rest {
            rest = match self.view(reading.access)? {
                ViewPoll::Ready(view) => self.answer(reading, &view)?,
                ViewPoll::Pending(id) => self.wait_for(id, reading),
            };
        }
        Ok(())
    }

    fn view(&mut self, access: Access) -> Result<ViewPoll, Problem> {
        let key = access.key().to_be_bytes().to_vec();
        let wanted = match access {
            Access::Scan(..) => Wanted::Covering(key),
            _ => Wanted::Point(key),
        };
        self.core.view(self.space, wanted).map_err(problem("a read"))
    }

    fn wait_for(&mut self, id: ViewId, reading: Reading) -> Option<Reading> {
        self.reading.insert(id, reading);
        None
    }

    /// Takes what is wanted from a view; returns the rest of the read, if it has not ended.
    pub(super) fn answer(
        &mut self,
        reading: Reading,
        view: &View,
    ) -> Result<Option<Reading>, Problem> {
        let Reading { number, begun_us, access, counted } = reading;
        self.look_ups.0 += 1;
        self.look_ups.1 += u64::from(view.image.is_none() && !view.waiting.is_empty());
        let found = match access {
            Access::Scan(from, to) => {
                let counted = counted + self.count_in(view, from, to)?;
                let next = view.high.as_deref().map(first_key).filter(|next| *next < to);
                if let Some(next) = next {
                    let access = Access::Scan(next, to);
                    return Ok(Some(Reading { access, counted, ..reading }));
                }
                Some(counted)
            }
            _ => self.found(view, access.key())?,
        };
        self.finished.push(Finished { number, begun_us, found });
        Ok(None)
    }

    /// The value of a key in a view.
    fn found(&self, view: &View, key: u64) -> Result<Option<u64>, Problem> {
        let mut updates = view.updates();
        updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
        let body = view.image.as_ref().map(|image| image.body());
        let (key, modifiers) = (key.to_be_bytes(), &self.modifiers);
        let found = match self.plan.kind {
            Kind::Table => get::<ByKey>(body, &updates, modifiers, &key, None),
            Kind::HashTable => get::<ByHash>(body, &updates, modifiers, &key, None),
        };
        match found.map_err(Problem::Simulation)? {
            Lookup::Value { bytes, .. } => {
                let word = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
                word.map(Some).ok_or_else(|| Problem::Simulation("a short value".into()))
            }
            Lookup::Absent => Ok(None),
            Lookup::NeedLarge { .. } => Err(Problem::Simulation("a large value".into())),
        }
    }

    /// Records of a view from one key to below another.
    fn count_in(&self, view: &View, from: u64, to: u64) -> Result<u64, Problem> {
        let body = view.image.as_ref().map(|image| image.body());
        let mut updates = view.updates();
        sort::<ByKey>(&mut updates);
        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
        let request = PageRequest {
            from: &from,
            to: Some(&to),
            reverse: false,
            records_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        let page = page::<ByKey>(body, &updates, &self.modifiers, &request);
        let records = page.map_err(Problem::Simulation)?.records;
        let is_there = |lookup: &Lookup<'_>| !matches!(lookup, Lookup::Absent);
        Ok(records.iter().filter(|record| is_there(&record.value)).count() as u64)
    }
}

/// The first key that is not below the beginning of a block.
fn first_key(low: &[u8]) -> u64 {
    let mut key = [0; 8];
    let length = low.len().min(key.len());
    key[..length].copy_from_slice(&low[..length]);
    u64::from_be_bytes(key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use upsweep_sim::random::Random;

    use super::super::super::pages::Records;
    use super::super::super::plan::{Memory, Plan};
    use super::super::super::{System, banks};
    use super::*;

    #[test]
    fn ranges_are_found_and_removed_before_and_after_a_sweep() {
        let plan = Plan {
            log_bytes: 64 << 20,
            memory: Memory::Whole(16 << 20),
            block_bytes: Some(4096),
            ..Plan::TABLE
        };
        let records = Records { count: 5000, stride: 100 };
        let disks = banks::drives("dtla307030", 2, None, 1).expect("drives");
        let mut store = Store::create(plan, records, disks).expect("a store");
        let mut oracle: BTreeSet<u64> = (0..records.count).map(|one| one * 100).collect();
        let mut random = Random::new(1, "ranges");
        for number in 0..600 {
            let (from, length) = (random.below(500_000), random.below(60_000));
            let (access, expected) = match random.below(6) {
                0 => {
                    oracle.retain(|key| !(from..from + length / 10).contains(key));
                    (Access::RemoveRange(from, from + length / 10), None)
                }
                1 => {
                    let range = oracle.range(from..from + length);
                    (Access::Scan(from, from + length), Some(range.count() as u64))
                }
                2 => {
                    oracle.remove(&(from / 100 * 100));
                    (Access::Remove(from / 100 * 100), None)
                }
                _ => {
                    oracle.insert(from);
                    (Access::Put(from, 1), None)
                }
            };
            store.submit(number, access);
            let mut finished = Vec::new();
            while finished.is_empty() {
                let us = store.next_event_us().expect("something is under way");
                store.advance_to(us, &mut finished).expect("it works");
            }
            assert_eq!(finished[0].found, expected, "{number}: {access:?}");
            if number % 200 == 150 {
                store.sweep().expect("it works");
            }
        }
    }
}
