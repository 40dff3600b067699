//! The event loop of one history: virtual time, devices, jobs and views around one core.
//!
//! Steps of a turn: one of the possible events, chosen by the seed, happens: a request that the
//! devices have finished is handed over (in any order), a job runs, or time passes. Then the core
//! is pumped and its actions are carried out.
//!
//! Invariants, checked after every turn: waiting updates stay within their memory; the core closes
//! itself only where a fault was injected; nothing rests while a caller waits for room; requests
//! match their classes.

use std::collections::{BTreeMap, BTreeSet};

use upsweep::layers::device::{Completion, Devices, Operation, Request};
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::engine::{Actions, Core, Job, Registry, View, ViewId};
use upsweep::layers::log::Seq;
use upsweep::layers::structures;
use upsweep::{Error, SpaceId};

use crate::bank::Bank;
use crate::callers::Callers;
use crate::classes;
use crate::extents::Extents;
use crate::load::LoadTally;
use crate::loading::Load;
use crate::modifiers::application;
use crate::oracle::{Oracle, Update};
use crate::performers::Performer;
use crate::plan::{Plan, Trouble};
use crate::random::{Digest, Random};
use crate::resting::{self, FullWatch, Refused};
use crate::semantics::{BUILTINS, Op};
use crate::workload::Workload;

/// Virtual time within which everything requested must have happened, in microseconds.
pub const PATIENCE_US: u64 = 3_600_000_000;
/// Turns within which the same must have happened.
pub const PATIENCE_TURNS: u64 = 300_000;

/// The reason why a history failed.
pub type Verdict<T = ()> = Result<T, String>;

/// The purpose of a view.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The value of a key, to be compared with the oracle when the answer arrives.
    Compare(SpaceId, Vec<u8>),
    /// The answer goes to the waiting caller.
    Keep,
}

/// Counters of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Power cuts.
    pub cuts: u64,
    /// Power cuts during recovery.
    pub recovery_cuts: u64,
    /// Opens.
    pub opens: u64,
    /// Values compared with the oracle.
    pub compared: u64,
    /// Offers that had to wait.
    pub waits: u64,
    /// Offers refused because the devices were full.
    pub full: u64,
    /// Offers refused because the directory had outgrown the memory.
    pub memory: u64,
    /// Reads that gave an error because of injected damage.
    pub damaged: u64,
    /// Runs published.
    pub runs: u64,
    /// Spills published.
    pub spills: u64,
    /// Spills that a checkpoint carried.
    pub spills_carried: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Holes punched.
    pub punches: u64,
    /// Opens without the modifiers of the application.
    pub upkeeps: u64,
    /// Blocks that were held then.
    pub held: u64,
    /// Times that holes were allocated.
    pub holes_filled: u64,
    /// Times that a ring of the log was extended.
    pub log_growths: u64,
    /// Batches of the log without records.
    pub dummies: u64,
    /// Log batches put where a head was expected.
    pub predictions: u64,
    /// Updates that the model refused.
    pub refused: u64,
    /// Comparisons with the oracle in the middle of a history.
    pub audits: u64,
    /// Recoveries from hypothetical power cuts.
    pub cuts_audited: u64,
    /// Answers without updates that damage had sent to the quarantine.
    pub set_aside: u64,
    /// Threads that had their records accepted, or refused.
    pub threads: u64,
    /// Times that one of them had to wait for room.
    pub thread_waits: u64,
    /// Changes that waited for room without a thread.
    pub parked: u64,
    /// Views that were answered to callers that had done the read themselves.
    pub caller_reads: u64,
    /// Batches of the log that callers have written themselves.
    pub caller_writes: u64,
    /// Reads after which such a caller had to read again or wait for others.
    pub caller_rereads: u64,
    /// Large values read to the end.
    pub large: u64,
    /// KiB that scans have read ahead.
    pub ahead: u64,
    /// KiB of them that scans have not used.
    pub ahead_unused: u64,
    /// Clones and snapshots made.
    pub clones: u64,
    /// Ranges removed.
    pub ranges: u64,
    /// Bulk loads that were finished.
    pub loads: u64,
    /// Extents reserved.
    pub extents: u64,
    /// Most blocks at a time.
    pub blocks_max: u64,
    /// Turns in which the target size of blocks was above the store's minimum.
    pub turns_of_larger_blocks: u64,
    /// Load histories.
    pub load: LoadTally,
}

