//! The state shared by callers, driver and workers: the core under a mutex, the devices, and the
//! waiters.

#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]
#![expect(clippy::disallowed_methods, reason = "the runtime is where threads meet")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, ReentrantMutex};

use super::callers::{Groups, Offered, Offers, Parking};
use super::clock::{Clock, TimeOfDay};
use super::commit::{Call, Waiting, Woken};
use super::extents::Handles;
use super::hands::Hands;
use super::parked::Parked;
use super::stall::Stall;
use super::views::ViewWaiter;
use crate::device::{Bank, DeviceId, Performer, Process, Request, Waker};
use crate::engine::registry::Modifiers;
use crate::engine::{Accept, Actions, Core, Job, LoggedUpdate, ScanId, ViewId};
use crate::error::{ClosedError, Error, RequestError};
use crate::log::{Seq, Urgency};
use crate::metrics::{Histogram, LockCause, Metrics};

/// The record whose latency is currently measured. Measuring one record at a time is enough for the
/// distribution, and costs nothing per record.
#[derive(Default)]
pub(super) struct Sampling(Option<Sample>);

impl Sampling {
    /// Measures the record just accepted, unless another is being measured.
    pub(super) fn note_accepted(&mut self, seq: Seq, began_us: u64) {
        self.0.get_or_insert(Sample { seq, began_us });
    }
}

/// An accepted record that is measured until it is durable.
struct Sample {
    seq: Seq,
    /// When the call that submitted it began.
    began_us: u64,
}

/// Longest time between two checks of a waiting thread.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Time for which a thread releases the lock even if its own pump has changed what it waits for: if
/// it rechecked at once, repeatedly, the threads that it depends on would never get the lock.
const GIVE_WAY: Duration = Duration::from_micros(1);

/// A condition that threads wait for. Signalling costs nothing without waiters.
#[derive(Default)]
struct Signal {
    condvar: Condvar,
    waiters: AtomicU64,
}

impl Signal {
    fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    fn happened(&self) {
        if self.is_awaited() {
            self.condvar.notify_all();
        }
    }
}

/// Interval at which the core is told what has expired, in microseconds: reading the clock at every
/// pump would cost more than dropping records sooner would gain.
const EXPIRED_AGE_US_MAX: u64 = 10_000;

