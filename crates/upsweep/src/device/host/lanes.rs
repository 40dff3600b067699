//! Rings for threads that perform several requests at a time and wait for them.
//!
//! The completions of a ring go to whoever reaps it, so a thread that waits for its own requests
//! needs one to itself: a lane. Lanes are opened when all are taken, so there are as many as there
//! were ever such threads at the same time, and kept until the bank is dropped.
//!
//! Invariant: a lane has nothing in flight when it is not taken.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::HostFile;
use super::pool::CallingThread;
use super::uring::Ring;
use crate::device::bank::Performer;
use crate::device::{Completion, Request};

/// The lanes of one bank.
#[derive(Debug)]
pub(super) struct Lanes {
    files: Arc<[HostFile]>,
    free: Mutex<Vec<Arc<Ring>>>,
}

impl Lanes {
    pub(super) fn new(files: Arc<[HostFile]>) -> Self {
        Self { files, free: Mutex::default() }
    }

    /// A lane for the caller; `None` if the system has no resources for another one.
    fn take(&self) -> Option<Arc<Ring>> {
        let free = self.free.lock().pop();
        free.or_else(|| Ring::open(Arc::clone(&self.files)).ok().map(Arc::new))
    }

    /// Begins requests in a lane, or gives them back if there is none.
    fn begin<R>(this: Option<&Self>, requests: R) -> Result<InLane<'_>, R>
    where
        R: IntoIterator<Item = Request>,
    {
        let taken = this.and_then(|lanes| Some((lanes, lanes.take()?)));
        let Some((lanes, lane)) = taken else { return Err(requests) };
        lane.submit(requests);
        Ok(InLane { lanes, lane })
    }
}

/// Requests in a lane. Dropping it waits for them.
struct InLane<'a> {
    lanes: &'a Lanes,
    lane: Arc<Ring>,
}

impl InLane<'_> {
    fn finish(self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.lane.finish(&mut completions);
        completions
    }
}

impl Drop for InLane<'_> {
    fn drop(&mut self) {
        self.lane.finish(&mut Vec::new());
        self.lanes.free.lock().push(Arc::clone(&self.lane));
    }
}

/// Performs one request on the calling thread; several, or one beside something else, in a lane.
/// Cost of one: a system call; in a lane: two system calls, and one for each time that the thread
/// has to wait.
pub(super) struct LanePerformer {
    lanes: Weak<Lanes>,
    alone: CallingThread,
}

impl LanePerformer {
    pub(super) fn new(lanes: &Arc<Lanes>) -> Self {
        let alone = CallingThread(Arc::downgrade(&lanes.files));
        Self { lanes: Arc::downgrade(lanes), alone }
    }
}

impl Performer for LanePerformer {
    fn perform(&self, request: Request) -> Completion {
        self.alone.perform(request)
    }

    fn perform_all(&self, requests: Vec<Request>) -> Vec<Completion> {
        let lanes = self.lanes.upgrade().filter(|_| requests.len() > 1);
        match Lanes::begin(lanes.as_deref(), requests) {
            Ok(begun) => begun.finish(),
            Err(requests) => self.alone.perform_all(requests),
        }
    }

    fn perform_beside(&self, request: Request, meanwhile: &mut dyn FnMut()) -> Completion {
        let lanes = self.lanes.upgrade();
        let begun = Lanes::begin(lanes.as_deref(), [request]);
        meanwhile();
        match begun {
            Ok(begun) => begun.finish().pop().expect("each request has a completion"),
            Err([request]) => self.alone.perform(request),
        }
    }
}
