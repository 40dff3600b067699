//! The threads that perform requests, for all connections.
//!
//! Jobs wait in one queue. Its length is bounded by the connections times the requests that each
//! may have in flight: a connection keeps its place until its jobs are done. What a worker has done
//! goes to the mailbox of the connection, whose thread alone touches the session. A connection has
//! at most two workers for each one that is left idle, or one (the dynamic threshold of Choudhury
//! and Hahne for shared buffers): two thirds of all if it is alone, and where some connections
//! whose requests take long share them, others still get one at once.
//!
//! Flushes of a connection, and its short reads, are performed together: those that come while as
//! many jobs of their kind are under way as may be wait until one of these is over. A flush begins
//! after every call whose reply was sent before the flush came has returned, or accepted a write;
//! so one for all that wait is enough, and there is one at a time. Reads that wait share changes of
//! threads and calls of the system.
//!
//! A write that the device has accepted keeps its worker until it is over. So the workers also
//! limit how many are on their way to the devices.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::bell::Bell;
use super::counters::{Kind, Meters};
use super::device::{Device, IncomingWrite, Zeroing};
use crate::fault::{ErrorCode, Fault};
use crate::request::{Command, Request, RequestId};
use crate::session::Extent;

/// Reads of at most this length are performed together.
const SHORT_READ_BYTES_MAX: u32 = 1 << 16;
/// How many are at most.
const READS_TOGETHER_MAX: usize = 8;
/// In how many jobs of a connection at the same time, at least and at most.
const READ_JOBS: RangeInclusive<usize> = 4..=16;

/// A request that is complete.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) payload: Payload,
    pub(super) device: Arc<dyn Device>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) received: Instant,
}

/// The payload of a write; nothing for other requests.
pub(super) enum Payload {
    Own(Vec<u8>),
    /// In memory of the device.
    Begun(Box<dyn IncomingWrite>),
}

impl Default for Payload {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Payload {
    /// Room for so many bytes, unless a device has begun with some.
    pub(super) fn of(length: u32, begun: Option<Box<dyn IncomingWrite>>) -> Self {
        begun.map_or_else(|| Self::Own(vec![0; length as usize]), Self::Begun)
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Begun(write) => write.payload(),
        }
    }
}

/// How many processors this process may use.
fn processors() -> usize {
    static COUNT: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    *COUNT
}

/// Requests of a connection that are performed together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    Flushes,
    Reads,
}

impl Kin {
    /// How many jobs of a connection there are at most: for reads two for each processor, as one
    /// waits for the device while another one is prepared.
    fn jobs_max(self) -> usize {
        match self {
            Self::Flushes => 1,
            Self::Reads => (2 * processors()).clamp(*READ_JOBS.start(), *READ_JOBS.end()),
        }
    }

    /// How many requests are performed in a job at most.
    fn together_max(self) -> usize {
        match self {
            Self::Flushes => usize::MAX,
            Self::Reads => READS_TOGETHER_MAX,
        }
    }
}

impl Job {
    /// Performs it, and calls `accepted` if the client may have its reply before it is over.
    fn perform(&mut self, accepted: &mut dyn FnMut()) -> Result<Answer, Failure> {
        match std::mem::take(&mut self.payload) {
            Payload::Own(payload) => {
                self.safely(|device| perform(device, &self.request.command, &payload))?
            }
            Payload::Begun(write) => {
                self.safely(|_| write.perform(accepted))??;
                Ok(Answer::Done)
            }
        }
    }

    /// A device that panics fails its requests, not the server.
    fn safely<T>(&self, perform: impl FnOnce(&dyn Device) -> T) -> Result<T, Fault> {
        if self.mailbox.is_gone.load(Relaxed) {
            return Err(ErrorCode::Shutdown.into());
        }
        let result = catch_unwind(AssertUnwindSafe(|| perform(self.device.as_ref())));
        result.map_err(|_| {
            let message = "the device failed in a way that nobody expected".to_owned();
            Fault { code: ErrorCode::Io, message, offset: None }
        })
    }

