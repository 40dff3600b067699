//! Concurrent callers, as in the product: the state machines that its threads follow (`callers.rs`
//! of the runtime), under an interleaving that the seed chooses.
//!
//! A *thread* offers many records in succession, without a pump in between; if there is no room it
//! sleeps, others continue, and it offers the rest when it is notified or looks again. A *parked*
//! change waits for room in a queue, and may be withdrawn. A caller that needs to know when a
//! record is durable joins the group of its batch, at once or some time later.
//!
//! Checked: each record is accepted once, at the sequence that the core reports; parked changes in
//! order of arrival, and none that was withdrawn; answered callers have durable records, and
//! callers with durable records are answered at once; room is passed on to a caller; every caller
//! finishes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use upsweep::SpaceId;
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::engine::{Accept, Core, LoggedUpdate};
use upsweep::layers::log::{Seq, Urgency};
use upsweep::layers::runtime::callers::{Groups, Offered, Offers, Parking, Turn};

use crate::loading::Load;
use crate::oracle::Update;
use crate::plan::Plan;
use crate::random::Random;
use crate::resting::Refused;
use crate::semantics::Op;
use crate::world::{PATIENCE_US, Verdict, World};

/// One in this many callers that wait for room looks without being notified, as happens in the
/// product.
const LOOKS_AGAIN: u64 = 40;
/// Average number of steps between withdrawals of changes.
const STEPS_PER_TAKING_BACK: u64 = 50;
/// Most parked changes at a time.
const PARKED_MAX: usize = 100;

/// A thread with records to offer.
struct Thread {
    records: Vec<Vec<Update>>,
    accepted: usize,
    offers: Offers,
    urgency: Urgency,
    asleep: Option<Asleep>,
}

/// A thread that waits for room.
#[derive(Clone, Copy)]
struct Asleep {
    refused: Refused,
    /// How often threads had been notified of room when it fell asleep.
    told: u64,
}

/// A change that waits for room without a thread.
struct Parked {
    number: u64,
    updates: Vec<Update>,
    urgency: Urgency,
    refused: Cell<Refused>,
    is_taken_back: Cell<bool>,
}

/// All callers of a world except the one with a single record.
pub struct Callers {
    random: Random,
    /// Most threads at a time; 0 in histories without any.
    threads_max: usize,
    threads: BTreeMap<u64, Thread>,
    parked: Parking<Parked>,
    /// Number of threads and parked changes so far.
    came: u64,
    /// The number of the last parked change that was accepted.
    last_parked: u64,
    /// The core's notifications of room up to this one were passed on.
    room_events_seen: u64,
    /// How often threads were notified that there may be room.
    threads_told: u64,
    /// Parked changes are to be offered.
    admits: bool,
    groups: Groups<Vec<Seq>>,
    /// The sequences awaited in groups.
    awaited: BTreeSet<Seq>,
    /// Accepted records whose durability will be queried.
    tickets: Vec<Seq>,
}

