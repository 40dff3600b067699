//! A device with commands in it: from their arrival to their completion.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::description::{
    Cleaning, FillOrder, Geometry, Host, SolidStateDescription, WriteBuffer, transfer_ns,
};
use super::events::{Event, Events};
use super::filled::Filled;
use super::flash::{Chips, Job, Work};
use super::map::Map;
use super::space::Space;

/// What a command asks for. Ranges are in bytes, not empty and within the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Reads a range.
    Read {
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Writes a range.
    Write {
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Whether the command completes only when the data survives a power cut.
        stable: bool,
    },
    /// Completes when all data that the device has accepted survives a power cut.
    Flush,
    /// Gives up the content of a range: of the units of the mapping that are wholly in it.
    Discard {
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
}

impl Demand {
    pub(super) fn range(&self) -> Range<u64> {
        match *self {
            Self::Read { offset, bytes }
            | Self::Write { offset, bytes, .. }
            | Self::Discard { offset, bytes } => offset..offset.saturating_add(bytes),
            Self::Flush => 0..0,
        }
    }
}

/// What a device has done since time 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units of the mapping that the host wrote.
    pub host_units: u64,
    /// Units that cleaning copied.
    pub copied_units: u64,
    /// Slots for units that stayed empty because a page could not wait for more.
    pub padding_units: u64,
    /// Pages read, for any purpose.
    pub pages_read: u64,
    /// Pages programmed.
    pub pages_programmed: u64,
    /// Blocks erased.
    pub blocks_erased: u64,
}

/// A solid-state device in virtual time.
///
/// Commands [arrive](Self::arrive) in the order of time, and [`advance`](Self::advance) returns
/// those that have completed. What happens does not depend on when and how often it is called. At
/// equal times, what the device does comes before what arrives.
///
/// Costs: memory for what was written since time 0, about 10 bytes for each unit of the mapping
/// that was written in sequence and up to 400 for one that was written alone, and for what was
/// written over. Time for each page and each unit of a command, but nothing for the capacity.
#[derive(Clone, Debug)]
pub struct SolidState {
    pub(super) geometry: Geometry,
    pub(super) cleaning: Cleaning,
    pub(super) buffer: WriteBuffer,
    host: Host,
    pub(super) persist_ns: u64,
    pub(super) events: Events,
    now_ns: u64,
    pub(super) map: Map,
    pub(super) spaces: Vec<Space>,
    pub(super) chips: Chips,
    pub(super) queues: Vec<Queue>,
    /// By number of arrival.
    pub(super) commands: BTreeMap<u64, InProgress>,
    arrived: u64,
    /// Commands that have ended: the caller's number, and when.
    ended: Vec<(u64, u64)>,
    controller_free_ns: u64,
    /// When the interface is free: for data to the host, and from it.
    interface_free_ns: [u64; 2],
    /// Writes whose data waits for room in the buffer.
    pub(super) waiting: VecDeque<u64>,
    /// Pages in the buffer, by their first place.
    pub(super) pages: BTreeMap<u32, BufferedPage>,
    /// Units of the host in them.
    pub(super) buffered_units: u64,
    /// The page that data of the host goes to.
    pub(super) gathering: Option<Gathering>,
    /// The page of each die that cleaning copies to.
    pub(super) copying: Vec<Option<Gathering>>,
    /// The die that is next to get a page of the host.
    pub(super) next_die: u32,
    pub(super) counters: Counters,
}

/// Jobs that wait for a die.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) reads: VecDeque<Job>,
    pub(super) programs: VecDeque<Job>,
    pub(super) copies: VecDeque<Job>,
    /// Reads since the last other job.
    pub(super) reads_in_row: u32,
}

/// A command that has not ended.
#[derive(Clone, Debug)]
pub(super) struct InProgress {
    number: u64,
    pub(super) demand: Demand,
    /// Pages that it waits for.
    pub(super) pages_left: u32,
    /// Bytes that have not been sent to the host.
    bytes_left: u64,
    /// The next unit to put into the buffer.
    pub(super) next_unit: u32,
    /// Whether all of its data has a place.
    pub(super) is_placed: bool,
}

/// A page in the buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct BufferedPage {
    /// Units of the host in it.
    pub(super) host_units: u64,
    /// Commands that wait until it is programmed.
    pub(super) waiters: Vec<u64>,
}

/// A page to which units are still added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// Its first place.
    pub(super) page: u32,
    pub(super) used: u32,
}

