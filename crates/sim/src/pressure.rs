//! Pressure on the engine: bursts and floods of records, compactions, and power cuts at times when
//! the engine has much in progress.

use crate::world::{Verdict, World};
use upsweep::SpaceId;

/// Records in a burst.
const BURST_RECORDS: u64 = 60;
/// Average number of steps from the end of one flood to the next.
const STEPS_PER_FLOOD: u64 = 200;
/// Most steps of a flood.
const FLOOD_STEPS_MAX: u64 = 200;
/// Most records of a flood in one step.
const FLOOD_RECORDS: u64 = 20;
/// Average number of steps between compactions, besides those after spills.
const STEPS_PER_COMPACTION: u64 = 100;
/// Least number of power cuts in 10,000 steps while a log is extended.
const CUTS_OF_LOG_GROWTH: u64 = 1500;
/// The same for a session in which one was extended.
const CUTS_AFTER_LOG_GROWTH: u64 = 200;
/// The same while a checkpoint is in progress, in histories with such cuts.
const CUTS_OF_CHECKPOINTS: u64 = 300;

impl World {
    /// Rate of power cuts at this step, per 10,000 steps.
    pub fn cuts_now(&mut self) -> u64 {
        let of_checkpoints = self.plan.cuts_of_checkpoints;
        let core = self.core();
        let log = core.log();
        let of_log = match (log.is_growing(), log.metrics().log_growths_total.get()) {
            (true, _) => CUTS_OF_LOG_GROWTH,
            (false, 0) => 0,
            (false, _) => CUTS_AFTER_LOG_GROWTH,
        };
        let is_checkpoint = of_checkpoints && core.is_checkpointing();
        let of_checkpoint = if is_checkpoint { CUTS_OF_CHECKPOINTS } else { 0 };
        self.plan.cuts.max(of_log).max(of_checkpoint)
    }

    /// Many small records at once, while nothing else moves.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn burst(&mut self, tables: &[SpaceId]) -> Verdict {
        let mut left = BURST_RECORDS;
        while left > 0 && self.waiting.is_none() && self.core().closed().is_none() {
            let update = self.workload.addition(tables);
            self.modify(vec![update], None)?;
            left -= 1;
        }
        Ok(())
    }

    /// Occasionally, and often after a spill, puts the blocks of a table into key order. A table of
    /// one block is in order, so half of the time the longest table is chosen.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn compact(&mut self) -> Verdict {
        let spills = self.core().metrics().spills_total.get();
        let has_spilled = std::mem::replace(&mut self.spills_seen, spills) != spills;
        let many = if has_spilled { 2 } else { STEPS_PER_COMPACTION };
        let tables = self.all_tables();
        let longest = tables.iter().max_by_key(|space| self.oracle.state[*space].rows.len());
        let Some(longest) = longest.copied().filter(|_| self.compacting.one_in(many)) else {
            return Ok(());
        };
        let space =
            if self.compacting.percent(50) { longest } else { self.compacting.pick(&tables) };
        match self.core().request_compaction(space) {
            Ok(_) => self.settle(),
            Err(error) => self.check_busy(&error),
        }
    }

    /// In a flood: long records until one has to wait, so that the log becomes and stays full. All
    /// are for a few keys, for which little waits in memory.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn flood(&mut self) -> Verdict {
        if self.plan.floods && self.flood_steps == 0 && self.flooding.one_in(STEPS_PER_FLOOD) {
            self.flood_steps = self.flooding.between(1, FLOOD_STEPS_MAX);
        }
        let tables = self.tables();
        if self.flood_steps == 0 || tables.is_empty() {
            return Ok(());
        }
        self.flood_steps -= 1;
        let mut left = FLOOD_RECORDS;
        while left > 0 && self.waiting.is_none() && self.core().closed().is_none() {
            let update = self.workload.long_put(&tables);
            self.modify(vec![update], None)?;
            left -= 1;
        }
        Ok(())
    }
}
