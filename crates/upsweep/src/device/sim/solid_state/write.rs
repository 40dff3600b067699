//! From the data of a write to programmed pages.
//!
//! Units gather in a page of the buffer. When the page is full, or a command cannot wait, it goes
//! to the next die with a free page. A unit that is written again while its page gathers replaces
//! the data there.

use super::device::{BufferedPage, Demand, Gathering, InProgress, SolidState};
use super::flash::{Job, Work};
use super::space::Writer;

impl SolidState {
    /// The data of a write is in the device: reads what it writes only in part.
    pub(super) fn data(&mut self, id: u64, now_ns: u64) {
        let Some(command) = self.commands.get(&id) else { return };
        let Demand::Write { offset, bytes, .. } = command.demand else { return };
        let (unit, end) = (self.geometry.unit_bytes, offset + bytes);
        let units = self.units(&(offset..end));
        let first = (!offset.is_multiple_of(unit)).then_some(units.start);
        let last = (!end.is_multiple_of(unit)).then_some(units.end - 1);
        let in_part = first.into_iter().chain(last.filter(|last| Some(*last) != first));
        if self.read_pages(Work::Modify(id), in_part, now_ns) == 0 {
            self.waiting.push_back(id);
            self.fill_buffer(now_ns);
        }
    }

    /// A page with a unit that a command writes in part has been read.
    pub(super) fn modified(&mut self, id: u64, now_ns: u64) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        command.pages_left -= 1;
        if command.pages_left == 0 {
            self.waiting.push_back(id);
            self.fill_buffer(now_ns);
        }
    }

    /// Puts the data of waiting writes into the buffer while it has room.
    pub(super) fn fill_buffer(&mut self, now_ns: u64) {
        while let Some(id) = self.waiting.front().copied() {
            if !self.place_command(id, now_ns) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Puts the rest of a write into the buffer; returns whether all of it had room.
    fn place_command(&mut self, id: u64, now_ns: u64) -> bool {
        let Some(command) = self.commands.get(&id) else { return true };
        let Demand::Write { offset, bytes, stable } = command.demand else { return true };
        let waits = !self.buffer.write_back || (stable && !self.buffer.power_protected);
        let waiter = waits.then_some(id);
        let next = command.next_unit;
        for unit in next..self.units(&(offset..offset + bytes)).end {
            if !self.place_unit(unit, waiter, now_ns) {
                self.command(id).next_unit = unit;
                return false;
            }
        }
        self.command(id).is_placed = true;
        if waits {
            let gathering = self.gathering.filter(|gathering| {
                self.pages.get(&gathering.page).is_some_and(|page| page.waiters.contains(&id))
            });
            if gathering.is_some() {
                self.program_gathered(now_ns);
            }
        } else {
            self.end(id, now_ns);
        }
        true
    }

    fn command(&mut self, id: u64) -> &mut InProgress {
        self.commands.get_mut(&id).expect("the command is in progress")
    }

    /// Puts a unit into the buffer; returns whether it had room.
    fn place_unit(&mut self, unit: u32, waiter: Option<u64>, now_ns: u64) -> bool {
        let place = self.map.place(unit).map(|place| self.geometry.page(place));
        let is_gathered = self.gathering.is_some_and(|found| Some(found.page) == place);
        if !is_gathered {
            let has_room = self.buffered_units < self.buffer.bytes / self.geometry.unit_bytes;
            if !has_room || (self.gathering.is_none() && !self.open_page()) {
                return false;
            }
        }
        let gathering = self.gathering.as_mut().expect("a page is open");
        let page = self.pages.get_mut(&gathering.page).expect("an open page is in the buffer");
        let waiter = waiter.filter(|id| page.waiters.last() != Some(id));
        page.waiters.extend(waiter);
        self.counters.host_units += 1;
        let place = gathering.page + gathering.used;
        if !is_gathered {
            gathering.used += 1;
            page.host_units += 1;
            self.buffered_units += 1;
            if let Some(die) = self.move_unit(unit, Some(place)) {
                self.kick(die, now_ns);
            }
        }
        if let Some(id) = waiter {
            self.command(id).pages_left += 1;
        }
        if self.gathering.is_some_and(|found| found.used == self.geometry.page_slots) {
            self.program_gathered(now_ns);
        }
        true
    }

    /// Opens a page on the next die that has one.
    fn open_page(&mut self) -> bool {
        for _ in 0..self.geometry.dies {
            let die = self.next_die;
            self.next_die = (die + 1) % self.geometry.dies;
            if let Some(page) = self.spaces[die as usize].take_page(Writer::Host) {
                self.pages.insert(page, BufferedPage::default());
                self.gathering = Some(Gathering { page, used: 0 });
                return true;
            }
        }
        false
    }

    /// Moves a unit to a place, or removes it. The place that it leaves holds nothing any more:
    /// returns the die of that, which may have something to clean now.
    pub(super) fn move_unit(&mut self, unit: u32, to: Option<u32>) -> Option<u32> {
        if let Some(place) = to {
            let (die, ..) = self.geometry.parts(place);
            self.spaces[die as usize].record(place, unit);
        }
        let before = self.map.put(unit, to)?;
        let (die, ..) = self.geometry.parts(before);
        self.spaces[die as usize].lose(before, self.map.filled());
        Some(die)
    }

    /// Sends the page that gathers to its die.
    fn program_gathered(&mut self, now_ns: u64) {
        let Some(Gathering { page, used }) = self.gathering.take() else { return };
        self.counters.padding_units += u64::from(self.geometry.page_slots - used);
        let (die, ..) = self.geometry.parts(page);
        let bytes = u64::from(used) * self.geometry.unit_bytes;
        self.queues[die as usize].programs.push_back(Job { work: Work::Program(page), bytes });
        self.kick(die, now_ns);
    }

    /// A page has been programmed: its room in the buffer is free, and nothing waits for it.
    pub(super) fn programmed(&mut self, page: u32, now_ns: u64) {
        let (die, ..) = self.geometry.parts(page);
        self.spaces[die as usize].programmed(page);
        let page = self.pages.remove(&page).expect("a page that is programmed is in the buffer");
        self.buffered_units -= page.host_units;
        for id in page.waiters {
            let Some(command) = self.commands.get_mut(&id) else { continue };
            command.pages_left -= 1;
            if command.pages_left == 0 && command.is_placed {
                self.end(id, now_ns + self.persist_ns);
            }
        }
        self.fill_buffer(now_ns);
    }

    /// Waits for every page of the host in the buffer, if a power cut would lose them.
    pub(super) fn flush(&mut self, id: u64, now_ns: u64) {
        let mut pages = 0;
        if !self.buffer.power_protected {
            self.program_gathered(now_ns);
            for page in self.pages.values_mut().filter(|page| page.host_units > 0) {
                page.waiters.push(id);
                pages += 1;
            }
        }
        let command = self.command(id);
        (command.pages_left, command.is_placed) = (pages, true);
        if pages == 0 {
            self.end(id, now_ns);
        }
    }
}
