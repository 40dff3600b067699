//! Text for bytes and back: escapes, sizes, values.
//!
//! | written | byte |
//! |---|---|
//! | `\t`, `\n`, `\\` | tab, line feed, backslash |
//! | `\xHH` | the byte with this hexadecimal number |
//! | anything else | itself |
//!
//! Printing escapes the backslash, control characters and what is not UTF-8, and nothing else, so
//! that reading what was printed gives the same bytes.

use std::fmt::Write;
use std::str::FromStr;

use upsweep::layers::structures::array::INDEX_MAX;
use upsweep::{Value, ValueKind};

use crate::args::ValueFormat;

/// Of what is longer than this, in bytes, a message quotes the beginning.
const QUOTED_BYTES_MAX: usize = 60;

/// Bytes given on the command line, with escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        unescape(text.as_bytes(), &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// A size in bytes, given as `256MiB` or as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// The size as an amount of memory.
    pub(crate) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| "give bytes, or a number with a unit such as 4KiB, 256MiB, 1GiB".to_owned();
        text.parse::<bytesize::ByteSize>().map(|size| Self(size.as_u64())).map_err(wrong)
    }
}

/// The index of a cell of an array, in decimal.
pub(crate) fn index(given: &[u8]) -> Result<u64, String> {
    let index = std::str::from_utf8(given).ok().and_then(|text| text.parse().ok());
    index
        .filter(|index| *index <= INDEX_MAX)
        .ok_or_else(|| format!("{} is not an index; indexes are 0 to {INDEX_MAX}", quote(given)))
}

/// A number in decimal, or `inf`, `-inf` or `NaN`; `None` too for digits beyond the finite ones.
pub(crate) fn float(digits: &str) -> Option<f64> {
    let number = digits.parse().ok();
    let has_digits = digits.bytes().any(|byte| byte.is_ascii_digit());
    number.filter(|number: &f64| !(number.is_infinite() && has_digits))
}

/// A reason why `line` is refused, with advice if only the CR at its end is at fault: `is_good`
/// says whether it is good without.
pub(crate) fn blame(reason: String, line: &[u8], is_good: impl FnOnce(&[u8]) -> bool) -> String {
    match line.strip_suffix(b"\r") {
        Some(line) if is_good(line) => {
            format!("{reason}; the line ends in CR LF: convert it to LF")
        }
        _ => reason,
    }
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// A number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// So many things, with the word for one of them.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", count(number))
}

/// A rate for people: digits that matter, thousands apart.
pub(crate) fn rate(per_second: f64) -> String {
    count(per_second.max(0.0).round() as u64)
}

/// A time for people, in three digits or so.
pub(crate) fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let decimals = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.decimals$} {unit}")
}

/// Appends to `out` what `text` stands for.
pub(crate) fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (byte, length) = match rest.get(at + 1) {
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'\\') => (b'\\', 2),
            Some(b'x') => (hex_byte(rest.get(at + 2..at + 4)).ok_or_else(bad_hex)?, 4),
            Some(other) => {
                let shown = escape(&[*other]);
                return Err(format!("unknown escape \\{shown}; known are \\t \\n \\\\ \\xHH"));
            }
            None => return Err("a backslash at the end; write \\\\ for a backslash".to_owned()),
        };
        out.push(byte);
        rest = &rest[at + length..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

fn bad_hex() -> String {
    "\\x needs two hexadecimal digits after it".to_owned()
}

fn hex_byte(digits: Option<&[u8]>) -> Option<u8> {
    let &[high, low] = digits? else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// The text that stands for `bytes`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\\' => out.push_str("\\\\"),
                letter if letter.is_control() => {
                    let mut buffer = [0; 4];
                    push_hex(letter.encode_utf8(&mut buffer).as_bytes(), "\\x", &mut out);
                }
                letter => out.push(letter),
            }
        }
        push_hex(chunk.invalid(), "\\x", &mut out);
    }
    out
}

/// The same in quotation marks, for messages; of more than [`QUOTED_BYTES_MAX`] the beginning.
pub(crate) fn quote(bytes: &[u8]) -> String {
    if bytes.len() <= QUOTED_BYTES_MAX {
        return format!("\"{}\"", escape(bytes));
    }
    let is_start = |byte: &u8| byte & 0xc0 != 0x80;
    // Of a letter all bytes or none.
    let end = (0..=QUOTED_BYTES_MAX).rev().find(|end| is_start(&bytes[*end]));
    let start = escape(&bytes[..end.unwrap_or(QUOTED_BYTES_MAX)]);
    format!("\"{start}...\" ({} bytes)", count(bytes.len() as u64))
}

/// A message of others that may quote what is long, without what is in its middle.
pub(crate) fn without_middle(message: String) -> String {
    if message.len() <= 4 * QUOTED_BYTES_MAX {
        return message;
    }
    let start = message.floor_char_boundary(2 * QUOTED_BYTES_MAX);
    let end = message.floor_char_boundary(message.len() - 2 * QUOTED_BYTES_MAX);
    format!("{}...{}", &message[..start], &message[end..])
}

