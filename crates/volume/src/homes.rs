//! Homes, and how much is needed of each segment.
//!
//! Invariant: what is known of a segment is what its parts of all homes come to, so cleaning finds
//! the best ones without looking at homes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use upsweep::layers::runtime::ReservedExtent;

use crate::home_rows::{self, PartRow};
use crate::slots::Slots;

/// All homes of a store.
#[derive(Default)]
pub struct Homes {
    homes: BTreeMap<u64, Home>,
    /// Slots of all of them that are not dead.
    living: u64,
    /// Those of which all slots are dead.
    empty: BTreeSet<u64>,
    segments: BTreeMap<SegmentKey, InUse>,
}

pub struct Home {
    /// Where its slots are; no slot is in two.
    pub parts: Vec<Part>,
    pub dead: Slots,
    /// How many are not dead.
    pub living: u16,
}

/// Slots of a home that lie in one segment, one after another.
#[derive(Clone)]
pub struct Part {
    pub segment: Arc<ReservedExtent>,
    /// The slot of the segment at which they begin.
    pub base: u16,
    /// Which they are; `None`: all, as long as the home has not moved.
    pub present: Option<Slots>,
}

/// A segment in which parts of homes are.
pub struct InUse {
    pub segment: Arc<ReservedExtent>,
    /// The homes.
    pub homes: BTreeSet<u64>,
    /// Slots of it that are not dead.
    pub living: u32,
}

/// Slots that no one needs any more, by home: they are dead once that is recorded.
pub type Burial = BTreeMap<u64, Slots>;

/// A segment, by device and offset.
pub type SegmentKey = (u16, u64);

/// The key of a segment.
pub fn key_of(segment: &ReservedExtent) -> SegmentKey {
    let extent = segment.extent();
    (extent.device.0, extent.offset)
}

impl Homes {
    pub fn get(&self, number: u64) -> Option<&Home> {
        self.homes.get(&number)
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Home)> {
        self.homes.iter().map(|(number, home)| (*number, home))
    }

    /// The numbers from this one on.
    pub fn numbers_from(&self, number: u64) -> impl Iterator<Item = u64> {
        self.homes.range(number..).map(|(number, _)| *number)
    }

    /// Those of which all slots are dead.
    pub fn empty(&self) -> impl Iterator<Item = u64> {
        self.empty.iter().copied()
    }

    /// Slots that are not dead.
    pub fn living(&self) -> u64 {
        self.living
    }

    /// All segments in which parts of homes are, by key.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentKey, &InUse)> {
        self.segments.iter().map(|(key, in_use)| (*key, in_use))
    }

    /// Adds a home.
    pub fn insert(&mut self, number: u64, home: Home) {
        self.living += u64::from(home.living);
        if home.living == 0 {
            self.empty.insert(number);
        }
        self.add_parts(number, &home);
        self.homes.insert(number, home);
    }

    /// Removes a home, all slots of which are dead.
    pub fn remove(&mut self, number: u64) -> Option<Home> {
        let home = self.homes.remove(&number)?;
        self.remove_parts(number, &home);
        self.empty.remove(&number);
        self.living -= u64::from(home.living);
        Some(home)
    }

    /// Takes in that what is needed of a home is elsewhere.
    pub fn relocate(&mut self, number: u64, parts: Vec<Part>) {
        let Some(mut home) = self.homes.remove(&number) else { return };
        self.remove_parts(number, &home);
        home.parts = parts;
        self.add_parts(number, &home);
        self.homes.insert(number, home);
    }

    /// Takes in that slots are dead.
    pub fn bury(&mut self, burial: Burial) {
        for (number, slots) in burial {
            let Some(home) = self.homes.get_mut(&number) else { continue };
            let new = slots.without(&home.dead);
            for part in &home.parts {
                if let Some(in_use) = self.segments.get_mut(&key_of(&part.segment)) {
                    in_use.living -= u32::from(part.of(&new).count());
                }
            }
            home.dead.add_all(&new);
            home.living -= new.count();
            self.living -= u64::from(new.count());
            if home.living == 0 {
                self.empty.insert(number);
            }
        }
    }

    fn add_parts(&mut self, number: u64, home: &Home) {
        for part in &home.parts {
            let in_use = self.segments.entry(key_of(&part.segment)).or_insert_with(|| InUse {
                segment: Arc::clone(&part.segment),
                homes: BTreeSet::new(),
                living: 0,
            });
            in_use.homes.insert(number);
            in_use.living += u32::from(part.living(&home.dead).count());
        }
    }

    fn remove_parts(&mut self, number: u64, home: &Home) {
        for part in &home.parts {
            let key = key_of(&part.segment);
            let Some(in_use) = self.segments.get_mut(&key) else { continue };
            in_use.homes.remove(&number);
            in_use.living -= u32::from(part.living(&home.dead).count());
            if in_use.homes.is_empty() {
                self.segments.remove(&key);
            }
        }
    }
}

