//! Updates that wait for their log record before they reach a queue.
//!
//! The directory changes in log order, when a record is durable. An update whose block does not
//! exist or is shared with another space needs such a change first: until its record is durable it
//! waits here, where queries see it. This costs the latency of one log batch, once per block.

use std::collections::BTreeMap;

use super::block_format::UpdateRef;
use super::queue::Waiting;
use super::registry::ModifierId;
use crate::log::Seq;

/// Position, sequence, index in the record.
type Place = (Box<[u8]>, Seq, u32);

struct Update {
    modifier: ModifierId,
    key: Box<[u8]>,
    operand: Box<[u8]>,
}

/// Memory of an entry besides its bytes.
const ENTRY_BYTES: usize = 112;

/// The pending updates of one space, by position.
#[derive(Default)]
pub struct Pending {
    updates: BTreeMap<Place, Update>,
    bytes: usize,
}

impl Pending {
    /// Memory that an update with these lengths takes here, in bytes.
    #[must_use]
    pub fn bytes_of(position: &[u8], update: &UpdateRef<'_>) -> usize {
        position.len() + update.key.len() + update.operand.len() + ENTRY_BYTES
    }

    /// Memory that all of them take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of updates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.updates.len()
    }

    /// Adds an update; `order` distinguishes those of one record.
    pub fn push(&mut self, position: &[u8], order: u32, update: &UpdateRef<'_>) {
        self.bytes += Self::bytes_of(position, update);
        let place = (position.into(), update.seq, order);
        let (key, operand) = (update.key.into(), update.operand.into());
        self.updates.insert(place, Update { modifier: update.modifier, key, operand });
    }

    /// The first position at or after `low` that has pending updates.
    #[must_use]
    pub fn first_from(&self, low: &[u8]) -> Option<&[u8]> {
        if self.updates.is_empty() {
            return None;
        }
        let from: Place = (low.into(), Seq::NONE, 0);
        self.updates.range(from..).next().map(|((position, _, _), _)| &**position)
    }

    /// The last position below `high` (`None`: the last) that has pending updates.
    #[must_use]
    pub fn last_below(&self, high: Option<&[u8]>) -> Option<&[u8]> {
        let below = match high {
            Some(high) => self.updates.range(..(Box::from(high), Seq::NONE, 0)).next_back(),
            None => self.updates.last_key_value(),
        };
        below.map(|((position, _, _), _)| &**position)
    }

    /// Wanted updates of a range of positions, in sequence order.
    #[must_use]
    pub fn in_range(
        &self,
        low: &[u8],
        high: Option<&[u8]>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Waiting<'static> {
        let mut found = Vec::new();
        if !self.updates.is_empty() {
            let from: Place = (low.into(), Seq::NONE, 0);
            let inside = self.updates.range(from..);
            for ((_, seq, order), update) in inside
                .take_while(|((position, _, _), _)| high.is_none_or(|high| **position < *high))
                .filter(|(_, update)| is_wanted(&update.key))
            {
                found.push((*seq, *order, update));
            }
        }
        found.sort_by_key(|(seq, order, _)| (*seq, *order));
        let mut waiting = Waiting::default();
        for (seq, _, Update { modifier, key, operand }) in found {
            waiting.push(&UpdateRef { seq, modifier: *modifier, key, operand });
        }
        waiting
    }

    /// Removes updates of a range of positions below a sequence, in sequence order.
    pub fn take(&mut self, low: &[u8], high: Option<&[u8]>, below_seq: Seq) -> Waiting<'static> {
        let mut places = Vec::new();
        let from: Place = (low.into(), Seq::NONE, 0);
        for place in self.updates.range(from..).map(|(place, _)| place) {
            if high.is_some_and(|high| *place.0 >= *high) {
                break;
            }
            if place.1 < below_seq {
                places.push(place.clone());
            }
        }
        places.sort_by_key(|(_, seq, order)| (*seq, *order));
        let mut waiting = Waiting::default();
        for place in places {
            let update = self.updates.remove(&place).expect("listed above");
            let Update { modifier, key, operand } = &update;
            let update = UpdateRef { seq: place.1, modifier: *modifier, key, operand };
            self.bytes -= Self::bytes_of(&place.0, &update);
            waiting.push(&update);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::registry::PUT;

    fn push(pending: &mut Pending, position: &str, seq: Seq, order: u32) {
        let (key, operand) = (position.as_bytes(), &[order as u8][..]);
        pending.push(key, order, &UpdateRef { seq, modifier: PUT, key, operand });
    }

    fn pending(of: &[(&str, u64, u32)]) -> Pending {
        let mut pending = Pending::default();
        of.iter().for_each(|(position, seq, order)| {
            push(&mut pending, position, Seq::new(*seq), *order);
        });
        pending
    }

    fn keys(waiting: &Waiting<'_>) -> Vec<(Seq, String)> {
        let key = |update: UpdateRef<'_>| String::from_utf8_lossy(update.key).into_owned();
        waiting.updates().map(|update| (update.seq, key(update))).collect()
    }

    #[test]
    fn updates_come_out_in_the_order_of_their_sequences_whatever_their_positions() {
        let mut pending = pending(&[("c", 1, 0), ("a", 3, 0), ("b", 2, 1), ("a", 2, 0)]);
        let seen = pending.in_range(b"a", None, |_| true);
        let taken = pending.take(b"a", None, Seq::new(u64::MAX));
        assert_eq!(seen, taken, "a look sees what is taken later");
        let expected = [(1, "c"), (2, "a"), (2, "b"), (3, "a")];
        assert_eq!(keys(&taken), expected.map(|(seq, key)| (Seq::new(seq), key.to_owned())));
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
    }

    #[test]
    fn only_what_is_below_a_sequence_and_in_the_range_is_taken() {
        let mut pending = pending(&[("a", 1, 0), ("b", 1, 1), ("b", 5, 0), ("c", 1, 2)]);
        let taken = pending.take(b"b", Some(b"c"), Seq::new(5));
        assert_eq!(keys(&taken), [(Seq::new(1), "b".to_owned())]);
        assert_eq!(pending.len(), 3);
        let left = pending.in_range(b"", None, |key| key == b"b");
        assert_eq!(keys(&left), [(Seq::new(5), "b".to_owned())]);
    }

    #[test]
    fn memory_is_that_of_what_is_there() {
        let mut pending = pending(&[("a", 1, 0), ("long position", 2, 0)]);
        let of = |position: &[u8]| {
            let update = UpdateRef { key: position, operand: &[0], ..UpdateRef::default() };
            Pending::bytes_of(position, &update)
        };
        assert_eq!(pending.bytes(), of(b"a") + of(b"long position"));
        pending.take(b"b", None, Seq::new(u64::MAX));
        assert_eq!(pending.bytes(), of(b"a"));
    }

    #[test]
    fn the_neighbours_of_a_position_are_found() {
        let pending = pending(&[("b", 1, 0), ("d", 2, 0)]);
        assert_eq!(pending.first_from(b"a"), Some(&b"b"[..]));
        assert_eq!(pending.first_from(b"b"), Some(&b"b"[..]));
        assert_eq!(pending.first_from(b"d\0"), None);
        assert_eq!(pending.last_below(None), Some(&b"d"[..]));
        assert_eq!(pending.last_below(Some(b"d")), Some(&b"b"[..]));
        assert_eq!(pending.last_below(Some(b"b")), None);
        assert_eq!(Pending::default().last_below(None), None);
    }
}