impl Tally {
    /// Adds the counters of another history.
    pub fn add(&mut self, other: &Self) {
        let Self { cuts, recovery_cuts, opens, compared, waits, .. } = other;
        self.cuts += cuts;
        self.recovery_cuts += recovery_cuts;
        self.opens += opens;
        self.compared += compared;
        self.waits += waits;
        let Self { full, memory, damaged, set_aside, runs, checkpoints, refused, large, .. } =
            other;
        self.full += full;
        self.memory += memory;
        self.set_aside += set_aside;
        self.damaged += damaged;
        self.runs += runs;
        self.checkpoints += checkpoints;
        self.refused += refused;
        self.large += large;
        self.audits += other.audits;
        self.cuts_audited += other.cuts_audited;
        self.caller_reads += other.caller_reads;
        self.threads += other.threads;
        self.thread_waits += other.thread_waits;
        self.parked += other.parked;
        self.caller_rereads += other.caller_rereads;
        self.caller_writes += other.caller_writes;
        self.ahead += other.ahead;
        self.ahead_unused += other.ahead_unused;
        self.clones += other.clones;
        self.ranges += other.ranges;
        self.loads += other.loads;
        self.extents += other.extents;
        self.log_growths += other.log_growths;
        self.dummies += other.dummies;
        self.predictions += other.predictions;
        self.spills += other.spills;
        self.spills_carried += other.spills_carried;
        self.punches += other.punches;
        self.upkeeps += other.upkeeps;
        self.held += other.held;
        self.holes_filled += other.holes_filled;
        self.blocks_max = self.blocks_max.max(other.blocks_max);
        self.turns_of_larger_blocks += other.turns_of_larger_blocks;
        self.load.add(&other.load);
    }
}

/// One history in progress.
pub struct World {
    /// The plan of the seed.
    pub plan: Plan,
    /// The devices.
    pub bank: Bank,
    /// The engine; `None` while the store is closed.
    pub core: Option<Core>,
    /// Formats and modifiers.
    pub registry: Registry,
    /// The model.
    pub oracle: Oracle,
    /// Decides what happens next.
    pub random: Random,
    /// Decides on power cuts.
    pub cutting: Random,
    /// Decides on audits.
    pub auditing: Random,
    /// Steps for which a log counts as recently extended.
    pub steps_of_growth: u64,
    /// Decides when free space is to be returned.
    pub punching: Random,
    /// Decides when blocks are to be put into key order.
    pub compacting: Random,
    /// Number of published spills at the last check.
    pub spills_seen: u64,
    /// Decides on floods of records.
    pub flooding: Random,
    /// Remaining steps of a flood.
    pub flood_steps: u64,
    /// Draws updates.
    pub workload: Workload,
    /// Numbers of the modifiers in this store.
    pub modifier_ids: BTreeMap<Op, ModifierId>,
    /// Jobs to run, with the earliest time of each.
    pub jobs: Vec<(u64, Job)>,
    /// Completed requests that are not handed over yet.
    pub arrived: Vec<Completion>,
    /// Views that are pending.
    pub asked: BTreeMap<ViewId, Asked>,
    /// Callers that do I/O themselves.
    pub performers: Vec<Performer>,
    /// Decides which callers do so, and the outcome.
    pub performing: Random,
    /// Decides what happens between the steps of scans.
    pub scanning: Random,
    /// Answers with a waiting caller.
    pub answers: BTreeMap<ViewId, Result<View, Error>>,
    /// A record that found no room, and since when it waits.
    pub waiting: Option<(Vec<Update>, Refused)>,
    /// All other callers.
    pub callers: Callers,
    /// How often the core has reported that there may be room.
    pub room_events: u64,
    /// When the store was full.
    pub full: FullWatch,
    /// The bulk load in progress.
    pub loading: Option<Load>,
    /// Large values to be read and compared.
    pub follow_up: Vec<(SpaceId, Vec<u8>)>,
    /// Tables of which a range is being removed or that are taking over loaded blocks, and the
    /// sequence from which on that is complete.
    pub unsettled: Vec<(SpaceId, Seq)>,
    /// Reserved extents.
    pub extents: Extents,
    /// Whether writes currently fail.
    pub failing: bool,
    /// Whether anything on the devices was damaged.
    pub damaged: bool,
    /// Keys of updates that were found in the quarantine because of damage, and whether such an
    /// update removes all keys from its own on. Damage of the quarantine itself may remove them
    /// from there.
    pub set_aside: BTreeSet<(Vec<u8>, bool)>,
    /// Everything that happened.
    pub history: Digest,
    /// Counters.
    pub tally: Tally,
}

