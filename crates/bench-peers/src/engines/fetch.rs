//! Reads of many keys at once, before a batch changes their records one after the other.

use std::thread;

use crate::engine::{Change, Update};

/// Updates from which their keys are read by several threads.
const TOGETHER_MIN: usize = 16;
/// Keys of a thread.
const TOGETHER_KEYS: usize = 8;

/// Brings the records of all increments into caches before they are changed one after the other:
/// several threads read at once, so that the device is busy. Failures are left to the reads that
/// follow.
pub(super) fn fetch(updates: &[Update<'_>], read: impl Fn(&[u8]) + Sync) {
    let is_increment = |update: &&Update<'_>| matches!(update.change, Change::Increment);
    let keys: Vec<&[u8]> = updates.iter().filter(is_increment).map(|update| update.key).collect();
    if keys.len() < TOGETHER_MIN {
        return;
    }
    thread::scope(|scope| {
        for part in keys.chunks(TOGETHER_KEYS) {
            let read = &read;
            scope.spawn(move || part.iter().for_each(|key| read(key)));
        }
    });
}

/// [`fetch`] for engines whose commits go one after the other: there the caller reads the record of
/// a single update itself, for there are many callers then.
pub(super) fn fetch_before_commit(updates: &[Update<'_>], read: impl Fn(&[u8]) + Sync) {
    match updates {
        [update] => read(update.key),
        _ => fetch(updates, read),
    }
}