thread_local! {
    /// The store whose core this thread is in, or whose job it runs: application code called there
    /// must not wait for it. By address; 0: none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// The time of a thread inside a store.
struct Inside {
    before: usize,
}

impl Inside {
    fn begin(shared: &Shared) -> Self {
        Self { before: INSIDE.replace(shared.address()) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Everything under the mutex.
pub(super) struct State {
    pub(super) core: Core,
    actions: Actions,
    pub(super) groups: Groups<Waiting>,
    pub(super) woken: Woken,
    pub(super) view_waiters: BTreeMap<ViewId, Arc<ViewWaiter>>,
    /// Scans that wait for what they have requested.
    pub(super) scan_waiters: BTreeMap<ScanId, Thread>,
    /// Changes that wait for room without a thread.
    pub(super) parked: Parking<Arc<Parked>>,
    /// When the driver will next pump without an event.
    pub(super) driver_deadline_us: u64,
    /// When the core is next told what has expired.
    expired_due_us: u64,
    /// How often the core has signalled possible room, and that count when callers that wait for
    /// room were last woken.
    room_events: (u64, u64),
    pub(super) sample: Sampling,
}

/// Why [`BlockStore::modify_each`](super::BlockStore::modify_each) ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartlyAccepted {
    /// How many records were accepted before the failing one.
    pub accepted: u64,
    /// The error of that one.
    pub error: Error,
}

impl From<PartlyAccepted> for Error {
    fn from(refused: PartlyAccepted) -> Self {
        refused.error
    }
}

/// The core's actions, to be carried out without the lock: a thread that wakes another one may be
/// preempted by it at once.
struct Outbox {
    requests: Vec<Request>,
    jobs: Vec<Job>,
    wakes_driver: bool,
}

/// The state, locked.
pub(super) struct Locked<'a> {
    guard: MutexGuard<'a, State>,
    since: Instant,
    /// Records the time for which the mutex is held.
    held: &'a Histogram,
    /// A thread that is already panicking may lock to close its store.
    was_panicking: bool,
    /// Scans that wait for the lock.
    scans: &'a AtomicUsize,
    _inside: Inside,
}

impl Locked<'_> {
    /// Sleeps, without the lock, until `condvar` is notified or `timeout` has passed.
    fn sleep(&mut self, condvar: &Condvar, timeout: Duration) {
        self.held.record(self.since.elapsed());
        condvar.wait_for(&mut self.guard, timeout);
        self.since = Instant::now();
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.held.record(self.since.elapsed());
        if std::thread::panicking() && !self.was_panicking {
            let reason = "a call into the core panicked".to_owned();
            self.guard.core.close(ClosedError::Panicked(reason));
        }
        if self.scans.load(Ordering::Relaxed) > 0 {
            MutexGuard::bump(&mut self.guard);
        }
    }
}

/// Shared by all threads of a store.
pub(super) struct Shared {
    /// Fair about every half a millisecond: then it goes to the longest waiter, not to a running
    /// thread. It goes to the longest waiter at once while a scan waits, which does so once for
    /// many blocks: half a millisecond for each time would be most of the time of a scan.
    state: Mutex<State>,
    /// Scans that wait for it.
    scans: AtomicUsize,
    /// Taken for the system calls that submit requests, which are long, and never before `state`.
    /// None once the store has ended.
    devices: Mutex<Option<Box<dyn Bank>>>,
    /// To the workers, which end when it is dropped.
    jobs: Mutex<Option<Sender<Job>>>,
    /// To the thread that makes registered calls, which ends when it is dropped.
    calls: Mutex<Option<Sender<Call>>>,
    /// There may be room for an update that had to wait.
    room: Signal,
    /// The driver was asked to submit parked changes.
    pub(super) admits: AtomicBool,
    /// Something has happened.
    progress: Signal,
    durable: AtomicU64,
    pub(super) closed: AtomicBool,
    pub(super) stopping: AtomicBool,
    /// The store was closed by its owner, and another process may have its folder.
    ended: AtomicBool,
    /// The process that opened it.
    process: Process,
    pub(super) clock: Clock,
    pub(super) time_of_day: Arc<TimeOfDay>,
    waker: Box<dyn Waker>,
    pub(super) performer: Box<dyn Performer>,
    /// Reserved extents in use.
    pub(super) extents: Handles,
    /// What threads would own, if there are none.
    pub(super) hands: Option<ReentrantMutex<Hands>>,
    /// Those of the core, which do not change while a store is open.
    pub(super) modifiers: Arc<Modifiers>,
    /// Those of the core.
    pub(super) metrics: Arc<Metrics>,
}

impl Shared {
    pub(super) fn new(
        core: Core,
        devices: Box<dyn Bank>,
        jobs: Sender<Job>,
        calls: Sender<Call>,
        time_of_day: TimeOfDay,
        hands: Option<Hands>,
    ) -> Self {
        let durable = AtomicU64::new(core.durable().get());
        let (waker, performer) = (devices.waker(), devices.performer());
        let (modifiers, metrics) = (core.modifiers(), Arc::clone(core.metrics()));
        // Recovery has a time of its own, and the core knows no way back.
        let virtual_clock = hands.as_ref().and_then(|_| devices.clock_of(DeviceId(0)));
        let clock = Clock::start_at(core.now_us(), virtual_clock);
        let state = State {
            core,
            actions: Actions::default(),
            groups: Groups::default(),
            woken: Woken::default(),
            view_waiters: BTreeMap::new(),
            scan_waiters: BTreeMap::new(),
            parked: Parking::default(),
            driver_deadline_us: 0,
            expired_due_us: 0,
            room_events: (0, 0),
            sample: Sampling::default(),
        };
        Self {
            state: Mutex::new(state),
            scans: AtomicUsize::new(0),
            devices: Mutex::new(Some(devices)),
            jobs: Mutex::new(Some(jobs)),
            calls: Mutex::new(Some(calls)),
            room: Signal::default(),
            admits: AtomicBool::new(false),
            progress: Signal::default(),
            durable,
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            process: Process::current(),
            clock,
            time_of_day: Arc::new(time_of_day),
            waker,
            performer,
            extents: Handles::default(),
            hands: hands.map(ReentrantMutex::new),
            modifiers,
            metrics,
        }
    }

    /// The state. A thread that panics while it has the lock closes the store on the way.
    ///
    /// # Panics
    /// In application code that the core calls, which would deadlock. Fallible calls refuse that
    /// earlier: see [`Shared::check_caller`].
    pub(super) fn lock(&self) -> Locked<'_> {
        self.lock_for(LockCause::Other)
    }

    /// As [`Shared::lock`], for a cause whose times are recorded separately.
    pub(super) fn lock_for(&self, cause: LockCause) -> Locked<'_> {
        assert!(!self.is_inside(), "{}", RequestError::FromWithin);
        let scans = usize::from(matches!(cause, LockCause::Scan));
        self.scans.fetch_add(scans, Ordering::Relaxed);
        let guard = self.state.lock();
        self.scans.fetch_sub(scans, Ordering::Relaxed);
        let (since, was_panicking) = (Instant::now(), std::thread::panicking());
        let held = &self.metrics.core_lock_seconds[cause];
        let scans = &self.scans;
        Locked { guard, since, held, was_panicking, scans, _inside: Inside::begin(self) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_inside(&self) -> bool {
        INSIDE.get() == self.address()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Runs work that may call application code.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = Inside::begin(self);
        work()
    }

    /// Checks that this process opened the store.
    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_current() { Ok(()) } else { Err(ClosedError::Forked.into()) }
    }

    /// Checks that the calling thread may use the store. Cost: a few reads of memory.
    pub(super) fn check_caller(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.is_inside() {
            return Err(RequestError::FromWithin.into());
        }
        if self.has_ended() { Err(ClosedError::Closed.into()) } else { Ok(()) }
    }

    /// Refuses everything from now on, notifies waiters without a thread, and drops the devices
    /// once their requests have completed. The threads of the store must have ended.
    pub(super) fn end(&self) {
        let mut guard = self.lock();
        self.ended.store(true, Ordering::Release);
        let waiters = std::mem::take(&mut guard.view_waiters);
        let scans = std::mem::take(&mut guard.scan_waiters);
        let parked = std::mem::take(&mut guard.parked);
        let mut woken = std::mem::take(&mut guard.woken);
        drop(guard);
        let devices = self.devices().take();
        drop(devices);
        for waiter in waiters.into_values() {
            waiter.answer(Err(ClosedError::Closed.into()), &mut woken);
        }
        scans.into_values().for_each(|thread| woken.thread(thread));
        parked.into_iter().for_each(|change| change.end_closed(self, &mut woken));
        woken.wake(&self.calls);
        *self.calls.lock() = None;
    }

    /// Advances the core after an event, carries out its actions, and releases the lock.
    pub(super) fn pump(&self, guard: Locked<'_>) {
        self.pump_but(guard, |_| None);
    }

    /// As [`Shared::pump`], except for one request that `keep` takes out for the caller to perform.
    pub(super) fn pump_but(
        &self,
        mut guard: Locked<'_>,
        keep: impl FnOnce(&mut Vec<Request>) -> Option<Request>,
    ) -> Option<Request> {
        let mut outbox = self.pump_locked(&mut guard);
        let kept = keep(&mut outbox.requests);
        let woken = std::mem::take(&mut guard.woken);
        let (happened, told) = guard.room_events;
        guard.room_events.1 = happened;
        let may_have_room = happened != told;
        let is_for_parked = may_have_room && guard.parked.take_turn(self.room.is_awaited());
        // Under the lock, so that the driver does not find the room before it is asked.
        let is_first = is_for_parked && !self.admits.swap(true, Ordering::AcqRel);
        drop(guard);
        self.see_to(outbox);
        woken.wake(&self.calls);
        if is_first {
            self.wake_driver();
        } else if may_have_room && !is_for_parked {
            self.room.happened();
        }
        self.progress.happened();
        kept
    }

    /// Notifies threads that wait for room that there may be some left.
    pub(super) fn hand_room_on(&self) {
        self.room.happened();
    }

    /// The devices, to submit to or to describe; none once the store has ended.
    pub(super) fn devices(&self) -> MutexGuard<'_, Option<Box<dyn Bank>>> {
        self.devices.lock()
    }

    /// The order in which threads get here does not matter: the core never has two requests in
    /// flight that must be ordered.
    fn see_to(&self, outbox: Outbox) {
        let Outbox { requests, jobs, wakes_driver } = outbox;
        if !requests.is_empty()
            && let Some(devices) = &mut *self.devices()
        {
            requests.into_iter().for_each(|request| devices.submit(request));
        }
        if !jobs.is_empty()
            && let Some(workers) = &*self.jobs.lock()
        {
            // Workers outlive every job.
            jobs.into_iter().for_each(|job| drop(workers.send(job)));
        }
        if wakes_driver {
            self.waker.wake();
        }
    }

    #[must_use]
    fn pump_locked(&self, state: &mut State) -> Outbox {
        let now_us = self.clock.now_us();
        if now_us >= state.expired_due_us {
            state.expired_due_us = now_us + EXPIRED_AGE_US_MAX;
            state.core.expire_through(self.time_of_day.expired_us());
        }
        let mut actions = std::mem::take(&mut state.actions);
        debug_assert!(state.core.now_us() <= now_us, "the core knows a time that has yet to come");
        state.core.note_extent_requests(self.extents.foreground());
        state.core.pump(now_us, &mut actions);
        state.room_events.0 += u64::from(std::mem::take(&mut actions.room));
        let requests = std::mem::take(&mut actions.requests);
        let jobs = std::mem::take(&mut actions.jobs);
        for (id, answer) in actions.views.drain(..) {
            if let Some(waiter) = state.view_waiters.remove(&id) {
                waiter.answer(answer, &mut state.woken);
            }
        }
        for id in actions.scans.drain(..) {
            if let Some(thread) = state.scan_waiters.remove(&id) {
                state.woken.thread(thread);
            }
        }
        state.actions = actions;
        self.note_durable(state);
        let deadline = state.core.deadline_us().unwrap_or(u64::MAX);
        let wakes_driver = deadline < state.driver_deadline_us;
        if wakes_driver {
            state.driver_deadline_us = deadline;
        }
        Outbox { requests, jobs, wakes_driver }
    }

    fn note_durable(&self, state: &mut State) {
        let durable = state.core.durable();
        let closed = state.core.closed().is_some();
        if closed {
            self.closed.store(true, Ordering::Release);
        }
        if durable > self.durable() || closed {
            self.durable.store(durable.get(), Ordering::Release);
            if let Some(sample) = state.sample.0.take_if(|sample| sample.seq <= durable) {
                let us = self.clock.now_us() - sample.began_us;
                self.metrics.acknowledge_seconds.record(Duration::from_micros(us));
            }
            let State { core, groups, woken, .. } = state;
            groups.end(core, |waiting| woken.group(waiting));
        }
    }

    /// The sequence through which everything is durable.
    pub(super) fn durable(&self) -> Seq {
        Seq::new(self.durable.load(Ordering::Acquire))
    }

    /// Submits the record, waiting for room if necessary, and until it is durable if `waits`;
    /// returns its sequence.
    pub(super) fn submit(
        &self,
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        waits: bool,
    ) -> Result<Seq, Error> {
        self.check_caller()?;
        let began_us = self.clock.now_us();
        let mut stall = Stall::none(self);
        let mut guard = self.lock_for(LockCause::Update);
        loop {
            let now_us = self.clock.now_us();
            match guard.core.modify(updates, urgency, now_us)? {
                Accept::Accepted(seq) => {
                    stall.end();
                    guard.sample.note_accepted(seq, began_us);
                    self.pump_and_wait(guard, waits.then_some(seq))?;
                    return Ok(seq);
                }
                Accept::Wait => guard = self.wait_for_room(guard, &mut stall),
            }
        }
    }

    /// Submits `records` one after another, under one lock except for waits, and waits until they
    /// are durable if `waits`; returns the last sequence.
    pub(super) fn submit_some<'a>(
        &self,
        mut records: &mut dyn Iterator<Item = &'a [LoggedUpdate<'a>]>,
        urgency: Urgency,
        waits: bool,
    ) -> Result<Seq, PartlyAccepted> {
        self.check_caller().map_err(|error| PartlyAccepted { accepted: 0, error })?;
        let began_us = self.clock.now_us();
        let mut stall = Stall::none(self);
        let mut guard = self.lock_for(LockCause::Update);
        let (mut last, mut accepted) = (Seq::NONE, 0);
        let mut now_us = self.clock.now_us();
        loop {
            let some: Vec<_> = Iterator::take(&mut records, Offers::RECORDS_MAX).collect();
            if some.is_empty() {
                let ended = self.pump_and_wait(guard, waits.then_some(last));
                return ended.map(|()| last).map_err(|error| PartlyAccepted { accepted, error });
            }
            let mut offers = Offers::default();
            loop {
                match offers.offer(&mut guard.core, &some, urgency, now_us) {
                    Ok(Offered::Accepted(seq)) => {
                        last = seq;
                        stall.end();
                        accepted += 1;
                        guard.sample.note_accepted(seq, began_us);
                    }
                    Ok(Offered::Wait) => {
                        guard = self.wait_for_room(guard, &mut stall);
                        now_us = self.clock.now_us();
                    }
                    Ok(Offered::Over) => break,
                    Err(error) => {
                        self.pump(guard);
                        return Err(PartlyAccepted { accepted, error });
                    }
                }
            }
        }
    }

    /// Waits until there may be room again.
    pub(super) fn wait_for_room<'a>(
        &'a self,
        guard: Locked<'a>,
        stall: &mut Stall<'_>,
    ) -> Locked<'a> {
        stall.goes_on(guard.core.wait_cause());
        self.wait(guard, &self.room, |state| state.room_events.0)
    }

    /// Advances the core, and waits for `signal`, or a while; only yields if the pump itself has
    /// changed `state`.
    fn wait<'a>(
        &'a self,
        mut guard: Locked<'a>,
        signal: &Signal,
        state: impl Fn(&State) -> u64,
    ) -> Locked<'a> {
        signal.waiters.fetch_add(1, Ordering::Relaxed);
        let before = state(&guard);
        let outbox = self.pump_locked(&mut guard);
        // Under the lock, because otherwise the signal might come before this sleeps.
        self.see_to(outbox);
        std::mem::take(&mut guard.woken).wake(&self.calls);
        if self.hands.is_some() {
            signal.waiters.fetch_sub(1, Ordering::Relaxed);
            drop(guard);
            self.lend_hands();
            return self.lock();
        }
        let timeout = if state(&guard) == before { LOOK_AGAIN } else { GIVE_WAY };
        guard.sleep(&signal.condvar, timeout);
        signal.waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Waits until `done`, rechecking after every event.
    pub(super) fn wait_until<T>(
        &self,
        mut done: impl FnMut(&mut Core) -> Option<T>,
    ) -> Result<T, Error> {
        self.check_caller()?;
        let mut guard = self.lock();
        loop {
            if let Some(value) = done(&mut guard.core) {
                self.pump(guard);
                return Ok(value);
            }
            if let Some(closed) = guard.core.closed() {
                return Err(closed.clone().into());
            }
            guard = self.wait(guard, &self.progress, |state| state.core.sweep_frontier().get());
        }
    }

    /// Lets workers end once their queue is empty.
    pub(super) fn end_jobs(&self) {
        *self.jobs.lock() = None;
    }

    pub(super) fn wake_driver(&self) {
        self.waker.wake();
    }
}