fn push_hex(bytes: &[u8], before: &str, out: &mut String) {
    for byte in bytes {
        write!(out, "{before}{byte:02x}").expect("writing to a string does not fail");
    }
}

/// Hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    push_hex(bytes, "", &mut out);
    out
}

/// The bytes of pairs of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(|digits| hex_byte(Some(digits))).collect()
}

/// How a value is printed if nothing is asked for.
fn format_of(kind: ValueKind) -> ValueFormat {
    match kind {
        ValueKind::Bytes => ValueFormat::Text,
        ValueKind::I64 => ValueFormat::I64,
        ValueKind::U64 => ValueFormat::U64,
        ValueKind::F64 => ValueFormat::F64,
    }
}

/// A value as a JSON value; texts carry the escapes. Numbers that JSON lacks are strings.
pub(crate) fn json_value(
    value: &Value,
    format: Option<ValueFormat>,
) -> Result<serde_json::Value, String> {
    let format = format.unwrap_or_else(|| format_of(value.kind));
    let number = || {
        let length = value.bytes.len();
        <[u8; 8]>::try_from(value.bytes.as_slice())
            .map_err(|_| format!("a number has 8 bytes, this value has {length}: try --as hex"))
    };
    Ok(match format {
        ValueFormat::Text => escape(&value.bytes).into(),
        ValueFormat::Hex => hex(&value.bytes).into(),
        ValueFormat::I64 => i64::from_le_bytes(number()?).into(),
        ValueFormat::U64 => u64::from_le_bytes(number()?).into(),
        ValueFormat::F64 => {
            let number = f64::from_le_bytes(number()?);
            let finite = serde_json::Number::from_f64(number).map(serde_json::Value::Number);
            finite.unwrap_or_else(|| number.to_string().into())
        }
    })
}

/// A value as text.
pub(crate) fn value_text(value: &Value, format: Option<ValueFormat>) -> Result<String, String> {
    Ok(match json_value(value, format)? {
        serde_json::Value::String(text) => text,
        number => number.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_unit_that_suits_them() {
        let shown = [0.0, 1.5e-6, 4.2e-5, 9.99e-4, 1e-3, 0.123, 1.0, 75.04, 3600.0].map(time);
        let expected = [
            "0.00 µs", "1.50 µs", "42.0 µs", "999 µs", "1.00 ms", "123 ms", "1.00 s", "75.0 s",
            "3600 s",
        ];
        assert_eq!(shown, expected);
    }

    fn back(text: &str) -> Result<Vec<u8>, String> {
        text.parse::<Bytes>().map(|bytes| bytes.0)
    }

    #[test]
    fn every_byte_survives_printing_and_reading() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(back(&escape(&all)), Ok(all));
        assert_eq!(escape("a\tb\n\\ü\u{7f}".as_bytes()), "a\\tb\\n\\\\ü\\x7f");
        assert_eq!(escape(&[0xff, b'a']), "\\xffa");
    }

    #[test]
    fn of_what_is_long_the_beginning_is_quoted() {
        assert_eq!(quote(b"a\tb"), "\"a\\tb\"");
        let long = "x".repeat(59) + "\u{fc}" + &"y".repeat(5_000_000);
        assert_eq!(quote(long.as_bytes()), format!("\"{}...\" (5,000,061 bytes)", "x".repeat(59)));
        assert!(quote(&[0xbf; 100]).ends_with("...\" (100 bytes)"));
    }

    #[test]
    fn one_thing_is_no_plural() {
        let shown = [0, 1, 2000].map(|number| counted(number, "block"));
        assert_eq!(shown, ["0 blocks", "1 block", "2,000 blocks"]);
    }

    #[test]
    fn unknown_escapes_are_refused() {
        assert!(back("\\q").is_err());
        assert!(back("a\\").is_err());
        assert!(back("\\x4").is_err());
        assert!(back("\\x+4").is_err());
        assert_eq!(back("\\x41\\t"), Ok(b"A\t".to_vec()));
    }

    #[test]
    fn sizes_have_units() {
        let parse = |text: &str| text.parse::<Size>().map(|size| size.0).ok();
        assert_eq!(parse("256MiB"), Some(256 << 20));
        assert_eq!(parse("4KiB"), Some(4096));
        assert_eq!(parse("1GiB"), Some(1 << 30));
        assert_eq!(parse("12345"), Some(12345));
        assert_eq!(parse("much"), None);
        assert_eq!(parse("-1"), None);
    }

    #[test]
    fn values_print_as_what_made_them() {
        let number = Value { kind: ValueKind::I64, bytes: (-5i64).to_le_bytes().to_vec() };
        assert_eq!(value_text(&number, None), Ok("-5".to_owned()));
        assert_eq!(value_text(&number, Some(ValueFormat::U64)), Ok((u64::MAX - 4).to_string()));
        let text = Value { kind: ValueKind::Bytes, bytes: b"a\tb".to_vec() };
        assert_eq!(value_text(&text, None), Ok("a\\tb".to_owned()));
        assert_eq!(value_text(&text, Some(ValueFormat::Hex)), Ok("610962".to_owned()));
        assert!(value_text(&text, Some(ValueFormat::I64)).is_err());
    }
}
