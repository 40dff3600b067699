//! The measurements of a load, and their faults.
//!
//! | oracle | what must hold |
//! |---|---|
//! | rest | nothing rests while a caller waits for room: see [`crate::resting`] |
//! | wake | waiting callers are notified of room: see there |
//! | wait | a record waits for room no longer than [`RUN_TIMES_MAX`] runs take, and its turn |
//! | standstill | while callers wait, one is accepted at least that often |
//! | late | under a load below the capacity no record is accepted much later than it is due |
//! | load | under a load below the capacity as much is accepted as is offered |
//!
//! The evenness of acceptance under a load above the capacity is measured and not judged.

use std::collections::BTreeMap;

use crate::load::machine::Machine;
use crate::load::plan::Times;
use crate::resting::Refused;

/// Longest wait for room, in times of a run behind a full pipeline. Room is freed with every
/// publication, so one such time would suffice, except that a record may need the room of several
/// runs, and that a wait for a log of few segments also includes the last runs of a cycle, a
/// frontier, and the rest of one checkpoint and another. In 2,100 histories the longest time
/// without acceptance was 23 such times, and the longest wait, including turns of others, was 36.
pub const RUN_TIMES_MAX: u64 = 24;
/// Plus this many times the service time of all waiting callers at the rate of acceptance.
const TURNS_MAX: u64 = 4;
/// Share of the capacity that is offered under a load below it, in per cent.
pub const OPEN_PERCENT: u64 = 60;
/// Share of it that must be accepted, in per cent.
const ACCEPTED_PERCENT_MIN: u64 = 98;
/// Fill of queue memory from which a record was refused for it, in per cent: the rest is reserved.
const MEMORY_FULL_PERCENT: u32 = 85;
/// Windows of a cycle in which acceptance is measured.
const WINDOWS: u64 = 10;
/// Average number of acceptances of a window below which it is not significant.
const WINDOW_RECORDS_MIN: u64 = 20;

/// The criteria of judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table above has them")]
pub enum Oracle {
    Rest,
    Wake,
    Wait,
    Standstill,
    Late,
    Load,
}

/// The longest duration of some kind.
#[derive(Clone, Debug, Default)]
pub struct Longest {
    /// In microseconds.
    pub us: u64,
    /// What the engine was doing at its end.
    pub dump: String,
}

impl Longest {
    fn note(&mut self, us: u64, machine: &Machine) {
        // A slightly longer time gives no new information, and describing each would be slow.
        if us > self.us + self.us / 8 {
            self.dump = machine.dump();
        }
        self.us = self.us.max(us);
    }
}

/// The events of one phase of a load.
#[derive(Debug, Default)]
pub struct Journal {
    /// Records offered for the first time.
    pub offered: u64,
    /// When records were accepted, in microseconds.
    pub accepted_us: Vec<u64>,
    /// Records that were refused at first.
    pub waits: u64,
    /// Those that found memory full.
    pub memory_waits: u64,
    /// From the first refusal of a record to its acceptance.
    pub wait: Longest,
    /// From one acceptance to the next while a caller waits.
    pub standstill: Longest,
    /// From the due time of a record to its acceptance.
    pub late: Longest,
    /// The first rest while a caller waited.
    pub rest: Option<String>,
    /// The first caller that was not notified of available room.
    pub wake: Option<String>,
    /// Time since which no caller was accepted although one waits.
    stands_since_us: Option<u64>,
}

impl Journal {
    /// A record that was due at this time was accepted; this many others wait.
    pub fn accepted(
        &mut self,
        machine: &Machine,
        due_us: u64,
        refused: Option<Refused>,
        waiting: usize,
    ) {
        let now = machine.now_us();
        self.accepted_us.push(now);
        self.late.note(now - due_us, machine);
        if let Some(refused) = refused {
            self.wait.note(now - refused.since_us, machine);
            let fault = refused.wake_fault(&machine.core, machine.room_events, now);
            if let Some(fault) = fault.or_else(|| refused.log_fault(machine.room_events, now)) {
                self.wake.get_or_insert_with(|| format!("{fault}: {}", machine.dump()));
            }
        }
        if let Some(since) = self.stands_since_us.take() {
            self.standstill.note(now - since, machine);
        }
        self.stands_since_us = (waiting > 0).then_some(now);
    }

