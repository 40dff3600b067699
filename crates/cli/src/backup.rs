//! `upsweep backup` and `upsweep restore`: all tables and arrays into a folder, and back.

use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use upsweep::{
    BackupOptions, BackupSummary, CopyProgress, Error, RequestError, RestoreOptions,
    RestoreSummary, Store,
};

use crate::args::{BackupArgs, RestoreArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, text};

/// What was done, and how long it took.
#[derive(Serialize)]
struct Timed<T> {
    #[serde(flatten)]
    summary: T,
    seconds: f64,
}

pub(crate) fn backup(context: &Context, args: &BackupArgs) -> Result<(), Failure> {
    let store = context.open_for_upkeep(&args.open)?;
    let folder = context.path(&args.folder);
    let since = args.since.as_ref().map(|since| context.path(since));
    check(context, args, &store)?;
    let reserved = store.status().reserved_bytes;
    if reserved > 0 {
        context.note(&format!(
            "warning: the content of volumes ({} on the devices) is not in a backup; `upsweep \
             volume send` copies them",
            text::size(reserved)
        ));
    }
    let started = Instant::now();
    // How much an increment copies is not known.
    let all = || store.structures().iter().map(|(_, _, size)| size.records).sum();
    let bar = context.records_bar(args.since.is_none().then(all));
    let draw = |CopyProgress { records, bytes, .. }| {
        if let Some(bar) = &bar {
            output::advance(bar, records, &format!(", {}", text::size(bytes)));
        }
    };
    let mut options = BackupOptions::default().progress(&draw);
    options.since = since.as_deref();
    options.snapshot = args.snapshot.as_deref();
    let made = store.backup(&folder, &options);
    clear(bar.as_ref());
    let summary = made.map_err(explain)?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        return context.json(&Timed { summary, seconds });
    }
    let BackupSummary { structures, records, puts, deletions, bytes, .. } = summary;
    let path = args.folder.display();
    let written = match args.since {
        Some(_) => {
            let [puts, deletions] =
                [(puts, "record"), (deletions, "deletion")].map(|(n, of)| text::counted(n, of));
            format!("{puts} and {deletions}")
        }
        None => "all of them".to_owned(),
    };
    context.line(&format!(
        "backed up {} with {} to {path}: wrote {written}, {}, in {seconds:.2} s",
        text::counted(structures, "structure"),
        text::counted(records, "record"),
        text::size(bytes),
    ))?;
    if let Some(name) = summary.snapshot {
        context.line(&format!("kept snapshot {name:?} for increments on this backup"))?;
    }
    if let Some(name) = summary.dropped_snapshot {
        context.line(&format!("dropped snapshot {name:?} of the earlier backup"))?;
    }
    for name in summary.left_out {
        context
            .line(&format!("left out {name:?}: only a program that has its kind can back it up"))?;
    }
    Ok(())
}

/// Refuses what would fail later, all of it at one time: a backup that was killed leaves both a
/// folder and a snapshot.
fn check(context: &Context, args: &BackupArgs, store: &Store) -> Result<(), Failure> {
    let [path, store_path] = [&args.folder, &args.open.store].map(|given| context.path(given));
    let (path, store_path) = (&path, &store_path);
    if is_inside(path, store_path) {
        let advice = "name a folder elsewhere";
        return Err(Failure::Refused(format!(
            "{} lies inside the store; {advice}",
            path.display()
        )));
    }
    let mut problems = Vec::new();
    if is_leftover(path) {
        let advice = "if a backup that was interrupted has left it, remove it";
        problems.push(format!("{} has no manifest: {advice}", path.display()));
    } else if path.symlink_metadata().is_ok() {
        let error = Error::from(RequestError::AlreadyExists(path.clone()));
        problems.push(format!("{error}; name a new folder"));
    }
    if let Some(name) = &args.snapshot
        && store.existing_snapshot(name).is_ok()
    {
        let command = format!("`upsweep snapshot drop {} {name}`", store_path.display());
        problems.push(format!("there is a snapshot {name:?} already: {command} drops it"));
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Refused(problems.join("; "))) }
}

/// Whether `path` is a folder as a backup that was killed leaves it: files of records at most.
fn is_leftover(path: &Path) -> bool {
    let is_of_backup = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|found| found == "frames"))
    };
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_of_backup))
}

/// Whether `path`, which need not be there, is `folder` or lies in it.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let place = path.canonicalize().or_else(|_| parent.unwrap_or(Path::new(".")).canonicalize());
    matches!((place, folder.canonicalize()), (Ok(place), Ok(folder)) if place.starts_with(&folder))
}

pub(crate) fn restore(context: &Context, args: &RestoreArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let template = "[{bar:20}] {percent:>3}%  {msg} records  {decimal_bytes_per_sec}";
    let bar = context.progress(Some(0), template);
    let draw = |progress| draw(bar.as_ref(), progress);
    let options = RestoreOptions::default().progress(&draw);
    let builder = Store::builder().memory_bytes(args.memory.in_memory());
    let made = builder.restore(&args.backup, &args.store, &options);
    clear(bar.as_ref());
    let summary = made.map_err(explain)?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        return context.json(&Timed { summary, seconds });
    }
    let RestoreSummary { backups, structures, records, bytes, .. } = summary;
    let path = args.store.display();
    context.line(&format!(
        "restored {} with {} to {path}: read {} of {} in {seconds:.2} s",
        text::counted(structures, "structure"),
        text::counted(records, "record"),
        text::size(bytes),
        if backups == 1 { "one backup".to_owned() } else { format!("{backups} backups") },
    ))
}

fn draw(bar: Option<&ProgressBar>, progress: CopyProgress) {
    let Some(bar) = bar else { return };
    if let Some(total) = progress.bytes_total {
        bar.set_length(total);
    }
    bar.set_position(progress.bytes);
    bar.set_message(text::count(progress.records));
}

fn clear(bar: Option<&ProgressBar>) {
    bar.iter().for_each(|bar| bar.finish_and_clear());
}

fn explain(error: Error) -> Failure {
    match &error {
        Error::Request(RequestError::BackupDamaged { .. }) => {
            let advice = "use another copy of the backup";
            Failure::Damage(Some(format!("{error}; {advice}")))
        }
        Error::Request(RequestError::AlreadyExists(_)) => {
            Failure::Refused(format!("{error}; name a new folder"))
        }
        _ => error.into(),
    }
}
