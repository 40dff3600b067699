//! Leaves of records that expire: what has expired is left out wherever it lies, and nothing else.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::engine::block_format::{ApplyError, ApplyInput, BlockFormat, UpdateRef, ValueBody};
use crate::engine::ids::Seq;
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::engine::registry::{DELETE_RANGE, KeyRange, ModifierId, Modifiers};
use crate::structures::modifiers::{
    DELETE, EXPIRES_AT, Expiring, PUT, bind_builtins, insert_operand, touch_operand, value_operand,
};
use crate::structures::table::leaf_format::Leaf;
use crate::structures::table::{Lifetime, TableFormat};

const FORMAT: TableFormat = TableFormat(Lifetime::Limited);

const INLINE_BYTES_MAX: usize = 64;

type Update = (Vec<u8>, ModifierId, Vec<u8>);

fn record(expires_us: u64, text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let value = ValueRef { kind: ValueKind::Bytes, bytes: text };
    Expiring { expires_us, value }.encode(&mut bytes);
    bytes
}

fn put(key: u8, expires_us: u64, text: &[u8]) -> Update {
    (vec![key], PUT, value_operand(ValueKind::Bytes, &record(expires_us, text)))
}

fn insert(key: u8, moment_us: u64, expires_us: u64, text: &[u8]) -> Update {
    (vec![key], EXPIRES_AT, [insert_operand(moment_us), record(expires_us, text)].concat())
}

fn touch(key: u8, moment_us: u64, expires_us: u64) -> Update {
    (vec![key], EXPIRES_AT, touch_operand(moment_us, expires_us))
}

/// One block, and its large values.
struct Block {
    modifiers: Modifiers,
    body: Vec<u8>,
    companion: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys whose large values a sweep has asked for.
    loaded: Vec<Vec<u8>>,
}

impl Block {
    fn new() -> Self {
        let mut modifiers = Modifiers::default();
        bind_builtins(&mut modifiers);
        Self { modifiers, body: Vec::new(), companion: BTreeMap::new(), loaded: Vec::new() }
    }

    fn of(updates: &[Update]) -> Self {
        let mut block = Self::new();
        block.sweep(updates, 0);
        block
    }

    /// Applies updates, and leaves out what has expired.
    fn sweep(&mut self, updates: &[Update], expired_us: u64) {
        let numbered = updates.iter().zip(1..);
        let mut waiting: Vec<_> = numbered
            .map(|((key, modifier, operand), seq)| {
                let modifier = *modifier;
                UpdateRef { seq: Seq::new(seq), modifier, key, operand }
            })
            .collect();
        waiting.sort_by_key(|update| (update.key, update.seq));
        let mut values = Vec::new();
        let applied = loop {
            let input = ApplyInput {
                body: Some(&self.body),
                updates: &waiting,
                modifiers: &self.modifiers,
                values: &values,
                body_bytes_max: usize::MAX,
                inline_value_bytes_max: INLINE_BYTES_MAX,
                expired_us,
            };
            match FORMAT.apply(&input) {
                Ok(applied) => break applied,
                Err(ApplyError::NeedValues(keys)) => {
                    self.loaded.clone_from(&keys);
                    let load = |key: Vec<u8>| (key.clone(), self.companion[&key].clone());
                    values = keys.into_iter().map(load).collect();
                }
                Err(ApplyError::Corrupt(reason)) => panic!("{reason}"),
            }
        };
        assert_eq!(applied.refused, []);
        assert!(applied.values.is_sorted_by(|left, right| left.0 < right.0));
        for (key, value) in applied.values {
            match value {
                Some(ValueBody { head, rest }) => {
                    self.companion.insert(key, [&[head], &*rest].concat());
                }
                None => drop(self.companion.remove(&key).expect("only what is there is freed")),
            }
        }
        let [piece] = &applied.pieces[..] else { panic!("split without limit") };
        self.body.clone_from(&piece.body);
        let checked = FORMAT.check(&self.body, &[], None).expect("a sound body");
        assert_eq!(checked.records, piece.records);
        let large = checked.values.iter().map(|(key, _)| key);
        assert!(large.eq(self.companion.keys()), "no large value is lost or left behind");
    }

    /// When each record expires, by key.
    fn times(&self) -> BTreeMap<u8, u64> {
        let leaf = Leaf::parse(&self.body).expect("a sound body");
        let of = |index| {
            let record = leaf.record(index).expect("a sound record");
            (record.key[0], record.value.expires_us())
        };
        (0..leaf.count()).map(of).collect()
    }
}

#[test]
fn expired_records_are_left_out_of_copied_stretches() {
    let all: Vec<Update> = (0..10).map(|key| put(key, 10 + u64::from(key), b"text")).collect();
    for (expired_us, left) in [(0, 0..10), (9, 0..10), (10, 1..10), (14, 5..10), (99, 0..0)] {
        let mut block = Block::of(&all);
        block.sweep(&[], expired_us);
        assert_eq!(block.times().into_keys().collect::<Vec<_>>(), left.collect::<Vec<_>>());
    }
    // First, last and in the middle, beside records that change.
    let times = [15, 10, 15, 15, 10, 10, 15, 10];
    let all: Vec<Update> = (0..).zip(times).map(|(key, us)| put(key, us, b"text")).collect();
    let mut block = Block::of(&all);
    block.sweep(&[put(3, 30, b"new"), (vec![6], DELETE, Vec::new())], 12);
    assert_eq!(block.times(), BTreeMap::from([(0, 15), (2, 15), (3, 30)]));
}

