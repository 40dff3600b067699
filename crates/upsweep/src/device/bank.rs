//! Banks that several threads share: a running store does its I/O through one.
//!
//! Threads: any thread submits, under a lock that the caller provides (`&mut self`). One driver
//! thread waits through a [`Waiter`], which does not need that lock. [`Waker::wake`] ends its wait
//! from any thread. While a waiter waits, nobody may call [`Devices::reap`] or [`Devices::wait`] on
//! the bank: they would take completions from it, and might consume a wake. Invariant: dropping the
//! bank waits for the requests in flight, discards their completions, and ends all waits; waiters,
//! wakers and performers have no effect from then on.

use std::time::Duration;

use super::{Completion, DeviceId, Devices, Profile, Request};

/// A bank that several threads share.
pub trait Bank: Devices {
    /// The handle through which one driver thread waits. Cost: one reference count.
    fn waiter(&self) -> Box<dyn Waiter>;

    /// The handle that ends the wait of the waiter. Cost: one reference count.
    fn waker(&self) -> Box<dyn Waker>;

    /// The handle that performs requests on the calling thread. Cost: one reference count.
    fn performer(&self) -> Box<dyn Performer>;

    /// A description of `device` for people.
    ///
    /// # Panics
    /// If the bank has no such device.
    fn description(&self, device: DeviceId) -> DeviceDescription;

    /// The profile of `device` if it is known without a measurement; `None` if it must be measured.
    fn profile(&self, device: DeviceId) -> Option<Profile>;

    /// Bytes of storage that `device` occupies: for a file, those outside its holes.
    ///
    /// # Panics
    /// If the bank has no such device.
    fn allocated_bytes(&self, device: DeviceId) -> u64;
}

/// Waits for completions of a [`Bank`]. Meant for one driver thread; if several wait, each
/// completion goes to one of them.
pub trait Waiter: Send + Sync {
    /// Blocks until there is at least one completion, [`Waker::wake`] was called since the last
    /// return, `timeout` has passed (`None`: no limit), or the bank was dropped; then appends all
    /// available completions to `completions`. May also return early.
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>);
}

/// Ends the wait of a [`Waiter`].
pub trait Waker: Send + Sync {
    /// Makes the current wait return, or the next one if nobody waits. Several calls before the
    /// waiter returns count as one.
    fn wake(&self);
}

/// Performs requests of a [`Bank`] on the calling thread, which waits for the device.
pub trait Performer: Send + Sync {
    /// Performs one request and returns its completion, which is an error once the bank has been
    /// dropped. No other thread has to be woken.
    #[must_use]
    fn perform(&self, request: Request) -> Completion;

    /// Performs these requests, and returns their completions in any order. Their tokens differ. A
    /// bank that can has them in flight together; by default it is one after another.
    #[must_use]
    fn perform_all(&self, requests: Vec<Request>) -> Vec<Completion> {
        requests.into_iter().map(|request| self.perform(request)).collect()
    }

    /// Performs one request, and calls `meanwhile`, which may perform others. A bank that can has
    /// the request in flight by then; by default it comes afterwards.
    #[must_use]
    fn perform_beside(&self, request: Request, meanwhile: &mut dyn FnMut()) -> Completion {
        meanwhile();
        self.perform(request)
    }
}

/// A description of one device of a bank for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Path or name.
    pub name: String,
    /// How requests reach it: `"io_uring"`, `"thread pool"` or `"memory"`.
    pub engine: &'static str,
    /// Whether I/O bypasses the page cache of the host.
    pub direct: bool,
    /// The reasons for the engine, the caching and the block sizes.
    pub reasons: Vec<String>,
}
