//! The thread pool: positioned, blocking I/O on a few threads, for hosts that refuse io_uring.
//!
//! Requests queue in order of submission and run on [`THREADS`] threads, so that up to that many
//! overlap. The caller bounds the queue: it bounds its requests in flight.
//!
//! Invariants: a request is in the queue, with one thread, or in the list of completions, so it
//! completes exactly once. Its buffer belongs to whoever has the request, so no memory is shared
//! with the kernel beyond a system call. Closing runs the queued requests, then joins the threads.

#![expect(clippy::disallowed_methods, reason = "the thread pool is made of threads and waits")]
#![expect(clippy::disallowed_types, reason = "the thread pool is made of threads and locks")]

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use super::Engine;
use super::file::HostFile;
use crate::device::bank::{Performer, Waiter, Waker};
use crate::device::completions::Completions;
use crate::device::{Completion, DeviceError, Operation, Request};

/// Threads of one bank.
pub(super) const THREADS: usize = 4;

/// A running pool.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the threads, the submitter and the waiters share.
#[derive(Debug)]
struct Shared {
    files: Arc<[HostFile]>,
    queue: Mutex<Queue>,
    /// Signalled when there is work in the queue, or when it closes.
    work: Condvar,
    completions: Arc<Completions>,
}

#[derive(Debug, Default)]
struct Queue {
    /// And where their completions go.
    requests: VecDeque<(Request, Arc<Completions>)>,
    closing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section keeps its data consistent at every step, even when it unwinds.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system if it cannot start even one thread.
    pub(super) fn start(files: Arc<[HostFile]>) -> std::io::Result<Self> {
        let (queue, work) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { files, queue, work, completions: Arc::default() });
        let mut pool = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for number in 0..THREADS {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("upsweep-io-{number}"));
            match builder.spawn(move || shared.serve()) {
                Ok(thread) => pool.threads.push(thread),
                // Fewer threads also work, with less overlap.
                Err(_) if number > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pool)
    }
}

impl Engine for Pool {
    fn name(&self) -> &'static str {
        "thread pool"
    }

    /// Counts the request before any thread can complete it.
    fn submit(&mut self, request: Request) {
        self.shared.queue(&mut lock(&self.shared.queue), request, &self.shared.completions);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.shared.completions.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.shared.completions.await_some(None, true, completions);
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(Arc::clone(&self.shared.completions))
    }

    fn waker(&self) -> Box<dyn Waker> {
        Box::new(Arc::clone(&self.shared.completions))
    }

    fn performer(&self) -> Box<dyn Performer> {
        let alone = CallingThread(Arc::downgrade(&self.shared.files));
        Box::new(PoolPerformer { pool: Arc::downgrade(&self.shared), alone })
    }
}

/// Performs requests on the calling thread, and one beside something else on a thread of the pool.
struct PoolPerformer {
    pool: Weak<Shared>,
    alone: CallingThread,
}

impl Performer for PoolPerformer {
    fn perform(&self, request: Request) -> Completion {
        self.alone.perform(request)
    }

    fn perform_beside(&self, request: Request, meanwhile: &mut dyn FnMut()) -> Completion {
        let begun = match self.pool.upgrade() {
            Some(pool) => pool.begin(request),
            None => Err(request),
        };
        meanwhile();
        match begun {
            Ok(completions) => {
                let mut done = Vec::new();
                completions.await_some(None, true, &mut done);
                done.pop().expect("the pool completes what it has taken")
            }
            Err(request) => self.alone.perform(request),
        }
    }
}

/// Performs requests one after another on the calling thread. Cost of one: a system call.
pub(super) struct CallingThread(pub(super) Weak<[HostFile]>);

impl Performer for CallingThread {
    fn perform(&self, request: Request) -> Completion {
        let Some(files) = self.0.upgrade() else {
            return request.end(Err(DeviceError::gone()));
        };
        match check(&files, &request) {
            Ok(()) => run(&files, request),
            Err(error) => request.end(Err(error)),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic of the thread; there is nobody to tell here.
            let _ = thread.join();
        }
        self.shared.completions.close();
    }
}

impl Shared {
    /// Queues a request, whose completion goes to `to`.
    fn queue(&self, queue: &mut Queue, request: Request, to: &Arc<Completions>) {
        to.expect();
        if let Err(error) = check(&self.files, &request) {
            return to.add(request.end(Err(error)));
        }
        queue.requests.push_back((request, Arc::clone(to)));
        self.work.notify_one();
    }

    /// Queues a request for a thread that waits for it, and returns where its completion goes. Once
    /// the pool closes it gives the request back.
    fn begin(&self, request: Request) -> Result<Arc<Completions>, Request> {
        let mut queue = lock(&self.queue);
        if queue.closing {
            return Err(request);
        }
        let completions = Arc::default();
        self.queue(&mut queue, request, &completions);
        Ok(completions)
    }

    /// The main loop of one thread.
    fn serve(&self) {
        while let Some((request, to)) = self.next() {
            to.add(run(&self.files, request));
        }
    }

    fn next(&self) -> Option<(Request, Arc<Completions>)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.requests.pop_front() {
                return Some(next);
            }
            if queue.closing {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Checks that the request names a device of the bank and a range that is valid for it.
pub(super) fn check(files: &[HostFile], request: &Request) -> Result<(), DeviceError> {
    let file = files.get(usize::from(request.device.0)).ok_or(DeviceError::InvalidRange)?;
    request.operation.check(&file.geometry())
}

/// Runs one request that passed [`check`] on the calling thread.
fn run(files: &[HostFile], mut request: Request) -> Completion {
    let file = &files[usize::from(request.device.0)];
    let result = request.operation.perform(file);
    request.end(result)
}

impl Operation {
    /// Performs the operation on the calling thread.
    pub(super) fn perform(&mut self, file: &HostFile) -> Result<(), DeviceError> {
        match self {
            Self::Read { offset, buffer } => file.read(*offset, buffer),
            Self::Write { offset, buffer, mode } => file.write(*offset, buffer, *mode),
            Self::Flush => file.flush(),
            Self::Discard { offset, bytes } => file.discard(*offset, *bytes),
            Self::Allocate { offset, bytes } => file.allocate(*offset, *bytes),
        }
    }
}
