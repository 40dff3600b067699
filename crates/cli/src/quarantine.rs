//! `upsweep quarantine`: updates that their modifiers have refused.

use std::io::Write;

use serde_json::json;
use upsweep::QuarantinedUpdate;

use crate::args::{RetryArgs, ShowArgs};
use crate::failure::Failure;
use crate::{output, text};

pub(crate) fn list(args: &ShowArgs) -> Result<(), Failure> {
    let updates = output::open(&args.open)?.quarantined()?;
    let mut out = output::out();
    if updates.is_empty() && !args.json {
        writeln!(out, "nothing is in quarantine")?;
    }
    for update in &updates {
        if args.json {
            writeln!(out, "{}", to_json(update))?;
        } else {
            let QuarantinedUpdate { id, table, modifier, key, operand, reason } = update;
            let table = table.as_deref().unwrap_or("(dropped)");
            let (id, key, operand) = (text::hex(id), text::escape(key), text::escape(operand));
            writeln!(out, "{id}\t{table}\t{modifier}\t{key}\t{operand}\t{reason}")?;
        }
    }
    Ok(out.flush()?)
}

fn to_json(update: &QuarantinedUpdate) -> serde_json::Value {
    json!({
        "id": text::hex(&update.id),
        "table": update.table,
        "modifier": update.modifier,
        "key": text::escape(&update.key),
        "operand": text::escape(&update.operand),
        "reason": update.reason,
    })
}

pub(crate) fn retry(args: &RetryArgs) -> Result<(), Failure> {
    let unknown = |id: &str| {
        Failure::Refused(format!(
            "no update {id:?} in quarantine; `upsweep quarantine list` names all"
        ))
    };
    let named: Result<Vec<Vec<u8>>, Failure> =
        args.ids.iter().map(|id| text::unhex(id).ok_or_else(|| unknown(id))).collect();
    let mut ids = named?;
    let store = output::open(&args.open)?;
    let there = store.quarantined()?;
    if args.all {
        ids = there.into_iter().map(|update| update.id).collect();
    } else if let Some(id) = ids.iter().find(|id| !there.iter().any(|update| update.id == **id)) {
        return Err(unknown(&text::hex(id)));
    }
    for id in &ids {
        store.retry_quarantined(id)?;
    }
    if args.json {
        return output::json(&json!({"retried": ids.len()}));
    }
    output::line(&format!("declared {} updates anew", ids.len()))
}
