//! Callers that read the block they wait for themselves, as the product has them do.
//!
//! Steps of such a read: it is taken out of the core right after the view was asked for, without a
//! pump between; it is done on the devices, and what came is checked, without the core; the core is
//! given the outcome. Each step is a turn of the [world](crate::world) of its own, so anything may
//! happen between two of them: the block moves, its table is dropped, the power goes. If the view
//! needs another read then, its caller does that as well, unless somebody else does.

use upsweep::layers::device::{Completion, DeviceError};
use upsweep::layers::engine::{CheckedRead, ViewId, ViewRead};

use crate::classes;
use crate::plan::Trouble;
use crate::world::{Verdict, World};

/// Chance in per cent of a view whose caller reads.
const READS_PERCENT: u64 = 50;
/// Of so many reads of callers, one fails where data gets damaged.
const READS_PER_FAILURE: u64 = 100;
/// The errno of those.
const EIO: i32 = 5;

/// A caller that reads.
pub struct Reader {
    id: ViewId,
    stage: Stage,
}

enum Stage {
    /// To be done on the devices.
    Taken(ViewRead),
    /// To be given to the core.
    Checked(CheckedRead),
}

impl World {
    /// Lets the caller of a pending view read what it needs; half of the callers do.
    pub fn read_by_caller(&mut self, id: ViewId) {
        if self.reading.percent(READS_PERCENT) {
            self.take_read(id);
        }
    }

    fn take_read(&mut self, id: ViewId) {
        if let Some(read) = self.core().take_read(id) {
            self.readers.push(Reader { id, stage: Stage::Taken(read) });
        }
    }

    /// One of the callers that read goes a step on.
    ///
    /// # Errors
    /// What is wrong.
    pub fn go_on_reading(&mut self, which: usize) -> Verdict {
        let Reader { id, stage } = self.readers.swap_remove(which);
        self.history.add(id.0);
        match stage {
            Stage::Taken(read) => {
                let checked = self.do_read(read)?;
                self.readers.push(Reader { id, stage: Stage::Checked(checked) });
                Ok(())
            }
            Stage::Checked(checked) => match self.core().complete_read(id, checked) {
                Some(answer) => {
                    self.tally.caller_reads += 1;
                    self.take_answer(id, answer)
                }
                None => {
                    self.tally.caller_rereads += 1;
                    self.take_read(id);
                    Ok(())
                }
            },
        }
    }

    fn do_read(&mut self, read: ViewRead) -> Verdict<CheckedRead> {
        let mut verdict = Ok(());
        let fails = self.plan.trouble == Trouble::DataDamage
            && self.damaged
            && self.reading.one_in(READS_PER_FAILURE);
        let checked = read.run(|request| {
            verdict = classes::check(&request, self.plan.config.data_devices);
            let mut completion = self.bank.perform(request, &mut self.arrived);
            if fails {
                spoil(&mut completion, self.reading.percent(50));
            }
            completion
        });
        verdict.map(|()| checked)
    }
}

/// Makes a read one that failed, or that brought something else.
fn spoil(completion: &mut Completion, fails: bool) {
    if fails {
        completion.result = Err(DeviceError::Failed { errno: EIO });
    }
    if let Some(buffer) = &mut completion.buffer {
        buffer.iter_mut().for_each(|byte| *byte ^= 0x55);
    }
}
