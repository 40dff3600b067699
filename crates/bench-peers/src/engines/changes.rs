//! Read-modify-write, for engines without declared increments: the updates of one key together,
//! from the value before to the value after.

use crate::engine::{Change, Update, Value, add, incremented_from_nothing, value};

/// Puts updates into key order and gives those of each key together, in the order they came.
pub(super) fn by_key<'a, 'k>(
    updates: &'a mut [Update<'k>],
) -> impl Iterator<Item = &'a [Update<'k>]> {
    updates.sort_by_key(|update| update.key);
    updates.chunk_by(|first, second| first.key == second.key)
}

/// Whether the value before matters to these updates of one key.
pub(super) fn needs_current(updates: &[Update<'_>]) -> bool {
    matches!(updates.first(), Some(Update { change: Change::Increment, .. }))
}

/// The value after these updates of one key; none if it is gone.
pub(super) fn changed(updates: &[Update<'_>], current: Option<&[u8]>) -> Option<Value> {
    let mut now: Option<Value> = current.and_then(|bytes| bytes.try_into().ok());
    for update in updates {
        now = match (update.change, now) {
            (Change::Increment, Some(mut value)) => {
                add(&mut value, 1);
                Some(value)
            }
            (Change::Increment, None) => Some(incremented_from_nothing()),
            (Change::Put(stamp), _) => Some(value(stamp)),
            (Change::Delete, _) => None,
        };
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::counter;

    #[test]
    fn updates_of_a_key_take_effect_in_order() {
        let update = |number: usize, change| Update { key: &b"key"[..number], change };
        let mut updates = [
            update(2, Change::Increment),
            update(1, Change::Put(5)),
            update(2, Change::Increment),
            update(1, Change::Increment),
            update(3, Change::Increment),
            update(3, Change::Delete),
        ];
        let before = value(7);
        let after: Vec<(bool, Option<u64>)> = by_key(&mut updates)
            .map(|group| {
                let now = changed(group, Some(&before));
                (needs_current(group), now.map(|value| counter(&value)))
            })
            .collect();
        assert_eq!(after, [(false, Some(1)), (true, Some(2)), (true, None)]);
        assert_eq!(
            changed(&[update(1, Change::Increment)], None),
            Some(incremented_from_nothing())
        );
    }
}
