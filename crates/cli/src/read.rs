//! `upsweep get` and `upsweep scan`.

use std::io::Write;
use std::ops::Bound;

use serde_json::json;
use upsweep::layers::structures::array::INDEX_MAX;
use upsweep::{Error, Table, Value};

use crate::args::{GetArgs, PrintArgs, ScanArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::structure::{Cells, Moment, Structure, unless_expired};
use crate::text;

/// What names a record.
enum Key {
    Bytes(Vec<u8>),
    Index(u64),
}

impl Key {
    fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => text::escape(bytes),
            Self::Index(index) => index.to_string(),
        }
    }
}

type Records = Box<dyn DoubleEndedIterator<Item = Result<(Key, Value), Error>>>;

pub(crate) fn get(context: &Context, args: &GetArgs) -> Result<(), Failure> {
    let moment = Moment::open(context, &args.open, args.source.at.as_deref())?;
    let mut key = Key::Bytes(args.key.0.clone());
    let value = match moment.structure(&args.source.table)? {
        Structure::Table(table) => table.get(&args.key.0)?,
        Structure::ExpiringTable(table) => {
            let stored = table.raw().get(&args.key.0)?;
            stored.and_then(|stored| unless_expired(&table, stored))
        }
        Structure::HashTable(table) => table.get(&args.key.0)?,
        Structure::Array(cells) => {
            let table = &args.source.table;
            let explain = |reason| Failure::Refused(format!("{table:?} is an array: {reason}"));
            let index = text::index(&args.key.0).map_err(explain)?;
            key = Key::Index(index);
            Some(cells.number(index)?)
        }
    };
    let Some(value) = value else {
        if args.print.json {
            context.json(&json!({"key": key.text(), "value": null}))?;
        }
        let (key, table) = (text::quote(&args.key.0), &args.source.table);
        let at = args.source.at.as_ref().map(|at| format!(" in snapshot {at:?}"));
        let at = at.unwrap_or_default();
        return Err(Failure::Absent(format!("no key {key} in table {table:?}{at}")));
    };
    let mut out = context.out();
    if args.print.json {
        print(&mut out, &args.print, &key, &value)?;
    } else {
        writeln!(out, "{}", show(&args.print, &key, &value)?)?;
    }
    Ok(out.flush()?)
}

pub(crate) fn scan(context: &Context, args: &ScanArgs) -> Result<(), Failure> {
    let moment = Moment::open(context, &args.open, args.source.at.as_deref())?;
    let mut records = match moment.structure(&args.source.table)? {
        Structure::Table(table) => records_of_table(&table, args),
        Structure::ExpiringTable(table) => {
            let records = records_of_table(table.raw(), args);
            Box::new(records.filter_map(move |record| match record {
                Ok((key, stored)) => unless_expired(&table, stored).map(|value| Ok((key, value))),
                Err(error) => Some(Err(error)),
            }))
        }
        Structure::HashTable(table) => {
            refuse(args, "a hash table", "has no order of keys", &ordered_flags(args))?;
            let owned = |record: Result<(Vec<u8>, Value), Error>| {
                record.map(|(key, value)| (Key::Bytes(key), value))
            };
            Box::new(table.iter().map(owned))
        }
        Structure::Array(cells) => {
            refuse(args, "an array", "has indexes", &[("--prefix", args.prefix.is_some())])?;
            records_of_array(cells.as_ref(), args)?
        }
    };
    let mut out = context.out();
    for _ in 0..args.limit.unwrap_or(u64::MAX) {
        let record = if args.reverse { records.next_back() } else { records.next() };
        let Some(record) = record else { break };
        let (key, value) = match record {
            Ok(record) => record,
            Err(error) => {
                out.flush()?;
                return Err(error.into());
            }
        };
        print(&mut out, &args.print, &key, &value)?;
    }
    Ok(out.flush()?)
}

/// The flags that need the order of keys, and whether they were given.
fn ordered_flags(args: &ScanArgs) -> [(&'static str, bool); 4] {
    [
        ("--from", args.from.is_some()),
        ("--to", args.to.is_some()),
        ("--prefix", args.prefix.is_some()),
        ("--reverse", args.reverse),
    ]
}

/// Refuses flags that a structure of this kind cannot follow.
fn refuse(
    args: &ScanArgs,
    kind: &str,
    because: &str,
    flags: &[(&str, bool)],
) -> Result<(), Failure> {
    let Some((flag, _)) = flags.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let table = &args.source.table;
    Err(Failure::Refused(format!("{table:?} is {kind}, which {because}: leave {flag} out")))
}

fn records_of_table(table: &Table, args: &ScanArgs) -> Records {
    let (from, to) = range(args);
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    let records = table.scan::<Vec<u8>>((Bound::Included(from), to));
    Box::new(records.map(|record| record.map(|(key, value)| (Key::Bytes(key), value))))
}

fn records_of_array(cells: &dyn Cells, args: &ScanArgs) -> Result<Records, Failure> {
    let index = |flag: &str, given: &Option<text::Bytes>| {
        let given = given.as_ref().map(|given| text::index(&given.0)).transpose();
        given.map_err(|reason| Failure::Refused(format!("{flag}: {reason}")))
    };
    let from = index("--from", &args.from)?.unwrap_or(0);
    let to = index("--to", &args.to)?.unwrap_or(INDEX_MAX + 1);
    let records = cells.scan(from..to);
    Ok(Box::new(records.map(|record| record.map(|(index, value)| (Key::Index(index), value)))))
}

/// First key, and the first beyond the range: what lies within `--from`, `--to` and `--prefix`.
fn range(args: &ScanArgs) -> (Vec<u8>, Option<Vec<u8>>) {
    let given = |bytes: &Option<text::Bytes>| bytes.as_ref().map(|bytes| bytes.0.clone());
    let prefix = given(&args.prefix).unwrap_or_default();
    let from = given(&args.from).unwrap_or_default().max(prefix.clone());
    let mut end = prefix;
    while end.last() == Some(&0xff) {
        end.pop();
    }
    let beyond = end.last_mut().map(|last| *last += 1).map(|()| end);
    let to = match (given(&args.to), beyond) {
        (Some(to), Some(beyond)) => Some(to.min(beyond)),
        (to, beyond) => to.or(beyond),
    };
    (from, to)
}

fn show(args: &PrintArgs, key: &Key, value: &Value) -> Result<String, Failure> {
    text::value_text(value, args.format).map_err(|reason| wrong_format(&key.text(), &reason))
}

/// The refusal of a value that cannot be printed as asked for; `key` is escaped.
pub(crate) fn wrong_format(key: &str, reason: &str) -> Failure {
    Failure::Refused(format!("the value of \"{key}\": {reason}"))
}

fn print(out: &mut impl Write, args: &PrintArgs, key: &Key, value: &Value) -> Result<(), Failure> {
    if !args.json {
        writeln!(out, "{}\t{}", key.text(), show(args, key, value)?)?;
        return Ok(());
    }
    let value = text::json_value(value, args.format);
    let value = value.map_err(|reason| wrong_format(&key.text(), &reason))?;
    let line = match key {
        Key::Bytes(_) => json!({"key": key.text(), "value": value}),
        Key::Index(index) => json!({"index": index, "value": value}),
    };
    writeln!(out, "{line}")?;
    Ok(())
}
