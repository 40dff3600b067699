//! The block format of arrays against a plain vector, and against damaged bytes.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::block::{cell, is_decisive};
use super::body_format::{Body, BodyEditor, block_key, index_of, key_of};
use super::*;
use crate::engine::block_format::{Applied, ApplyError, ApplyInput, BlockFormat, UpdateRef};
use crate::engine::ids::Seq;
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
use crate::engine::registry::{ModifierId, Modifiers};
use crate::structures::modifiers::{
    ADD_F64, ADD_I64, ADD_U64, BIT_OR, BYTE_PATCH, DELETE, INSERT_IF_ABSENT, MAX_U64, PUT,
    bind_builtins, patch_operand, value_operand,
};

const KINDS: [CellKind; 9] = [
    CellKind::U8,
    CellKind::U16,
    CellKind::U32,
    CellKind::U64,
    CellKind::I64,
    CellKind::F64,
    CellKind::Bytes(1),
    CellKind::Bytes(12),
    CellKind::Bytes(1024),
];
/// A modifier that refuses, panics, or puts a value of its own, as the operand says.
const MOODY: ModifierId = ModifierId(300);

struct Moody;

impl Modifier for Moody {
    fn name(&self) -> &'static str {
        "moody"
    }
    fn version(&self) -> u16 {
        1
    }
    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let current = current.expect("a cell is always there");
        match operand.first() {
            Some(0) => Err(Refusal("not today".to_owned())),
            Some(1) => panic!("not today"),
            Some(2) => Ok(Outcome::Delete),
            Some(3) => Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec())),
            Some(4) => Ok(Outcome::Put(current.kind, vec![0xff; current.bytes.len()])),
            _ => Ok(Outcome::Keep),
        }
    }
}

fn registered() -> Modifiers {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    modifiers.bind(MOODY, Arc::new(Moody));
    modifiers
}

type Update = (u64, ModifierId, Vec<u8>);

fn sorted<'a>(updates: &'a [Update], keys: &'a [[u8; 8]]) -> Vec<UpdateRef<'a>> {
    let refs = updates.iter().zip(keys).enumerate();
    let mut refs: Vec<UpdateRef<'_>> = refs
        .map(|(seq, ((_, modifier, operand), key))| UpdateRef {
            seq: Seq::new(seq as u64),
            modifier: *modifier,
            key,
            operand,
        })
        .collect();
    refs.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
    refs
}

fn apply<'a>(
    kind: CellKind,
    body: Option<&'a [u8]>,
    updates: &[UpdateRef<'a>],
    modifiers: &Modifiers,
) -> Result<Applied<'a>, ApplyError> {
    ArrayFormat::new(kind).apply(&ApplyInput {
        body,
        updates,
        modifiers,
        values: &[],
        body_bytes_max: 16 << 10,
        inline_value_bytes_max: 4 << 10,
        expired_us: 0,
    })
}

/// One block as a vector of cells, each a vector of bytes.
struct Oracle {
    kind: CellKind,
    cells: Vec<Vec<u8>>,
}

impl Oracle {
    fn new(kind: CellKind) -> Self {
        Self { kind, cells: vec![vec![0; kind.cell_bytes()]; kind.cells_per_block()] }
    }

    /// The cell for a value, from the width and the kind alone.
    fn stored(&self, kind: ValueKind, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let cell_bytes = self.kind.cell_bytes();
        let wanted = if kind == ValueKind::Bytes { cell_bytes } else { 8 };
        if kind != self.kind.value_kind() || bytes.len() != wanted {
            return None;
        }
        let rest = bytes.split_off(cell_bytes);
        rest.iter().all(|byte| *byte == 0).then_some(bytes)
    }

