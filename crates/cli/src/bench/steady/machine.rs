//! The machine itself, beside a run: how long its processors ran nothing at all, and how fast they
//! and the memory were.
//!
//! A virtual machine runs only while its host lets it, and a processor is slower while another
//! shares its core. What an engine seems to wait for is then nobody's doing. On each processor a
//! thread of real-time priority, which no thread of the run keeps from running, wakes every 5 ms
//! and notes by how much it is late; every 20 ms it times a fixed piece of work of about 100 us in
//! the processor's cache, and some hundred reads of memory, of which each waits for the one before.
//! That is about a per cent of a processor. Where real-time priority is not permitted, the threads
//! run like all others, and what they see is the run itself too.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::bench::scramble;

const SLEEP: Duration = Duration::from_millis(5);
/// Sleeps from one piece of work to the next.
const SLEEPS_PER_WORK: u32 = 4;
/// Times that the buffer is hashed in a piece of work; about 100 us on a processor of 3 GHz.
const HASHES: u64 = 40;
const BUFFER_WORDS: usize = 512;
/// Words of the ring: 32 MiB, more than a processor keeps for itself.
const RING_WORDS: u32 = 8 << 20;
/// Words of the ring that are read in a piece of work, each at the place that the last one names.
const READS: u32 = 512;
/// How many times its median the work takes in a second that counts as slow.
const SLOW_RATIO: f64 = 1.5;
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 64 << 10;

/// Watches until [`Watch::end`] or until it is dropped.
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Seen>>,
}

/// What the thread of one processor saw.
#[derive(Default)]
struct Seen {
    is_real_time: bool,
    /// Longest lateness that ended in each second.
    late: Vec<Duration>,
    /// In which second each piece of work ended, and its nanoseconds.
    work: Vec<(u32, u32)>,
    /// The same for reads of memory.
    reads: Vec<(u32, u32)>,
}

/// Words of memory in a ring of random order: each is the place of the next one.
pub(super) struct Ring(Vec<u32>);

impl Ring {
    /// All of it in memory.
    pub(super) fn new() -> Self {
        let mut words: Vec<u32> = (0..RING_WORDS).collect();
        // Sattolo's shuffle leaves a single ring.
        for last in (1..words.len()).rev() {
            words.swap(last, (scramble(last as u64) % last as u64) as usize);
        }
        Self(words)
    }

    /// Its size in memory.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(self.0.as_slice()) as u64
    }

    /// Where one comes to from `place`.
    fn walk(&self, place: u32) -> u32 {
        (0..READS).fold(place, |place, _| self.0[place as usize])
    }
}

/// What was seen on all processors.
#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) processors: usize,
    /// Whether nothing of the run could keep the watch from running.
    pub(super) is_real_time: bool,
    pub(super) longest_pause_ms: f64,
    pub(super) longest_pause_second: usize,
    /// Part of the seconds in which the work took over 1.5 times its median of the whole run, half
    /// of the times or more.
    pub(super) slow_seconds_fraction: f64,
    /// How many times that median the median of the slowest second is.
    pub(super) slowest_second_ratio: f64,
    /// The same for reads of memory.
    pub(super) slowest_reads_ratio: f64,
    /// In which second they were slowest.
    pub(super) slowest_reads_second: usize,
    #[serde(skip)]
    pub(super) seconds: Vec<Second>,
}

/// One second of the machine.
#[derive(Clone, Copy, Default)]
pub(super) struct Second {
    /// Longest lateness.
    pub(super) pause_ms: f64,
    /// The slowest work in medians of the whole run; 0 if there was none. An interrupt is enough
    /// to make one slow.
    pub(super) work_ratio: f64,
    /// The median work of the second, likewise.
    pub(super) work_ratio_median: f64,
    /// The median of reads of memory, likewise.
    pub(super) reads_ratio_median: f64,
}

