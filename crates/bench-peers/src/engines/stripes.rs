//! Locks that keep two callers from one key, for engines that read, modify and write.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Update;

/// Number of locks: far more than the square of the keys of a batch, so that two batches rarely
/// meet at one by chance.
const STRIPES: usize = 1 << 16;

/// One lock for each of many parts of the keys.
pub(super) struct Stripes(Vec<Mutex<()>>);

impl Stripes {
    pub(super) fn new() -> Self {
        Self((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    /// Locks the keys of all updates, always in the same order, so that no two callers wait for
    /// each other.
    pub(super) fn lock(&self, updates: &[Update<'_>]) -> Vec<MutexGuard<'_, ()>> {
        let mut places: Vec<usize> = updates.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        let lock = |place| -> MutexGuard<'_, ()> {
            let stripe: &Mutex<()> = &self.0[place];
            stripe.lock().unwrap_or_else(PoisonError::into_inner)
        };
        places.into_iter().map(lock).collect()
    }
}

fn place(update: &Update<'_>) -> usize {
    let mut hasher = DefaultHasher::new();
    update.key.hash(&mut hasher);
    usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or(0)
}