    /// A record was refused, perhaps for the first time.
    pub fn refused(&mut self, first: bool, machine: &Machine) {
        let is_memory_full = machine.core.queue_fill_percent() >= MEMORY_FULL_PERCENT;
        self.waits += u64::from(first);
        self.memory_waits += u64::from(first && is_memory_full);
        self.stands_since_us.get_or_insert(machine.now_us());
    }

    /// The phase is over while a record that was due at `due_us` waits for room.
    pub fn unfinished(&mut self, machine: &Machine, due_us: u64, refused: Refused) {
        let now = machine.now_us();
        self.late.note(now - due_us, machine);
        self.wait.note(now - refused.since_us, machine);
        if let Some(since) = self.stands_since_us {
            self.standstill.note(now - since, machine);
        }
    }

    /// Checks whether the engine rests while this caller sleeps.
    pub fn look(&mut self, machine: &Machine, refused: Refused) {
        if self.rest.is_none()
            && let Some(fault) = machine.rest_fault(refused)
        {
            self.rest = Some(format!("{fault}: {}", machine.dump()));
        }
    }

    /// Records accepted in `from..to`.
    #[must_use]
    pub fn accepted_in(&self, from_us: u64, to_us: u64) -> u64 {
        let before = |us: u64| self.accepted_us.partition_point(|at| *at < us) as u64;
        before(to_us) - before(from_us)
    }
}

/// A period with the number of records accepted in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Its begin, in microseconds.
    pub from_us: u64,
    /// Its end, in microseconds.
    pub to_us: u64,
    /// Records accepted.
    pub records: u64,
    /// Whole cycles of the sweep, if it consists of such.
    pub cycles: u64,
}

impl Stretch {
    /// The time for `records` at its rate, in microseconds.
    #[must_use]
    pub fn time_us(&self, records: u64) -> u64 {
        records * (self.to_us - self.from_us) / self.records.max(1)
    }
}

/// The least that was accepted in a tenth of a cycle, in per cent of the median; `None` if tenths
/// are too short to be significant.
#[must_use]
pub fn worst_window_percent(accepted_us: &[u64], stretch: Stretch) -> Option<u64> {
    let windows = stretch.cycles * WINDOWS;
    if windows == 0 || stretch.records / windows < WINDOW_RECORDS_MIN {
        return None;
    }
    let length = (stretch.to_us - stretch.from_us) / windows;
    let before = |us: u64| accepted_us.partition_point(|at| *at < us);
    let start = |window: u64| stretch.from_us + window * length;
    let count = |window| (before(start(window + 1)) - before(start(window))) as u64;
    let mut counts: Vec<u64> = (0..windows).map(count).collect();
    counts.sort_unstable();
    let median = counts[counts.len() / 2].max(1);
    Some(counts[0] * 100 / median)
}

/// Figures by which waits are judged.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Durations of the steps.
    pub times: Times,
    /// The rate of acceptance with callers at full speed.
    pub closed: Stretch,
    /// Number of callers.
    pub callers: u64,
}

impl Scale {
    /// Longest permitted time for this many records, in microseconds.
    #[must_use]
    pub fn most_us(&self, records: u64) -> u64 {
        let Times { run_us, spill_us, portion_us, segment_us } = self.times;
        let turns = TURNS_MAX * self.closed.time_us(records);
        RUN_TIMES_MAX * run_us + spill_us + portion_us + segment_us + turns
    }

    /// Faults of any phase.
    pub fn judge(&self, phase: &str, journal: &Journal, faults: &mut BTreeMap<Oracle, String>) {
        if let Some(rest) = &journal.rest {
            faults.entry(Oracle::Rest).or_insert_with(|| format!("{phase}: {rest}"));
        }
        if let Some(wake) = &journal.wake {
            faults.entry(Oracle::Wake).or_insert_with(|| format!("{phase}: {wake}"));
        }
        let run_us = self.times.run_us;
        let mut judge = |oracle, what: &str, longest: &Longest, most_us: u64| {
            if longest.us > most_us {
                let us = longest.us;
                let text = || {
                    let dump = &longest.dump;
                    format!("{phase}: {what} {us} us, at most {most_us} (a run: {run_us}): {dump}")
                };
                faults.entry(oracle).or_insert_with(text);
            }
        };
        judge(Oracle::Wait, "a wait of", &journal.wait, self.most_us(self.callers));
        judge(Oracle::Standstill, "no caller accepted for", &journal.standstill, self.most_us(1));
    }

