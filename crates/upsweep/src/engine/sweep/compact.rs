//! Compaction: puts the blocks of a space back into key order on the devices, in the background.
//!
//! Splits and shadow writes scatter neighbours; a scan on a rotating device then seeks for every
//! block. A compaction goes through the blocks in key order and gives them to the pipeline of the
//! sweep, run by run: whatever waits for them is applied on the way. Runs that lie in order already
//! are passed by, as are blocks whose image others share, for moved alone they would share it no
//! longer. One run at a time, and as long a rest as it took: the sweep and callers come first.
//!
//! It is no more than a wish: it ends with the process, and what is done stays done.

use super::RunId;
use crate::broken::{self, Fault};
use crate::device::DeviceId;
use crate::engine::core::Core;
use crate::engine::directory::BlockId;
use crate::error::{Error, RetryError};

/// Blocks in order that are passed by in one go.
const SEEN_MAX: u64 = 4096;

/// Which compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionId(u64);

/// A compaction on its way.
pub(super) struct Compaction {
    id: CompactionId,
    space: u32,
    /// The key of the last block that was looked at.
    last: Option<Box<[u8]>>,
    run: Option<(RunId, u64)>,
    rest_until: u64,
    progress: CompactionProgress,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionProgress {
    /// Blocks that were looked at.
    pub seen: u64,
    /// Blocks that were moved.
    pub moved: u64,
    /// Blocks of the space when it began.
    pub total: u64,
}

/// What comes next.
enum Next {
    /// These blocks are to be moved.
    Blocks(Vec<BlockId>),
    /// All that was looked at lies in order; others come first before the look goes on.
    Later,
    /// There are no more.
    End,
}

impl Compaction {
    pub(super) fn deadline_us(&self) -> Option<u64> {
        (self.run.is_none() && self.rest_until > 0).then_some(self.rest_until)
    }
}

impl Core {
    /// Begins to put the blocks of a space into key order; [`Core::compaction`] tells how far it
    /// is, and [`Core::compaction_ended`] its end. Cost: a pass over the blocks in memory; in all a
    /// read and a write of those that are out of order.
    ///
    /// # Errors
    /// [`RequestError::NoTable`](crate::RequestError::NoTable); [`RetryError::Busy`] while another
    /// compaction is on its way.
    pub fn request_compaction(&mut self, space: u32) -> Result<CompactionId, Error> {
        self.check_open()?;
        self.check_space(space)?;
        if self.sweep.compaction.is_some() {
            return Err(RetryError::Busy.into());
        }
        let found = self.directory.space(space);
        let total = found.map_or(0, |space| self.directory.blocks_of(space).count());
        let progress = CompactionProgress { total: total as u64, ..CompactionProgress::default() };
        self.sweep.compactions += 1;
        let (id, last, run, rest_until) = (CompactionId(self.sweep.compactions), None, None, 0);
        self.sweep.compaction = Some(Compaction { id, space, last, run, rest_until, progress });
        Ok(id)
    }

    /// How far a compaction is; `None` if it has ended.
    #[must_use]
    pub fn compaction(&self, id: CompactionId) -> Option<CompactionProgress> {
        let compaction = self.sweep.compaction.as_ref().filter(|found| found.id == id);
        compaction.map(|compaction| compaction.progress)
    }

    /// What a compaction has done that has ended since the last call; once.
    ///
    /// # Errors
    /// [`RetryError::Full`] if there was no room to move blocks.
    pub fn compaction_ended(
        &mut self,
        id: CompactionId,
    ) -> Option<Result<CompactionProgress, Error>> {
        let ended = &mut self.sweep.ended_compactions;
        let position = ended.iter().position(|(found, _)| *found == id)?;
        Some(ended.swap_remove(position).1)
    }

    fn end_compaction(&mut self, compaction: &Compaction) {
        let result = if self.full { Err(self.full_error()) } else { Ok(compaction.progress) };
        self.sweep.ended_compactions.push((compaction.id, result));
        self.room_events += 1;
    }

    /// Starts the next run of a compaction when the last one has ended and its rest is over.
    pub(super) fn pump_compaction(&mut self) {
        let Some(mut compaction) = self.sweep.compaction.take() else { return };
        if let Some((id, began)) = compaction.run {
            if self.sweep.runs.contains_key(&id) {
                self.sweep.compaction = Some(compaction);
                return;
            }
            compaction.run = None;
            compaction.rest_until = self.now_us + (self.now_us - began);
        }
        if compaction.rest_until <= self.now_us {
            compaction.rest_until = 0; // From now on it waits for events, not for the time.
        }
        if self.full {
            return self.end_compaction(&compaction);
        }
        if compaction.rest_until > 0 || !self.has_buffers_for_a_run() {
            self.sweep.compaction = Some(compaction);
            return;
        }
        match self.next_out_of_order(&mut compaction) {
            Next::Blocks(blocks) => {
                compaction.progress.moved += blocks.len() as u64;
                let run = self.start_scattered_run(&blocks);
                if broken::is(Fault::CompactionWithoutSpills) {
                    self.run_mut(run).spill_segments = Some(Vec::new());
                }
                compaction.run = Some((run, self.now_us));
            }
            Next::Later => compaction.rest_until = self.now_us + 1,
            Next::End => return self.end_compaction(&compaction),
        }
        self.sweep.compaction = Some(compaction);
    }

    /// The next blocks in key order that do not lie one behind the other.
    fn next_out_of_order(&self, compaction: &mut Compaction) -> Next {
        let seen_max = compaction.progress.seen + SEEN_MAX;
        while compaction.progress.seen < seen_max {
            let mut run = Vec::new();
            let mut bytes = 0;
            while run.len() < self.config.run_blocks_max && bytes < self.span_bytes_max() {
                let space = compaction.space;
                let next = match &compaction.last {
                    None => self.directory.exact(space, &[]),
                    Some(last) => self.directory.above(space, last),
                };
                let next = next.or_else(|| match compaction.last {
                    None => self.directory.above(space, &[]),
                    Some(_) => None,
                });
                let Some(id) = next else { break };
                let block = self.directory.block(id);
                compaction.last = Some((*block.key).into());
                compaction.progress.seen += 1;
                let movable = |extent| {
                    (!block.pinned || broken::is(Fault::CompactionOfPinnedBlocks))
                        && !self.directory.is_image_shared(extent)
                };
                if let Some(extent) = block.extent().filter(|extent| movable(*extent)) {
                    bytes += u64::from(extent.bytes);
                    run.push(id);
                }
            }
            if run.is_empty() {
                return Next::End;
            }
            if !self.lie_in_order(&run) {
                return Next::Blocks(run);
            }
        }
        Next::Later
    }

    fn lie_in_order(&self, run: &[BlockId]) -> bool {
        let place = |id: &BlockId| {
            let extent = self.directory.block(*id).extent();
            extent.map_or((DeviceId(0), 0, 0), |e| (e.device, e.offset, e.end()))
        };
        run.windows(2).all(|pair| {
            let (left, right) = (place(&pair[0]), place(&pair[1]));
            left.0 == right.0 && left.2 == right.1
        })
    }
}
