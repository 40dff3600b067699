//! Load histories: how the engine keeps up, in virtual time on devices with a modelled speed.
//!
//! Steps: a store is filled and swept; callers offer updates at full speed for some cycles of the
//! sweep; then they offer a part of what was accepted, for some more cycles. Then waits, rests and
//! rates are judged: see [`judge`]. No faults and no power cuts. Contents are not compared; the
//! other histories do that.
//!
//! | module | content |
//! |---|---|
//! | [`plan`] | the meaning of a seed: store, devices, callers; the time of a run |
//! | [`machine`] | the engine, its devices and its workers, event by event |
//! | [`callers`] | which callers offer what, when, and which wait |
//! | [`judge`] | the measurements, and their faults |

pub mod callers;
pub mod judge;
pub mod machine;
pub mod plan;

use std::collections::BTreeMap;

use callers::{Callers, PATIENCE_US, Source};
use judge::{Journal, OPEN_PERCENT, Oracle, Scale, Stretch};
use machine::Machine;
use plan::LoadPlan;

use crate::world::Verdict;

/// Cycles for which rates are measured, after a first one.
const CYCLES: u64 = 3;
/// Least number of records of a phase.
const RECORDS_MIN: u64 = 200;
/// Least length of a phase, in times of the longest permitted wait.
const WAITS_MIN: u64 = 10;
/// How often a phase fills the log at least, in per cent of its capacity: the holders of the log
/// change that often.
const LOG_PERCENT_MIN: u64 = 200;
/// Approximate limit of the real time of a phase, in nanoseconds.
const WORK_NS_MAX: u64 = 70_000_000;

/// Counters of load histories.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTally {
    /// Records accepted.
    pub records: u64,
    /// Records that had to wait for room.
    pub waits: u64,
    /// Those that found memory full.
    pub memory_waits: u64,
    /// The longest wait, in microseconds.
    pub wait_us_max: u64,
    /// The longest wait, in times of a run.
    pub wait_runs_max: u64,
    /// The longest time without acceptance while a caller waits, in times of a run.
    pub standstill_runs_max: u64,
    /// Cycles of the sweep.
    pub cycles: u64,
    /// Spills.
    pub spills: u64,
    /// Histories with too few cycles to measure a rate over whole ones.
    pub without_cycles: u64,
    /// The least acceptance under a load below the capacity, in per cent.
    pub open_percent_min: Option<u64>,
    /// The acceptance in the worst tenth of a cycle, in per cent of the median.
    pub window_percent_min: Option<u64>,
    /// Histories in which that is less than half.
    pub uneven: u64,
    /// Histories that failed each of the oracles: rest, wake, wait, standstill, late, load.
    pub failed: [u64; 6],
}

impl LoadTally {
    /// Adds the counters of another history.
    pub fn add(&mut self, other: &Self) {
        let Self { records, waits, cycles, spills, without_cycles, uneven, .. } = other;
        self.records += records;
        self.waits += waits;
        self.memory_waits += other.memory_waits;
        self.cycles += cycles;
        self.spills += spills;
        self.without_cycles += without_cycles;
        self.uneven += uneven;
        self.wait_us_max = self.wait_us_max.max(other.wait_us_max);
        self.wait_runs_max = self.wait_runs_max.max(other.wait_runs_max);
        self.standstill_runs_max = self.standstill_runs_max.max(other.standstill_runs_max);
        let least = |left: Option<u64>, right| left.into_iter().chain(right).min();
        self.open_percent_min = least(self.open_percent_min, other.open_percent_min);
        self.window_percent_min = least(self.window_percent_min, other.window_percent_min);
        self.failed.iter_mut().zip(other.failed).for_each(|(sum, failed)| *sum += failed);
    }

    fn note(&mut self, journal: &Journal, run_us: u64) {
        self.records += journal.accepted_us.len() as u64;
        self.waits += journal.waits;
        self.memory_waits += journal.memory_waits;
        self.wait_us_max = self.wait_us_max.max(journal.wait.us);
        self.wait_runs_max = self.wait_runs_max.max(journal.wait.us / run_us.max(1));
        let standstill = journal.standstill.us / run_us.max(1);
        self.standstill_runs_max = self.standstill_runs_max.max(standstill);
    }
}

/// The outcome of one load history.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// The store, its callers, and the state of the engine at the end.
    pub about: String,
    /// The reason, if it failed.
    pub failure: Option<String>,
    /// Hash of everything that happened.
    pub history: u64,
    /// Counters.
    pub tally: LoadTally,
}

/// Runs the load history of a seed.
#[must_use]
pub fn run(seed: u64) -> LoadOutcome {
    let plan = LoadPlan::new(seed);
    let mut load = Load { outcome: LoadOutcome::default(), faults: BTreeMap::new(), plan };
    let verdict = load.live();
    let mut reasons: Vec<String> = Vec::new();
    for (oracle, fault) in &load.faults {
        load.outcome.tally.failed[*oracle as usize] += 1;
        reasons.push(format!("{oracle:?}: {fault}"));
    }
    reasons.extend(verdict.err());
    if !reasons.is_empty() {
        let reasons = reasons.join("; ");
        load.outcome.failure = Some(format!("Load: {reasons}; {}", load.plan.describe()));
    }
    load.outcome
}

