//! What becomes of callers, without the threads and locks around it: the runtime and the simulator
//! go by the same.
//!
//! A caller with many records [offers](Offers) them one after another, under one lock but for
//! waits. Whoever waits until something is durable is in the [group](Groups) of its batch, and is
//! answered with it. What waits for room without a thread is [parked](Parking).
//!
//! Invariants: each of the records is accepted once, in order; a group is answered when its batch
//! is durable or the store is closed, and not before; what is parked is accepted in the order in
//! which it came.

use std::collections::{BTreeMap, VecDeque};

use crate::broken::{self, Fault};
use crate::engine::{Accept, Core, LoggedUpdate};
use crate::error::Error;
use crate::log::{Seq, Urgency};

/// Parked changes that are offered under one lock.
const PORTION: usize = 64;

/// How far a caller is with records that it offers one after another.
#[derive(Debug, Default)]
pub struct Offers {
    next: usize,
    is_anticipated: bool,
}

/// What came of one of the [`Offers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The next record is accepted, at this sequence.
    Accepted(Seq),
    /// It has to wait for room: offer again when there may be some.
    Wait,
    /// All are accepted.
    Over,
}

impl Offers {
    /// Most records that are offered together: their places are looked up at one time.
    pub const RECORDS_MAX: usize = 64;

    /// Offers the next of `records`, of which there are at most [`Offers::RECORDS_MAX`], the same
    /// in all calls.
    ///
    /// # Errors
    /// As [`Core::modify`]; the record at fault is not accepted, those before it are.
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

/// Who waits until something is durable, by the number of the batch that it is in.
#[derive(Debug)]
pub struct Groups<W>(BTreeMap<u64, W>);

impl<W> Default for Groups<W> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<W: Default> Groups<W> {
    /// Those who wait for the batch that has `seq`, or will have it.
    pub fn of(&mut self, core: &Core, seq: Seq) -> &mut W {
        self.0.entry(core.log().batch_of(seq)).or_default()
    }

    /// Hands those to `answer` who wait no more: their batch is durable, or the store is closed.
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

/// What came of a parked change that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is no room for it.
    Waits,
    /// It is accepted, or refused for good.
    Over,
    /// Whoever declared it has taken it back.
    TakenBack,
}

/// Who is to look for room after some of what is parked was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// There is more to offer, and may be room.
    pub asks_again: bool,
    /// There may be room for others, who wait with a thread.
    pub hands_on: bool,
}

/// Changes that wait for room without a thread, in the order in which they came.
#[derive(Debug)]
pub struct Parking<T> {
    changes: VecDeque<T>,
    /// Whether the last room, where threads waited too, was for changes.
    had_turn: bool,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), had_turn: false }
    }
}

impl<T> Parking<T> {
    /// Whether nothing waits. What comes may be offered at once then, and else has to be parked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.changes.iter()
    }

    /// Parks a change behind all others.
    pub fn push(&mut self, change: T) {
        self.changes.push_back(change);
    }

    /// Whether room that may be there is for parked changes. Where threads wait too, they have it
    /// by turns.
    pub fn take_turn(&mut self, threads_wait: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        self.had_turn = !(threads_wait && self.had_turn);
        self.had_turn
    }

    /// Has a portion of the changes offered, from the front.
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