    /// Applies one update; `false` if it is refused.
    fn update(&mut self, offset: usize, modifier: &dyn Modifier, operand: &[u8]) -> bool {
        let kind = self.kind.value_kind();
        let mut bytes = self.cells[offset].clone();
        bytes.resize(if kind == ValueKind::Bytes { bytes.len() } else { 8 }, 0);
        let current = Some(ValueRef { kind, bytes: &bytes });
        let call = || modifier.apply(&[], current, operand);
        let Ok(outcome) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) else {
            return false;
        };
        let changed = match outcome {
            Err(_) => None,
            Ok(Outcome::Keep) => Some(self.cells[offset].clone()),
            Ok(Outcome::Delete) => Some(vec![0; self.kind.cell_bytes()]),
            Ok(Outcome::Put(kind, bytes)) => self.stored(kind, &bytes),
        };
        let is_taken = changed.is_some();
        self.cells[offset] = changed.unwrap_or_else(|| self.cells[offset].clone());
        is_taken
    }
}

fn operands(kind: CellKind) -> impl Strategy<Value = (ModifierId, Vec<u8>)> {
    let bytes = kind.cell_bytes();
    let wide = if kind.value_kind() == ValueKind::Bytes { bytes } else { 8 };
    let fitting = move |mut cell: Vec<u8>| {
        cell.resize(wide, 0);
        value_operand(kind.value_kind(), &cell)
    };
    let number = |number: i64| number.to_le_bytes().to_vec();
    prop_oneof![
        6 => vec(any::<u8>(), bytes).prop_map(move |cell| (PUT, fitting(cell))),
        1 => vec(any::<u8>(), 8).prop_map(|n| (PUT, value_operand(ValueKind::U64, &n))),
        3 => Just((DELETE, Vec::new())),
        4 => (-9i64..300).prop_map(move |n| (ADD_U64, number(n))),
        4 => (-9i64..9).prop_map(move |n| (ADD_I64, number(n))),
        2 => any::<f64>().prop_map(|n| (ADD_F64, n.to_le_bytes().to_vec())),
        1 => (0i64..400).prop_map(move |n| (MAX_U64, number(n))),
        1 => vec(any::<u8>(), bytes).prop_map(|cell| (BIT_OR, cell)),
        1 => (0u32..12, any::<u8>()).prop_map(|(at, b)| (BYTE_PATCH, patch_operand(at, &[b]))),
        1 => vec(any::<u8>(), bytes).prop_map(move |cell| (INSERT_IF_ABSENT, fitting(cell))),
        3 => (0u8..6).prop_map(|mood| (MOODY, vec![mood])),
        1 => vec(any::<u8>(), 0..9).prop_map(|operand| (ModifierId(999), operand)),
    ]
}

/// Rounds of updates to cells of block 3; few of them, so that updates meet.
fn rounds() -> impl Strategy<Value = (CellKind, Vec<Vec<Update>>)> {
    (0..KINDS.len()).prop_flat_map(|kind| {
        let kind = KINDS[kind];
        let cells = kind.cells_per_block() as u64;
        let offset = prop_oneof![0..cells.min(6), 0..cells, Just(cells - 1)];
        let update = (offset, operands(kind))
            .prop_map(move |(offset, (modifier, operand))| (3 * cells + offset, modifier, operand));
        (Just(kind), vec(vec(update, 0..40), 1..5))
    })
}