struct Load {
    plan: LoadPlan,
    outcome: LoadOutcome,
    faults: BTreeMap<Oracle, String>,
}

impl Load {
    fn live(&mut self) -> Verdict {
        let mut machine = Machine::create(&self.plan)?;
        let mut callers = Callers::new(&self.plan);
        let verdict = self.offer_loads(&mut machine, &mut callers);
        self.outcome.tally.spills = machine.core.metrics().spills_total.get();
        self.outcome.history = machine.history.0;
        self.outcome.about = format!("{}; {}", self.plan.describe(), machine.dump());
        verdict
    }

    fn offer_loads(&mut self, machine: &mut Machine, callers: &mut Callers) -> Verdict {
        let times = self.plan.times();
        let (journal, closed) = self.phase(machine, callers, Source::Closed, 0)?;
        let scale = Scale { times, closed, callers: self.plan.callers as u64 };
        scale.judge("closed loop", &journal, &mut self.faults);
        let tally = &mut self.outcome.tally;
        tally.window_percent_min = judge::worst_window_percent(&journal.accepted_us, closed);
        tally.uneven = u64::from(tally.window_percent_min.is_some_and(|percent| percent < 50));
        tally.without_cycles = u64::from(closed.cycles == 0);
        let source = Source::Open {
            start_us: machine.now_us(),
            records: closed.records * OPEN_PERCENT,
            span_us: (closed.to_us - closed.from_us) * 100,
        };
        let (journal, _) = self.phase(machine, callers, source, WAITS_MIN * scale.most_us(1))?;
        scale.judge("open loop", &journal, &mut self.faults);
        if closed.cycles == 0 || !self.plan.preloaded {
            // The measurement may be the speed at which memory fills, or the capacity of a smaller
            // table.
            return Ok(());
        }
        let due_us = |number| source.due_us(number);
        let percent = scale.judge_open(
            &journal,
            due_us,
            (machine.now_us(), &machine.dump()),
            &mut self.faults,
        );
        self.outcome.tally.open_percent_min = Some(percent);
        Ok(())
    }

    /// Offers updates for some cycles, and for `least_us`; returns what happened, and the part of
    /// it to measure: whole cycles once half the log has been filled, or else everything after the
    /// first quarter.
    fn phase(
        &mut self,
        machine: &mut Machine,
        callers: &mut Callers,
        source: Source,
        least_us: u64,
    ) -> Verdict<(Journal, Stretch)> {
        let mut journal = Journal::default();
        let (start_us, start_ns) = (machine.now_us(), machine.work_ns);
        let mut cycles = machine.core.metrics().sweep_cycles_total.get();
        let (mut ends_us, mut all_cycles) = (Vec::new(), 0);
        let start_bytes = machine.core.log().metrics().log_written_bytes_total.get();
        let logged_percent = |machine: &Machine| {
            let log = machine.core.log();
            (log.metrics().log_written_bytes_total.get() - start_bytes) * 100 / log.capacity_bytes()
        };
        let is_over = |machine: &Machine, journal: &Journal, ends: usize| {
            let enough = ends as u64 > CYCLES
                && journal.accepted_us.len() as u64 >= RECORDS_MIN
                && machine.now_us() - start_us >= least_us
                && logged_percent(machine) >= LOG_PERCENT_MIN;
            enough || machine.work_ns - start_ns > WORK_NS_MAX
        };
        while !is_over(machine, &journal, ends_us.len()) {
            if !callers.turn(machine, source, &mut journal)? {
                return Err(format!("nothing can happen any more: {}", machine.dump()));
            }
            let ended = machine.core.metrics().sweep_cycles_total.get();
            if ended > cycles {
                cycles = ended;
                let is_warm = logged_percent(machine) >= LOG_PERCENT_MIN / 4;
                ends_us.extend(is_warm.then(|| machine.now_us()));
                all_cycles += 1;
            }
            let since_us = callers.waiting_since_us().unwrap_or(u64::MAX);
            if since_us.saturating_add(PATIENCE_US) < machine.now_us() {
                return Err(format!("a record waits indefinitely: {}", machine.dump()));
            }
        }
        callers.end_phase(machine, &mut journal);
        let tally = &mut self.outcome.tally;
        tally.cycles += all_cycles;
        tally.note(&journal, self.plan.times().run_us);
        let cycles = (ends_us.len() as u64).saturating_sub(1);
        let (from_us, to_us) = match (ends_us.first(), ends_us.last()) {
            (Some(first), Some(last)) if cycles > 0 => (*first, *last),
            _ => (start_us + (machine.now_us() - start_us) / 4, machine.now_us()),
        };
        let records = journal.accepted_in(from_us, to_us);
        Ok((journal, Stretch { from_us, to_us, records, cycles }))
    }
}
