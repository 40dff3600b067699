//! Volumes as they were: moments, histories, differences.

use std::io::Write;
use std::time::SystemTime;

use serde_json::{Value, json};
use upsweep::layers::runtime::unix_us;
use upsweep_volume::{Error, History, MomentInfo, MomentKind, VolumeInfo, Volumes};

use super::{give_back, volumes_with};
use crate::args::{
    VolumeAtArgs, VolumeDiffArgs, VolumeHistoryArgs, VolumeMarkArgs, VolumeRollbackArgs,
};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use crate::when::{self, Keep};

/// How far the last change may be ahead of the clock before anyone is told, in microseconds.
const AHEAD_US_MAX: u64 = 60_000_000;

pub(super) fn at(context: &Context, args: &VolumeAtArgs) -> Result<(), Failure> {
    let VolumeAtArgs { volume, moment, name, writable, .. } = args;
    let volumes = volumes_with(context, &args.open, volume)?;
    let past = moment.past(&volumes);
    let what = if *writable {
        volumes.clone_volume(volume, Some(past), name)?;
        "clone"
    } else {
        volumes.view(volume, past, name)?;
        "view"
    };
    let at = when::describe(past);
    context.line(&format!("made volume {name:?}, a {what} of {volume:?} {at}"))
}

pub(super) fn roll_back(context: &Context, args: &VolumeRollbackArgs) -> Result<(), Failure> {
    let VolumeRollbackArgs { volume, moment, .. } = args;
    let volumes = volumes_with(context, &args.open, volume)?;
    let past = moment.past(&volumes);
    volumes.roll_back(volume, past)?;
    context.line(&format!("volume {volume:?} is again what it was {}", when::describe(past)))?;
    give_back(context, &volumes)
}

pub(super) fn mark(context: &Context, args: &VolumeMarkArgs) -> Result<(), Failure> {
    let VolumeMarkArgs { volume, mark, .. } = args;
    volumes_with(context, &args.open, volume)?.mark(volume, mark)?;
    context.line(&format!("marked volume {volume:?} as {mark:?}"))
}

pub(super) fn history(context: &Context, args: &VolumeHistoryArgs) -> Result<(), Failure> {
    let VolumeHistoryArgs { show, volume, keep } = args;
    let volumes = volumes_with(context, &show.open, volume)?;
    if let Some(Keep(history)) = keep {
        volumes.set_history(volume, *history)?;
    }
    show_history(context, &volumes, volume, show.json)?;
    // What is not kept any longer.
    if keep.is_some() { give_back(context, &volumes) } else { Ok(()) }
}

/// A moment that can be returned to.
struct Return {
    at: u64,
    kind: &'static str,
    /// Of a snapshot or a mark.
    name: Option<String>,
    /// Unknown of snapshots.
    written_bytes: Option<u64>,
}

impl Return {
    fn of_moment(moment: MomentInfo) -> Self {
        let MomentInfo { at, kind, written_bytes, .. } = moment;
        let (kind, name) = match kind {
            MomentKind::Mark(name) => ("mark", Some(name)),
            MomentKind::Quiet => ("quiet", None),
            MomentKind::Flush => ("flush", None),
            _ => ("other", None),
        };
        Self { at, kind, name, written_bytes: Some(written_bytes) }
    }

    fn of_snapshot((name, at): &(String, u64)) -> Self {
        Self { at: *at, kind: "snapshot", name: Some(name.clone()), written_bytes: None }
    }

    /// What it is, as it can be given if it has a name.
    fn shown(&self) -> String {
        match (self.kind, &self.name) {
            ("snapshot", Some(name)) => format!("@{name}"),
            (kind, Some(name)) => format!("{kind}:{name}"),
            (kind, None) => kind.to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        let Self { at, kind, name, written_bytes } = self;
        json!({"time_us": at, "kind": kind, "name": name, "written_bytes": written_bytes})
    }
}

fn show_history(
    context: &Context,
    volumes: &Volumes,
    volume: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let missing = || Error::NoVolume(volume.to_owned());
    let list = volumes.list();
    let info = list.iter().find(|found| found.name == volume).ok_or_else(missing)?;
    let moments = if info.history.is_on() { volumes.moments(volume)? } else { Vec::new() };
    let moments = moments.into_iter().map(Return::of_moment);
    let snapshots = info.snapshots.iter().map(Return::of_snapshot);
    let mut returns: Vec<Return> = snapshots.chain(moments).collect();
    returns.sort_by_key(|found| found.at);
    if as_json {
        let moments: Vec<Value> = returns.iter().map(Return::to_json).collect();
        let history = history_json(info);
        return context.json(&json!({"volume": volume, "history": history, "moments": moments}));
    }
    let last = volumes.last_moment();
    if last > unix_us(SystemTime::now()).saturating_add(AHEAD_US_MAX) {
        let last = when::time(last);
        context.note(&format!(
            "upsweep: the clock is behind the last change, which is of {last}: times do not tell \
             apart what is written until then, and a history is not limited in time; snapshots and \
             marks can be returned to as always"
        ));
    }
    let mut out = context.out();
    let since = info.history_since.map(when::time).unwrap_or_default();
    match info.history {
        History::OFF => writeln!(out, "volume {volume:?} keeps no history but its snapshots")?,
        history => {
            writeln!(out, "volume {volume:?} keeps a history of {}, since {since}", Keep(history))?;
        }
    }
    if !returns.is_empty() {
        writeln!(out, "\n{:27}  {:>12}  moment", "time", "written")?;
    }
    for found in &returns {
        let written = found.written_bytes.map(text::size).unwrap_or_default();
        writeln!(out, "{}  {written:>12}  {}", when::time(found.at), found.shown())?;
    }
    Ok(out.flush()?)
}

/// What a volume keeps; null if that is nothing.
pub(super) fn history_json(info: &VolumeInfo) -> Value {
    let History { window, bytes } = info.history;
    match info.history.is_on() {
        true => json!({
            "window_us": window.map(|window| window.as_micros() as u64),
            "bytes": bytes,
            "since_us": info.history_since,
        }),
        false => Value::Null,
    }
}

pub(super) fn diff(context: &Context, args: &VolumeDiffArgs) -> Result<(), Failure> {
    let VolumeDiffArgs { volume, from, to, json: as_json, .. } = args;
    let volumes = volumes_with(context, &args.open, volume)?;
    let (from, to) = (from.past(&volumes), to.as_ref().map(|to| to.past(&volumes)));
    let mut out = context.out();
    if !as_json {
        writeln!(out, "{:>20}  {:>20}", "offset", "bytes")?;
    }
    let (mut ranges, mut sum) = (0_u64, 0);
    for range in volumes.changes(volume, from, to)? {
        context.check()?;
        let range = range?;
        let (offset, bytes) = (range.start, range.end - range.start);
        match as_json {
            true => writeln!(out, "{}", json!({"offset": offset, "bytes": bytes}))?,
            false => writeln!(out, "{offset:>20}  {bytes:>20}")?,
        }
        (ranges, sum) = (ranges + 1, sum + bytes);
    }
    match as_json {
        true => writeln!(out, "{}", json!({"changed_ranges": ranges, "changed_bytes": sum}))?,
        false => writeln!(out, "{} in {}", text::size(sum), text::counted(ranges, "range"))?,
    }
    Ok(out.flush()?)
}
