//! Random updates: keys, modifiers and operands.

use std::collections::BTreeMap;

use upsweep::SpaceId;
use upsweep::layers::engine::KEY_BYTES_MAX;

use crate::oracle::{Layout, Oracle, Update};
use crate::plan::Plan;
use crate::random::{Random, mix};
use crate::semantics::{BUILTINS, Op, Value, kind};

/// Draws updates for one history.
pub struct Workload {
    random: Random,
    /// Draws operands that are long and refused.
    of_refusals: Random,
    /// Draws long records.
    of_floods: Random,
    keys: u64,
    key_bytes_max: u64,
    key_bytes_extreme: u64,
    large_bytes_max: u64,
    long_bytes_max: u64,
    value_bytes_max: u64,
    record_bytes_max: usize,
    updates_max: u64,
    /// Chance in per cent of a modifier that refuses or panics.
    hostile_percent: u64,
    /// Chance in per cent of a large value.
    large_percent: u64,
    /// Common endings of half of the keys, if any.
    tails: Vec<Vec<u8>>,
}

impl Workload {
    /// The workload of a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed, "workload");
        let segment = u64::from(plan.config.log_segment_bytes);
        Self {
            keys: plan.keys,
            key_bytes_max: plan.key_bytes_max,
            key_bytes_extreme: if random.percent(20) { 4096 } else { 400 },
            large_bytes_max: segment * 3 / 4,
            long_bytes_max: Random::new(plan.seed, "long records").pick(&[100, 600, segment / 8]),
            value_bytes_max: random.pick(&[10, 600, 600, 3000]),
            record_bytes_max: segment as usize * 3 / 4 + 512,
            updates_max: random.pick(&[3, 6, 40]),
            hostile_percent: random.pick(&[0, 0, 2, 10]),
            large_percent: random.pick(&[0, 0, 1, 5]),
            tails: tails(&mut Random::new(plan.seed, "tails")),
            of_refusals: Random::new(plan.seed, "refusals"),
            of_floods: Random::new(plan.seed, "floods of records"),
            random,
        }
    }

    /// Updates for one record over the given tables, at least one.
    pub fn record(&mut self, spaces: &[SpaceId]) -> Vec<Update> {
        let count =
            if self.random.percent(70) { 1 } else { self.random.between(2, self.updates_max) };
        let mut bytes = 0;
        let mut updates = Vec::new();
        for _ in 0..count {
            let update = {
                let space = self.random.pick(spaces);
                self.update(space)
            };
            bytes += update.key.len() + update.operand.len() + 16;
            if bytes > self.record_bytes_max && !updates.is_empty() {
                break;
            }
            updates.push(update);
        }
        updates
    }

    /// Whether a burst begins now.
    pub fn bursts(&mut self) -> bool {
        self.random.one_in(10)
    }

    /// An addition to one of a few keys, which are scattered over the first of the tables.
    pub fn addition(&mut self, spaces: &[SpaceId]) -> Update {
        let number = self.random.below(30) * self.keys / 30;
        let operand = self.random.below(1000).to_le_bytes().to_vec();
        Update { space: spaces[0], op: Op::AddI64, key: self.numbered(number), operand }
    }

    /// A put of some length to any key of the first of the tables.
    pub fn long_put(&mut self, spaces: &[SpaceId]) -> Update {
        let number = self.of_floods.below(self.keys);
        let length = self.of_floods.between(1, self.long_bytes_max) as usize;
        let operand = [vec![kind::BYTES], self.of_floods.bytes(length)].concat();
        Update { space: spaces[0], op: Op::Put, key: self.numbered(number), operand }
    }

    /// Turns an update into one that an array of signed integers accepts.
    pub fn fit_to_array(&self, update: &mut Update) {
        update.key = self.index(&update.key);
        let number: [u8; 8] =
            update.operand.iter().rev().chain([&0; 8]).take(8).fold([0; 8], |mut number, byte| {
                number.rotate_left(1);
                number[0] ^= byte;
                number
            });
        (update.op, update.operand) = match update.op {
            Op::Delete => (Op::Delete, Vec::new()),
            Op::Put => (Op::Put, [&[kind::I64][..], &number].concat()),
            Op::MaxI64 | Op::MaxU64 | Op::MaxF64 => (Op::MaxI64, number.to_vec()),
            Op::MinI64 | Op::MinU64 | Op::MinF64 => (Op::MinI64, number.to_vec()),
            _ => (Op::AddI64, number.to_vec()),
        };
    }

    /// The array index that represents a key: they spread over several blocks.
    pub fn index(&self, key: &[u8]) -> Vec<u8> {
        let word = key.iter().fold(0, |word, byte| mix(word ^ u64::from(*byte)));
        (word % self.keys * 97).to_be_bytes().to_vec()
    }

    fn update(&mut self, space: SpaceId) -> Update {
        let key = self.key();
        let op = self.op();
        let operand = self.operand(op);
        Update { space, op, key, operand }
    }

    /// A key: hot, scattered, or with a common prefix.
    pub fn key(&mut self) -> Vec<u8> {
        let number = match self.random.below(10) {
            0..3 => self.random.below(self.keys.min(4)),
            _ => self.random.below(self.keys),
        };
        self.numbered(number)
    }

    fn numbered(&self, number: u64) -> Vec<u8> {
        let word = mix(number ^ 0x6b65_7973);
        let length = if word.is_multiple_of(64) {
            word % (self.key_bytes_extreme + 1)
        } else {
            (word >> 8) % (self.key_bytes_max + 1)
        };
        let mut key = Vec::with_capacity(length as usize + 8);
        if word & 0x80 == 0 {
            key.extend_from_slice(b"prefix in common ");
        }
        key.extend_from_slice(&word.to_be_bytes()[..(word % 9) as usize]);
        key.resize(key.len().max(length as usize), word as u8);
        key.truncate(length.max(1) as usize);
        let tail = self.tails.get((word >> 16) as usize % (2 * self.tails.len()).max(1));
        key.extend_from_slice(tail.map_or(&[], Vec::as_slice));
        key.truncate(KEY_BYTES_MAX);
        if number == 0 { Vec::new() } else { key }
    }

    /// A key that exists, if any does, or one that may.
    pub fn known_key(&mut self, oracle: &Oracle, space: SpaceId) -> Vec<u8> {
        let key = self.key();
        let Some(table) = oracle.state.get(&space) else { return key };
        let key = if table.layout == Layout::Array { self.index(&key) } else { key };
        match table.rows.range(key.clone()..).next() {
            Some((found, _)) if self.random.percent(60) => found.clone(),
            _ => key,
        }
    }

    fn op(&mut self) -> Op {
        if self.random.percent(self.hostile_percent) {
            return self.random.pick(&[Op::Fussy, Op::Bomb]);
        }
        match self.random.below(10) {
            0..4 => Op::Put,
            4 => Op::Delete,
            5 => Op::Append,
            6 => Op::Stir,
            _ => self.random.pick(&BUILTINS),
        }
    }

    fn operand(&mut self, op: Op) -> Vec<u8> {
        match op {
            Op::Delete => Vec::new(),
            Op::Put | Op::InsertIfAbsent => {
                let kind = self.random.pick(&[kind::BYTES, kind::BYTES, kind::I64, kind::F64]);
                let mut operand = vec![kind];
                let bytes = if kind == kind::BYTES { self.value() } else { self.number() };
                operand.extend_from_slice(&bytes);
                operand
            }
            Op::BytePatch => {
                let offset = self.random.below(24) as u32;
                let mut operand = offset.to_le_bytes().to_vec();
                let length = self.random.below(32) as usize;
                operand.extend_from_slice(&self.random.bytes(length));
                operand
            }
            Op::BitOr => {
                let length = self.random.pick(&[8, 8, 3]);
                self.random.bytes(length)
            }
            Op::Fussy | Op::Bomb if self.of_refusals.percent(20) => {
                let length = self.of_refusals.below(self.large_bytes_max) as usize;
                self.of_refusals.bytes(length)
            }
            Op::Append | Op::Stir | Op::Fussy | Op::Bomb => self.short(),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Vec<u8> {
        let number = match self.random.below(4) {
            0 => self.random.below(10),
            1 => 0u64.wrapping_sub(self.random.below(10)),
            2 => (self.random.below(1000) as f64).to_bits(),
            _ => self.random.word() & 0x7fef_ffff_ffff_ffff,
        };
        number.to_le_bytes().to_vec()
    }

    fn short(&mut self) -> Vec<u8> {
        let length = self.random.below(40) as usize;
        self.random.bytes(length)
    }

    /// Rows to fill a table with.
    pub fn rows(&mut self) -> BTreeMap<Vec<u8>, Value> {
        let count = self.random.pick(&[0, 3, 30, 300]);
        let count = self.random.below(count + 1);
        let mut row = || {
            let put = self.operand(Op::Put);
            (self.key(), Value { kind: put[0], bytes: put[1..].to_vec() })
        };
        (0..count).map(|_| row()).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        if self.random.percent(self.large_percent) {
            let length = self.random.below(self.large_bytes_max) as usize;
            return self.random.bytes(length);
        }
        let longest = self.random.pick(&[10, 100, self.value_bytes_max]);
        let length = self.random.below(longest + 1) as usize;
        self.random.bytes(length)
    }
}

/// A few tails of keys in three of ten histories, in some of them more than the engine remembers.
fn tails(random: &mut Random) -> Vec<Vec<u8>> {
    if !random.percent(30) {
        return Vec::new();
    }
    let count = random.pick(&[1, 3, 40]);
    let lengths = [5, 9, 20, 48, 260];
    let mut tail = || {
        let length = random.pick(&lengths);
        random.bytes(length)
    };
    (0..count).map(|_| tail()).collect()
}
