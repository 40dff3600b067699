//! The oracle: the expected content of the store, kept without any code of the engine.
//!
//! It knows every accepted record with its sequence. The state at the durable sequence is kept
//! separately from the present one, so that after a crash the state after any prefix of the records
//! from there on can be computed: [`Oracle::crash`].
//!
//! Invariant: `state` is `durable_state` with all of `recent` applied, in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::semantics::{self, Op, Value};
use upsweep::SpaceId;
use upsweep::layers::engine::SnapshotId;
use upsweep::layers::log::Seq;
use upsweep::layers::placement::Extent;

/// The layout of the blocks of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The ordered table.
    Table,
    /// The hash table.
    Hash,
    /// One block per key.
    Raw,
    /// The array of signed integers; rows are the cells that are not zero.
    Array,
}

/// One update of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Number of the table.
    pub space: SpaceId,
    /// The operation.
    pub op: Op,
    /// Its key.
    pub key: Vec<u8>,
    /// Its operand.
    pub operand: Vec<u8>,
}

/// One accepted record.
#[derive(Clone, Debug)]
pub enum Record {
    /// Updates that take effect together.
    Updates(Vec<Update>),
    /// A new table.
    Create(SpaceId, String, Layout),
    /// A table is dropped.
    Drop(SpaceId),
    /// New tables that are clones of others: source, number, name, snapshot (0: none).
    Clone(Vec<(SpaceId, SpaceId, String, SnapshotId)>),
    /// All tables of a snapshot are dropped.
    DropSnapshot(SnapshotId),
    /// All rows of a table from one key to below another are removed.
    RemoveRange(SpaceId, Vec<u8>, Option<Vec<u8>>),
    /// An empty table gets all these rows.
    Load(SpaceId, BTreeMap<Vec<u8>, Value>),
    /// An extent is reserved for the owner of a table.
    Reserve(SpaceId, Extent),
    /// An extent is given back.
    GiveBack(Extent),
}

/// One table of the model.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The layout of its blocks.
    pub layout: Layout,
    /// The snapshot that it belongs to, or 0.
    pub snapshot: SnapshotId,
    /// Its rows.
    pub rows: BTreeMap<Vec<u8>, Value>,
    /// The extents of its owner.
    pub extents: BTreeSet<Extent>,
}

/// All tables by number.
pub type State = BTreeMap<SpaceId, Table>;

/// A key of a table.
type Place = (SpaceId, Vec<u8>);

/// A modifier and its operand.
type Operation = (Op, Vec<u8>);

/// By key, then sequence; several updates of one record may hit one key.
type ByPlace = BTreeMap<Place, BTreeMap<Seq, Vec<Operation>>>;

/// A range of keys that was removed.
#[derive(Clone, Debug)]
struct Removed {
    space: SpaceId,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    seq: Seq,
}

/// Updates that the model refused: what the quarantine may and must hold.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    by_place: ByPlace,
    /// Sequence of the last blind update of each key, which may have superseded earlier ones.
    last_blind: BTreeMap<Place, BTreeSet<Seq>>,
    /// Ranges that were removed, which supersede all earlier updates.
    ranges: Vec<Removed>,
    /// Clones: source, clone, sequence. Updates that waited then may be refused for each of them.
    clones: Vec<(SpaceId, SpaceId, Seq)>,
}

/// One update found in the quarantine.
#[derive(Clone, Debug)]
pub struct Found {
    /// Sequence of the update.
    pub seq: Seq,
    /// Its table.
    pub space: SpaceId,
    /// Its modifier.
    pub op: Op,
    /// Its key.
    pub key: Vec<u8>,
    /// Its operand, folded ones excepted.
    pub operand: Vec<u8>,
    /// Whether it removes all keys from its own on, up to one that is not checked.
    pub is_range: bool,
    /// Whether it is there because its block is damaged.
    pub damaged: bool,
}

impl Refusals {
    fn note(&mut self, seq: Seq, update: &Update) {
        let place = (update.space, update.key.clone());
        let refused = (update.op, update.operand.clone());
        self.by_place.entry(place).or_default().entry(seq).or_default().push(refused);
    }

    fn forget_above(&mut self, seq: Seq) {
        for refused in self.by_place.values_mut() {
            refused.split_off(&seq.next());
        }
        for blind in self.last_blind.values_mut() {
            blind.split_off(&seq.next());
        }
        self.ranges.retain(|range| range.seq <= seq);
        self.clones.retain(|clone| clone.2 <= seq);
    }

