//! Recovery: what did not become stable before a crash is dropped.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use upsweep::layers::device::{Buffer, Class};
use upsweep::layers::engine::Differing;
use upsweep::{Durability, Seq};

use crate::address::{BLOCK_BYTES, Branch, Physical, Span, Stamp};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::payload::Slot;
use crate::volumes::{Inner, malformed};

impl Inner {
    /// Takes in what the map says at an open, and drops what is not stable of it: of what was
    /// written after the last flush, which is all that it reads of the map beside long zeros.
    pub fn recover(&self) -> Result<(), Error> {
        let settled = self.catalog.read().settled;
        let (from, mut last) = (settled.first(), self.load_long_zeros()?);
        let blocks = self.store.blocks();
        let ranges = blocks.updated_after(self.map.space(), Seq::new(settled.seq))?;
        let (mut lost, mut referred) = (Vec::new(), BTreeSet::new());
        let scan = |range: Differing| {
            let to = range.high.map_or(Bound::Unbounded, Bound::Excluded);
            self.map.scan((Bound::Included(range.low), to))
        };
        for record in ranges.into_iter().flat_map(scan) {
            let (key, value) = record?;
            let (branch, entry) = entry::decode(&key, &value).map_err(malformed)?;
            last = last.max(entry.stamp);
            let Content::Payload { first, checksums } = &entry.content else { continue };
            if usize::from(first.slot) + checksums.len() > usize::from(self.payload.slots_per_home)
            {
                let Physical { home, slot } = first;
                return Err(Error::Tables(format!("slot {slot} of home {home} in the map")));
            }
            if *first < from {
                continue;
            }
            let arrived = self.arrived(&entry)?;
            let slots = (0..checksums.len()).map(|nth| first.plus(nth as u16));
            let there = slots.zip(&arrived).filter(|(_, arrived)| **arrived);
            referred.extend(there.map(|(slot, _)| slot));
            if arrived.contains(&false) {
                lost.push((branch, entry, arrived));
            }
        }
        self.stamps.advance(last);
        for (branch, entry, arrived) in lost {
            self.keep_what_arrived(branch, &entry, &arrived)?;
        }
        self.payload.bury_others(from, &referred)?;
        self.flush()?;
        self.is_recovered.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes in the long zeros of all branches; returns the last stamp of one of them. Cost: a read
    /// of the map for each branch.
    fn load_long_zeros(&self) -> Result<Stamp, Error> {
        let catalog = self.catalog.read();
        let (of_rows, of_walks) = (catalog.rows.branches.keys(), catalog.rows.walks.keys());
        let branches: BTreeSet<Branch> = of_rows.chain(of_walks).copied().collect();
        drop(catalog);
        let mut last = self.stamps.last();
        for branch in branches {
            let [from, to] = entry::keys_of_long_spans(branch);
            for record in self.map.scan(from..to) {
                let (key, value) = record?;
                let (_, entry) = entry::decode(&key, &value).map_err(malformed)?;
                self.add_long_zeros(branch, std::slice::from_ref(&entry));
                last = last.max(entry.stamp);
            }
        }
        Ok(last)
    }

    /// Which blocks of an entry are what was written.
    fn arrived(&self, entry: &Entry) -> Result<Vec<bool>, Error> {
        let Content::Payload { first, checksums } = &entry.content else { return Ok(Vec::new()) };
        let is_right = |(nth, checksum): (usize, &u32)| {
            let Some(Slot::Device(place)) = self.payload.find(first.plus(nth as u16), 1) else {
                return Ok(false);
            };
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize);
            let read = place.segment.read(place.offset, buffer, Class::SweepRead);
            match read {
                Ok(read) => Ok(crc32c::crc32c(&read) == *checksum),
                Err(upsweep::Error::Damaged(_)) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        checksums.iter().enumerate().map(is_right).collect()
    }

    /// Replaces an entry by entries for those of its blocks that have arrived.
    fn keep_what_arrived(
        &self,
        branch: Branch,
        entry: &Entry,
        arrived: &[bool],
    ) -> Result<(), Error> {
        let Content::Payload { first, checksums } = &entry.content else { return Ok(()) };
        let mut batch = self.store.batch();
        batch.delete(&self.map, &entry::key(branch, entry.span, entry.stamp));
        let blocks = entry.span.blocks().zip(checksums).zip(arrived).enumerate();
        for (nth, ((block, checksum), _)) in blocks.filter(|(_, (_, arrived))| **arrived) {
            let (span, checksums) = (Span::block(block), vec![*checksum]);
            let content = Content::Payload { first: first.plus(nth as u16), checksums };
            batch.put(&self.map, &entry::key(branch, span, entry.stamp), &entry::value(&content));
        }
        let slots = (0..checksums.len()).map(|nth| first.plus(nth as u16));
        let lost = slots.zip(arrived).filter(|(_, arrived)| !**arrived).map(|(slot, _)| slot);
        let lost = lost.filter(|slot| self.payload.is_living(*slot)).count() as u64;
        let catalog = self.catalog.read();
        let used = catalog.owner(branch).map(|(_, activity)| &activity.used);
        if let Some(used) = used {
            used.declare(-(lost as i64), &mut batch);
        }
        let ticket = batch.commit(Durability::Wait)?;
        self.note(&ticket);
        if let Some(used) = used {
            used.let_go(lost);
        }
        Ok(())
    }
}
