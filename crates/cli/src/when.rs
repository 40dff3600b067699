//! Moments and histories of volumes, as they are written on the command line, and shown.
//!
//! Without a time zone all times are in UTC, for a server may run the command, somewhere else.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use upsweep_volume::{History, Past, Volumes};

use crate::text::{self, Size};

/// The least time that a history can be kept for.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// A moment of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// That of a snapshot.
    Snapshot(String),
    /// That of a mark.
    Mark(String),
    /// In microseconds since the Unix epoch.
    At(u64),
    /// So long before now.
    Ago(Duration),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "give @SNAPSHOT, mark:NAME, a time such as 2026-11-27T18:03:00Z (without an offset it \
             is UTC), a time before now such as -10s or '10 minutes ago', or microseconds since \
             1970"
                .to_owned()
        };
        let found = if let Some(name) = text.strip_prefix('@') {
            (!name.is_empty()).then(|| Self::Snapshot(name.to_owned()))
        } else if let Some(name) = text.strip_prefix("mark:") {
            (!name.is_empty()).then(|| Self::Mark(name.to_owned()))
        } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
            text.parse().ok().map(Self::At)
        } else {
            time_us(text).map(Self::At).or_else(|| ago(text).map(Self::Ago))
        };
        found.ok_or_else(wrong)
    }
}

impl When {
    /// The moment, with now as the volumes see it.
    pub(crate) fn past(&self, volumes: &Volumes) -> Past<'_> {
        match self {
            Self::Snapshot(name) => Past::Snapshot(name),
            Self::Mark(name) => Past::Mark(name),
            Self::At(us) => Past::At(*us),
            Self::Ago(by) => {
                let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
                Past::At(volumes.moment().saturating_sub(by_us))
            }
        }
    }
}

/// A time as in RFC 3339, or one without an offset, in microseconds since the Unix epoch.
fn time_us(text: &str) -> Option<u64> {
    let with_offset = text.parse::<Timestamp>();
    let time = with_offset.or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        TimeZone::UTC.to_timestamp(civil)
    });
    u64::try_from(time.ok()?.as_microsecond()).ok()
}

/// How long ago `-10s` or `10 minutes ago` is.
fn ago(text: &str) -> Option<Duration> {
    let span = text.parse::<Span>().ok()?;
    if span.is_positive() { None } else { length(&span) }
}

/// The length of a span, without its sign. That of a month or a year is not known.
pub(crate) fn length(span: &Span) -> Option<Duration> {
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Some(length.unsigned_abs())
}

/// A moment that is known exactly, for people: RFC 3339 in UTC with microseconds.
pub(crate) fn time(us: u64) -> String {
    let time = i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    // Beyond the year 9999.
    time.map_or_else(|| format!("{us} us after 1970"), |time| format!("{time:.6}"))
}

/// The words for a moment behind those for its volume.
pub(crate) fn describe(past: Past<'_>) -> String {
    match past {
        Past::Snapshot(name) => format!("in snapshot {name:?}"),
        Past::Mark(name) => format!("at mark {name:?}"),
        Past::At(us) => format!("at {}", time(us)),
    }
}

/// What a volume is to keep of its past: `24h`, `100GiB`, `24h,100GiB`, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep(pub(crate) History);

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(History::OFF));
        }
        let mut history = History::OFF;
        for limit in text.split(',') {
            let is_first = match limit_of(limit)? {
                Limit::Window(window) => history.window.replace(window).is_none(),
                Limit::Bytes(bytes) => history.bytes.replace(bytes).is_none(),
            };
            if !is_first {
                return Err("give one time and one number of bytes at most".to_owned());
            }
        }
        Ok(Self(history))
    }
}

/// A limit of a history.
enum Limit {
    Window(Duration),
    Bytes(u64),
}

