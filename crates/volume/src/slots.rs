//! Sets of slots of a home.

use serde::{Deserialize, Serialize};

/// A set of slots. Its bytes are those that a bitwise or of two sets joins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots(Vec<u8>);

impl Slots {
    /// The set of some of `slots` many that these bytes are; `None` if they are too many or few.
    pub fn from_bytes(bytes: &[u8], slots: u16) -> Option<Self> {
        Some(Self(bytes.to_vec())).filter(|set| set.is_of(slots))
    }

    /// Whether it is a set of some of so many slots, a multiple of 8.
    pub fn is_of(&self, slots: u16) -> bool {
        self.0.len() == usize::from(slots) / 8
    }

    /// None of `slots` many.
    pub fn none(slots: u16) -> Self {
        Self(vec![0; usize::from(slots).div_ceil(8)])
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it has this slot.
    pub fn has(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot) / 8).is_some_and(|byte| byte & 1 << (slot % 8) != 0)
    }

    /// Adds a slot; returns whether it was not there.
    pub fn add(&mut self, slot: u16) -> bool {
        let is_new = !self.has(slot);
        self.0[usize::from(slot) / 8] |= 1 << (slot % 8);
        is_new
    }

    /// All that are not in it, of a multiple of 8 slots.
    pub fn others(&self) -> Self {
        Self(self.0.iter().map(|byte| !byte).collect())
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| own & !other).collect())
    }

    /// Those that are in `other` as well.
    pub fn common(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| own & other).collect())
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        self.0.iter().map(|byte| byte.count_ones() as u16).sum()
    }

    /// How many there are below this one.
    pub fn count_below(&self, slot: u16) -> u16 {
        let (whole, rest) = (usize::from(slot) / 8, slot % 8);
        let before: u32 = self.0[..whole].iter().map(|byte| byte.count_ones()).sum();
        let last = self.0.get(whole).map_or(0, |byte| (byte & ((1 << rest) - 1)).count_ones());
        (before + last) as u16
    }

    /// The slots of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..self.0.len() as u16 * 8).filter(|slot| self.has(*slot))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(added in prop::collection::vec(0..100_u16, 0..60)) {
            let (mut slots, mut model) = (Slots::none(100), BTreeSet::new());
            for slot in added {
                prop_assert_eq!(slots.add(slot), model.insert(slot));
            }
            prop_assert!(slots.iter().eq(model.iter().copied()));
            prop_assert_eq!(usize::from(slots.count()), model.len());
            for slot in 0..100 {
                prop_assert_eq!(usize::from(slots.count_below(slot)), model.range(..slot).count());
            }
            let others = slots.others();
            prop_assert!((0..104).all(|slot| others.has(slot) != slots.has(slot)));
            prop_assert_eq!(others.without(&slots), others.clone());
            prop_assert_eq!(slots.without(&slots).count(), 0);
            prop_assert_eq!(slots.common(&others).count(), 0);
            prop_assert_eq!(slots.common(&slots), slots.clone());
            let mut all = others;
            all.add_all(&slots);
            prop_assert_eq!(all.count(), 104);
            prop_assert_eq!(Slots::from_bytes(slots.bytes(), 104), Some(slots.clone()));
            prop_assert_eq!(Slots::from_bytes(slots.bytes(), 96), None);
        }
    }
}
