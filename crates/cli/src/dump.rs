//! `upsweep dump`: all records of a table as lines.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use upsweep::Table;

use crate::args::{DumpArgs, RecordFormat};
use crate::failure::Failure;
use crate::{output, record, text};

pub(crate) fn run(args: &DumpArgs) -> Result<(), Failure> {
    // The table comes first: no file is made for one that is not there.
    let table = output::open(&args.open)?.existing_table(&args.table)?;
    if args.file.as_os_str() == "-" {
        let mut out = output::out();
        write_all(&table, args.format, &mut out, Failure::from)?;
        return Ok(out.flush()?);
    }
    let records = dump_to_file(&table, args.format, &args.file)?;
    let (records, path) = (text::count(records), args.file.display());
    output::line(&format!("dumped {records} records to {path}"))
}

/// Writes a new file and waits until it is on stable media; removes it if that fails.
fn dump_to_file(table: &Table, format: RecordFormat, path: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let file = File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::Refused(format!("{} exists already; name a new file", path.display()))
        }
        _ => failed(error),
    })?;
    let mut out = BufWriter::new(file);
    let written = write_all(table, format, &mut out, failed).and_then(|records| {
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
        Ok(records)
    });
    if written.is_err() {
        // That the file is incomplete is said already.
        drop(std::fs::remove_file(path));
    }
    written
}

/// Writes all records; `failed` says what a failed write means. Returns how many there are.
fn write_all(
    table: &Table,
    format: RecordFormat,
    out: &mut dyn Write,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut records = 0;
    for found in table.iter() {
        let (key, value) = found?;
        record::write(out, format, &key, &value).map_err(&failed)?;
        records += 1;
    }
    Ok(records)
}
