//! Spill segments that a run needs: read beside its blocks, and applied before what waits in
//! memory.

use std::sync::Arc;

use super::RunId;
use super::run::{Run, RunBlock};
use super::run_job::JobSpillSegments;
use crate::device::Completion;
use crate::engine::cache::Image;
use crate::engine::core::{Actions, Core, IoKind};
use crate::engine::directory::BlockId;
use crate::engine::format::image_format;
use crate::engine::spill_segments::{self, SpillSegment};

/// Times that a spill segment is asked for before the updates in it count as lost.
const ATTEMPTS_MAX: u32 = 3;

/// A spill segment of a run.
#[derive(Clone)]
pub(super) struct RunSpillSegment {
    pub(super) segment: Arc<SpillSegment>,
    /// What was read, or why it cannot be used; `None` while the read is on its way.
    image: Option<Result<Arc<Image>, String>>,
}

impl Run {
    /// Whether all spill segments of the run are there, or are known to be damaged.
    pub(super) fn has_spill_segments(&self) -> bool {
        let spill_segments = self.spill_segments.as_ref();
        spill_segments.is_some_and(|all| all.iter().all(|segment| segment.image.is_some()))
    }
}

impl Core {
    /// The spill segments that have updates of a block which is seen through `space`.
    pub(in crate::engine) fn spill_segments_of(
        &self,
        space: u32,
        id: BlockId,
    ) -> Vec<Arc<SpillSegment>> {
        if self.directory.block(id).spilled == 0 {
            return Vec::new();
        }
        self.spill_segments_beyond(space, id)
    }

    /// The spill segments that cover positions of a block and reach beyond its frontier.
    pub(in crate::engine) fn spill_segments_beyond(
        &self,
        space: u32,
        id: BlockId,
    ) -> Vec<Arc<SpillSegment>> {
        let block = self.directory.block(id);
        let (low, frontier) = (&block.key, block.placement().frontier);
        let (sources, high) = (self.directory.clones.sources(space), self.high_of(space, low));
        let mut found = self.spill_segments.concerning(&sources, low, high.as_deref());
        found.retain(|segment| segment.record.through > frontier);
        found
    }

    /// Reads the spill segments that have updates of the blocks of a run. While it has the blocks
    /// in hand no other spill segments come into being that do.
    pub(super) fn read_spill_segments(&mut self, id: RunId, actions: &mut Actions) {
        let mut spill_segments: Vec<Arc<SpillSegment>> = Vec::new();
        for block in &self.sweep.runs[&id].blocks {
            let found = self.directory.table.find(block.reference());
            let found = found.filter(|id| self.directory.block(*id).spilled > 0);
            let Some(space) = found.and_then(|id| self.directory.owner(id)) else { continue };
            for segment in self.spill_segments_of(space.0.record.space, block.id) {
                if spill_segments.iter().all(|known| !Arc::ptr_eq(known, &segment)) {
                    spill_segments.push(segment);
                }
            }
        }
        let mut of_run = Vec::with_capacity(spill_segments.len());
        for segment in spill_segments {
            // Neighbouring runs need the same ones.
            let mut of_runs =
                self.sweep.runs.values().flat_map(|run| run.spill_segments.iter().flatten());
            let known = of_runs.find(|known| Arc::ptr_eq(&known.segment, &segment));
            let image = known.and_then(|known| known.image.clone());
            if known.is_none() {
                self.read_spill_segment(Arc::clone(&segment), 1, actions);
            }
            of_run.push(RunSpillSegment { segment, image });
        }
        self.run_mut(id).spill_segments = Some(of_run);
    }

    fn read_spill_segment(
        &mut self,
        segment: Arc<SpillSegment>,
        attempt: u32,
        actions: &mut Actions,
    ) {
        let extent = segment.record.extent;
        self.metrics.sweep_read_bytes_total.add(u64::from(extent.bytes));
        self.metrics.spill_read_bytes_total.add(u64::from(extent.bytes));
        let owner = Some(segment.record.space);
        let read = self.read_request(IoKind::SpillSegmentRead, owner, extent);
        self.sweep.spill_segment_reads.insert(read.token, (segment, attempt));
        actions.requests.push(read);
    }

    /// Asks once more for spill segments that did not come.
    pub(super) fn retry_spill_segments(&mut self, actions: &mut Actions) {
        for (segment, attempt) in std::mem::take(&mut self.sweep.spill_segment_retries) {
            self.read_spill_segment(segment, attempt, actions);
        }
    }

    pub(in crate::engine) fn spill_segment_read_done(&mut self, completion: Completion) {
        let read = self.sweep.spill_segment_reads.remove(&completion.token);
        let (segment, attempt) = read.expect("a spill segment read is listed");
        let identity = spill_segments::identity(self.config.store, &segment.record);
        let image = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => image_format::decode(&buffer, &identity)
                .map(|body| Arc::new(Image::new(Arc::new(buffer), body))),
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), None) => Err("no buffer came back".to_owned()),
        };
        if image.is_err() && attempt < ATTEMPTS_MAX {
            return self.sweep.spill_segment_retries.push((segment, attempt + 1));
        }
        let of_runs =
            self.sweep.runs.values_mut().flat_map(|run| run.spill_segments.iter_mut().flatten());
        let waiting = of_runs.filter(|found| found.image.is_none());
        waiting
            .filter(|found| Arc::ptr_eq(&found.segment, &segment))
            .for_each(|found| found.image = Some(image.clone()));
    }

    /// The spill segments of a run that have updates of one of its blocks. Others may cover its
    /// keys that have come into being since the run began: they have nothing of it. And in replay
    /// there are some that reach beyond the run: they are for a later one, as a whole.
    fn spill_segments_read<'a>(
        &self,
        run: &'a Run,
        block: &RunBlock,
    ) -> impl Iterator<Item = &'a Result<Arc<Image>, String>> {
        let mut wanted = self.spill_segments_of(block.owner, block.id);
        wanted.retain(|segment| segment.record.through <= run.frontier);
        let read = run.spill_segments.iter().flatten();
        let is_wanted = move |read: &&RunSpillSegment| {
            wanted.iter().any(|segment| Arc::ptr_eq(segment, &read.segment))
        };
        read.filter(is_wanted).filter_map(|read| read.image.as_ref())
    }

    /// Why the spill segments of a block of a run cannot be used, if so.
    pub(super) fn spill_segment_damage(&self, run: &Run, block: &RunBlock) -> Option<String> {
        let reason = self.spill_segments_read(run, block).find_map(|read| read.as_ref().err());
        reason.map(|reason| format!("a spill segment of updates that wait for it: {reason}"))
    }

    /// What spill segments have for a block of a run, as its job wants it.
    pub(super) fn job_spill_segments(&self, run: &Run, block: &RunBlock) -> JobSpillSegments {
        let images = self.spill_segments_read(run, block).filter_map(|read| read.as_ref().ok());
        let images: Vec<Arc<Image>> = images.map(Arc::clone).collect();
        if images.is_empty() {
            return JobSpillSegments::default();
        }
        let high = self.high_of(block.owner, &self.directory.block(block.id).key);
        let removed = self.removed_ranges.iter().filter(|(seq, record)| {
            self.directory.clones.concerns(record.space, *seq, block.owner)
        });
        JobSpillSegments { images, high, removed: removed.cloned().collect() }
    }
}
