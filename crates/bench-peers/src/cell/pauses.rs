//! Pauses of the machine itself: times in which a processor ran nothing, not even what comes first.
//!
//! A virtual machine runs only while its host lets it. What an engine seems to wait for is then
//! nobody's doing, so a run says how long the machine paused, and when. On each processor a thread
//! of real-time priority, which no other thread keeps from running, sleeps for 2 ms again and
//! again; by how much it wakes too late is a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use super::resources::Processors;
use crate::outcome::{Pauses, Series};

const SLEEP: Duration = Duration::from_millis(2);
/// Shortest pause that counts; a clock that is late by less is nothing special.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 64 << 10;

/// Watches until [`Watch::end`] or until it is dropped.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<Series>>>,
    before: Processors,
}

impl Watch {
    /// Begins; the series will count from `started`.
    pub(crate) fn begin(started: Instant) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let watch = |processor| {
            let is_over = Arc::clone(&is_over);
            let body =
                move || take_processor(processor).then(|| watch_clock(started, &is_over, SLEEP));
            thread::Builder::new().stack_size(STACK_BYTES).spawn(body).ok()
        };
        let threads = (0..processors).filter_map(watch).collect();
        Self { is_over, threads, before: Processors::now() }
    }

    /// What was seen.
    pub(crate) fn end(mut self) -> Pauses {
        self.is_over.store(true, Ordering::Relaxed);
        let stolen_fraction = Processors::now().stolen_since(self.before);
        let mut series: Option<Series> = None;
        for seen in self.threads.drain(..).filter_map(|thread| thread.join().ok().flatten()) {
            series.get_or_insert_default().merge(&seen);
        }
        Pauses { stolen_fraction, series }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Binds the calling thread to a processor and puts it before all others there; whether it may.
fn take_processor(processor: usize) -> bool {
    let mut own = CpuSet::new();
    let bound = own.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
    let real_time = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let raised = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Max, real_time);
    bound.is_ok() && raised.is_ok()
}

/// Sleeps again and again, for `sleep` where [`SLEEP`] is expected, and notes what is too late.
fn watch_clock(started: Instant, is_over: &AtomicBool, sleep: Duration) -> Series {
    let mut series = Series::default();
    let mut woken = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(sleep);
        let late = woken.elapsed().saturating_sub(SLEEP);
        woken = Instant::now();
        if late >= PAUSE_MIN {
            series.add(started.elapsed(), 1, late);
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_kept_from_running_shows_as_a_pause() {
        let started = Instant::now();
        let is_over = AtomicBool::new(false);
        let series = thread::scope(|scope| {
            let watching = scope.spawn(|| watch_clock(started, &is_over, 10 * SLEEP));
            thread::sleep(30 * SLEEP);
            is_over.store(true, Ordering::Relaxed);
            watching.join().expect("it does not panic")
        });
        let longest = series.longest_us.iter().max().copied().unwrap_or(0);
        assert!(longest >= 18_000, "each sleep was 18 ms too long: {series:?}");
        assert!(series.counts.iter().sum::<u64>() >= 1, "{series:?}");
    }

    #[test]
    fn a_watch_ends_with_what_it_saw() {
        let Pauses { stolen_fraction, series } = Watch::begin(Instant::now()).end();
        assert!((0.0..=1.0).contains(&stolen_fraction), "{stolen_fraction}");
        let lengths = series.map(|series| (series.counts.len(), series.longest_us.len()));
        assert!(lengths.is_none_or(|(counts, longest)| counts == longest));
    }
}
