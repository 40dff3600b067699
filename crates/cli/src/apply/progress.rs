//! The progress bar of `apply`: lines, rate, queue memory, position of the sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use indicatif::ProgressBar;
use upsweep::Store;

use crate::context::Context;
use crate::{output, text};

/// A bar, and the thread that draws it; both end when this is dropped.
pub(super) struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    bar: ProgressBar,
    lines: AtomicU64,
    bytes: AtomicU64,
    ended: AtomicBool,
}

impl Progress {
    /// Starts a bar if standard error is a terminal. `length` is that of the input, in bytes.
    pub(super) fn start(context: &Context, store: &Store, length: Option<u64>) -> Option<Self> {
        let template = match length {
            Some(_) => "[{bar:7}] {percent:>3}%  {wide_msg}",
            None => "{spinner} {bytes:>10}  {wide_msg}",
        };
        let bar = context.progress(length, template)?;
        let (lines, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { bar, lines, bytes, ended: AtomicBool::new(false) });
        let (seen, store) = (Arc::clone(&shared), store.clone());
        let thread = Some(std::thread::spawn(move || draw(&seen, &store)));
        Some(Self { shared, thread })
    }

    /// The bar, if it is on the terminal that standard output goes to as well.
    pub(super) fn on_output(&self, context: &Context) -> Option<ProgressBar> {
        context.output().is_terminal().then(|| self.shared.bar.clone())
    }

    /// `lines` lines were taken by now, `more_bytes` of input more than before.
    pub(super) fn note(&self, lines: u64, more_bytes: usize) {
        self.shared.lines.store(lines, Ordering::Relaxed);
        self.shared.bytes.fetch_add(more_bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic while drawing does not matter to the updates.
            drop(thread.join());
        }
        self.shared.bar.finish_and_clear();
    }
}

fn draw(shared: &Shared, store: &Store) {
    let started = Instant::now();
    while !shared.ended.load(Ordering::Relaxed) {
        let lines = shared.lines.load(Ordering::Relaxed);
        let rate = lines as f64 / started.elapsed().as_secs_f64().max(1e-3);
        shared.bar.set_position(shared.bytes.load(Ordering::Relaxed));
        let status = store.status();
        let (queues, sweep) = (status.memory.queues, status.sweep.progress);
        shared.bar.set_message(message(lines, rate, queues, sweep));
        std::thread::park_timeout(output::PROGRESS_EVERY);
    }
}

/// All that moves, short enough to stand beside a bar on 80 columns.
fn message(lines: u64, rate: f64, queues: u64, sweep: Option<f64>) -> String {
    let sweep = match sweep {
        Some(progress) => format!("sweep {:.0}%", progress * 100.0),
        None => "no sweep".to_owned(),
    };
    let queues = text::size(queues);
    let (lines, rate) = (text::count(lines), text::rate(rate));
    format!("{lines} lines  {rate}/s  queues {queues}  {sweep}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_message_fits_beside_a_bar() {
        let message = message(9_999_999_999, 9_999_999.0, (1 << 30) - 1, Some(1.0));
        assert_eq!(message, "9,999,999,999 lines  9,999,999/s  queues 1024.0 MiB  sweep 100%");
        let bar = "[=======] 100%  ".len();
        assert!(bar + message.len() <= 80, "{message}");
    }
}