impl Home {
    /// How many slots it has.
    pub fn slots(&self) -> u16 {
        8 * self.dead.bytes().len() as u16
    }
}

impl Part {
    /// Where a slot is in the segment; `None` if it is not in this part.
    pub fn slot(&self, slot: u16) -> Option<u16> {
        match &self.present {
            None => Some(self.base + slot),
            Some(present) => present.has(slot).then(|| self.base + present.count_below(slot)),
        }
    }

    /// Its slots of those that are not dead.
    pub fn living(&self, dead: &Slots) -> Slots {
        self.of(&dead.others())
    }

    /// Its slots of some.
    fn of(&self, slots: &Slots) -> Slots {
        self.present.as_ref().map_or_else(|| slots.clone(), |present| present.common(slots))
    }
}

/// The record of the place of a home with these parts.
pub fn row_of(parts: &[Part]) -> Vec<u8> {
    let row = |part: &Part| {
        let (device, offset) = key_of(&part.segment);
        PartRow { device, offset, base: part.base, present: part.present.clone() }
    };
    home_rows::encode(&parts.iter().map(row).collect::<Vec<PartRow>>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use upsweep::Store;

    use super::*;

    const SLOTS: u16 = 16;
    const NUMBERS: u64 = 6;

    #[derive(Clone, Debug)]
    enum Step {
        Insert,
        Bury(u16),
        /// To segments with so many slots before it, split at a slot.
        Relocate(u16, u16),
        Remove,
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, usize, Step)>> {
        let step = prop_oneof![
            2 => Just(Step::Insert),
            4 => any::<u16>().prop_map(Step::Bury),
            2 => (0..SLOTS, 0..SLOTS).prop_map(|(base, split)| Step::Relocate(base, split)),
            1 => Just(Step::Remove),
        ];
        prop::collection::vec((0..NUMBERS, 0..4_usize, step), 1..60)
    }

    fn set(bits: u16) -> Slots {
        Slots::from_bytes(&bits.to_le_bytes(), SLOTS).expect("16 bits")
    }

    /// What is needed of a home, in two segments.
    fn parts_of(home: &Home, into: [&Arc<ReservedExtent>; 2], base: u16, split: u16) -> Vec<Part> {
        let living = home.dead.others();
        let below = set((1 << split) - 1);
        let parts = [living.common(&below), living.without(&below)];
        let part = |(segment, present)| Part {
            segment: Arc::clone(segment),
            base,
            present: Some(present),
        };
        into.into_iter().zip(parts).map(part).collect()
    }

    /// What is known of segments is what all homes come to.
    fn check(homes: &Homes) -> Result<(), TestCaseError> {
        let mut segments: BTreeMap<SegmentKey, (BTreeSet<u64>, u32)> = BTreeMap::new();
        for (number, home) in homes.iter() {
            prop_assert_eq!(home.living, home.dead.others().count());
            for part in &home.parts {
                let (of, living) = segments.entry(key_of(&part.segment)).or_default();
                of.insert(number);
                *living += u32::from(part.living(&home.dead).count());
            }
        }
        let known = homes.segments().map(|(key, of)| (key, (of.homes.clone(), of.living)));
        prop_assert_eq!(known.collect::<BTreeMap<_, _>>(), segments);
        let living = homes.iter().map(|(_, home)| u64::from(home.living)).sum::<u64>();
        prop_assert_eq!(homes.living(), living);
        let empty = homes.iter().filter(|(_, home)| home.living == 0).map(|(number, _)| number);
        prop_assert!(homes.empty().eq(empty));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_known_of_segments_is_what_homes_come_to(steps in steps()) {
            let store = Store::in_memory().expect("made");
            let space = store.table("homes").expect("made").space();
            let blocks = store.blocks();
            let reserve = |_| Arc::new(blocks.reserve_extent(space, 1 << 16).expect("room"));
            let segments: Vec<Arc<ReservedExtent>> = (0..5).map(reserve).collect();
            let mut homes = Homes::default();
            for (number, nth, step) in steps {
                match (step, homes.get(number)) {
                    (Step::Insert, None) => {
                        let segment = Arc::clone(&segments[nth]);
                        let parts = vec![Part { segment, base: 0, present: None }];
                        let dead = Slots::none(SLOTS);
                        homes.insert(number, Home { parts, dead, living: SLOTS });
                    }
                    (Step::Bury(slots), _) => homes.bury(Burial::from([(number, set(slots))])),
                    (Step::Relocate(base, split), Some(home)) => {
                        let into = [&segments[nth], &segments[nth + 1]];
                        homes.relocate(number, parts_of(home, into, base, split));
                    }
                    (Step::Remove, Some(home)) if home.living == 0 => drop(homes.remove(number)),
                    _ => {}
                }
                check(&homes)?;
            }
        }
    }
}