/// Formats and modifiers as the product registers them, and the application's.
#[must_use]
pub fn registry() -> Registry {
    let modifiers = application().into_iter().map(|(_, modifier)| modifier).collect();
    Registry { modifiers, ..structures::registry() }
}

impl World {
    /// A world without a store.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            bank: plan.bank(),
            core: None,
            registry: registry(),
            oracle: Oracle::default(),
            random: Random::new(plan.seed, "schedule"),
            cutting: Random::new(plan.seed, "cuts"),
            auditing: Random::new(plan.seed, "audits"),
            steps_of_growth: 0,
            punching: Random::new(plan.seed, "punching"),
            compacting: Random::new(plan.seed, "compactions"),
            flooding: Random::new(plan.seed, "floods"),
            flood_steps: 0,
            spills_seen: 0,
            workload: Workload::new(&plan),
            modifier_ids: BTreeMap::new(),
            jobs: Vec::new(),
            arrived: Vec::new(),
            asked: BTreeMap::new(),
            performers: Vec::new(),
            performing: Random::new(plan.seed, "performers"),
            scanning: Random::new(plan.seed, "scans"),
            answers: BTreeMap::new(),
            waiting: None,
            callers: Callers::new(&plan),
            room_events: 0,
            full: FullWatch::default(),
            loading: None,
            follow_up: Vec::new(),
            unsettled: Vec::new(),
            extents: Extents::new(&plan),
            failing: false,
            damaged: false,
            set_aside: BTreeSet::new(),
            history: Digest::default(),
            tally: Tally::default(),
            plan,
        }
    }

    /// The engine.
    ///
    /// # Panics
    /// While the store is closed.
    pub fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("the store is open")
    }

    /// Reads the numbers that the store assigns to modifiers.
    ///
    /// # Errors
    /// A modifier has none.
    pub fn learn_modifiers(&mut self) -> Verdict {
        let modifiers = self.core().modifiers();
        self.modifier_ids =
            BUILTINS.into_iter().zip(0..).map(|(op, number)| (op, ModifierId(number))).collect();
        for (op, modifier) in application() {
            let id = modifiers.id_of(modifier.name(), modifier.version());
            self.modifier_ids.insert(op, id.ok_or(format!("{op:?} has no number after open"))?);
        }
        Ok(())
    }

    /// One event happens; `false` if none can without further calls.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn turn(&mut self) -> Verdict<bool> {
        self.bank.reap(&mut self.arrived);
        let now = self.bank.now_us();
        let due: Vec<usize> = (0..self.jobs.len()).filter(|&job| self.jobs[job].0 <= now).collect();
        let (arrived, performers) = (self.arrived.len(), self.performers.len());
        let ready = arrived + performers + due.len();
        let moved = if ready > 0 && !self.random.one_in(8) {
            let choice = self.random.index(ready);
            if choice < arrived {
                let completion = self.arrived.swap_remove(choice);
                self.history.add(completion.token.0);
                self.core().complete(completion);
            } else if choice < arrived + performers {
                self.go_on_performing(choice - arrived)?;
            } else {
                let (_, job) = self.jobs.swap_remove(due[choice - arrived - performers]);
                let output = job.run(|| {});
                self.core().job_done(output);
            }
            true
        } else {
            self.pass_time() || ready > 0
        };
        self.settle()?;
        let has_more = !self.performers.is_empty();
        let ready = has_more || !self.jobs.is_empty() || !self.arrived.is_empty();
        Ok(moved || ready || self.next_event_us().is_some())
    }

    /// When the next event happens without further calls, in microseconds.
    fn next_event_us(&mut self) -> Option<u64> {
        let now = self.bank.now_us();
        let job = self.jobs.iter().map(|job| job.0).filter(|&due| due > now).min();
        let deadline = self.core().deadline_us().map(|at| at.max(now + 1));
        [self.bank.next_event_us(), job, deadline].into_iter().flatten().min()
    }

    /// Advances the time to the next event; `false` if there is none.
    fn pass_time(&mut self) -> bool {
        let Some(next) = self.next_event_us() else { return false };
        self.bank.advance_to(next.max(self.bank.now_us() + 1));
        true
    }

    /// Pumps the core and carries out its actions.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn settle(&mut self) -> Verdict {
        let now = self.bank.now_us();
        let mut actions = Actions::default();
        self.core().pump(now, &mut actions);
        self.keep_off_extents();
        self.room_events += u64::from(actions.room);
        for request in &actions.requests {
            classes::check(request, self.plan.config.data_devices)?;
            self.note(request);
        }
        self.write_by_caller(&mut actions.requests);
        actions.requests.into_iter().for_each(|request| self.bank.submit(request));
        for job in actions.jobs {
            let due = now + self.random.below(self.plan.job_us_max + 1);
            self.jobs.push((due, job));
        }
        for (id, answer) in actions.views {
            self.take_answer(id, answer)?;
        }
        let core = self.core.as_ref().expect("the store is open");
        self.callers.answer(core)?;
        self.check_turn()
    }

    /// Takes the answer to a pending view.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn take_answer(&mut self, id: ViewId, answer: Result<View, Error>) -> Verdict {
        match self.asked.remove(&id) {
            Some(Asked::Compare(space, key)) => self.compare_answer(space, key, answer),
            Some(Asked::Keep) => {
                self.answers.insert(id, answer);
                Ok(())
            }
            None => Err(format!("view {} was answered, but not requested", id.0)),
        }
    }

    fn note(&mut self, request: &Request) {
        self.history.add(u64::from(request.device.0));
        self.history.add(request.token.0);
        match &request.operation {
            Operation::Read { offset, buffer } => {
                self.history.add(offset + 1);
                self.history.add(buffer.len() as u64);
            }
            Operation::Write { offset, buffer, .. } => {
                self.history.add(offset + 2);
                self.history.add_bytes(buffer);
            }
            Operation::Flush => self.history.add(3),
            Operation::Discard { offset, bytes } => self.history.add(offset ^ bytes),
            Operation::Allocate { offset, bytes } => {
                self.history.add(offset + 4);
                self.history.add(*bytes);
            }
        }
    }

    fn check_turn(&mut self) -> Verdict {
        let log_damage = self.plan.trouble == Trouble::LogDamage;
        let core = self.core();
        // Large values that a run loads take room from new updates, not from existing ones.
        let limit = core.queue_limit_bytes() + core.values_bytes() + core.queue_overdraft_bytes();
        let used = core.queue_bytes();
        let blocks = core.directory_size().0 as u64;
        let durable = core.durable();
        let are_larger = core.block_bytes() > core.config().block_bytes;
        let closed = core.closed().map(ToString::to_string);
        // The cache has what waiting updates leave of their memory.
        let cache = core.cache_bytes();
        let cache_max = core.config().cache_bytes + core.queue_limit_bytes().saturating_sub(used);
        if cache > cache_max {
            return Err(format!("{cache} bytes in the cache, above the limit of {cache_max}"));
        }
        self.tally.blocks_max = self.tally.blocks_max.max(blocks);
        self.tally.turns_of_larger_blocks += u64::from(are_larger);
        if let Some(closed) = closed.filter(|_| !self.failing) {
            return Err(format!("the store closed itself: {closed}"));
        }
        self.check_trespass()?;
        let (its_time, time) = (self.core().now_us(), self.bank.now_us());
        if its_time > time {
            return Err(format!("for the core it is {its_time} us, while it is {time}"));
        }
        let (ahead, ahead_max) = (self.core().scan_bytes(), self.core().config().scan_bytes_max);
        if ahead > ahead_max {
            return Err(format!("{ahead} bytes of scans, above the limit of {ahead_max}"));
        }
        // Refused updates are in their run and in the quarantine's queue at the same time.
        let refused = self.damaged || self.oracle.refusals.count() > 0;
        if used > if refused { 2 * limit } else { limit } {
            return Err(format!("{used} bytes in queues, above the limit of {limit}"));
        }
        if !log_damage {
            self.oracle.durable(durable);
        }
        self.check_rest()
    }

    /// Checks that the engine has written nowhere where only owners of extents may.
    ///
    /// # Errors
    /// It has.
    pub fn check_trespass(&mut self) -> Verdict {
        self.bank.trespass.take().map_or(Ok(()), Err)
    }

    /// Checks that nothing rests while a caller waits for room.
    fn check_rest(&mut self) -> Verdict {
        let now = self.bank.now_us();
        let Some(core) = &self.core else { return Ok(()) };
        self.full.look(core, now);
        let is_written = self.performers.iter().any(Performer::is_write);
        let in_flight = self.bank.next_event_us().is_some() || is_written;
        if in_flight || !self.arrived.is_empty() || !self.jobs.is_empty() {
            return Ok(());
        }
        let refused = self.waiting.iter().map(|(_, refused)| *refused);
        let fault = refused
            .chain(self.callers.refused())
            .find_map(|refused| resting::fault(core, self.room_events, refused, now, &self.full));
        match fault {
            Some(fault) => Err(format!("{fault}: {}", self.dump())),
            None => Ok(()),
        }
    }

    /// Turns until `done`.
    ///
    /// # Errors
    /// A description of the problem, or that `done` is not reached within [`PATIENCE_US`].
    pub fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Verdict {
        let until = self.bank.now_us().saturating_add(PATIENCE_US);
        for _ in 0..PATIENCE_TURNS {
            if done(self) {
                return Ok(());
            }
            if !self.turn()? && !done(self) {
                return Err(format!("stuck, {what}: {}", self.dump()));
            }
            if self.bank.now_us() > until {
                return Err(format!("too slow, {what}: {}", self.dump()));
            }
        }
        Err(format!("too many turns, {what}: {}", self.dump()))
    }

    /// The state of the engine, for the report of a failure.
    pub fn dump(&mut self) -> String {
        let (jobs, arrived) = (self.jobs.len(), self.arrived.len());
        let (now, in_flight) = (self.bank.now_us(), self.bank.devices.in_flight());
        let Some(core) = &self.core else { return "closed".to_owned() };
        format!(
            "now {now}, deadline {:?}, {in_flight} requests in flight, {jobs} jobs, {arrived} \
             arrived, durable {} of {}, accepted {}, swept {}, cycle {:?}, queues {} of {} bytes \
             ({} entries), log {}%, active {}, full {}, free {} of {} bytes, and {} in holes",
            core.deadline_us(),
            core.durable(),
            core.last(),
            core.accepted(),
            core.sweep_frontier(),
            core.sweep_progress(),
            core.queue_bytes(),
            core.queue_limit_bytes(),
            core.waiting_entries(),
            core.log_fill_percent(),
            core.is_active(),
            core.is_full(),
            core.space_map().free_bytes(),
            core.space_map().capacity_bytes(),
            core.space_map().hole_bytes(),
        )
    }
}
