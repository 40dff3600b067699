//! `upsweep volume`.

mod past;
pub(crate) mod scrub;
mod settings;
mod transfer;

use std::io::Write;

use serde_json::json;
use upsweep_volume::{Error, Past, Receiving, Usage, VolumeInfo, VolumeUsage, Volumes};

use crate::args::{
    OpenArgs, ShowArgs, VolumeCloneArgs, VolumeCommand, VolumeCreateArgs, VolumeDeleteArgs,
    VolumeName, VolumeRenameArgs, VolumeResizeArgs, VolumeSnapshotArgs,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::when::{self, Keep, When};
use crate::{output, text};

pub(crate) fn run(context: &Context, command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(args) => create(context, args),
        VolumeCommand::List(args) => list(context, args),
        VolumeCommand::Snapshot(args) => snapshot(context, args),
        VolumeCommand::Clone(args) => clone(context, args),
        VolumeCommand::At(args) => past::at(context, args),
        VolumeCommand::Rollback(args) => past::roll_back(context, args),
        VolumeCommand::Resize(args) => resize(context, args),
        VolumeCommand::Rename(args) => rename(context, args),
        VolumeCommand::Set(args) => settings::set(context, args),
        VolumeCommand::Mark(args) => past::mark(context, args),
        VolumeCommand::History(args) => past::history(context, args),
        VolumeCommand::Diff(args) => past::diff(context, args),
        VolumeCommand::Df(args) => show_usage(context, args),
        VolumeCommand::Send(args) => transfer::send(context, args),
        VolumeCommand::Receive(args) => transfer::receive(context, args),
        VolumeCommand::Scrub(args) => scrub::run(context, args),
        VolumeCommand::Delete(args) => delete(context, args),
    }
}

/// The volumes of a store, of which this must be one.
fn volumes_with(context: &Context, open: &OpenArgs, name: &str) -> Result<Volumes, Failure> {
    let volumes = context.existing_volumes(open)?;
    volumes.ok_or_else(|| Error::NoVolume(name.to_owned()).into())
}

fn create(context: &Context, args: &VolumeCreateArgs) -> Result<(), Failure> {
    let volumes = context.volumes(&args.open)?;
    volumes.create_with(&args.name, args.size.0, args.block_size.0)?;
    let set = args.history.map(|Keep(history)| volumes.set_history(&args.name, history));
    if let Some(Err(error)) = set {
        // It may be made again.
        volumes.delete(&args.name)?;
        return Err(error.into());
    }
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
    let name_width = width("volume", volumes.iter().map(|found| found.name.as_str()));
    let histories: Vec<String> =
        volumes.iter().map(|found| Keep(found.history).to_string()).collect();
    let history_width = width("history", histories.iter().map(String::as_str));
    let all: Vec<String> = volumes.iter().map(|found| settings::shown(&found.settings)).collect();
    // Most stores have none.
    let settings_width = match all.iter().all(String::is_empty) {
        true => 0,
        false => 2 + width("settings", all.iter().map(String::as_str)),
    };
    let settings = |text: &str| match settings_width {
        0 => String::new(),
        width => format!("{:width$}", format!("  {text}")),
    };
    let head = format!("{:name_width$}  {:>12}  {:>5}  {:9}", "volume", "size", "block", "access");
    let heads = (settings("settings"), "history");
    writeln!(out, "{head}  {:history_width$}{}  snapshots", heads.1, heads.0)?;
    for ((volume, history), of_it) in volumes.iter().zip(&histories).zip(&all) {
        let VolumeInfo { name, block_size, bytes, fixed_at, snapshots, .. } = volume;
        let is_fixed = fixed_at.is_some() || volume.settings.read_only;
        let access = match &volume.receiving {
            Some(_) => "receiving",
            None if is_fixed => "read-only",
            None => "writable",
        };
        let snapshots: Vec<&str> = snapshots.iter().map(|(name, _)| name.as_str()).collect();
        let (size, snapshots) = (text::size(*bytes), snapshots.join(", "));
        let line = format!("{name:name_width$}  {size:>12}  {:>5}  {access:9}", block_size.bytes());
        let line = format!("{line}  {history:history_width$}{}  {snapshots}", settings(of_it));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out.flush()?)
}

/// The width of a column with this head.
fn width<'a>(head: &str, cells: impl Iterator<Item = &'a str>) -> usize {
    cells.map(|cell| cell.chars().count()).fold(head.len(), usize::max)
}

