//! Owners of tables that keep content of their own in reserved extents.
//!
//! The engine may not write to an extent from the call that reserves it until it is durable that it
//! was given back, also during recovery; the bank reports it if it does. What an owner has written
//! there is read again, also after power cuts. Which extents are reserved after a crash is in the
//! oracle's tables.

use std::collections::BTreeMap;

use upsweep::layers::device::{Buffer, Class, Operation, Request, Token, WriteMode};
use upsweep::layers::log::Seq;
use upsweep::layers::placement::{Extent, UNIT_BYTES};
use upsweep::{Error, RequestError, RetryError, SpaceId};

use crate::oracle::Record;
use crate::plan::Plan;
use crate::random::Random;
use crate::world::{Verdict, World};

/// The token of requests of owners, which wait for each.
pub const OWNERS_TOKEN: Token = Token(1 << 62);
/// Average number of steps between calls of owners.
const STEPS_PER_CALL: u64 = 25;
/// Most extents at a time.
const EXTENTS_MAX: usize = 8;

/// The extents of a history.
pub struct Extents {
    random: Random,
    all: BTreeMap<Extent, Owned>,
}

struct Owned {
    space: SpaceId,
    /// It belongs to its space once everything up to here is durable.
    since: Seq,
    /// It is free once everything up to here is durable.
    until: Option<Seq>,
    /// What the owner has written, by offset in the extent.
    content: BTreeMap<u64, u8>,
}

impl Extents {
    /// None yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { random: Random::new(plan.seed, "owners of extents"), all: BTreeMap::new() }
    }

    /// A table is dropped by the record of this sequence.
    pub fn drop_of(&mut self, space: SpaceId, seq: Seq) {
        for owned in self.all.values_mut().filter(|owned| owned.space == space) {
            owned.until.get_or_insert(seq);
        }
    }

    /// Forgets what is free now that everything up to `durable` is durable, and returns the others.
    fn after(&mut self, durable: Seq) -> Vec<Extent> {
        self.all.retain(|_, owned| owned.until.is_none_or(|until| until > durable));
        self.all.keys().copied().collect()
    }

    /// One for which `suits`.
    fn pick(&mut self, suits: impl Fn(&Owned) -> bool) -> Option<Extent> {
        let some: Vec<Extent> =
            self.all.iter().filter(|(_, owned)| suits(owned)).map(|(extent, _)| *extent).collect();
        (!some.is_empty()).then(|| self.random.pick(&some))
    }
}

impl World {
    /// Tells the bank where the engine may not write now.
    pub fn keep_off_extents(&mut self) {
        let durable = self.core().durable();
        self.bank.kept = self.extents.after(durable);
    }

    /// After a crash: the extents of the oracle's tables are reserved, and no others.
    pub fn extents_after_crash(&mut self) {
        let before = std::mem::take(&mut self.extents.all);
        let tables = self.oracle.state.iter();
        let reserved =
            tables.flat_map(|(space, table)| table.extents.iter().map(|at| (*space, *at)));
        let owned = |(space, extent)| {
            let content = before.get(&extent).map(|owned| owned.content.clone());
            let content = content.unwrap_or_default();
            (extent, Owned { space, since: Seq::NONE, until: None, content })
        };
        self.extents.all = reserved.map(owned).collect();
        self.bank.kept = self.extents.all.keys().copied().collect();
    }

