//! Records as lines: what `dump` writes, and what `load` reads.
//!
//! | format | line |
//! |---|---|
//! | `tsv` | `KEY<TAB>VALUE`, and `<TAB>KIND` for a number |
//! | `jsonl` | `{"key":KEY,"value":VALUE}`, and `"kind":KIND` for a number |
//!
//! Keys and bytes carry the escapes of [`text`]; numbers are decimal, with as many digits as tell
//! them from their neighbours. In JSON all of it is strings, numbers too: few readers keep the 64
//! bits of a number. Described for people in `docs/record-lines.md`.

use std::borrow::Cow;
use std::io::Write;

use serde::{Deserialize, Serialize};
use upsweep::{Value, ValueKind};

use crate::args::RecordFormat;
use crate::text;

/// The kinds that are named; without a name, a value is bytes.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Number {
    I64,
    U64,
    F64,
}

impl Number {
    fn of(kind: ValueKind) -> Option<Self> {
        match kind {
            ValueKind::Bytes => None,
            ValueKind::I64 => Some(Self::I64),
            ValueKind::U64 => Some(Self::U64),
            ValueKind::F64 => Some(Self::F64),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
        }
    }

    fn named(name: &[u8]) -> Result<Self, String> {
        let all = [Self::I64, Self::U64, Self::F64];
        let found = all.into_iter().find(|number| number.name().as_bytes() == name);
        found.ok_or_else(|| format!("unknown kind {}; known are i64, u64, f64", text::quote(name)))
    }

    fn parse(self, given: &[u8]) -> Result<Value, String> {
        let digits = std::str::from_utf8(given).unwrap_or_default();
        let (kind, bytes) = match self {
            Self::I64 => (ValueKind::I64, digits.parse().ok().map(i64::to_le_bytes)),
            Self::U64 => (ValueKind::U64, digits.parse().ok().map(u64::to_le_bytes)),
            Self::F64 => (ValueKind::F64, text::float(digits).map(f64::to_le_bytes)),
        };
        let bytes = bytes.ok_or_else(|| {
            let finite = match self {
                Self::F64 => "; finite ones reach from -1.79e308 to 1.79e308",
                Self::I64 | Self::U64 => "",
            };
            format!("{} is no {}{finite}", text::quote(given), self.name())
        })?;
        Ok(Value { kind, bytes: bytes.to_vec() })
    }
}

/// A line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Number>,
}

/// Writes a record as a line.
pub(crate) fn write(
    out: &mut dyn Write,
    format: RecordFormat,
    key: &[u8],
    value: &Value,
) -> std::io::Result<()> {
    let kind = Number::of(value.kind);
    let shown = text::value_text(value, None).map_err(std::io::Error::other)?;
    let key = text::escape(key);
    match (format, kind) {
        (RecordFormat::Tsv, None) => writeln!(out, "{key}\t{shown}"),
        (RecordFormat::Tsv, Some(kind)) => writeln!(out, "{key}\t{shown}\t{}", kind.name()),
        (RecordFormat::Jsonl, kind) => {
            let line = Line { key: key.into(), value: shown.into(), kind };
            writeln!(out, "{}", serde_json::to_string(&line)?)
        }
    }
}

/// The record of a line, or what is wrong with it.
pub(crate) fn parse(line: &[u8], format: RecordFormat) -> Result<(Vec<u8>, Value), String> {
    let is_good = |line: &[u8]| parse_fields(line, format).is_ok();
    parse_fields(line, format).map_err(|reason| text::blame(reason, line, is_good))
}

fn parse_fields(line: &[u8], format: RecordFormat) -> Result<(Vec<u8>, Value), String> {
    match format {
        RecordFormat::Tsv => {
            let mut fields = line.split(|byte| *byte == b'\t');
            let key = fields.next().unwrap_or_default();
            let value = fields.next().ok_or("expected KEY, a tab, VALUE")?;
            let kind = fields.next().map(Number::named).transpose()?;
            if fields.next().is_some() {
                return Err("too many tabs; a tab in a key or value is written as \\t".to_owned());
            }
            record(key, value, kind)
        }
        RecordFormat::Jsonl => {
            let expected =
                |found: &str| format!("expected {{\"key\":\"KEY\",\"value\":\"VALUE\"}}: {found}");
            if !line.trim_ascii_start().starts_with(b"{") {
                // An array of the fields would be read as well.
                return Err(expected("no object"));
            }
            let line: Line<'_> = serde_json::from_slice(line).map_err(|error| {
                // It quotes what it does not know.
                let reason = error.to_string().replace("line 1 ", "");
                expected(&text::without_middle(reason))
            })?;
            record(line.key.as_bytes(), line.value.as_bytes(), line.kind)
        }
    }
}

