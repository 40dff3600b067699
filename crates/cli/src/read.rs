//! `upsweep get` and `upsweep scan`.

use std::io::Write;
use std::ops::Bound;

use serde_json::json;
use upsweep::Value;

use crate::args::{GetArgs, ReadArgs, ScanArgs};
use crate::failure::Failure;
use crate::{output, text};

pub(crate) fn get(args: &GetArgs) -> Result<(), Failure> {
    let table = output::open(&args.open)?.existing_table(&args.read.table)?;
    let Some(value) = table.get(&args.key.0)? else {
        if args.read.json {
            output::json(&json!({"key": text::escape(&args.key.0), "value": null}))?;
        }
        let (key, table) = (text::quote(&args.key.0), &args.read.table);
        return Err(Failure::Absent(format!("no key {key} in table {table:?}")));
    };
    let mut out = output::out();
    if args.read.json {
        print(&mut out, &args.read, &args.key.0, &value)?;
    } else {
        writeln!(out, "{}", show(&args.read, &args.key.0, &value)?)?;
    }
    Ok(out.flush()?)
}

pub(crate) fn scan(args: &ScanArgs) -> Result<(), Failure> {
    let table = output::open(&args.open)?.existing_table(&args.read.table)?;
    let (from, to) = range(args);
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    let mut records = table.scan::<Vec<u8>>((Bound::Included(from), to));
    let mut out = output::out();
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
        print(&mut out, &args.read, &key, &value)?;
    }
    Ok(out.flush()?)
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

fn show(args: &ReadArgs, key: &[u8], value: &Value) -> Result<String, Failure> {
    text::value_text(value, args.format).map_err(|reason| wrong_format(key, &reason))
}

fn wrong_format(key: &[u8], reason: &str) -> Failure {
    Failure::Refused(format!("the value of {}: {reason}", text::quote(key)))
}

fn print(out: &mut impl Write, args: &ReadArgs, key: &[u8], value: &Value) -> Result<(), Failure> {
    let shown_key = text::escape(key);
    if args.json {
        let value = text::json_value(value, args.format);
        let value = value.map_err(|reason| wrong_format(key, &reason))?;
        writeln!(out, "{}", json!({"key": shown_key, "value": value}))?;
    } else {
        writeln!(out, "{shown_key}\t{}", show(args, key, value)?)?;
    }
    Ok(())
}
