//! `upsweep verify`: reads everything, and says where it is not what was written.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use upsweep::{Damage, Error, Report, Store};
use upsweep_volume::{Volumes, VolumesReport};

use crate::args::{RepairArgs, VerifyArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use crate::volume::scrub;

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
    let volumes = verify_volumes(&args.store, !report.damage.is_empty())?;
    if args.json {
        let damage: Vec<_> = report.damage.iter().map(to_json).collect();
        context.json(&json!({
            "blocks": report.blocks,
            "bytes": report.bytes,
            "records": report.records,
            "waiting": report.waiting,
            "spill_segments": report.spill_segments,
            "damage": damage,
            "volumes": volumes.as_ref().map(volumes_json),
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
        if let Some(volumes) = &volumes {
            show_volumes(&mut out, volumes)?;
        }
        out.flush()?;
    }
    let is_sound = |found: &VolumesReport| found.damage.is_empty() && found.faults.is_empty();
    let is_sound = report.damage.is_empty() && volumes.as_ref().is_none_or(is_sound);
    if is_sound { Ok(()) } else { Err(Failure::Damage(None)) }
}

/// Checks the volumes of a store, if it has any. If the store is known to be damaged and cannot be
/// opened, they are not checked.
fn verify_volumes(store: &Path, is_damaged: bool) -> Result<Option<VolumesReport>, Failure> {
    let store = match Store::builder().open_read_only(store) {
        Ok(store) => store,
        Err(Error::Damaged(_)) if is_damaged => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let reason = match Volumes::verify(&store) {
        Ok(report) => return Ok(report),
        Err(error @ upsweep_volume::Error::Tables(_)) => error.to_string(),
        Err(upsweep_volume::Error::Store(Error::Damaged(damage))) => damage.to_string(),
        Err(error) => return Err(error.into()),
    };
    let mut report = VolumesReport::default();
    report.faults.push(format!("volumes cannot be checked: {reason}"));
    Ok(Some(report))
}

fn show_volumes(out: &mut impl Write, report: &VolumesReport) -> io::Result<()> {
    for fault in &report.faults {
        writeln!(out, "damage: {fault}")?;
    }
    for range in &report.damage {
        writeln!(out, "damage: {range}")?;
    }
    let damaged_bytes = report.damage.iter().map(|range| range.bytes).sum();
    writeln!(out, "{}", scrub::summary(report.bytes, damaged_bytes))
}

fn volumes_json(report: &VolumesReport) -> serde_json::Value {
    json!({
        "volumes": report.volumes,
        "bytes": report.bytes,
        "damage": report.damage.iter().map(scrub::to_json).collect::<Vec<_>>(),
        "faults": report.faults,
    })
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