fn limit_of(text: &str) -> Result<Limit, String> {
    // With its B, for 5m is a time.
    let bytes = text.ends_with(['B', 'b']).then(|| text.parse::<Size>().ok()).flatten();
    if let Some(Size(bytes)) = bytes.filter(|size| size.0 > 0) {
        return Ok(Limit::Bytes(bytes));
    }
    let span = text.parse::<Span>().ok().filter(|span| span.is_positive());
    match span.as_ref().and_then(length) {
        Some(window) if window >= WINDOW_MIN => Ok(Limit::Window(window)),
        _ => {
            Err("give a time such as 24h or 7d, of 1s at least, a number of bytes such as 100GiB, \
                  both as 24h,100GiB, or off"
                .to_owned())
        }
    }
}

impl Display for Keep {
    /// As it can be given.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let window = self.0.window.map(|window| match SignedDuration::try_from(window) {
            Ok(window) => format!("{window:#}"),
            Err(_) => format!("{}s", window.as_secs()),
        });
        let bytes = self.0.bytes.map(|bytes| text::size(bytes).replace(' ', ""));
        let limits: Vec<String> = window.into_iter().chain(bytes).collect();
        formatter.pad(if limits.is_empty() { "off".to_owned() } else { limits.join(",") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1_795_802_580_500_000;

    #[test]
    fn moments_have_one_syntax() {
        let at = |text: &str| text.parse::<When>().map_err(|error| format!("{text}: {error}"));
        assert_eq!(at("@monday"), Ok(When::Snapshot("monday".to_owned())));
        assert_eq!(at("mark:a b"), Ok(When::Mark("a b".to_owned())));
        for text in [
            "1795802580500000",
            "2026-11-27T18:03:00.5Z",
            "2026-11-27t18:03:00.500000z",
            "2026-11-27 18:03:00.5",
            "2026-11-27T18:03:00.5",
            "2026-11-27T19:33:00.5+01:30",
        ] {
            assert_eq!(at(text), Ok(When::At(AT)));
        }
        assert_eq!(at("2026-11-27"), Ok(When::At(AT - 64_980_500_000)));
        for (text, seconds) in [
            ("-10s", 10.0),
            ("10 minutes ago", 600.0),
            ("1 hour, 30 minutes ago", 5400.0),
            ("-1.5s", 1.5),
            ("-2d", 172_800.0),
            ("1 week ago", 604_800.0),
            ("-PT1H", 3600.0),
        ] {
            assert_eq!(at(text), Ok(When::Ago(Duration::from_secs_f64(seconds))));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_is_accepted() {
        for text in [
            "",
            "@",
            "mark:",
            "monday",
            "10s",
            "10 minutes",
            "1 month ago",
            "18:03",
            "1969-12-31T23:59:59Z",
            "2026-13-01",
            "99999999999999999999",
        ] {
            let refused = text.parse::<When>().expect_err(text);
            assert!(refused.starts_with("give @SNAPSHOT, mark:NAME, a time such as"), "{refused}");
        }
    }

    #[test]
    fn a_time_that_was_printed_can_be_given() {
        assert_eq!(time(AT), "2026-11-27T18:03:00.500000Z");
        for us in [0, 1, AT, AT + 1] {
            assert_eq!(time(us).parse(), Ok(When::At(us)));
        }
        assert_eq!(time(u64::MAX), "18446744073709551615 us after 1970");
    }

    #[test]
    fn histories_are_a_time_or_bytes_or_both() {
        let kept = |text: &str| text.parse::<Keep>().map(|keep| keep.to_string());
        for text in ["off", "24h", "100.0GiB", "24h,100.0GiB", "10m", "1m 30s"] {
            assert_eq!(kept(text), Ok(text.to_owned()));
        }
        assert_eq!(kept("7d"), Ok("168h".to_owned()));
        assert_eq!(kept("1GiB,2 hours"), Ok("2h,1.0GiB".to_owned()));
        for text in ["", "0s", "0B", "100", "5M", "-1h", "500ms", "off,1h", "1h,", "1 year"] {
            assert!(kept(text).is_err(), "{text}");
        }
        assert!(kept("1h,2h").expect_err("two times").starts_with("give one time and"));
    }
}
