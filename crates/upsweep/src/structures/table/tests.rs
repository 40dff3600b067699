//! Tables of every order against a `BTreeMap` oracle, and against damaged bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::leaf_format::{Leaf, LeafBuilder, Stored, body_bytes};
use super::*;
use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing, UpdateRef, ValueBody,
};
use crate::engine::ids::Seq;
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::engine::registry::{DELETE_RANGE, KeyRange, ModifierId, Modifiers};
use crate::structures::hash::{ByHash, HashFormat, bucket_format};
use crate::structures::modifiers::{
    ADD_I64, APPEND, BIT_OR, BYTE_PATCH, DELETE, INSERT_IF_ABSENT, MAX_U64, PUT, Resolved,
    bind_builtins, patch_operand, resolve, value_operand,
};
use crate::structures::sealed::Sealed;

type Owned = (ValueKind, Vec<u8>);
type Oracle = BTreeMap<Vec<u8>, Owned>;
type Update = (Vec<u8>, ModifierId, Vec<u8>);

fn builtins() -> Modifiers {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    modifiers
}

/// Few and short keys, so that they meet; some that share long prefixes; some of the longest.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(97u8..103, 0..4),
        3 => (0u8..8, 100usize..300).prop_map(|(last, length)| {
            let mut key = vec![b'c'; length / 50 * 50];
            key.push(last);
            key
        }),
        1 => vec(any::<u8>(), 4090..=4096),
    ]
}

fn updates() -> impl Strategy<Value = (ModifierId, Vec<u8>)> {
    let bytes = || prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 200..3000)];
    let put = |bytes: Vec<u8>| value_operand(ValueKind::Bytes, &bytes);
    let number = |number: i64| number.to_le_bytes().to_vec();
    prop_oneof![
        4 => bytes().prop_map(move |bytes| (PUT, put(bytes))),
        1 => any::<i64>().prop_map(move |n| (PUT, value_operand(ValueKind::I64, &number(n)))),
        2 => Just((DELETE, Vec::new())),
        3 => (-9i64..9).prop_map(move |n| (ADD_I64, number(n))),
        1 => (0i64..9).prop_map(move |n| (MAX_U64, number(n))),
        2 => bytes().prop_map(|bytes| (APPEND, bytes)),
        1 => (0u32..30, bytes()).prop_map(|(at, bytes)| (BYTE_PATCH, patch_operand(at, &bytes))),
        1 => bytes().prop_map(move |bytes| (INSERT_IF_ABSENT, put(bytes))),
        // All built-in modifiers with whatever operand they admit.
        2 => (0u16..15, vec(any::<u8>(), 8)).prop_map(|(id, operand)| (ModifierId(id), operand)),
    ]
}

fn batches() -> impl Strategy<Value = Vec<Vec<Update>>> {
    let update = (keys(), updates()).prop_map(|(key, (id, operand))| (key, id, operand));
    vec(vec(update, 0..60), 1..5)
}

/// What the engine does around the format: blocks by key, and the companion space.
struct Table<O = ByKey> {
    blocks: BTreeMap<Vec<u8>, Vec<u8>>,
    companion: BTreeMap<Vec<u8>, Vec<u8>>,
    modifiers: Modifiers,
    body_bytes_max: usize,
    inline_value_bytes_max: usize,
    order: PhantomData<O>,
}

/// Hashes that collide: those of keys of one length and parity are equal.
#[derive(Clone, Copy)]
struct Colliding;

impl Sealed for Colliding {}

impl Order for Colliding {
    type Rank = u64;
    const OF_KEYS: bool = false;

    fn rank(key: &[u8]) -> u64 {
        let parity = key.iter().fold(0, |all, byte| all ^ byte) & 1;
        (u64::from(parity) << 62) | (key.len() as u64 & 3)
    }

    fn position(key: &[u8]) -> Cow<'_, [u8]> {
        Cow::Owned(bucket_format::position(Self::rank(key), key))
    }
}

fn sorted(updates: &[Update]) -> Vec<UpdateRef<'_>> {
    let mut sorted: Vec<UpdateRef<'_>> = updates
        .iter()
        .enumerate()
        .map(|(seq, (key, modifier, operand))| UpdateRef {
            seq: Seq::new(seq as u64),
            modifier: *modifier,
            key,
            operand,
        })
        .collect();
    sorted.sort_by_key(|update| (update.key, update.seq));
    sorted
}

