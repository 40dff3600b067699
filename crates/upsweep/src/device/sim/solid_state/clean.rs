//! What a die does next, and the cleaning of its blocks.
//!
//! Cleaning chooses the block with the fewest units (greedy), reads its pages that still hold some,
//! copies these to another block of the die, and erases it. With little free space it keeps pace
//! with the host: when the host has used as many slots as the block will free, the block is clean.

use super::device::{BufferedPage, Gathering, SolidState};
use super::flash::{Job, Work};
use super::space::{Victim, Writer};

/// Reads that overtake a page that waits to be programmed.
const READS_IN_ROW: u32 = 16;

impl SolidState {
    /// Lets an idle die begin its next job.
    pub(super) fn kick(&mut self, die: u32, now_ns: u64) {
        if self.chips.is_idle(die)
            && let Some(job) = self.next_job(die)
        {
            self.chips.start(die, job, now_ns, &mut self.events);
        }
    }

    fn next_job(&mut self, die: u32) -> Option<Job> {
        let must_clean = self.must_clean(die);
        let queue = &mut self.queues[die as usize];
        let others_wait = must_clean || !queue.programs.is_empty() || !queue.copies.is_empty();
        if (queue.reads_in_row < READS_IN_ROW || !others_wait)
            && let Some(job) = queue.reads.pop_front()
        {
            queue.reads_in_row += 1;
            return Some(job);
        }
        queue.reads_in_row = 0;
        if let Some(job) = queue.copies.pop_front() {
            return Some(job);
        }
        if must_clean && let Some(job) = self.cleaning_job(die) {
            return Some(job);
        }
        let index = die as usize;
        if let Some(job) = self.queues[index].programs.pop_front() {
            if let Some(victim) = &mut self.spaces[index].victim {
                victim.hosted += self.geometry.page_slots;
            }
            return Some(job);
        }
        let space = &self.spaces[index];
        let goal = self.cleaning.free_blocks_idle * self.geometry.slots;
        let cleans = space.victim.is_some() || space.free_slots() < goal;
        let job = if cleans { self.cleaning_job(die) } else { None };
        job.or_else(|| self.queues[index].reads.pop_front())
    }

    /// Whether cleaning comes before pages of the host.
    fn must_clean(&self, die: u32) -> bool {
        let space = &self.spaces[die as usize];
        let slots = self.geometry.slots;
        if space.free_slots() >= self.cleaning.free_blocks_low * slots {
            return false;
        }
        space.victim.is_none_or(|Victim { live, passed, hosted, .. }| {
            let (passed, hosted) = (u64::from(passed), u64::from(hosted));
            passed == u64::from(slots)
                || passed * u64::from(slots - live) <= hosted * u64::from(slots)
        })
    }

    /// The next step of cleaning; `None` if no block has anything to gain.
    fn cleaning_job(&mut self, die: u32) -> Option<Job> {
        let index = die as usize;
        if self.spaces[index].victim.is_none() {
            self.spaces[index].choose_victim(self.map.filled());
        }
        let mut victim = self.spaces[index].victim?;
        let mut job = Job { work: Work::Erase, bytes: 0 };
        while victim.passed < self.geometry.slots {
            let page = self.geometry.place(die, victim.block, victim.passed);
            victim.passed += self.geometry.page_slots;
            let held: Vec<_> = self.spaces[index].held(page, &self.map).collect();
            if !held.is_empty() {
                let bytes = held.len() as u64 * self.geometry.unit_bytes;
                job = Job { work: Work::Copy, bytes };
                self.spaces[index].copied = held;
                break;
            }
        }
        self.spaces[index].victim = Some(victim);
        Some(job)
    }

    /// Moves the units that the page that was read still holds to the block of copies.
    pub(super) fn copy_units(&mut self, die: u32) {
        let index = die as usize;
        for (unit, place) in std::mem::take(&mut self.spaces[index].copied) {
            if self.map.place(unit) != Some(place) {
                continue;
            }
            let Gathering { page, used } = self.copying[index].unwrap_or_else(|| {
                let page = self.spaces[index].take_page(Writer::Cleaning);
                // The host leaves one block free, and a block that is cleaned fits into it.
                let page = page.expect("a die has a free block to clean into");
                self.pages.insert(page, BufferedPage::default());
                Gathering { page, used: 0 }
            });
            self.counters.copied_units += 1;
            let gathering = Gathering { page, used: used + 1 };
            self.copying[index] = Some(gathering);
            if gathering.used == self.geometry.page_slots {
                self.copying[index] = None;
                let bytes = u64::from(gathering.used) * self.geometry.unit_bytes;
                self.queues[index].copies.push_back(Job { work: Work::Program(page), bytes });
            }
            self.move_unit(unit, Some(page + used));
        }
    }
}
