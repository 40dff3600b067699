//! From lines to updates, without an allocation per line.
//!
//! Keys and operands are copied into one buffer, converted on the way: escapes, numbers, values
//! with their kind in front, indexes of cells. The updates then borrow from it.

use std::ops::Range;

use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::structures::array::body_format::key_of;
use upsweep::layers::structures::modifiers as builtin;
use upsweep::{CellKind, SpaceId, ValueKind};

use super::cells;
use crate::text;

/// The updates of some lines. Its buffers are used again and again.
#[derive(Default)]
pub(super) struct Lines {
    /// What they update if that is an array.
    cells: Option<CellKind>,
    parsed: Vec<Parsed>,
    converted: Vec<u8>,
}

struct Parsed {
    modifier: ModifierId,
    key: Range<usize>,
    operand: Range<usize>,
}

/// What an operation makes of its operand.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    None,
    Number,
    Value,
    Bytes,
    /// What is added to such a cell.
    Amount(CellKind),
    /// What such a cell is compared with.
    Cell(CellKind),
    /// What such a cell becomes.
    CellValue(CellKind),
}

fn operation(name: &[u8]) -> Option<(ModifierId, Operand)> {
    Some(match name {
        b"add" => (builtin::ADD_I64, Operand::Number),
        b"put" => (builtin::PUT, Operand::Value),
        b"append" => (builtin::APPEND, Operand::Bytes),
        b"max" => (builtin::MAX_I64, Operand::Number),
        b"min" => (builtin::MIN_I64, Operand::Number),
        b"delete" => (builtin::DELETE, Operand::None),
        _ => return None,
    })
}

impl Lines {
    /// Lines for a table, or for an array with such cells.
    pub(super) fn new(cells: Option<CellKind>) -> Self {
        Self { cells, ..Self::default() }
    }

    /// Parses up to `lines_max` lines of `text`, which is whole lines. Returns how many bytes they
    /// take, and why the line behind them is malformed if it is.
    pub(super) fn parse(&mut self, text: &[u8], lines_max: u64) -> (usize, Option<String>) {
        self.parsed.clear();
        self.converted.clear();
        let mut at = 0;
        while at < text.len() && (self.parsed.len() as u64) < lines_max {
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |found| at + found);
            let line = &text[at..end];
            match self.parse_line(line) {
                Ok(parsed) => self.parsed.push(parsed),
                Err(reason) => {
                    let is_good = |line: &[u8]| self.parse_line(line).is_ok();
                    return (at, Some(text::blame(reason, line, is_good)));
                }
            }
            at = (end + 1).min(text.len());
        }
        (at, None)
    }

    fn parse_line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        let mut fields = memchr::memchr_iter(b'\t', line);
        let (first, second, third) = (fields.next(), fields.next(), fields.next());
        let name = &line[..first.unwrap_or(line.len())];
        let found = match self.cells {
            None => operation(name),
            Some(cells) => cells::operation(name, cells)?,
        };
        let Some((modifier, operand)) = found else {
            return Err(unknown_operation(name, self.cells.is_some()));
        };
        let shown = || String::from_utf8_lossy(name).into_owned();
        let Some(first) = first else {
            return Err(format!("{} without a key: a tab and the key follow it", shown()));
        };
        if third.is_some() {
            return Err("too many tabs; a tab in a key or value is written as \\t".to_owned());
        }
        let key = &line[first + 1..second.unwrap_or(line.len())];
        let given = second.map(|second| &line[second + 1..]);
        let key = match self.cells {
            None => self.convert_bytes(key, "key")?,
            Some(_) => self.keep(&key_of(text::index(key)?)),
        };
        let operand = match (operand, given) {
            (Operand::None, None) => self.keep(&[]),
            (Operand::None, Some(_)) => {
                return Err(format!("{} takes nothing after the key", shown()));
            }
            (_, Some(given)) => self.convert_operand(operand, given)?,
            (_, None) => {
                let is_text = matches!(operand, Operand::Value | Operand::Bytes);
                let what = if is_text { "value" } else { "number" };
                return Err(format!("{} needs a tab and a {what} after the key", shown()));
            }
        };
        Ok(Parsed { modifier, key, operand })
    }

    fn convert_operand(&mut self, operand: Operand, given: &[u8]) -> Result<Range<usize>, String> {
        let start = self.converted.len();
        match operand {
            Operand::None => {}
            Operand::Number => return self.convert_number(given),
            Operand::Bytes => return self.convert_bytes(given, "operand"),
            Operand::Value => {
                self.converted.push(ValueKind::Bytes as u8);
                self.convert_bytes(given, "value")?;
            }
            Operand::Amount(cells) => return Ok(self.keep(&cells::amount(given, cells)?)),
            Operand::Cell(cells) => return Ok(self.keep(&cells::number(given, cells)?)),
            Operand::CellValue(cells) => {
                let number = cells::number(given, cells)?;
                self.converted.push(cells.value_kind() as u8);
                self.converted.extend_from_slice(&number);
            }
        }
        Ok(start..self.converted.len())
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.converted.len();
        self.converted.extend_from_slice(bytes);
        start..self.converted.len()
    }

    fn convert_bytes(&mut self, given: &[u8], what: &str) -> Result<Range<usize>, String> {
        let start = self.converted.len();
        text::unescape(given, &mut self.converted).map_err(|reason| format!("{what}: {reason}"))?;
        Ok(start..self.converted.len())
    }

    fn convert_number(&mut self, given: &[u8]) -> Result<Range<usize>, String> {
        let number = std::str::from_utf8(given).ok().and_then(|text| text.parse::<i64>().ok());
        let Some(number) = number else {
            let shown = text::quote(given);
            return Err(format!("{shown} is no number from -2^63 to 2^63-1"));
        };
        Ok(self.keep(&number.to_le_bytes()))
    }

    /// The updates of the lines of the last [`Lines::parse`], for one table or array.
    pub(super) fn updates(&self, space: SpaceId) -> Vec<LoggedUpdate<'_>> {
        let update = |parsed: &Parsed| LoggedUpdate {
            space,
            modifier: parsed.modifier,
            key: &self.converted[parsed.key.clone()],
            operand: &self.converted[parsed.operand.clone()],
        };
        self.parsed.iter().map(update).collect()
    }
}