    /// Performs several reads.
    fn read_all<'a>(
        &self,
        commands: impl Iterator<Item = &'a Command>,
    ) -> Vec<Result<Answer, Failure>> {
        let mut buffers: Vec<(u64, Vec<u8>)> = commands
            .map(Command::range)
            .map(|(offset, bytes)| (offset, vec![0; bytes as usize]))
            .collect();
        let mut reads: Vec<(u64, &mut [u8])> =
            buffers.iter_mut().map(|(offset, buffer)| (*offset, &mut buffer[..])).collect();
        let together = self.safely(|device| {
            let results = device.read_all(&mut reads);
            assert_eq!(results.len(), reads.len(), "each read has a result");
            results
        });
        let results = together.unwrap_or_else(|_| {
            // If it has panicked, each alone tells which one makes it do so.
            let alone = |(offset, buffer): &mut (u64, &mut [u8])| {
                self.safely(|device| device.read(*offset, buffer)).flatten()
            };
            reads.iter_mut().map(alone).collect()
        });
        let read = results.into_iter().zip(buffers);
        read.map(|(result, (offset, buffer))| answer_of_read(result, offset, buffer)).collect()
    }

    /// With which other requests of the connection it is performed together.
    fn kin(&self) -> Option<Kin> {
        match self.request.command {
            Command::Flush => Some(Kin::Flushes),
            Command::Read { length, .. } if length <= SHORT_READ_BYTES_MAX => Some(Kin::Reads),
            _ => None,
        }
    }

    /// Whether it is a write of at most so many bytes that need not be durable, which devices as a
    /// rule only take in.
    pub(super) fn is_quick(&self, bytes_max: u32) -> bool {
        let Payload::Own(_) = self.payload else { return false };
        matches!(
            self.request.command,
            Command::Write { length, durable: false, .. } if length <= bytes_max
        )
    }

    /// Whether the thread of a connection may perform it if it is alone: no other one keeps it
    /// long, and the client gets its reply at the end.
    pub(super) fn is_short(&self) -> bool {
        matches!(
            (&self.request.command, &self.payload),
            (Command::Read { .. } | Command::Flush, _) | (Command::Write { .. }, Payload::Own(_))
        )
    }
}

/// What came of a job.
pub(super) struct Done {
    pub(super) id: RequestId,
    pub(super) result: Result<Answer, Failure>,
}

pub(super) enum Answer {
    Done,
    Read(Vec<u8>),
    Status(Vec<Vec<Extent>>),
}

pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Of a read, what is there before the fault.
    pub(super) before: Vec<u8>,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { fault, before: Vec::new() }
    }
}

/// What the thread of a connection is woken for, and what is performed together.
pub(super) struct Mailbox {
    pub(super) bell: Bell,
    posted: Mutex<Posted>,
    flushes: Mutex<Together>,
    reads: Mutex<Together>,
    is_gone: AtomicBool,
    /// Workers that perform a job of the connection.
    performing: AtomicUsize,
}

/// What came of jobs.
#[derive(Default)]
struct Posted {
    done: Vec<Done>,
    /// Writes that are not over, although what came of them has been posted.
    accepted: usize,
}

/// Requests of a connection that are left to the workers, to be performed together.
#[derive(Default)]
struct Together {
    /// Those that have not begun, and when they were received.
    waiting: VecDeque<(Request, Instant)>,
    /// Jobs for them that are in the queue or being performed.
    jobs: usize,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            bell: Bell::new()?,
            posted: Mutex::default(),
            flushes: Mutex::default(),
            reads: Mutex::default(),
            is_gone: AtomicBool::new(false),
            performing: AtomicUsize::new(0),
        })
    }

    /// Nobody waits for answers any more: jobs that have not begun are not performed.
    pub(super) fn abandon(&self) {
        let _posted = self.posted.lock();
        self.is_gone.store(true, Relaxed);
    }

    /// Takes what is done. The bell rings when there is more.
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.posted.lock().done)
    }

    /// Whether all writes are over of which what came of them has been posted. If not, the bell of
    /// an abandoned mailbox rings when they are.
    pub(super) fn are_accepted_over(&self) -> bool {
        self.posted.lock().accepted == 0
    }

    fn post(&self, done: impl IntoIterator<Item = Done>) {
        self.post_and(0, done);
    }

    /// Posts what came of a write that is not over.
    fn post_accepted(&self, done: Done) {
        self.post_and(1, [done]);
    }

    fn post_and(&self, accepted: usize, done: impl IntoIterator<Item = Done>) {
        let mut posted = self.posted.lock();
        posted.accepted += accepted;
        // Whoever posted the first has rung, or will.
        let was_empty = posted.done.is_empty();
        posted.done.extend(done);
        let is_first = was_empty && !posted.done.is_empty();
        drop(posted);
        if is_first {
            self.bell.ring();
        }
    }

    /// A write is over that was accepted.
    fn end_accepted(&self) {
        let mut posted = self.posted.lock();
        posted.accepted -= 1;
        let is_awaited = posted.accepted == 0 && self.is_gone.load(Relaxed);
        drop(posted);
        if is_awaited {
            self.bell.ring();
        }
    }

    fn together(&self, kin: Kin) -> &Mutex<Together> {
        match kin {
            Kin::Flushes => &self.flushes,
            Kin::Reads => &self.reads,
        }
    }

    /// Adds a request, and returns whether it needs a job.
    fn add(&self, kin: Kin, job: &Job) -> bool {
        let mut together = self.together(kin).lock();
        together.waiting.push_back((job.request.clone(), job.received));
        let is_new = together.jobs < kin.jobs_max();
        together.jobs += usize::from(is_new);
        is_new
    }

    /// Takes the requests that a job performs now.
    fn begin(&self, kin: Kin) -> Vec<(Request, Instant)> {
        let waiting = &mut self.together(kin).lock().waiting;
        let count = waiting.len().min(kin.together_max());
        waiting.drain(..count).collect()
    }

    /// A job has performed what it took; returns whether more wait, which need another one.
    fn end(&self, kin: Kin) -> bool {
        let mut together = self.together(kin).lock();
        let goes_on = !together.waiting.is_empty();
        together.jobs -= usize::from(!goes_on);
        goes_on
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Workers that perform a job.
    performing: usize,
    is_closed: bool,
}