    /// The tables for which an update that is refused for `space` at `seq` may have been declared:
    /// this one, and those that it was cloned from afterwards, also indirectly.
    fn origins(&self, space: SpaceId, seq: Seq) -> Vec<SpaceId> {
        let mut origins = vec![space];
        let mut next = 0;
        while let Some(clone) = origins.get(next).copied() {
            next += 1;
            let sources = self.clones.iter().filter(|event| event.1 == clone && event.2 >= seq);
            origins.extend(sources.map(|event| event.0));
        }
        origins
    }

    /// The tables that share what waited for `space` at `seq`.
    fn holders(&self, space: SpaceId, seq: Seq) -> Vec<SpaceId> {
        let mut holders = vec![space];
        let mut next = 0;
        while let Some(source) = holders.get(next).copied() {
            next += 1;
            let clones = self.clones.iter().filter(|event| event.0 == source && event.2 >= seq);
            holders.extend(clones.map(|event| event.1));
        }
        holders
    }

    /// Number of refusals.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_place.values().flat_map(BTreeMap::values).map(Vec::len).sum()
    }
}

/// The model and its record of events.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    durable_state: State,
    recent: VecDeque<(Seq, Record)>,
    /// The state with everything that was accepted.
    pub state: State,
    /// The refused updates.
    pub refusals: Refusals,
    /// Number of accepted records, for reports.
    pub accepted: u64,
}

fn play(state: &mut State, record: &Record, mut refused: impl FnMut(&Update)) {
    match record {
        Record::Create(space, name, layout) => {
            let (name, layout, rows) = (name.clone(), *layout, BTreeMap::new());
            let (snapshot, extents) = (SnapshotId::NONE, BTreeSet::new());
            state.insert(*space, Table { name, layout, snapshot, rows, extents });
        }
        Record::Clone(pairs) => {
            for (source, space, name, snapshot) in pairs {
                let Some(source) = state.get(source) else { continue };
                let (name, snapshot) = (name.clone(), *snapshot);
                let extents = BTreeSet::new();
                let clone = Table { name, snapshot, extents, ..source.clone() };
                state.insert(*space, clone);
            }
        }
        Record::DropSnapshot(snapshot) => state.retain(|_, table| table.snapshot != *snapshot),
        Record::RemoveRange(space, from, to) => {
            let Some(table) = state.get_mut(space) else { return };
            let is_in = |key: &[u8]| {
                key >= from.as_slice() && to.as_ref().is_none_or(|to| key < to.as_slice())
            };
            table.rows.retain(|key, _| !is_in(key));
        }
        Record::Load(space, rows) => {
            if let Some(table) = state.get_mut(space) {
                table.rows.clone_from(rows);
            }
        }
        Record::Drop(space) => {
            state.remove(space);
        }
        Record::Reserve(space, extent) => {
            if let Some(table) = state.get_mut(space) {
                table.extents.insert(*extent);
            }
        }
        Record::GiveBack(extent) => {
            for table in state.values_mut() {
                table.extents.remove(extent);
            }
        }
        Record::Updates(updates) => {
            for update in updates {
                let Some(table) = state.get_mut(&update.space) else {
                    // Accepted while its table was being dropped: a sweep may refuse it.
                    refused(update);
                    continue;
                };
                let current = table.rows.get(&update.key);
                let applied = match table.layout {
                    Layout::Array => semantics::apply_to_cell(update.op, current, &update.operand),
                    _ => semantics::apply(update.op, current, &update.operand),
                };
                match applied {
                    Ok(Some(value)) => {
                        table.rows.insert(update.key.clone(), value);
                    }
                    Ok(None) => {
                        table.rows.remove(&update.key);
                    }
                    Err(semantics::Refused) => refused(update),
                }
            }
        }
    }
}

impl Oracle {
    /// Takes a record that the engine has accepted at `seq`.
    pub fn accept(&mut self, seq: Seq, record: Record) {
        self.accepted += 1;
        let refusals = &mut self.refusals;
        play(&mut self.state, &record, |update| refusals.note(seq, update));
        match &record {
            Record::Clone(pairs) => {
                let clones = pairs.iter().map(|(source, space, _, _)| (*source, *space, seq));
                refusals.clones.extend(clones);
            }
            Record::RemoveRange(space, from, to) => {
                let (space, from, to) = (*space, from.clone(), to.clone());
                refusals.ranges.push(Removed { space, from, to, seq });
            }
            _ => {}
        }
        if let Record::Updates(updates) = &record {
            for update in updates.iter().filter(|update| update.op.blind()) {
                let place = (update.space, update.key.clone());
                refusals.last_blind.entry(place).or_default().insert(seq);
            }
        }
        self.recent.push_back((seq, record));
    }

