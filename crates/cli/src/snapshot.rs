//! `upsweep snapshot` and `upsweep changes`.

use std::io::Write;

use serde_json::json;
use upsweep::{Kind, Snapshot, Store, Value};

use crate::args::{ChangesArgs, ShowArgs, SnapshotCommand, SnapshotCreateArgs, SnapshotDropArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::structure::{Moment, describe, name_of};
use crate::{read, tables, text};

/// What stands for no value; values are escaped, so none of them is written like this.
const ABSENT: &str = "\\absent";

pub(crate) fn run(context: &Context, command: &SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create(args) => create(context, args),
        SnapshotCommand::List(args) => list(context, args),
        SnapshotCommand::Drop(args) => drop_snapshot(context, args),
    }
}

fn create(context: &Context, args: &SnapshotCreateArgs) -> Result<(), Failure> {
    let store = context.open_for_upkeep(&args.open)?;
    let snapshot = if args.tables.is_empty() {
        store.create_snapshot(&args.name)?
    } else {
        let mut tables: Vec<&str> = args.tables.iter().map(String::as_str).collect();
        tables.sort_unstable();
        tables.dedup();
        store.create_snapshot_of(&args.name, &tables)?
    };
    let kept = match snapshot.structures().as_slice() {
        [] => "nothing, for the store is empty".to_owned(),
        [(name, _)] => format!("{name:?}"),
        several => format!("{} tables", text::count(several.len() as u64)),
    };
    context.line(&format!("made snapshot {:?} of {kept}", args.name))
}

fn list(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let snapshots = context.open_to_read(&args.open)?.snapshots();
    let mut out = context.out();
    if args.json {
        snapshots.iter().try_for_each(|snapshot| writeln!(out, "{}", to_json(snapshot)))?;
        return Ok(out.flush()?);
    }
    if snapshots.is_empty() {
        writeln!(out, "there are no snapshots")?;
        return Ok(out.flush()?);
    }
    let name = |snapshot: &Snapshot| snapshot.name().unwrap_or_default().to_owned();
    let width = snapshots.iter().map(|found| name(found).chars().count()).max().unwrap_or(0).max(8);
    writeln!(out, "{:width$}  {:>12}  tables", "snapshot", "sequence")?;
    for snapshot in &snapshots {
        let tables = snapshot.structures().into_iter().map(|(name, _)| name);
        let tables = tables.collect::<Vec<_>>().join(", ");
        writeln!(out, "{:width$}  {:>12}  {tables}", name(snapshot), snapshot.sequence())?;
    }
    Ok(out.flush()?)
}

fn to_json(snapshot: &Snapshot) -> serde_json::Value {
    let of = |(name, kind): (String, Kind)| json!({"table": name, "kind": name_of(&kind)});
    json!({
        "snapshot": snapshot.name(),
        "sequence": snapshot.sequence(),
        "tables": snapshot.structures().into_iter().map(of).collect::<Vec<_>>(),
    })
}

fn drop_snapshot(context: &Context, args: &SnapshotDropArgs) -> Result<(), Failure> {
    let store = context.open_for_upkeep(&args.open)?;
    let before = store.status().data_bytes;
    store.drop_snapshot(&args.name)?;
    context.line(&format!("dropped snapshot {:?}", args.name))?;
    tables::reclaim(context, &store, before)
}

pub(crate) fn changes(context: &Context, args: &ChangesArgs) -> Result<(), Failure> {
    let store = context.open_to_read(&args.open)?;
    let (earlier, later) = both(&store, args)?;
    let mut out = context.out();
    for change in later.changed_since(&earlier, &args.table)? {
        let change = match change {
            Ok(change) => change,
            Err(error) => {
                out.flush()?;
                return Err(error.into());
            }
        };
        let key = text::escape(&change.key);
        let values = [change.before, change.after];
        if args.print.json {
            let shown = |value: &Value| text::json_value(value, args.print.format);
            let [before, after] = values.map(|value| value.as_ref().map(shown).transpose());
            let wrong = |reason: String| read::wrong_format(&key, &reason);
            let (before, after) = (before.map_err(wrong)?, after.map_err(wrong)?);
            writeln!(out, "{}", json!({"key": key, "before": before, "after": after}))?;
        } else {
            let shown = |value: &Value| text::value_text(value, args.print.format);
            let [before, after] = values
                .map(|value| value.as_ref().map_or_else(|| Ok(ABSENT.to_owned()), shown))
                .map(|text| text.map_err(|reason| read::wrong_format(&key, &reason)));
            writeln!(out, "{key}\t{}\t{}", before?, after?)?;
        }
    }
    Ok(out.flush()?)
}

/// The two snapshots, which can be compared.
fn both(store: &Store, args: &ChangesArgs) -> Result<(Snapshot, Snapshot), Failure> {
    let earlier = store.existing_snapshot(&args.earlier)?;
    let later = store.existing_snapshot(&args.later)?;
    let (names, table) = ((&args.earlier, &args.later), &args.table);
    if earlier.sequence() > later.sequence() {
        let problem = format!("snapshot {:?} is later than {:?}", names.0, names.1);
        return Err(Failure::Refused(format!("{problem}; name the earlier one first")));
    }
    let kinds = [&earlier, &later].map(|snapshot| snapshot.kind(table));
    if kinds == [None, None] {
        // Of two, the first tells what to do as well as the other.
        Moment::Then(earlier).kind(table)?;
        unreachable!("a snapshot without the table is refused")
    }
    if let Some(other) = kinds.into_iter().flatten().find(|kind| *kind != Kind::table()) {
        let advice = "only ordered tables can be compared";
        return Err(Failure::Refused(format!("{table:?} is {}; {advice}", describe(&other))));
    }
    Ok((earlier, later))
}
