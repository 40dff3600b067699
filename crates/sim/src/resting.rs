//! The rules that nothing rests while a caller waits for room, and that waiting callers are
//! notified.
//!
//! A refused caller sleeps until the core reports that there may be room. While it sleeps,
//! something must be in progress that will make room: a request, a job, or work that the core does
//! as soon as it is pumped. If there is only a deadline in the future, the store stalls by choice;
//! if there is none, permanently.
//!
//! Exceptions, with their reasons:
//! - The open batch of the log may wait until its deadline: its records require no more, and their
//!   effects come when it is written. Nothing else may be waited for.
//! - A full store rests between its attempts, because only callers can make room, and may rest once
//!   more for as long when another attempt has just succeeded.
//! - A closed store accepts nothing any more.

use upsweep::layers::engine::Core;
use upsweep::metrics::WaitCause;

/// How long a store that was full may continue to rest, in microseconds: the engine retries a run
/// that found no room after 20 milliseconds.
const FULL_REST_US: u64 = 20_000;

/// A refused caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When it was refused for the first time, in microseconds.
    pub since_us: u64,
    /// How often the core had reported that there may be room when it was last refused.
    pub room_events: u64,
    /// Number of runs and spills published by then.
    pub published: u64,
    /// Whether it was last refused for the log.
    pub is_for_log: bool,
}

impl Refused {
    /// A caller that has just been refused, perhaps not for the first time.
    #[must_use]
    pub fn now(core: &Core, room_events: u64, before: Option<Self>, now_us: u64) -> Self {
        Self {
            since_us: before.map_or(now_us, |before| before.since_us),
            room_events,
            published: published(core),
            is_for_log: core.wait_cause() == WaitCause::Log,
        }
    }

    /// Whether a run or a spill has been published since.
    #[must_use]
    pub fn has_seen_publication(&self, core: &Core) -> bool {
        published(core) > self.published
    }

    /// The fault if it is accepted now: a run or a spill has made room since it was refused, and it
    /// was not notified. (Room that appears without a publication, in memory, is permitted: a
    /// publication will follow. For room in the log see [`Refused::log_fault`].)
    #[must_use]
    pub fn wake_fault(&self, core: &Core, room_events: u64, now_us: u64) -> Option<String> {
        let is_told = self.room_events != room_events;
        let made = published(core) - self.published;
        (!is_told && made > 0).then(|| {
            let waits_us = now_us - self.since_us;
            format!(
                "{made} runs and spills made room, a waiting caller was not told for {waits_us} us"
            )
        })
    }

    /// The fault if it is accepted now: the log has room, and it was not notified. For histories
    /// that pump the core after every event.
    #[must_use]
    pub fn log_fault(&self, room_events: u64, now_us: u64) -> Option<String> {
        let is_told = self.room_events != room_events;
        (!is_told && self.is_for_log).then(|| {
            let waits_us = now_us - self.since_us;
            format!("there was room in the log, a waiting caller was not told for {waits_us} us")
        })
    }
}

fn published(core: &Core) -> u64 {
    let metrics = core.metrics();
    metrics.sweep_runs_total.get() + metrics.spills_total.get()
}

/// When the store was last seen full.
#[derive(Clone, Copy, Debug, Default)]
pub struct FullWatch {
    last_us: Option<u64>,
}

impl FullWatch {
    /// Observes the store.
    pub fn look(&mut self, core: &Core, now_us: u64) {
        if core.is_full() {
            self.last_us = Some(now_us);
        }
    }

    /// Whether it may rest because it is or was full.
    #[must_use]
    pub fn excuses(&self, now_us: u64) -> bool {
        self.last_us.is_some_and(|last| now_us <= last + FULL_REST_US)
    }
}

/// What the core intends to do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// When it needs to be pumped, in microseconds.
    pub deadline_us: Option<u64>,
    /// When its log needs to be, because of the open batch.
    pub log_deadline_us: Option<u64>,
    /// The longest that a batch may wait.
    pub log_delay_us: u64,
}

impl Intent {
    /// The intent of a core.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        Self {
            deadline_us: core.deadline_us(),
            log_deadline_us: core.log().deadline_us(),
            log_delay_us: core.config().log_delay_us_max,
        }
    }

    /// Whether it is at rest, if nothing is in progress.
    #[must_use]
    pub fn is_rest(&self, now_us: u64) -> bool {
        let Some(deadline) = self.deadline_us else { return true };
        let of_log = self.log_deadline_us == Some(deadline);
        deadline > now_us && !(of_log && deadline <= now_us + self.log_delay_us)
    }
}

/// The fault if `refused` still sleeps and nothing is in progress, which the caller has checked;
/// `None` if there is none. The core has reported `room_events` times that there may be room.
#[must_use]
pub fn fault(
    core: &Core,
    room_events: u64,
    refused: Refused,
    now_us: u64,
    full: &FullWatch,
) -> Option<String> {
    let sleeps = refused.room_events == room_events && core.closed().is_none();
    let intent = Intent::of(core);
    if !sleeps || !intent.is_rest(now_us) || full.excuses(now_us) {
        return None;
    }
    let waits_us = now_us - refused.since_us;
    Some(match intent.deadline_us {
        Some(deadline) => {
            let rest_us = deadline - now_us;
            format!(
                "a rest of {rest_us} us while a record waits for room, for {waits_us} us by now"
            )
        }
        None => format!("nothing moves while a record waits for room, for {waits_us} us by now"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(deadline_us: Option<u64>, log_deadline_us: Option<u64>) -> Intent {
        Intent { deadline_us, log_deadline_us, log_delay_us: 5000 }
    }

    #[test]
    fn a_deadline_in_the_future_is_a_rest() {
        assert!(intent(Some(1001), None).is_rest(1000));
        assert!(intent(None, None).is_rest(1000));
        assert!(!intent(Some(1000), None).is_rest(1000));
        assert!(!intent(Some(0), None).is_rest(1000));
    }

    #[test]
    fn the_log_may_wait_out_its_delay_and_no_longer() {
        assert!(!intent(Some(6000), Some(6000)).is_rest(1000));
        assert!(intent(Some(6001), Some(6001)).is_rest(1000));
        assert!(intent(Some(4000), Some(6000)).is_rest(1000));
    }

    #[test]
    fn who_was_full_may_rest_for_a_while() {
        let mut watch = FullWatch::default();
        assert!(!watch.excuses(0));
        watch.last_us = Some(500);
        assert!(watch.excuses(500 + FULL_REST_US));
        assert!(!watch.excuses(501 + FULL_REST_US));
    }
}
