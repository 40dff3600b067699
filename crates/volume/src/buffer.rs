//! The buffer of small writes: what has been acknowledged without a promise that it is durable, and
//! is not on the devices yet.
//!
//! Slots are taken in order, so many small writes make one long *stretch*, which is written when it
//! is long enough, when another does not follow it, or at a flush. So random writes cost few
//! requests, and all writes before a flush one. Whoever seals a stretch writes it; until then it is
//! read from here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::address::{BLOCK_BYTES, Physical};
use crate::payload::Place;

const BLOCK: usize = BLOCK_BYTES as usize;
/// A stretch of this length is written.
const STRETCH_BYTES: usize = 256 << 10;

/// Consecutive slots.
pub struct Stretch {
    pub first: Physical,
    /// Where they lie.
    pub place: Place,
    pub data: Vec<u8>,
}

impl Stretch {
    pub fn slots(&self) -> u16 {
        (self.data.len() / BLOCK) as u16
    }

    /// The slot behind it, if it is in the home.
    pub fn end(&self) -> Physical {
        self.first.plus(self.slots())
    }

    /// Its blocks from a slot on, up to so many.
    fn from(&self, slot: Physical, slots: u16) -> Option<&[u8]> {
        let is_in = slot.home == self.first.home && (self.first..self.end()).contains(&slot);
        let from = is_in.then(|| usize::from(slot.slot - self.first.slot) * BLOCK)?;
        let end = self.data.len().min(from + usize::from(slots) * BLOCK);
        Some(&self.data[from..end])
    }
}

/// All stretches in memory.
#[derive(Default)]
pub struct WriteBuffer {
    /// The one that grows.
    open: Option<Stretch>,
    /// Those that are being written, or about to be.
    sealed: BTreeMap<Physical, Arc<Stretch>>,
}

impl WriteBuffer {
    /// Adds slots; returns stretches that the caller has to write.
    pub fn add(&mut self, first: Physical, place: &Place, data: &[u8]) -> Vec<Arc<Stretch>> {
        let mut due = Vec::new();
        if self.open.as_ref().is_some_and(|open| open.end() != first) {
            due.extend(self.seal());
        }
        let none = || Stretch { first, place: place.clone(), data: Vec::new() };
        let open = self.open.get_or_insert_with(none);
        open.data.extend_from_slice(data);
        if open.data.len() >= STRETCH_BYTES {
            due.extend(self.seal());
        }
        due
    }

    /// Ends the stretch that grows, which the caller has to write.
    pub fn seal(&mut self) -> Option<Arc<Stretch>> {
        let sealed = Arc::new(self.open.take()?);
        self.sealed.insert(sealed.first, Arc::clone(&sealed));
        Some(sealed)
    }

    /// A stretch has been written.
    pub fn end(&mut self, stretch: &Stretch) {
        self.sealed.remove(&stretch.first);
    }

    /// The first slots of stretches that are being written.
    pub fn being_written(&self) -> impl Iterator<Item = Physical> {
        self.sealed.keys().copied()
    }

    /// Whether a stretch that begins there is being written.
    pub fn is_being_written(&self, first: &Physical) -> bool {
        self.sealed.contains_key(first)
    }

    /// The homes of which slots are in it.
    pub fn homes(&self) -> impl Iterator<Item = u64> {
        self.all().map(|stretch| stretch.first.home)
    }

    /// The content of up to so many slots from one on, if that is in it.
    pub fn find(&self, first: Physical, slots: u16) -> Option<Vec<u8>> {
        self.all().find_map(|stretch| stretch.from(first, slots)).map(<[u8]>::to_vec)
    }

    /// How many of so many slots come before the next one that is in it; the first is not.
    pub fn slots_before(&self, first: Physical, slots: u16) -> u16 {
        let ahead = self.all().filter(|stretch| stretch.first.home == first.home);
        let distances = ahead.filter_map(|stretch| stretch.first.slot.checked_sub(first.slot));
        distances.fold(slots, u16::min)
    }

    fn all(&self) -> impl Iterator<Item = &Stretch> {
        self.open.iter().chain(self.sealed.values().map(|sealed| &**sealed))
    }
}
