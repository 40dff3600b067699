//! Updates that wait for their log record before they reach a queue.
//!
//! The directory changes in log order, when a record is durable. An update whose block is shared
//! with another space, or not there, needs such a change first: until its record is durable it
//! waits here, where queries see it. That is the latency of one log batch, and once per block.

use std::collections::BTreeMap;

use super::block_format::UpdateRef;
use super::queue::Waiting;
use super::registry::ModifierId;
use crate::log::Seq;

/// Position, sequence, place in the record.
type Place = (Box<[u8]>, Seq, u32);

struct Update {
    modifier: ModifierId,
    key: Box<[u8]>,
    operand: Box<[u8]>,
}

/// What an entry takes besides its bytes.
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

    /// Adds an update; `order` tells those of one record apart.
    pub fn push(&mut self, position: &[u8], order: u32, update: &UpdateRef<'_>) {
        self.bytes += Self::bytes_of(position, update);
        let place = (position.into(), update.seq, order);
        let (key, operand) = (update.key.into(), update.operand.into());
        self.updates.insert(place, Update { modifier: update.modifier, key, operand });
    }

    /// The first position at or behind `low` for which anything is pending.
    #[must_use]
    pub fn first_from(&self, low: &[u8]) -> Option<&[u8]> {
        if self.updates.is_empty() {
            return None;
        }
        let from: Place = (low.into(), Seq::NONE, 0);
        self.updates.range(from..).next().map(|((position, _, _), _)| &**position)
    }

    /// The last position below `high` (`None`: the last) for which anything is pending.
    #[must_use]
    pub fn last_below(&self, high: Option<&[u8]>) -> Option<&[u8]> {
        let below = match high {
            Some(high) => self.updates.range(..(Box::from(high), Seq::NONE, 0)).next_back(),
            None => self.updates.last_key_value(),
        };
        below.map(|((position, _, _), _)| &**position)
    }

    /// Those of a range of positions that are wanted, in the order of their sequences.
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

    /// Takes those of a range of positions below a sequence out, in the order of their sequences.
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
