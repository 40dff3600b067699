//! Banks that threads share: what a running store does its I/O with.
//!
//! Threads: any thread submits, under a lock of the caller's (`&mut self`). One driver thread
//! waits through a [`Waiter`], which needs no such lock. [`Waker::wake`] ends its wait from any
//! thread. While a waiter waits, nobody calls [`Devices::reap`] or [`Devices::wait`] on the bank:
//! they would take completions away from it, and may swallow a wake. Invariant: dropping the bank
//! waits for what is in flight, whose completions are lost, and ends all waits; what a waiter, a
//! waker or a performer does from then on has no effect.

use std::time::Duration;

use super::{Completion, DeviceId, DeviceProfile, Devices, Request};

/// A bank that threads share.
pub trait Bank: Devices {
    /// The end of the bank that one driver thread waits on. Cost: one reference count.
    fn waiter(&self) -> Box<dyn Waiter>;

    /// What ends the wait of the waiter. Cost: one reference count.
    fn waker(&self) -> Box<dyn Waker>;

    /// What does requests on the calling thread. Cost: one reference count.
    fn performer(&self) -> Box<dyn Performer>;

    /// What `device` is, for people.
    ///
    /// # Panics
    /// If the bank has no such device.
    fn description(&self, device: DeviceId) -> DeviceDescription;

    /// What is known of `device` without a measurement; `None` if it is to be measured.
    fn profile(&self, device: DeviceId) -> Option<DeviceProfile>;

    /// Bytes of `device` that take space where it lies: a file without its holes.
    ///
    /// # Panics
    /// If the bank has no such device.
    fn allocated_bytes(&self, device: DeviceId) -> u64;
}

/// Waits for completions of a [`Bank`]. Meant for one driver thread; with several, each completion
/// goes to one of them.
pub trait Waiter: Send + Sync {
    /// Appends what has completed to `completions`; blocks until that is at least one completion,
    /// or [`Waker::wake`] was called since the last return, or `timeout` has passed (`None`: no
    /// limit), or the bank was dropped. May also return early without any of these.
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>);
}

/// Ends the wait of a [`Waiter`].
pub trait Waker: Send + Sync {
    /// Makes the present wait return, or the next one if nobody waits. Several calls before the
    /// waiter returns count as one.
    fn wake(&self);
}

/// Does requests of a [`Bank`] on the thread that calls it, which waits for the device.
pub trait Performer: Send + Sync {
    /// Does one request to its end; it fails once the bank is gone. No other thread has to be
    /// woken.
    #[must_use]
    fn perform(&self, request: Request) -> Completion;
}

/// What a device of a bank is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Path or name.
    pub name: String,
    /// How requests reach it: `"io_uring"`, `"thread pool"`, `"memory"`.
    pub engine: &'static str,
    /// Whether the page cache of the host is bypassed.
    pub direct: bool,
    /// Why the engine, the caching and the block sizes are as they are.
    pub reasons: Vec<String>,
}
