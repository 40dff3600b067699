//! `upsweep load`: lines in key order into an empty table, all of them or none.
//!
//! Every line is a record, so the number of a record that the library refuses is that of its line.

use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;
use upsweep::{Error, LoadOptions, RequestError, Value};

use crate::args::{LoadArgs, RecordFormat};
use crate::context::Context;
use crate::failure::Failure;
use crate::input::Input;
use crate::{record, tables, text};

/// What was done.
#[derive(Serialize)]
struct Summary {
    loaded: u64,
    blocks: u64,
    large_values: u64,
    bytes: u64,
    seconds: f64,
    records_per_second: f64,
}

pub(crate) fn run(context: &Context, args: &LoadArgs) -> Result<(), Failure> {
    tables::check_not_of_volumes(&args.table, "`upsweep serve` lets clients write to one")?;
    // The input comes first: no table is made for a file that is not there.
    let input = Input::open(context, &args.file)?;
    let name = input.name().to_owned();
    let store = context.open(&args.open)?;
    let (table, is_new) = match store.existing_table(&args.table) {
        Err(Error::Request(RequestError::NoTable(_))) => (store.table(&args.table)?, true),
        Err(Error::Request(RequestError::TableMismatch { found, .. })) => {
            let advice = "load fills ordered tables only; `upsweep apply` puts records into others";
            return Err(Failure::Refused(format!("{:?} is {found}; {advice}", args.table)));
        }
        found => (found?, false),
    };
    if !is_new && table.iter().next().is_none() {
        // A load needs a table on which nothing waits, not even deletions.
        store.sweep()?;
        store.reclaim()?;
    }
    let started = Instant::now();
    let mut records = Records::new(context, input, args.format);
    let loaded = table.load(records.by_ref(), LoadOptions::default().fill_percent(args.fill));
    let seconds = started.elapsed().as_secs_f64();
    if let Some(bar) = &records.bar {
        bar.finish_and_clear();
    }
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            if is_new {
                tables::drop_if_empty(&store, &args.table);
            }
            return Err(match records.failure.take() {
                Some(Failure::Refused(reason)) => nothing_loaded(&reason),
                Some(failure) => failure,
                None => explain(error, &name),
            });
        }
    };
    print(
        context,
        &Summary {
            loaded: loaded.records,
            blocks: loaded.blocks,
            large_values: loaded.values,
            bytes: loaded.bytes,
            seconds,
            records_per_second: loaded.records as f64 / seconds.max(1e-9),
        },
        args.json,
    )
}

fn explain(error: Error, name: &str) -> Failure {
    match error {
        Error::Request(RequestError::BadRecord { number, reason }) => {
            nothing_loaded(&format!("{name}:{number}: {reason}"))
        }
        error => match Failure::from(error) {
            Failure::Refused(reason) => nothing_loaded(&reason),
            failure => failure,
        },
    }
}

fn nothing_loaded(reason: &str) -> Failure {
    Failure::Refused(format!("{reason}; nothing was loaded"))
}

fn print(context: &Context, summary: &Summary, json: bool) -> Result<(), Failure> {
    if json {
        return context.json(summary);
    }
    let Summary { loaded, bytes, seconds, records_per_second, .. } = summary;
    context.line(&format!(
        "loaded {}, {}, in {seconds:.2} s, {} a second; all are durable",
        text::counted(*loaded, "record"),
        text::size(*bytes),
        text::rate(*records_per_second),
    ))
}

/// The lines of an input as records.
struct Records {
    input: Input,
    format: RecordFormat,
    /// Whole lines, of which those before `at` are done.
    text: Vec<u8>,
    at: usize,
    /// Lines that were taken.
    lines: u64,
    bar: Option<ProgressBar>,
    /// Why the input cannot be read on.
    failure: Option<Failure>,
}

impl Records {
    fn new(context: &Context, input: Input, format: RecordFormat) -> Self {
        let template = match input.length() {
            Some(_) => "[{bar:20}] {percent:>3}%  {msg} lines  {decimal_bytes_per_sec}",
            None => "{spinner} {decimal_bytes:>10}  {msg} lines  {decimal_bytes_per_sec}",
        };
        let bar = context.progress(input.length(), template);
        Self { input, format, text: Vec::new(), at: 0, lines: 0, bar, failure: None }
    }

    /// Reads the next lines; `false` at the end.
    fn read(&mut self) -> Result<bool, Failure> {
        if let Some(bar) = &self.bar {
            bar.inc(self.text.len() as u64);
            bar.set_message(text::count(self.lines));
        }
        self.text.clear();
        self.at = 0;
        let Some(lines) = self.input.next(self.lines + 1)? else { return Ok(false) };
        self.text.extend_from_slice(lines);
        Ok(true)
    }
}

impl Iterator for Records {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let bad = |number, reason| Some(Err(RequestError::BadRecord { number, reason }.into()));
        if self.at == self.text.len() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(failure) => {
                    self.failure = Some(failure);
                    return bad(self.lines + 1, "the input cannot be read".to_owned());
                }
            }
        }
        self.lines += 1;
        let rest = &self.text[self.at..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.at += (end + 1).min(rest.len());
        match record::parse(&rest[..end], self.format) {
            Ok(record) => Some(Ok(record)),
            Err(reason) => bad(self.lines, reason),
        }
    }
}
