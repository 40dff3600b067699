//! A drive with commands waiting in it: which one is next, and when.

use super::command::{Command, Detail, Path, Served};
use super::description::{DriveDescription, Scheduler};
use super::layout::Layout;
use super::mechanics::{Direction, Mechanism};

/// A drive in virtual time. Commands are [offered](Drive::offer) with the time of their arrival,
/// and [served](Drive::serve_next) one after another in the order that the drive chooses.
#[derive(Clone, Debug)]
pub struct Drive {
    path: Path,
    sector_bytes: u32,
    scheduler: Scheduler,
    depth: usize,
    media_free_ms: f64,
    /// The LBN after the last command, for [`Scheduler::CLook`].
    next_lbn: u64,
    /// In the order of arrival.
    waiting: Vec<(u64, Command)>,
    /// When the commands in progress complete.
    completions_ms: Vec<f64>,
}

impl Drive {
    /// A drive whose description was checked, at time 0, with nothing to do.
    #[must_use]
    pub fn new(description: &DriveDescription, detail: Detail) -> Self {
        let path = Path {
            layout: Layout::new(description),
            mechanism: Mechanism::new(description),
            overheads: description.overhead_ms.clone(),
            bus: description.bus.clone(),
            detail,
            bus_free_ms: 0.0,
            previous: Direction::Read,
        };
        Self {
            path,
            sector_bytes: description.capacity.sector_bytes,
            scheduler: description.queue.scheduler,
            depth: description.queue.depth,
            media_free_ms: 0.0,
            next_lbn: 0,
            waiting: Vec::new(),
            completions_ms: Vec::new(),
        }
    }

    /// Lets the drive choose from this many commands, at least 1, in this way.
    pub fn set_queue(&mut self, depth: usize, scheduler: Scheduler) {
        (self.depth, self.scheduler) = (depth.max(1), scheduler);
    }

    /// Takes the sectors of a track in the order of LBNs from now on, whatever the drive can do.
    pub fn without_zero_latency(&mut self) {
        self.path.mechanism.without_zero_latency();
    }

    /// LBNs that the host may use.
    #[must_use]
    pub fn lbns(&self) -> u64 {
        self.path.layout.lbns()
    }

    /// Bytes of a sector.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Bytes that the host may use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lbns() * u64::from(self.sector_bytes)
    }

    /// Drops the commands that have not begun.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Adds a command; `number` comes back with its service.
    pub fn offer(&mut self, number: u64, command: Command) {
        let arrival_ms = command.arrival_ms;
        let before = |other: &(u64, Command)| other.1.arrival_ms <= arrival_ms;
        let at = self.waiting.partition_point(before);
        self.waiting.insert(at, (number, command));
    }

    /// When the drive begins with a command, if none arrives before, in milliseconds; `None` if
    /// none waits.
    #[must_use]
    pub fn next_ms(&self) -> Option<f64> {
        let (_, first) = self.waiting.first()?;
        let now_ms = self.media_free_ms.max(first.arrival_ms);
        let mut in_progress: Vec<_> =
            self.completions_ms.iter().filter(|completion_ms| **completion_ms > now_ms).collect();
        // A command enters the drive when one has left it.
        let Some(surplus) = in_progress.len().checked_sub(self.depth) else { return Some(now_ms) };
        in_progress.sort_by(|one, other| one.total_cmp(other));
        Some(*in_progress[surplus])
    }

    /// Serves one command to its end, at [`Drive::next_ms`], and returns its number; `None` if none
    /// waits.
    pub fn serve_next(&mut self) -> Option<(u64, Served)> {
        let now_ms = self.next_ms()?;
        self.completions_ms.retain(|completion_ms| *completion_ms > now_ms);
        let places = self.depth - self.completions_ms.len();
        let arrived = self.waiting.partition_point(|(_, command)| command.arrival_ms <= now_ms);
        let chosen = self.choose(&self.waiting[..arrived.min(places)], now_ms);
        let (number, command) = self.waiting.remove(chosen);
        let served = self.path.serve(&command, now_ms);
        self.media_free_ms = served.media_end_ms;
        self.completions_ms.push(served.completion_ms);
        self.next_lbn = command.lbn + command.sectors;
        Some((number, served))
    }

    /// The place of the best of these commands; of equals, the first.
    fn choose(&self, commands: &[(u64, Command)], now_ms: f64) -> usize {
        let cost = |command: &Command| match self.scheduler {
            Scheduler::Fcfs => 0.0,
            Scheduler::Sstf => self.path.seek_ms(command),
            Scheduler::Sptf => self.path.positioning_ms(command, now_ms),
            Scheduler::CLook => {
                let is_behind = command.lbn < self.next_lbn;
                // Those behind come after all that are not.
                command.lbn as f64 + if is_behind { self.lbns() as f64 } else { 0.0 }
            }
        };
        let costs = commands.iter().map(|(_, command)| cost(command));
        let best = costs.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
        best.map_or(0, |(place, _)| place)
    }
}
