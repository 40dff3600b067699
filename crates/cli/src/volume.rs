//! `upsweep volume`.

use std::io::Write;

use serde_json::json;
use upsweep_volume::{Error, Past, VolumeInfo, Volumes};

use crate::args::{
    OpenArgs, ShowArgs, VolumeCloneArgs, VolumeCommand, VolumeCreateArgs, VolumeDeleteArgs,
    VolumeName, VolumeRenameArgs, VolumeSnapshotArgs,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, text};

pub(crate) fn run(context: &Context, command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(args) => create(context, args),
        VolumeCommand::List(args) => list(context, args),
        VolumeCommand::Snapshot(args) => snapshot(context, args),
        VolumeCommand::Clone(args) => clone(context, args),
        VolumeCommand::Rename(args) => rename(context, args),
        VolumeCommand::Delete(args) => delete(context, args),
    }
}

/// The volumes of a store, of which this must be one.
fn volumes_with(context: &Context, open: &OpenArgs, name: &str) -> Result<Volumes, Failure> {
    let volumes = context.existing_volumes(open)?;
    volumes.ok_or_else(|| Error::NoVolume(name.to_owned()).into())
}

fn create(context: &Context, args: &VolumeCreateArgs) -> Result<(), Failure> {
    context.volumes(&args.open)?.create(&args.name, args.size.0)?;
    context.line(&format!("made volume {:?} of {}", args.name, text::size(args.size.0)))
}

fn list(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let volumes = context.existing_volumes(&args.open)?;
    let volumes = volumes.map(|volumes| volumes.list()).unwrap_or_default();
    let mut out = context.out();
    if args.json {
        volumes.iter().try_for_each(|volume| writeln!(out, "{}", to_json(volume)))?;
        return Ok(out.flush()?);
    }
    if volumes.is_empty() {
        writeln!(out, "there are no volumes")?;
        return Ok(out.flush()?);
    }
    let width = volumes.iter().map(|found| found.name.chars().count()).max().unwrap_or(0).max(6);
    writeln!(out, "{:width$}  {:>12}  {:9}  snapshots", "volume", "size", "access")?;
    for VolumeInfo { name, bytes, fixed_at, snapshots, .. } in &volumes {
        let access = if fixed_at.is_some() { "read-only" } else { "writable" };
        let snapshots: Vec<&str> = snapshots.iter().map(|(name, _)| name.as_str()).collect();
        let (size, snapshots) = (text::size(*bytes), snapshots.join(", "));
        let line = format!("{name:width$}  {size:>12}  {access:9}  {snapshots}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out.flush()?)
}

fn to_json(volume: &VolumeInfo) -> serde_json::Value {
    let VolumeInfo { name, bytes, fixed_at, snapshots, .. } = volume;
    let of = |(name, time_us): &(String, u64)| json!({"snapshot": name, "time_us": time_us});
    json!({
        "volume": name,
        "bytes": bytes,
        "shows_time_us": fixed_at,
        "snapshots": snapshots.iter().map(of).collect::<Vec<_>>(),
    })
}

fn snapshot(context: &Context, args: &VolumeSnapshotArgs) -> Result<(), Failure> {
    let mut names: Vec<&str> = args.others.iter().map(String::as_str).collect();
    names.push(&args.volume);
    names.sort_unstable();
    names.dedup();
    volumes_with(context, &args.open, &args.volume)?.snapshot(&names, &args.snapshot)?;
    let of = match names.as_slice() {
        [name] => format!("volume {name:?}"),
        several => format!("{} volumes", text::count(several.len() as u64)),
    };
    context.line(&format!("made snapshot {:?} of {of}", args.snapshot))
}

fn clone(context: &Context, args: &VolumeCloneArgs) -> Result<(), Failure> {
    let VolumeName { volume, snapshot } = &args.source;
    let volumes = volumes_with(context, &args.open, volume)?;
    volumes.clone_volume(volume, snapshot.as_deref().map(Past::Snapshot), &args.name)?;
    let at = snapshot.as_ref().map(|snapshot| format!(" in snapshot {snapshot:?}"));
    let at = at.unwrap_or_default();
    context.line(&format!("made volume {:?}, a clone of {volume:?}{at}", args.name))
}

fn rename(context: &Context, args: &VolumeRenameArgs) -> Result<(), Failure> {
    let VolumeRenameArgs { volume, name, .. } = args;
    volumes_with(context, &args.open, volume)?.rename(volume, name)?;
    context.line(&format!("renamed volume {volume:?} to {name:?}"))
}

fn delete(context: &Context, args: &VolumeDeleteArgs) -> Result<(), Failure> {
    let VolumeName { volume, snapshot } = &args.what;
    let volumes = volumes_with(context, &args.open, volume)?;
    match snapshot {
        Some(snapshot) => {
            volumes.delete_snapshot(volume, snapshot)?;
            context.line(&format!("deleted snapshot {snapshot:?} of volume {volume:?}"))?;
        }
        None => {
            volumes.delete(volume)?;
            context.line(&format!("deleted volume {volume:?}"))?;
        }
    }
    if context.is_in_server() { Ok(()) } else { give_back(context, &volumes) }
}

/// Waits until the space of what was deleted is given back.
fn give_back(context: &Context, volumes: &Volumes) -> Result<(), Failure> {
    let bar = context.progress(None, "{spinner} freeing space  {elapsed}");
    bar.iter().for_each(|bar| bar.enable_steady_tick(output::PROGRESS_EVERY));
    let worked = loop {
        match volumes.work() {
            Ok(true) => {}
            ended => break ended,
        }
    };
    bar.iter().for_each(indicatif::ProgressBar::finish_and_clear);
    Ok(worked.map(drop)?)
}
