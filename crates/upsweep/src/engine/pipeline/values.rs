//! Large values that a run needs: loaded when a first attempt at applying has requested them.
//!
//! They can take the most memory of a run. So only one run at a time holds them, for as many of its
//! blocks as fit into a part of the budget, and for at least one; the other blocks continue as a
//! separate run after it. (A leaf has a bounded length of large values.)

use super::Pipeline;
use super::block::RunBlock;
use super::run::{Run, RunPhase};
use crate::device::Completion;
use crate::engine::base::Base;
use crate::engine::directory::BlockTable;
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::Placement;
use crate::engine::ids::SpaceId;
use crate::engine::io::{IoKind, RunId};
use crate::engine::jobs::{Job, JobResult, RunJob};
use crate::placement::Extent;

impl Pipeline {
    pub(super) fn load_values(&mut self, base: &mut Base, id: RunId, jobs: &mut Vec<Job>) {
        if self.runs.iter().any(|(other, run)| *other != id && run.has_values_in_hand()) {
            return;
        }
        if self.renew_owners(base, id) {
            return self.send_job(base, id, Vec::new(), jobs);
        }
        let phase = std::mem::replace(&mut self.run_mut(id).phase, RunPhase::Applying);
        let RunPhase::NeedsValues(mut job) = phase else { return };
        let mut extents: Vec<Extent> = Vec::new();
        let mut bytes = 0;
        let mut position = 0;
        while position < job.blocks.len() {
            let Some(found) = value_extents(base, &job, position) else {
                // The others have to ask again.
                let block = job.blocks[position].id;
                self.condemn(id, block, "a large value of it is not in the directory".to_owned());
                job.blocks.iter_mut().for_each(|block| block.values.clear());
                self.run_mut(id).phase = RunPhase::LoadingValues { pending: 0, job };
                return;
            };
            let more: usize = found.iter().map(|extent| extent.bytes as usize).sum();
            if bytes > 0 && bytes + more > base.config.run_bytes_max {
                break;
            }
            bytes += more;
            extents.extend(found);
            position += 1;
        }
        if position < job.blocks.len() {
            self.split_run(base, id, &mut job, position);
        }
        let owner = self.runs[&id].owner();
        for (index, &extent) in extents.iter().enumerate() {
            let kind = IoKind::ValueRead(id, index);
            base.read_for_sweep(kind, owner, extent);
        }
        let run = self.run_mut(id);
        run.values_bytes = bytes;
        run.phase = RunPhase::LoadingValues { pending: extents.len(), job };
    }

    /// Splits off the blocks of a run from this position of its job on, into a run that requests
    /// their values next.
    fn split_run(&mut self, base: &Base, id: RunId, job: &mut RunJob, position: usize) {
        let rest_id = self.new_id();
        let rest = job.split_off(position, rest_id);
        let table = &base.index.directory().table;
        let run = self.runs.get_mut(&id).expect("a run lives until it is published");
        let rest = run.split_off(rest, table);
        self.runs.insert(rest_id, rest);
    }

    pub(in crate::engine) fn value_read_done(
        &mut self,
        base: &mut Base,
        id: RunId,
        index: usize,
        completion: Completion,
    ) {
        let phase = std::mem::replace(&mut self.run_mut(id).phase, RunPhase::Applying);
        let RunPhase::LoadingValues { pending, mut job } = phase else { return };
        let (position, value) = job.value_position(index);
        let (space, key) =
            (job.blocks[position].companion, job.blocks[position].values[value].0.clone());
        let body = check_value(base, space, &key, completion);
        match body {
            Ok(body) => job.blocks[position].values[value].1 = body,
            // In another space the value may be sound.
            Err(_) if self.renew_owners(base, id) => {}
            Err(reason) => self.condemn(id, job.blocks[position].id, reason),
        }
        self.run_mut(id).phase = RunPhase::LoadingValues { pending: pending - 1, job };
    }
}

/// The places of the values that a block of a job needs; `None` if one is missing.
fn value_extents(base: &Base, job: &RunJob, position: usize) -> Option<Vec<Extent>> {
    let block = &job.blocks[position];
    let extent = |key: &[u8]| {
        let found = base.index.directory().exact(block.companion, key)?;
        base.index.directory().block(found).extent()
    };
    block.values.iter().map(|(key, _)| extent(key)).collect()
}

fn check_value(
    base: &Base,
    space: SpaceId,
    key: &[u8],
    done: Completion,
) -> Result<Vec<u8>, String> {
    done.result.map_err(|error| error.to_string())?;
    let buffer = done.buffer.ok_or("no buffer came back")?;
    let found = base.index.directory().exact(space, key).ok_or("a large value has vanished")?;
    let Placement { image_seq: seq, image_space: space, .. } =
        base.index.directory().block(found).placement();
    let store = base.config.store;
    let identity = Identity { store, kind: ImageKind::Block, number: space.get(), seq, key };
    image_format::decode(&buffer, &identity).map(|body| buffer[body].to_vec())
}

/// Bytes of the large values in the output of a job.
pub(super) fn values_bytes(result: &JobResult) -> usize {
    let JobResult::Done(done) = result else { return 0 };
    done.values.iter().filter_map(|(_, _, image)| image.as_ref()).map(|image| image.len()).sum()
}

impl Run {
    /// Splits off the blocks that `job` has, into a run that requests their values next.
    fn split_off(&mut self, job: RunJob, table: &BlockTable) -> Self {
        let is_of_rest = |block: &RunBlock| job.blocks.iter().any(|found| found.id == block.id);
        let blocks = std::mem::take(&mut self.blocks);
        let (rest, kept) = blocks.into_iter().partition(is_of_rest);
        self.blocks = kept;
        let mut run = Self {
            spill_segments: self.spill_segments.clone(),
            frontier: self.frontier,
            expired_us: self.expired_us,
            block_bytes: self.block_bytes,
            may_split_shared: self.may_split_shared,
            ..Self::of(rest, RunPhase::NeedsValues(Box::new(job)))
        };
        for block in &run.blocks {
            let Some(id) = table.find(block.reference()) else { continue };
            let block = table.get(id);
            let Some(frozen) = &block.frozen else { continue };
            run.frozen_bytes += frozen.memory_bytes();
            run.growth_bytes += u64::from(frozen.growth_bytes());
            run.updates += u64::from(frozen.count()) + u64::from(block.spilled);
        }
        self.frozen_bytes -= run.frozen_bytes;
        self.growth_bytes -= run.growth_bytes;
        self.updates = self.updates.saturating_sub(run.updates);
        run
    }
}
