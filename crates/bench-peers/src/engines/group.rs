//! Group commit for engines with one writer: while one commit is under way, others who want one
//! wait together and share the next. What the engines with a write-ahead log of many writers do
//! inside.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::failure::Failure;

/// Time between two commits that make relaxed updates durable.
#[cfg(any(feature = "lmdb", feature = "redb"))]
pub(super) const RELAXED_PERIOD: Duration = Duration::from_millis(250);

/// Gathers what many callers bring into commits.
pub(super) struct Group<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: T,
    /// Number of the commit that will take what is waiting.
    gathering: u64,
    /// Commits below this number have ended.
    ended: u64,
    is_committing: bool,
    /// Why a commit failed; all later ones fail too.
    failure: Option<String>,
}

impl<T: Default> Group<T> {
    pub(super) fn new() -> Self {
        let (waiting, is_committing, failure) = (T::default(), false, None);
        let state = State { waiting, gathering: 0, ended: 0, is_committing, failure };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Has what `bring` adds committed, together with what others bring, by `commit` of one of the
    /// callers.
    ///
    /// # Errors
    /// The failure of the commit, or of one before.
    pub(super) fn apply(
        &self,
        bring: impl FnOnce(&mut T),
        commit: impl Fn(&T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        bring(&mut state.waiting);
        let mine = state.gathering;
        loop {
            if let Some(failure) = &state.failure {
                return Err(Failure::engine(failure));
            }
            if state.ended > mine {
                return Ok(());
            }
            if state.is_committing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_committing = true;
            state.gathering += 1;
            let taken = std::mem::take(&mut state.waiting);
            drop(state);
            let done = commit(&taken);
            state = self.lock();
            state.is_committing = false;
            state.ended += 1;
            state.failure = done.err().map(|failure| failure.to_string());
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does something again and again in a thread of its own, until it is dropped.
#[cfg(any(feature = "lmdb", feature = "redb"))]
pub(super) struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[cfg(any(feature = "lmdb", feature = "redb"))]
impl Background {
    /// Starts. It ends by itself when `work` gives false.
    pub(super) fn every(period: Duration, work: impl Fn() -> bool + Send + 'static) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) && work() {}
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

#[cfg(any(feature = "lmdb", feature = "redb"))]
impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn everything_is_committed_once_and_failures_reach_all_who_come_later() {
        let (group, sum, commits) = (Group::new(), AtomicU64::new(0), AtomicU64::new(0));
        let commit = |items: &Vec<u64>| {
            commits.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(items.iter().sum(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let (group, commit) = (&group, &commit);
                scope.spawn(move || {
                    (0..20).for_each(|item| {
                        let bring = |all: &mut Vec<u64>| all.extend([caller, item]);
                        group.apply(bring, commit).expect("done");
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), 20 * (0..8).sum::<u64>() + 8 * (0..20).sum::<u64>());
        assert!(commits.into_inner() < 160);
        assert!(group.apply(|_| (), |_| Err(Failure::engine("broken"))).is_err());
        assert!(group.apply(|_| (), |_| Ok(())).is_err());
    }
}
