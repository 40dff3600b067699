//! The threads that perform requests, for all connections.
//!
//! Jobs wait in one queue. Its length is bounded by the connections times the requests that each
//! may have in flight: a connection keeps its place until its jobs are done. What a worker has done
//! goes to the mailbox of the connection, whose thread alone touches the session.
//!
//! A flush that is taken from the queue begins after every call whose reply was sent before the
//! flush came: replies are sent when the call has returned.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
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
    /// Whether the thread of a connection may perform it: no other one keeps it long.
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

/// What the thread of a connection is woken for.
pub(super) struct Mailbox {
    pub(super) bell: Bell,
    done: Mutex<Vec<Done>>,
    is_gone: AtomicBool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let (done, is_gone) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Ok(Self { bell: Bell::new()?, done, is_gone })
    }

    /// Nobody waits for answers any more: jobs that have not begun are not performed.
    pub(super) fn abandon(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Takes what is done. The bell rings when there is more.
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.done.lock())
    }

    fn post(&self, done: Done) {
        let mut all = self.done.lock();
        all.push(done);
        // Whoever posted the first has rung, or will.
        let is_first = all.len() == 1;
        drop(all);
        if is_first {
            self.bell.ring();
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// The queue of the workers.
pub(super) struct Pool {
    queue: Mutex<Queue>,
    wake: Condvar,
    meters: Arc<Meters>,
}

impl Pool {
    pub(super) fn new(meters: Arc<Meters>) -> Self {
        Self { queue: Mutex::new(Queue::default()), wake: Condvar::new(), meters }
    }

    /// Starts so many workers. They end when the pool is closed.
    pub(super) fn start(self: &Arc<Self>, count: usize) -> io::Result<Vec<JoinHandle<()>>> {
        let mut workers = Vec::new();
        for number in 0..count {
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
        self.queue.lock().jobs.push_back(job);
        self.wake.notify_one();
    }

    /// Lets the workers end once the queue is empty.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wake.notify_all();
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let mailbox = Arc::clone(&job.mailbox);
            // Nothing of the job is left when the connection may think that all of them are done.
            let done = self.end(job);
            mailbox.post(done);
        }
    }

    /// Performs a job on the thread of its connection.
    pub(super) fn perform(&self, job: Job) -> Done {
        self.meters.requests_in_flight.fetch_add(1, Relaxed);
        self.end(job)
    }

    fn end(&self, job: Job) -> Done {
        let Job { request, payload, device, mailbox, received } = job;
        let result = if mailbox.is_gone.load(Relaxed) {
            Err(Failure::from(Fault::from(ErrorCode::Shutdown)))
        } else {
            perform_safely(device.as_ref(), &request.command, &payload)
        };
        let bytes = result.as_ref().ok().map(|_| request.command.range().1);
        self.meters.answered(Kind::of(&request.command), bytes, received.elapsed());
        self.meters.requests_in_flight.fetch_sub(1, Relaxed);
        Done { id: request.id, result }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }
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
