//! The engine of the product on simulated drives: a system under the loads of the experiments.
//!
//! What runs is the core, with the configuration that production computes. It gets completions and
//! finished jobs in the order of time, and is pumped after each, as in production. A change has
//! ended when it is durable; one that finds no room waits until there is some.

use std::collections::{BTreeMap, VecDeque};

use upsweep::SpaceId;
use upsweep::layers::device::{Completion, Profile, Simulated};
use upsweep::layers::engine::registry::{DELETE, ModifierId, Modifiers, PUT};
use upsweep::layers::engine::{
    self, Accept, Access as OpenFor, Actions, Config, Core, Job, JobOutput, LoggedUpdate, ScanId,
    ViewId,
};
use upsweep::layers::log::{Seq, Urgency};
use upsweep::layers::structures;
use upsweep::{Error, ValueKind};

use super::compressed::Compressed;
use super::in_place::{ANY_VALUE, Access};
use super::pages::Records;
use super::plan::{Kind, Plan, config};
use super::{Finished, System, Traffic};
use crate::problem::Problem;

mod bulk;
mod counts;
mod reads;
mod scans;
mod steady;

use reads::Reading;
use scans::Scanning;
pub(crate) use upsweep::layers::structures::array::CellKind;

/// Bytes of a key.
const KEY_BYTES: u64 = 8;
/// How many bytes of blocks a worker applies updates to in a microsecond.
const JOB_BYTES_PER_US: u64 = 200;
/// How far the time moves when nothing is under way, in microseconds.
const IDLE_STEP_US: u64 = 1_000;
/// Steps without anything under way after which nothing will happen any more.
const IDLE_STEPS_MAX: u64 = 1_000_000;

/// Changes that are made at a time to fill the queues, and in a second.
const FILL_CHANGES: usize = 1000;
const FILL_PER_SECOND: u64 = 20_000;

/// An open after a crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// Updates that wait for their blocks again.
    pub(crate) waiting: u64,
    /// Records of the log that were read again.
    pub(crate) replayed: u64,
    /// Time of the devices.
    pub(crate) open_us: u64,
}

/// A store with one table.
pub(crate) struct Store {
    core: Core,
    space: SpaceId,
    modifiers: Modifiers,
    plan: Plan,
    devices: Box<dyn Simulated>,
    traffic: Traffic,
    jobs: VecDeque<Job>,
    /// Jobs under way, and when they end.
    working: Vec<(u64, JobOutput)>,
    processor_free_us: u64,
    /// Operations that wait for the processor or are on it, and until when.
    arriving: VecDeque<(u64, u64, Access)>,
    /// Changes that wait for room: the number, since when, and which.
    refused: VecDeque<(u64, u64, Access)>,
    /// Changes that are not durable yet, in the order of their sequences.
    logged: VecDeque<(Seq, u64, u64)>,
    /// Reads that wait for their blocks.
    reading: BTreeMap<ViewId, Reading>,
    /// Scans that wait for a block, and for what they have requested.
    viewing: BTreeMap<ViewId, Scanning>,
    awaiting: BTreeMap<ScanId, Scanning>,
    /// Scans whose callers process a block, and until when.
    processing: Vec<(u64, Scanning)>,
    finished: Vec<Finished>,
    /// Look-ups, and those that updates which wait answered alone.
    look_ups: (u64, u64),
}

