//! The bank of production: files and raw block devices of the host.
//!
//! Requests go through io_uring where the kernel allows it, else through a thread pool; the rest
//! of the system cannot tell the difference, and [`HostDevices::description`] says which it is
//! and why.
//!
//! Threads: any thread submits, under a lock of the caller's (`&mut self`). One driver thread
//! waits through a [`Waiter`], which needs no such lock. [`Waker::wake`] ends its wait from any
//! thread. While a waiter waits, nobody calls [`Devices::reap`] or [`Devices::wait`] on the bank:
//! they would take completions away from it, and may swallow a wake. Invariants: every request
//! completes exactly once; buffers belong to the bank while their request is in flight; dropping
//! the bank waits for what is in flight, and its completions are lost.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::io::Errno;

use super::file::{HostFile, HostPath};
use super::pool::{self, Pool};
use super::uring::Ring;
use super::{Completion, DeviceError, DeviceId, Devices, Geometry, Request};
use crate::error::{Error, RequestError};

/// How the requests of a bank reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where the kernel allows it, else the thread pool.
    #[default]
    Automatic,
    /// io_uring, or an error where it is refused.
    IoUring,
    /// The thread pool.
    ThreadPool,
}

/// Options of [`HostDevices::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// How requests reach the kernel.
    pub engine: EngineChoice,
    /// Whether to bypass the page cache where the file system allows it.
    pub direct: bool,
    /// Whether the devices are only read: they may then be on read-only media.
    pub read_only: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { engine: EngineChoice::Automatic, direct: true, read_only: false }
    }
}

/// What was chosen for one device, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDescription {
    /// The file or block device.
    pub path: PathBuf,
    /// `"io_uring"` or `"thread pool"`.
    pub engine: &'static str,
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// Why the engine, the caching and the block sizes are as they are.
    pub reasons: Vec<String>,
}

/// A bank of files and raw block devices.
#[derive(Debug)]
pub struct HostDevices {
    files: Arc<[HostFile]>,
    engine: Engine,
    /// Why this engine.
    engine_reason: String,
}

#[derive(Debug)]
enum Engine {
    Ring(Arc<Ring>),
    Pool(Pool),
}

impl HostDevices {
    /// Opens every path, in the order of device numbers.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`] or [`RequestError::Path`] for a path that cannot be created
    /// or opened; [`RetryError::InUse`](crate::RetryError::InUse) for a block device in use;
    /// [`RequestError::BadConfig`] for more than 65535 paths, if io_uring is demanded and refused,
    /// or if the host gives no thread.
    pub fn open(paths: &[HostPath], options: HostOptions) -> Result<Self, Error> {
        Self::open_with(paths, options, Ring::open)
    }

    /// As [`HostDevices::open`], with a way to open a ring that says why there is none.
    pub(super) fn open_with(
        paths: &[HostPath],
        options: HostOptions,
        open_ring: impl FnOnce(Arc<[HostFile]>) -> Result<Ring, String>,
    ) -> Result<Self, Error> {
        if paths.len() > usize::from(u16::MAX) {
            let reason = format!("{} paths; the limit is {}", paths.len(), u16::MAX);
            return Err(RequestError::BadConfig { setting: "paths", reason }.into());
        }
        let files: Result<Vec<HostFile>, Error> =
            paths.iter().map(|path| HostFile::open(path, &options)).collect();
        let files: Arc<[HostFile]> = files?.into();
        let (engine, engine_reason) =
            choose(&files, options.engine, || open_ring(Arc::clone(&files)))?;
        Ok(Self { files, engine, engine_reason })
    }

    /// What was chosen for `device`, and why.
    ///
    /// # Panics
    /// If the bank has no such device.
    #[must_use]
    pub fn description(&self, device: DeviceId) -> HostDescription {
        let file = &self.files[usize::from(device.0)];
        let engine = match &self.engine {
            Engine::Ring(_) => "io_uring",
            Engine::Pool(_) => "thread pool",
        };
        let mut reasons = vec![self.engine_reason.clone()];
        reasons.extend(file.reasons.iter().cloned());
        HostDescription { path: file.path.clone(), engine, direct: file.direct, reasons }
    }

    /// Bytes that the file system has allocated for `device`, without its holes; the size of a raw
    /// block device. Cost: one system call.
    ///
    /// # Panics
    /// If the bank has no such device.
    #[must_use]
    pub fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.files[usize::from(device.0)].allocated_bytes()
    }

    /// Replaces what the host says about `device`, from a measurement
    /// ([`probe`](super::probe)): virtual disks often claim to rotate.
    ///
    /// # Panics
    /// If the bank has no such device.
    pub fn set_rotational(&mut self, device: DeviceId, rotational: bool) {
        self.files[usize::from(device.0)].set_rotational(rotational);
    }

    /// The end of the bank that one driver thread waits on, without a lock on the bank. Cost: one
    /// reference count.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        let shared = match &self.engine {
            Engine::Ring(ring) => SharedEngine::Ring(Arc::clone(ring)),
            Engine::Pool(pool) => SharedEngine::Pool(Arc::clone(pool.shared())),
        };
        Waiter { shared }
    }
}

