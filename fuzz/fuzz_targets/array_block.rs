//! Blocks of arrays: reading, checking and applying never panic on any body and any updates; a body
//! that checks is the one body of its cells, and what is applied to it checks again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::block_format::{ApplyInput, BlockFormat, UpdateRef};
use upsweep::layers::engine::registry::{ModifierId, Modifiers};
use upsweep::layers::log::Seq;
use upsweep::layers::structures::array::block::cell;
use upsweep::layers::structures::array::body_format::{Body, BodyEditor, block_key, key_of};
use upsweep::layers::structures::array::{ArrayFormat, CellKind};
use upsweep::layers::structures::modifiers::bind_builtins;

const KINDS: [CellKind; 8] = [
    CellKind::U8,
    CellKind::U16,
    CellKind::U32,
    CellKind::U64,
    CellKind::I64,
    CellKind::F64,
    CellKind::Bytes(12),
    CellKind::Bytes(1024),
];

/// Modifier, index and operand length in front of each update; every sixteenth key is no index.
fn updates(mut data: &[u8]) -> Vec<(u16, Vec<u8>, &[u8])> {
    let mut updates = Vec::new();
    while let Some((&[modifier, low, high, length], rest)) = data.split_first_chunk::<4>() {
        let Some((operand, rest)) = rest.split_at_checked(usize::from(length)) else { break };
        let key = key_of(u64::from(u16::from_le_bytes([low, high])));
        let key = if modifier >= 240 { key[..usize::from(low % 8)].to_vec() } else { key.to_vec() };
        updates.push((u16::from(modifier % 16), key, operand));
        data = rest;
    }
    updates.sort_by(|left, right| left.1.cmp(&right.1));
    updates
}

fuzz_target!(|data: &[u8]| {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    let Some((&[kind, low, high], data)) = data.split_first_chunk::<3>() else { return };
    let kind = KINDS[usize::from(kind) % KINDS.len()];
    let (body, rest) = data.split_at(usize::from(u16::from_le_bytes([low, high])).min(data.len()));
    let owned = updates(rest);
    let waiting: Vec<UpdateRef<'_>> = owned
        .iter()
        .zip(1..)
        .map(|((modifier, key, operand), seq)| UpdateRef {
            seq: Seq::new(seq),
            modifier: ModifierId(*modifier),
            key,
            operand,
        })
        .collect();
    let format = ArrayFormat::new(kind);
    let sound = format.check(body, &block_key(0), None).is_ok();
    let parsed = Body::parse(kind, body);
    assert!(parsed.is_ok() || !sound);
    assert_eq!(cell(kind, Some(body), &modifiers, 3, &waiting).is_ok(), parsed.is_ok());
    if let Some(parsed) = parsed.ok().filter(|_| sound) {
        let mut editor = BodyEditor::new(Body::parse(kind, &[]).expect("empty"), parsed.count());
        parsed.iter().for_each(|(offset, cell)| editor.set(offset, cell));
        assert_eq!(editor.finish(), (body.to_vec(), parsed.count()));
    }
    let input = ApplyInput {
        body: Some(body),
        updates: &waiting,
        modifiers: &modifiers,
        values: &[],
        body_bytes_max: 200,
        inline_value_bytes_max: 64,
        expired_us: 0,
    };
    let Ok(applied) = format.apply(&input) else { return };
    let [piece] = applied.pieces.as_slice() else { panic!("an array never splits") };
    if sound {
        let checked = format.check(&piece.body, &block_key(0), None).expect("it checks again");
        assert_eq!(checked.records, piece.records);
    }
});
