//! A cycle: one visit of every device, from the place of its next image around to that place again,
//! then of the blocks that have no image yet.
//!
//! The blocks placed longest ago come first, and are located after the next place. So all blocks
//! wait equally long for a visit. No device is far ahead of the one whose next image is the oldest:
//! images are in key order as they were written, so the runs of all devices need the same spill
//! segments.

use std::ops::Range;

use super::load::LOADING;
use crate::device::DeviceId;
use crate::engine::base::Base;
use crate::engine::directory::{Block, BlockId};
use crate::engine::ids::SpaceId;
use crate::engine::key::BlockKey;
use crate::engine::pipeline::Pipeline;
use crate::engine::policy::RunLimits;
use crate::engine::spiller::Spiller;
use crate::log::Seq;

/// Runs by which a device may be ahead of the oldest image, so that it is not idle while others
/// have runs under way.
const RUNS_AHEAD_MAX: u32 = 2;

/// The position of a cycle.
pub(in crate::engine) struct Cycle {
    start_seq: Seq,
    /// Per device: the stretches that remain to be visited, by offsets; the next one is last.
    pub(in crate::engine) left: Vec<Vec<Range<u64>>>,
    /// Per device: runs since its next image was the oldest.
    ahead: Vec<u32>,
    /// Images at its start, and how many of them were visited.
    images: u64,
    passed: u64,
    /// Position of the pass over blocks without an image; `None` when done.
    unplaced: Option<(SpaceId, BlockKey, BlockId)>,
}

/// Where a run may end: behind so many blocks, at this offset, with so many images passed.
#[derive(Clone, Copy, Default)]
struct End {
    blocks: usize,
    next: Option<u64>,
    passed: u64,
}

/// The next step of a cycle.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) enum Next {
    Run(Vec<BlockId>),
    /// A spill holds the next block.
    Later,
    /// Every block was visited.
    End,
}

impl Cycle {
    /// A cycle that begins now.
    pub(in crate::engine) fn start(base: &Base) -> Self {
        let stretches = |device| {
            let next = base.index.space_map.next_place(DeviceId(device));
            vec![0..next, next..u64::MAX]
        };
        Self {
            start_seq: base.index.accepted(),
            left: (0..base.config.data_devices).map(stretches).collect(),
            ahead: vec![0; usize::from(base.config.data_devices)],
            images: base.index.placed().len() as u64,
            passed: 0,
            unplaced: Some((SpaceId::NONE, BlockKey::default(), BlockId(0))),
        }
    }

    /// Images that it has passed, swept or not.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Its progress, from 0 to 1.
    pub(super) fn progress(&self) -> f64 {
        (self.passed as f64 / self.images.max(1) as f64).min(1.0)
    }

    /// The next step, on the device from which the fewest runs read; of several on the one whose
    /// next image is the oldest, and of equally old ones, as those of a load, by key. A device may
    /// only be a few runs ahead of the oldest.
    pub(in crate::engine) fn next(
        &mut self,
        base: &Base,
        pipeline: &Pipeline,
        spiller: &Spiller,
    ) -> Next {
        loop {
            let next_images = (0..self.left.len()).filter_map(|device| {
                let block = base.index.directory().block(self.next_image(base, device)?);
                Some((block.placement().image_seq, &block.key, device))
            });
            let mut by_age: Vec<_> = next_images.collect();
            by_age.sort_unstable();
            let Some(&(.., oldest)) = by_age.first() else {
                return self.next_unplaced(base).map_or(Next::End, Next::Run);
            };
            let devices = by_age.into_iter().map(|(.., device)| device);
            let allowed =
                devices.filter(|device| *device == oldest || self.ahead[*device] < RUNS_AHEAD_MAX);
            let least_busy = allowed.min_by_key(|device| pipeline.readers_of(*device));
            let device = least_busy.unwrap_or(oldest);
            self.ahead[device] = if device == oldest { 0 } else { self.ahead[device] + 1 };
            let stretches = self.left[device].len();
            if let Some(run) = self.next_placed(base, spiller, device) {
                return Next::Run(run);
            }
            if self.left[device].len() == stretches {
                return Next::Later;
            }
        }
    }

    /// The block of the next image on a device; `None` if it has no more.
    fn next_image(&mut self, base: &Base, device: usize) -> Option<BlockId> {
        let id = DeviceId(u16::try_from(device).expect("a bank has few devices"));
        let (start_seq, left) = (self.start_seq, &mut self.left[device]);
        let placement = |block| base.index.directory().block(block).placement();
        while let Some(stretch) = left.last_mut() {
            let place = |offset| (id, offset, BlockId(0));
            let images = base.index.placed().range(place(stretch.start)..place(stretch.end));
            let mut of_before = images.filter(|image| placement(image.2).frontier <= start_seq);
            if let Some(&(_, offset, block)) = of_before.next() {
                stretch.start = offset;
                return Some(block);
            }
            left.pop();
        }
        None
    }

