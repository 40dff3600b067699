//! Audits in the middle of a history, while everything is on its way.
//!
//! | audit | what it asks | why it is valid then |
//! |---|---|---|
//! | structure | [`Core::audit`](upsweep::layers::engine::Core::audit): trees, references, places, ages, what waits, what is durable | the core keeps all of it between any two calls; it leaves out by itself that used space is accounted for, which holds at rest alone |
//! | content | one table and the quarantine are as the oracle has them | queries see what was accepted at once, and the model knows from which sequence on an update has to be in the quarantine |
//! | power cut | if the power went now, everything durable would be there again | it is asked of a copy of the devices; so it can be asked more often than the power can go |
//!
//! Not valid then: that used space is accounted for, and that nothing waits. Those are checked at
//! the end ([`checker`](crate::checker)).

use crate::bank::Bank;
use crate::random::Random;
use crate::world::{Verdict, World};

/// About how many steps there are from one audit of the content to the next.
const STEPS_PER_CONTENT: u64 = 300;
/// The same for audits of the structure.
const STEPS_PER_STRUCTURE: u64 = 10;
/// The same for power cuts that do not happen.
const STEPS_PER_CUT: u64 = 200;
/// The same while a checkpoint is on its way.
const STEPS_PER_CUT_OF_CHECKPOINT: u64 = 50;
/// The same while a log becomes longer, and for some time afterwards: it is recovered as long as it
/// is by then, though the records that are needed were written when it was shorter.
const STEPS_PER_CUT_OF_GROWTH: u64 = 8;
/// For so many steps.
const STEPS_AFTER_GROWTH: u64 = 60;

impl World {
    /// Audits what it is time for.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit_now_and_then(&mut self) -> Verdict {
        if self.auditing.one_in(STEPS_PER_CONTENT) {
            self.tally.audits += 1;
            self.scan_one()?;
            self.audit_conservation()?;
        }
        if self.auditing.one_in(STEPS_PER_STRUCTURE) {
            self.tally.audits += 1;
            self.check_directory().map_err(|reason| format!("audit: {reason}"))?;
        }
        if self.core().log().is_growing() {
            self.steps_of_growth = STEPS_AFTER_GROWTH;
        }
        let is_after_growth = self.steps_of_growth > 0;
        self.steps_of_growth = self.steps_of_growth.saturating_sub(1);
        let core = self.core();
        let many = if is_after_growth {
            STEPS_PER_CUT_OF_GROWTH
        } else if core.is_checkpointing() {
            STEPS_PER_CUT_OF_CHECKPOINT
        } else {
            STEPS_PER_CUT
        };
        if !self.failing && self.auditing.one_in(many) {
            self.audit_power_cut()?;
        }
        Ok(())
    }

    /// Recovers from what a power cut at this moment would leave.
    fn audit_power_cut(&mut self) -> Verdict {
        self.tally.cuts_audited += 1;
        let seed = self.auditing.word();
        let durable = self.core().durable();
        let mut copy = Self {
            bank: Bank::new(self.bank.devices.copy_after_power_cut(seed)),
            oracle: self.oracle.clone(),
            random: Random::new(seed, "schedule"),
            cutting: Random::new(seed, "cuts"),
            damaged: self.damaged,
            ..Self::new(self.plan.clone())
        };
        let recovered = copy.recover_from_cut(durable);
        self.history.add(copy.history.0);
        recovered.map_err(|reason| format!("had the power gone: {reason}"))
    }
}
