//! The thread pool: positioned, blocking I/O on a few threads, for hosts that refuse io_uring.
//!
//! Requests queue in the order of submission and run on [`THREADS`] threads, so that many of them
//! overlap. The queue holds what the caller has in flight, which the caller bounds.
//!
//! Invariants: a request is in the queue, with one thread, or in the list of completions, so it
//! completes exactly once; its buffer is owned by whoever has the request, so no memory is shared
//! with the kernel beyond a system call. Closing runs what is queued, then joins the threads.

#![expect(clippy::disallowed_methods, reason = "the thread pool is made of threads and waits")]
#![expect(clippy::disallowed_types, reason = "the thread pool is made of threads and locks")]

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::file::HostFile;
use super::{Completion, DeviceError, Operation, Request};

/// Threads of one bank.
pub(super) const THREADS: usize = 4;

/// A running pool.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads, the submitter and the waiters share.
#[derive(Debug)]
pub(super) struct Shared {
    files: Arc<[HostFile]>,
    queue: Mutex<Queue>,
    /// There is work in the queue, or it closes.
    work: Condvar,
    done: Mutex<Done>,
    /// There is something in `done` for a waiter.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Request>,
    closing: bool,
}

#[derive(Debug, Default)]
struct Done {
    completions: Vec<Completion>,
    /// Submitted and not handed out yet.
    outstanding: usize,
    woken: bool,
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves its data consistent at every step, also when unwinding.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the system says if it gives no thread at all.
    pub(super) fn start(files: Arc<[HostFile]>) -> std::io::Result<Self> {
        let (queue, done) = (Mutex::default(), Mutex::default());
        let (work, changed) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { files, queue, work, done, changed });
        let mut pool = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for number in 0..THREADS {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("upsweep-io-{number}"));
            match builder.spawn(move || shared.serve()) {
                Ok(thread) => pool.threads.push(thread),
                // Fewer threads work as well, only with less overlap.
                Err(_) if number > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pool)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Queues a request; it is counted before any thread can complete it.
    pub(super) fn submit(&mut self, request: Request) {
        let mut done = lock(&self.shared.done);
        done.outstanding += 1;
        if let Err(error) = check(&self.shared.files, &request) {
            done.completions.push(request.end(Err(error)));
            self.shared.changed.notify_one();
            return;
        }
        drop(done);
        lock(&self.shared.queue).requests.push_back(request);
        self.shared.work.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported by its hook; there is nobody to tell here.
            let _ = thread.join();
        }
        lock(&self.shared.done).closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// The life of one thread.
    fn serve(&self) {
        while let Some(request) = self.next() {
            let completion = run(&self.files, request);
            lock(&self.done).completions.push(completion);
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Option<Request> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(request) = queue.requests.pop_front() {
                return Some(request);
            }
            if queue.closing {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands out what has completed, without waiting.
    pub(super) fn reap(&self, completions: &mut Vec<Completion>) {
        self.hand_out(&mut lock(&self.done), completions);
    }

    fn hand_out(&self, done: &mut Done, completions: &mut Vec<Completion>) {
        done.outstanding -= done.completions.len();
        completions.append(&mut done.completions);
        if done.outstanding == 0 {
            // Another thread may wait for nothing being in flight.
            self.changed.notify_all();
        }
    }

    /// Hands out what has completed; waits for at least one completion, a wake, the timeout, the
    /// end of the pool or, if `until_idle`, nothing being in flight.
    pub(super) fn wait(
        &self,
        timeout: Option<Duration>,
        until_idle: bool,
        completions: &mut Vec<Completion>,
    ) {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut done = lock(&self.done);
        loop {
            let idle = until_idle && done.outstanding == 0;
            if !done.completions.is_empty() || done.closed || idle {
                break;
            }
            // A wake is for the waiter, not for the submitter who drains.
            if !until_idle && std::mem::take(&mut done.woken) {
                break;
            }
            done = match deadline {
                None => self.changed.wait(done).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(done, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.hand_out(&mut done, completions);
    }

    /// Ends the present or next wait.
    pub(super) fn wake(&self) {
        let mut done = lock(&self.done);
        if !std::mem::replace(&mut done.woken, true) {
            self.changed.notify_all();
        }
    }
}

/// Whether the request names a device of the bank, and a range that it takes.
pub(super) fn check(files: &[HostFile], request: &Request) -> Result<(), DeviceError> {
    let file = files.get(usize::from(request.device.0)).ok_or(DeviceError::InvalidRange)?;
    request.operation.check(&file.geometry())
}

/// Runs one request that passed [`check`] to its end on the calling thread.
pub(super) fn run(files: &[HostFile], mut request: Request) -> Completion {
    let file = &files[usize::from(request.device.0)];
    let result = request.operation.perform(file);
    request.end(result)
}

impl Operation {
    /// Does it to its end on the calling thread.
    pub(super) fn perform(&mut self, file: &HostFile) -> Result<(), DeviceError> {
        match self {
            Self::Read { offset, buffer } => file.read(*offset, buffer),
            Self::Write { offset, buffer, durability } => file.write(*offset, buffer, *durability),
            Self::Flush => file.flush(),
            Self::Discard { offset, bytes } => file.discard(*offset, *bytes),
            Self::Allocate { offset, bytes } => file.allocate(*offset, *bytes),
        }
    }
}