    /// The next run of neighbours in the present stretch of `device`; the stretch then starts after
    /// it, or at a block that a spill holds. (Skipping that one would keep all its spill segments
    /// needed.) A stretch without further runs is done. A run that would be too long ends at a
    /// boundary of the device, if it is not much shorter then.
    fn next_placed(
        &mut self,
        base: &Base,
        spiller: &Spiller,
        device: usize,
    ) -> Option<Vec<BlockId>> {
        let device_id = DeviceId(u16::try_from(device).expect("a bank has few devices"));
        let stretch = self.left[device].pop()?;
        let (limits, mut run) = (base.config.run_limits(), Vec::new());
        let (mut start, mut waiting_bytes, mut queue_bytes) = (0, 0u64, 0);
        let (mut end, mut passed) = (End::default(), 0);
        let (mut unit_end, mut end_of_unit) = (0, End::default());
        let place = |offset| (device_id, offset, BlockId(0));
        for &(_, offset, id) in base.index.placed().range(place(stretch.start)..place(stretch.end))
        {
            let block = base.index.directory().block(id);
            let bytes = block.extent().map_or(0, |extent| u64::from(extent.bytes));
            // A run written by this cycle is visited again by the next one.
            let is_of_before = block.placement().frontier <= self.start_seq;
            // What came since the cycle began goes along with a run, but does not begin one.
            let is_due = !run.is_empty() || block.queue.first_seq() <= self.start_seq;
            let has_some = (block.waits() && is_due) || block.spilled > 0;
            let waits = !block.pinned && is_of_before && has_some;
            if run.is_empty() {
                if spiller.has(id) {
                    end = End { next: Some(offset), passed, ..end };
                    break;
                }
                if !waits {
                    passed += u64::from(is_of_before);
                    continue;
                }
                start = offset;
            }
            let span = offset + bytes - start;
            let sparse = limits.is_too_sparse(waiting_bytes + if waits { bytes } else { 0 }, span);
            queue_bytes += u64::from(block.queue.bytes());
            let too_long = limits.is_too_long(run.len(), span, queue_bytes);
            if too_long && end_of_unit.blocks > 0 && 2 * end_of_unit.blocks >= end.blocks {
                end = end_of_unit;
            }
            if block.pinned || (!run.is_empty() && (too_long || (waits && sparse))) {
                break;
            }
            if !waits && RunLimits::ends_after(run.len() - end.blocks) {
                break;
            }
            passed += u64::from(is_of_before);
            if !waits && stays(base, id, block) {
                continue;
            }
            run.push(id);
            if waits {
                if offset >= unit_end {
                    end_of_unit = end;
                    unit_end = base.index.space_map.unit_of(device_id, offset).1;
                }
                waiting_bytes += bytes;
                end = End { blocks: run.len(), next: Some(offset + bytes), passed };
            }
        }
        run.truncate(end.blocks);
        self.passed += if end.next.is_some() { end.passed } else { passed };
        // An image that was placed since may reach beyond the end of the stretch.
        let next = end.next.filter(|next| *next < stretch.end);
        self.left[device].extend(next.map(|next| next..stretch.end));
        (!run.is_empty()).then_some(run)
    }

    /// The next blocks without an image, in key order.
    fn next_unplaced(&mut self, base: &Base) -> Option<Vec<BlockId>> {
        let from = self.unplaced.take()?;
        let (limits, mut run) = (base.config.run_limits(), Vec::new());
        let mut bytes = 0;
        for entry in base.index.unplaced().range(from..) {
            let id = entry.2;
            let block = base.index.directory().block(id);
            bytes += u64::from(block.queue.growth_bytes());
            if limits.is_full(run.len(), bytes) && !run.is_empty() {
                self.unplaced = Some(entry.clone());
                break;
            }
            if block.waits() && !block.pinned {
                run.push(id);
            }
        }
        (!run.is_empty()).then_some(run)
    }
}

/// Whether a block for which nothing waits stays in place although a run reads its neighbours:
/// - Moved alone, it would no longer share its image.
/// - An image that is younger than what was replayed so far would get an older frontier, and replay
///   would apply updates twice.
/// - A large value is written by the run of its leaf, which pins the leaf and not the value.
/// - A block of a load may get updates that were accepted before the run, once its table has it.
fn stays(base: &Base, id: BlockId, block: &Block) -> bool {
    let directory = base.index.directory();
    block.extent().is_some_and(|extent| directory.is_image_shared(extent))
        || block.placement().frontier > base.index.accepted()
        || directory.is_large_value(id)
        || directory.space(block.space).is_some_and(|space| space.record.snapshot == LOADING)
}