fn to_json(volume: &VolumeInfo) -> serde_json::Value {
    let VolumeInfo { name, block_size, bytes, fixed_at, snapshots, .. } = volume;
    let of = |(name, time_us): &(String, u64)| json!({"snapshot": name, "time_us": time_us});
    let receiving = volume.receiving.as_ref().map(|Receiving { snapshot, base, token, .. }| {
        json!({"snapshot": snapshot, "base": base, "resume_token": token.to_string()})
    });
    json!({
        "volume": name,
        "bytes": bytes,
        "block_bytes": block_size.bytes(),
        "shows_time_us": fixed_at,
        "history": past::history_json(volume),
        "receiving": receiving,
        "settings": settings::to_json(&volume.settings),
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
    let volume = &args.source.volume;
    let volumes = volumes_with(context, &args.open, volume)?;
    let past = moment(&args.source, args.at.as_ref(), &volumes)?;
    volumes.clone_volume(volume, past, &args.name)?;
    let at = past.map(|past| format!(" {}", when::describe(past))).unwrap_or_default();
    context.line(&format!("made volume {:?}, a clone of {volume:?}{at}", args.name))
}

/// The moment of a volume that is meant, if it is not the present.
fn moment<'a>(
    source: &'a VolumeName,
    at: Option<&'a When>,
    volumes: &Volumes,
) -> Result<Option<Past<'a>>, Failure> {
    let VolumeName { volume, snapshot } = source;
    match (snapshot, at) {
        (Some(snapshot), Some(_)) => {
            let reason = format!("give one moment: {volume}@{snapshot}, or {volume} with --at");
            Err(Failure::Refused(reason))
        }
        (Some(snapshot), None) => Ok(Some(Past::Snapshot(snapshot))),
        (None, at) => Ok(at.map(|at| at.past(volumes))),
    }
}

fn resize(context: &Context, args: &VolumeResizeArgs) -> Result<(), Failure> {
    let VolumeResizeArgs { volume, size, .. } = args;
    let volumes = volumes_with(context, &args.open, volume)?;
    volumes.resize(volume, size.0)?;
    context.line(&format!("volume {volume:?} has {} now", text::size(size.0)))?;
    give_back(context, &volumes)
}

fn show_usage(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let Some(volumes) = context.existing_volumes(&args.open)? else {
        return match args.json {
            true => context.json(&usage_json(&[], 0, 0)),
            false => context.line("there are no volumes"),
        };
    };
    let Usage { volumes, payload_bytes, reclaimable_bytes, .. } = volumes.usage()?;
    if args.json {
        return context.json(&usage_json(&volumes, payload_bytes, reclaimable_bytes));
    }
    let name_width = width("volume", volumes.iter().map(|found| found.name.as_str()));
    let line = |name: &str, columns: [&str; 6]| {
        columns
            .iter()
            .fold(format!("{name:name_width$}"), |line, text| format!("{line}  {text:>12}"))
    };
    let mut out = context.out();
    writeln!(out, "{}", line("volume", ["size", "own", "history", "shared", "used", "quota"]))?;
    for of in &volumes {
        let [size, own, history, shared, used] =
            [of.bytes, of.own_bytes, of.history_bytes, of.shared_bytes, of.used_bytes]
                .map(text::size);
        let quota = of.quota_bytes.map_or_else(|| "none".to_owned(), text::size);
        writeln!(out, "{}", line(&of.name, [&size, &own, &history, &shared, &used, &quota]))?;
    }
    let [all, reclaimable] = [payload_bytes, reclaimable_bytes].map(text::size);
    writeln!(out, "all volumes need {all}; {reclaimable} more are reclaimable")?;
    Ok(out.flush()?)
}

fn usage_json(
    volumes: &[VolumeUsage],
    payload_bytes: u64,
    reclaimable_bytes: u64,
) -> serde_json::Value {
    let of = |volume: &VolumeUsage| {
        json!({
            "volume": volume.name,
            "bytes": volume.bytes,
            "own_bytes": volume.own_bytes,
            "history_bytes": volume.history_bytes,
            "shared_bytes": volume.shared_bytes,
            "used_bytes": volume.used_bytes,
            "quota_bytes": volume.quota_bytes,
        })
    };
    json!({
        "volumes": volumes.iter().map(of).collect::<Vec<_>>(),
        "payload_bytes": payload_bytes,
        "reclaimable_bytes": reclaimable_bytes,
    })
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
    give_back(context, &volumes)
}

/// Waits until the space of what is not needed any longer is given back; a server does that in the
/// background.
fn give_back(context: &Context, volumes: &Volumes) -> Result<(), Failure> {
    if context.is_in_server() {
        return Ok(());
    }
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
