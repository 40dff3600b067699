//! What the sweep has shown too early: versions that are superseded by others that were not stable
//! yet, or at which somebody was still looking.
//!
//! The sweep shows a block of the map when it writes it, and if nothing changes there any more it
//! does not write it again. As long as there are writes most blocks are soon swept again, so what
//! they have is looked at when it adds up, or when room is needed, and otherwise in peace.

use std::collections::BTreeMap;

use crate::address::{Branch, Stamp};
use crate::error::Error;
use crate::trim::Trimmed;
use crate::volumes::Inner;

/// Most ranges that are known; of others, all branches are walked if room is needed.
const RANGES_MAX: usize = 1 << 16;
/// Ranges that a step looks at.
const RANGES_PER_STEP: usize = 16;
/// While there are writes, they are looked at once they have more than this share of all slots that
/// are not known to be dead.
const UNSETTLED_PART: u64 = 3;

/// Chunks of a branch that were in one block of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The branch and the first chunk.
    pub from: (Branch, u64),
    /// The last chunk.
    pub to: u64,
    /// How many slots are superseded, but not yet for good.
    pub slots: u64,
    /// The last version.
    pub last: Stamp,
}

/// These ranges. No two have a chunk in common but the first of one and the last of another.
#[derive(Debug, Default)]
pub struct Unsettled {
    ranges: BTreeMap<(Branch, u64), Range>,
    slots: u64,
    /// There were others.
    is_partial: bool,
    /// The last change when that was last asked for.
    last_change: Stamp,
}

impl Unsettled {
    /// Takes what the sweep has just shown of a range, in place of what was known.
    pub fn show(&mut self, range: Range) {
        let (branch, _) = range.from;
        let known = self.ranges.extract_if(range.from..=(branch, range.to), |_, _| true);
        let slots: u64 = known.map(|(_, known)| known.slots).sum();
        self.slots -= slots;
        if range.slots > 0 {
            self.add(range);
        }
    }

    fn add(&mut self, range: Range) {
        if self.ranges.len() == RANGES_MAX && !self.ranges.contains_key(&range.from) {
            self.is_partial = true;
            return;
        }
        self.slots += range.slots;
        let before = self.ranges.insert(range.from, range);
        self.slots -= before.map_or(0, |before| before.slots);
    }

    /// Takes out some ranges whose last version is before `end`.
    fn take(&mut self, end: Stamp) -> Vec<Range> {
        let is_over = |_: &_, range: &mut Range| range.last < end;
        let taken = self.ranges.extract_if(.., is_over).take(RANGES_PER_STEP);
        let taken: Vec<Range> = taken.map(|(_, range)| range).collect();
        self.slots -= taken.iter().map(|range| range.slots).sum::<u64>();
        taken
    }
}

impl Inner {
    /// Looks again at some of what the sweep has shown too early, if it is much, or if there has
    /// been no change since the last call; returns whether it did.
    pub fn trim_much_unsettled(&self) -> Result<bool, Error> {
        let mut unsettled = self.trimming.unsettled.lock();
        let (slots, last) = (unsettled.slots, self.stamps.last());
        let is_idle = std::mem::replace(&mut unsettled.last_change, last) == last;
        drop(unsettled);
        let share = if is_idle { 0 } else { self.payload.living() / UNSETTLED_PART };
        let is_much = slots > share.max(u64::from(self.payload.slots_per_home));
        Ok(is_much && self.trim_unsettled()?)
    }

    /// Looks again at some of what the sweep has shown too early; returns whether there was
    /// anything.
    pub fn trim_unsettled(&self) -> Result<bool, Error> {
        let last = self.trimming.unsettled.lock().ranges.values().map(|range| range.last).max();
        let Some(last) = last else { return self.walk_all_if_partial() };
        self.is_stable(last)?;
        let settled = Stamp(self.trimming.needs.lock().until.0.saturating_add(1));
        let end = settled.min(self.stamps.first_look());
        let taken = self.trimming.unsettled.lock().take(end);
        let is_any = !taken.is_empty();
        for (nth, range) in taken.iter().enumerate() {
            if let Err(error) = self.trim_range(range) {
                let mut unsettled = self.trimming.unsettled.lock();
                taken[nth..].iter().for_each(|range| unsettled.add(*range));
                return Err(error);
            }
        }
        Ok(is_any)
    }

    fn trim_range(&self, range: &Range) -> Result<(), Error> {
        let (branch, mut next) = range.from;
        while let Trimmed { next: Some(chunk), .. } =
            self.trim_chunks(branch, next..=range.to, false)?
        {
            next = chunk;
        }
        Ok(())
    }

    /// If there was more than could be known: begins to walk all branches.
    fn walk_all_if_partial(&self) -> Result<bool, Error> {
        let is_partial = std::mem::take(&mut self.trimming.unsettled.lock().is_partial);
        if is_partial {
            self.catalog.write().walk_all()?;
        }
        Ok(is_partial)
    }
}
