//! Placement of a finished run: the places of its images, and the writes to them.
//!
//! Late binding: places are chosen when the bytes are ready. A run that grows may not use the last
//! reserve of free space, so that runs which shrink always find room.

use std::ops::Range;

use super::Pipeline;
use super::block::RunBlock;
use super::change::{self, of_damaged};
use super::run::RunPhase;
use crate::broken::{self, Fault};
use crate::device::Buffer;
use crate::engine::base::Base;
use crate::engine::growth::Growth;
use crate::engine::io::{IoKind, RunId};
use crate::engine::jobs::{Job, JobDone, NewBlock};
use crate::placement::{Extent, UNIT_BYTES};

impl Pipeline {
    /// Finds room for the run's images and writes them.
    pub(super) fn place_run(
        &mut self,
        base: &mut Base,
        growth: &mut Growth,
        id: RunId,
        jobs: &mut Vec<Job>,
    ) {
        let phase = std::mem::replace(&mut self.run_mut(id).phase, RunPhase::Applying);
        let RunPhase::Placing(mut done) = phase else { return };
        let Some((extents, values)) = self.allocate_for(base, id, &done) else {
            self.no_room_for(base, growth, id, done, jobs);
            return;
        };
        base.index.set_full(false);
        let placed = done.blocks.iter_mut().filter(|block| block.bytes > 0).zip(&extents);
        for (image, extent) in placed.filter_map(|(block, at)| Some((block.for_cache.take()?, *at)))
        {
            base.index.cache.put(extent, image);
        }
        let run = &self.runs[&id];
        let change = change::describe(base.index.directory(), run, &done, &extents, &values);
        let mut quarantined = std::mem::take(&mut done.quarantined);
        quarantined.extend(of_damaged(base, run));
        let writes =
            write_requests(&extents, std::mem::replace(&mut done.buffer, Buffer::zeroed(0)));
        let images = done.values.into_iter().map(|(_, _, image)| image);
        let large_writes = values.into_iter().zip(images).filter_map(|(to, image)| to.zip(image));
        let writes: Vec<(Extent, Buffer)> = writes.into_iter().chain(large_writes).collect();
        let written: u64 = writes.iter().map(|(_, buffer)| buffer.len() as u64).sum();
        base.metrics.sweep_written_bytes_total.add(written);
        let pending = writes.len();
        let owner = self.runs[&id].owner();
        for (extent, buffer) in writes {
            base.io.write(IoKind::RunWrite(id), owner, extent, buffer);
        }
        let run = self.run_mut(id);
        run.blocks.iter_mut().for_each(RunBlock::forget_image);
        let spill_segments = run.spill_segments.replace(Vec::new()).into_iter().flatten();
        run.applied_spill_segments = spill_segments.map(|read| read.segment).collect();
        run.change = change;
        run.quarantined = quarantined;
        run.phase = RunPhase::Writing { pending };
        if pending == 0 {
            self.run_written(base, id);
        }
    }

    /// Extents for the images and the large values of a finished job, or none of them.
    fn allocate_for(
        &mut self,
        base: &mut Base,
        id: RunId,
        done: &JobDone,
    ) -> Option<(Vec<Extent>, Vec<Option<Extent>>)> {
        if broken::is(Fault::OverwriteInPlace)
            && let Some(extents) = self.old_places(id, done)
        {
            return Some((extents, vec![None; done.values.len()]));
        }
        let lengths: Vec<u32> =
            done.blocks.iter().map(|block| block.bytes).filter(|bytes| *bytes > 0).collect();
        let images = done.values.iter().filter_map(|(_, _, image)| image.as_ref());
        let large: u64 = images.map(|image| image.len() as u64).sum();
        let wanted = lengths.iter().map(|bytes| u64::from(*bytes)).sum::<u64>() + large;
        let extents_before = self.runs[&id].blocks.iter().filter_map(RunBlock::extent);
        let before: u64 = extents_before.map(|extent| u64::from(extent.bytes)).sum();
        let grows = if wanted > before { base.shadow_bytes() } else { 0 };
        let kept = base.checkpoint_bytes() + grows;
        if base.index.space_map.free_bytes() < wanted + kept {
            return None;
        }
        let extents = base.index.space_map.allocate_run(&lengths)?;
        let mut values = Vec::with_capacity(done.values.len());
        for (_, _, image) in &done.values {
            let bytes = image.as_ref().map(|i| u32::try_from(i.len()).expect("below 4 GiB"));
            let extent = bytes.map(|bytes| base.index.space_map.allocate_high(bytes));
            if extent == Some(None) {
                let taken = extents.iter().copied().chain(values.into_iter().flatten());
                taken.for_each(|extent| base.index.space_map.free(extent));
                return None;
            }
            values.push(extent.flatten());
        }
        Some((extents, values))
    }

    /// The present places of the blocks of the run, if each of them has kept its length.
    fn old_places(&self, id: RunId, done: &JobDone) -> Option<Vec<Extent>> {
        let old = self.runs[&id].blocks.iter().map(RunBlock::extent);
        let same = |(old, new): (Option<Extent>, &NewBlock)| {
            old.filter(|extent| extent.bytes == new.bytes)
        };
        let extents: Option<Vec<Extent>> = old.zip(&done.blocks).map(same).collect();
        let same_count = self.runs[&id].blocks.len() == done.blocks.len();
        extents.filter(|_| same_count && done.values.is_empty())
    }

