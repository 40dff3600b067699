//! What is the hash table's own: positions, and how buckets are cut. The rest is tested for tables
//! of every order, in `structures/table/tests.rs`.

use super::bucket_format::{hash, position};
use super::*;
use crate::engine::block_format::{Piece, UpdateRef};
use crate::engine::ids::Seq;
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::engine::registry::{ModifierId, Modifiers};
use crate::structures::modifiers::{ADD_I64, PUT, bind_builtins, value_operand};
use crate::structures::table::leaf_format::{LeafBuilder, Stored};

const BODY_BYTES_MAX: usize = 16 << 10;

fn apply<'a>(body: Option<&'a [u8]>, updates: &'a [(Vec<u8>, ModifierId, Vec<u8>)]) -> Applied<'a> {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    let numbered = updates.iter().zip(1..);
    let mut updates: Vec<UpdateRef<'_>> = numbered
        .map(|((key, modifier, operand), seq)| UpdateRef {
            seq: Seq::new(seq),
            modifier: *modifier,
            key,
            operand,
        })
        .collect();
    updates.sort_by_key(|update| (update.key, update.seq));
    let input = ApplyInput {
        body,
        updates: &updates,
        modifiers: &modifiers,
        values: &[],
        body_bytes_max: BODY_BYTES_MAX,
        inline_value_bytes_max: 4096,
        expired_us: 0,
    };
    HashFormat.apply(&input).expect("sound")
}

fn puts(range: std::ops::Range<u32>) -> Vec<(Vec<u8>, ModifierId, Vec<u8>)> {
    let put = |number: u32| {
        (number.to_be_bytes().to_vec(), PUT, value_operand(ValueKind::Bytes, &[7; 50]))
    };
    range.map(put).collect()
}

fn check(pieces: &[Piece]) {
    for (index, piece) in pieces.iter().enumerate() {
        let low = piece.key.as_deref().unwrap_or_default();
        let high = pieces.get(index + 1).and_then(|next| next.key.as_deref());
        let checked = HashFormat.check(&piece.body, low, high).expect("a sound bucket");
        assert_eq!(checked.records, piece.records);
    }
}

/// The values are those of the xxHash project. If this fails, stores become unreadable.
#[test]
fn the_hash_is_xxh3_for_ever() {
    assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(hash(b"abc"), 0x78af_5f94_892f_3950);
    assert_eq!(position(hash(b"abc"), b"abc"), b"\x78\xaf\x5f\x94\x89\x2f\x39\x50abc");
    assert_eq!(*HashFormat.position(b"abc"), position(hash(b"abc"), b"abc"));
}

#[test]
fn ascending_keys_fill_buckets_evenly_and_block_keys_stay_short() {
    let pieces = apply(None, &puts(0..20_000)).pieces;
    check(&pieces);
    assert_eq!(pieces.iter().map(|piece| piece.records).sum::<u32>(), 20_000);
    let fills = pieces.iter().map(|piece| piece.body.len() * 100 / BODY_BYTES_MAX);
    assert!(fills.clone().all(|fill| (65..=75).contains(&fill)), "{:?}", fills.collect::<Vec<_>>());
    let keys = pieces.iter().filter_map(|piece| piece.key.as_ref());
    assert!(keys.clone().all(|key| key.len() <= 3), "{:?}", keys.collect::<Vec<_>>());
}

#[test]
fn a_full_bucket_splits_in_two_and_thin_ones_join() {
    let one = apply(None, &puts(0..270)).pieces;
    assert_eq!(one.len(), 1);
    let two = apply(Some(&one[0].body), &puts(270..310)).pieces;
    check(&two);
    let [left, right] = &two[..] else { panic!("{} buckets", two.len()) };
    assert!(left.records.abs_diff(right.records) <= 2, "{} {}", left.records, right.records);
    let merge = |left, right, max| HashFormat.merge(left, right, max);
    assert_eq!(merge(&left.body, &right.body, BODY_BYTES_MAX), None, "not thin");
    let joined = merge(&left.body, &right.body, 2 * BODY_BYTES_MAX).expect("thin");
    assert_eq!(HashFormat.check(&joined, b"", None).map(|checked| checked.records), Ok(310));
    assert_eq!(merge(&right.body, &left.body, 2 * BODY_BYTES_MAX), None, "out of order");
}

#[test]
fn refusals_name_their_update_in_the_order_of_keys() {
    let mut updates = puts(0..50);
    updates.extend([7u32, 31].map(|key| (key.to_be_bytes().to_vec(), ADD_I64, vec![0; 8])));
    let applied = apply(None, &updates);
    let mut refused: Vec<usize> = applied.refused.iter().map(|refused| refused.index).collect();
    refused.sort_unstable();
    // One update of each key lies before; of key 7 two do before key 31.
    assert_eq!(refused, [8, 33]);
}

#[test]
fn check_finds_records_out_of_order_and_in_the_wrong_bucket() {
    let value = Stored::Inline(ValueRef { kind: ValueKind::Bytes, bytes: b"value" });
    let body_of = |keys: &[&[u8]]| {
        let mut builder = LeafBuilder::with_capacity(0, 0);
        keys.iter().for_each(|key| builder.push(key, &value));
        builder.finish()
    };
    // The hash of nothing is below that of `abc`.
    let (low, high) = (position(hash(b""), b""), position(hash(b"abc"), b"abc"));
    let check = |body: &[u8], low: &[u8], high| HashFormat.check(body, low, high);
    let sound = body_of(&[b"", b"abc"]);
    assert_eq!(check(&sound, b"", None).map(|checked| checked.records), Ok(2));
    assert_eq!(check(&sound, &low, Some(&[0x79])).map(|checked| checked.records), Ok(2));
    assert!(check(&body_of(&[b"abc", b""]), b"", None).is_err(), "order of hashes");
    assert!(check(&body_of(&[b"", b""]), b"", None).is_err(), "twice");
    assert!(check(&sound, &high, None).is_err(), "below");
    assert!(check(&sound, &low, Some(&high)).is_err(), "above");
}
