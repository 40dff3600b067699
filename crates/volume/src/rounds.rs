//! Work that is done once for all who ask for it at about the same time.
//!
//! Who asks takes part in the next round that begins; one of those who wait for it does the work.
//! So whatever came before the call is covered, and at most two rounds are waited for.

use parking_lot::{Condvar, Mutex};

/// Rounds of one kind of work.
#[derive(Default)]
pub struct Rounds {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// How many have begun.
    begun: u64,
    /// The last one that succeeded.
    succeeded: u64,
    is_running: bool,
}

impl Rounds {
    /// Returns once the work has been done in a round that began after the call. If it failed,
    /// everyone tries it for himself.
    pub fn join<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        let own = state.begun + 1;
        while state.is_running {
            self.over.wait(&mut state);
            if state.succeeded >= own {
                return Ok(());
            }
        }
        state.begun += 1;
        state.is_running = true;
        let number = state.begun;
        drop(state);
        let running = Running(self);
        let worked = work();
        if worked.is_ok() {
            self.state.lock().succeeded = number;
        }
        drop(running);
        worked
    }
}

/// A round; it is over when this is dropped, also if the work panics.
struct Running<'a>(&'a Rounds);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_running = false;
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_who_ask_get_a_round_that_began_later() {
        let (rounds, counter, seen) = (Rounds::default(), AtomicU64::new(0), AtomicU64::new(0));
        let works = AtomicU64::new(0);
        let work = || {
            works.fetch_add(1, Ordering::Relaxed);
            let now = counter.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(200));
            seen.fetch_max(now, Ordering::SeqCst);
            Ok::<(), ()>(())
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let own = counter.fetch_add(1, Ordering::SeqCst) + 1;
                        rounds.join(work).expect("it works");
                        assert!(seen.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
        assert!(works.into_inner() < 400, "some were done for several");
    }

    #[test]
    fn a_round_that_fails_is_tried_again_by_the_others() {
        let (rounds, works) = (Rounds::default(), AtomicU64::new(0));
        let work = || {
            std::thread::sleep(Duration::from_millis(1));
            match works.fetch_add(1, Ordering::Relaxed) {
                0 => Err("the first one"),
                _ => Ok(()),
            }
        };
        let failed = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| rounds.join(work))).collect();
            all.into_iter().filter_map(|one| one.join().expect("no panic").err()).count()
        });
        assert_eq!(failed, 1);
    }
}
