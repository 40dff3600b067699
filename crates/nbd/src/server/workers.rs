//! The threads that perform requests, for all connections.
//!
//! Jobs wait in one queue. Its length is bounded by the connections times the requests that each
//! may have in flight: a connection keeps its place until its jobs are done. What a worker has done
//! goes to the mailbox of the connection, whose thread alone touches the session. A connection has
//! at most two workers for each one that is left idle, or one (the dynamic threshold of Choudhury
//! and Hahne for shared buffers): two thirds of all if it is alone, and where some connections
//! whose requests take long share them, others still get one at once.
//!
//! A flush that is taken from the queue begins after every call whose reply was sent before the
//! flush came: replies are sent when the call has returned. So those of a connection that come
//! while one of its flushes is performed are performed together when that is over.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::bell::Bell;
use super::counters::{Kind, Meters};
use super::device::{Device, Zeroing};
use crate::fault::{ErrorCode, Fault};
use crate::request::{Command, Request, RequestId};
use crate::session::Extent;

/// A request that is complete.
pub(super) struct Job {
    pub(super) request: Request,
    /// Of a write.
    pub(super) payload: Vec<u8>,
    pub(super) device: Arc<dyn Device>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) received: Instant,
}

impl Job {
    fn perform(&self) -> Result<Answer, Failure> {
        if self.mailbox.is_gone.load(Relaxed) {
            return Err(Fault::from(ErrorCode::Shutdown).into());
        }
        perform_safely(self.device.as_ref(), &self.request.command, &self.payload)
    }

    fn is_flush(&self) -> bool {
        matches!(self.request.command, Command::Flush)
    }

    /// Whether it is a write of at most so many bytes that need not be durable, which devices as a
    /// rule only take in.
    pub(super) fn is_quick(&self, bytes_max: u32) -> bool {
        matches!(
            self.request.command,
            Command::Write { length, durable: false, .. } if length <= bytes_max
        )
    }

    /// Whether the thread of a connection may perform it if it is alone: no other one keeps it
    /// long.
    pub(super) fn is_short(&self) -> bool {
        matches!(
            self.request.command,
            Command::Read { .. } | Command::Write { .. } | Command::Flush
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

/// What the thread of a connection is woken for, and its flushes.
pub(super) struct Mailbox {
    pub(super) bell: Bell,
    done: Mutex<Vec<Done>>,
    flushes: Mutex<Flushes>,
    is_gone: AtomicBool,
    /// Workers that perform a job of the connection.
    performing: AtomicUsize,
}

/// Flushes of a connection that are left to the workers.
#[derive(Default)]
struct Flushes {
    /// Those that have not begun, and when they were received.
    waiting: Vec<(RequestId, Instant)>,
    /// A job for them is in the queue or being performed. There is at most one.
    has_job: bool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            bell: Bell::new()?,
            done: Mutex::default(),
            flushes: Mutex::default(),
            is_gone: AtomicBool::new(false),
            performing: AtomicUsize::new(0),
        })
    }

    /// Nobody waits for answers any more: jobs that have not begun are not performed.
    pub(super) fn abandon(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Takes what is done. The bell rings when there is more.
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.done.lock())
    }

    fn post(&self, done: impl IntoIterator<Item = Done>) {
        let mut all = self.done.lock();
        // Whoever posted the first has rung, or will.
        let is_first = all.is_empty();
        all.extend(done);
        drop(all);
        if is_first {
            self.bell.ring();
        }
    }

    /// Adds a flush, and returns whether it needs a job.
    fn add_flush(&self, job: &Job) -> bool {
        let mut flushes = self.flushes.lock();
        flushes.waiting.push((job.request.id, job.received));
        !std::mem::replace(&mut flushes.has_job, true)
    }

    /// Takes the flushes that a job performs now.
    fn begin_flushes(&self) -> Vec<(RequestId, Instant)> {
        std::mem::take(&mut self.flushes.lock().waiting)
    }

    /// A job has performed flushes; returns whether more have come, which need another one.
    fn end_flushes(&self) -> bool {
        let mut flushes = self.flushes.lock();
        flushes.has_job = !flushes.waiting.is_empty();
        flushes.has_job
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
        if !job.is_flush() || job.mailbox.add_flush(&job) {
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
            // Nothing of the job is left when the connection may think that all of them are done.
            if job.is_flush() {
                mailbox.post(self.flush(job));
            } else {
                mailbox.post([self.end(job)]);
            }
            // This worker looks at the queue next, where a job may have waited for that.
            mailbox.performing.fetch_sub(1, Relaxed);
            has_ended = true;
        }
    }

    /// Performs a job on the thread of its connection.
    pub(super) fn perform(&self, job: Job) -> Done {
        self.meters.requests_in_flight.fetch_add(1, Relaxed);
        self.end(job)
    }

    fn end(&self, job: Job) -> Done {
        let result = job.perform();
        let Job { request, received, .. } = job;
        self.done(&request.command, request.id, received, result)
    }

    /// Performs the flushes of a connection that wait.
    fn flush(&self, job: Job) -> Vec<Done> {
        let begun = job.mailbox.begin_flushes();
        let flushed = job.perform().map(drop).map_err(|failure| failure.fault);
        let done = begun.into_iter().map(|(id, received)| {
            let result = flushed.clone().map(|()| Answer::Done).map_err(Failure::from);
            self.done(&Command::Flush, id, received, result)
        });
        let done = done.collect();
        if job.mailbox.end_flushes() {
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

/// A device that panics fails this request, not the server.
fn perform_safely(
    device: &dyn Device,
    command: &Command,
    payload: &[u8],
) -> Result<Answer, Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| perform(device, command, payload)));
    result.unwrap_or_else(|_| {
        let message = "the device failed in a way that nobody expected".to_owned();
        Err(Fault { code: ErrorCode::Io, message, offset: None }.into())
    })
}

fn perform(device: &dyn Device, command: &Command, payload: &[u8]) -> Result<Answer, Failure> {
    match *command {
        Command::Read { offset, length } => {
            let mut buffer = vec![0; length as usize];
            if let Err(fault) = device.read(offset, &mut buffer) {
                let before = fault.offset.and_then(|at| at.checked_sub(offset));
                let before = before.filter(|before| *before < u64::from(length));
                // Below the length, which fits.
                buffer.truncate(before.unwrap_or(0) as usize);
                return Err(Failure { fault, before: buffer });
            }
            return Ok(Answer::Read(buffer));
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
