//! io_uring: requests go directly to the kernel, without a thread in between.
//!
//! A submitter pushes its entry and enters the kernel at once, because latency matters; a waiter
//! sleeps in the kernel and holds no lock meanwhile. At most [`DEPTH`] requests are with the
//! kernel. Further ones wait in a first-in-first-out queue, which the caller bounds.
//!
//! Invariants:
//! - A slot owns its request, and so its buffer, from submission until the kernel has posted the
//!   completion entry. Nothing touches the buffer in between. This is what makes it sound to hand
//!   the kernel a pointer into it.
//! - The submission queue is used only under the lock `state`, the completion queue only under the
//!   lock `reaping`; `reaping` is taken before `state`.
//! - At most `DEPTH` requests and one wake are with the kernel, fewer than either queue holds, so
//!   neither can overflow and no completion is lost.
//! - Operations are idempotent. So whatever the kernel interrupts or cancels (it does so when a
//!   thread that submitted exits early) is submitted again.
//!
//! Not used: registered buffers and registered files. In a short trial with fio (4 KiB direct reads
//! and writes at depth 1, three rounds of 2 s, virtio disk) the reads showed no gain from either,
//! and the latency of the disk varied too much between rounds to judge the writes. Worth another
//! trial on a fast NVMe drive, where the system call is a larger part of the latency.

#![expect(clippy::disallowed_methods, reason = "one thread waits for the ring")]
#![expect(clippy::disallowed_types, reason = "several threads submit to one ring")]

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::{Errno, ReadWriteFlags};

use super::Engine;
use super::file::{HostFile, extended_in_vain, io_error};
use super::lanes::{LanePerformer, Lanes};
use super::os::{PUNCH_MODE, RESERVE_MODE};
use super::pool::check;
use crate::device::bank::{Performer, Waiter, Waker};
use crate::device::{Completion, DeviceError, Operation, Request, WriteMode};

/// Most requests with the kernel.
const DEPTH: usize = 256;
/// Entries of the submission queue: the requests and a wake, rounded up to a power of two.
const ENTRIES: u32 = 512;
/// The user data of a wake; that of a request is its slot, a small number.
const WAKE: u64 = u64::MAX;
/// How often to resubmit a request that the kernel interrupts without any progress, before the
/// waiting thread performs it itself.
const REPEATS_MAX: u32 = 100;
/// Longest transfer in one entry; the kernel accepts just under 2 GiB.
const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// How often to submit entries without a pause if the kernel has no resources for them.
const OFFERS: u32 = 10;
/// Pause before submitting entries again for which the kernel had no resources.
const OFFER_AGAIN: Duration = Duration::from_millis(1);

/// A ring and the requests in it.
pub(super) struct Ring {
    ring: IoUring,
    files: Arc<[HostFile]>,
    state: Mutex<State>,
    /// Held by the thread that takes completion entries; buffers them while it handles them.
    reaping: Mutex<Vec<(u64, i32)>>,
    /// A wake is in the ring.
    waking: AtomicBool,
    /// A wake has completed, and no wait has returned for it yet.
    woken: AtomicBool,
    /// The kernel left entries in the submission queue.
    unsubmitted: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Requests with the kernel or the helper, by the user data of their entry.
    slots: Vec<Option<Running>>,
    free: Vec<usize>,
    /// Requests beyond [`DEPTH`], oldest first.
    waiting: VecDeque<Running>,
    /// Slots of discards for the helper thread, because they have no asynchronous call.
    discards: VecDeque<usize>,
    /// A helper thread is running and will look at `discards` again.
    helper: bool,
    /// Requests in slots and in `waiting`.
    outstanding: usize,
}

#[derive(Debug)]
struct Running {
    request: Request,
    stage: Stage,
    /// Bytes transferred so far.
    done: usize,
    repeats: u32,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The operation itself.
    Operate,
    /// A sync, after an allocation, or after a stable write where the file system needs it.
    Stabilise,
    /// The result is known; a no-op goes through the ring to notify waiters.
    Report(Result<(), DeviceError>),
}

/// What to do after a completion entry.
enum Next {
    Submit,
    End(Result<(), DeviceError>),
}