    /// Faults of a phase below the capacity, which ended at this time; returns the percentage of
    /// the records offered in its second half that was accepted.
    pub fn judge_open(
        &self,
        journal: &Journal,
        due_us: impl Fn(u64) -> u64,
        machine: (u64, &str),
        faults: &mut BTreeMap<Oracle, String>,
    ) -> u64 {
        let (end_us, end) = machine;
        // The backlog of a wait is worked off with the capacity that the load leaves.
        let most_us = self.most_us(self.callers) * 100 / (100 - OPEN_PERCENT);
        let Longest { us, dump } = &journal.late;
        if *us > most_us {
            let text = || format!("a record was accepted {us} us late, at most {most_us}: {dump}");
            faults.entry(Oracle::Late).or_insert_with(text);
        }
        let middle_us = due_us(0).midpoint(end_us);
        let due_by = |end: u64| {
            let (mut low, mut high) = (0, u64::MAX >> 32);
            while low < high {
                let middle = u64::midpoint(low, high);
                if due_us(middle) < end { low = middle + 1 } else { high = middle }
            }
            low
        };
        // Some of the last records may still wait, within the permitted time.
        let last_us = end_us.saturating_sub(self.most_us(1));
        let offered = due_by(last_us.max(middle_us)) - due_by(middle_us);
        let accepted = journal.accepted_in(middle_us, end_us);
        if (accepted + self.callers) * 100 < offered * ACCEPTED_PERCENT_MIN {
            let text =
                || format!("{accepted} of {offered} records were accepted, late {us} us: {end}");
            faults.entry(Oracle::Load).or_insert_with(text);
        }
        (accepted * 100).checked_div(offered).map_or(100, |percent| percent.min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(to_us: u64, records: u64, cycles: u64) -> Stretch {
        Stretch { from_us: 0, to_us, records, cycles }
    }

    #[test]
    fn an_even_load_has_even_windows_and_a_pause_shows() {
        let even: Vec<u64> = (0..1000).map(|number| number * 10).collect();
        assert_eq!(worst_window_percent(&even, stretch(10_000, 1000, 1)), Some(100));
        let paused: Vec<u64> =
            even.iter().map(|at| at + if *at > 4000 { 2000 } else { 0 }).collect();
        let worst = worst_window_percent(&paused, stretch(12_000, 1000, 1));
        assert_eq!(worst, Some(0));
        assert_eq!(worst_window_percent(&even, stretch(10_000, 1000, 10)), None);
        assert_eq!(worst_window_percent(&even, stretch(10_000, 1000, 0)), None);
    }

    fn scale() -> Scale {
        let times =
            Times { run_us: 1600 / RUN_TIMES_MAX, spill_us: 10, portion_us: 5, segment_us: 0 };
        Scale { times, closed: stretch(1_000_000, 10_000, 3), callers: 2 }
    }

    #[test]
    fn a_wait_is_judged_by_runs_and_turns() {
        let most_us = scale().most_us(2);
        let runs_us = RUN_TIMES_MAX * scale().times.run_us;
        assert_eq!(most_us, runs_us + 15 + TURNS_MAX * 200);
        let mut faults = BTreeMap::new();
        let mut journal = Journal::default();
        journal.wait.us = most_us;
        scale().judge("test", &journal, &mut faults);
        assert!(faults.is_empty());
        journal.wait.us += 1;
        scale().judge("test", &journal, &mut faults);
        assert!(faults.keys().eq([&Oracle::Wait]));
    }

    #[test]
    fn an_open_load_must_be_accepted() {
        let due = |number: u64| number * 10;
        let mut journal =
            Journal { accepted_us: (0..1000).map(due).collect(), ..Journal::default() };
        let mut faults = BTreeMap::new();
        assert_eq!(scale().judge_open(&journal, due, (10_000, ""), &mut faults), 100);
        assert!(faults.is_empty());
        journal.accepted_us.truncate(980); // Records that may still wait do not count.
        assert_eq!(scale().judge_open(&journal, due, (10_000, ""), &mut faults), 100);
        assert!(faults.is_empty());
        journal.accepted_us.truncate(780);
        assert_eq!(scale().judge_open(&journal, due, (10_000, ""), &mut faults), 93);
        assert!(faults.keys().eq([&Oracle::Load]));
    }
}
