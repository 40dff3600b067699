//! What leaves of every order promise: looking up, paging, checking, applying and merging never
//! panic on any body; a body that checks is the one body of its records, and what is applied to it
//! checks again.

use upsweep::layers::engine::block_format::{ApplyInput, BlockFormat, UpdateRef};
use upsweep::layers::engine::registry::{ModifierId, Modifiers};
use upsweep::layers::log::Seq;
use upsweep::layers::structures::modifiers::bind_builtins;
use upsweep::layers::structures::table::leaf_format::{Leaf, LeafBuilder};
use upsweep::layers::structures::table::{Order, PageRequest, get, page, sort};

/// Modifier (modulo `modifiers`) and bytes of key and operand in front of each update.
fn updates(mut data: &[u8], modifiers: u8) -> Vec<UpdateRef<'_>> {
    let mut updates = Vec::new();
    while let Some((&[modifier, key, operand], rest)) = data.split_first_chunk::<3>() {
        let Some((key, rest)) = rest.split_at_checked(usize::from(key % 32)) else { break };
        let Some((operand, rest)) = rest.split_at_checked(usize::from(operand)) else { break };
        let (modifier, seq) =
            (ModifierId(u16::from(modifier % modifiers)), Seq::new(updates.len() as u64));
        updates.push(UpdateRef { seq, modifier, key, operand });
        data = rest;
    }
    updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
    updates
}

/// Checks it for the length of a body (2 bytes), the body, and updates.
pub fn check<O: Order>(format: &impl BlockFormat, data: &[u8]) {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    let Some((&[low, high], data)) = data.split_first_chunk::<2>() else { return };
    let split = usize::from(u16::from_le_bytes([low, high])).min(data.len());
    let (body, rest) = data.split_at(split);
    // Number 15 removes a range of keys.
    let waiting = updates(rest, if format.keeps_key_order() { 18 } else { 15 });
    let mut in_order = waiting.clone();
    sort::<O>(&mut in_order);
    let sound = format.check(body, &[], None).is_ok();
    for key in waiting.iter().map(|update| update.key).chain([&[][..]]) {
        let _ = get::<O>(Some(body), &waiting, &modifiers, key, None);
        for reverse in [false, true] {
            let (from, to) = (&*O::position(key), None);
            let request = PageRequest { from, to, reverse, records_max: 3, bytes_max: 100 };
            assert!(page::<O>(Some(body), &in_order, &modifiers, &request).is_ok() || !sound);
        }
    }
    if sound {
        let leaf = Leaf::parse(body).expect("it checks");
        let mut builder = LeafBuilder::with_capacity(body.len(), leaf.count());
        for index in 0..leaf.count() {
            let record = leaf.record(index).expect("it checks");
            builder.push(record.key, &record.value);
        }
        assert_eq!(builder.finish(), body);
    }
    let input = ApplyInput {
        body: Some(body),
        updates: &waiting,
        modifiers: &modifiers,
        values: &[],
        body_bytes_max: 200,
        inline_value_bytes_max: 64,
        expired_us: 1 << 40,
    };
    let Ok(applied) = format.apply(&input) else { return };
    let pieces = &applied.pieces;
    for (index, piece) in pieces.iter().enumerate().filter(|_| sound) {
        let low = piece.key.as_deref().unwrap_or_default();
        let high = pieces.get(index + 1).and_then(|next| next.key.as_deref());
        let checked = format.check(&piece.body, low, high).expect("what was applied checks");
        assert_eq!(checked.records, piece.records);
    }
    for pair in pieces.windows(2) {
        let _ = format.merge(&pair[0].body, &pair[1].body, 400);
        let _ = format.merge(body, &pair[0].body, 400);
    }
}