    /// Owners reserve, give back, write and read, now and then.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn use_extents(&mut self) -> Verdict {
        if !self.plan.extents || !self.extents.random.one_in(STEPS_PER_CALL) {
            return Ok(());
        }
        match self.extents.random.below(10) {
            0..4 => self.reserve_extent(),
            4..6 => self.give_extent_back(),
            6..8 => self.write_extent(),
            _ => self.read_extent(),
        }
    }

    fn reserve_extent(&mut self) -> Verdict {
        let tables = self.tables();
        if tables.is_empty() || self.extents.all.len() >= EXTENTS_MAX {
            return Ok(());
        }
        let random = &mut self.extents.random;
        let most = random.pick(&[1, 4, 64]);
        let (space, units) = (random.pick(&tables), 1 + random.below(most));
        match self.core().reserve_extent(space, (units * UNIT_BYTES) as u32) {
            Ok((extent, seq)) => {
                let overlaps = |other: &Extent| {
                    extent.device == other.device
                        && extent.offset < other.end()
                        && other.offset < extent.end()
                };
                if let Some(other) = self.extents.all.keys().find(|other| overlaps(other)) {
                    return Err(format!("{extent:?} was reserved while {other:?} is"));
                }
                self.tally.extents += 1;
                let content = BTreeMap::new();
                let owned = Owned { space, since: seq, until: None, content };
                self.extents.all.insert(extent, owned);
                self.oracle.accept(seq, Record::Reserve(space, extent));
                self.settle()
            }
            Err(Error::Retry(RetryError::Full { .. })) if self.plan.may_be_full() => Ok(()),
            Err(error) => self.check_busy(&error),
        }
    }

    fn give_extent_back(&mut self) -> Verdict {
        let Some(extent) = self.extents.pick(|owned| owned.until.is_none()) else { return Ok(()) };
        let Owned { space, since, .. } = self.extents.all[&extent];
        let is_durable = since <= self.core().durable();
        match self.core().give_extent_back(space, extent) {
            Ok(seq) => {
                let owned = self.extents.all.get_mut(&extent).expect("it was picked");
                owned.until = Some(seq);
                self.oracle.accept(seq, Record::GiveBack(extent));
                self.settle()
            }
            Err(Error::Request(RequestError::NoExtent(_))) if !is_durable => Ok(()),
            Err(error) => self.check_busy(&error),
        }
    }

    fn write_extent(&mut self) -> Verdict {
        let durable = self.core().durable();
        let is_owned = |owned: &Owned| owned.since <= durable && owned.until.is_none();
        let Some(extent) = self.extents.pick(is_owned) else { return Ok(()) };
        let random = &mut self.extents.random;
        let at = UNIT_BYTES * random.below(u64::from(extent.bytes) / UNIT_BYTES);
        let byte = 1 + random.below(255) as u8;
        let buffer = Buffer::copy_of(&[byte; UNIT_BYTES as usize]);
        let (offset, mode) = (extent.offset + at, WriteMode::Stable);
        let operation = Operation::Write { offset, buffer, mode };
        let written = self.perform_for_owner(extent, operation).map(|_| byte);
        let owned = self.extents.all.get_mut(&extent).expect("it was picked");
        match written {
            Ok(byte) => {
                owned.content.insert(at, byte);
            }
            Err(_) if self.failing => {
                owned.content.remove(&at);
            }
            Err(error) => return Err(format!("a write to {extent:?} failed: {error}")),
        }
        self.settle()
    }

    fn read_extent(&mut self) -> Verdict {
        let has_content = |owned: &Owned| owned.until.is_none() && !owned.content.is_empty();
        let Some(extent) = self.extents.pick(has_content) else { return Ok(()) };
        let content: Vec<(u64, u8)> =
            self.extents.all[&extent].content.iter().map(|(at, byte)| (*at, *byte)).collect();
        let (at, byte) = self.extents.random.pick(&content);
        let buffer = Buffer::zeroed(UNIT_BYTES as usize);
        let operation = Operation::Read { offset: extent.offset + at, buffer };
        let read = self.perform_for_owner(extent, operation);
        let is_intact = read.is_ok_and(|read| read.iter().all(|found| *found == byte));
        if !is_intact && !self.damaged {
            return Err(format!("{extent:?} has lost what its owner wrote at {at}"));
        }
        self.settle()
    }

    fn perform_for_owner(
        &mut self,
        extent: Extent,
        operation: Operation,
    ) -> Result<Vec<u8>, String> {
        let (device, token) = (extent.device, OWNERS_TOKEN);
        let request = Request { device, token, hint: Class::Upkeep.into(), operation };
        let done = self.bank.perform(request, &mut self.arrived);
        done.result.map_err(|error| error.to_string())?;
        Ok(done.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default())
    }
}