impl SolidState {
    /// A device whose description was checked, at time 0.
    #[must_use]
    pub fn new(description: &SolidStateDescription) -> Self {
        let geometry = description.geometry();
        let free_blocks = match description.start.order {
            FillOrder::Sequential => 0,
            FillOrder::Random => description.cleaning.free_blocks_low,
        };
        let filled = Filled::new(geometry, &description.start, free_blocks);
        let dies = geometry.dies as usize;
        Self {
            geometry,
            cleaning: description.cleaning.clone(),
            buffer: description.buffer.clone(),
            host: description.host.clone(),
            persist_ns: description.mapping.persist_ns,
            events: Events::default(),
            now_ns: 0,
            spaces: (0..geometry.dies).map(|die| Space::new(geometry, die, &filled)).collect(),
            map: Map::new(filled),
            chips: Chips::new(&description.flash, geometry.dies),
            queues: vec![Queue::default(); dies],
            commands: BTreeMap::new(),
            arrived: 0,
            ended: Vec::new(),
            controller_free_ns: 0,
            interface_free_ns: [0; 2],
            waiting: VecDeque::new(),
            pages: BTreeMap::new(),
            buffered_units: 0,
            gathering: None,
            copying: vec![None; dies],
            next_die: 0,
            counters: Counters::default(),
        }
    }

