//! Callers as in production: each has one record in progress at a time.
//!
//! An accepted caller continues when the record is durable, or at once if it is relaxed. A refused
//! one sleeps until the core reports that there may be room, or for 50 milliseconds, and offers the
//! same record again. It also looks when a run or a spill has been published, as if woken by
//! chance: if there is room then, it should have been notified. Offers are serial, because there is
//! one lock; the longest waiting callers come first.
//!
//! Invariant: every caller is free, waits for room, or waits for its record to be durable.

use std::collections::{BTreeMap, VecDeque};

use upsweep::layers::engine::{Accept, LoggedUpdate};
use upsweep::layers::log::{Seq, Urgency};

use crate::load::judge::Journal;
use crate::load::machine::{Machine, builtin};
use crate::load::plan::LoadPlan;
use crate::oracle::Layout;
use crate::random::Random;
use crate::resting::Refused;
use crate::semantics::{Op, kind};
use crate::world::Verdict;

/// Longest time between two looks of a waiting caller, in microseconds.
const LOOK_AGAIN_US: u64 = 50_000;
/// The same for the log, so short that room of which nobody was told is found.
const LOOK_AT_LOG_US: u64 = 5_000;
/// Time that an offer holds the lock, in microseconds, and how many further updates add another
/// one.
const OFFER_US: u64 = 1;
const UPDATES_PER_US: u64 = 4;
/// Longest wait before the history is given up as stuck, in microseconds.
pub const PATIENCE_US: u64 = 30_000_000;
/// Approximate real time of an update, in nanoseconds.
const UPDATE_NS: u64 = 600;

/// When records are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By every caller as soon as it is free.
    Closed,
    /// Record by record at a steady rate, to free callers.
    Open {
        /// When the first is due, in microseconds.
        start_us: u64,
        /// This many records...
        records: u64,
        /// ...in this many microseconds.
        span_us: u64,
    },
}

impl Source {
    /// When record `number` is due, in microseconds.
    #[must_use]
    pub fn due_us(&self, number: u64) -> u64 {
        match *self {
            Self::Closed => 0,
            Self::Open { start_us, records, span_us } => {
                let after = u128::from(number) * u128::from(span_us) / u128::from(records.max(1));
                start_us + u64::try_from(after).unwrap_or(u64::MAX / 2)
            }
        }
    }
}

/// One record: its keys. The operands of all records are equal.
type Record = Vec<Vec<u8>>;

/// A refused caller.
struct Waiter {
    caller: usize,
    record: Record,
    due_us: u64,
    refused: Refused,
    offered_us: u64,
}

/// All callers.
pub struct Callers {
    plan: LoadPlan,
    random: Random,
    op: Op,
    operand: Vec<u8>,
    free: VecDeque<usize>,
    /// By first refusal.
    waiting: BTreeMap<u64, Waiter>,
    tickets: u64,
    /// Callers that wait for a record to be durable, in sequence order.
    awaiting: VecDeque<(Seq, usize)>,
    /// The lock is taken until then.
    busy_until_us: u64,
}

impl Callers {
    /// The callers of a plan, all free.
    #[must_use]
    pub fn new(plan: &LoadPlan) -> Self {
        let (op, operand) = if plan.layout == Layout::Array {
            (Op::AddI64, 1u64.to_le_bytes().to_vec())
        } else if !plan.preloaded {
            (Op::Put, [&[kind::BYTES][..], &vec![b'n'; plan.value_bytes]].concat())
        } else if plan.value_bytes > 8 {
            // The value keeps its length.
            let patch = vec![b'p'; plan.patch_bytes];
            (Op::BytePatch, [&0u32.to_le_bytes()[..], &patch].concat())
        } else {
            (Op::AddI64, 1u64.to_le_bytes().to_vec())
        };
        Self {
            plan: plan.clone(),
            random: Random::new(plan.seed, "load"),
            op,
            operand,
            free: (0..plan.callers).collect(),
            waiting: BTreeMap::new(),
            tickets: 0,
            awaiting: VecDeque::new(),
            busy_until_us: 0,
        }
    }

    /// Executes the next event: one of the machine, or an offer. `false` if there is none.
    ///
    /// # Errors
    /// An update that is refused permanently.
    pub fn turn(
        &mut self,
        machine: &mut Machine,
        source: Source,
        journal: &mut Journal,
    ) -> Verdict<bool> {
        let now = machine.now_us();
        let offer = self.next_offer_us(machine, source, journal.offered);
        let event = machine.next_event_us();
        let Some(next) = [offer, event].into_iter().flatten().min() else { return Ok(false) };
        let next = next.max(now);
        machine.advance_to(next);
        self.take_durable(machine);
        if offer.is_some_and(|offer| offer <= next) {
            self.offer(machine, source, journal)?;
            self.take_durable(machine);
        }
        let room_events = machine.room_events;
        let sleeper = |waiter: &&Waiter| waiter.refused.room_events == room_events;
        if let Some(waiter) = self.waiting.values().find(sleeper) {
            journal.look(machine, waiter.refused);
        }
        Ok(true)
    }