/// A value that begins with a word, and goes on as [`ANY_VALUE`].
fn fill(value: &mut [u8], word: u64) {
    for (place, bytes) in value.chunks_mut(size_of::<u64>()).enumerate() {
        let word = if place == 0 { word } else { ANY_VALUE };
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// Changes that wait for their blocks.
fn waiting(core: &Core) -> u64 {
    core.waiting_entries() + core.spilled_entries()
}

fn problem(what: &str) -> impl Fn(Error) -> Problem + '_ {
    move |error| Problem::Simulation(format!("{what}: {error}"))
}

impl Store {
    /// A store on a bank at rest, with these records, which are loaded in bulk.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the store cannot be made, for example with too little memory.
    pub(crate) fn create(
        plan: Plan,
        records: Records,
        devices: Box<dyn Simulated>,
    ) -> Result<Self, Problem> {
        Self::create_with(plan, records, devices, None)
    }

    /// The same on drives that all have this profile, if it is known.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub(crate) fn create_with(
        plan: Plan,
        records: Records,
        devices: Box<dyn Simulated>,
        profile: Option<&Profile>,
    ) -> Result<Self, Problem> {
        let config = config(&plan, records, &*devices, profile);
        let mut store = Self::empty(plan, config, devices)?;
        store.load(records)?;
        Ok(store)
    }

    /// A store without a structure.
    fn empty(plan: Plan, config: Config, devices: Box<dyn Simulated>) -> Result<Self, Problem> {
        let mut devices: Box<dyn Simulated> = Box::new(Compressed::new(devices));
        engine::create(&mut *devices, &config).map_err(problem("creating a store"))?;
        let registry = structures::registry();
        let modifiers = registry.builtins.clone();
        let core = engine::open(&mut *devices, config, &registry, OpenFor::ReadWrite);
        Ok(Self {
            core: core.map_err(problem("opening a store"))?,
            space: SpaceId::NONE,
            modifiers,
            plan,
            processor_free_us: devices.now_us(),
            devices,
            traffic: Traffic::default(),
            jobs: VecDeque::new(),
            working: Vec::new(),
            arriving: VecDeque::new(),
            refused: VecDeque::new(),
            logged: VecDeque::new(),
            reading: BTreeMap::new(),
            viewing: BTreeMap::new(),
            awaiting: BTreeMap::new(),
            processing: Vec::new(),
            finished: Vec::new(),
            look_ups: (0, 0),
        })
    }

    /// Submits changes at a steady rate, whether or not earlier ones have ended, and moves to the
    /// time of the last one.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn feed(
        &mut self,
        per_second: u64,
        changes: impl Iterator<Item = Access>,
    ) -> Result<(), Problem> {
        let (from_us, mut finished) = (self.now_us(), Vec::new());
        for (number, access) in (0..).zip(changes) {
            let due_us = from_us + number * 1_000_000 / per_second;
            while let Some(us) = self.next_event_us().filter(|us| *us < due_us) {
                self.advance_to(us, &mut finished)?;
            }
            self.advance_to(due_us, &mut finished)?;
            finished.clear();
            self.submit(number, access);
        }
        Ok(())
    }

    /// Makes changes until those that wait take so much of their memory, in per cent, and all
    /// are durable.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn fill_queues(
        &mut self,
        percent: u32,
        mut next: impl FnMut() -> Access,
    ) -> Result<(), Problem> {
        while self.core.queue_fill_percent() < percent {
            let changes = std::iter::repeat_with(&mut next).take(FILL_CHANGES);
            self.feed(FILL_PER_SECOND, changes)?;
        }
        self.settle()
    }

    /// Moves to when all operations so far have ended; nobody is told.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn settle(&mut self) -> Result<(), Problem> {
        let is_idle = |store: &Self| {
            store.arriving.is_empty()
                && store.refused.is_empty()
                && store.logged.is_empty()
                && store.reading.is_empty()
                && store.viewing.is_empty()
                && store.awaiting.is_empty()
                && store.processing.is_empty()
        };
        while !is_idle(self) {
            self.step()?;
        }
        self.finished.clear();
        Ok(())
    }

    /// Sweeps until no update waits for its block, and moves to then.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn sweep(&mut self) -> Result<(), Problem> {
        self.settle()?;
        self.core.request_sweep();
        self.run_until("no update waits", |core| !core.is_active() && waiting(core) == 0)
    }

    /// Moves on by so much time without operations, so that what is under way ends.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn rest(&mut self, us: u64) -> Result<(), Problem> {
        let until_us = self.now_us() + us;
        while self.now_us() < until_us {
            let next_us = self.next_event_us().unwrap_or(until_us).min(until_us);
            self.advance_to(next_us, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Asks for a checkpoint, which is made beside whatever comes.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.core.request_checkpoint();
    }

    /// Look-ups so far, and how many of them updates that wait answered alone.
    pub(crate) fn look_ups(&self) -> (u64, u64) {
        self.look_ups
    }

    /// Bytes that are lost at the boundaries of devices.
    pub(crate) fn remainder_bytes(&self) -> u64 {
        self.core.space_map().remainder_bytes()
    }

    /// Requests of a scan, for people.
    pub(crate) fn scan_requests(&self) -> String {
        let config = self.core.config();
        let (alone, beside) = (config.scan_requests_in_flight, config.scan_requests_beside_queries);
        let kb = config.scan_request_bytes >> 10;
        format!("{alone} of {kb} KB in flight, {beside} while others read")
    }

    /// Stops the process without warning, and opens the store again.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if it does not open.
    pub(crate) fn restart(mut self) -> Result<Restart, Problem> {
        let durable = self.core.durable();
        let replayed = durable.get().saturating_sub(self.core.replay_from().get());
        let config = self.core.config().clone();
        drop(self.core);
        self.devices.forget_requests();
        let from_us = self.devices.now_us();
        let registry = structures::registry();
        let core = engine::open(&mut *self.devices, config, &registry, OpenFor::ReadWrite);
        let core = core.map_err(problem("opening a store again"))?;
        if core.durable() < durable {
            return Err(Problem::Simulation("a durable change was lost".into()));
        }
        let open_us = self.devices.now_us() - from_us;
        let waiting = waiting(&core);
        Ok(Restart { waiting, replayed, open_us })
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Core) -> bool) -> Result<(), Problem> {
        for _ in 0..IDLE_STEPS_MAX {
            if done(&self.core) {
                return Ok(());
            }
            self.step()?;
        }
        Err(Problem::Simulation(format!("waiting indefinitely until {what}")))
    }

    /// Moves to the next event, or a little if there is none.
    fn step(&mut self) -> Result<(), Problem> {
        self.pump()?;
        let next = self.next_event_us().unwrap_or(self.now_us() + IDLE_STEP_US);
        let mut finished = Vec::new();
        self.advance_to(next, &mut finished)
    }

    /// Pumps the core, also for what finds room then.
    fn pump(&mut self) -> Result<(), Problem> {
        while self.pump_once()? {}
        Ok(())
    }

    /// Pumps the core and carries out what it asks for; returns whether it then took something that
    /// had found no room before, or a scan went on to another block.
    fn pump_once(&mut self) -> Result<bool, Problem> {
        let now_us = self.now_us();
        let mut actions = Actions::default();
        self.core.pump(now_us, &mut actions);
        for request in actions.requests {
            self.traffic.add(&request.operation);
            self.devices.submit(request);
        }
        self.jobs.extend(actions.jobs);
        while self.working.len() < self.plan.workers
            && let Some(job) = self.jobs.pop_front()
        {
            let took_us = 1 + job.bytes() as u64 / JOB_BYTES_PER_US;
            self.working.push((now_us + took_us, job.run(|| {})));
        }
        let mut goes_on = false;
        for (id, view) in actions.views {
            let view = view.map_err(problem("a read"))?;
            match self.reading.remove(&id) {
                Some(reading) => self.answer(reading, &view)?,
                None => goes_on |= self.scan_with(id, &view)?,
            }
        }
        for id in actions.scans {
            goes_on |= self.scan_with_arrived(id)?;
        }
        let durable = self.core.durable();
        while self.logged.front().is_some_and(|(seq, ..)| *seq <= durable) {
            let Some((_, number, begun_us)) = self.logged.pop_front() else { break };
            self.finished.push(Finished { number, begun_us, found: None });
        }
        let is_taken = actions.room && self.retry()?;
        Ok(goes_on || is_taken)
    }

    /// Offers again what found no room, in the order in which it came; returns whether some of it
    /// was taken.
    fn retry(&mut self) -> Result<bool, Problem> {
        let before = self.refused.len();
        while let Some((begun_us, number, access)) = self.refused.pop_front() {
            if !self.offer(begun_us, number, access)? {
                self.refused.push_front((begun_us, number, access));
                break;
            }
        }
        Ok(self.refused.len() < before)
    }

    /// Gives an operation to the engine; returns whether it took it.
    fn offer(&mut self, begun_us: u64, number: u64, access: Access) -> Result<bool, Problem> {
        let accepted = match access {
            Access::Put(key, word) => {
                let mut operand = vec![0; 1 + (self.plan.record_bytes - KEY_BYTES) as usize];
                operand[0] = ValueKind::Bytes as u8;
                fill(&mut operand[1..], word);
                self.update(PUT, key, &operand)?
            }
            Access::Remove(key) => self.update(DELETE, key, &[])?,
            Access::Count(first, cells) => self.count_cells(first, cells)?,
            Access::RemoveRange(from, to) => {
                let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                let removed = self.core.remove_range(self.space, &from, Some(&to[..]));
                Some(removed.map_err(problem("removing a range"))?)
            }
            Access::Get(key) => {
                self.read(Reading { number, begun_us, key })?;
                return Ok(true);
            }
            Access::Scan(from, to) => {
                self.begin_scan(number, begun_us, (from, to))?;
                return Ok(true);
            }
        };
        let Some(seq) = accepted else { return Ok(false) };
        self.logged.push_back((seq, number, begun_us));
        Ok(true)
    }

    /// Makes an update; `None` if there is no room.
    fn update(
        &mut self,
        modifier: ModifierId,
        key: u64,
        operand: &[u8],
    ) -> Result<Option<Seq>, Problem> {
        let update = LoggedUpdate { space: self.space, modifier, key: &key.to_be_bytes(), operand };
        match self.core.modify(&[update], Urgency::Now, self.devices.now_us()) {
            Ok(Accept::Accepted(seq)) => Ok(Some(seq)),
            Ok(Accept::Wait) => Ok(None),
            Err(error) => Err(problem("an update")(error)),
        }
    }
}

