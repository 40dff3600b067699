//! The oracle: what the store must hold, kept without any code of the engine.
//!
//! It knows every accepted record with its sequence. The state at the durable sequence is kept
//! apart from the present one, so that after a crash the state after any prefix of the records
//! from there on can be had: [`Oracle::crash`].
//!
//! Invariant: `state` is `durable_state` with all of `recent` applied, in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::semantics::{self, Op, Value};

/// How a table lays its blocks out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The ordered table.
    Table,
    /// The hash table.
    Hash,
    /// One block per key.
    Raw,
}

/// One update of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Number of the table.
    pub space: u32,
    /// What to do.
    pub op: Op,
    /// To which key.
    pub key: Vec<u8>,
    /// With which operand.
    pub operand: Vec<u8>,
}

/// One accepted record.
#[derive(Clone, Debug)]
pub enum Record {
    /// Updates that take effect together.
    Updates(Vec<Update>),
    /// A new table.
    Create(u32, String, Layout),
    /// The end of a table.
    Drop(u32),
}

/// One table of the model.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// How its blocks are laid out.
    pub layout: Layout,
    /// Its rows.
    pub rows: BTreeMap<Vec<u8>, Value>,
}

/// All tables by number.
pub type State = BTreeMap<u32, Table>;

/// A key of a table.
type Place = (u32, Vec<u8>);

/// A modifier and its operand.
type Operation = (Op, Vec<u8>);

/// Updates that the model refused: what the quarantine may and must hold.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// By key, then sequence; several updates of one record may hit one key.
    by_place: BTreeMap<Place, BTreeMap<u64, Vec<Operation>>>,
    /// Sequence of the last blind update of each key, which may have superseded those before.
    last_blind: BTreeMap<Place, BTreeSet<u64>>,
}

/// One update found in the quarantine.
#[derive(Clone, Debug)]
pub struct Found {
    /// Sequence of the update.
    pub seq: u64,
    /// Its table.
    pub space: u32,
    /// Its modifier.
    pub op: Op,
    /// Its key.
    pub key: Vec<u8>,
    /// Its operand, folded ones excepted.
    pub operand: Vec<u8>,
    /// Whether it is there because its block is damaged.
    pub damaged: bool,
}

impl Refusals {
    fn note(&mut self, seq: u64, update: &Update) {
        let place = (update.space, update.key.clone());
        let refused = (update.op, update.operand.clone());
        self.by_place.entry(place).or_default().entry(seq).or_default().push(refused);
    }

    fn forget_above(&mut self, seq: u64) {
        for refused in self.by_place.values_mut() {
            refused.split_off(&(seq + 1));
        }
        for blind in self.last_blind.values_mut() {
            blind.split_off(&(seq + 1));
        }
    }

    /// How many refusals there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_place.values().flat_map(BTreeMap::values).map(Vec::len).sum()
    }
}

/// The model and what it has seen.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    durable_state: State,
    recent: VecDeque<(u64, Record)>,
    /// The state with everything that was accepted.
    pub state: State,
    /// What was refused.
    pub refusals: Refusals,
    /// Records accepted, for people.
    pub accepted: u64,
}

fn play(state: &mut State, record: &Record, mut refused: impl FnMut(&Update)) {
    match record {
        Record::Create(space, name, layout) => {
            let (name, layout, rows) = (name.clone(), *layout, BTreeMap::new());
            state.insert(*space, Table { name, layout, rows });
        }
        Record::Drop(space) => {
            state.remove(space);
        }
        Record::Updates(updates) => {
            for update in updates {
                let Some(table) = state.get_mut(&update.space) else {
                    // Accepted while the end of its table was on its way: a sweep may refuse it.
                    refused(update);
                    continue;
                };
                match semantics::apply(update.op, table.rows.get(&update.key), &update.operand) {
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
    pub fn accept(&mut self, seq: u64, record: Record) {
        self.accepted += 1;
        let refusals = &mut self.refusals;
        play(&mut self.state, &record, |update| refusals.note(seq, update));
        if let Record::Updates(updates) = &record {
            for update in updates.iter().filter(|update| update.op.blind()) {
                let place = (update.space, update.key.clone());
                refusals.last_blind.entry(place).or_default().insert(seq);
            }
        }
        self.recent.push_back((seq, record));
    }

    /// Takes note that everything up to `seq` is durable.
    pub fn durable(&mut self, seq: u64) {
        while let Some((_, record)) = self.recent.pop_front_if(|(at, _)| *at <= seq) {
            play(&mut self.durable_state, &record, |_| {});
        }
    }

    /// Goes back to the state after the last record at or below `seq`, which is not below what was
    /// said to be durable. (Where the log gets damaged nothing is: a record that has survived one
    /// crash may be lost in the next.)
    pub fn crash(&mut self, seq: u64) {
        self.recent.retain(|(at, _)| *at <= seq);
        self.state.clone_from(&self.durable_state);
        for (_, record) in &self.recent {
            play(&mut self.state, record, |_| {});
        }
        self.refusals.forget_above(seq);
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, space: u32, key: &[u8]) -> Option<&Value> {
        self.state.get(&space)?.rows.get(key)
    }

    /// Compares the quarantine with what was refused. `all_swept`: no update waits any more.
    ///
    /// Superseded updates are not evaluated, and folded ones are refused as one; so an update that
    /// must be there is one that no later blind update of its key can have superseded, and whose
    /// modifier does not fold.
    ///
    /// # Errors
    /// What is there and should not be, or the other way round.
    pub fn check_quarantine(&self, found: &[Found], all_swept: bool) -> Result<(), String> {
        let mut left = self.refusals.by_place.clone();
        for entry in found.iter().filter(|entry| !entry.damaged) {
            let place = (entry.space, entry.key.clone());
            let at = left.get_mut(&place).and_then(|refused| refused.get_mut(&entry.seq));
            let position = at.as_ref().and_then(|at| {
                at.iter().position(|(op, operand)| {
                    *op == entry.op && (!op.keeps_apart() || *operand == entry.operand)
                })
            });
            match (at, position) {
                (Some(at), Some(position)) => {
                    at.remove(position);
                }
                _ => {
                    let same = |other: &&Found| {
                        (other.seq, other.space, &other.key) == (entry.seq, entry.space, &entry.key)
                    };
                    let times = found.iter().filter(same).count();
                    let entry = shown(entry);
                    return Err(format!(
                        "{times} times in the quarantine, refused less often: {entry}"
                    ));
                }
            }
        }
        if !all_swept {
            return Ok(());
        }
        for ((space, key), refused) in &left {
            if !self.state.contains_key(space) {
                continue;
            }
            let blind = self.refusals.last_blind.get(&(*space, key.clone()));
            let last_blind = blind.and_then(BTreeSet::last).copied().unwrap_or(0);
            for (seq, updates) in refused.range(last_blind + 1..) {
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