impl Ring {
    /// Sets up a ring.
    ///
    /// # Errors
    /// Why io_uring cannot be used, as text: the kernel refuses it, or its version is too old.
    pub(super) fn open(files: Arc<[HostFile]>) -> Result<Self, String> {
        let refused = |error: std::io::Error| format!("the kernel refuses io_uring: {error}");
        let ring = IoUring::builder().dontfork().build(ENTRIES).map_err(refused)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err("io_uring needs Linux 5.11 or later".to_owned());
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(refused)?;
        let needed = [
            opcode::Nop::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if needed.iter().any(|code| !probe.is_supported(*code)) {
            return Err("the io_uring of this kernel lacks required operations".to_owned());
        }
        Ok(Self {
            ring,
            files,
            state: Mutex::default(),
            reaping: Mutex::default(),
            waking: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            unsubmitted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Passes requests to the kernel, or queues them behind [`DEPTH`] others.
    pub(super) fn submit(self: &Arc<Self>, requests: impl IntoIterator<Item = Request>) {
        let mut state = lock(&self.state);
        for request in requests {
            let stage = match check(&self.files, &request) {
                Ok(()) => Stage::Operate,
                Err(error) => Stage::Report(Err(error)),
            };
            state.outstanding += 1;
            state.waiting.push_back(Running { request, stage, done: 0, repeats: 0 });
        }
        self.fill(&mut state);
    }

    /// Moves requests from the queue to the kernel while there is room.
    fn fill(self: &Arc<Self>, state: &mut State) {
        let mut moved = false;
        while state.slots.len() - state.free.len() < DEPTH {
            let Some(running) = state.waiting.pop_front() else { break };
            let slot = state.free.pop().unwrap_or_else(|| {
                state.slots.push(None);
                state.slots.len() - 1
            });
            let by_helper = self.needs_helper(&running);
            state.slots[slot] = Some(running);
            if by_helper {
                self.give_to_helper(state, slot);
            } else {
                self.push_slot(state, slot);
                moved = true;
            }
        }
        if moved {
            self.enter_submit(state);
        }
    }

    fn needs_helper(&self, running: &Running) -> bool {
        let discards = matches!(running.request.operation, Operation::Discard { .. });
        let file = self.files.get(usize::from(running.request.device.0));
        let blocks = file.is_some_and(|file| file.block_device);
        discards && blocks && matches!(running.stage, Stage::Operate)
    }

    /// Queues the discard in `slot` for the helper thread, which is started if necessary.
    fn give_to_helper(self: &Arc<Self>, state: &mut State, slot: usize) {
        state.discards.push_back(slot);
        if !state.helper {
            let ring = Arc::clone(self);
            let builder = std::thread::Builder::new().name("upsweep-discard".to_owned());
            state.helper = builder.spawn(move || ring.discard_queued()).is_ok();
            if !state.helper {
                // A discard is advice: without a thread it succeeds with no effect.
                self.report(state, Ok(()));
                self.enter_submit(state);
            }
        }
    }

    /// The helper thread: performs queued discards until there are none.
    fn discard_queued(&self) {
        let mut state = lock(&self.state);
        while let Some(&slot) = state.discards.front() {
            let request = &state.slots[slot].as_ref().expect("occupied until reported").request;
            let Operation::Discard { offset, bytes } = request.operation else {
                unreachable!("only discards are given to the helper")
            };
            let device = usize::from(request.device.0);
            drop(state);
            let result = self.files[device].discard(offset, bytes);
            state = lock(&self.state);
            self.report(&mut state, result);
            self.enter_submit(&mut state);
        }
        state.helper = false;
    }

    /// Reports this result of the oldest queued discard through the ring.
    fn report(&self, state: &mut State, result: Result<(), DeviceError>) {
        let slot = state.discards.pop_front().expect("there is a queued discard");
        state.slots[slot].as_mut().expect("occupied until reported").stage = Stage::Report(result);
        self.push_slot(state, slot);
    }

    /// Puts the next entry of the request in `slot` into the submission queue.
    fn push_slot(&self, state: &mut State, slot: usize) {
        let running = state.slots[slot].as_mut().expect("the slot was filled by the caller");
        let file = self.files.get(usize::from(running.request.device.0));
        let entry = running.entry(file).user_data(slot as u64);
        self.push(state, &entry);
    }

    /// Puts an entry into the submission queue. `_state` shows that the lock is held.
    fn push(&self, _state: &mut State, entry: &squeue::Entry) {
        // SAFETY: the submission queue is used only under the lock `state`, which the caller
        // holds, so no other `SubmissionQueue` of this ring exists.
        let mut queue = unsafe { self.ring.submission_shared() };
        // SAFETY: the file descriptor of the entry is open as long as `self.files`, its buffer
        // belongs to a slot until the completion entry arrives, and `close` waits for that before
        // either is freed.
        let pushed = unsafe { queue.push(entry) };
        pushed.expect("the queue has room for all slots and one wake");
    }

    /// Submits the entries in the submission queue. Entries for which the kernel has no resources
    /// stay there if other requests are in flight: their completion wakes the waiter, which submits
    /// the entries again. Otherwise this retries until the kernel takes them.
    fn enter_submit(&self, state: &mut State) {
        let mut offers = 0;
        loop {
            let failed = match self.ring.submitter().submit() {
                Err(error) => error.raw_os_error() != Some(Errno::INTR.raw_os_error()),
                Ok(count) => count == 0,
            };
            // SAFETY: as in `push`: the caller holds the lock `state`.
            let left = unsafe { self.ring.submission_shared() }.len();
            let requests = state.slots.len() - state.free.len() - state.discards.len();
            offers += u32::from(failed);
            if left == 0 || (offers > OFFERS && requests > left) {
                self.unsubmitted.store(left > 0, Ordering::Release);
                return;
            }
            if failed && offers > OFFERS {
                std::thread::sleep(OFFER_AGAIN);
            }
        }
    }

    /// Handles completion entries: completes requests, continues those of which the kernel did a
    /// part, and starts queued ones.
    fn reap(self: &Arc<Self>, completions: &mut Vec<Completion>) {
        let mut entries = lock(&self.reaping);
        // SAFETY: the completion queue is used only under the lock `reaping`, which is held here.
        let queue = unsafe { self.ring.completion_shared() };
        entries.extend(queue.map(|entry| (entry.user_data(), entry.result())));
        if entries.is_empty() && !self.unsubmitted.load(Ordering::Acquire) {
            return;
        }
        let mut state = lock(&self.state);
        let mut again = false;
        for (name, result) in entries.drain(..) {
            if name == WAKE {
                self.woken.store(true, Ordering::Release);
                // A swap, to synchronise with wakers that found the flag set.
                self.waking.swap(false, Ordering::AcqRel);
                if self.closed.load(Ordering::Acquire) {
                    // Another waiter may be about to sleep: pass the wake on.
                    self.push(&mut state, &opcode::Nop::new().build().user_data(WAKE));
                    again = true;
                }
                continue;
            }
            let slot = name as usize;
            let running = state.slots[slot].as_mut().expect("an entry names an occupied slot");
            match running.advance(result, &self.files) {
                Next::Submit => {
                    self.push_slot(&mut state, slot);
                    again = true;
                }
                Next::End(result) => {
                    let running = state.slots[slot].take().expect("just seen occupied");
                    state.free.push(slot);
                    state.outstanding -= 1;
                    completions.push(running.request.end(result));
                }
            }
        }
        if again || self.unsubmitted.load(Ordering::Acquire) {
            self.enter_submit(&mut state);
        }
        self.fill(&mut state);
    }

    /// As [`Ring::reap`], but waits for at least one completion, a wake, the timeout, the end of
    /// the bank or, if `until_idle`, until nothing is in flight.
    fn wait(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        until_idle: bool,
        completions: &mut Vec<Completion>,
    ) {
        let before = completions.len();
        let mut deadline = None;
        loop {
            self.reap(completions);
            if completions.len() > before || self.closed.load(Ordering::Acquire) {
                return;
            }
            if until_idle && lock(&self.state).outstanding == 0 {
                return;
            }
            // A wake is meant for the waiter, not for a submitter that drains the bank.
            if !until_idle && self.woken.swap(false, Ordering::AcqRel) {
                return;
            }
            let left = timeout.map(|timeout| {
                let now = Instant::now();
                let deadline = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(now))
            });
            if left == Some(Duration::ZERO) {
                return;
            }
            self.sleep(1, left);
        }
    }

    /// Waits until nothing is in flight. For a thread that nobody wakes, and that alone reaps: it
    /// sleeps until there is much to reap.
    pub(super) fn finish(self: &Arc<Self>, completions: &mut Vec<Completion>) {
        loop {
            self.reap(completions);
            let state = lock(&self.state);
            if state.outstanding == 0 {
                return;
            }
            let with_kernel = state.outstanding - state.waiting.len();
            // Half of them make room for those that wait.
            let count =
                if state.waiting.is_empty() { with_kernel } else { with_kernel.div_ceil(2) };
            drop(state);
            self.sleep(count, None);
        }
    }

    /// Sleeps in the kernel until there are so many completion entries, at most for `limit`.
    fn sleep(&self, count: usize, limit: Option<Duration>) {
        const GETEVENTS: u32 = 1;
        const EXT_ARG: u32 = 8;
        const FLAGS: u32 = GETEVENTS | EXT_ARG;
        let limit = match limit {
            _ if self.unsubmitted.load(Ordering::Acquire) => Some(OFFER_AGAIN),
            limit => limit,
        };
        let timespec = limit.map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(timespec) = &timespec {
            arguments = arguments.timespec(timespec);
        }
        let submitter = self.ring.submitter();
        // SAFETY: nothing is submitted (0 entries), so the submission queue is not touched.
        // EXT_ARG says that the argument is an `io_uring_getevents_arg`, as `SubmitArgs` is, and it
        // lives until the call returns.
        let slept = unsafe { submitter.enter(0, count as u32, FLAGS, Some(&arguments)) };
        if let Err(error) = slept {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            if !matches!(errno, Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY)) {
                // This should not happen; if it does, do not spin.
                std::thread::sleep(OFFER_AGAIN);
            }
        }
    }

    /// Ends the current wait, or the next one.
    fn wake(&self) {
        if self.waking.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = lock(&self.state);
        self.push(&mut state, &opcode::Nop::new().build().user_data(WAKE));
        self.enter_submit(&mut state);
    }

    /// Waits until nothing is in flight, and ends every wait. Nothing is submitted afterwards.
    fn close(self: &Arc<Self>) {
        let mut lost = Vec::new();
        while lock(&self.state).outstanding > 0 {
            // With a limit, because the waiter of another thread may take the last completion.
            self.reap(&mut lost);
            lost.clear();
            if lock(&self.state).outstanding > 0 {
                self.sleep(1, Some(Duration::from_millis(5)));
            }
        }
        self.closed.store(true, Ordering::Release);
        self.wake();
    }
}

/// The ring of one bank.
#[derive(Debug)]
pub(super) struct RingEngine {
    ring: Arc<Ring>,
    lanes: Arc<Lanes>,
}

impl RingEngine {
    /// As [`Ring::open`].
    pub(super) fn open(files: Arc<[HostFile]>) -> Result<Self, String> {
        let ring = Arc::new(Ring::open(Arc::clone(&files))?);
        Ok(Self { ring, lanes: Arc::new(Lanes::new(files)) })
    }
}

impl Drop for RingEngine {
    /// Waits until the kernel no longer uses our buffers and files.
    fn drop(&mut self) {
        self.ring.close();
    }
}

impl Engine for RingEngine {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn submit(&mut self, request: Request) {
        self.ring.submit([request]);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.ring.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.ring.wait(None, true, completions);
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(RingWaiter(Arc::clone(&self.ring)))
    }

    fn waker(&self) -> Box<dyn Waker> {
        Box::new(RingWaker(Arc::downgrade(&self.ring)))
    }

    fn performer(&self) -> Box<dyn Performer> {
        Box::new(LanePerformer::new(&self.lanes))
    }
}

struct RingWaiter(Arc<Ring>);

impl Waiter for RingWaiter {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        self.0.wait(timeout, false, completions);
    }
}

/// Cost of a wake: an atomic operation, and one system call unless a wake is already pending.
struct RingWaker(Weak<Ring>);

impl Waker for RingWaker {
    fn wake(&self) {
        self.0.upgrade().iter().for_each(|ring| ring.wake());
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outstanding = lock(&self.state).outstanding;
        formatter.debug_struct("Ring").field("outstanding", &outstanding).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only assertions on the state itself could panic while it is locked. A slot is taken or filled
    // in one step, so a poisoned state still owns every buffer that the kernel may use.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// The entry of the next step.
    fn entry(&mut self, file: Option<&HostFile>) -> squeue::Entry {
        let (Some(file), false) = (file, matches!(self.stage, Stage::Report(_))) else {
            return opcode::Nop::new().build();
        };
        let descriptor = Fd(file.file.as_raw_fd());
        if matches!(self.stage, Stage::Stabilise) {
            return fsync(descriptor);
        }
        let done = self.done;
        match &mut self.request.operation {
            Operation::Read { offset, buffer } => {
                let rest = &mut buffer[done..];
                let bytes = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                let read = opcode::Read::new(descriptor, rest.as_mut_ptr(), bytes);
                read.offset(*offset + done as u64).build()
            }
            Operation::Write { offset, buffer, mode } => {
                let rest = &buffer[done..];
                let bytes = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                let flags = match mode {
                    WriteMode::Stable if !file.syncs_writes => ReadWriteFlags::DSYNC,
                    WriteMode::Stable | WriteMode::Cached => ReadWriteFlags::empty(),
                };
                let write = opcode::Write::new(descriptor, rest.as_ptr(), bytes);
                write.offset(*offset + done as u64).rw_flags(flags.bits() as i32).build()
            }
            Operation::Flush => fsync(descriptor),
            Operation::Discard { offset, bytes } => {
                let discard = opcode::Fallocate::new(descriptor, *bytes);
                discard.offset(*offset).mode(PUNCH_MODE.bits() as i32).build()
            }
            Operation::Allocate { offset, bytes } => {
                let allocate = opcode::Fallocate::new(descriptor, *bytes).offset(*offset);
                allocate.mode(RESERVE_MODE.bits() as i32).build()
            }
        }
    }

    /// Takes the result of the last entry, and decides what is next.
    fn advance(&mut self, result: i32, files: &[HostFile]) -> Next {
        if let Stage::Report(known) = &self.stage {
            return Next::End(known.clone());
        }
        let count = match u32::try_from(result) {
            Ok(count) => count as usize,
            Err(_) => return self.fail(Errno::from_raw_os_error(-result), files),
        };
        let file = &files[usize::from(self.request.device.0)];
        match (&self.request.operation, &self.stage) {
            (Operation::Allocate { offset, bytes }, Stage::Operate) => {
                return self.extend(file, offset + bytes);
            }
            (Operation::Allocate { offset, bytes }, _) => file.set_grown(offset + bytes),
            (Operation::Read { buffer, .. }, _) => {
                self.done += count;
                self.repeats = 0;
                return match (count, self.done < buffer.len()) {
                    // Another program has truncated the file.
                    (0, _) => Next::End(Err(DeviceError::InvalidRange)),
                    (_, true) => Next::Submit,
                    (_, false) => Next::End(Ok(())),
                };
            }
            (Operation::Write { buffer, mode, .. }, Stage::Operate) => {
                self.done += count;
                self.repeats = 0;
                let is_over = self.done >= buffer.len();
                return match count {
                    0 => Next::End(Err(io_error(&Errno::IO.into()))),
                    _ if !is_over => Next::Submit,
                    _ if *mode == WriteMode::Stable && file.syncs_writes => {
                        self.stage = Stage::Stabilise;
                        Next::Submit
                    }
                    _ => Next::End(Ok(())),
                };
            }
            (Operation::Write { .. } | Operation::Flush | Operation::Discard { .. }, _) => {}
        }
        Next::End(Ok(()))
    }

    fn fail(&mut self, errno: Errno, files: &[HostFile]) -> Next {
        let file = &files[usize::from(self.request.device.0)];
        if matches!(errno, Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::NOMEM) {
            self.repeats += 1;
            if self.repeats <= REPEATS_MAX {
                return Next::Submit;
            }
            // The kernel has no thread or no memory for it, which says nothing about the device.
            return Next::End(self.request.operation.perform(file));
        }
        match (&self.request.operation, &self.stage) {
            (Operation::Allocate { offset, bytes }, Stage::Operate)
                if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS) =>
            {
                self.extend(file, offset + bytes)
            }
            (Operation::Allocate { .. }, Stage::Stabilise) => {
                Next::End(Err(extended_in_vain(&errno.into())))
            }
            _ => Next::End(Err(io_error(&errno.into()))),
        }
    }

    /// Extends a file; its new length is made stable next.
    fn extend(&mut self, file: &HostFile, bytes: u64) -> Next {
        match file.extend_to(bytes) {
            Ok(()) => {
                self.stage = Stage::Stabilise;
                Next::Submit
            }
            Err(error) => Next::End(Err(error)),
        }
    }
}

fn fsync(descriptor: Fd) -> squeue::Entry {
    opcode::Fsync::new(descriptor).flags(io_uring::types::FsyncFlags::DATASYNC).build()
}