impl System for Store {
    type Operation = Access;

    fn now_us(&self) -> u64 {
        self.devices.now_us()
    }

    fn submit(&mut self, number: u64, access: Access) {
        self.processor_free_us = self.processor_free_us.max(self.now_us()) + self.plan.processor_us;
        self.arriving.push_back((self.processor_free_us, number, access));
    }

    fn next_event_us(&self) -> Option<u64> {
        let arrival = self.arriving.front().map(|(us, ..)| *us);
        let job = self.working.iter().map(|(us, _)| *us).min();
        let processed = self.processing.iter().map(|(us, _)| *us).min();
        // What is due at once happens a microsecond later.
        let deadline = self.core.deadline_us().map(|us| us.max(self.now_us() + 1));
        let of_devices = self.devices.next_event_us();
        [arrival, job, processed, deadline, of_devices].into_iter().flatten().min()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.devices.advance_to(us);
        let mut arrived: Vec<Completion> = Vec::new();
        self.devices.reap(&mut arrived);
        for completion in arrived {
            self.core.complete(completion);
            self.pump()?;
        }
        while let Some(done) = self.working.iter().position(|(due_us, _)| *due_us <= us) {
            let (_, output) = self.working.swap_remove(done);
            self.core.job_done(output);
            self.pump()?;
        }
        if self.core.deadline_us().is_some_and(|deadline_us| deadline_us <= us) {
            self.pump()?;
        }
        while let Some(done) = self.processing.iter().position(|(due_us, _)| *due_us <= us) {
            let (_, scanning) = self.processing.swap_remove(done);
            self.scan_on(scanning)?;
            self.pump()?;
        }
        while self.arriving.front().is_some_and(|(due_us, ..)| *due_us <= us) {
            let Some((_, number, access)) = self.arriving.pop_front() else { break };
            let begun_us = self.now_us();
            // First come, first served: nobody passes those that wait for room.
            let reads = matches!(access, Access::Get(_) | Access::Scan(..));
            let waits = !self.refused.is_empty() && !reads;
            if waits || !self.offer(begun_us, number, access)? {
                self.refused.push_back((begun_us, number, access));
            }
            self.pump()?;
        }
        finished.append(&mut self.finished);
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::log::LogMode;
    use upsweep_sim::random::Random;

    use super::super::banks;
    use super::super::load::Load;
    use super::super::plan::Memory;
    use super::*;

    const RECORDS: Records = Records { count: 20_000, stride: 1000 };

    fn store(kind: Kind, memory: Memory, block_bytes: Option<u32>) -> Store {
        let plan = Plan {
            kind,
            data_devices: 2,
            log_bytes: 64 << 20,
            memory,
            block_bytes,
            record_bytes: 64,
            processor_us: 5,
            ..Plan::TABLE
        };
        let disks = banks::drives("dtla307030", 3, None, 1).expect("drives");
        Store::create(plan, RECORDS, disks).expect("a store")
    }

    /// Performs operations one after another, and returns what the look-ups found.
    fn perform(store: &mut Store, operations: &[Access]) -> Vec<Option<u64>> {
        let mut found = Vec::new();
        for (number, access) in (0..).zip(operations) {
            store.submit(number, *access);
            let mut finished = Vec::new();
            while finished.is_empty() {
                let us = store.next_event_us().expect("something is under way");
                store.advance_to(us, &mut finished).expect("it works");
            }
            assert_eq!((finished.len(), finished[0].number), (1, number));
            found.push(finished[0].found);
        }
        found
    }

    fn look_ups_find_what_was_put(kind: Kind) {
        let mut store = store(kind, Memory::Whole(16 << 20), None);
        let mut random = Random::new(1, "store");
        let mut oracle = BTreeMap::new();
        let mut expected = Vec::new();
        let operations: Vec<Access> = (0..2000)
            .map(|_| {
                // A record that was loaded, or a key between two.
                let key = random.below(RECORDS.count) * RECORDS.stride + random.below(2);
                if random.percent(50) {
                    let word = random.word();
                    oracle.insert(key, word);
                    expected.push(None);
                    return Access::Put(key, word);
                }
                let loaded = key.is_multiple_of(RECORDS.stride).then_some(0);
                expected.push(oracle.get(&key).copied().or(loaded));
                Access::Get(key)
            })
            .collect();
        assert_eq!(perform(&mut store, &operations), expected);
    }

    #[test]
    fn look_ups_in_a_table_find_what_was_put() {
        look_ups_find_what_was_put(Kind::Table);
    }

    #[test]
    fn look_ups_in_a_hash_table_find_what_was_put() {
        look_ups_find_what_was_put(Kind::HashTable);
    }

    #[test]
    fn queues_have_the_memory_that_is_meant_for_them_whatever_the_size_of_blocks() {
        for block_bytes in [4096, 64 << 10, 512 << 10] {
            let store = store(Kind::Table, Memory::Queues(8 << 20), Some(block_bytes));
            let limit_mb = store.core.queue_limit_bytes() as f64 / f64::from(1 << 20);
            assert!((7.9..8.3).contains(&limit_mb), "{block_bytes}: {limit_mb}");
            let blocks = store.core.directory_size().0 as u64;
            let expected = store.plan.blocks(RECORDS, block_bytes);
            assert!(blocks.abs_diff(expected) <= 2 + expected / 10, "{blocks}, {expected}");
        }
    }

    #[test]
    fn what_fills_the_queues_waits_while_nothing_is_swept() {
        let mut store = store(Kind::Table, Memory::Whole(16 << 20), None);
        store.plan.sweeps_when_idle = false;
        store = Store::create(store.plan, RECORDS, store.devices).expect("another store");
        let mut random = Random::new(1, "changes");
        let next = || Access::Put(random.below(RECORDS.count) * RECORDS.stride, 1);
        store.fill_queues(20, next).expect("it works");
        assert!((20..25).contains(&store.core.queue_fill_percent()));
        let (before, from_us) = (waiting(&store.core), store.now_us());
        assert!(before > 1000 && store.logged.is_empty(), "{before}");
        perform(&mut store, &[Access::Get(1); 20]);
        assert!(store.now_us() > from_us && waiting(&store.core) == before);
    }

    #[test]
    fn a_waiting_change_takes_the_memory_of_its_record() {
        let mut store = store(Kind::Table, Memory::Whole(16 << 20), None);
        let mut random = Random::new(1, "changes");
        let changes = std::iter::repeat_with(|| Access::Put(random.below(RECORDS.count) * 1000, 1));
        store.feed(100_000, changes.take(2000)).expect("it works");
        let each = store.core.queue_bytes() as f64 / store.core.waiting_entries() as f64;
        assert!(each > 60.0, "{each}");
    }

    #[test]
    fn an_update_is_durable_after_a_turn_of_the_disk_or_two() {
        let mut store = store(Kind::Table, Memory::Whole(16 << 20), None);
        let from_us = store.now_us();
        perform(&mut store, &[Access::Put(1, 1), Access::Put(2, 2), Access::Put(3, 3)]);
        let each_ms = (store.now_us() - from_us) as f64 / 3e3;
        assert!((4.0..20.0).contains(&each_ms), "{each_ms}");
    }

    #[test]
    fn a_log_that_predicts_loses_no_turns_on_a_drive_that_takes_one_command_at_a_time() {
        let mut store = store(Kind::Table, Memory::Whole(16 << 20), None);
        store.plan.log_mode = LogMode::Predict;
        store.plan.log_bytes = 1 << 30;
        store = Store::create(store.plan, RECORDS, store.devices).expect("another store");
        store.rest(2_000_000).expect("it rests");
        let mut random = Random::new(1, "changes");
        let load = Load { callers: 16, warm_up: 4000, measured: 4000 };
        let next = || Access::Put(random.below(RECORDS.count) * RECORDS.stride, 1);
        let seen = load.run(&mut store, next).expect("it works");
        assert!(seen.latency_ms < 2.0, "{} ms, where a turn takes 8.3", seen.latency_ms);
    }

    #[test]
    fn what_waits_at_a_crash_is_replayed() {
        let mut store = store(Kind::Table, Memory::Whole(16 << 20), None);
        let changes = (0..3000).map(|number| Access::Put(number * 7919, number));
        store.feed(100_000, changes).expect("it works");
        let restart = store.restart().expect("it opens");
        assert!(restart.waiting > 500 && restart.replayed >= restart.waiting, "{restart:?}");
        assert!(restart.open_us > 100_000, "{restart:?}");
    }
}
