//! Scans of a store, which read ahead as those of production do.

use upsweep::layers::engine::{ScanId, View, ViewId, ViewPoll, Wanted};
use upsweep::layers::runtime::scanning::Scan;
use upsweep::layers::structures::table::{ByKey, Lookup, PageRequest, page, sort};

use super::{Store, problem};
use crate::problem::Problem;
use crate::systems::Finished;

/// A scan that has begun.
pub(super) struct Scanning {
    pub(super) number: u64,
    pub(super) begun_us: u64,
    /// The first key that has not been passed, and the first one beyond.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Records that were found.
    pub(super) counted: u64,
    pub(super) scan: Scan,
}

impl Scanning {
    fn wanted(&self) -> Wanted {
        Wanted::Covering(self.from.to_be_bytes().to_vec())
    }
}

impl Store {
    /// Scans records from one key to below another.
    pub(super) fn begin_scan(
        &mut self,
        number: u64,
        begun_us: u64,
        (from, to): (u64, u64),
    ) -> Result<(), Problem> {
        let scan = Scan::new(self.space, false);
        self.scan_on(Scanning { number, begun_us, from, to, counted: 0, scan })
    }

    /// Goes on until the scan has ended, or has to wait.
    pub(super) fn scan_on(&mut self, mut scanning: Scanning) -> Result<(), Problem> {
        loop {
            let wanted = scanning.wanted();
            scanning.scan.take_arrived(&mut self.core);
            if let (false, Some(id)) = (scanning.scan.prepare(&wanted), scanning.scan.id()) {
                scanning.scan.note_wait();
                self.awaiting.insert(id, scanning);
                return Ok(());
            }
            let to = scanning.to.to_be_bytes();
            let polled = scanning.scan.view(&mut self.core, wanted, Some(&to));
            let view = match polled.map_err(problem("a scan"))? {
                ViewPoll::Ready(view) => view,
                ViewPoll::Pending(id) => {
                    self.viewing.insert(id, scanning);
                    return Ok(());
                }
            };
            let rest = self.pass(scanning, &view)?;
            match rest.and_then(|rest| self.process(rest)) {
                Some(rest) => scanning = rest,
                None => return Ok(()),
            }
        }
    }

    /// Takes what is wanted from a view; returns the rest of the scan, if it has not ended.
    fn pass(&mut self, mut scanning: Scanning, view: &View) -> Result<Option<Scanning>, Problem> {
        self.count_look_up(view);
        scanning.scan.note(&scanning.wanted(), view);
        scanning.counted += self.count_in(view, scanning.from, scanning.to)?;
        let next = view.high.as_deref().map(first_key).filter(|next| *next < scanning.to);
        if let Some(next) = next {
            scanning.from = next;
            return Ok(Some(scanning));
        }
        scanning.scan.end(&mut self.core);
        let Scanning { number, begun_us, counted, .. } = scanning;
        self.finished.push(Finished { number, begun_us, found: Some(counted) });
        Ok(None)
    }

    /// The caller of a scan processes a block; returns the scan if that takes no time.
    fn process(&mut self, scanning: Scanning) -> Option<Scanning> {
        if self.plan.scan_block_us == 0 {
            return Some(scanning);
        }
        self.processing.push((self.devices.now_us() + self.plan.scan_block_us, scanning));
        None
    }

    /// Goes on with a scan that gets the view for which it waits; returns whether one did.
    pub(super) fn scan_with(&mut self, id: ViewId, view: &View) -> Result<bool, Problem> {
        let Some(scanning) = self.viewing.remove(&id) else { return Ok(false) };
        let rest = self.pass(scanning, view)?;
        rest.and_then(|rest| self.process(rest)).map_or(Ok(()), |rest| self.scan_on(rest))?;
        Ok(true)
    }

    /// Goes on with a scan for which something has arrived, if it waits for that; returns whether
    /// it did.
    pub(super) fn scan_with_arrived(&mut self, id: ScanId) -> Result<bool, Problem> {
        let Some(mut scanning) = self.awaiting.remove(&id) else { return Ok(false) };
        scanning.scan.take_arrived(&mut self.core);
        if scanning.scan.is_awaiting(&scanning.wanted()) {
            self.awaiting.insert(id, scanning);
            return Ok(false);
        }
        self.scan_on(scanning)?;
        Ok(true)
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

    use super::super::super::in_place::Access;
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

    #[test]
    fn a_scan_lasts_as_long_as_its_caller_processes_blocks_and_finds_the_same() {
        let seconds = |scan_block_us| {
            let plan = Plan { block_bytes: Some(4096), scan_block_us, ..Plan::TABLE };
            let disks = banks::drives("dtla307030", 2, None, 1).expect("drives");
            let records = Records { count: 20_000, stride: 1 };
            let mut store = Store::create(plan, records, disks).expect("a store");
            let (from_us, mut finished) = (store.now_us(), Vec::new());
            store.submit(0, Access::Scan(0, records.count));
            while finished.is_empty() {
                let us = store.next_event_us().expect("something is under way");
                store.advance_to(us, &mut finished).expect("it works");
            }
            assert_eq!(finished[0].found, Some(records.count));
            (store.now_us() - from_us) as f64 / 1e6
        };
        let (reading, processing) = (seconds(0), seconds(50_000));
        // 16 bytes and what goes with them: more than a hundred blocks, of which the last is free.
        assert!(processing > 100.0 * 0.05 && processing > 2.0 * reading, "{processing} {reading}");
    }
}
