//! `upsweep dump`: all records of a table or hash table as lines.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use upsweep::{Error, Value};

use crate::args::{DumpArgs, RecordFormat};
use crate::context::Context;
use crate::failure::Failure;
use crate::structure::{Moment, Structure, unless_expired};
use crate::{output, record, text};

/// How many records are written before the progress bar is brought up to date, and interrupts are
/// looked for.
const RECORDS_PER_LOOK: usize = 1024;

type Records<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Value), Error>> + 'a>;

pub(crate) fn run(context: &Context, args: &DumpArgs) -> Result<(), Failure> {
    // The table comes first: no file is made for one that is not there.
    let moment = Moment::open(context, &args.open, args.source.at.as_deref())?;
    let name = &args.source.table;
    let records: Records<'_> = match moment.structure(name)? {
        Structure::Table(table) => Box::new(table.iter()),
        Structure::ExpiringTable(table) => {
            Box::new(table.raw().iter().filter_map(move |record| match record {
                Ok((key, stored)) => unless_expired(&table, stored).map(|value| Ok((key, value))),
                Err(error) => Some(Err(error)),
            }))
        }
        Structure::HashTable(table) => Box::new(table.iter()),
        Structure::Array(_) => {
            let advice = "which has no records; `upsweep scan` prints its cells";
            return Err(Failure::Refused(format!("{name:?} is an array, {advice}")));
        }
    };
    if args.file.as_os_str() == "-" {
        let mut out = context.out();
        let records = records.map(|record| Ok(record?));
        write_all(records, args.format, &mut out, Failure::from)?;
        return Ok(out.flush()?);
    }
    let bar = context.records_bar(moment.records_in_blocks(name));
    let records = records.enumerate().map(|(number, record)| {
        if number % RECORDS_PER_LOOK == 0 {
            bar.iter().for_each(|bar| output::advance(bar, number as u64, ""));
            context.check()?;
        }
        Ok(record?)
    });
    let written = dump_to_file(records, args.format, &context.path(&args.file));
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let written = written?;
    let (records, path) = (text::counted(written, "record"), args.file.display());
    context.line(&format!("dumped {records} to {path}"))
}

/// Writes a new file and waits until it is on stable media; removes it if that fails. It has its
/// name only when it is whole: a part of the lines would load as well as all.
fn dump_to_file(
    records: impl Iterator<Item = Result<(Vec<u8>, Value), Failure>>,
    format: RecordFormat,
    path: &Path,
) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    if path.symlink_metadata().is_ok() {
        let problem = format!("{} exists already; name a new file", path.display());
        return Err(Failure::Refused(problem));
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".dumping");
    let part = PathBuf::from(part);
    let file = File::create_new(&part).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Refused(format!(
            "{} exists already: left by a dump that was interrupted, or one is under way; remove \
             it, or name another file",
            part.display()
        )),
        _ => failed(error),
    })?;
    let mut out = BufWriter::new(file);
    let written = write_all(records, format, &mut out, failed).and_then(|records| {
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
        std::fs::rename(&part, path).map_err(failed)?;
        Ok(records)
    });
    if written.is_err() {
        // That the file is incomplete is said already.
        drop(std::fs::remove_file(&part));
        return written;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")));
    folder.and_then(|folder| folder.sync_all()).map_err(failed)?;
    written
}

/// Writes all records; `failed` says what a failed write means. Returns how many there are.
fn write_all(
    all: impl Iterator<Item = Result<(Vec<u8>, Value), Failure>>,
    format: RecordFormat,
    out: &mut dyn Write,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut records = 0;
    for found in all {
        let (key, value) = found?;
        record::write(out, format, &key, &value).map_err(&failed)?;
        records += 1;
    }
    Ok(records)
}
