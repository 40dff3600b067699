//! Bundles that a run needs: read beside its blocks, and applied before what waits in memory.

use std::sync::Arc;

use super::RunId;
use super::run::{Run, RunBlock};
use super::run_job::JobBundles;
use crate::device::Completion;
use crate::engine::bundles::{self, Bundle};
use crate::engine::cache::Image;
use crate::engine::core::{Actions, Core, IoKind};
use crate::engine::directory::BlockId;
use crate::engine::format::image_format;

/// Times that a bundle is asked for before the updates in it count as lost.
const ATTEMPTS_MAX: u32 = 3;

/// A bundle of a run.
#[derive(Clone)]
pub(super) struct RunBundle {
    pub(super) bundle: Arc<Bundle>,
    /// What was read, or why it cannot be used; `None` while the read is on its way.
    image: Option<Result<Arc<Image>, String>>,
}

impl Run {
    /// Whether all bundles of the run are there, or are known to be damaged.
    pub(super) fn has_bundles(&self) -> bool {
        let bundles = self.bundles.as_ref();
        bundles.is_some_and(|all| all.iter().all(|bundle| bundle.image.is_some()))
    }
}

impl Core {
    /// The bundles that have updates of a block which is seen through `space`.
    pub(in crate::engine) fn bundles_of(&self, space: u32, id: BlockId) -> Vec<Arc<Bundle>> {
        if self.directory.block(id).spilled == 0 {
            return Vec::new();
        }
        self.bundles_beyond(space, id)
    }

    /// The bundles that cover positions of a block and reach beyond its frontier.
    pub(in crate::engine) fn bundles_beyond(&self, space: u32, id: BlockId) -> Vec<Arc<Bundle>> {
        let block = self.directory.block(id);
        let (low, frontier) = (&block.key, block.placement().frontier);
        let (sources, high) = (self.directory.clones.sources(space), self.high_of(space, low));
        let mut found = self.bundles.concerning(&sources, low, high.as_deref());
        found.retain(|bundle| bundle.record.through > frontier);
        found
    }

    /// Reads the bundles that have updates of the blocks of a run. While it has the blocks in hand
    /// no other bundles come into being that do.
    pub(super) fn read_bundles(&mut self, id: RunId, actions: &mut Actions) {
        let mut bundles: Vec<Arc<Bundle>> = Vec::new();
        for block in &self.sweep.runs[&id].blocks {
            let found = self.directory.table.find(block.reference());
            let found = found.filter(|id| self.directory.block(*id).spilled > 0);
            let Some(space) = found.and_then(|id| self.directory.owner(id)) else { continue };
            for bundle in self.bundles_of(space.0.record.space, block.id) {
                if bundles.iter().all(|known| !Arc::ptr_eq(known, &bundle)) {
                    bundles.push(bundle);
                }
            }
        }
        let mut of_run = Vec::with_capacity(bundles.len());
        for bundle in bundles {
            // Neighbouring runs need the same ones.
            let mut of_runs = self.sweep.runs.values().flat_map(|run| run.bundles.iter().flatten());
            let known = of_runs.find(|known| Arc::ptr_eq(&known.bundle, &bundle));
            let image = known.and_then(|known| known.image.clone());
            if known.is_none() {
                self.read_bundle(Arc::clone(&bundle), 1, actions);
            }
            of_run.push(RunBundle { bundle, image });
        }
        self.run_mut(id).bundles = Some(of_run);
    }

    fn read_bundle(&mut self, bundle: Arc<Bundle>, attempt: u32, actions: &mut Actions) {
        let extent = bundle.record.extent;
        self.statistics.sweep_read_bytes += u64::from(extent.bytes);
        self.statistics.spill_read_bytes += u64::from(extent.bytes);
        let owner = Some(bundle.record.space);
        let read = self.read_request(IoKind::BundleRead, owner, extent);
        self.sweep.bundle_reads.insert(read.token, (bundle, attempt));
        actions.requests.push(read);
    }

    /// Asks once more for bundles that did not come.
    pub(super) fn retry_bundles(&mut self, actions: &mut Actions) {
        for (bundle, attempt) in std::mem::take(&mut self.sweep.bundle_retries) {
            self.read_bundle(bundle, attempt, actions);
        }
    }

    pub(in crate::engine) fn bundle_read_done(&mut self, completion: Completion) {
        let read = self.sweep.bundle_reads.remove(&completion.token);
        let (bundle, attempt) = read.expect("a bundle read is listed");
        let identity = bundles::identity(self.config.store, &bundle.record);
        let image = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => image_format::decode(&buffer, &identity)
                .map(|body| Arc::new(Image::new(Arc::new(buffer), body))),
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), None) => Err("no buffer came back".to_owned()),
        };
        if image.is_err() && attempt < ATTEMPTS_MAX {
            return self.sweep.bundle_retries.push((bundle, attempt + 1));
        }
        let of_runs = self.sweep.runs.values_mut().flat_map(|run| run.bundles.iter_mut().flatten());
        let waiting = of_runs.filter(|found| found.image.is_none());
        waiting
            .filter(|found| Arc::ptr_eq(&found.bundle, &bundle))
            .for_each(|found| found.image = Some(image.clone()));
    }

    /// The bundles of a run that have updates of one of its blocks. Others may cover its keys that
    /// have come into being since the run began: they have nothing of it. And in replay there are
    /// some that reach beyond the run: they are for a later one, as a whole.
    fn bundles_read<'a>(
        &self,
        run: &'a Run,
        block: &RunBlock,
    ) -> impl Iterator<Item = &'a Result<Arc<Image>, String>> {
        let mut wanted = self.bundles_of(block.owner, block.id);
        wanted.retain(|bundle| bundle.record.through <= run.frontier);
        let read = run.bundles.iter().flatten();
        let is_wanted =
            move |read: &&RunBundle| wanted.iter().any(|bundle| Arc::ptr_eq(bundle, &read.bundle));
        read.filter(is_wanted).filter_map(|read| read.image.as_ref())
    }

    /// Why the bundles of a block of a run cannot be used, if so.
    pub(super) fn bundle_damage(&self, run: &Run, block: &RunBlock) -> Option<String> {
        let reason = self.bundles_read(run, block).find_map(|read| read.as_ref().err());
        reason.map(|reason| format!("a bundle of updates that wait for it: {reason}"))
    }

    /// What bundles have for a block of a run, as its job wants it.
    pub(super) fn job_bundles(&self, run: &Run, block: &RunBlock) -> JobBundles {
        let images = self.bundles_read(run, block).filter_map(|read| read.as_ref().ok());
        let images: Vec<Arc<Image>> = images.map(Arc::clone).collect();
        if images.is_empty() {
            return JobBundles::default();
        }
        let high = self.high_of(block.owner, &self.directory.block(block.id).key);
        let removed = self.removed_ranges.iter().filter(|(seq, record)| {
            self.directory.clones.concerns(record.space, *seq, block.owner)
        });
        JobBundles { images, high, removed: removed.cloned().collect() }
    }
}
