//! Folding is exact; operands are checked; panics and refusals stay with their update.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::engine::block_format::UpdateRef;
use crate::engine::ids::Seq;
use crate::engine::modifier::ValueKind;

fn builtins() -> Modifiers {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    modifiers
}

fn all_ids() -> impl Iterator<Item = ModifierId> {
    (PUT.0..=INSERT_IF_ABSENT.0).map(ModifierId).chain([COUNTERS, EXPIRES_AT])
}

type Value = Option<(ValueKind, Vec<u8>)>;

fn as_ref(value: &Value) -> Option<ValueRef<'_>> {
    value.as_ref().map(|(kind, bytes)| ValueRef { kind: *kind, bytes })
}

/// The value after one update, or `None` if it was refused.
fn step(modifier: &dyn Modifier, value: &Value, operand: &[u8]) -> Option<Value> {
    match modifier.apply(b"key", as_ref(value), operand) {
        Ok(Outcome::Keep) => Some(value.clone()),
        Ok(Outcome::Delete) => Some(None),
        Ok(Outcome::Put(kind, bytes)) => Some(Some((kind, bytes))),
        Err(_) => None,
    }
}

fn kinds() -> impl Strategy<Value = ValueKind> {
    (0u8..4).prop_map(|number| ValueKind::from_number(number).expect("0 to 3 are kinds"))
}

fn numbers() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u64>().prop_map(|number| number.to_le_bytes().to_vec()),
        (-3i64..4).prop_map(|number| number.to_le_bytes().to_vec()),
        any::<f64>().prop_map(|number| number.to_le_bytes().to_vec()),
        Just((-0.0f64).to_le_bytes().to_vec()),
        Just(f64::NAN.to_le_bytes().to_vec()),
        Just(i64::MIN.to_le_bytes().to_vec()),
        Just(i64::MAX.to_le_bytes().to_vec()),
    ]
}

/// Values of all kinds, absent ones, and ones whose room up to the limit is only a few bytes.
fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(None),
        (kinds(), numbers()).prop_map(Some),
        vec(any::<u8>(), 0..20).prop_map(|bytes| Some((ValueKind::Bytes, bytes))),
        vec(numbers(), 1..3).prop_map(|fields| Some((ValueKind::Bytes, fields.concat()))),
        (0usize..12).prop_map(|room| Some((ValueKind::Bytes, vec![7; VALUE_BYTES_MAX - room]))),
        records().prop_map(|record| Some((ValueKind::Bytes, record))),
    ]
}

/// Few, so that many are equal or next to each other.
fn times() -> impl Strategy<Value = u64> {
    0u64..6
}

/// Records that expire.
fn records() -> impl Strategy<Value = Vec<u8>> {
    (times(), kinds(), numbers()).prop_map(|(expires_us, kind, bytes)| {
        let mut record = Vec::new();
        Expiring { expires_us, value: ValueRef { kind, bytes: &bytes } }.encode(&mut record);
        record
    })
}

/// Operands of `expires_at`.
fn changes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (times(), records()).prop_map(|(moment_us, record)| [
            &moment_us.to_le_bytes()[..],
            &record
        ]
        .concat()),
        (times(), times()).prop_map(|(moment_us, expires_us)| touch_operand(moment_us, expires_us)),
    ]
}

fn offsets() -> impl Strategy<Value = u32> {
    let limit = VALUE_BYTES_MAX as u32;
    prop_oneof![4 => 0u32..24, 1 => limit - 16..limit + 2, 1 => any::<u32>()]
}

/// Rules of one or two fields, with numbers or not; 10 is no rule.
fn counters() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![Just(None), numbers().prop_map(Some)];
    vec((0u8..11, word), 1..3).prop_map(|fields| {
        let entry = |(rule, word): (u8, Option<Vec<u8>>)| match word {
            Some(word) => [&[rule][..], &word].concat(),
            None => vec![rule | 0x80],
        };
        fields.into_iter().flat_map(entry).collect()
    })
}

