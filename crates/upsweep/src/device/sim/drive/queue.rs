//! A drive with commands waiting in it: which one is next, and when.

use std::collections::VecDeque;

use super::command::{Command, Detail, Operation, Path, Served};
use super::description::{DriveDescription, Scheduler};
use super::layout::Piece;
use super::mechanics::Direction;
use super::pipeline::Pipeline;

/// A drive in virtual time. Commands are [offered](Drive::offer) with the time of their arrival,
/// and [served](Drive::serve_until) in the order that the drive chooses.
///
/// What the drive does at a time depends on the commands that have arrived by then and on nothing
/// else: not on commands that arrive later, nor on when it is asked.
#[derive(Clone, Debug)]
pub struct Drive {
    sector_bytes: u32,
    parts: Parts,
    service: Service,
}

/// How a drive works on commands.
#[derive(Clone, Debug)]
enum Service {
    /// On one after another, each from its processing to its end on the media, which is then free
    /// from this time on.
    InTurn(f64),
    /// On several at a time, with a buffer.
    Pipelined(Box<Pipeline>),
}

/// What both ways of service use.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) path: Path,
    pub(super) arrivals: Arrivals,
    pub(super) choice: Choice,
}

/// Commands before the drive begins with them, and the places that they find in it.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// Most commands in the drive.
    pub(super) depth: usize,
    /// In the order of arrival.
    waiting: VecDeque<(u64, Command)>,
    /// When the commands in progress end, ascending.
    ends_ms: Vec<f64>,
}

impl Arrivals {
    fn arrived(&self, now_ms: f64) -> usize {
        self.waiting.partition_point(|(_, command)| command.arrival_ms <= now_ms)
    }

    fn in_progress(&self, now_ms: f64) -> usize {
        self.ends_ms.len() - self.ends_ms.partition_point(|end_ms| *end_ms <= now_ms)
    }

    /// How many of the waiting commands are in the drive, if `inside` others are in it whose end is
    /// not known. A command enters when one has left.
    pub(super) fn entered(&self, now_ms: f64, inside: usize) -> usize {
        let places = self.depth.saturating_sub(self.in_progress(now_ms) + inside);
        let first = self.waiting.iter().take(places);
        first.take_while(|(_, command)| command.arrival_ms <= now_ms).count()
    }

    /// A waiting command.
    pub(super) fn get(&self, place: usize) -> &Command {
        &self.waiting[place].1
    }

    /// Takes out a waiting command.
    pub(super) fn take(&mut self, place: usize) -> (u64, Command) {
        self.waiting.remove(place).expect("the drive chose a command that waits")
    }

    /// A command will leave the drive at this time.
    pub(super) fn end(&mut self, end_ms: f64) {
        let place = self.ends_ms.partition_point(|other_ms| *other_ms <= end_ms);
        self.ends_ms.insert(place, end_ms);
    }

    /// Forgets commands that have left the drive.
    pub(super) fn forget(&mut self, now_ms: f64) {
        self.ends_ms.retain(|end_ms| *end_ms > now_ms);
    }

    /// When the next command can enter the drive after this time.
    pub(super) fn next_entry_ms(&self, now_ms: f64, inside: usize) -> Option<f64> {
        let entered = self.entered(now_ms, inside);
        let (_, next) = self.waiting.get(entered)?;
        if next.arrival_ms > now_ms {
            return Some(next.arrival_ms);
        }
        // It waits for a place.
        let gone = self.ends_ms.partition_point(|end_ms| *end_ms <= now_ms);
        self.ends_ms.get(gone).copied()
    }

    /// When the drive can begin with a command if it does nothing else from `free_ms` on.
    fn start_ms(&self, free_ms: f64) -> Option<f64> {
        let now_ms = free_ms.max(self.waiting.front()?.1.arrival_ms);
        let is_full = self.in_progress(now_ms) >= self.depth;
        Some(if is_full { self.ends_ms[self.ends_ms.len() - self.depth] } else { now_ms })
    }
}

/// How the drive compares what it could do next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    scheduler: Scheduler,
    /// The LBN after the last sectors, for [`Scheduler::CLook`].
    pub(super) next_lbn: u64,
}

impl Choice {
    /// The cost of sectors from `lbn` on, of which `first` is the part on the first track, if the
    /// drive begins to move its head at `begin_ms`, and data to write crosses the bus from
    /// `data_ms` on. What costs least is next; of equals, what came first.
    pub(super) fn cost(
        &self,
        path: &Path,
        direction: Direction,
        (lbn, first): (u64, &Piece),
        begin_ms: f64,
        data_ms: f64,
    ) -> f64 {
        match self.scheduler {
            Scheduler::Fcfs => 0.0,
            Scheduler::Sstf => path.mechanism.positioning_ms(first.head(), direction),
            Scheduler::Sptf => path.positioning_ms(direction, first, begin_ms, data_ms),
            Scheduler::CLook => {
                let is_behind = lbn < self.next_lbn;
                // Those behind come after all that are not.
                lbn as f64 + if is_behind { path.layout.lbns() as f64 } else { 0.0 }
            }
        }
    }
}

