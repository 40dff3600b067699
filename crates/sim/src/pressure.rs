//! What puts the engine under pressure: bursts and floods of records, and power cuts at times at
//! which the engine has much on its way.

use crate::world::{Verdict, World};

/// Records in a burst.
const BURST_RECORDS: u64 = 60;
/// About how many steps there are from the end of one flood to the next.
const STEPS_PER_FLOOD: u64 = 200;
/// Steps that a flood lasts at most.
const FLOOD_STEPS_MAX: u64 = 200;
/// Most records of a flood in one step.
const FLOOD_RECORDS: u64 = 20;
/// Power cuts in 10,000 steps, at least, of a session in which a log becomes longer.
const CUTS_AFTER_LOG_GROWTH: u64 = 200;
/// The same while a checkpoint is on its way, in histories that have such cuts.
const CUTS_OF_CHECKPOINTS: u64 = 300;

impl World {
    /// Power cuts in 10,000 steps such as this one.
    pub fn cuts_now(&mut self) -> u64 {
        let of_checkpoints = self.plan.cuts_of_checkpoints;
        let core = self.core();
        let log = core.log();
        let log_grows = log.is_growing() || log.statistics().growths > 0;
        let of_log = if log_grows { CUTS_AFTER_LOG_GROWTH } else { 0 };
        let is_checkpoint = of_checkpoints && core.is_checkpointing();
        let of_checkpoint = if is_checkpoint { CUTS_OF_CHECKPOINTS } else { 0 };
        self.plan.cuts.max(of_log).max(of_checkpoint)
    }

    /// Many small records at once, while nothing else moves.
    ///
    /// # Errors
    /// What is wrong.
    pub fn burst(&mut self, tables: &[u32]) -> Verdict {
        let mut left = BURST_RECORDS;
        while left > 0 && self.waiting.is_none() && self.core().closed().is_none() {
            let update = self.workload.addition(tables);
            self.modify(vec![update], None)?;
            left -= 1;
        }
        Ok(())
    }

    /// In a flood: long records until one has to wait, so that the log is full and stays full. All
    /// are for a few keys, for which little waits in memory.
    ///
    /// # Errors
    /// What is wrong.
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
