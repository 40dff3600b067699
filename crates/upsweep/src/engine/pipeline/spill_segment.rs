//! Spill segments that a run needs: read along with its blocks, and applied before what waits in
//! memory.

use std::sync::Arc;

use super::Pipeline;
use super::block::RunBlock;
use super::run::Run;
use crate::device::Completion;
use crate::engine::base::Base;
use crate::engine::cache::Image;
use crate::engine::format::image_format;
use crate::engine::io::{IoKind, RunId};
use crate::engine::jobs::JobSpillSegments;
use crate::engine::spill_segments::{self, SpillSegment};

/// Attempts to read a spill segment before the updates in it count as lost.
const ATTEMPTS_MAX: u32 = 3;

/// A spill segment of a run.
#[derive(Clone)]
pub(super) struct RunSpillSegment {
    pub(super) segment: Arc<SpillSegment>,
    /// The image, or why it cannot be used; `None` while it is being read.
    image: Option<Result<Arc<Image>, String>>,
}

impl Run {
    /// Whether all spill segments of the run are read, or known to be damaged.
    pub(super) fn has_spill_segments(&self) -> bool {
        let spill_segments = self.spill_segments.as_ref();
        spill_segments.is_some_and(|all| all.iter().all(|segment| segment.image.is_some()))
    }
}

impl Pipeline {
    /// Reads the spill segments that have updates of the blocks of a run. While the run holds the
    /// blocks, no other such spill segments are created.
    pub(super) fn read_spill_segments(&mut self, base: &mut Base, id: RunId) {
        let mut spill_segments: Vec<Arc<SpillSegment>> = Vec::new();
        for block in &self.runs[&id].blocks {
            let found = base.index.directory().table.find(block.reference());
            let found = found.filter(|id| base.index.directory().block(*id).spilled > 0);
            let Some(space) = found.and_then(|id| base.index.directory().owner(id)) else {
                continue;
            };
            for segment in base.index.spill_segments_of(space.0.record.space, block.id) {
                if spill_segments.iter().all(|known| !Arc::ptr_eq(known, &segment)) {
                    spill_segments.push(segment);
                }
            }
        }
        let mut of_run = Vec::with_capacity(spill_segments.len());
        for segment in spill_segments {
            // Neighbouring runs need the same ones.
            let mut of_runs =
                self.runs.values().flat_map(|run| run.spill_segments.iter().flatten());
            let known = of_runs.find(|known| Arc::ptr_eq(&known.segment, &segment));
            let image = match known {
                Some(known) => known.image.clone(),
                None => base.index.cache.get(segment.record.extent).map(Ok),
            };
            if known.is_none() && image.is_none() {
                self.read_spill_segment(base, Arc::clone(&segment), 1);
            }
            of_run.push(RunSpillSegment { segment, image });
        }
        self.run_mut(id).spill_segments = Some(of_run);
    }

    fn read_spill_segment(&mut self, base: &mut Base, segment: Arc<SpillSegment>, attempt: u32) {
        let extent = segment.record.extent;
        base.metrics.spill_read_bytes_total.add(u64::from(extent.bytes));
        let owner = Some(segment.record.space);
        let token = base.read_for_sweep(IoKind::SpillSegmentRead, owner, extent);
        self.segment_reads.insert(token, (segment, attempt));
    }

    /// Retries the failed reads of spill segments.
    pub(super) fn retry_spill_segments(&mut self, base: &mut Base) {
        for (segment, attempt) in std::mem::take(&mut self.segment_retries) {
            self.read_spill_segment(base, segment, attempt);
        }
    }

    pub(in crate::engine) fn spill_segment_read_done(
        &mut self,
        base: &mut Base,
        completion: Completion,
    ) {
        let read = self.segment_reads.remove(&completion.token);
        let (segment, attempt) = read.expect("a spill segment read is listed");
        let identity = spill_segments::identity(base.config.store, &segment.record);
        let image = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => image_format::decode(&buffer, &identity)
                .map(|body| Arc::new(Image::new(Arc::new(buffer), body))),
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), None) => Err("no buffer came back".to_owned()),
        };
        if image.is_err() && attempt < ATTEMPTS_MAX {
            return self.segment_retries.push((segment, attempt + 1));
        }
        // If it was dropped meanwhile, something else may come to its place.
        if let Ok(image) = &image
            && base.index.spill_segments.has(&segment.record)
        {
            base.index.cache.put(segment.record.extent, Arc::clone(image));
        }
        let of_runs =
            self.runs.values_mut().flat_map(|run| run.spill_segments.iter_mut().flatten());
        let waiting = of_runs.filter(|found| found.image.is_none());
        waiting
            .filter(|found| Arc::ptr_eq(&found.segment, &segment))
            .for_each(|found| found.image = Some(image.clone()));
    }
}

/// The spill segments of a run that have updates of one of its blocks. Others that cover its keys
/// may have been created since the run began: they have none of its updates. And in replay some
/// reach beyond the run: as a whole they are for a later one.
fn spill_segments_read<'a>(
    base: &Base,
    run: &'a Run,
    block: &RunBlock,
) -> impl Iterator<Item = &'a Result<Arc<Image>, String>> {
    let mut wanted = base.index.spill_segments_of(block.owner, block.id);
    wanted.retain(|segment| segment.record.through <= run.frontier);
    let read = run.spill_segments.iter().flatten();
    let is_wanted = move |read: &&RunSpillSegment| {
        wanted.iter().any(|segment| Arc::ptr_eq(segment, &read.segment))
    };
    read.filter(is_wanted).filter_map(|read| read.image.as_ref())
}

/// Why the spill segments of a block of a run cannot be used, if they cannot.
pub(super) fn spill_segment_damage(base: &Base, run: &Run, block: &RunBlock) -> Option<String> {
    let reason = spill_segments_read(base, run, block).find_map(|read| read.as_ref().err());
    reason.map(|reason| format!("a spill segment of updates that wait for it: {reason}"))
}

/// The content of spill segments for a block of a run, in the form that its job needs.
pub(super) fn job_spill_segments(base: &Base, run: &Run, block: &RunBlock) -> JobSpillSegments {
    let images = spill_segments_read(base, run, block).filter_map(|read| read.as_ref().ok());
    let images: Vec<Arc<Image>> = images.map(Arc::clone).collect();
    if images.is_empty() {
        return JobSpillSegments::default();
    }
    let removed = base.index.removed_ranges().iter().filter(|(seq, record)| {
        base.index.directory().clones.concerns(record.space, *seq, block.owner)
    });
    JobSpillSegments { images, high: block.high.clone(), removed: removed.cloned().collect() }
}
