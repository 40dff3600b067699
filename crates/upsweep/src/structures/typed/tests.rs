//! Keys compare as their bytes do, and come back; values keep to their types.

use std::fmt::Debug;

use proptest::prelude::*;

use super::key_format::{Key, KeyPrefix, bytes_of};

/// Checks two keys: they come back, and their bytes are in their order.
fn check<K>(left: &K, right: &K) -> Result<(), TestCaseError>
where
    K: Key<Owned = K> + Ord + Debug,
{
    let bytes = [left, right].map(|key| bytes_of::<K>(key.to_ref()));
    prop_assert_eq!(left.cmp(right), bytes[0].cmp(&bytes[1]), "{:?} {:?}", left, right);
    for (key, bytes) in [left, right].into_iter().zip(&bytes) {
        let again = K::decode(bytes);
        prop_assert_eq!(again.as_ref(), Some(key));
        prop_assert!(K::BYTES.is_none_or(|length| length == bytes.len()));
    }
    Ok(())
}

/// Whether the key begins with the prefix, as the bytes of both say.
fn begins<'p, K: Key>(key: &K, prefix: impl KeyPrefix<'p, K>) -> bool {
    let mut bytes = Vec::new();
    prefix.encode_prefix(&mut bytes);
    bytes_of::<K>(key.to_ref()).starts_with(&bytes)
}

/// Texts that often share beginnings and have zeros.
fn text() -> impl Strategy<Value = String> {
    "[\\x00\\x01a\u{ff}\u{10ffff}]{0,3}"
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, 0x61, 0xfe, 0xff]), 0..4)
}

proptest! {
    #[test]
    fn numbers_keep_their_order(
        a: (i8, i128, u128),
        b: (i8, i128, u128),
        c: [i64; 2],
        d: [u16; 2],
    ) {
        check(&a.0, &b.0)?;
        check(&a.1, &b.1)?;
        check(&a.2, &b.2)?;
        check(&c[0], &c[1])?;
        check(&(c[0] as i16), &(c[1] as i16))?;
        check(&(c[0] as i32), &(c[1] as i32))?;
        check(&d[0], &d[1])?;
        check(&(c[0] < 0), &(c[1] < 0))?;
        check(&a, &b)?;
    }

    #[test]
    fn text_and_bytes_keep_their_order(a in text(), b in text(), c in bytes(), d in bytes()) {
        check(&a, &b)?;
        check(&c, &d)?;
        check(&[c.len() as u8, 0, 7], &[d.len() as u8, 0, 3])?;
    }

    #[test]
    fn tuples_keep_their_order(
        a in (text(), bytes(), any::<i8>(), text()),
        b in (text(), bytes(), any::<i8>(), text()),
    ) {
        check(&a, &b)?;
        let pair = |key: &(String, Vec<u8>, i8, String)| (key.1.clone(), key.0.clone());
        check(&pair(&a), &pair(&b))?;
        let nested = |key: &(String, Vec<u8>, i8, String)| {
            ((key.0.clone(), key.2), (key.2, key.1.clone()), [key.2 as u8; 2])
        };
        check(&nested(&a), &nested(&b))?;
    }

    #[test]
    fn a_prefix_is_of_exactly_the_keys_that_begin_with_it(
        a in (text(), bytes(), any::<u8>()),
        b in (text(), bytes(), any::<u8>()),
    ) {
        prop_assert_eq!(begins(&b, (&*a.0,)), a.0 == b.0);
        prop_assert_eq!(begins(&b, (&*a.0, &*a.1)), (&a.0, &a.1) == (&b.0, &b.1));
        prop_assert_eq!(begins(&b.0, &*a.0), b.0.starts_with(&a.0));
        prop_assert_eq!(begins(&b.1, &*a.1), b.1.starts_with(&a.1));
    }

    #[test]
    fn other_bytes_are_no_key(other in prop::collection::vec(any::<u8>(), 0..12)) {
        fn round<K: Key<Owned = K>>(bytes: &[u8]) -> Option<Vec<u8>> {
            K::decode(bytes).map(|key| bytes_of::<K>(key.to_ref()))
        }
        for again in [
            round::<bool>(&other),
            round::<u32>(&other),
            round::<(u16, i64)>(&other),
            round::<(Vec<u8>, u16)>(&other),
            round::<(Vec<u8>, Vec<u8>, String)>(&other),
        ] {
            prop_assert!(again.is_none_or(|again| again == other));
        }
    }
}

#[cfg(feature = "uuid")]
#[test]
fn identifiers_keep_their_order() {
    let of = |number: u128| uuid::Uuid::from_u128(number);
    for (left, right) in [(0, 1), (u128::MAX, 1), (1 << 100, 1 << 64), (7, 7)] {
        check(&of(left), &of(right)).expect("in order");
        check(&(of(left), "a".to_owned()), &(of(right), "b".to_owned())).expect("in order");
    }
}
