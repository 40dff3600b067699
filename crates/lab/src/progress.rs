//! Work on several processors, and a bar that shows how much of it is done.
//!
//! An experiment hands its independent measurements to [`Progress::each`]. At most as many of them
//! run at a time as there are processors, those of all experiments together. Results come back in
//! the order of the measurements, so that how they are scheduled has no effect.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::problem::Problem;

/// Shared by all experiments of a run.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Processors that nothing runs on.
    free: Mutex<usize>,
    freed: Condvar,
}

impl Progress {
    /// With all processors that there are; shown if standard error is a terminal.
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} measurements, {elapsed}");
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, free: Mutex::new(processors), freed: Condvar::new() }
    }

    /// Measures each of `all`.
    ///
    /// # Errors
    /// The problem of the first that has one; [`Problem::Simulation`] if one panics.
    pub(crate) fn each<T: Sync, R: Send>(
        &self,
        all: &[T],
        measure: impl Fn(&T) -> Result<R, Problem> + Sync,
    ) -> Result<Vec<R>, Problem> {
        self.bar.inc_length(all.len() as u64);
        let measure = &measure;
        thread::scope(|scope| {
            let start = |one| {
                scope.spawn(move || {
                    let _processor = self.processor();
                    let result = measure(one);
                    self.bar.inc(1);
                    result
                })
            };
            let threads: Vec<_> = all.iter().map(start).collect();
            let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
            results.map(|result| result.unwrap_or_else(|panic| Err(panicked(&*panic)))).collect()
        })
    }

    /// Prints without disturbing the bar.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a processor.
    fn processor(&self) -> Processor<'_> {
        let mut free = self.free();
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Processor(self)
    }
}

/// A processor that something runs on; free again when dropped.
struct Processor<'a>(&'a Progress);

impl Drop for Processor<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
    }
}

/// What a panic said.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Problem {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Problem::Simulation(format!("it panicked: {}", text.unwrap_or("without a text")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_are_in_order_and_no_more_run_than_there_are_processors() {
        let progress = Progress::new();
        *progress.free() = 2;
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let all: Vec<u64> = (0..20).collect();
        let doubled = progress.each(&all, |number| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(2 * number)
        });
        assert_eq!(doubled, Ok((0..20).map(|number| 2 * number).collect()));
        assert!((1..=2).contains(&most.into_inner()));
        assert_eq!(*progress.free(), 2);
    }

    #[test]
    fn a_panic_is_a_problem_and_gives_its_processor_back() {
        let progress = Progress::new();
        *progress.free() = 1;
        let result = progress.each(&[1, 2, 3], |number| {
            assert_ne!(*number, 2, "two");
            Ok(*number)
        });
        assert!(matches!(&result, Err(Problem::Simulation(text)) if text.contains("two")));
        assert_eq!(*progress.free(), 1);
    }
}