fn record(key: &[u8], value: &[u8], kind: Option<Number>) -> Result<(Vec<u8>, Value), String> {
    let unescaped = |given: &[u8], what: &str| {
        let mut bytes = Vec::with_capacity(given.len());
        text::unescape(given, &mut bytes).map_err(|reason| format!("{what}: {reason}"))?;
        Ok::<_, String>(bytes)
    };
    let key = unescaped(key, "key")?;
    let value = match kind {
        None => Value { kind: ValueKind::Bytes, bytes: unescaped(value, "value")? },
        Some(number) => number.parse(value)?,
    };
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [RecordFormat; 2] = [RecordFormat::Tsv, RecordFormat::Jsonl];

    fn line(format: RecordFormat, key: &[u8], value: &Value) -> String {
        let mut line = Vec::new();
        write(&mut line, format, key, value).expect("written to memory");
        String::from_utf8(line).expect("lines are text")
    }

    fn number(kind: ValueKind, bytes: [u8; 8]) -> Value {
        Value { kind, bytes: bytes.to_vec() }
    }

    #[test]
    fn what_is_wrong_with_a_long_line_is_said_in_short() {
        let line = format!("{{\"key\":\"a\",\"{}\":\"\"}}", "x".repeat(5_000_000));
        let reason = parse(line.as_bytes(), RecordFormat::Jsonl).expect_err("an unknown field");
        assert!(reason.len() < 400, "{} bytes", reason.len());
        assert!(reason.contains("unknown field") && reason.contains("column"), "{reason}");
    }

    #[test]
    fn every_record_survives_writing_and_reading() {
        let all: Vec<u8> = (0..=255).collect();
        let floats = [0.0, -0.0, 0.1, -1.0 / 3.0, 1e300, 5e-324, f64::MAX, f64::EPSILON];
        let infinite = [f64::INFINITY, f64::NEG_INFINITY];
        let floats = floats.into_iter().chain(infinite);
        let texts = [&b""[..], b"8 bytes!", b"\"\\t\t\r\n", "ü\u{2028}\u{7f}".as_bytes(), &all];
        let values = floats
            .map(|float| number(ValueKind::F64, float.to_le_bytes()))
            .chain([0, i64::MIN, i64::MAX].map(|n| number(ValueKind::I64, n.to_le_bytes())))
            .chain([0, (1 << 53) + 1, u64::MAX].map(|n| number(ValueKind::U64, n.to_le_bytes())))
            .chain(texts.map(|text| Value { kind: ValueKind::Bytes, bytes: text.to_vec() }));
        for value in values {
            for (format, key) in FORMATS.into_iter().flat_map(|f| texts.map(|key| (f, key))) {
                let line = line(format, key, &value);
                let stripped = line.strip_suffix('\n').expect("a line");
                assert!(!stripped.contains('\n'), "{line}");
                assert_eq!(parse(stripped.as_bytes(), format), Ok((key.to_vec(), value.clone())));
            }
        }
    }

    #[test]
    fn lines_look_as_documented() {
        let minus_zero = number(ValueKind::F64, (-0.0f64).to_le_bytes());
        assert_eq!(line(RecordFormat::Tsv, b"a\tb", &minus_zero), "a\\tb\t-0.0\tf64\n");
        let json = line(RecordFormat::Jsonl, b"a\tb", &minus_zero);
        assert_eq!(json, "{\"key\":\"a\\\\tb\",\"value\":\"-0.0\",\"kind\":\"f64\"}\n");
        let bytes = Value { kind: ValueKind::Bytes, bytes: vec![0xff] };
        let json = line(RecordFormat::Jsonl, b"k", &bytes);
        assert_eq!(json, "{\"key\":\"k\",\"value\":\"\\\\xff\"}\n");
        assert_eq!(line(RecordFormat::Tsv, b"k", &bytes), "k\t\\xff\n");
    }

    #[test]
    fn a_malformed_line_is_explained() {
        let cases = [
            (RecordFormat::Tsv, "", "expected KEY, a tab, VALUE"),
            (RecordFormat::Tsv, "k", "expected KEY, a tab, VALUE"),
            (RecordFormat::Tsv, "k\tv\tbytes", "unknown kind \"bytes\""),
            (RecordFormat::Tsv, "k\t1\ti64\t", "too many tabs"),
            (RecordFormat::Tsv, "k\tone\ti64", "\"one\" is no i64"),
            (RecordFormat::Tsv, "k\t-1\tu64", "\"-1\" is no u64"),
            (RecordFormat::Tsv, "k\\\tv", "key: a backslash at the end"),
            (RecordFormat::Jsonl, "", "expected {\"key\":\"KEY\""),
            (RecordFormat::Jsonl, "{\"key\":\"k\",\"value\":5}", "expected a string at column 20"),
            (RecordFormat::Jsonl, "{\"key\":\"k\"}", "missing field `value`"),
            (RecordFormat::Jsonl, "{\"key\":\"k\",\"value\":\"\",\"sort\":1}", "unknown field"),
            (RecordFormat::Jsonl, "{\"key\":\"k\",\"value\":\"\\\\q\"}", "value: unknown escape"),
        ];
        for (format, line, reason) in cases {
            let found = parse(line.as_bytes(), format).expect_err(line);
            assert!(found.contains(reason), "{line}: {found}");
        }
    }
}
