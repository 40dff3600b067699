//! `upsweep verify`: reads everything, and says where it is not what was written.

use std::io::Write;

use serde_json::json;
use upsweep::{Damage, Error, Report, Store};

use crate::args::{RepairArgs, VerifyArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Result<(), Failure> {
    let report = match Store::builder().verify(&args.store) {
        Ok(report) => report,
        // A device whose very label is damaged is a finding like others.
        Err(Error::Damaged(damage)) => {
            let mut report = Report::default();
            report.damage.push(damage);
            report
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        let damage: Vec<_> = report.damage.iter().map(to_json).collect();
        context.json(&json!({
            "blocks": report.blocks,
            "bytes": report.bytes,
            "records": report.records,
            "waiting": report.waiting,
            "spill_segments": report.spill_segments,
            "damage": damage,
        }))?;
    } else {
        let mut out = context.out();
        for damage in &report.damage {
            writeln!(out, "damage: {damage}")?;
        }
        writeln!(
            out,
            "{} of {} together with {}, {}: {}",
            text::counted(report.blocks, "block"),
            text::size(report.bytes),
            text::counted(report.records, "record"),
            text::counted(report.waiting, "waiting update"),
            match report.damage.len() {
                0 => "no damage".to_owned(),
                found => format!("{found} damaged"),
            }
        )?;
        out.flush()?;
    }
    if report.damage.is_empty() { Ok(()) } else { Err(Failure::Damage(None)) }
}

fn to_json(damage: &Damage) -> serde_json::Value {
    let Damage { location, what, reason } = damage;
    let (device, offset) = location.map(|at| (at.device.0, at.offset)).unzip();
    json!({"device": device, "offset": offset, "what": what, "reason": reason})
}

pub(crate) fn repair(context: &Context, args: &RepairArgs) -> Result<(), Failure> {
    let was_wrong = Store::builder().repair(&args.store, args.device.as_deref())?;
    context.line(if was_wrong {
        "restored store.json; the old file is store.json.damaged"
    } else {
        "store.json matches the label of the device"
    })
}