/// The queue of the workers.
pub(super) struct Pool {
    queue: Mutex<Queue>,
    wake: Condvar,
    meters: Arc<Meters>,
    workers: usize,
}

impl Pool {
    /// A pool of so many workers.
    pub(super) fn new(workers: usize, meters: Arc<Meters>) -> Self {
        Self { queue: Mutex::new(Queue::default()), wake: Condvar::new(), meters, workers }
    }

    /// Starts the workers. They end when the pool is closed.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<Vec<JoinHandle<()>>> {
        let mut workers = Vec::new();
        for number in 0..self.workers {
            let pool = Arc::clone(self);
            let builder = std::thread::Builder::new().name(format!("upsweep-nbd-{number}"));
            match builder.spawn(move || pool.work()) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
        }
        Ok(workers)
    }

    /// Leaves a job to the workers.
    pub(super) fn submit(&self, job: Job) {
        self.meters.requests_in_flight.fetch_add(1, Relaxed);
        if job.kin().is_none_or(|kin| job.mailbox.add(kin, &job)) {
            self.queue.lock().jobs.push_back(job);
            self.wake.notify_one();
        }
    }

    /// Lets the workers end once the queue is empty.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wake.notify_all();
    }

    fn work(&self) {
        let mut has_ended = false;
        while let Some(job) = self.next(has_ended) {
            let mailbox = Arc::clone(&job.mailbox);
            match job.kin() {
                Some(kin) => mailbox.post(self.end_together(kin, job)),
                None => self.end(job),
            }
            // This worker looks at the queue next, where a job may have waited for that.
            mailbox.performing.fetch_sub(1, Relaxed);
            has_ended = true;
        }
    }

    /// Performs a job on the thread of its connection.
    pub(super) fn perform(&self, mut job: Job) -> Done {
        self.meters.requests_in_flight.fetch_add(1, Relaxed);
        let result = job.perform(&mut || ());
        let Job { request, received, .. } = job;
        self.done(&request.command, request.id, received, result)
    }

    /// Performs a job of a worker, and posts what came of it as soon as the client may know.
    fn end(&self, mut job: Job) {
        let (mailbox, request, received) =
            (Arc::clone(&job.mailbox), job.request.clone(), job.received);
        let done = |result| self.done(&request.command, request.id, received, result);
        let mut is_posted = false;
        let result = job.perform(&mut || {
            if !std::mem::replace(&mut is_posted, true) {
                mailbox.post_accepted(done(Ok(Answer::Done)));
            }
        });
        let done = (!is_posted).then(|| done(result));
        // Nothing of the job is left when the connection may think that all of them are over.
        drop(job);
        match done {
            Some(done) => mailbox.post([done]),
            None => mailbox.end_accepted(),
        }
    }

    /// Performs what waits of a connection to be performed together.
    fn end_together(&self, kin: Kin, mut job: Job) -> Vec<Done> {
        let begun = job.mailbox.begin(kin);
        let results = match kin {
            // Another job has taken all that waited.
            _ if begun.is_empty() => Vec::new(),
            Kin::Flushes => {
                let flushed = job.perform(&mut || ()).map(drop).map_err(|failure| failure.fault);
                let of_each = || flushed.clone().map(|()| Answer::Done).map_err(Failure::from);
                begun.iter().map(|_| of_each()).collect()
            }
            Kin::Reads => job.read_all(begun.iter().map(|(request, _)| &request.command)),
        };
        let done = begun.into_iter().zip(results).map(|((request, received), result)| {
            self.done(&request.command, request.id, received, result)
        });
        let done = done.collect();
        if job.mailbox.end(kin) {
            // A worker comes for it: this one, if all others have something to do.
            self.queue.lock().jobs.push_back(job);
        }
        done
    }

    fn done(
        &self,
        command: &Command,
        id: RequestId,
        received: Instant,
        result: Result<Answer, Failure>,
    ) -> Done {
        let bytes = result.as_ref().ok().map(|_| command.range().1);
        self.meters.answered(Kind::of(command), bytes, received.elapsed());
        self.meters.requests_in_flight.fetch_sub(1, Relaxed);
        Done { id, result }
    }

    /// The first job of a connection that may have another worker, once this one has ended its
    /// last.
    fn next(&self, has_ended: bool) -> Option<Job> {
        let mut queue = self.queue.lock();
        queue.performing -= usize::from(has_ended);
        loop {
            if let Some(nth) = queue.first(self.workers) {
                let job = queue.jobs.remove(nth).expect("it is there");
                job.mailbox.performing.fetch_add(1, Relaxed);
                queue.performing += 1;
                // What has ended may have made room for several.
                if queue.performing < self.workers && queue.first(self.workers).is_some() {
                    self.wake.notify_one();
                }
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }
}

impl Queue {
    /// The first job that an idle one of so many workers may perform.
    fn first(&self, workers: usize) -> Option<usize> {
        let idle = workers - self.performing - 1;
        let may = |job: &Job| may_have_another(job.mailbox.performing.load(Relaxed), idle);
        self.jobs.iter().position(may)
    }
}

/// Whether a connection that has so many workers may have another one, which leaves so many idle.
fn may_have_another(performing: usize, idle: usize) -> bool {
    performing == 0 || performing < 2 * idle
}

/// What came of a read at this offset, which has left `buffer`.
fn answer_of_read(
    result: Result<(), Fault>,
    offset: u64,
    mut buffer: Vec<u8>,
) -> Result<Answer, Failure> {
    let Err(fault) = result else { return Ok(Answer::Read(buffer)) };
    let before = fault.offset.and_then(|at| at.checked_sub(offset));
    let before = before.filter(|before| *before < buffer.len() as u64);
    // Below the length, which fits.
    buffer.truncate(before.unwrap_or(0) as usize);
    Err(Failure { fault, before: buffer })
}

fn perform(device: &dyn Device, command: &Command, payload: &[u8]) -> Result<Answer, Failure> {
    match *command {
        Command::Read { offset, length } => {
            let mut buffer = vec![0; length as usize];
            return answer_of_read(device.read(offset, &mut buffer), offset, buffer);
        }
        Command::BlockStatus { offset, length, ref contexts, extents_max } => {
            let of = |context| device.status(context, offset, length, extents_max);
            return Ok(Answer::Status(contexts.iter().map(of).collect::<Result<_, _>>()?));
        }
        Command::Write { offset, durable, .. } => device.write(offset, payload, durable)?,
        Command::Flush => device.flush()?,
        Command::Trim { offset, length, durable } => device.trim(offset, length, durable)?,
        Command::Cache { offset, length } => device.cache(offset, length)?,
        Command::WriteZeroes { offset, length, durable, no_hole, fast } => {
            device.write_zeroes(offset, length, Zeroing { durable, no_hole, fast })?;
        }
    }
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many workers each of several connections gets that come one after another
    /// and keep what they get.
    fn shares(workers: usize, connections: usize) -> Vec<usize> {
        let mut left = workers;
        let get = |_| {
            let mut own = 0;
            while left > 0 && may_have_another(own, left - 1) {
                (own, left) = (own + 1, left - 1);
            }
            own
        };
        (0..connections).map(get).collect()
    }

    #[test]
    fn several_connections_that_keep_workers_leave_some_to_others() {
        assert_eq!(shares(24, 5), [16, 5, 2, 1, 0]);
        assert_eq!(shares(3, 3), [2, 1, 0]);
        assert_eq!(shares(2, 3), [1, 1, 0]);
        assert_eq!(shares(1, 2), [1, 0]);
        assert_eq!(shares(256, 8), [170, 57, 19, 6, 2, 1, 1, 0]);
    }
}
