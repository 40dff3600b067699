//! The pace at which a server checks all payload of its volumes against the checksums.
//!
//! A pass takes about as long as the period, so the devices are read evenly, and begins a period
//! after the last one began. Little payload is checked at [`RATE_MIN`], and the rest of the period
//! is a pause. The position is in the store, so a server that is started again goes on.

use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};

use jiff::Span;
use upsweep_volume::{Error, Volumes};

use crate::context::Context;
use crate::when;

/// Bytes in a second at least.
const RATE_MIN: f64 = (1 << 20) as f64;
/// Bytes that are read at a time.
const STEP_BYTES: u64 = 1 << 20;
/// What was left undone is made up for, up to this time.
const BACKLOG_MAX: Duration = Duration::from_secs(2);
/// Damaged ranges that are told, of which there may be any number.
const TOLD_MAX: u64 = 100;

/// How often everything is checked; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period(Option<Duration>);

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let span = text.parse::<Span>().ok().filter(|span| span.is_positive());
        let length = span.as_ref().and_then(when::length);
        let is_long = |length: &Duration| *length >= Duration::from_secs(1);
        let wrong = || "give a time such as 30d or 12h, of 1s at least, or off".to_owned();
        length.filter(is_long).map(|length| Self(Some(length))).ok_or_else(wrong)
    }
}

/// A scrub that goes on as long as the server runs.
pub(super) struct Scrub {
    period: Period,
    /// When the next step is due.
    due: Instant,
    /// Damaged ranges that were told.
    told: u64,
}

impl Scrub {
    pub(super) fn every(period: Period) -> Self {
        Self { period, due: Instant::now(), told: 0 }
    }

    /// Does the next step if it is due; returns whether another one is.
    pub(super) fn step(&mut self, context: &Context, volumes: &Volumes) -> Result<bool, Error> {
        let Self { period: Period(Some(period)), due, .. } = *self else { return Ok(false) };
        let now = Instant::now();
        if now < due || !is_time(volumes, period) {
            return Ok(false);
        }
        let step = volumes.continue_scrub(STEP_BYTES)?;
        for range in &step.damage {
            self.told += 1;
            if self.told <= TOLD_MAX {
                context.note(&format!("upsweep: damage: {range}"));
            }
        }
        if self.told > TOLD_MAX && self.told - (step.damage.len() as u64) <= TOLD_MAX {
            context.note("upsweep: more damage is not told; `upsweep volume scrub` lists all");
        }
        let rate = (volumes.payload_bytes() as f64 / period.as_secs_f64()).max(RATE_MIN);
        let pause = Duration::from_secs_f64(step.bytes as f64 / rate);
        self.due = due.max(now.checked_sub(BACKLOG_MAX).unwrap_or(now)) + pause;
        Ok(self.due <= Instant::now())
    }
}

/// Whether a pass has begun, or has to.
fn is_time(volumes: &Volumes, period: Duration) -> bool {
    let pass = volumes.scrub_pass();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // After one that seems to be yet to come, the clock was wrong: then or now.
    let since = now.checked_sub(Duration::from_micros(pass.began_at));
    pass.position.is_some() || since.is_none_or(|since| since >= period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_time_or_off() {
        let seconds = |text: &str| text.parse().map(|Period(period)| period.map(|of| of.as_secs()));
        assert_eq!(seconds("30d"), Ok(Some(30 * 24 * 3600)));
        assert_eq!((seconds("1s"), seconds("off")), (Ok(Some(1)), Ok(None)));
        for wrong in ["", "0s", "-1d", "1ms", "100MiB", "1 month"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