    /// Ends a phase: waiting records are judged as if they were accepted now, and count as offered
    /// from now on.
    pub fn end_phase(&mut self, machine: &Machine, journal: &mut Journal) {
        let now = machine.now_us();
        for waiter in self.waiting.values_mut() {
            journal.unfinished(machine, waiter.due_us, waiter.refused);
            waiter.due_us = now;
        }
    }

    /// The start of the longest present wait, in microseconds.
    #[must_use]
    pub fn waiting_since_us(&self) -> Option<u64> {
        self.waiting.values().next().map(|waiter| waiter.refused.since_us)
    }

    fn next_offer_us(&self, machine: &Machine, source: Source, offered: u64) -> Option<u64> {
        let again = self.waiting.values().map(|waiter| waiter.wakes_us(machine)).min();
        let new = (!self.free.is_empty()).then(|| source.due_us(offered));
        let next = [again, new].into_iter().flatten().min()?;
        Some(next.max(self.busy_until_us).max(machine.now_us()))
    }

    fn offer(&mut self, machine: &mut Machine, source: Source, journal: &mut Journal) -> Verdict {
        let now = machine.now_us();
        let mut waiting = self.waiting.iter();
        let awake = waiting.find(|(_, waiter)| waiter.wakes_us(machine) <= now);
        let awake = awake.map(|(ticket, _)| *ticket);
        if let Some((ticket, waiter)) = awake.and_then(|at| self.waiting.remove_entry(&at)) {
            let Waiter { caller, record, due_us, refused, .. } = waiter;
            return self.offer_record(
                machine,
                journal,
                caller,
                record,
                (ticket, due_us, Some(refused)),
            );
        }
        let due_us =
            source.due_us(journal.offered).max(if source == Source::Closed { now } else { 0 });
        if due_us > now {
            return Ok(());
        }
        let Some(caller) = self.free.pop_front() else { return Ok(()) };
        journal.offered += 1;
        self.tickets += 1;
        let record = self.draw();
        let ticket = self.tickets;
        self.offer_record(machine, journal, caller, record, (ticket, due_us, None))
    }

    fn draw(&mut self) -> Record {
        (0..self.plan.batch).map(|_| self.plan.key(self.random.below(self.plan.keys))).collect()
    }

    /// Offers one record; `known` are its ticket, its due time, and its refusals so far.
    fn offer_record(
        &mut self,
        machine: &mut Machine,
        journal: &mut Journal,
        caller: usize,
        record: Record,
        known: (u64, u64, Option<Refused>),
    ) -> Verdict {
        let (ticket, due_us, refused) = known;
        let now = machine.now_us();
        let (space, modifier) = (machine.space, builtin(self.op));
        let update = |key| LoggedUpdate { space, modifier, key, operand: &self.operand };
        let updates: Vec<_> = record.iter().map(|key: &Vec<u8>| update(key.as_slice())).collect();
        let answer = machine.core.modify(&updates, self.plan.urgency, now);
        let taken_us = OFFER_US + updates.len() as u64 / UPDATES_PER_US;
        self.busy_until_us = now + taken_us;
        machine.work_ns += updates.len() as u64 * UPDATE_NS;
        match answer {
            Ok(Accept::Accepted(seq)) => {
                machine.history.add(seq.get() ^ now);
                journal.accepted(machine, due_us, refused, self.waiting.len());
                match self.plan.urgency {
                    Urgency::Now => self.awaiting.push_back((seq, caller)),
                    Urgency::Relaxed => self.free.push_back(caller),
                }
            }
            Ok(Accept::Wait) => {
                journal.refused(refused.is_none(), machine);
                let refused = Refused::now(&machine.core, machine.room_events, refused, now);
                let waiter = Waiter { caller, record, due_us, refused, offered_us: now };
                self.waiting.insert(ticket, waiter);
            }
            Err(error) => {
                return Err(format!("an update was refused: {error}: {}", machine.dump()));
            }
        }
        machine.pump();
        Ok(())
    }

    /// Frees the callers whose records are durable.
    fn take_durable(&mut self, machine: &Machine) {
        let durable = machine.core.durable();
        while let Some((_, caller)) = self.awaiting.pop_front_if(|(seq, _)| *seq <= durable) {
            self.free.push_back(caller);
        }
    }
}

impl Waiter {
    /// When it looks again, in microseconds.
    fn wakes_us(&self, machine: &Machine) -> u64 {
        let is_told = self.refused.room_events != machine.room_events;
        let wakes = is_told || self.refused.has_seen_publication(&machine.core);
        let look_again_us = if self.refused.is_for_log { LOOK_AT_LOG_US } else { LOOK_AGAIN_US };
        if wakes { 0 } else { self.offered_us + look_again_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_load_is_due_at_its_rate() {
        let source = Source::Open { start_us: 500, records: 3, span_us: 1000 };
        assert_eq!(source.due_us(0), 500);
        assert_eq!(source.due_us(3), 1500);
        assert_eq!(source.due_us(10), 500 + 3333);
        assert_eq!(Source::Closed.due_us(7), 0);
    }
}
