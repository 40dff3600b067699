//! Compaction: puts the blocks of a space back into key order on the devices, in the background.
//!
//! Splits and shadow writes scatter neighbours; a scan on a rotating device then seeks for every
//! block. A compaction goes through the blocks in key order and passes them to the pipeline of the
//! sweep, run by run; waiting updates are applied in the process. Runs that are in order already
//! are skipped, as are blocks whose image is shared, because moving one of them alone would end the
//! sharing. One run at a time, followed by an equally long rest: the sweep and callers come first.
//!
//! It is not persistent: it ends with the process, and blocks already moved stay in order.

use super::Sweep;
use crate::broken::{self, Fault};
use crate::device::DeviceId;
use crate::engine::base::Base;
use crate::engine::directory::BlockId;
use crate::engine::ids::SpaceId;
use crate::engine::io::RunId;
use crate::engine::pipeline::Pipeline;
use crate::error::{Error, RetryError};

/// Blocks in order that are skipped in one step.
const SEEN_MAX: u64 = 4096;

/// Identifies a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionId(u64);

/// A compaction in progress.
pub(super) struct Compaction {
    id: CompactionId,
    space: SpaceId,
    /// The key of the last block that was examined.
    last: Option<Box<[u8]>>,
    run: Option<(RunId, u64)>,
    rest_until: u64,
    progress: CompactionProgress,
}

/// The progress of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionProgress {
    /// Blocks that were examined.
    pub seen: u64,
    /// Blocks that were moved.
    pub moved: u64,
    /// Blocks of the space when it began.
    pub total: u64,
}

/// The next step.
enum Next {
    /// These blocks are to be moved.
    Blocks(Vec<BlockId>),
    /// All examined blocks are in order; other work comes before the search continues.
    Later,
    /// There are no more.
    End,
}

impl Compaction {
    pub(super) fn deadline_us(&self) -> Option<u64> {
        (self.run.is_none() && self.rest_until > 0).then_some(self.rest_until)
    }

    /// The next blocks in key order that are not stored consecutively.
    fn next_out_of_order(&mut self, base: &Base) -> Next {
        let seen_max = self.progress.seen + SEEN_MAX;
        while self.progress.seen < seen_max {
            let mut run = Vec::new();
            let mut bytes = 0;
            while run.len() < base.config.run_blocks_max && bytes < base.config.run_span_bytes() {
                let space = self.space;
                let next = match &self.last {
                    None => base.index.directory().exact(space, &[]),
                    Some(last) => base.index.directory().above(space, last),
                };
                let next = next.or_else(|| match self.last {
                    None => base.index.directory().above(space, &[]),
                    Some(_) => None,
                });
                let Some(id) = next else { break };
                let block = base.index.directory().block(id);
                self.last = Some((*block.key).into());
                self.progress.seen += 1;
                let movable = |extent| {
                    (!block.pinned || broken::is(Fault::CompactionOfPinnedBlocks))
                        && !base.index.directory().is_image_shared(extent)
                };
                if let Some(extent) = block.extent().filter(|extent| movable(*extent)) {
                    bytes += u64::from(extent.bytes);
                    run.push(id);
                }
            }
            if run.is_empty() {
                return Next::End;
            }
            if !lie_in_order(base, &run) {
                return Next::Blocks(run);
            }
        }
        Next::Later
    }
}

impl Sweep {
    /// Starts putting the blocks of a space into key order.
    ///
    /// # Errors
    /// [`RequestError::NoTable`](crate::RequestError::NoTable); [`RetryError::Busy`] while another
    /// compaction is in progress.
    pub(in crate::engine) fn request_compaction(
        &mut self,
        base: &Base,
        space: SpaceId,
    ) -> Result<CompactionId, Error> {
        base.gate.check_open()?;
        base.index.check_space(space)?;
        if self.compaction.is_some() {
            return Err(RetryError::Busy.into());
        }
        let found = base.index.directory().space(space);
        let total = found.map_or(0, |space| base.index.directory().blocks_of(space).count());
        let progress = CompactionProgress { total: total as u64, ..CompactionProgress::default() };
        self.compactions += 1;
        let (id, last, run, rest_until) = (CompactionId(self.compactions), None, None, 0);
        self.compaction = Some(Compaction { id, space, last, run, rest_until, progress });
        Ok(id)
    }

    /// The progress of a compaction; `None` if it has ended.
    pub(in crate::engine) fn compaction(&self, id: CompactionId) -> Option<CompactionProgress> {
        let compaction = self.compaction.as_ref().filter(|found| found.id == id);
        compaction.map(|compaction| compaction.progress)
    }

    /// The result of a compaction that has ended since the last call; returned once.
    ///
    /// # Errors
    /// [`RetryError::Full`] if there was no room to move blocks.
    pub(in crate::engine) fn compaction_ended(
        &mut self,
        id: CompactionId,
    ) -> Option<Result<CompactionProgress, Error>> {
        let ended = &mut self.ended_compactions;
        let position = ended.iter().position(|(found, _)| *found == id)?;
        Some(ended.swap_remove(position).1)
    }

    fn end_compaction(&mut self, base: &mut Base, compaction: &Compaction) {
        let result = if base.index.is_full() {
            Err(base.index.full_error())
        } else {
            Ok(compaction.progress)
        };
        self.ended_compactions.push((compaction.id, result));
        base.waiters.tell();
    }

    /// Starts the next run of a compaction when the last one has ended and its rest is over.
    pub(super) fn pump_compaction(&mut self, base: &mut Base, pipeline: &mut Pipeline) {
        let Some(mut compaction) = self.compaction.take() else { return };
        if let Some((id, began)) = compaction.run {
            if pipeline.has(id) {
                self.compaction = Some(compaction);
                return;
            }
            compaction.run = None;
            compaction.rest_until = base.now_us + (base.now_us - began);
        }
        if compaction.rest_until <= base.now_us {
            compaction.rest_until = 0; // From now on it waits for events, not for time to pass.
        }
        if base.index.is_full() {
            return self.end_compaction(base, &compaction);
        }
        if compaction.rest_until > 0 || !pipeline.has_buffers(&base.config) {
            self.compaction = Some(compaction);
            return;
        }
        match compaction.next_out_of_order(base) {
            Next::Blocks(blocks) => {
                compaction.progress.moved += blocks.len() as u64;
                compaction.run = Some((pipeline.start_scattered(base, &blocks), base.now_us));
            }
            Next::Later => compaction.rest_until = base.now_us + 1,
            Next::End => return self.end_compaction(base, &compaction),
        }
        self.compaction = Some(compaction);
    }
}

fn lie_in_order(base: &Base, run: &[BlockId]) -> bool {
    let place = |id: &BlockId| {
        let extent = base.index.directory().block(*id).extent();
        extent.map_or((DeviceId(0), 0, 0), |e| (e.device, e.offset, e.end()))
    };
    run.windows(2).all(|pair| {
        let (left, right) = (place(&pair[0]), place(&pair[1]));
        left.0 == right.0 && left.2 == right.1
    })
}