impl Watch {
    /// Begins; seconds count from `started`.
    pub(super) fn begin(started: Instant, ring: &Arc<Ring>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let own = sched_getaffinity(None).ok();
        let is_own = |processor: &usize| own.as_ref().is_some_and(|own| own.is_set(*processor));
        let watch = |processor| {
            let (is_over, ring) = (Arc::clone(&is_over), Arc::clone(ring));
            let body = move || {
                let is_real_time = take_processor(processor);
                Seen { is_real_time, ..watch(started, &is_over, &ring, SLEEP) }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn(body).ok()
        };
        let threads = (0..CpuSet::MAX_CPU).filter(is_own).filter_map(watch).collect();
        Self { is_over, threads }
    }

    /// What was seen in the first `seconds`.
    pub(super) fn end(mut self, seconds: usize) -> Machine {
        self.is_over.store(true, Ordering::Relaxed);
        let seen: Vec<Seen> =
            self.threads.drain(..).filter_map(|thread| thread.join().ok()).collect();
        Machine::of(&seen, seconds)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Machine {
    fn of(seen: &[Seen], count: usize) -> Self {
        let mut seconds = vec![Second::default(); count];
        for Seen { late, work, reads, .. } in seen {
            for (second, late) in seconds.iter_mut().zip(late) {
                second.pause_ms = second.pause_ms.max(late.as_secs_f64() * 1e3);
            }
            for (second, slowest, median) in by_second(work) {
                let Some(second) = seconds.get_mut(second) else { continue };
                second.work_ratio = second.work_ratio.max(slowest);
                second.work_ratio_median = second.work_ratio_median.max(median);
            }
            for (second, _, median) in by_second(reads) {
                let Some(second) = seconds.get_mut(second) else { continue };
                second.reads_ratio_median = second.reads_ratio_median.max(median);
            }
        }
        let pauses = seconds.iter().map(|second| second.pause_ms).enumerate();
        let longest = pauses.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 0.0));
        let reads = seconds.iter().map(|second| second.reads_ratio_median).enumerate();
        let slowest = reads.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 0.0));
        let ratios = seconds.iter().map(|second| second.work_ratio_median);
        let slow = ratios.clone().filter(|ratio| *ratio > SLOW_RATIO).count();
        Self {
            processors: seen.len(),
            is_real_time: !seen.is_empty() && seen.iter().all(|seen| seen.is_real_time),
            longest_pause_ms: longest.1,
            longest_pause_second: longest.0,
            slow_seconds_fraction: slow as f64 / count.max(1) as f64,
            slowest_second_ratio: ratios.fold(0.0, f64::max),
            slowest_reads_ratio: slowest.1,
            slowest_reads_second: slowest.0,
            seconds,
        }
    }
}

/// The seconds of pieces of work, and the slowest and the median piece of each, in medians of all.
fn by_second(work: &[(u32, u32)]) -> impl Iterator<Item = (usize, f64, f64)> {
    let of_all = median(work.iter().map(|(_, ns)| *ns).collect()).max(1.0);
    // What belongs to a second lies together.
    work.chunk_by(|one, next| one.0 == next.0).map(move |work| {
        let times: Vec<u32> = work.iter().map(|(_, ns)| *ns).collect();
        let slowest = f64::from(times.iter().max().copied().unwrap_or(0));
        (work[0].0 as usize, slowest / of_all, median(times) / of_all)
    })
}

/// The lower of the middle two if there are two; zero of nothing.
fn median(mut times: Vec<u32>) -> f64 {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).map_or(0.0, |ns| f64::from(*ns))
}

/// Binds the calling thread to a processor and puts it before all others there; whether it may.
fn take_processor(processor: usize) -> bool {
    let mut own = CpuSet::new();
    own.set(processor);
    let is_bound = sched_setaffinity(None, &own).is_ok();
    let real_time = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let raised = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Max, real_time);
    is_bound && raised.is_ok()
}

