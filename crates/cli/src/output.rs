//! Opening a store as the command line says, and printing.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use upsweep::Store;

use crate::args::OpenArgs;
use crate::failure::Failure;

/// How often a progress bar is brought up to date.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Opens a store that is there.
pub(crate) fn open(args: &OpenArgs) -> Result<Store, Failure> {
    Ok(Store::builder().memory_bytes(args.memory.in_memory()).open(&args.store)?)
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
