//! Reads of one key of a store.

use upsweep::layers::engine::{View, ViewPoll, Wanted};
use upsweep::layers::structures::hash::ByHash;
use upsweep::layers::structures::table::{ByKey, Lookup, get};

use super::{Kind, Store, problem};
use crate::problem::Problem;
use crate::systems::Finished;

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) number: u64,
    pub(super) begun_us: u64,
    pub(super) key: u64,
}

impl Store {
    /// Reads until the operation has ended, or waits for its block.
    pub(super) fn read(&mut self, reading: Reading) -> Result<(), Problem> {
        let wanted = Wanted::Point(reading.key.to_be_bytes().to_vec());
        match self.core.view(self.space, wanted).map_err(problem("a read"))? {
            ViewPoll::Ready(view) => self.answer(reading, &view)?,
            ViewPoll::Pending(id) => {
                self.reading.insert(id, reading);
            }
        }
        Ok(())
    }

    /// Takes what is wanted from a view.
    pub(super) fn answer(&mut self, reading: Reading, view: &View) -> Result<(), Problem> {
        let Reading { number, begun_us, key } = reading;
        self.count_look_up(view);
        let found = self.found(view, key)?;
        self.finished.push(Finished { number, begun_us, found });
        Ok(())
    }

    pub(super) fn count_look_up(&mut self, view: &View) {
        self.look_ups.0 += 1;
        self.look_ups.1 += u64::from(view.image.is_none() && !view.waiting.is_empty());
    }

    /// The value of a key in a view.
    fn found(&self, view: &View, key: u64) -> Result<Option<u64>, Problem> {
        let mut updates = view.updates();
        updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
        let body = view.image.as_ref().map(|image| image.body());
        let (key, modifiers) = (key.to_be_bytes(), &self.modifiers);
        let found = match self.plan.kind {
            Kind::Table => get::<ByKey>(body, &updates, modifiers, &key, None),
            Kind::HashTable => get::<ByHash>(body, &updates, modifiers, &key, None),
        };
        match found.map_err(Problem::Simulation)? {
            Lookup::Value { bytes, .. } => {
                let word = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
                word.map(Some).ok_or_else(|| Problem::Simulation("a short value".into()))
            }
            Lookup::Absent => Ok(None),
            Lookup::NeedLarge { .. } => Err(Problem::Simulation("a large value".into())),
        }
    }
}
