//! Operands of the built-in modifiers: any operand on any value gives a value, keeps, deletes or is
//! refused; two operands that fold give what they give one after the other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::block_format::UpdateRef;
use upsweep::layers::engine::modifier::{ValueKind, ValueRef};
use upsweep::layers::engine::registry::{ModifierId, Modifiers};
use upsweep::layers::log::Seq;
use upsweep::layers::structures::modifiers::{Resolved, bind_builtins, check_value, resolve};

fuzz_target!(|data: &[u8]| {
    let mut modifiers = Modifiers::default();
    bind_builtins(&mut modifiers);
    let Some((&[id, kind, first, second], rest)) = data.split_first_chunk::<4>() else { return };
    let (first, rest) = rest.split_at(usize::from(first).min(rest.len()));
    let (second, value) = rest.split_at(usize::from(second).min(rest.len()));
    let modifier = ModifierId(u16::from(id % 18));
    let kind = ValueKind::from_number(kind % 5).filter(|kind| check_value(*kind, value).is_ok());
    let current = kind.map(|kind| ValueRef { kind, bytes: value });
    let update = |seq, operand| UpdateRef { seq: Seq::new(seq), modifier, key: b"key", operand };
    let run = |updates: &[UpdateRef<'_>]| {
        let mut refused = 0;
        let resolved = resolve(&modifiers, b"key", current, updates, &mut |_, _| refused += 1);
        let result = match resolved {
            Resolved::Unchanged => current.map(|value| (value.kind, value.bytes.to_vec())),
            Resolved::Put(kind, bytes) => Some((kind, bytes.to_vec())),
            Resolved::Delete => None,
        };
        if let Some((kind, bytes)) = &result {
            assert!(check_value(*kind, bytes).is_ok());
        }
        (result, refused)
    };
    let (both, _) = run(&[update(1, first), update(2, second)]);
    let Some(found) = modifiers.get(modifier) else { return };
    if found.check_operand(first).is_err() || found.check_operand(second).is_err() {
        return;
    }
    if let Some(folded) = found.fold(first, second) {
        assert!(found.check_operand(&folded).is_ok());
        assert_eq!(run(&[update(2, &folded)]).0, both);
    }
});
