//! Callers that do I/O themselves, as in the product: they read the block or write the batch of the
//! log that they wait for.
//!
//! Steps of a read: it is taken out of the core right after the view was requested, without a pump
//! in between; it is performed on the devices, and the result is checked, without the core; then
//! the core gets the outcome. A write comes out of a pump, is performed, and its completion is
//! handed over. Each step is a separate turn of the [world](crate::world), so anything may happen
//! between two of them: the block moves, its table is dropped, later batches are written, the power
//! fails. If the view then needs another read, its caller does that as well, unless another does.

use upsweep::layers::device::{Class, Completion, DeviceError, Request};
use upsweep::layers::engine::{CheckedRead, ViewId, ViewRead};

use crate::classes;
use crate::plan::Trouble;
use crate::world::{Verdict, World};

/// Chance in per cent that a view is read by its caller.
const READS_PERCENT: u64 = 50;
/// Chance in per cent that a caller does a write of the log after a pump.
const WRITES_PERCENT: u64 = 30;
/// One in this many reads of callers fails where data gets damaged.
const READS_PER_FAILURE: u64 = 100;
/// The errno of such failures.
const EIO: i32 = 5;

/// The operation that a caller is performing.
pub enum Performer {
    /// A read for a view, to be done on the devices.
    Reads(ViewId, ViewRead),
    /// The result of its read, to be given to the core.
    HasRead(ViewId, CheckedRead),
    /// A write of the log, to be done on the devices.
    Writes(Request),
    /// The completion of the write, to be handed over.
    HasWritten(Completion),
}

impl Performer {
    /// Whether it is about a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Writes(_) | Self::HasWritten(_))
    }
}

impl World {
    /// Lets the caller of a pending view read what it needs; half of the callers do.
    pub fn read_by_caller(&mut self, id: ViewId) {
        if self.performing.percent(READS_PERCENT) {
            self.take_read(id);
        }
    }

    fn take_read(&mut self, id: ViewId) {
        if let Some(read) = self.core().take_read(id) {
            self.performers.push(Performer::Reads(id, read));
        }
    }

    /// Occasionally lets a caller do the youngest write of the log among `requests`.
    pub fn write_by_caller(&mut self, requests: &mut Vec<Request>) {
        let is_log = |request: &Request| request.hint.class == Class::Log;
        if let Some(youngest) = requests.iter().rposition(is_log)
            && self.performing.percent(WRITES_PERCENT)
        {
            self.performers.push(Performer::Writes(requests.swap_remove(youngest)));
        }
    }

    /// One of the callers that do I/O takes its next step.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn go_on_performing(&mut self, which: usize) -> Verdict {
        match self.performers.swap_remove(which) {
            Performer::Reads(id, read) => {
                let checked = self.do_read(read)?;
                self.performers.push(Performer::HasRead(id, checked));
            }
            Performer::HasRead(id, checked) => {
                self.history.add(id.0);
                if let Some(answer) = self.core().complete_read(id, checked) {
                    self.tally.caller_reads += 1;
                    return self.take_answer(id, answer);
                }
                self.tally.caller_rereads += 1;
                self.take_read(id);
            }
            Performer::Writes(request) => {
                let completion = self.bank.perform(request, &mut self.arrived);
                self.performers.push(Performer::HasWritten(completion));
            }
            Performer::HasWritten(completion) => {
                self.tally.caller_writes += 1;
                self.history.add(completion.token.0);
                self.core().complete(completion);
            }
        }
        Ok(())
    }

    fn do_read(&mut self, read: ViewRead) -> Verdict<CheckedRead> {
        let mut verdict = Ok(());
        let fails = self.plan.trouble == Trouble::DataDamage
            && self.damaged
            && self.performing.one_in(READS_PER_FAILURE);
        let checked = read.run(|request| {
            verdict = classes::check(&request, self.plan.config.data_devices);
            let mut completion = self.bank.perform(request, &mut self.arrived);
            if fails {
                spoil(&mut completion, self.performing.percent(50));
            }
            completion
        });
        verdict.map(|()| checked)
    }
}

/// Makes a read fail, or return wrong data.
fn spoil(completion: &mut Completion, fails: bool) {
    if fails {
        completion.result = Err(DeviceError::Failed { errno: EIO });
    }
    if let Some(buffer) = &mut completion.buffer {
        buffer.iter_mut().for_each(|byte| *byte ^= 0x55);
    }
}
