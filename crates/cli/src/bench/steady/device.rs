//! The device itself, beside a run: how long a small read and a small write of a file of its own
//! take, past the page cache.
//!
//! What an engine seems to wait for may be a device that answers nobody. Every 20 ms a thread reads
//! and writes 4 KiB, the write until it is stable, as the log's are: 100 requests a second. They
//! share the device's queue with the run, so they are longer under load; one that takes a tenth of
//! a second is the device's doing, or the file system's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

const SLEEP: Duration = Duration::from_millis(20);
const FILE_BYTES: usize = 1 << 20;
const REQUEST_BYTES: usize = 4096;
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 64 << 10;

/// The longest that ended in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Longest {
    pub(super) read: Duration,
    pub(super) write: Duration,
}

/// Watches until [`DeviceWatch::end`] or until it is dropped.
pub(super) struct DeviceWatch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Longest>>>,
}

impl DeviceWatch {
    /// Begins, with a new file in `folder`; seconds count from `started`. Where the file system
    /// takes no direct I/O nothing is seen.
    pub(super) fn begin(started: Instant, folder: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = create(&folder.join("watch")).ok().and_then(|file| {
            let is_over = Arc::clone(&is_over);
            let body = move || watch(started, &file, &is_over);
            thread::Builder::new().stack_size(STACK_BYTES).spawn(body).ok()
        });
        Self { is_over, thread }
    }

    /// What was seen, by seconds; nothing if it was not watched, or up to the first error.
    pub(super) fn end(mut self) -> Vec<Longest> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A file that was written once, so that no later write changes where it lies.
fn create(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags)
        .open(path)?;
    let mut buffer = vec![0; FILE_BYTES + REQUEST_BYTES];
    file.write_all_at(&aligned(&mut buffer)[..FILE_BYTES], 0)?;
    file.sync_all()?;
    Ok(file)
}

/// From the first place on that direct I/O takes.
fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let start = buffer.as_ptr().align_offset(REQUEST_BYTES);
    &mut buffer[start..]
}

fn watch(started: Instant, file: &File, is_over: &AtomicBool) -> Vec<Longest> {
    let mut seen = Vec::new();
    let mut buffer = vec![0; 2 * REQUEST_BYTES];
    let buffer = &mut aligned(&mut buffer)[..REQUEST_BYTES];
    let places = FILE_BYTES / REQUEST_BYTES;
    for place in (0..places).cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(SLEEP);
        let offset = (place * REQUEST_BYTES) as u64;
        let before = Instant::now();
        if file.read_exact_at(buffer, offset).is_err() {
            break;
        }
        let read = before.elapsed();
        note(&mut seen, started, |longest| longest.read = longest.read.max(read));
        let before = Instant::now();
        if file.write_all_at(buffer, offset).is_err() {
            break;
        }
        let write = before.elapsed();
        note(&mut seen, started, |longest| longest.write = longest.write.max(write));
    }
    seen
}

fn note(seen: &mut Vec<Longest>, started: Instant, note: impl FnOnce(&mut Longest)) {
    let second = started.elapsed().as_secs() as usize;
    if seen.len() <= second {
        seen.resize(second + 1, Longest::default());
    }
    note(&mut seen[second]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_timed_until_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = Instant::now();
        let watch = DeviceWatch::begin(started, folder.path());
        let is_watched = watch.thread.is_some();
        thread::sleep(10 * SLEEP);
        let seen = watch.end();
        assert_eq!(seen.is_empty(), !is_watched);
        let longest = seen.iter().map(|longest| longest.read + longest.write).max();
        assert!(longest.is_none_or(|longest| !longest.is_zero() && longest <= started.elapsed()));
    }

    #[test]
    fn where_there_is_no_folder_nothing_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let watch = DeviceWatch::begin(Instant::now(), &folder.path().join("missing"));
        assert_eq!(watch.end(), []);
    }
}
