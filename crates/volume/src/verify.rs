//! Verification: the tables of the volumes are compared with each other and with the reserved
//! extents, and all payload with its checksums. Nothing is written.
//!
//! Checked: all rows of the catalog and the homes, and all entries, can be read; branches, parents
//! and what looks at them are there; segments of homes are reserved, no two slots are in one place,
//! and every slot that is not dead is in one; no slot has two blocks; the slots of all blocks that
//! somebody needs are there and not dead, and their content is what was written; volumes use as
//! many blocks as is counted.
//!
//! After a crash, entries whose payload did not arrive are not damage: the next open drops them.

use std::collections::BTreeMap;

use upsweep::Store;

use crate::address::{Physical, Stamp};
use crate::catalog::Catalog;
use crate::entry::{self, Content};
use crate::error::Error;
use crate::payload::{self, Payload};
use crate::scrub::{DamagedRange, Scope, ScrubPosition};
use crate::slots::Slots;
use crate::volumes::{Inner, MAP, SLOTS_PER_HOME, Volumes, malformed};

/// Bytes that are checked in a step.
const STEP_BYTES: u64 = 16 << 20;

/// What a verification of all volumes found; see [`Volumes::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumesReport {
    /// How many volumes there are.
    pub volumes: u64,
    /// Payload that was read and compared, in bytes.
    pub bytes: u64,
    /// Damaged payload.
    pub damage: Vec<DamagedRange>,
    /// What is wrong with the tables, one line each.
    pub faults: Vec<String>,
}

impl Volumes {
    /// Checks all volumes of a store: their tables, and all their payload; `None` if it has never
    /// had any. The store may be open for reading only, and nothing is written; its volumes must
    /// not be open. Cost: reads the map twice, and all payload.
    ///
    /// # Errors
    /// [`Error::Tables`] if a table cannot be read; [`Error::Store`]. Other damage is in the
    /// report.
    pub fn verify(store: &Store) -> Result<Option<VolumesReport>, Error> {
        if [MAP, payload::TABLE].iter().any(|table| store.kind(table).is_none()) {
            return Ok(None);
        }
        let catalog = Catalog::open(store, SLOTS_PER_HOME)?;
        let (slots, settled) = (catalog.format.slots_per_home, catalog.settled);
        let (payload, _, mut faults) = Payload::load(store, slots, settled.home)?;
        faults.extend(payload.faults());
        let volumes = catalog.rows.volumes.len() as u64;
        let branches = catalog.rows.branches.keys().copied().collect();
        let inner = Inner::new(store.clone(), store.table(MAP)?, payload, catalog);
        faults.extend(inner.check_map()?);
        inner.publish_needs(Some(Stamp(settled.stamp)));
        let scope = Scope { branches, end: Some(settled.first()) };
        let mut report = VolumesReport { volumes, faults, ..VolumesReport::default() };
        let mut next = Some(ScrubPosition::default());
        while let Some(from) = next {
            let step = inner.scrub(&scope, from, STEP_BYTES)?;
            report.bytes += step.bytes;
            report.damage.extend(step.damage);
            next = step.next;
        }
        Ok(Some(report))
    }
}

impl Payload {
    /// What is wrong with homes: living slots that are nowhere, in two places, or where another one
    /// is.
    fn faults(&self) -> Vec<String> {
        let state = self.state.lock();
        let (mut taken, mut faults) = (BTreeMap::new(), Vec::new());
        for (number, home) in state.homes.iter() {
            let mut wrong = 0;
            for slot in home.dead.others().iter() {
                let mut places = home.parts.iter().filter_map(|part| {
                    let extent = part.segment.extent();
                    Some(((extent.device, extent.offset), part.slot(slot)?))
                });
                let place = places.next().filter(|(_, at)| *at < self.slots_per_home);
                let is_only = places.next().is_none();
                let is_free = place.is_some_and(|(segment, at)| {
                    let none = || Slots::none(self.slots_per_home);
                    taken.entry(segment).or_insert_with(none).add(at)
                });
                wrong += u64::from(!(is_only && is_free));
            }
            if wrong > 0 {
                faults.push(format!("{wrong} slots of home {number} are not in one place each"));
            }
        }
        faults
    }
}

impl Inner {
    /// Takes in long spans of zeros; returns which slots have two blocks, and which volumes do not
    /// use as many as is counted.
    fn check_map(&self) -> Result<Vec<String>, Error> {
        let (mut taken, mut faults) = (BTreeMap::new(), Vec::new());
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        let catalog = self.catalog.read();
        for record in self.map.iter() {
            let (key, value) = record?;
            let (branch, entry) = entry::decode(&key, &value).map_err(malformed)?;
            if entry::chunk_of_span(entry.span).is_none() {
                self.trimming.zeros.write().add(branch, entry.span, entry.stamp);
            }
            let Content::Payload { first, checksums } = &entry.content else { continue };
            let none = || Slots::none(self.payload.slots_per_home);
            let taken = taken.entry(first.home).or_insert_with(none);
            let slots = (0..checksums.len() as u16).map(|nth| first.plus(nth));
            if let Some((number, _)) = catalog.owner(branch) {
                let living = slots.clone().filter(|slot| self.payload.is_living(*slot)).count();
                *used.entry(number).or_default() += living as u64;
            }
            for Physical { home, slot } in slots {
                if slot < self.payload.slots_per_home && !taken.add(slot) {
                    faults.push(format!("slot {slot} of home {home} has two blocks"));
                }
            }
        }
        for (number, row) in &catalog.rows.volumes {
            let (counted, found) =
                (catalog.activities[number].used.blocks(), used.get(number).copied().unwrap_or(0));
            if counted != found {
                let name = &row.name;
                faults.push(format!(
                    "{counted} blocks are counted of volume {name:?}, which uses {found}"
                ));
            }
        }
        Ok(faults)
    }
}
