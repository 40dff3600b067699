//! Audits in the middle of a history, with everything in progress. Each states why it holds then.
//!
//! - *Structure*: [`Core::audit`](upsweep::layers::engine::Core::audit) examines trees, references,
//!   places, ages, what waits, and what is durable. The core maintains all of that between any two
//!   calls. The audit omits the accounting of used space, which holds only at rest.
//! - *Content*: one table and the quarantine match the oracle. Queries see accepted updates at
//!   once, and from the frontier of the sweep the model knows what the quarantine must contain by
//!   now.
//! - *Power cut*: everything durable would survive a power cut now. This is checked on a copy of
//!   the devices, so it can be done more often than actual power cuts.
//!
//! What holds only at rest is left to the end (see [`checker`](crate::checker)): that used space is
//! accounted for, and that no caller waits.

use crate::bank::Bank;
use crate::random::Random;
use crate::world::{Verdict, World};

/// Average number of steps between audits of the content.
const STEPS_PER_CONTENT: u64 = 300;
/// The same for audits of the structure.
const STEPS_PER_STRUCTURE: u64 = 10;
/// The same for hypothetical power cuts.
const STEPS_PER_CUT: u64 = 200;
/// The same while a checkpoint is in progress.
const STEPS_PER_CUT_OF_CHECKPOINT: u64 = 50;
/// The same while a log is extended, and for some time afterwards: recovery uses its present
/// length, though the records needed were written when it was shorter.
const STEPS_PER_CUT_OF_GROWTH: u64 = 8;
/// For this many steps.
const STEPS_AFTER_GROWTH: u64 = 60;

impl World {
    /// Performs the audits that are due.
    ///
    /// # Errors
    /// A description of the problem.
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

    /// Recovers from what a power cut now would leave.
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
