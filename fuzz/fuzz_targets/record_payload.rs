//! Payloads of log records: any bytes decode or are refused; what decodes encodes to an equal
//! payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::engine::format::record_format::{self as format, Payload, Updates};

/// All updates of a record; `None` if they are not what a record holds.
fn collect(mut updates: Updates<'_>) -> Option<Vec<LoggedUpdate<'_>>> {
    let mut all = Vec::new();
    while let Some(update) = updates.next_update().ok()? {
        all.push(update);
    }
    Some(all)
}

fuzz_target!(|data: &[u8]| {
    let Ok(payload) = format::decode(data) else { return };
    let mut out = Vec::new();
    match &payload {
        Payload::Updates(updates)
        | Payload::Change(_, updates)
        | Payload::DeferredCounts(updates) => {
            let Some(updates) = collect(updates.clone()) else { return };
            match &payload {
                Payload::Change(change, _) => format::encode_change(change, &updates, &mut out),
                Payload::DeferredCounts(_) => format::encode_deferred_counts(&updates, &mut out),
                _ => format::encode_updates(&updates, &mut out),
            }
            let bytes: usize = updates.iter().map(format::update_len).sum();
            assert!(bytes < out.len());
        }
        Payload::CreateSpace(space) => format::encode_create_space(space, &mut out),
        Payload::DropSpace(space) => format::encode_drop_space(*space, &mut out),
        Payload::Modifier(modifier) => format::encode_modifier(modifier, &mut out),
        Payload::Clone(clone) => format::encode_clone(clone, &mut out),
        Payload::Release(portion) => format::encode_release(*portion, &mut out),
        Payload::RemoveRange(range) => format::encode_remove_range(range, &mut out),
        Payload::DropSnapshot(snapshot) => format::encode_drop_snapshot(*snapshot, &mut out),
        Payload::Adopt(space, source) => format::encode_adopt(*space, *source, &mut out),
        Payload::Spill(spilled) => format::encode_spill(spilled.iter(), &mut out),
        Payload::Reserve(space, extent) => format::encode_reserve(*space, *extent, &mut out),
        Payload::GiveBack(extent) => format::encode_give_back(*extent, &mut out),
    }
    let same = match (format::decode(&out).expect("it was just encoded"), payload) {
        (Payload::Updates(left), Payload::Updates(right))
        | (Payload::DeferredCounts(left), Payload::DeferredCounts(right)) => {
            collect(left) == collect(right)
        }
        (Payload::Change(left, of_left), Payload::Change(right, of_right)) => {
            left == right && collect(of_left) == collect(of_right)
        }
        (Payload::CreateSpace(left), Payload::CreateSpace(right)) => left == right,
        (Payload::DropSpace(left), Payload::DropSpace(right)) => left == right,
        (Payload::Modifier(left), Payload::Modifier(right)) => left == right,
        (Payload::Clone(left), Payload::Clone(right)) => left == right,
        (Payload::Release(left), Payload::Release(right)) => left == right,
        (Payload::RemoveRange(left), Payload::RemoveRange(right)) => left == right,
        (Payload::DropSnapshot(left), Payload::DropSnapshot(right)) => left == right,
        (Payload::Adopt(left, of_left), Payload::Adopt(right, of_right)) => {
            (left, of_left) == (right, of_right)
        }
        (Payload::Spill(left), Payload::Spill(right)) => left == right,
        (Payload::Reserve(left, of_left), Payload::Reserve(right, of_right)) => {
            (left, of_left) == (right, of_right)
        }
        (Payload::GiveBack(left), Payload::GiveBack(right)) => left == right,
        _ => false,
    };
    assert!(same);
});