    /// Bytes that the host may use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.geometry.units) * self.geometry.unit_bytes
    }

    /// Takes a command at `now_ns`, not before an earlier call; `number` comes back when it has
    /// completed.
    ///
    /// # Panics
    /// If its range is empty or not within the capacity.
    pub fn arrive(&mut self, number: u64, demand: Demand, now_ns: u64) {
        let range = demand.range();
        let is_inside = demand == Demand::Flush || (!range.is_empty() && range.end <= self.bytes());
        assert!(is_inside, "a command is inside of its device: {demand:?}");
        self.run(now_ns);
        self.arrived += 1;
        let command = InProgress {
            number,
            demand,
            pages_left: 0,
            bytes_left: range.end - range.start,
            next_unit: (range.start / self.geometry.unit_bytes) as u32,
            is_placed: false,
        };
        self.commands.insert(self.arrived, command);
        let begin_ns = self.controller_free_ns.max(self.now_ns) + self.host.command_ns;
        self.controller_free_ns = begin_ns;
        self.events.plan(begin_ns, Event::Begin(self.arrived));
    }

    /// Takes a command that is no work for the device.
    pub(super) fn end_at_once(&mut self, number: u64, now_ns: u64) {
        self.run(now_ns);
        self.ended.push((number, self.now_ns));
    }

    /// When something next happens in the device, even if no command completes with it; `None` if
    /// it has nothing to do.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.ended.is_empty() { self.events.next_ns() } else { Some(self.now_ns) }
    }

    /// Lets everything happen up to `now_ns`; appends the number and the time of each command that
    /// has completed since the last call, in the order of time.
    pub fn advance(&mut self, now_ns: u64, completed: &mut Vec<(u64, u64)>) {
        self.run(now_ns);
        completed.append(&mut self.ended);
    }

    /// Drops all commands, as in a power cut; none of them completes. The device ends what it is
    /// doing.
    pub fn forget(&mut self) {
        self.commands.clear();
        self.waiting.clear();
        self.ended.clear();
    }

    /// The time up to which everything has happened.
    #[cfg(test)]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// What it has done up to the last call.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn run(&mut self, now_ns: u64) {
        while let Some((at_ns, event)) = self.events.take(now_ns) {
            self.now_ns = at_ns;
            self.happen(event, at_ns);
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    fn happen(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Begin(id) => self.begin(id, now_ns),
            Event::Data(id) => self.data(id, now_ns),
            Event::Cells(die) => {
                if let Some(job) = self.chips.cells(die, now_ns, &mut self.events) {
                    self.done(die, job, now_ns);
                }
            }
            Event::Crossed(channel) => {
                let done = self.chips.crossed(channel, now_ns, &mut self.events);
                if let Some((die, job)) = done {
                    self.done(die, job, now_ns);
                }
            }
            Event::End(id) => {
                let ended = self.commands.remove(&id);
                self.ended.extend(ended.map(|command| (command.number, now_ns)));
            }
        }
    }

    fn begin(&mut self, id: u64, now_ns: u64) {
        let Some(command) = self.commands.get(&id) else { return };
        match command.demand {
            Demand::Read { offset, bytes } => self.read(id, offset..offset + bytes, now_ns),
            Demand::Write { bytes, .. } => {
                let at_ns = self.cross_interface(1, bytes, now_ns);
                self.events.plan(at_ns, Event::Data(id));
            }
            Demand::Flush => self.flush(id, now_ns),
            Demand::Discard { offset, bytes } => {
                let unit = self.geometry.unit_bytes;
                let units = offset.div_ceil(unit) as u32..((offset + bytes) / unit) as u32;
                for unit in self.map.mapped(units.start, units.end) {
                    if let Some(die) = self.move_unit(unit, None) {
                        self.kick(die, now_ns);
                    }
                }
                self.end(id, now_ns);
            }
        }
    }

    /// The units that a range touches.
    pub(super) fn units(&self, bytes: &Range<u64>) -> Range<u32> {
        let unit = self.geometry.unit_bytes;
        (bytes.start / unit) as u32..bytes.end.div_ceil(unit) as u32
    }

    fn read(&mut self, id: u64, bytes: Range<u64>, now_ns: u64) {
        let units = self.units(&bytes);
        let all = units.len() as u64;
        let from_flash = self.read_pages(Work::Read(id), units, now_ns);
        let pages = self.commands.get(&id).map_or(0, |command| command.pages_left);
        if from_flash < all || pages == 0 {
            self.send(id, all - from_flash, now_ns);
        }
    }

    /// Reads those of these units that are in flash, page by page, for a command; returns how many.
    pub(super) fn read_pages(
        &mut self,
        work: Work,
        units: impl IntoIterator<Item = u32>,
        now_ns: u64,
    ) -> u64 {
        let mut pages = BTreeMap::new();
        for unit in units {
            let page = self.map.place(unit).map(|place| self.geometry.page(place));
            if let Some(page) = page.filter(|page| !self.pages.contains_key(page)) {
                *pages.entry(page).or_insert(0) += 1;
            }
        }
        let (Work::Read(id) | Work::Modify(id)) = work else { return 0 };
        if let Some(command) = self.commands.get_mut(&id) {
            command.pages_left = pages.len() as u32;
        }
        for (page, units) in &pages {
            let (die, ..) = self.geometry.parts(*page);
            let job = Job { work, bytes: units * self.geometry.unit_bytes };
            self.queues[die as usize].reads.push_back(job);
            self.kick(die, now_ns);
        }
        pages.into_values().sum()
    }

    /// Sends units of a read to the host. With the last of them, the command ends.
    fn send(&mut self, id: u64, units: u64, now_ns: u64) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        let bytes = command.bytes_left.min(units * self.geometry.unit_bytes);
        command.bytes_left -= bytes;
        let is_last = command.pages_left == 0;
        let sent_ns = self.cross_interface(0, bytes, now_ns);
        if is_last {
            self.end(id, sent_ns);
        }
    }

    /// Ends a command whose work is done at `now_ns`.
    pub(super) fn end(&mut self, id: u64, now_ns: u64) {
        self.events.plan(now_ns + self.host.latency_ns, Event::End(id));
    }

    /// When data has crossed the interface: to the host (0) or from it (1).
    fn cross_interface(&mut self, way: usize, bytes: u64, now_ns: u64) -> u64 {
        let way = if self.host.full_duplex { way } else { 0 };
        let free_ns = &mut self.interface_free_ns[way];
        *free_ns = now_ns.max(*free_ns) + transfer_ns(bytes, self.host.mb_s);
        *free_ns
    }

    /// A die has ended a job.
    fn done(&mut self, die: u32, job: Job, now_ns: u64) {
        match job.work {
            Work::Read(id) => {
                self.counters.pages_read += 1;
                if let Some(command) = self.commands.get_mut(&id) {
                    command.pages_left -= 1;
                }
                self.send(id, job.bytes / self.geometry.unit_bytes, now_ns);
            }
            Work::Modify(id) => {
                self.counters.pages_read += 1;
                self.modified(id, now_ns);
            }
            Work::Copy => {
                self.counters.pages_read += 1;
                self.copy_units(die);
            }
            Work::Program(page) => {
                self.counters.pages_programmed += 1;
                self.programmed(page, now_ns);
            }
            Work::Erase => {
                self.counters.blocks_erased += 1;
                self.spaces[die as usize].erased();
                self.fill_buffer(now_ns);
            }
        }
        self.kick(die, now_ns);
    }
}