fn operands() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => changes(),
        5 => operands_of_others(),
    ]
}

fn operands_of_others() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        counters(),
        numbers(),
        vec(any::<u8>(), 0..12),
        (offsets(), vec(any::<u8>(), 0..12)).prop_map(|(at, bytes)| patch_operand(at, &bytes)),
        (kinds(), numbers()).prop_map(|(kind, bytes)| value_operand(kind, &bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn folding_is_exact(value in values(), earlier in operands(), later in operands()) {
        let modifiers = builtins();
        for id in all_ids() {
            let modifier = modifiers.get(id).expect("built in");
            let Some(folded) = modifier.fold(&earlier, &later) else { continue };
            let name = modifier.name();
            prop_assert!(modifier.check_operand(&folded).is_ok(), "{name}: bad folded operand");
            let first = step(modifier, &value, &earlier);
            let second = step(modifier, first.as_ref().unwrap_or(&value), &later);
            let once = step(modifier, &value, &folded);
            prop_assert_eq!(first.is_some(), second.is_some(), "{}: refusals", name);
            prop_assert_eq!(second, once, "{}", name);
        }
    }

    #[test]
    fn unchecked_operands_are_refused_and_blind_ones_are_blind(
        value in values(),
        operand in operands(),
    ) {
        let modifiers = builtins();
        for id in all_ids() {
            let modifier = modifiers.get(id).expect("built in");
            let result = modifier.apply(b"key", as_ref(&value), &operand);
            if modifier.check_operand(&operand).is_err() {
                prop_assert!(result.is_err(), "{}", modifier.name());
            } else if modifier.blind() {
                prop_assert_eq!(&result, &modifier.apply(b"key", None, &operand));
                prop_assert!(matches!(result, Ok(Outcome::Put(..) | Outcome::Delete)));
            }
            if let Ok(Outcome::Put(kind, bytes)) = &result {
                prop_assert!(check_value(*kind, bytes).is_ok(), "{}", modifier.name());
            }
        }
    }

    /// Whatever has expired may be dropped before any update that is declared no sooner.
    #[test]
    fn expired_records_may_be_dropped_at_any_time(
        value in records(),
        updates in vec((changes(), 0u64..3, any::<bool>()), 0..8),
    ) {
        let modifiers = builtins();
        let modifier = modifiers.get(EXPIRES_AT).expect("built in");
        let value = Some((ValueKind::Bytes, value));
        let (mut kept, mut swept, mut now_us) = (value.clone(), value, 0);
        let is_there = |value: &Value, now_us| {
            value.as_ref().is_some_and(|(_, bytes)| expires_us_of(bytes) > now_us)
        };
        for (mut operand, passes_us, is_swept) in updates {
            now_us += passes_us;
            set_moment(&mut operand, now_us);
            if is_swept {
                swept = swept.filter(|value| expires_us_of(&value.1) > now_us);
            }
            kept = step(modifier, &kept, &operand).expect("not refused");
            swept = step(modifier, &swept, &operand).expect("not refused");
            prop_assert_eq!(is_there(&kept, now_us), is_there(&swept, now_us));
            if is_there(&kept, now_us) {
                prop_assert_eq!(&kept, &swept);
            }
        }
    }

    /// Folding as a queue does it, at any point, changes no value.
    #[test]
    fn a_folded_sequence_has_the_same_value(
        value in values(),
        updates in vec((0u16..18, operands()), 1..12),
        cut in 0usize..12,
    ) {
        let modifiers = builtins();
        let plain: Vec<(ModifierId, Vec<u8>)> =
            updates.into_iter().map(|(id, operand)| (ModifierId(id), operand)).collect();
        let plain: Vec<_> = plain
            .into_iter()
            .filter(|(id, operand)| modifiers.admit(*id, b"key", operand).is_ok())
            .collect();
        let (head, tail) = plain.split_at(cut.min(plain.len()));
        let mut folded = fold_like_a_queue(&modifiers, head);
        folded.extend_from_slice(tail);
        prop_assert_eq!(value_after(&modifiers, &value, &plain).0,
            value_after(&modifiers, &value, &folded).0);
        // Swept in two steps instead of one.
        let (middle, _) = value_after(&modifiers, &value, head);
        prop_assert_eq!(value_after(&modifiers, &middle, tail).0,
            value_after(&modifiers, &value, &plain).0);
    }
}

fn fold_like_a_queue(
    modifiers: &Modifiers,
    updates: &[(ModifierId, Vec<u8>)],
) -> Vec<(ModifierId, Vec<u8>)> {
    let is_blind =
        |(id, _): &(ModifierId, Vec<u8>)| modifiers.get(*id).is_some_and(Modifier::blind);
    let start = updates.iter().rposition(is_blind).unwrap_or(0);
    let mut kept: Vec<(ModifierId, Vec<u8>)> = Vec::new();
    for (id, operand) in &updates[start..] {
        if let Some((last, earlier)) = kept.last_mut()
            && last == id
            && let Some(folded) = modifiers.get(*id).and_then(|m| m.fold(earlier, operand))
        {
            *earlier = folded;
            continue;
        }
        kept.push((*id, operand.clone()));
    }
    kept
}

/// The value after all updates, and the positions of those refused.
fn value_after(
    modifiers: &Modifiers,
    value: &Value,
    updates: &[(ModifierId, Vec<u8>)],
) -> (Value, Vec<usize>) {
    let updates: Vec<UpdateRef<'_>> = updates
        .iter()
        .enumerate()
        .map(|(seq, (modifier, operand))| UpdateRef {
            seq: Seq::new(seq as u64),
            modifier: *modifier,
            key: b"key",
            operand,
        })
        .collect();
    let mut refused = Vec::new();
    let mut on_refused = |position, _reason| refused.push(position);
    let after = match resolve(modifiers, b"key", as_ref(value), &updates, &mut on_refused) {
        Resolved::Unchanged => value.clone(),
        Resolved::Put(kind, bytes) => Some((kind, bytes.into_owned())),
        Resolved::Delete => None,
    };
    (after, refused)
}

#[test]
fn numbers_follow_their_rules() {
    let modifiers = builtins();
    let run = |id: ModifierId, value: Value, operand: [u8; 8]| {
        step(modifiers.get(id).expect("built in"), &value, &operand)
    };
    let i64_of = |number: i64| Some((ValueKind::I64, number.to_le_bytes().to_vec()));
    let f64_of = |number: f64| Some((ValueKind::F64, number.to_le_bytes().to_vec()));
    assert_eq!(run(ADD_I64, None, 5i64.to_le_bytes()), Some(i64_of(5)));
    assert_eq!(run(ADD_I64, i64_of(i64::MAX), 1i64.to_le_bytes()), Some(i64_of(i64::MIN)));
    assert_eq!(run(MAX_I64, i64_of(-4), (-9i64).to_le_bytes()), Some(i64_of(-4)));
    assert_eq!(run(MIN_I64, i64_of(-4), (-9i64).to_le_bytes()), Some(i64_of(-9)));
    assert_eq!(run(MAX_I64, None, (-9i64).to_le_bytes()), Some(i64_of(-9)));
    assert_eq!(run(MIN_F64, f64_of(0.0), (-0.0f64).to_le_bytes()), Some(f64_of(-0.0)));
    assert_eq!(run(ADD_F64, f64_of(1.5), 2.0f64.to_le_bytes()), Some(f64_of(3.5)));
    assert_eq!(run(MAX_F64, f64_of(1.5), f64::NAN.to_le_bytes()), None);
    let infinite = run(ADD_F64, f64_of(f64::INFINITY), f64::NEG_INFINITY.to_le_bytes());
    assert_eq!(infinite, Some(Some((ValueKind::F64, (0x7ff8u64 << 48).to_le_bytes().to_vec()))));
    assert_eq!(run(ADD_U64, i64_of(1), 1u64.to_le_bytes()), None, "another kind");
    for length in [7, 8, 9] {
        let text = Some((ValueKind::Bytes, vec![b'1'; length]));
        for id in (ADD_I64.0..=MIN_F64.0).map(ModifierId) {
            assert_eq!(run(id, text.clone(), [0; 8]), None, "a text of {length} bytes");
        }
    }
    let unsigned = Some((ValueKind::U64, vec![1; 8]));
    assert_eq!(run(BIT_OR, unsigned, [2; 8]), None, "a number has no bits to set");
}

#[test]
fn byte_strings_follow_their_rules() {
    let modifiers = builtins();
    let run = |id: ModifierId, value: Option<&[u8]>, operand: &[u8]| {
        let value = value.map(|bytes| (ValueKind::Bytes, bytes.to_vec()));
        let after = step(modifiers.get(id).expect("built in"), &value, operand);
        after.map(|value| value.map(|(_, bytes)| bytes))
    };
    let some = |bytes: &[u8]| Some(Some(bytes.to_vec()));
    assert_eq!(run(APPEND, None, b"ab"), some(b"ab"));
    assert_eq!(run(APPEND, Some(b"ab"), b"c"), some(b"abc"));
    assert_eq!(run(APPEND, Some(&vec![0; VALUE_BYTES_MAX]), b"c"), None);
    assert_eq!(run(BYTE_PATCH, Some(b"abcd"), &patch_operand(1, b"XY")), some(b"aXYd"));
    assert_eq!(run(BYTE_PATCH, Some(b"abcd"), &patch_operand(3, b"XY")), some(b"abcXY"));
    assert_eq!(run(BYTE_PATCH, Some(b"abcd"), &patch_operand(4, b"XY")), some(b"abcdXY"));
    assert_eq!(run(BYTE_PATCH, Some(b"abcd"), &patch_operand(5, b"XY")), None);
    assert_eq!(run(BYTE_PATCH, None, &patch_operand(0, b"XY")), some(b"XY"));
    assert_eq!(run(BYTE_PATCH, None, b"123"), None, "no offset");
    assert_eq!(run(BIT_OR, Some(&[1, 2]), &[4, 2]), some(&[5, 2]));
    assert_eq!(run(BIT_OR, Some(&[1, 2]), &[4]), None);
    let insert = value_operand(ValueKind::Bytes, b"new");
    assert_eq!(run(INSERT_IF_ABSENT, None, &insert), some(b"new"));
    assert_eq!(run(INSERT_IF_ABSENT, Some(b"old"), &insert), some(b"old"));
    assert_eq!(run(PUT, Some(b"old"), &[9, 1]), None, "no such kind");
    assert_eq!(run(PUT, Some(b"old"), &[1, 1]), None, "a number of 1 byte");
    assert_eq!(run(DELETE, Some(b"old"), b""), Some(None));
}

#[test]
fn records_that_expire_follow_their_rules() {
    let modifiers = builtins();
    let modifier = modifiers.get(EXPIRES_AT).expect("built in");
    let record = |expires_us, text: &[u8]| {
        let mut bytes = Vec::new();
        let value = ValueRef { kind: ValueKind::Bytes, bytes: text };
        Expiring { expires_us, value }.encode(&mut bytes);
        bytes
    };
    let value = |expires_us, text| Some((ValueKind::Bytes, record(expires_us, text)));
    let insert = |moment_us, expires_us, text: &[u8]| {
        [insert_operand(moment_us), record(expires_us, text)].concat()
    };
    let run = |value: &Value, operand: &[u8]| step(modifier, value, operand).expect("accepted");
    assert_eq!(run(&None, &insert(5, 9, b"new")), value(9, b"new"));
    assert_eq!(run(&value(6, b"old"), &insert(5, 9, b"new")), value(6, b"old"));
    assert_eq!(run(&value(5, b"old"), &insert(5, 9, b"new")), value(9, b"new"), "expired");
    assert_eq!(run(&None, &touch_operand(5, 9)), None);
    assert_eq!(run(&value(6, b"old"), &touch_operand(5, 9)), value(9, b"old"));
    assert_eq!(run(&value(6, b"old"), &touch_operand(5, 2)), value(2, b"old"), "sooner");
    assert_eq!(run(&value(5, b"old"), &touch_operand(5, 9)), value(5, b"old"), "expired");
    for other in [(ValueKind::I64, vec![0; 8]), (ValueKind::Bytes, vec![0; 8])] {
        assert_eq!(step(modifier, &Some(other), &touch_operand(5, 9)), None, "has no time");
    }
    let fold = |earlier: &[u8], later: &[u8]| modifier.fold(earlier, later);
    assert_eq!(fold(&touch_operand(1, 9), &touch_operand(2, 7)), Some(touch_operand(1, 7)));
    assert_eq!(fold(&touch_operand(1, 2), &touch_operand(2, 7)), Some(touch_operand(1, 2)));
    assert_eq!(fold(&insert(1, 2, b"a"), &insert(2, 9, b"b")), Some(insert(2, 9, b"b")));
    assert_eq!(fold(&insert(2, 9, b"a"), &insert(2, 9, b"b")), Some(insert(2, 9, b"a")));
    assert_eq!(fold(&insert(1, 9, b"a"), &insert(3, 9, b"b")), None, "of one that expires at 2");
    assert_eq!(fold(&insert(1, 9, b"a"), &touch_operand(1, 9)), None, "of another record");
    let longest = vec![0; EXPIRING_VALUE_BYTES_MAX];
    assert!(modifier.check_operand(&insert(1, 2, &longest)).is_ok());
    let longer = [&longest[..], b"0"].concat();
    for operand in
        [&insert(1, 2, &longer)[..], &[0; 15], &[0; 17][..16], &[&[0; 16][..], &[9]].concat()]
    {
        let is_touch = operand.len() == 16;
        assert_eq!(modifier.check_operand(operand).is_ok(), is_touch, "{} bytes", operand.len());
    }
}

/// All small times: of the record that is there, and moment and time of two changes.
#[test]
fn changes_of_records_that_expire_fold_exactly() {
    let modifiers = builtins();
    let modifier = modifiers.get(EXPIRES_AT).expect("built in");
    let record = |expires_us: u64, text: &[u8]| {
        let value = ValueRef { kind: ValueKind::Bytes, bytes: text };
        let mut bytes = Vec::new();
        Expiring { expires_us, value }.encode(&mut bytes);
        bytes
    };
    let changes = |text| {
        let of = move |number: u64| {
            let (moment_us, expires_us) = (number / 5, number % 5);
            let insert = [insert_operand(moment_us), record(expires_us, text)].concat();
            [insert, touch_operand(moment_us, expires_us)]
        };
        (0..25).flat_map(of).collect::<Vec<_>>()
    };
    let there = (0..6).map(|expires_us| Some((ValueKind::Bytes, record(expires_us, b"old"))));
    let there: Vec<Value> = there.chain([None]).collect();
    let mut folded = 0;
    for (earlier, later) in changes(b"a")
        .iter()
        .flat_map(|earlier| changes(b"b").into_iter().map(move |later| (earlier.clone(), later)))
    {
        let Some(both) = modifier.fold(&earlier, &later) else { continue };
        folded += 1;
        for value in &there {
            let first = step(modifier, value, &earlier).expect("accepted");
            let second = step(modifier, &first, &later).expect("accepted");
            let once = step(modifier, value, &both).expect("accepted");
            assert_eq!(second, once, "{earlier:?}, then {later:?}, of {value:?}");
        }
    }
    assert!(folded > 500, "{folded} of 2500");
}

#[test]
fn joined_patches_fold() {
    let modifiers = builtins();
    let patch = modifiers.get(BYTE_PATCH).expect("built in");
    let (earlier, later) = (patch_operand(8, b"abcd"), patch_operand(12, b"ef"));
    assert_eq!(patch.fold(&earlier, &later), Some(patch_operand(8, b"abcdef")));
    assert_eq!(patch.fold(&later, &earlier), None, "the later one begins before");
    let inner = patch_operand(9, b"X");
    assert_eq!(patch.fold(&earlier, &inner), Some(patch_operand(8, b"aXcd")));
}

/// A modifier of the application that misbehaves as its operand says.
struct Wayward {
    blind: bool,
}

impl Modifier for Wayward {
    fn name(&self) -> &'static str {
        "wayward"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        match operand {
            b"panic" => panic!("lost my way"),
            b"refuse" => Err(Refusal("no".to_owned())),
            b"keep" => Ok(Outcome::Keep),
            b"malform" => Ok(Outcome::Put(ValueKind::U64, vec![1])),
            b"exceed" => Ok(Outcome::Put(ValueKind::Bytes, vec![1; VALUE_BYTES_MAX + 1])),
            _ => Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec())),
        }
    }

    fn blind(&self) -> bool {
        self.blind
    }
}