proptest! {
    #[test]
    fn a_block_is_what_a_vector_says((kind, rounds) in rounds()) {
        let modifiers = registered();
        let first = 3 * kind.cells_per_block() as u64;
        let (mut oracle, mut body) = (Oracle::new(kind), Vec::new());
        for updates in &rounds {
            let keys: Vec<[u8; 8]> = updates.iter().map(|update| key_of(update.0)).collect();
            let refs = sorted(updates, &keys);
            let before = body.clone();
            let known = Some(&*before).filter(|body| !body.is_empty());
            let applied = apply(kind, known, &refs, &modifiers).expect("a sound body");
            let mut refused = Vec::new();
            let mut superseded = Vec::new();
            for (position, update) in refs.iter().enumerate() {
                let offset = (index_of(update.key).expect("an index") - first) as usize;
                let Some(modifier) = modifiers.get(update.modifier) else {
                    refused.push(position);
                    continue;
                };
                if !oracle.update(offset, modifier, update.operand) {
                    refused.push(position);
                } else if modifier.blind() {
                    let earlier = refs[..position].iter().rposition(|u| u.key != update.key);
                    superseded.extend(earlier.map_or(0, |at| at + 1)..position);
                }
            }
            // Refusals of what a later update supersedes are not reported.
            refused.retain(|position| !superseded.contains(position));
            let found: Vec<usize> = applied.refused.iter().map(|refused| refused.index).collect();
            prop_assert_eq!(found, refused);
            prop_assert!(applied.refused.iter().all(|refused| !refused.reason.is_empty()));
            let [piece] = applied.pieces.as_slice() else { panic!("one piece") };
            body.clone_from(&piece.body);
            let zero = vec![0; kind.cell_bytes()];
            let wanted: Vec<(usize, &[u8])> = oracle.cells.iter().enumerate()
                .filter(|(_, cell)| **cell != zero)
                .map(|(offset, cell)| (offset, &**cell))
                .collect();
            let parsed = Body::parse(kind, &body).expect("what was applied parses");
            prop_assert_eq!(parsed.iter().collect::<Vec<_>>(), &*wanted);
            prop_assert_eq!(body.is_empty(), wanted.is_empty());
            let checked = ArrayFormat::new(kind).check(&body, &block_key(3), None);
            prop_assert_eq!(checked.expect("it checks").records as usize, wanted.len());
            prop_assert_eq!(piece.records as usize, wanted.len());
            for (index, _, _) in updates {
                let key = key_of(*index);
                let own: Vec<_> = refs.iter().filter(|update| update.key == key).copied().collect();
                let image = known.filter(|_| !is_decisive(kind, &modifiers, &own));
                let read = cell(kind, image, &modifiers, *index, &own).expect("a sound body");
                prop_assert_eq!(&read, &oracle.cells[(*index - first) as usize]);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_are_the_one_body_of_their_cells(
        kind in 0..KINDS.len(),
        sound in vec((0usize..3000, 1u8..), 0..40),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in 0usize..20,
    ) {
        let kind = KINDS[kind];
        let mut cells: Vec<(usize, u8)> = sound;
        cells.iter_mut().for_each(|cell| cell.0 %= kind.cells_per_block());
        cells.sort_unstable();
        cells.dedup_by_key(|cell| cell.0);
        let mut editor = BodyEditor::new(Body::parse(kind, &[]).expect("empty"), cells.len());
        cells.iter().for_each(|(at, byte)| editor.set(*at, &vec![*byte; kind.cell_bytes()]));
        let (mut body, count) = editor.finish();
        prop_assert_eq!(count, cells.len());
        for (at, byte) in flips {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] ^= byte;
            }
        }
        body.truncate(body.len().saturating_sub(if cut < 10 { cut } else { 0 }));
        probe(kind, &body)?;
    }

    #[test]
    fn noise_is_refused(kind in 0..KINDS.len(), body in vec(any::<u8>(), 0..3000)) {
        probe(KINDS[kind], &body)?;
    }
}

/// Everything that reads a body, on this one.
fn probe(kind: CellKind, body: &[u8]) -> Result<(), TestCaseError> {
    let modifiers = registered();
    let one = 1u64.to_le_bytes();
    let key = key_of(5);
    let update = UpdateRef { seq: Seq::FIRST, modifier: ADD_U64, key: &key, operand: &one };
    let applied = apply(kind, Some(body), &[update], &modifiers);
    let read = cell(kind, Some(body), &modifiers, 5, &[]);
    let checked = ArrayFormat::new(kind).check(body, &block_key(0), None);
    prop_assert_eq!(applied.is_ok(), read.is_ok());
    if let Ok(checked) = checked {
        let parsed = Body::parse(kind, body).expect("it checks");
        prop_assert_eq!(parsed.count(), checked.records as usize);
        let mut editor = BodyEditor::new(Body::parse(kind, &[]).expect("empty"), 0);
        parsed.iter().for_each(|(offset, cell)| editor.set(offset, cell));
        prop_assert_eq!(&*editor.finish().0, body);
        prop_assert!(applied.is_ok());
    }
    Ok(())
}

#[test]
fn a_full_block_just_fits_its_image() {
    for kind in (1..=1024).map(CellKind::of_bytes).chain(KINDS) {
        let cells = kind.cells_per_block();
        let mut editor = BodyEditor::new(Body::parse(kind, &[]).expect("empty"), cells);
        (0..cells).for_each(|offset| editor.set(offset, &vec![1; kind.cell_bytes()]));
        let (body, count) = editor.finish();
        assert_eq!(count, cells);
        let image = 48 + 8 + body.len();
        assert!(image <= 16 << 10, "{kind}: an image of {image} bytes");
        let more = image + kind.cell_bytes() + 1;
        assert!(more > 16 << 10, "{kind}: room for one more cell in {image} bytes");
    }
}

#[test]
fn the_first_cell_of_a_block_of_numbers_needs_one_unit() {
    for kind in KINDS.into_iter().filter(|kind| kind.value_kind() != ValueKind::Bytes) {
        let mut editor = BodyEditor::new(Body::parse(kind, &[]).expect("empty"), 1);
        editor.set(kind.cells_per_block() - 1, &vec![1; kind.cell_bytes()]);
        assert!(48 + 8 + editor.finish().0.len() <= 4096, "{kind}");
    }
}

#[test]
fn kinds_of_cells_have_one_text_each() {
    for kind in KINDS {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    for text in ["", "u128", "U8", "bytes", "bytes0", "bytes1025", "bytes016", "bytes+1", "i64 "] {
        assert!(text.parse::<CellKind>().is_err(), "{text:?}");
        assert!(ArrayFormat::default().configure(text).is_err(), "{text:?}");
    }
    assert_eq!("bytes1024".parse(), Ok(CellKind::Bytes(1024)));
}

#[test]
fn keys_are_indices_in_their_order_and_all_others_have_a_block_of_their_own() {
    let format = ArrayFormat::new(CellKind::U32);
    let cells = CellKind::U32.cells_per_block() as u64;
    assert_eq!(&*format.position(&key_of(cells - 1)), block_key(0));
    assert_eq!(&*format.position(&key_of(cells)), block_key(1));
    let last = CellKind::U32.place_of(&format.position(&key_of(INDEX_MAX))).expect("a place");
    assert_eq!(last.first + last.cells as u64, INDEX_MAX + 1);
    assert!(last.cells < CellKind::U32.cells_per_block(), "2^48 is no multiple");
    let (long, short) = (key_of(INDEX_MAX + 1), key_of(7));
    for key in [&long[..], &short[1..], &[], &[0; 9]] {
        assert_eq!(index_of(key), None);
        assert_eq!(CellKind::U32.place_of(&format.position(key)), None);
        let one = 1u64.to_le_bytes();
        let update = UpdateRef { seq: Seq::FIRST, modifier: ADD_U64, key, operand: &one };
        let applied = apply(CellKind::U32, None, &[update], &registered()).expect("no body");
        assert_eq!((applied.refused.len(), applied.pieces[0].records), (1, 0));
        assert!(applied.refused[0].reason.contains("2^48"), "{}", applied.refused[0].reason);
    }
}

#[test]
fn what_does_not_fit_a_cell_is_refused_with_the_reason() {
    let key = key_of(0);
    let refuse = |kind, modifier, operand: &[u8], wanted: &str| {
        let update = UpdateRef { seq: Seq::FIRST, modifier, key: &key, operand };
        let applied = apply(kind, None, &[update], &registered()).expect("no body");
        let reason = &applied.refused.first().expect("refused").reason;
        assert!(reason.contains(wanted), "{reason}");
        assert!(applied.pieces[0].body.is_empty());
    };
    let number = 300u64.to_le_bytes();
    refuse(CellKind::U8, ADD_U64, &number, "300 does not fit a cell of u8");
    refuse(CellKind::U32, ADD_I64, &number, "needs a value of kind I64");
    refuse(CellKind::Bytes(4), PUT, &value_operand(ValueKind::Bytes, b"abc"), "no bytes4");
    refuse(CellKind::I64, PUT, &value_operand(ValueKind::U64, &number), "no i64");
    refuse(CellKind::I64, PUT, &value_operand(ValueKind::Bytes, &number), "no i64");
}