    /// Records that everything up to `seq` is durable.
    pub fn durable(&mut self, seq: Seq) {
        while let Some((_, record)) = self.recent.pop_front_if(|(at, _)| *at <= seq) {
            play(&mut self.durable_state, &record, |_| {});
        }
    }

    /// Returns to the state after the last record at or below `seq`, which is not below what was
    /// reported as durable. (Where the log gets damaged nothing is durable: a record that has
    /// survived one crash may be lost in the next.)
    pub fn crash(&mut self, seq: Seq) {
        self.recent.retain(|(at, _)| *at <= seq);
        self.state.clone_from(&self.durable_state);
        for (_, record) in &self.recent {
            play(&mut self.state, record, |_| {});
        }
        self.refusals.forget_above(seq);
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, space: SpaceId, key: &[u8]) -> Option<&Value> {
        self.state.get(&space)?.rows.get(key)
    }

    /// Compares the quarantine with the refused updates. No update up to the sequence `swept` waits
    /// any more: it is in an image, in a spill segment that a sweep has applied, or in the
    /// quarantine.
    ///
    /// Superseded updates are not evaluated, and folded ones are refused as one; so an update that
    /// must be there is one that no later blind update of its key can have superseded, and whose
    /// modifier does not fold.
    ///
    /// # Errors
    /// Unexpected or missing entries.
    pub fn check_quarantine(&self, found: &[Found], swept: Seq) -> Result<(), String> {
        let mut left = self.refusals.by_place.clone();
        let mut seen: BTreeSet<(SpaceId, Vec<u8>, Seq)> = BTreeSet::new();
        for entry in found.iter().filter(|entry| !entry.damaged) {
            // A clone shares what waits with its source, and both may report it.
            let origins = self.refusals.origins(entry.space, entry.seq);
            let is_same = |(op, operand): &Operation| {
                *op == entry.op && (!op.keeps_apart() || *operand == entry.operand)
            };
            let origin = origins.into_iter().find(|space| {
                let refused = left.get(&(*space, entry.key.clone()));
                let at = refused.and_then(|refused| refused.get(&entry.seq));
                at.is_some_and(|at| at.iter().any(is_same))
            });
            let Some(origin) = origin else {
                let same = |other: &&Found| {
                    (other.seq, other.space, &other.key) == (entry.seq, entry.space, &entry.key)
                };
                let times = found.iter().filter(same).count();
                let entry = shown(entry);
                return Err(format!(
                    "{times} times in the quarantine, refused less often: {entry}"
                ));
            };
            seen.insert((origin, entry.key.clone(), entry.seq));
            let holders = self.refusals.holders(origin, entry.seq).len();
            let place = (origin, entry.key.clone());
            let at = left.get_mut(&place).and_then(|refused| refused.get_mut(&entry.seq));
            if let Some(at) = at.filter(|_| holders == 1)
                && let Some(position) = at.iter().position(is_same)
            {
                at.remove(position);
            }
        }
        self.check_conservation(&left, &seen, swept)
    }

    /// Checks that refused updates up to the sequence `swept` that are not superseded are in the
    /// quarantine, of which `seen` has the entries; `left` are the refusals that those do not
    /// account for.
    fn check_conservation(
        &self,
        left: &ByPlace,
        seen: &BTreeSet<(SpaceId, Vec<u8>, Seq)>,
        swept: Seq,
    ) -> Result<(), String> {
        for ((space, key), refused) in left {
            if !self.state.contains_key(space) {
                continue;
            }
            let blind = self.refusals.last_blind.get(&(*space, key.clone()));
            let ranges = self.refusals.ranges.iter().filter(|range| {
                let is_below = range.to.as_ref().is_none_or(|to| key < to);
                range.space == *space && *key >= range.from && is_below
            });
            let last_range = ranges.map(|range| range.seq).max().unwrap_or(Seq::NONE);
            let last_blind =
                blind.and_then(BTreeSet::last).copied().unwrap_or(Seq::NONE).max(last_range);
            for (seq, updates) in refused.range(last_blind.next()..) {
                if *seq > swept || seen.contains(&(*space, key.clone(), *seq)) {
                    continue;
                }
                if let Some((op, _)) = updates.iter().find(|(op, _)| op.keeps_apart()) {
                    let key = &key[..key.len().min(16)];
                    return Err(format!(
                        "refused, but not in the quarantine: {op:?} at {seq}, table {space}, key \
                         {key:02x?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn shown(entry: &Found) -> String {
    let key = &entry.key[..entry.key.len().min(16)];
    format!("{:?} at {}, table {}, key {key:02x?}", entry.op, entry.seq, entry.space)
}
