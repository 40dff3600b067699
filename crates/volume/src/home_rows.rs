//! The rows of homes, and their form in their table.
//!
//! `home, 'p'` has the place of a home: in which segments its slots are, in the format of
//! `postcard`. `home, 'd'` has the dead slots, a bit for each, which grow by bitwise or. `home` is
//! big endian.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use upsweep::Table;

use crate::error::Error;
use crate::slots::Slots;

/// The last number of a home.
pub const HOME_MAX: u64 = u64::MAX / 2;
const PLACE: u8 = b'p';
const DEAD: u8 = b'd';

/// Where a part of a home is; the record of a home is a list of these.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRow {
    pub device: u16,
    pub offset: u64,
    pub base: u16,
    pub present: Option<Slots>,
}

/// The key of the place of a home.
pub fn key_of_place(home: u64) -> [u8; 9] {
    key(home, PLACE)
}

/// The key of the dead slots of a home.
pub fn key_of_dead(home: u64) -> [u8; 9] {
    key(home, DEAD)
}

fn key(home: u64, kind: u8) -> [u8; 9] {
    let mut key = [kind; 9];
    key[..8].copy_from_slice(&home.to_be_bytes());
    key
}

/// The row of the place of a home.
pub fn encode(parts: &[PartRow]) -> Vec<u8> {
    postcard::to_allocvec(parts).expect("it is encoded to memory")
}

/// What the table has of a home.
pub struct HomeRows {
    pub dead: Slots,
    /// None if it has been given up.
    pub parts: Vec<PartRow>,
}

/// The rows of all homes.
pub fn read(table: &Table, slots_per_home: u16) -> Result<BTreeMap<u64, HomeRows>, Error> {
    let mut homes = BTreeMap::new();
    for record in table.iter() {
        let (key, value) = record?;
        let malformed = || Error::Tables(format!("home {:02x?}", &*key));
        let (home, kind) = key.split_first_chunk().ok_or_else(malformed)?;
        let home = u64::from_be_bytes(*home);
        if home > HOME_MAX {
            return Err(malformed());
        }
        let none = || HomeRows { dead: Slots::none(slots_per_home), parts: Vec::new() };
        let rows = homes.entry(home).or_insert_with(none);
        match kind {
            [DEAD] => {
                rows.dead = Slots::from_bytes(&value, slots_per_home).ok_or_else(malformed)?;
            }
            [PLACE] => rows.parts = parts(&value, slots_per_home).ok_or_else(malformed)?,
            _ => return Err(malformed()),
        }
    }
    Ok(homes)
}

/// The parts of a home of which this is the row; `None` if it is none.
fn parts(value: &[u8], slots_per_home: u16) -> Option<Vec<PartRow>> {
    let (rows, rest): (Vec<PartRow>, _) = postcard::take_from_bytes(value).ok()?;
    let mut seen = Slots::none(slots_per_home);
    let mut fits = |row: &PartRow| match &row.present {
        None => row.base == 0 && rows.len() == 1,
        Some(present) => {
            present.is_of(slots_per_home)
                && u32::from(row.base) + u32::from(present.count()) <= u32::from(slots_per_home)
                && present.iter().all(|slot| seen.add(slot))
        }
    };
    (rest.is_empty() && rows.iter().all(&mut fits)).then_some(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots(of: &[u16]) -> Slots {
        let mut slots = Slots::none(32);
        for slot in of {
            slots.add(*slot);
        }
        slots
    }

    fn part(base: u16, of: &[u16]) -> PartRow {
        PartRow { device: 1, offset: 4096, base, present: Some(slots(of)) }
    }

    #[test]
    fn a_slot_is_in_one_part_and_in_a_segment() {
        let is_right = |rows: &[PartRow]| parts(&encode(rows), 32).is_some();
        assert!(is_right(&[part(0, &[0, 31]), part(30, &[1, 2])]) && is_right(&[]));
        assert!(!is_right(&[part(0, &[0, 31]), part(30, &[1, 31])]), "a slot is in both");
        assert!(!is_right(&[part(31, &[1, 2])]), "beyond the segment");
        let whole = |base| PartRow { present: None, ..part(base, &[]) };
        assert!(is_right(&[whole(0)]));
        assert!(!is_right(&[whole(1)]) && !is_right(&[whole(0), part(0, &[])]));
        let short = PartRow { present: Some(Slots::none(24)), ..part(0, &[]) };
        assert!(!is_right(&[short]));
        assert!(parts(&[&encode(&[whole(0)])[..], &[0]].concat(), 32).is_none(), "a byte too many");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parts_or_refused(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                prop::collection::vec(0..6_u8, 0..40),
            ],
        ) {
            if let Some(rows) = parts(&bytes, 16) {
                prop_assert_eq!(parts(&encode(&rows), 16), Some(rows));
            }
        }
    }
}