#[test]
fn what_updates_make_expires_as_well() {
    let mut block = Block::of(&[put(1, 10, b"a"), put(2, 10, b"b"), put(3, 10, b"c")]);
    // Touched in time, too late, and put with a time that has passed by now.
    block.sweep(&[touch(1, 9, 30), touch(2, 10, 30), put(3, 20, b"c"), put(4, 20, b"d")], 20);
    assert_eq!(block.times(), BTreeMap::from([(1, 30)]));
    block.sweep(&[insert(1, 30, 40, b"e"), insert(2, 25, 40, b"f")], 30);
    assert_eq!(block.times(), BTreeMap::from([(1, 40), (2, 40)]));
}

#[test]
fn large_values_that_expire_are_freed_without_being_loaded() {
    let large = vec![7; 2 * INLINE_BYTES_MAX];
    let mut block = Block::of(&[put(1, 10, &large), put(2, 20, &large), put(3, 10, b"small")]);
    assert_eq!(block.companion.len(), 2);
    block.sweep(&[put(9, 99, b"beside")], 15);
    assert_eq!(block.times(), BTreeMap::from([(2, 20), (9, 99)]));
    assert!(block.loaded.is_empty());
    // A touch needs the value, and writes it with its time.
    block.sweep(&[touch(2, 16, 40)], 16);
    assert_eq!(block.loaded, [[2]]);
    assert_eq!(block.times(), BTreeMap::from([(2, 40), (9, 99)]));
    assert!(block.companion[&[2][..]].ends_with(&large));
    // One that is put and has expired is not even written.
    block.sweep(&[put(2, 41, &large), put(5, 41, &large)], 41);
    assert_eq!(block.times(), BTreeMap::from([(9, 99)]));
}

#[test]
fn ranges_are_removed_and_thin_neighbours_join() {
    let mut block = Block::of(&[put(1, 10, b"a"), put(5, 10, b"b"), put(9, 10, b"c")]);
    let range = KeyRange { from: &[2], to: Some(&[9]) };
    let (key, operand) = (range.from.to_vec(), range.operand());
    block.sweep(&[(key, DELETE_RANGE, operand)], 0);
    assert_eq!(block.times(), BTreeMap::from([(1, 10), (9, 10)]));
    let right = Block::of(&[put(10, 20, b"d")]);
    block.body = FORMAT.merge(&block.body, &right.body, 4096).expect("thin");
    block.sweep(&[], 10);
    assert_eq!(block.times(), BTreeMap::from([(10, 20)]));
}

#[test]
fn a_large_value_has_a_time_where_records_expire_and_nowhere_else() {
    let block = Block::of(&[put(1, 10, &[7; 2 * INLINE_BYTES_MAX])]);
    let found = TableFormat::default().check(&block.body, &[], None);
    assert!(found.is_err_and(|reason| reason.contains("a time")));
}

/// What a test does to a block.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u64, usize),
    Insert(u8, u64, usize),
    Touch(u8, u64),
    Delete(u8),
    /// Time passes.
    Wait(u64),
    /// A sweep of everything that was declared.
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0u8..6;
    let length = || prop_oneof![Just(3usize), Just(2 * INLINE_BYTES_MAX)];
    let step = prop_oneof![
        3 => (key(), 0..12u64, length()).prop_map(|(key, us, bytes)| Step::Put(key, us, bytes)),
        3 => (key(), 0..12u64, length()).prop_map(|(key, us, bytes)| Step::Insert(key, us, bytes)),
        3 => (key(), 0..12u64).prop_map(|(key, us)| Step::Touch(key, us)),
        1 => key().prop_map(Step::Delete),
        3 => (1..5u64).prop_map(Step::Wait),
        2 => Just(Step::Sweep),
    ];
    vec(step, 1..60)
}

proptest! {
    /// However the updates are spread over sweeps, what is there is what an oracle says that drops
    /// nothing.
    #[test]
    fn sweeps_make_no_difference(steps in steps()) {
        let (mut block, mut waiting) = (Block::new(), Vec::new());
        // By key: when it expires, and its text.
        let mut oracle: BTreeMap<u8, (u64, Vec<u8>)> = BTreeMap::new();
        let mut now_us = 100;
        let ends = [Step::Sweep, Step::Wait(1), Step::Sweep];
        for (number, step) in steps.into_iter().chain(ends).enumerate() {
            let text = |length| vec![number as u8; length];
            let is_there = |oracle: &BTreeMap<u8, (u64, Vec<u8>)>, key| {
                oracle.get(key).is_some_and(|(expires_us, _)| *expires_us > now_us)
            };
            match step {
                Step::Put(key, us, length) => {
                    waiting.push(put(key, now_us + us, &text(length)));
                    oracle.insert(key, (now_us + us, text(length)));
                }
                Step::Insert(key, us, length) => {
                    waiting.push(insert(key, now_us, now_us + us, &text(length)));
                    if !is_there(&oracle, &key) {
                        oracle.insert(key, (now_us + us, text(length)));
                    }
                }
                Step::Touch(key, us) => {
                    waiting.push(touch(key, now_us, now_us + us));
                    if is_there(&oracle, &key) {
                        oracle.entry(key).and_modify(|found| found.0 = now_us + us);
                    }
                }
                Step::Delete(key) => {
                    waiting.push((vec![key], DELETE, Vec::new()));
                    oracle.remove(&key);
                }
                Step::Wait(us) => now_us += us,
                Step::Sweep => {
                    block.sweep(&std::mem::take(&mut waiting), now_us);
                    let there = oracle.iter().filter(|(_, (expires_us, _))| *expires_us > now_us);
                    let there: BTreeMap<u8, u64> =
                        there.map(|(key, (expires_us, _))| (*key, *expires_us)).collect();
                    prop_assert_eq!(block.times(), there);
                    for (key, value) in &block.companion {
                        prop_assert!(value.ends_with(&oracle[&key[0]].1));
                    }
                }
            }
        }
    }
}