const SIGHTED: ModifierId = ModifierId(256);
const BLIND: ModifierId = ModifierId(257);

fn with_wayward() -> Modifiers {
    let mut modifiers = builtins();
    modifiers.bind(SIGHTED, Arc::new(Wayward { blind: false }));
    modifiers.bind(BLIND, Arc::new(Wayward { blind: true }));
    modifiers
}

#[test]
fn what_a_modifier_does_wrong_is_refused_alone() {
    let modifiers = with_wayward();
    let updates: Vec<(ModifierId, Vec<u8>)> = vec![
        (SIGHTED, b"panic".to_vec()),
        (APPEND, b"b".to_vec()),
        (SIGHTED, b"malform".to_vec()),
        (SIGHTED, b"exceed".to_vec()),
        (ModifierId(999), Vec::new()),
        (APPEND, b"c".to_vec()),
    ];
    let value = Some((ValueKind::Bytes, b"a".to_vec()));
    let (after, refused) = value_after(&modifiers, &value, &updates);
    assert_eq!(after, Some((ValueKind::Bytes, b"abc".to_vec())));
    assert_eq!(refused, [0, 2, 3, 4]);
}

#[test]
fn only_a_blind_update_that_succeeds_supersedes() {
    let modifiers = with_wayward();
    let mut updates: Vec<(ModifierId, Vec<u8>)> =
        vec![(SIGHTED, b"refuse".to_vec()), (BLIND, b"x".to_vec()), (APPEND, b"y".to_vec())];
    for operand in [&b"panic"[..], b"refuse", b"keep", b"malform"] {
        updates.push((BLIND, operand.to_vec()));
        assert!(modifiers.admit(BLIND, b"key", operand).is_err());
    }
    let (after, refused) = value_after(&modifiers, &None, &updates);
    assert_eq!(after, Some((ValueKind::Bytes, b"xy".to_vec())));
    assert_eq!(refused, [3, 4, 6], "the first is superseded");
}

#[test]
fn a_put_is_borrowed_from_its_operand() {
    let modifiers = builtins();
    let operand = value_operand(ValueKind::Bytes, b"value");
    let update = UpdateRef { seq: Seq::FIRST, modifier: PUT, key: b"key", operand: &operand };
    let resolved = resolve(&modifiers, b"key", None, &[update], &mut |_, _| {});
    assert!(matches!(resolved, Resolved::Put(ValueKind::Bytes, Cow::Borrowed(b"value"))));
}
