//! The protocol of callers, without threads and locks: the runtime and the simulator share it.
//!
//! A caller with many records [submits](Offers) them one after another, under one lock except for
//! waits. A caller that waits for durability is in the [group](Groups) of its batch, and is
//! answered with it. A change that waits for room without a thread is [parked](Parking).
//!
//! Invariants: each of the records is accepted once, in order; a group is answered when its batch
//! is durable or the store is closed, and not before; parked changes are accepted in order of
//! arrival.

use std::collections::{BTreeMap, VecDeque};

use crate::broken::{self, Fault};
use crate::engine::{Accept, Core, LoggedUpdate};
use crate::error::Error;
use crate::log::{Seq, Urgency};

/// Maximum number of parked changes submitted under one lock.
const PORTION: usize = 64;

/// Progress of a caller that submits records one after another.
#[derive(Debug, Default)]
pub struct Offers {
    next: usize,
    is_anticipated: bool,
}

/// The outcome of one of the [`Offers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The next record is accepted, at this sequence.
    Accepted(Seq),
    /// It has to wait for room: submit it again when there may be some.
    Wait,
    /// All are accepted.
    Over,
}

impl Offers {
    /// Maximum number of records submitted together: their positions are looked up at once.
    pub const RECORDS_MAX: usize = 64;

    /// Submits the next of `records`, at most [`Offers::RECORDS_MAX`] and the same in all calls.
    ///
    /// # Errors
    /// As [`Core::modify`]; the failing record is not accepted, those before it are.
    pub fn offer(
        &mut self,
        core: &mut Core,
        records: &[&[LoggedUpdate<'_>]],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Offered, Error> {
        if !self.is_anticipated {
            self.is_anticipated = true;
            core.anticipate(records.iter().copied().flatten());
        }
        let Some(updates) = records.get(self.next) else { return Ok(Offered::Over) };
        match core.modify(updates, urgency, now_us)? {
            Accept::Accepted(seq) => {
                self.next += 1;
                Ok(Offered::Accepted(seq))
            }
            Accept::Wait => {
                if broken::is(Fault::OffersBeginAnew) {
                    self.next = 0;
                }
                Ok(Offered::Wait)
            }
        }
    }
}

/// Waiters for durability, by the number of their batch.
#[derive(Debug)]
pub struct Groups<W>(BTreeMap<u64, W>);

impl<W> Default for Groups<W> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<W: Default> Groups<W> {
    /// The waiters for the batch that has `seq`, or will have it.
    pub fn of(&mut self, core: &Core, seq: Seq) -> &mut W {
        self.0.entry(core.log().batch_of(seq)).or_default()
    }

    /// Passes waiters to `answer` whose batch is durable, or all if the store is closed.
    pub fn end(&mut self, core: &Core, mut answer: impl FnMut(W)) {
        let awaited = match core.closed() {
            Some(_) => u64::MAX,
            None if broken::is(Fault::EarlyAnswer) => core.log().batch_of(core.last().next()),
            None => core.log().batch_of(core.durable().next()),
        };
        while let Some(first) = self.0.first_entry().filter(|first| *first.key() < awaited) {
            answer(first.remove());
        }
    }
}

/// The outcome of submitting a parked change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is no room for it.
    Waits,
    /// It is accepted, or finally refused.
    Over,
    /// Its caller has withdrawn it.
    TakenBack,
}

/// What to do after a portion of the parked changes was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// There are more to submit, and there may be room.
    pub asks_again: bool,
    /// There may be room for waiting threads.
    pub hands_on: bool,
}

/// Changes that wait for room without a thread, in order of arrival.
#[derive(Debug)]
pub struct Parking<T> {
    changes: VecDeque<T>,
    /// Whether parked changes had the last turn while threads waited too.
    had_turn: bool,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), had_turn: false }
    }
}

impl<T> Parking<T> {
    /// Whether none waits. If so, a new change may be submitted at once; otherwise it has to be
    /// parked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.changes.iter()
    }

    /// Parks a change after all others.
    pub fn push(&mut self, change: T) {
        self.changes.push_back(change);
    }

    /// Whether parked changes may use available room. If threads wait too, they take turns.
    pub fn take_turn(&mut self, threads_wait: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        self.had_turn = !(threads_wait && self.had_turn);
        self.had_turn
    }

    /// Submits a portion of the changes, from the front.
    pub fn admit(&mut self, mut offer: impl FnMut(&T) -> Turn) -> Admitted {
        let (mut has_room, mut is_taken) = (true, false);
        for _ in 0..PORTION {
            let Some(first) = self.changes.front() else { break };
            match offer(first) {
                Turn::Waits => {
                    has_room = false;
                    if broken::is(Fault::ParkedOvertakes) {
                        self.changes.rotate_left(1);
                    }
                    break;
                }
                Turn::Over => is_taken = true,
                Turn::TakenBack => {}
            }
            self.changes.pop_front();
        }
        let asks_again = has_room && !self.is_empty();
        Admitted { asks_again, hands_on: has_room || !is_taken }
    }
}

impl<T> IntoIterator for Parking<T> {
    type Item = T;
    type IntoIter = std::collections::vec_deque::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(changes: &[u32]) -> Parking<u32> {
        let mut parking = Parking::default();
        changes.iter().for_each(|change| parking.push(*change));
        parking
    }

    #[test]
    fn parked_changes_are_offered_in_order_up_to_the_first_that_finds_no_room() {
        let mut parking = parked(&[1, 2, 3, 4, 5]);
        let mut offered = Vec::new();
        let admitted = parking.admit(|change| {
            offered.push(*change);
            match change {
                2 => Turn::TakenBack,
                4 => Turn::Waits,
                _ => Turn::Over,
            }
        });
        assert_eq!(offered, [1, 2, 3, 4]);
        assert_eq!(parking.iter().copied().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(admitted, Admitted { asks_again: false, hands_on: false }, "they took the room");
    }

    #[test]
    fn room_that_parked_changes_leave_is_for_others() {
        let all = |turn: Turn| parked(&[1, 2]).admit(|_| turn);
        assert_eq!(all(Turn::Over), Admitted { asks_again: false, hands_on: true });
        assert_eq!(all(Turn::Waits), Admitted { asks_again: false, hands_on: true });
        let admitted = parked(&[0; PORTION + 1]).admit(|_| Turn::Over);
        assert_eq!(admitted, Admitted { asks_again: true, hands_on: true });
    }

    #[test]
    fn where_threads_wait_too_every_other_room_is_theirs() {
        let mut parking = parked(&[1]);
        let turns: Vec<bool> = (0..4).map(|_| parking.take_turn(true)).collect();
        assert_eq!(turns, [true, false, true, false]);
        assert!(parking.take_turn(false) && parking.take_turn(false), "nobody else waits");
        assert!(!Parking::<u32>::default().take_turn(true), "nothing is parked");
    }
}
