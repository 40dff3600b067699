//! Printing: lines, JSON, notes and progress bars.

use std::io::{BufWriter, Write};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::text;

/// How often a progress bar is brought up to date.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often it is drawn at most, in a second.
const DRAWINGS_PER_SECOND: u8 = 20;

impl Context {
    /// Standard output, buffered, for any number of lines.
    pub(crate) fn out(&self) -> BufWriter<Output<'_>> {
        BufWriter::with_capacity(64 << 10, self.output().until_interrupted())
    }

    /// Prints one line.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        Ok(self.output().write_all(format!("{text}\n").as_bytes())?)
    }

    /// Prints one value as a line of JSON.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value);
        let cannot = |error| Failure::Refused(format!("cannot be shown as JSON: {error}"));
        self.line(&text.map_err(cannot)?)
    }

    /// Prints one line to standard error.
    pub(crate) fn note(&self, text: &str) {
        // One write, so that no other process writes in between. Nobody misses it if standard error
        // is gone.
        drop(self.errors().write_all(format!("{text}\n").as_bytes()));
    }

    /// A progress bar; `None` unless standard error is a terminal.
    pub(crate) fn progress(&self, length: Option<u64>, template: &str) -> Option<ProgressBar> {
        let errors = self.errors();
        if !errors.is_terminal() {
            return None;
        }
        // Without descriptors for a bar of its own, a command works as well.
        let terminal = Term::read_write_pair(self.input().try_clone().ok()?, errors.file().ok()?);
        let target = ProgressDrawTarget::term(terminal, DRAWINGS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(length, target);
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        Some(bar)
    }

    /// A progress bar for about so many records; without the number, one that tells how many are
    /// done.
    pub(crate) fn records_bar(&self, records: Option<u64>) -> Option<ProgressBar> {
        let records = records.filter(|records| *records > 0);
        let template = match records {
            Some(_) => "[{bar:20}] {percent:>3}%  {msg}  {elapsed}",
            None => "{spinner} {msg}  {elapsed}",
        };
        self.progress(records, template)
    }
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
