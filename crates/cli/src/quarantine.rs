//! `upsweep quarantine`: updates that their modifiers have refused.

use std::io::Write;

use serde_json::json;
use upsweep::layers::structures::array::body_format::index_of;
use upsweep::{Error, QuarantinedUpdate, RequestError, Retried, Store, Value, ValueKind};

use crate::args::{PickArgs, ShowArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::structure::KnownKind;
use crate::text;

pub(crate) fn list(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let store = context.open_to_read(&args.open)?;
    let (updates, structures) = (store.quarantined()?, store.structures());
    let is_cell = |update: &QuarantinedUpdate| {
        let is_array = |kind| matches!(KnownKind::of(kind), Some(KnownKind::Array(_)));
        let of = |name: &String| structures.iter().any(|(n, kind, _)| n == name && is_array(kind));
        update.table.as_ref().is_some_and(of)
    };
    let mut out = context.out();
    if updates.is_empty() && !args.json {
        writeln!(out, "nothing is in quarantine")?;
    }
    for update in &updates {
        if args.json {
            writeln!(out, "{}", to_json(update, is_cell(update))?)?;
        } else {
            writeln!(out, "{}", to_line(update, is_cell(update))?)?;
        }
    }
    out.flush()?;
    let waiting: u64 = structures.iter().map(|(_, _, size)| size.waiting).sum();
    if waiting > 0 {
        let (updates, path) = (text::counted(waiting, "update"), args.open.store.display());
        let wait = if waiting == 1 { "waits" } else { "wait" };
        // For information only: the list itself is complete.
        context.note(&format!(
            "{updates} {wait} for a sweep, which may refuse some: `upsweep sweep {path}` shows"
        ));
    }
    Ok(())
}

fn to_line(update: &QuarantinedUpdate, is_cell: bool) -> Result<String, Failure> {
    let QuarantinedUpdate { id, table, modifier, reason, .. } = update;
    let table = table.as_deref().unwrap_or("(dropped)");
    let (id, reason) = (text::hex(id), text::escape(reason.as_bytes()));
    let key = key_text(update, is_cell);
    let operand = text::value_text(&operand(update), None).map_err(Failure::Refused)?;
    Ok(format!("{id}\t{table}\t{modifier}\t{key}\t{operand}\t{reason}"))
}

fn to_json(update: &QuarantinedUpdate, is_cell: bool) -> Result<serde_json::Value, Failure> {
    Ok(json!({
        "id": text::hex(&update.id),
        "table": update.table,
        "modifier": update.modifier,
        "key": key_text(update, is_cell),
        "operand": text::json_value(&operand(update), None).map_err(Failure::Refused)?,
        "reason": update.reason,
    }))
}

/// The key as it was given: for the cell of an array, its index.
fn key_text(update: &QuarantinedUpdate, is_cell: bool) -> String {
    match index_of(&update.key) {
        Some(index) if is_cell => index.to_string(),
        _ => text::escape(&update.key),
    }
}

/// The operand as the value that it stands for: numbers as numbers.
fn operand(update: &QuarantinedUpdate) -> Value {
    let whole = &update.operand;
    let number = |kind| (kind, whole.as_slice());
    let (kind, bytes) = match (update.modifier.as_str(), whole.split_first()) {
        ("add_i64" | "max_i64" | "min_i64", _) => number(ValueKind::I64),
        // What is taken away from cells without sign is added as 2^64 less that.
        ("add_u64", _) => number(ValueKind::I64),
        ("max_u64" | "min_u64", _) => number(ValueKind::U64),
        ("add_f64" | "max_f64" | "min_f64", _) => number(ValueKind::F64),
        ("put" | "insert_if_absent", Some((&kind, bytes))) => {
            (ValueKind::from_number(kind).unwrap_or(ValueKind::Bytes), bytes)
        }
        _ => (ValueKind::Bytes, whole.as_slice()),
    };
    // What is malformed is shown byte for byte.
    let kind = if bytes.len() == 8 { kind } else { ValueKind::Bytes };
    Value { kind, bytes: bytes.to_vec() }
}

/// How many updates were taken out of the quarantine.
#[derive(Default)]
struct Done {
    declared: u64,
    removed: u64,
}

/// The store, and the updates that were named.
fn picked(context: &Context, args: &PickArgs) -> Result<(Store, Vec<Vec<u8>>), Failure> {
    let named: Result<Vec<Vec<u8>>, Error> = args
        .ids
        .iter()
        .map(|id| text::unhex(id).ok_or_else(|| RequestError::NoQuarantined(id.clone()).into()))
        .collect();
    let mut ids = named?;
    let store = context.open_for_upkeep(&args.open)?;
    if args.all {
        ids = store.quarantined()?.into_iter().map(|update| update.id).collect();
    }
    Ok((store, ids))
}

pub(crate) fn discard(context: &Context, args: &PickArgs) -> Result<(), Failure> {
    let (store, ids) = picked(context, args)?;
    let mut discarded = 0;
    let outcome = ids.iter().try_for_each(|id| {
        store.discard_quarantined(id)?;
        discarded += 1;
        Ok::<(), Error>(())
    });
    // Also before a failure: what was done stays done.
    let printed = if args.json {
        context.json(&json!({ "discarded": discarded }))
    } else {
        context.line(&format!("discarded {}", text::counted(discarded, "update")))
    };
    outcome?;
    printed
}

pub(crate) fn retry(context: &Context, args: &PickArgs) -> Result<(), Failure> {
    let (store, ids) = picked(context, args)?;
    let mut done = Done::default();
    let outcome = retry_each(&store, &ids, &mut done);
    // Also before a failure: what was done stays done.
    let printed = print(context, &done, args.json);
    outcome?;
    printed
}

fn retry_each(store: &Store, ids: &[Vec<u8>], done: &mut Done) -> Result<(), Error> {
    for id in ids {
        match store.retry_quarantined(id)? {
            Retried::Declared => done.declared += 1,
            Retried::Removed => done.removed += 1,
        }
    }
    Ok(())
}

fn print(context: &Context, done: &Done, json: bool) -> Result<(), Failure> {
    let Done { declared, removed } = done;
    if json {
        return context.json(&json!({"retried": declared, "removed": removed}));
    }
    let removed = match removed {
        0 => String::new(),
        removed => format!("; {removed} removed, their tables are gone"),
    };
    context.line(&format!("declared {} anew{removed}", text::counted(*declared, "update")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_one_line_of_six_fields() {
        let update = |modifier: &str, operand: &[u8]| QuarantinedUpdate {
            id: vec![0, 0xff],
            table: None,
            modifier: modifier.to_owned(),
            key: b"a\tb".to_vec(),
            operand: operand.to_vec(),
            reason: "first\nsecond\tthird".to_owned(),
        };
        let line = |modifier: &str, operand: &[u8]| to_line(&update(modifier, operand), false).ok();
        let expected = |modifier: &str, operand: &str| {
            let reason = "first\\nsecond\\tthird";
            Some(format!("00ff\t(dropped)\t{modifier}\ta\\tb\t{operand}\t{reason}"))
        };
        let number = (-5i64).to_le_bytes();
        assert_eq!(line("min_i64", &number), expected("min_i64", "-5"));
        assert_eq!(line("add_u64", &number), expected("add_u64", "-5"));
        assert_eq!(line("max_u64", &5u64.to_le_bytes()), expected("max_u64", "5"));
        assert_eq!(line("add_f64", &1.5f64.to_le_bytes()), expected("add_f64", "1.5"));
        assert_eq!(line("append", b"12345678"), expected("append", "12345678"));
        assert_eq!(line("put", b"\0v\tw"), expected("put", "v\\tw"));
        // No operand of its modifier, so byte for byte.
        assert_eq!(line("add_i64", b"12"), expected("add_i64", "12"));
    }
}