fn unknown_operation(name: &[u8], in_array: bool) -> String {
    if name.is_empty() {
        return "an empty line or operation; expected OP, a tab, KEY".to_owned();
    }
    let shown = text::quote(name);
    let append = if in_array { "" } else { ", append" };
    format!("unknown operation {shown}; known are put, delete, add, max, min{append}")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = (ModifierId, Vec<u8>, Vec<u8>);

    fn parse(text: &str) -> (Vec<Owned>, Option<String>) {
        let mut lines = Lines::default();
        let (_, malformed) = lines.parse(text.as_bytes(), u64::MAX);
        let own = |update: &LoggedUpdate<'_>| {
            (update.modifier, update.key.to_vec(), update.operand.to_vec())
        };
        (lines.updates(SpaceId::new(1)).iter().map(own).collect(), malformed)
    }

    #[test]
    fn every_operation_is_understood() {
        let text = "add\tk\t-5\nput\ta\\tb\tv\\x00\nappend\tk\t\ndelete\tk\nmax\tk\t7\nmin\tk\t+8";
        let (found, malformed) = parse(text);
        assert_eq!(malformed, None);
        let number = |number: i64| number.to_le_bytes().to_vec();
        assert_eq!(
            found,
            [
                (builtin::ADD_I64, b"k".to_vec(), number(-5)),
                (builtin::PUT, b"a\tb".to_vec(), b"\0v\0".to_vec()),
                (builtin::APPEND, b"k".to_vec(), Vec::new()),
                (builtin::DELETE, b"k".to_vec(), Vec::new()),
                (builtin::MAX_I64, b"k".to_vec(), number(7)),
                (builtin::MIN_I64, b"k".to_vec(), number(8)),
            ]
        );
    }

    #[test]
    fn a_malformed_line_ends_it_and_the_lines_before_count() {
        let reasons = [
            ("", "empty line"),
            ("ad\tk\t1", "unknown operation \"ad\""),
            ("a\\d\tk\t1", "unknown operation \"a\\\\d\""),
            ("add", "without a key"),
            ("add\tk", "needs a tab and a number"),
            ("put\tk", "needs a tab and a value"),
            ("add\tk\tone", "\"one\" is no number"),
            ("add\tk\t\x07", "\"\\x07\" is no number"),
            ("add\tk\t9223372036854775808", "is no number"),
            ("delete\tk\tv", "takes nothing after"),
            ("put\tk\tv\tw", "too many tabs"),
            ("put\t\\q\tv", "key: unknown escape"),
        ];
        for (line, reason) in reasons {
            let (found, malformed) = parse(&format!("add\tk\t1\n{line}\nadd\tk\t2\n"));
            assert_eq!(found.len(), 1, "{line:?}");
            let malformed = malformed.expect("malformed");
            assert!(malformed.contains(reason), "{line:?}: {malformed}");
        }
    }
}