impl HostDevices {
    /// A handle that does requests on the calling thread, as long as the bank is there.
    #[must_use]
    pub fn performer(&self) -> Performer {
        Performer { files: Arc::downgrade(&self.files) }
    }
}

/// Does requests of a [`HostDevices`] on the thread that calls it, which waits for the device.
#[derive(Clone, Debug)]
pub struct Performer {
    files: Weak<[HostFile]>,
}

impl Performer {
    /// Does one request to its end; it fails once the bank is gone. Cost: one system call, and no
    /// other thread has to be woken.
    #[must_use]
    pub fn perform(&self, request: Request) -> Completion {
        let Some(files) = self.files.upgrade() else {
            let errno = Errno::BADF.raw_os_error();
            return request.end(Err(DeviceError::Failed { errno }));
        };
        match pool::check(&files, &request) {
            Ok(()) => pool::run(&files, request),
            Err(error) => request.end(Err(error)),
        }
    }
}

/// The engine that was asked for or the best that works, and why. `open_ring` says in words why
/// the kernel has no ring.
fn choose(
    files: &Arc<[HostFile]>,
    choice: EngineChoice,
    open_ring: impl FnOnce() -> Result<Ring, String>,
) -> Result<(Engine, String), Error> {
    let reason = match (choice, open_ring) {
        (EngineChoice::ThreadPool, _) => "thread pool, as asked for".to_owned(),
        (EngineChoice::IoUring, open_ring) => {
            let ring = open_ring().map_err(bad_engine)?;
            return Ok((Engine::Ring(Arc::new(ring)), "io_uring, as asked for".to_owned()));
        }
        (EngineChoice::Automatic, open_ring) => match open_ring() {
            Ok(ring) => {
                let reason = "io_uring: the kernel allows it".to_owned();
                return Ok((Engine::Ring(Arc::new(ring)), reason));
            }
            Err(refusal) => format!("thread pool: {refusal}"),
        },
    };
    let pool = Pool::start(Arc::clone(files)).map_err(|error| {
        bad_engine(format!("the host refuses to start a thread for the thread pool: {error}"))
    })?;
    Ok((Engine::Pool(pool), reason))
}

impl Drop for HostDevices {
    fn drop(&mut self) {
        match &self.engine {
            // Waits for what the kernel still does to our buffers and files.
            Engine::Ring(ring) => ring.close(),
            // The pool does the same when it is dropped.
            Engine::Pool(_) => {}
        }
    }
}

fn bad_engine(reason: String) -> Error {
    RequestError::BadConfig { setting: "io_engine", reason }.into()
}

impl Devices for HostDevices {
    fn count(&self) -> u16 {
        self.files.len() as u16
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.files[usize::from(device.0)].geometry()
    }

    fn submit(&mut self, request: Request) {
        match &mut self.engine {
            Engine::Ring(ring) => ring.submit(request),
            Engine::Pool(pool) => pool.submit(request),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        match &self.engine {
            Engine::Ring(ring) => ring.reap(completions),
            Engine::Pool(pool) => pool.shared().reap(completions),
        }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        match &self.engine {
            Engine::Ring(ring) => ring.wait(None, true, completions),
            Engine::Pool(pool) => pool.shared().wait(None, true, completions),
        }
    }
}

/// Waits for completions of a [`HostDevices`]. Meant for one driver thread; with several, each
/// completion goes to one of them.
#[derive(Clone, Debug)]
pub struct Waiter {
    shared: SharedEngine,
}

#[derive(Clone, Debug)]
enum SharedEngine {
    Ring(Arc<Ring>),
    Pool(Arc<pool::Shared>),
}

impl Waiter {
    /// Appends what has completed to `completions`; blocks until that is at least one completion,
    /// or [`Waker::wake`] was called since the last return, or `timeout` has passed (`None`: no
    /// limit), or the bank was dropped. May also return early without any of these.
    pub fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        match &self.shared {
            SharedEngine::Ring(ring) => ring.wait(timeout, false, completions),
            SharedEngine::Pool(pool) => pool.wait(timeout, false, completions),
        }
    }

    /// A handle that ends the wait from another thread, as long as the bank is there.
    #[must_use]
    pub fn waker(&self) -> Waker {
        let shared = match &self.shared {
            SharedEngine::Ring(ring) => WeakEngine::Ring(Arc::downgrade(ring)),
            SharedEngine::Pool(pool) => WeakEngine::Pool(Arc::downgrade(pool)),
        };
        Waker { shared }
    }
}

#[derive(Clone, Debug)]
enum WeakEngine {
    Ring(Weak<Ring>),
    Pool(Weak<pool::Shared>),
}

/// Ends the wait of a [`Waiter`].
#[derive(Clone, Debug)]
pub struct Waker {
    shared: WeakEngine,
}

impl Waker {
    /// Makes the present wait return, or the next one if nobody waits. Several calls before the
    /// waiter returns count as one. Cost: a lock or an atomic, and one system call unless it is
    /// woken already.
    pub fn wake(&self) {
        match &self.shared {
            WeakEngine::Ring(ring) => ring.upgrade().iter().for_each(|ring| ring.wake()),
            WeakEngine::Pool(pool) => pool.upgrade().iter().for_each(|pool| pool.wake()),
        }
    }
}
