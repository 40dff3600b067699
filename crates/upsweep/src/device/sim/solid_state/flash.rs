//! Dies and channels: what each of them does, and until when.
//!
//! A die does one job at a time. A read takes the cells first and the channel then, a program the
//! channel first; the die is occupied meanwhile. A channel serves its dies in the order in which
//! they ask for it.

use std::collections::VecDeque;

use super::description::{Flash, transfer_ns};
use super::events::{Event, Events};

/// What a die is to do, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Read for a command of the host.
    Read(u64),
    /// Read the rest of a unit that a command writes in part.
    Modify(u64),
    /// Read a page of the block that is being cleaned.
    Copy,
    /// Program the page at this place.
    Program(u32),
    /// Erase the block that is being cleaned.
    Erase,
}

/// A job of a die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    /// What crosses the channel.
    pub(super) bytes: u64,
}

/// The dies and channels of a device.
#[derive(Clone, Debug)]
pub(super) struct Chips {
    times: Flash,
    dies: Vec<Option<Job>>,
    channels: Vec<Channel>,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// The dies that use it or wait for it.
    dies: VecDeque<u32>,
}

impl Chips {
    pub(super) fn new(times: &Flash, dies: u32) -> Self {
        Self {
            times: times.clone(),
            dies: vec![None; dies as usize],
            channels: vec![Channel::default(); times.channels as usize],
        }
    }

    /// Whether a die has no job.
    pub(super) fn is_idle(&self, die: u32) -> bool {
        self.dies[die as usize].is_none()
    }

    /// Begins a job on an idle die.
    pub(super) fn start(&mut self, die: u32, job: Job, now_ns: u64, events: &mut Events) {
        self.dies[die as usize] = Some(job);
        match job.work {
            Work::Read(_) | Work::Modify(_) | Work::Copy => {
                events.plan(now_ns + self.times.read_ns, Event::Cells(die));
            }
            Work::Program(_) => self.ask_for_channel(die, now_ns, events),
            Work::Erase => events.plan(now_ns + self.times.erase_ns, Event::Cells(die)),
        }
    }

    /// The cells of a die are ready. Returns its job if that ends it.
    pub(super) fn cells(&mut self, die: u32, now_ns: u64, events: &mut Events) -> Option<Job> {
        let job = self.dies[die as usize].expect("a die whose cells are busy has a job");
        match job.work {
            Work::Read(_) | Work::Modify(_) | Work::Copy => {
                self.ask_for_channel(die, now_ns, events);
                None
            }
            Work::Program(_) | Work::Erase => self.dies[die as usize].take(),
        }
    }

    /// Data has crossed a channel. Returns the die whose job this ends, and the job.
    pub(super) fn crossed(
        &mut self,
        channel: u32,
        now_ns: u64,
        events: &mut Events,
    ) -> Option<(u32, Job)> {
        let dies = &mut self.channels[channel as usize].dies;
        let die = dies.pop_front().expect("a channel that was crossed has a die");
        if let Some(next) = dies.front().copied() {
            self.cross(next, now_ns, events);
        }
        let job = self.dies[die as usize].expect("a die on a channel has a job");
        if let Work::Program(_) = job.work {
            events.plan(now_ns + self.times.program_ns, Event::Cells(die));
            return None;
        }
        self.dies[die as usize] = None;
        Some((die, job))
    }

    fn ask_for_channel(&mut self, die: u32, now_ns: u64, events: &mut Events) {
        let dies = &mut self.channels[(die % self.times.channels) as usize].dies;
        dies.push_back(die);
        if dies.len() == 1 {
            self.cross(die, now_ns, events);
        }
    }

    /// Begins to transfer the data of a die.
    fn cross(&self, die: u32, now_ns: u64, events: &mut Events) {
        let job = self.dies[die as usize].expect("a die on a channel has a job");
        let end_ns = now_ns + transfer_ns(job.bytes, self.times.channel_mb_s);
        events.plan(end_ns, Event::Crossed(die % self.times.channels));
    }
}