impl Drive {
    /// A drive whose description was checked, at time 0, with nothing to do.
    #[must_use]
    pub fn new(description: &DriveDescription, detail: Detail) -> Self {
        let depth = description.queue.depth;
        Self {
            sector_bytes: description.capacity.sector_bytes,
            parts: Parts {
                path: Path::new(description, detail),
                arrivals: Arrivals { depth, waiting: VecDeque::new(), ends_ms: Vec::new() },
                choice: Choice { scheduler: description.queue.scheduler, next_lbn: 0 },
            },
            service: match detail {
                Detail::Mechanics | Detail::Overheads => Service::InTurn(0.0),
                Detail::Full => Service::Pipelined(Box::new(Pipeline::new(description))),
            },
        }
    }

    /// Lets the drive hold and choose from this many commands, at least 1, in this way.
    pub fn set_queue(&mut self, depth: usize, scheduler: Scheduler) {
        (self.parts.arrivals.depth, self.parts.choice.scheduler) = (depth.max(1), scheduler);
    }

    /// Takes the sectors of a track in the order of LBNs from now on, whatever the drive can do.
    pub fn without_zero_latency(&mut self) {
        self.parts.path.mechanism.without_zero_latency();
    }

    /// LBNs that the host may use.
    #[must_use]
    pub fn lbns(&self) -> u64 {
        self.parts.path.layout.lbns()
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

    /// Drops the commands that have not begun, and in full detail those that wait for the media and
    /// what is in the buffer, as if the power had gone for a moment.
    pub fn forget(&mut self) {
        self.parts.arrivals.waiting.clear();
        if let Service::Pipelined(pipeline) = &mut self.service {
            pipeline.forget(&mut self.parts);
        }
    }

    /// Adds a command; `number` comes back with its service. Commands that arrive by a time must be
    /// offered before the drive is asked to serve up to that time.
    ///
    /// # Panics
    /// If a sector of it does not exist, when it is served.
    pub fn offer(&mut self, number: u64, command: Command) {
        let arrivals = &mut self.parts.arrivals;
        let at = arrivals.arrived(command.arrival_ms);
        arrivals.waiting.insert(at, (number, command));
    }

    /// When the drive next does something, if no further command arrives: when it begins with a
    /// command, or with work of its own, such as writing what is in its buffer to the media. `None`
    /// if it has nothing to do.
    #[must_use]
    pub fn next_ms(&self) -> Option<f64> {
        match &self.service {
            Service::InTurn(free_ms) => self.parts.arrivals.start_ms(*free_ms),
            Service::Pipelined(pipeline) => pipeline.next_ms(&self.parts),
        }
    }

    /// Does what begins at or before `limit_ms`, in the order of time, up to the first command of
    /// which the end is then known, and returns its number; `None` if there is none.
    pub fn serve_until(&mut self, limit_ms: f64) -> Option<(u64, Served)> {
        match &mut self.service {
            Service::InTurn(free_ms) => {
                let now_ms = self.parts.arrivals.start_ms(*free_ms)?;
                (now_ms <= limit_ms).then(|| self.parts.serve_in_turn(now_ms, free_ms))
            }
            Service::Pipelined(pipeline) => pipeline.serve_until(&mut self.parts, limit_ms),
        }
    }

    /// The same without a limit: for a caller who offers the next command only once one is served.
    pub fn serve_next(&mut self) -> Option<(u64, Served)> {
        self.serve_until(f64::INFINITY)
    }
}

impl Parts {
    /// Serves one command to its end.
    fn serve_in_turn(&mut self, now_ms: f64, free_ms: &mut f64) -> (u64, Served) {
        self.arrivals.forget(now_ms);
        let chosen = self.choose(self.arrivals.entered(now_ms, 0), now_ms);
        let (number, command) = self.arrivals.take(chosen);
        if command.operation == Operation::Flush {
            // Every write ends on the media.
            let (media_end_ms, completion_ms) = (now_ms, now_ms);
            let served =
                Served { start_ms: now_ms, media_end_ms, completion_ms, ..Served::default() };
            return (number, served);
        }
        let served = self.path.serve(&command, now_ms);
        *free_ms = served.media_end_ms;
        self.arrivals.end(served.completion_ms);
        self.choice.next_lbn = command.end();
        (number, served)
    }

    /// The place of the best of the first commands that wait.
    fn choose(&self, entered: usize, now_ms: f64) -> usize {
        let cost = |place| {
            let command = self.arrivals.get(place);
            if command.operation == Operation::Flush {
                return 0.0;
            }
            let direction = command.operation.direction();
            let begin_ms = now_ms + self.path.overhead_ms(direction, false);
            let data_ms = begin_ms.max(self.path.bus.free_ms());
            let first = self.path.layout.piece(command.lbn, command.end());
            self.choice.cost(&self.path, direction, (command.lbn, &first), begin_ms, data_ms)
        };
        let costs = (0..entered).map(|place| (place, cost(place)));
        let best = costs.min_by(|(_, one), (_, other)| one.total_cmp(other));
        best.map_or(0, |(place, _)| place)
    }
}
