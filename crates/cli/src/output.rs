//! Opening a store as the command line says, and printing.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use upsweep::{Error, RequestError, Store};

use crate::args::OpenArgs;
use crate::failure::Failure;
use crate::text;

/// How often a progress bar is brought up to date.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Opens a store that is there to update it.
pub(crate) fn open(args: &OpenArgs) -> Result<Store, Failure> {
    Ok(Store::builder().memory_bytes(args.memory.in_memory()).open(&args.store)?)
}

/// Opens a store that is there to work on it as a whole: without the modifiers of its application
/// if it needs any, and then a note says so.
pub(crate) fn open_for_upkeep(args: &OpenArgs) -> Result<Store, Failure> {
    let builder = || Store::builder().memory_bytes(args.memory.in_memory());
    builder().open(&args.store).or_else(|error| {
        if !needs_application(&error) {
            return Err(error.into());
        }
        let store = builder().open_for_upkeep(&args.store)?;
        // Nobody misses it if standard error is gone.
        drop(writeln!(std::io::stderr(), "opened for upkeep only: {error}"));
        Ok(store)
    })
}

/// Opens a store that is there to look at it: for reading only where it cannot be written to, or
/// needs modifiers or kinds of an application, and then a note says so.
pub(crate) fn open_to_read(args: &OpenArgs) -> Result<Store, Failure> {
    let builder = || Store::builder().memory_bytes(args.memory.in_memory());
    builder().open(&args.store).or_else(|error| {
        let is_path = matches!(&error, Error::Request(RequestError::Path { .. }));
        let may_be_read = is_path || needs_application(&error);
        let read_only = may_be_read.then(|| builder().open_read_only(&args.store).ok());
        let Some(store) = read_only.flatten() else { return Err(error.into()) };
        // Nobody misses it if standard error is gone.
        drop(writeln!(std::io::stderr(), "opened for reading only: {error}"));
        Ok(store)
    })
}

/// Whether a store needs what only its application can register.
fn needs_application(error: &Error) -> bool {
    let Error::Request(error) = error else { return false };
    matches!(error, RequestError::UnknownModifier { .. } | RequestError::UnknownFormat(_))
}

/// Standard output, buffered.
pub(crate) fn out() -> std::io::BufWriter<std::io::StdoutLock<'static>> {
    std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
}

/// Prints one line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = out();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints one value as a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value);
    line(&text.map_err(|error| Failure::Refused(format!("cannot be shown as JSON: {error}")))?)
}

/// A progress bar; `None` unless standard error is a terminal.
pub(crate) fn progress(length: Option<u64>, template: &str) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style.progress_chars("=> "));
    Some(bar)
}

/// A progress bar for about so many records; without the number, one that tells how many are done.
pub(crate) fn records_bar(records: Option<u64>) -> Option<ProgressBar> {
    let records = records.filter(|records| *records > 0);
    let template = match records {
        Some(_) => "[{bar:20}] {percent:>3}%  {msg}  {elapsed}",
        None => "{spinner} {msg}  {elapsed}",
    };
    progress(records, template)
}

/// So many records are done. The bar ends at its end, for its length is about right only: updates
/// that wait add records, and remove some.
pub(crate) fn advance(bar: &ProgressBar, records: u64, more: &str) {
    bar.set_position(records.min(bar.length().unwrap_or(u64::MAX)));
    bar.set_message(format!("{} records{more}", text::count(records)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_ends_at_its_end() {
        let bar = ProgressBar::hidden();
        bar.set_length(1000);
        for (records, position) in [(999, 999), (1000, 1000), (1024, 1000)] {
            advance(&bar, records, "");
            assert_eq!(bar.position(), position);
        }
        assert_eq!(bar.message(), "1,024 records");
    }
}
