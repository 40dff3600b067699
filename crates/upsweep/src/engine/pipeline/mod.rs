//! The pipeline: moves runs of blocks from the devices through a worker back to the devices.
//!
//! The steps of a run:
//! 1. read the stretch in one request, and the spill segments that have updates of its blocks;
//! 2. *freeze* the queues of its blocks (as late as possible, so that more is batched): the run's
//!    frontier is the last update accepted by then;
//! 3. apply the frozen updates, on a worker (`jobs/run_job.rs`); blocks split and merge here;
//! 4. write the new images to free space, in one request where free space allows;
//! 5. flush (one flush serves all runs that wait for it), then log the change;
//! 6. when the log record is durable, publish: the directory changes, the old space is free.
//!
//! Several runs are in progress at a time, so that reading, applying and writing overlap. The sweep
//! (`sweep/`), not the pipeline, decides which blocks become a run.
//!
//! | file | what it does |
//! |---|---|
//! | `run.rs` | the run and its steps |
//! | `block.rs` | a block of a run: its image as read |
//! | `spill_segment.rs` | spill segments that a run needs |
//! | `values.rs` | large values that a run needs |
//! | `owner.rs` | the space through which a run sees its blocks |
//! | `place.rs` | placement of the images |
//! | `change.rs` | the change that publishes a run |

mod block;
mod change;
mod owner;
mod place;
mod run;
mod spill_segment;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) use place::write_requests;
use run::Run;

use super::base::Base;
use super::config::Config;
use super::directory::BlockId;
use super::io::RunId;
use super::jobs::JobDone;
use super::spill_segments::SpillSegment;
use crate::broken::{self, Fault};
use crate::device::Token;
use crate::engine::ids::SpaceId;
use crate::log::Seq;

/// The runs in progress.
#[derive(Default)]
pub(super) struct Pipeline {
    runs: BTreeMap<RunId, Run>,
    last_run: u64,
    /// Spill segments being read for runs, with the number of attempts.
    segment_reads: BTreeMap<Token, (Arc<SpillSegment>, u32)>,
    /// Those whose read failed, to be read again.
    segment_retries: Vec<(Arc<SpillSegment>, u32)>,
    /// Loaded blocks for which there was no room.
    failed_loads: Vec<RunId>,
    /// A run was abandoned for lack of room since the last query.
    has_found_no_room: bool,
}

impl Pipeline {
    /// A number for a new run.
    pub(super) fn new_id(&mut self) -> RunId {
        self.last_run += 1;
        RunId(self.last_run)
    }

    /// Starts a run of neighbouring blocks, which are read together.
    pub(super) fn start(&mut self, base: &mut Base, blocks: &[BlockId]) {
        let id = self.add(base, blocks);
        self.begin_read(base, id);
    }

    /// Starts a run of blocks that are not adjacent: each is read separately.
    pub(super) fn start_scattered(&mut self, base: &mut Base, blocks: &[BlockId]) -> RunId {
        let id = self.add(base, blocks);
        self.run_mut(id).read_one_by_one();
        if broken::is(Fault::CompactionWithoutSpills) {
            self.run_mut(id).spill_segments = Some(Vec::new());
        }
        id
    }

    fn add(&mut self, base: &mut Base, blocks: &[BlockId]) -> RunId {
        debug_assert!(!blocks.is_empty(), "a run has blocks");
        let id = self.new_id();
        blocks.iter().for_each(|block| base.index.pin(*block));
        let run = Run::new(blocks, &base.index.directory().table, base.block_bytes);
        self.runs.insert(id, run);
        id
    }

    /// Starts a run whose images exist already: blocks of a load of a space.
    pub(super) fn start_load(
        &mut self,
        id: RunId,
        (space, seq): (SpaceId, Seq),
        done: Box<JobDone>,
    ) {
        let before = self.runs.insert(id, Run::of_load(space, seq, done));
        assert!(before.is_none(), "a number is given once");
    }

    /// Returns once whether the blocks of this load found no room.
    pub(super) fn take_failed_load(&mut self, id: RunId) -> bool {
        let failed = self.failed_loads.iter().position(|failed| *failed == id);
        failed.is_some_and(|position| self.failed_loads.swap_remove(position) == id)
    }

    /// Whether a run was abandoned for lack of room since the last call.
    pub(super) fn take_no_room(&mut self) -> bool {
        std::mem::take(&mut self.has_found_no_room)
    }

    /// Whether this run is in progress.
    pub(super) fn has(&self, id: RunId) -> bool {
        self.runs.contains_key(&id)
    }

    /// Whether no run is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether there are buffers for another run. One that waits for a flush or the log has its
    /// bytes on the device, and holds none.
    pub(super) fn has_buffers(&self, config: &Config) -> bool {
        let holding = self.runs.values().filter(|run| run.holds_buffers()).count();
        holding < config.runs_in_flight_max
    }

    /// Runs that read from this data device.
    pub(super) fn readers_of(&self, device: usize) -> usize {
        self.runs.values().filter(|run| run.reads_from(device)).count()
    }

    /// Runs for whose changes the log has no room.
    pub(super) fn waiting_for_log(&self) -> Vec<RunId> {
        let waiting = self.runs.iter().filter(|(_, run)| run.waits_for_log());
        waiting.map(|(id, _)| *id).collect()
    }

    /// Whether a run waits for log space that is not available.
    pub(super) fn waits_for_log(&self) -> bool {
        self.runs.values().any(Run::waits_for_log)
    }

    /// Computes the totals of runs and spills in progress: by how much blocks may grow, and memory.
    fn count_in_hand(&self, base: &mut Base, spills_growth_bytes: u64) {
        let of_runs: u64 = self.runs.values().map(|run| run.growth_bytes).sum();
        let holding = self.runs.values().filter(|run| run.holds_buffers());
        base.in_hand.unlogged_blocks = self.runs.values().map(Run::unlogged_blocks).sum();
        base.in_hand.growth_bytes = of_runs + spills_growth_bytes;
        // Large values come from long queues.
        base.in_hand.values_bytes = holding.map(|run| run.values_bytes.max(run.excess_bytes)).sum();
    }
}