impl Callers {
    /// The callers of a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed, "callers");
        Self {
            threads_max: random.pick(&[0, 1, 3, 6]),
            random,
            threads: BTreeMap::new(),
            parked: Parking::default(),
            came: 0,
            last_parked: 0,
            room_events_seen: 0,
            threads_told: 0,
            admits: false,
            groups: Groups::default(),
            awaited: BTreeSet::new(),
            tickets: Vec::new(),
        }
    }

    /// All callers have ended with their process.
    pub fn forget(&mut self) {
        self.threads.clear();
        self.parked = Parking::default();
        self.admits = false;
        self.groups = Groups::default();
        self.awaited.clear();
        self.tickets.clear();
    }

    /// Whether any caller waits for room.
    #[must_use]
    pub fn wait_for_room(&self) -> bool {
        !self.threads.is_empty() || !self.parked.is_empty()
    }

    /// The callers whose last offer found no room. Of parked changes only the first is offered.
    pub fn refused(&self) -> impl Iterator<Item = Refused> {
        let threads = self.threads.values().filter_map(|thread| Some(thread.asleep?.refused));
        threads.chain(self.parked.iter().next().map(|first| first.refused.get()))
    }

    /// Passes on, as the product does, that there may be room.
    fn hand_on(&mut self, room_events: u64) {
        if self.room_events_seen == room_events {
            return;
        }
        self.room_events_seen = room_events;
        let threads_wait = self.threads.values().any(|thread| thread.asleep.is_some());
        if self.parked.take_turn(threads_wait) {
            self.admits = true;
        } else {
            self.threads_told += 1;
        }
    }

    /// The threads in the order in which they get the lock.
    fn threads_in_any_order(&mut self) -> Vec<u64> {
        let mut order: Vec<u64> = self.threads.keys().copied().collect();
        for left in (1..order.len()).rev() {
            order.swap(left, self.random.index(left + 1));
        }
        order
    }

    fn number(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    fn urgency(&mut self) -> Urgency {
        if self.random.percent(50) { Urgency::Now } else { Urgency::Relaxed }
    }

    /// A caller waits until this sequence is durable, or will query it later.
    fn await_durable(&mut self, core: &Core, seq: Seq) {
        if self.random.percent(50) {
            self.groups.of(core, seq).push(seq);
            self.awaited.insert(seq);
        } else {
            self.tickets.push(seq);
        }
    }

    /// Answers the callers whose record is durable, after the core was pumped.
    ///
    /// # Errors
    /// A caller that was answered too early, or was not answered.
    pub fn answer(&mut self, core: &Core) -> Verdict {
        let (durable, is_closed) = (core.durable(), core.closed().is_some());
        let (groups, awaited) = (&mut self.groups, &mut self.awaited);
        let mut early = None;
        groups.end(core, |waiting| {
            for seq in waiting {
                awaited.remove(&seq);
                early = early.or((seq > durable && !is_closed).then_some(seq));
            }
        });
        if let Some(seq) = early {
            return Err(format!(
                "the caller waiting for {seq} is answered, but {durable} is durable"
            ));
        }
        match awaited.first().filter(|seq| **seq <= durable || is_closed) {
            Some(seq) => Err(format!(
                "{durable} is durable, but the caller waiting for {seq} is not answered"
            )),
            None => Ok(()),
        }
    }
}

/// Updates in the form that the core takes.
#[must_use]
pub fn logged<'a>(ids: &BTreeMap<Op, ModifierId>, updates: &'a [Update]) -> Vec<LoggedUpdate<'a>> {
    let logged = |update: &'a Update| LoggedUpdate {
        space: update.space,
        modifier: ids[&update.op],
        key: &update.key,
        operand: &update.operand,
    };
    updates.iter().map(logged).collect()
}