impl<O: Order> Table<O> {
    fn new(body_bytes_max: usize, inline_value_bytes_max: usize) -> Self {
        Self {
            blocks: BTreeMap::from([(Vec::new(), Vec::new())]),
            companion: BTreeMap::new(),
            modifiers: builtins(),
            body_bytes_max,
            inline_value_bytes_max,
            order: PhantomData,
        }
    }

    fn high_of(&self, low: &[u8]) -> Option<Vec<u8>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let above = self.blocks.range::<[u8], _>((Excluded(low), Unbounded)).next();
        above.map(|(key, _)| key.clone())
    }

    fn covered<'u>(&self, low: &[u8], updates: &[UpdateRef<'u>]) -> Vec<UpdateRef<'u>> {
        let high = self.high_of(low);
        let is_covered = |update: &&UpdateRef<'_>| {
            let position = O::position(update.key);
            *position >= *low && high.as_deref().is_none_or(|high| *position < *high)
        };
        updates.iter().filter(is_covered).copied().collect()
    }

    fn apply_to<'a>(&'a self, low: &[u8], updates: &[UpdateRef<'a>]) -> Applied<'a> {
        let body = self.blocks[low].as_slice();
        let mut input = ApplyInput {
            body: (!body.is_empty()).then_some(body),
            updates,
            modifiers: &self.modifiers,
            values: &[],
            body_bytes_max: self.body_bytes_max,
            inline_value_bytes_max: self.inline_value_bytes_max,
            expired_us: 0,
        };
        match leaf::apply::<O>(&input, Lifetime::Endless) {
            Ok(applied) => applied,
            Err(ApplyError::NeedValues(keys)) => {
                assert!(keys.is_sorted());
                let load = |key: Vec<u8>| (key.clone(), self.companion[&key].clone());
                let values: Vec<_> = keys.into_iter().map(load).collect();
                input.values = &values;
                leaf::apply::<O>(&input, Lifetime::Endless).expect("all values were loaded")
            }
            Err(ApplyError::Corrupt(reason)) => panic!("{reason}"),
        }
    }

    /// Sweeps all updates into the blocks; returns how many were refused.
    fn sweep(&mut self, updates: &[Update]) -> usize {
        let updates = sorted(updates);
        let lows: Vec<Vec<u8>> = self.blocks.keys().cloned().collect();
        let mut refused = 0;
        for low in lows {
            let waiting = self.covered(&low, &updates);
            let Applied { pieces, values, refused: of_block } = self.apply_to(&low, &waiting);
            let body = |ValueBody { head, rest }: ValueBody<'_>| [&[head], &*rest].concat();
            let values: Vec<_> =
                values.into_iter().map(|(key, value)| (key, value.map(body))).collect();
            assert!(values.is_sorted_by(|left, right| left.0 < right.0));
            refused += of_block.len();
            for (key, value) in values {
                match value {
                    Some(body) => drop(self.companion.insert(key, body)),
                    None => drop(self.companion.remove(&key).expect("only what is there is freed")),
                }
            }
            for piece in pieces {
                let is_small = piece.body.len() <= self.body_bytes_max;
                assert!(is_small || piece.records == 1, "{} bytes", piece.body.len());
                let key = piece.key.unwrap_or_else(|| low.clone());
                assert!(key >= low);
                self.blocks.insert(key, piece.body);
            }
        }
        refused
    }

    /// Checks all blocks and returns their content.
    fn content(&self) -> Oracle {
        let mut content = Oracle::new();
        let mut large = 0;
        for (low, body) in &self.blocks {
            let checked =
                leaf::check::<O>(body, low, self.high_of(low).as_deref(), Lifetime::Endless);
            let checked: Checked = checked.expect("a sound body");
            let leaf = Leaf::parse(body).expect("a sound body");
            assert_eq!(checked.records as usize, leaf.count());
            for (key, bytes) in &checked.values {
                assert_eq!(self.companion[key].len(), *bytes as usize);
                large += 1;
            }
            for index in 0..leaf.count() {
                let record = leaf.record(index).expect("a sound record");
                let value = self.value(body, &[], record.key).expect("a record has a value");
                assert!(content.insert(record.key.to_vec(), value).is_none());
            }
        }
        assert_eq!(large, self.companion.len(), "no large value is left behind");
        content
    }

    fn value(&self, body: &[u8], waiting: &[UpdateRef<'_>], key: &[u8]) -> Option<Owned> {
        let loaded = self.companion.get(key).map(Vec::as_slice);
        let mut found = get::<O>(Some(body), waiting, &self.modifiers, key, None).expect("sound");
        if let Lookup::NeedLarge { bytes, .. } = found {
            assert_eq!(loaded.map(<[u8]>::len), Some(bytes as usize));
            found = get::<O>(Some(body), waiting, &self.modifiers, key, loaded).expect("sound");
        }
        match found {
            Lookup::Value { kind, bytes } => Some((kind, bytes.into_owned())),
            Lookup::Absent => None,
            Lookup::NeedLarge { .. } => panic!("needs what it has"),
        }
    }

    /// All records with positions in `from..to`, with `waiting` applied, page by page.
    fn scan(
        &self,
        waiting: &[UpdateRef<'_>],
        range: (&[u8], Option<&[u8]>),
        reverse: bool,
        (records_max, bytes_max): (usize, usize),
    ) -> Vec<(Vec<u8>, Owned)> {
        let mut found = Vec::new();
        let mut lows: Vec<&Vec<u8>> = self.blocks.keys().collect();
        if reverse {
            lows.reverse();
        }
        for low in lows {
            let body = self.blocks[low].as_slice();
            let mut sorted = self.covered(low, waiting);
            sort::<O>(&mut sorted);
            let (mut from, mut to) = (range.0.to_vec(), range.1.map(<[u8]>::to_vec));
            loop {
                let (from_ref, to_ref) = (&from[..], to.as_deref());
                let request =
                    PageRequest { from: from_ref, to: to_ref, reverse, records_max, bytes_max };
                let page = page::<O>(Some(body), &sorted, &self.modifiers, &request);
                let page = page.expect("sound");
                assert!(page.records.len() <= records_max.max(1));
                let last = page.records.last().map(|record| O::position(record.key).into_owned());
                for record in &page.records {
                    if let Lookup::Value { kind, bytes } = &record.value {
                        found.push((record.key.to_vec(), (*kind, bytes.to_vec())));
                    } else if let Some(value) = self.value(body, waiting, record.key) {
                        found.push((record.key.to_vec(), value));
                    }
                }
                if page.is_complete {
                    break;
                }
                let last = last.expect("an incomplete page has records");
                if reverse {
                    to = Some(last);
                } else {
                    from = last;
                    from.push(0);
                }
            }
        }
        found
    }

    fn merge_neighbours(&mut self) {
        let mut merged: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (low, body) in &self.blocks {
            let joined = merged
                .last()
                .and_then(|(_, left)| leaf::merge::<O>(left, body, self.body_bytes_max));
            match (joined, merged.last_mut()) {
                (Some(joined), Some((_, left))) => *left = joined,
                _ => merged.push((low.clone(), body.clone())),
            }
        }
        self.blocks = merged.into_iter().collect();
    }
}

/// Applies updates one by one to a map; returns how many were refused. Independent of leaves and
/// of supersession: it neither skips nor folds.
fn apply_to_oracle(oracle: &mut Oracle, modifiers: &Modifiers, updates: &[Update]) -> usize {
    let mut refusals = 0;
    for (key, modifier, operand) in updates {
        let update = UpdateRef { seq: Seq::NONE, modifier: *modifier, key, operand };
        let current = oracle.get(key).map(|(kind, bytes)| ValueRef { kind: *kind, bytes });
        let resolved = resolve(modifiers, key, current, &[update], &mut |_, _| refusals += 1);
        match resolved {
            Resolved::Unchanged => {}
            Resolved::Put(kind, bytes) => {
                let value = (kind, bytes.into_owned());
                oracle.insert(key.clone(), value);
            }
            Resolved::Delete => drop(oracle.remove(key)),
        }
    }
    refusals
}

fn admitted(batch: Vec<Update>, modifiers: &Modifiers) -> Vec<Update> {
    let is_admitted = |(key, id, operand): &Update| modifiers.admit(*id, key, operand).is_ok();
    batch.into_iter().filter(is_admitted).collect()
}

fn sizes() -> impl Strategy<Value = (usize, usize)> {
    let body = prop_oneof![1usize..64, 64usize..1024, 1024usize..20_000, Just(16 << 10)];
    (body, prop_oneof![0usize..16, 16usize..400, Just(4096)])
}

fn check_sweeps<O: Order>(
    mut table: Table<O>,
    batches: &[Vec<Update>],
) -> Result<(), TestCaseError> {
    let mut oracle = Oracle::new();
    for batch in batches {
        let batch = admitted(batch.clone(), &table.modifiers);
        let refused_most = apply_to_oracle(&mut oracle, &table.modifiers, &batch);
        let refused = table.sweep(&batch);
        prop_assert!(refused <= refused_most, "superseded refusals only are left out");
        prop_assert_eq!(&table.content(), &oracle);
        table.merge_neighbours();
        prop_assert_eq!(&table.content(), &oracle);
    }
    Ok(())
}

/// Waiting updates, the keys at the ends of a range, limits of a page, and its direction.
type Asked = (Vec<Update>, (Vec<u8>, Option<Vec<u8>>), (usize, usize), bool);

fn check_queries<O: Order>(
    mut table: Table<O>,
    swept: &[Vec<Update>],
    (waiting, (from, to), limits, reverse): &Asked,
) -> Result<(), TestCaseError> {
    let mut oracle = Oracle::new();
    for batch in swept {
        let batch = admitted(batch.clone(), &table.modifiers);
        apply_to_oracle(&mut oracle, &table.modifiers, &batch);
        table.sweep(&batch);
    }
    let waiting = admitted(waiting.clone(), &table.modifiers);
    apply_to_oracle(&mut oracle, &table.modifiers, &waiting);
    let waiting = sorted(&waiting);
    for key in waiting.iter().map(|update| update.key).chain(oracle.keys().map(Vec::as_slice)) {
        let low = table.blocks.iter().rfind(|(low, _)| low[..] <= *O::position(key));
        let (_, body) = low.expect("the first block has the empty key");
        prop_assert_eq!(table.value(body, &waiting, key), oracle.get(key).cloned());
    }
    let (from, to) = (O::position(from), to.as_deref().map(O::position));
    let in_range =
        |position: &[u8]| *position >= *from && to.as_deref().is_none_or(|to| position < to);
    let entries = oracle.into_iter().filter(|(key, _)| in_range(&O::position(key)));
    let mut expected: Vec<(Vec<u8>, Owned)> = entries.collect();
    expected.sort_by_key(|(key, _)| O::position(key).into_owned());
    if *reverse {
        expected.reverse();
    }
    let found = table.scan(&waiting, (&from, to.as_deref()), *reverse, *limits);
    prop_assert_eq!(found, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sweeps_equal_the_oracle((body_max, inline_max) in sizes(), batches in batches()) {
        check_sweeps(Table::<ByKey>::new(body_max, inline_max), &batches)?;
    }

    #[test]
    fn sweeps_by_hash_equal_the_oracle((body_max, inline_max) in sizes(), batches in batches()) {
        check_sweeps(Table::<ByHash>::new(body_max, inline_max), &batches)?;
        check_sweeps(Table::<Colliding>::new(body_max, inline_max), &batches)?;
    }

    #[test]
    fn queries_equal_the_oracle(
        (body_max, inline_max) in sizes(),
        swept in batches(),
        waiting in vec((keys(), updates()), 0..60),
        range in (keys(), proptest::option::of(keys())),
        limits in (1usize..20, 0usize..400),
        reverse: bool,
    ) {
        let waiting = waiting.into_iter().map(|(key, (id, operand))| (key, id, operand)).collect();
        let asked = (waiting, range, limits, reverse);
        check_queries(Table::<ByKey>::new(body_max, inline_max), &swept, &asked)?;
        check_queries(Table::<ByHash>::new(body_max, inline_max), &swept, &asked)?;
        check_queries(Table::<Colliding>::new(body_max, inline_max), &swept, &asked)?;
    }

    /// Whatever the bytes: an error or some answer, but no panic, and no endless work.
    #[test]
    fn damaged_bytes_are_survived(
        batches in batches(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        cut in any::<Index>(),
        noise in vec(any::<u8>(), 0..200),
        key in keys(),
    ) {
        let updates = admitted(batches.concat(), &builtins());
        for mut body in [one_body::<ByKey>(&updates), one_body::<ByHash>(&updates)] {
            for (at, byte) in &damage {
                let at = at.index(body.len().max(1));
                if let Some(damaged) = body.get_mut(at) {
                    *damaged ^= *byte;
                }
            }
            survive(&body, &updates, &key);
            survive(&body[..cut.index(body.len() + 1)], &updates, &key);
        }
        survive(&noise, &updates, &key);
        survive(&framed(&noise), &updates, &key);
    }
}

/// The one leaf that these updates make.
fn one_body<O: Order>(updates: &[Update]) -> Vec<u8> {
    let mut table = Table::<O>::new(1 << 20, 100);
    table.sweep(updates);
    table.blocks.remove(&[][..]).expect("the first block has the empty key")
}

/// Noise behind a header that lets it through to the records.
fn framed(noise: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend_from_slice(noise);
    let count = noise.len() as u32 / 5;
    let end = body.len() as u32 - 2 * count;
    body[0..4].copy_from_slice(&count.to_le_bytes());
    body[4..8].copy_from_slice(&end.to_le_bytes());
    // Offsets that point at records at all.
    for slot in body[end as usize..].chunks_exact_mut(2) {
        slot[1] = 0;
    }
    body
}

fn survive(body: &[u8], updates: &[Update], key: &[u8]) {
    let modifiers = builtins();
    let updates = sorted(updates);
    survive_in::<ByKey>(body, &updates, key);
    survive_in::<ByHash>(body, &updates, key);
    let _ = RawFormat.check(body, b"", None);
    let _ = get_block(Some(body), &updates, &modifiers, key);
    let _ = RawFormat.apply(&input(body, &updates, &modifiers, 100));
}

fn survive_in<O: Order>(body: &[u8], updates: &[UpdateRef<'_>], key: &[u8]) {
    let modifiers = builtins();
    let _ = leaf::check::<O>(body, b"", None, Lifetime::Endless);
    let _ = leaf::merge::<O>(body, body, 1 << 20);
    let _ = get::<O>(Some(body), updates, &modifiers, key, Some(body));
    let mut in_order = updates.to_vec();
    sort::<O>(&mut in_order);
    for reverse in [false, true] {
        let (records_max, bytes_max) = (1000, 1 << 20);
        let request = PageRequest { from: b"", to: Some(key), reverse, records_max, bytes_max };
        let _ = page::<O>(Some(body), &in_order, &modifiers, &request);
    }
    for body_bytes_max in [0, 100, 1 << 20] {
        let input = input(body, updates, &modifiers, body_bytes_max);
        for lifetime in [Lifetime::Endless, Lifetime::Limited] {
            let _ = leaf::apply::<O>(&ApplyInput { expired_us: 1 << 40, ..input }, lifetime);
        }
    }
}

fn input<'a>(
    body: &'a [u8],
    updates: &'a [UpdateRef<'a>],
    modifiers: &'a Modifiers,
    body_bytes_max: usize,
) -> ApplyInput<'a, 'a> {
    let (body, inline_value_bytes_max) = (Some(body), 100);
    ApplyInput {
        body,
        updates,
        modifiers,
        values: &[],
        body_bytes_max,
        inline_value_bytes_max,
        expired_us: 0,
    }
}

fn numbered(range: std::ops::Range<u32>) -> Vec<Update> {
    let put = |number: u32| {
        (number.to_be_bytes().to_vec(), PUT, value_operand(ValueKind::Bytes, &[7; 52]))
    };
    range.map(put).collect()
}

fn fills(table: &Table) -> Vec<usize> {
    table.blocks.values().map(|body| body.len() * 100 / table.body_bytes_max).collect()
}

#[test]
fn appending_leaves_full_blocks_behind() {
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    for step in 0..40 {
        table.sweep(&numbered(step * 100..(step + 1) * 100));
    }
    let fills = fills(&table);
    let (_last, full) = fills.split_last().expect("there are blocks");
    assert!(full.len() > 10 && full.iter().all(|fill| (85..=90).contains(fill)), "{fills:?}");
}

#[test]
fn random_inserts_split_evenly() {
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    let mut updates = numbered(0..2000);
    updates.reverse();
    table.sweep(&updates);
    assert!(fills(&table).iter().all(|fill| (65..=80).contains(fill)), "{:?}", fills(&table));
    let content = table.content();
    // One more record in the middle of a full block halves it.
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    table.sweep(&numbered(0..270));
    assert_eq!(table.blocks.len(), 1, "{:?}", fills(&table));
    table.sweep(&[(vec![0, 0, 0, 9, 9], PUT, value_operand(ValueKind::Bytes, &[7; 520]))]);
    assert_eq!(table.blocks.len(), 2);
    assert!(fills(&table).iter().all(|fill| (45..=55).contains(fill)), "{:?}", fills(&table));
    assert_eq!(content.len(), 2000);
}

#[test]
fn large_values_of_a_leaf_are_bounded() {
    let put = |key: u32, bytes: usize| {
        (key.to_be_bytes().to_vec(), PUT, value_operand(ValueKind::Bytes, &vec![7; bytes]))
    };
    let values_of = |table: &Table, low: &[u8]| {
        let high = table.high_of(low);
        let checked =
            leaf::check::<ByKey>(&table.blocks[low], low, high.as_deref(), Lifetime::Endless);
        checked.expect("a sound body").values
    };
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    for step in 0..4 {
        table.sweep(&(0..30).map(|key| put(key * 4 + step, 100_000)).collect::<Vec<_>>());
        table.sweep(&numbered(1000..1100));
        table.merge_neighbours();
    }
    table.sweep(&[put(7, 1 << 20)]);
    table.sweep(&(30..35).map(|key| (put(key, 0).0, APPEND, vec![7; 900_000])).collect::<Vec<_>>());
    for low in table.blocks.keys() {
        let values = values_of(&table, low);
        let bytes: usize = values.iter().map(|(_, bytes)| *bytes as usize).sum();
        assert!(bytes <= leaf::VALUES_BYTES_MAX || values.len() == 1, "{bytes} bytes");
    }
    let leaves = table.blocks.keys().filter(|low| !values_of(&table, low).is_empty()).count();
    assert!((17..=30).contains(&leaves), "{leaves} leaves for 17 MB");
    assert_eq!(table.content().len(), 220);
    table.sweep(&(0..120).map(|key| put(key, 10)).collect::<Vec<_>>());
    table.merge_neighbours();
    assert!(table.blocks.len() <= 2, "{} leaves that hold no large value", table.blocks.len());
}

#[test]
fn separators_are_short() {
    let mut table = Table::<ByKey>::new(200, 1024);
    let key =
        |name: &str| (name.as_bytes().to_vec(), PUT, value_operand(ValueKind::Bytes, &[7; 90]));
    table.sweep(&[key("banana"), key("bandana-long-tail"), key("cherry")]);
    let keys: Vec<&[u8]> = table.blocks.keys().map(Vec::as_slice).collect();
    assert_eq!(keys, [&b""[..], b"band", b"c"]);
}

#[test]
fn thin_neighbours_join_and_others_do_not() {
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    table.sweep(&numbered(0..70));
    let left = table.blocks[&[][..]].clone();
    let mut other = Table::<ByKey>::new(16 << 10, 1024);
    other.sweep(&numbered(70..150));
    let right = other.blocks[&[][..]].clone();
    let total = left.len() + right.len();
    assert!(TableFormat::default().merge(&left, &right, total * 5 / 3 + 2).is_some());
    assert!(TableFormat::default().merge(&left, &right, total * 5 / 3 - 2).is_none());
    assert!(TableFormat::default().merge(&right, &left, 16 << 10).is_none(), "out of order");
    assert_eq!(TableFormat::default().merge(&left, &[], 16).as_deref(), Some(&left[..]));
    assert_eq!(TableFormat::default().merge(&[], &[], 16), Some(Vec::new()));
}

#[test]
fn deleting_everything_leaves_one_empty_piece() {
    let mut table = Table::<ByKey>::new(16 << 10, 16);
    table.sweep(&numbered(0..9));
    assert_eq!(table.companion.len(), 9, "their 52 bytes are above the inline limit");
    let gone: Vec<Update> =
        numbered(0..9).into_iter().map(|(key, ..)| (key, DELETE, Vec::new())).collect();
    let applied = table.apply_to(&[], &sorted(&gone));
    assert_eq!(applied.pieces.len(), 1);
    assert!(applied.pieces[0].body.is_empty() && applied.pieces[0].key.is_none());
    assert!(applied.values.len() == 9 && applied.values.iter().all(|(_, value)| value.is_none()));
}

#[test]
fn large_values_are_asked_for_only_when_they_matter() {
    let mut table = Table::<ByKey>::new(16 << 10, 16);
    table.sweep(&numbered(0..3));
    let key = |number: u32| number.to_be_bytes().to_vec();
    let body = table.blocks[&[][..]].as_slice();
    let put = value_operand(ValueKind::Bytes, b"small");
    let overwritten = [(key(1), APPEND, vec![1]), (key(1), PUT, put)];
    let waiting = sorted(&overwritten);
    let mut input = input(body, &waiting, &table.modifiers, 16 << 10);
    input.inline_value_bytes_max = 16;
    let applied = TableFormat::default().apply(&input).expect("the put decides");
    assert_eq!(applied.values, [(key(1), None)], "the value moved into the leaf");
    let changed = [(key(2), APPEND, vec![1]), (key(0), BIT_OR, vec![1])];
    let needed = TableFormat::default().apply(&ApplyInput { updates: &sorted(&changed), ..input });
    assert_eq!(needed, Err(ApplyError::NeedValues(vec![key(0), key(2)])));
    let wrong =
        get::<ByKey>(Some(&table.blocks[&[][..]]), &[], &table.modifiers, &key(0), Some(b"\0else"));
    assert!(wrong.is_err(), "not the value that the leaf refers to");
}

#[test]
fn refusals_name_their_update_among_all_keys() {
    let mut table = Table::<ByKey>::new(16 << 10, 1024);
    table.sweep(&numbered(0..3));
    let key = |number: u32| number.to_be_bytes().to_vec();
    let late = patch_operand(99, b"x");
    let updates = [
        (key(0), APPEND, vec![1]),
        (key(0), ADD_I64, vec![0; 8]),
        (key(1), APPEND, vec![1]),
        (key(2), BYTE_PATCH, late),
        (key(2), APPEND, vec![1]),
    ];
    let applied = table.apply_to(&[], &sorted(&updates));
    let indices: Vec<usize> = applied.refused.iter().map(|refused| refused.index).collect();
    assert_eq!(indices, [1, 3]);
    assert!(applied.refused[1].reason.contains("beyond the end"), "{:?}", applied.refused);
}

#[test]
fn check_finds_what_is_wrong() {
    let body_of = |records: &[(&[u8], Stored<'_>)]| {
        let mut builder = LeafBuilder::with_capacity(0, 0);
        records.iter().for_each(|(key, value)| builder.push(key, value));
        builder.finish()
    };
    let value = |kind, bytes| Stored::Inline(ValueRef { kind, bytes });
    let plain = value(ValueKind::Bytes, b"value");
    let check = |body: &[u8]| TableFormat::default().check(body, b"b", Some(b"d"));
    let sound = body_of(&[(b"b", plain), (b"c", plain)]);
    assert_eq!(check(&sound).map(|checked| checked.records), Ok(2));
    assert!(check(&body_of(&[(b"c", plain), (b"b", plain)])).is_err(), "order");
    assert!(check(&body_of(&[(b"c", plain), (b"c", plain)])).is_err(), "twice");
    assert!(check(&body_of(&[(b"a", plain)])).is_err(), "below");
    assert!(check(&body_of(&[(b"d", plain)])).is_err(), "above");
    assert!(check(&body_of(&[(b"c", value(ValueKind::I64, b"1234567"))])).is_err(), "kind");
    let large = Stored::Large { kind: ValueKind::Bytes, bytes: 0, crc: 0, expires_us: None };
    assert!(check(&body_of(&[(b"c", large)])).is_err(), "no body has 0 bytes");
    let key = vec![b'c'; 4097];
    assert!(check(&body_of(&[(&key, plain)])).is_err(), "key length");
    let mut reserved = sound.clone();
    reserved[8] |= 0x40;
    assert!(check(&reserved).is_err(), "reserved bit");
    let mut hidden = sound.clone();
    let slots = hidden.len() - 4;
    hidden[slots] += 1;
    assert!(check(&hidden).is_err(), "a gap before the first record");
    let mut trailing = sound.clone();
    trailing.push(0);
    assert!(check(&trailing).is_err(), "trailing byte");
}

#[test]
fn a_builder_knows_its_size_and_long_keys_come_back() {
    let mut builder = LeafBuilder::with_capacity(0, 0);
    let mut records = 0;
    assert_eq!(builder.body_bytes(), 0);
    for length in [0, 1, 127, 128, 129, 4095, 4096, 8191] {
        let (key, bytes) = (vec![length as u8 & 1 | 2; length], vec![1; length * 3]);
        let value = Stored::Inline(ValueRef { kind: ValueKind::Bytes, bytes: &bytes });
        builder.push(&key, &value);
        records += 2 + usize::from(length > 127) + length * 4;
        assert_eq!(builder.body_bytes(), body_bytes(records, builder.count()));
    }
    let expected = builder.body_bytes();
    let body = builder.finish();
    assert_eq!(body.len(), expected);
    assert!(body.len() > 65_535, "wide offsets");
    let leaf = Leaf::parse(&body).expect("just built");
    assert_eq!(leaf.key(7).map(<[u8]>::len), Ok(8191));
    let mut copy = LeafBuilder::with_capacity(0, 0);
    copy.copy(&leaf, 0..3).expect("sound");
    copy.copy(&leaf, 3..8).expect("sound");
    assert_eq!(copy.finish(), body);
}

#[test]
fn a_raw_block_is_one_value() {
    let modifiers = builtins();
    assert_eq!(RawFormat.routing(), Routing::Exact);
    let put = value_operand(ValueKind::Bytes, b"abc");
    let at = |modifier, operand| UpdateRef { seq: Seq::FIRST, modifier, key: b"k", operand };
    let waiting = [at(PUT, &put), at(APPEND, b"d"), at(ADD_I64, &[0; 8])];
    let input = ApplyInput { body: None, ..input(&[], &waiting, &modifiers, 16) };
    let written = RawFormat.apply(&input).expect("sound");
    let piece = &written.pieces[0];
    assert_eq!((&piece.body[..], piece.records), (&b"\0abcd"[..], 1));
    assert_eq!(written.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [2]);
    let found = get_block(Some(&piece.body), &[at(APPEND, b"e")], &modifiers, b"k");
    let bytes = b"abcde"[..].into();
    assert_eq!(found, Ok(Lookup::Value { kind: ValueKind::Bytes, bytes }));
    assert_eq!(RawFormat.check(&piece.body, b"k", None).map(|checked| checked.records), Ok(1));
    assert!(RawFormat.check(b"\x09abc", b"k", None).is_err());
    let (body, updates) = (Some(&*piece.body), &[at(DELETE, b"")][..]);
    let deleted = RawFormat.apply(&ApplyInput { body, updates, ..input }).expect("sound");
    assert_eq!((deleted.pieces[0].body.len(), deleted.pieces[0].records), (0, 0));
}

/// The records of a body, by [`BlockFormat::for_each`].
fn records(format: &impl BlockFormat, body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    let mut visit =
        |key: &[u8], value: ValueRef<'_>| records.push((key.to_vec(), value.bytes.to_vec()));
    format.for_each(&[], body, &mut visit).expect("sound");
    records
}

#[test]
fn a_removed_range_takes_older_records_and_updates_alone() {
    let put =
        |key: &[u8], value: &[u8]| (key.to_vec(), PUT, value_operand(ValueKind::Bytes, value));
    let body = one_body::<ByKey>(&[put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3")]);
    let range = KeyRange { from: b"b", to: Some(b"d") };
    let updates = [
        put(b"bb", b"older"),
        (b"b".to_vec(), DELETE_RANGE, range.operand()),
        put(b"c", b"younger"),
        (b"a".to_vec(), ADD_I64, 1i64.to_le_bytes().to_vec()),
    ];
    let waiting = sorted(&updates);
    let modifiers = builtins();
    let input = ApplyInput {
        body: Some(&body),
        updates: &waiting,
        modifiers: &modifiers,
        values: &[],
        body_bytes_max: 4096,
        inline_value_bytes_max: 1024,
        expired_us: 0,
    };
    let applied = TableFormat::default().apply(&input).expect("sound");
    let left = [(b"a".to_vec(), b"1".to_vec()), (b"c".to_vec(), b"younger".to_vec())];
    assert_eq!(records(&TableFormat::default(), &applied.pieces[0].body), left);
    let [refused] = applied.refused.as_slice() else { panic!("bytes are no number") };
    assert_eq!(waiting[refused.index].modifier, ADD_I64);
    for reverse in [false, true] {
        let (from, to): (&[u8], _) = (b"", None);
        let request = PageRequest { from, to, reverse, records_max: 9, bytes_max: 99 };
        let page = page::<ByKey>(Some(&body), &waiting, &modifiers, &request).expect("sound");
        let mut keys: Vec<&[u8]> = page.records.iter().map(|record| record.key).collect();
        keys.sort_unstable();
        assert_eq!(keys, [b"a", b"c"]);
    }
}

#[test]
fn all_records_are_visited_in_the_order_of_the_table() {
    let updates: Vec<Update> = (0..20u8)
        .map(|number| (vec![number], PUT, value_operand(ValueKind::Bytes, &[number])))
        .collect();
    let mut wanted: Vec<_> = (0..20u8).map(|number| (vec![number], vec![number])).collect();
    assert_eq!(records(&TableFormat::default(), &one_body::<ByKey>(&updates)), wanted);
    wanted.sort_by_key(|(key, _)| ByHash::position(key).into_owned());
    assert_eq!(records(&HashFormat, &one_body::<ByHash>(&updates)), wanted);
}
