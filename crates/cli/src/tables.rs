//! `upsweep create-table`, `drop-table`, `clone`, `remove-range` and `compact`.

use serde_json::json;
use upsweep::{Error, Kind, RequestError, Store};
use upsweep_volume::TABLES as VOLUMES;

use crate::args::{CloneArgs, CompactArgs, CreateTableArgs, DropTableArgs, RemoveRangeArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::structure::{self, KnownKind, Moment, describe};
use crate::{output, text};

pub(crate) fn create(context: &Context, args: &CreateTableArgs) -> Result<(), Failure> {
    check_not_of_volumes(&args.name, "`upsweep volume create` makes one")?;
    let store = context.open_for_upkeep(&args.open)?;
    check_new(&store, &args.name)?;
    structure::create(&store, &args.name, args.kind.0)?;
    context.line(&format!("made {:?}, {}", args.name, describe(&args.kind.0.kind())))
}

pub(crate) fn drop_table(context: &Context, args: &DropTableArgs) -> Result<(), Failure> {
    check_not_of_volumes(&args.name, "`upsweep volume delete` deletes one")?;
    let (store, name) = (context.open_for_upkeep(&args.open)?, &args.name);
    let moment = Moment::Now(store.clone());
    let kind = moment.kind(name)?;
    let before = store.status().data_bytes;
    store.drop_structure(name).map_err(|error| match error {
        Error::Request(RequestError::BadTableName(_)) => {
            Failure::Refused(format!("{name:?} belongs to the store itself and cannot be dropped"))
        }
        error => error.into(),
    })?;
    context.line(&format!("dropped {name:?}, {}", describe(&kind)))?;
    reclaim(context, &store, before)
}

/// Drops an ordered table that a command has made in vain, unless another command has put something
/// into it in the meantime. If that fails, the command has a failure that says more.
pub(crate) fn drop_if_empty(store: &Store, name: &str) {
    let structures = store.structures();
    let found = structures.iter().find(|(found, ..)| found == name);
    if found.is_some_and(|(_, _, size)| size.records == 0 && size.waiting == 0) {
        drop(store.drop_table(name));
    }
}

/// Waits until the space of what was dropped or removed is free, and excess space is returned to
/// the file system: background work ends with the command. Prints how much was freed; `before` is
/// the number of bytes in use before.
pub(crate) fn reclaim(context: &Context, store: &Store, before: u64) -> Result<(), Failure> {
    let bar = context.progress(None, "{spinner} freeing space  {elapsed}");
    if let Some(bar) = &bar {
        bar.enable_steady_tick(output::PROGRESS_EVERY);
    }
    let reclaimed = store.reclaim();
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    reclaimed?;
    match before.saturating_sub(store.status().data_bytes) {
        0 => Ok(()),
        bytes => context.line(&format!("{} of the data devices freed", text::size(bytes))),
    }
}

pub(crate) fn clone(context: &Context, args: &CloneArgs) -> Result<(), Failure> {
    let CloneArgs { source, name, .. } = args;
    check_not_of_volumes(name, "`upsweep volume clone` clones one")?;
    let store = context.open_for_upkeep(&args.open)?;
    let snapshot = args.at.as_deref().map(|at| store.existing_snapshot(at)).transpose()?;
    let moment = snapshot.clone().map_or_else(|| Moment::Now(store.clone()), Moment::Then);
    moment.kind(source)?;
    check_new(&store, name)?;
    match &snapshot {
        Some(snapshot) => store.clone_from_snapshot(snapshot, source, name)?,
        None => store.clone_structure(source, name)?,
    }
    let at = args.at.as_ref().map(|at| format!(" in snapshot {at:?}")).unwrap_or_default();
    context.line(&format!("made {name:?}, a clone of {source:?}{at}"))
}

pub(crate) fn compact(context: &Context, args: &CompactArgs) -> Result<(), Failure> {
    let (store, name) = (context.open_for_upkeep(&args.open)?, &args.table);
    let order = match Moment::Now(store.clone()).known_kind(name)? {
        KnownKind::Table | KnownKind::ExpiringTable => "key order",
        KnownKind::HashTable => "the order of hashes",
        KnownKind::Array(_) => "the order of indexes",
    };
    let bar = context.progress(Some(1), "compact [{bar:40}] {pos}/{len} blocks {elapsed}");
    let done = store.compact(name, |progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total);
            bar.set_position(progress.seen);
        }
    })?;
    bar.into_iter().for_each(|bar| bar.finish_and_clear());
    store.reclaim()?;
    let (seen, moved, left) = (done.seen, done.moved, done.seen - done.moved);
    if args.json {
        let line = json!({ "table": name, "blocks": seen, "moved": moved, "left": left });
        return context.json(&line);
    }
    let seen = text::counted(seen, "block");
    let (moved, left) = (text::count(moved), text::count(left));
    context.line(&format!(
        "looked at {seen} of {name:?}, moved {moved} into {order} and left {left}: in order \
         already, shared with a clone or snapshot, or in use"
    ))
}

pub(crate) fn remove_range(context: &Context, args: &RemoveRangeArgs) -> Result<(), Failure> {
    let from = args.from.as_ref().map(|from| from.0.as_slice());
    let to = args.to.as_ref().map(|to| to.0.as_slice());
    if let (from, Some(to)) = (from.unwrap_or_default(), to)
        && from >= to
    {
        let (from, to) = (text::quote(from), text::quote(to));
        let problem = "so no key lies between them; nothing was removed";
        return Err(Failure::Refused(format!("--from {from} is not below --to {to}, {problem}")));
    }
    check_not_of_volumes(&args.table, "`upsweep volume delete` deletes one")?;
    let (store, name) = (context.open_for_upkeep(&args.open)?, &args.table);
    let kind = Moment::Now(store.clone()).kind(name)?;
    let table = if kind == Kind::table() {
        store.existing_table(name)?
    } else if kind == Kind::expiring_table() {
        store.existing_expiring_table(name)?.raw().clone()
    } else {
        let kind = describe(&kind);
        let advice = "which has no ranges of keys; `upsweep apply` deletes single ones";
        return Err(Failure::Refused(format!("{name:?} is {kind}, {advice}")));
    };
    let before = store.status().data_bytes;
    table.remove_range(from.unwrap_or_default(), to)?;
    let range = match (from.map(text::quote), to.map(text::quote)) {
        (None, None) => "all records".to_owned(),
        (Some(from), None) => format!("the keys from {from} on"),
        (None, Some(to)) => format!("the keys below {to}"),
        (Some(from), Some(to)) => format!("the keys from {from} to below {to}"),
    };
    context.line(&format!("removed {range} of table {name:?}"))?;
    reclaim(context, &store, before)
}

/// Refuses to make or change a table of volumes, which would lose them; `instead` says what the
/// user can do with a volume.
pub(crate) fn check_not_of_volumes(table: &str, instead: &str) -> Result<(), Failure> {
    if !table.starts_with(VOLUMES) {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{table:?} is a table of the volumes of a store, which only they change: {instead}; \
         nothing was changed"
    )))
}

/// Refuses a name that is taken.
fn check_new(store: &Store, name: &str) -> Result<(), Failure> {
    let Some(kind) = store.kind(name) else { return Ok(()) };
    let advice = if store.structures().iter().any(|(found, ..)| found == name) {
        "drop it first (`upsweep drop-table`) or choose another name"
    } else {
        "it belongs to the store itself; choose another name"
    };
    Err(Failure::Refused(format!("{name:?} is {} already; {advice}", describe(&kind))))
}