/// Sleeps again and again, for `sleep` where [`SLEEP`] is expected, and works now and then.
fn watch(started: Instant, is_over: &AtomicBool, ring: &Ring, sleep: Duration) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = [0; BUFFER_WORDS];
    buffer.iter_mut().zip(0..).for_each(|(word, number)| *word = scramble(number));
    let (mut slept, mut place) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let before = Instant::now();
        thread::sleep(sleep);
        let late = before.elapsed().saturating_sub(SLEEP);
        let second = started.elapsed().as_secs() as usize;
        if seen.late.len() <= second {
            seen.late.resize(second + 1, Duration::ZERO);
        }
        seen.late[second] = seen.late[second].max(late);
        slept += 1;
        if slept % SLEEPS_PER_WORK == 0 {
            let second = u32::try_from(second).unwrap_or(u32::MAX);
            seen.work.push((second, nanoseconds(|| work(&buffer)).1));
            let (next, ns) = nanoseconds(|| ring.walk(place));
            place = next;
            seen.reads.push((second, ns));
        }
    }
    seen
}

fn nanoseconds<T>(work: impl FnOnce() -> T) -> (T, u32) {
    let before = Instant::now();
    let done = black_box(work());
    (done, u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX))
}

/// The fixed work: hashes the buffer again and again.
fn work(buffer: &[u64; BUFFER_WORDS]) -> u64 {
    let hash = |hash: u64, word: &u64| scramble(hash ^ word);
    (0..HASHES).fold(0, |sum, _| black_box(buffer).iter().fold(sum, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_kept_from_running_shows_as_a_pause() {
        let (is_over, ring) = (AtomicBool::new(false), Ring(vec![0]));
        let seen = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(Instant::now(), &is_over, &ring, 4 * SLEEP));
            thread::sleep(40 * SLEEP);
            is_over.store(true, Ordering::Relaxed);
            watching.join().expect("it does not panic")
        });
        assert!(!seen.late.is_empty(), "it woke");
        let machine = Machine::of(&[seen], 100);
        assert!(machine.longest_pause_ms >= 15.0, "each sleep was 15 ms too long");
        let second = machine.seconds[machine.longest_pause_second];
        assert!(second.pause_ms >= machine.longest_pause_ms);
    }

    #[test]
    fn work_counts_in_medians_of_its_processor() {
        let late = vec![Duration::from_millis(1), Duration::ZERO, Duration::from_millis(3)];
        let reads = vec![(0, 50), (1, 100), (2, 50)];
        let fast = Seen { is_real_time: true, late, work: vec![(0, 10), (0, 11), (2, 10)], reads };
        let work = vec![(0, 100), (1, 100), (1, 160), (1, 170), (2, 100), (2, 100), (7, 900)];
        let late = vec![Duration::from_millis(2)];
        let slow = Seen { is_real_time: true, late, work, reads: Vec::new() };
        let machine = Machine::of(&[fast, slow], 3);
        let list =
            |value: fn(&Second) -> f64| machine.seconds.iter().map(value).collect::<Vec<_>>();
        assert_eq!(list(|second| second.work_ratio), [1.1, 1.7, 1.0]);
        assert_eq!(list(|second| second.work_ratio_median), [1.0, 1.6, 1.0]);
        assert_eq!(list(|second| second.reads_ratio_median), [1.0, 2.0, 1.0]);
        assert_eq!((machine.slowest_reads_ratio, machine.slowest_reads_second), (2.0, 1));
        assert_eq!(list(|second| second.pause_ms), [2.0, 0.0, 3.0]);
        assert_eq!((machine.processors, machine.is_real_time), (2, true));
        assert_eq!((machine.longest_pause_ms, machine.longest_pause_second), (3.0, 2));
        assert!((machine.slow_seconds_fraction - 1.0 / 3.0).abs() < 1e-9);
        assert!((machine.slowest_second_ratio - 1.6).abs() < 1e-9);
    }

    #[test]
    fn a_watch_ends_with_what_it_saw() {
        let machine = Watch::begin(Instant::now(), &Arc::new(Ring(vec![0]))).end(1);
        assert_eq!(machine.seconds.len(), 1);
        assert!(machine.seconds[0].pause_ms >= 0.0);
    }

    #[test]
    fn a_ring_goes_through_all_its_words() {
        let ring = Ring::new();
        let mut place = 0;
        for words in (READS..RING_WORDS).step_by(READS as usize) {
            place = ring.walk(place);
            assert_ne!(place, 0, "after {words} words");
        }
        assert_eq!(ring.walk(place), 0);
        assert_eq!(ring.bytes(), 32 << 20);
    }
}