impl World {
    /// A caller arrives, or continues.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn go_on_calling(&mut self) -> Verdict {
        if self.callers.threads_max == 0 {
            return Ok(());
        }
        if self.callers.random.one_in(8) {
            self.come()?;
        }
        if self.callers.random.one_in(STEPS_PER_TAKING_BACK) {
            self.take_back();
        }
        self.look_for_room(LOOKS_AGAIN)?;
        if self.callers.random.one_in(4) {
            self.ask_for_durability()?;
        }
        Ok(())
    }

    /// A thread arrives with records, or a change without a thread.
    fn come(&mut self) -> Verdict {
        let mut tables = self.tables();
        let loading = self.loading.as_ref().map(Load::space);
        tables.retain(|space| loading != Some(*space));
        if tables.is_empty() {
            return Ok(());
        }
        if self.callers.random.percent(50) {
            return self.declare(&tables);
        }
        if self.callers.threads.len() == self.callers.threads_max {
            return Ok(());
        }
        let count = self.callers.random.pick(&[1, 3, 10, 10, Offers::RECORDS_MAX]);
        let records = (0..count).map(|_| self.draw(&tables)).collect();
        let (number, urgency) = (self.callers.number(), self.callers.urgency());
        let (accepted, offers, asleep) = (0, Offers::default(), None);
        let thread = Thread { records, accepted, offers, urgency, asleep };
        self.callers.threads.insert(number, thread);
        self.offer_records(number)
    }

    /// A record. Long ones keep the log full.
    fn draw(&mut self, tables: &[SpaceId]) -> Vec<Update> {
        let mut updates = match self.callers.random.below(4) {
            0 => self.workload.record(tables),
            1 => vec![self.workload.long_put(tables)],
            _ => vec![self.workload.addition(tables)],
        };
        updates.iter_mut().for_each(|update| self.fit(update));
        updates
    }

    /// Callers that wait for room look for it: the notified ones, and one in `many` of the others.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn look_for_room(&mut self, many: u64) -> Verdict {
        let room_events = self.room_events;
        self.callers.hand_on(room_events);
        if std::mem::take(&mut self.callers.admits) || self.callers.random.one_in(many) {
            self.admit()?;
        }
        for number in self.callers.threads_in_any_order() {
            let told = self.callers.threads_told;
            let is_told = |thread: &Thread| thread.asleep.is_none_or(|asleep| asleep.told != told);
            let is_awake = self.callers.threads.get(&number).is_some_and(is_told);
            if is_awake || self.callers.random.one_in(many) {
                self.offer_records(number)?;
            }
        }
        Ok(())
    }

    /// A thread has the lock, and offers records until there is no room for one.
    fn offer_records(&mut self, number: u64) -> Verdict {
        let Some(thread) = self.callers.threads.remove(&number) else { return Ok(()) };
        let Thread { records, mut accepted, mut offers, urgency, mut asleep } = thread;
        let (now, rooms) = (self.bank.now_us(), self.room_events);
        let all: Vec<_> = records.iter().map(|one| logged(&self.modifier_ids, one)).collect();
        let all: Vec<_> = all.iter().map(Vec::as_slice).collect();
        let mut last = None;
        loop {
            let core = self.core.as_mut().expect("the store is open");
            match offers.offer(core, &all, urgency, now) {
                Ok(Offered::Accepted(seq)) => {
                    let record = records.get(accepted).ok_or("a record was accepted twice")?;
                    let refused = asleep.take().map(|asleep| asleep.refused);
                    let latest = core.accepted();
                    self.note_accepted(seq, latest, record.clone(), refused)?;
                    accepted += 1;
                    last = Some(seq);
                }
                Ok(Offered::Wait) => {
                    let before = asleep.map(|asleep| asleep.refused);
                    let refused = Refused::now(core, rooms, before, now);
                    self.check_patience(refused)?;
                    self.tally.thread_waits += u64::from(before.is_none());
                    let asleep = Some(Asleep { refused, told: self.callers.threads_told });
                    let thread = Thread { records, accepted, offers, urgency, asleep };
                    self.callers.threads.insert(number, thread);
                    return self.settle();
                }
                Ok(Offered::Over) if accepted == records.len() => break,
                Ok(Offered::Over) => return Err("a record was not accepted".to_owned()),
                Err(error) => {
                    let record = records.get(accepted).ok_or("a record was offered twice")?;
                    self.check_refusal(record, &error)?;
                    break;
                }
            }
        }
        self.tally.threads += 1;
        if let Some(seq) = last {
            let core = self.core.as_ref().expect("the store is open");
            self.callers.await_durable(core, seq);
        }
        self.settle()
    }

    /// Declares a change that waits for room in a queue, or not at all if there is some.
    fn declare(&mut self, tables: &[SpaceId]) -> Verdict {
        let updates = self.draw(tables);
        let (number, urgency) = (self.callers.number(), self.callers.urgency());
        let (now, rooms) = (self.bank.now_us(), self.room_events);
        let core = self.core.as_mut().expect("the store is open");
        if self.callers.parked.is_empty() {
            match core.modify(&logged(&self.modifier_ids, &updates), urgency, now) {
                Ok(Accept::Accepted(seq)) => {
                    self.callers.await_durable(core, seq);
                    let latest = core.accepted();
                    self.note_accepted(seq, latest, updates, None)?;
                    return self.settle();
                }
                Ok(Accept::Wait) => {}
                Err(error) => {
                    self.check_refusal(&updates, &error)?;
                    return self.settle();
                }
            }
        }
        let core = self.core.as_ref().expect("the store is open");
        if core.closed().is_none() && self.callers.parked.iter().count() < PARKED_MAX {
            let refused = Cell::new(Refused::now(core, rooms, None, now));
            let is_taken_back = Cell::new(false);
            self.callers.parked.push(Parked { number, updates, urgency, refused, is_taken_back });
            self.tally.parked += 1;
        }
        self.settle()
    }

    /// Withdraws one of the parked changes.
    fn take_back(&mut self) {
        let callers = &mut self.callers;
        let count = callers.parked.iter().count();
        if count > 0 {
            let which = callers.random.index(count);
            callers.parked.iter().skip(which).take(1).for_each(|one| one.is_taken_back.set(true));
            // Those after it may have room.
            callers.admits = true;
        }
    }

    /// Offers a portion of the parked changes.
    fn admit(&mut self) -> Verdict {
        let (now, rooms) = (self.bank.now_us(), self.room_events);
        let core = self.core.as_mut().expect("the store is open");
        let Callers { parked, groups, awaited, .. } = &mut self.callers;
        let mut ended = Vec::new();
        let admitted = parked.admit(|first| {
            if first.is_taken_back.get() {
                return Turn::TakenBack;
            }
            let before = first.refused.get();
            let updates = logged(&self.modifier_ids, &first.updates);
            let outcome = match core.modify(&updates, first.urgency, now) {
                Ok(Accept::Wait) => {
                    first.refused.set(Refused::now(core, rooms, Some(before), now));
                    return Turn::Waits;
                }
                Ok(Accept::Accepted(seq)) => {
                    groups.of(core, seq).push(seq);
                    awaited.insert(seq);
                    Ok((seq, core.accepted()))
                }
                Err(error) => Err(error),
            };
            ended.push((first.number, first.updates.clone(), before, outcome));
            Turn::Over
        });
        self.callers.admits |= admitted.asks_again;
        self.callers.threads_told += u64::from(admitted.hands_on);
        for (number, updates, refused, outcome) in ended {
            match outcome {
                Ok((seq, latest)) => {
                    let last = std::mem::replace(&mut self.callers.last_parked, number);
                    if number <= last {
                        return Err(format!("parked change {number} is accepted after {last}"));
                    }
                    self.note_accepted(seq, latest, updates, Some(refused))?;
                }
                Err(error) => self.check_refusal(&updates, &error)?,
            }
        }
        let first = self.callers.parked.iter().next().map(|first| first.refused.get());
        first.map_or(Ok(()), |refused| self.check_patience(refused))?;
        self.settle()
    }

    /// A caller queries whether a record is durable, and waits for it if it is not.
    fn ask_for_durability(&mut self) -> Verdict {
        let callers = &mut self.callers;
        let Some(seq) = callers.tickets.pop() else { return Ok(()) };
        let core = self.core.as_ref().expect("the store is open");
        if core.durable() < seq && core.closed().is_none() {
            callers.groups.of(core, seq).push(seq);
            callers.awaited.insert(seq);
        }
        self.settle()
    }

    /// Checks that no caller waits indefinitely.
    ///
    /// # Errors
    /// A caller does.
    pub fn check_patience(&mut self, refused: Refused) -> Verdict {
        if self.bank.now_us() > refused.since_us + PATIENCE_US {
            return Err(format!("an update waits indefinitely: {}", self.dump()));
        }
        Ok(())
    }
}