    /// Waits for the device to grow, makes smaller blocks if free space is merely fragmented, or
    /// abandons the run and puts its updates back.
    fn no_room_for(
        &mut self,
        base: &mut Base,
        growth: &mut Growth,
        id: RunId,
        done: Box<JobDone>,
        jobs: &mut Vec<Job>,
    ) {
        let large = done.values.iter().filter_map(|(_, _, image)| image.as_ref());
        let bytes = (done.buffer.len() + large.map(|image| image.len()).sum::<usize>()) as u64;
        let half = u64::from(self.runs[&id].block_bytes) / 2;
        let in_pieces = base.index.space_map.free_bytes() >= bytes + base.checkpoint_bytes();
        if growth.begin(base, bytes) {
            self.run_mut(id).phase = RunPhase::Placing(done);
        } else if self.runs[&id].load.is_some() {
            self.runs.remove(&id);
            self.failed_loads.push(id);
            base.waiters.tell();
        } else if in_pieces && half >= UNIT_BYTES {
            let run = self.run_mut(id);
            run.block_bytes = (half - half % UNIT_BYTES) as u32;
            run.may_split_shared = true;
            self.send_job(base, id, Vec::new(), jobs);
        } else {
            self.cancel_run(base, growth, id);
        }
    }
}

/// The images of these extents, which lie in `buffer` one behind the other, as one write per
/// stretch of adjacent extents.
pub(in crate::engine) fn write_requests(
    extents: &[Extent],
    buffer: Buffer,
) -> Vec<(Extent, Buffer)> {
    let mut at = 0;
    let mut images: Vec<(Extent, Range<usize>)> = Vec::with_capacity(extents.len());
    for extent in extents {
        let start = at;
        at += extent.bytes as usize;
        images.push((*extent, start..at));
    }
    let follows =
        |left: &Extent, right: &Extent| left.device == right.device && left.end() == right.offset;
    if !extents.is_empty() && extents.is_sorted_by(follows) {
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        return vec![(Extent { bytes, ..extents[0] }, buffer)];
    }
    // One that fills the end of a track may lie before others.
    images.sort_unstable_by_key(|image| image.0);
    let stretches = images.chunk_by(|left, right| follows(&left.0, &right.0));
    let write = |stretch: &[(Extent, Range<usize>)]| {
        let bytes = stretch.iter().map(|image| image.0.bytes).sum();
        let mut content = Buffer::recycled(bytes as usize);
        let mut at = 0;
        for (_, range) in stretch {
            content[at..at + range.len()].copy_from_slice(&buffer[range.clone()]);
            at += range.len();
        }
        (Extent { bytes, ..stretch[0].0 }, content)
    };
    stretches.map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;

    fn extents(of: &[(u16, u64, u32)]) -> Vec<Extent> {
        let extent = |&(device, unit, units): &(u16, u64, u32)| Extent {
            device: DeviceId(device),
            offset: unit * UNIT_BYTES,
            bytes: units * UNIT_BYTES as u32,
        };
        of.iter().map(extent).collect()
    }

    /// The writes of a buffer in which every unit is full of its number.
    fn writes(of: &[(u16, u64, u32)]) -> Vec<(Extent, Vec<u8>)> {
        let extents = extents(of);
        let units = extents.iter().map(|extent| u64::from(extent.bytes) / UNIT_BYTES).sum::<u64>();
        let bytes: Vec<u8> =
            (0..units).flat_map(|unit| [unit as u8; UNIT_BYTES as usize]).collect();
        let writes = write_requests(&extents, Buffer::copy_of(&bytes));
        let first =
            |buffer: &Buffer| buffer.chunks(UNIT_BYTES as usize).map(|unit| unit[0]).collect();
        writes.into_iter().map(|(extent, buffer)| (extent, first(&buffer))).collect()
    }

    #[test]
    fn neighbours_are_written_with_one_request() {
        let found = writes(&[(0, 10, 1), (0, 11, 2), (0, 13, 1)]);
        assert_eq!(found, [(extents(&[(0, 10, 4)])[0], vec![0, 1, 2, 3])]);
    }

    #[test]
    fn each_stretch_has_the_bytes_of_its_own_images() {
        let found = writes(&[(0, 10, 1), (0, 11, 1), (0, 20, 2), (1, 22, 1)]);
        let wanted = extents(&[(0, 10, 2), (0, 20, 2), (1, 22, 1)]);
        let bytes = [vec![0, 1], vec![2, 3], vec![4]];
        assert_eq!(found, wanted.into_iter().zip(bytes).collect::<Vec<_>>());
    }

    #[test]
    fn an_image_before_others_of_its_run_is_written_with_its_neighbours() {
        let found = writes(&[(0, 10, 1), (0, 20, 2), (0, 11, 1), (0, 12, 1)]);
        let wanted = extents(&[(0, 10, 3), (0, 20, 2)]);
        let bytes = [vec![0, 3, 4], vec![1, 2]];
        assert_eq!(found, wanted.into_iter().zip(bytes).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_without_images_writes_nothing() {
        assert!(write_requests(&[], Buffer::zeroed(0)).is_empty());
    }
}
