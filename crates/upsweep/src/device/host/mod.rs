//! The production bank: files and raw block devices of the host.
//!
//! Requests go through io_uring where the kernel allows it, otherwise through a thread pool. The
//! rest of the system does not notice the difference; [`HostDevices::description`] says which one
//! is used and why.
//!
//! All differences between operating systems are in [`os`].
//!
//! Invariants: every request completes exactly once; buffers belong to the bank while their request
//! is in flight.

mod file;
#[cfg(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix")))]
mod lanes;
pub(super) mod os;
mod pool;
mod stable;
#[cfg(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix")))]
mod uring;

use std::sync::Arc;

use super::bank::{Bank, DeviceDescription, Performer, Waiter, Waker};
use super::{Completion, DeviceId, Devices, Geometry, Profile, Request};
use crate::error::{Error, RequestError};
use file::HostFile;
pub use file::HostPath;
use pool::Pool;

/// How the requests of a bank reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where the kernel allows it, otherwise the thread pool.
    #[default]
    Automatic,
    /// io_uring; opening fails where the kernel refuses it.
    IoUring,
    /// The thread pool.
    ThreadPool,
}

/// Options of [`HostDevices::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// How requests reach the kernel.
    pub engine: EngineChoice,
    /// Whether to bypass the page cache where the file system supports it.
    pub direct: bool,
    /// Whether to open the devices for reading only, which also works on read-only media.
    pub read_only: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { engine: EngineChoice::Automatic, direct: true, read_only: false }
    }
}

/// A bank of files and raw block devices.
#[derive(Debug)]
pub struct HostDevices {
    files: Arc<[HostFile]>,
    engine: Box<dyn Engine>,
    /// Why this engine was chosen.
    engine_reason: String,
}

/// How requests reach the kernel. Dropping it waits for the requests in flight.
trait Engine: Send + std::fmt::Debug {
    fn name(&self) -> &'static str;
    fn submit(&mut self, request: Request);
    fn reap(&mut self, completions: &mut Vec<Completion>);
    /// As [`Devices::wait`].
    fn wait(&mut self, completions: &mut Vec<Completion>);
    fn waiter(&self) -> Box<dyn Waiter>;
    fn waker(&self) -> Box<dyn Waker>;
    fn performer(&self) -> Box<dyn Performer>;
}

/// The engine of [`EngineChoice::IoUring`], or why it is not available.
#[cfg(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix")))]
fn open_ring(files: Arc<[HostFile]>) -> Result<Box<dyn Engine>, String> {
    Ok(Box::new(uring::RingEngine::open(files)?))
}

#[cfg(not(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix"))))]
fn open_ring(_: Arc<[HostFile]>) -> Result<Box<dyn Engine>, String> {
    Err("this program was built without support for io_uring".to_owned())
}

impl HostDevices {
    /// Opens every path, in the order of device numbers.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`] or [`RequestError::Path`] for a path that cannot be created
    /// or opened; [`RetryError::InUse`](crate::RetryError::InUse) for a file or block device that
    /// is in use: try again when its user has closed it; [`RequestError::BadConfig`] for more than
    /// 65535 paths, if io_uring is required but refused, or if the host cannot start a thread.
    pub fn open(paths: &[HostPath], options: HostOptions) -> Result<Self, Error> {
        Self::open_with(paths, options, open_ring)
    }

    /// As [`HostDevices::open`]. `open_ring` opens a ring or says why it cannot.
    fn open_with(
        paths: &[HostPath],
        options: HostOptions,
        open_ring: impl FnOnce(Arc<[HostFile]>) -> Result<Box<dyn Engine>, String>,
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
}

impl Bank for HostDevices {
    fn waiter(&self) -> Box<dyn Waiter> {
        self.engine.waiter()
    }

    fn waker(&self) -> Box<dyn Waker> {
        self.engine.waker()
    }

    fn performer(&self) -> Box<dyn Performer> {
        self.engine.performer()
    }

    fn description(&self, device: DeviceId) -> DeviceDescription {
        let file = &self.files[usize::from(device.0)];
        let mut reasons = vec![self.engine_reason.clone()];
        reasons.extend(file.reasons.iter().cloned());
        let name = file.path.display().to_string();
        let engine = self.engine.name();
        DeviceDescription { name, engine, direct: file.direct, reasons }
    }

    fn profile(&self, _: DeviceId) -> Option<Profile> {
        None
    }

    /// Cost: one system call.
    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.files[usize::from(device.0)].allocated_bytes()
    }
}

/// The requested engine or the best one that works, and why. `open_ring` opens a ring or says why
/// it cannot.
fn choose(
    files: &Arc<[HostFile]>,
    choice: EngineChoice,
    open_ring: impl FnOnce() -> Result<Box<dyn Engine>, String>,
) -> Result<(Box<dyn Engine>, String), Error> {
    let reason = match (choice, open_ring) {
        (EngineChoice::ThreadPool, _) => "thread pool, as requested".to_owned(),
        (EngineChoice::IoUring, open_ring) => {
            let ring = open_ring().map_err(bad_engine)?;
            return Ok((ring, "io_uring, as requested".to_owned()));
        }
        (EngineChoice::Automatic, open_ring) => match open_ring() {
            Ok(ring) => return Ok((ring, "io_uring: the kernel allows it".to_owned())),
            Err(refusal) => format!("thread pool: {refusal}"),
        },
    };
    let pool = Pool::start(Arc::clone(files)).map_err(|error| {
        bad_engine(format!("cannot start a thread for the thread pool: {error}"))
    })?;
    Ok((Box::new(pool), reason))
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
        self.engine.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.engine.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.engine.wait(completions);
    }
}

#[cfg(test)]
mod tests;
