//! What a store holds initially: loaded in bulk, as production loads.

use std::collections::VecDeque;

use upsweep::layers::engine::{Chunk, LoadTarget, LoadedBlock, RunId};
use upsweep::layers::runtime::BlockLimits;
use upsweep::layers::structures::hash::HASH_FORMAT;
use upsweep::layers::structures::table::{LoadOptions, TABLE_FORMAT, TableLoader};
use upsweep::{Error, ValueKind, ValueRef};

use super::{IDLE_STEPS_MAX, KEY_BYTES, Kind, Store, problem};
use crate::problem::Problem;
use crate::systems::buckets::BucketLoader;
use crate::systems::pages::Records;

/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = 16;
/// Chunks that are written at a time.
const CHUNKS: usize = 4;

impl Store {
    pub(super) fn load(&mut self, records: Records) -> Result<(), Problem> {
        let format = match self.plan.kind {
            Kind::Table => TABLE_FORMAT,
            Kind::HashTable => HASH_FORMAT,
        };
        self.make(format, true)?;
        let limits = BlockLimits::of(&self.core);
        let value = vec![0; (self.plan.record_bytes - KEY_BYTES) as usize];
        let keys = (0..records.count).map(|number| (number * records.stride).to_be_bytes());
        let value = ValueRef { kind: ValueKind::Bytes, bytes: value.as_slice() };
        let percent = self.plan.fill_percent;
        match self.plan.kind {
            Kind::Table => {
                let options = LoadOptions::default().fill_percent(percent);
                let blocks = TableLoader::new(keys.map(|key| Ok((key, value))), limits, options);
                self.fill(blocks.map_err(problem("loading"))?)
            }
            Kind::HashTable => {
                let blocks = BucketLoader::new(keys, value, limits, percent);
                self.fill(blocks.map(Ok))
            }
        }
    }

    /// Makes the structure that the store has.
    pub(super) fn make(&mut self, format: &str, large_values: bool) -> Result<(), Problem> {
        let made = self.core.create_space("records", format, large_values);
        let (space, seq) = made.map_err(problem("making a structure"))?;
        self.space = space;
        self.run_until("a structure is there", |core| core.published() >= seq)
    }

    /// Fills it with these blocks.
    pub(super) fn fill(
        &mut self,
        blocks: impl Iterator<Item = Result<LoadedBlock, Error>>,
    ) -> Result<(), Problem> {
        let (target, seq) = self.core.begin_load(self.space).map_err(problem("loading"))?;
        self.run_until("a load has begun", |core| core.published() >= seq)?;
        self.write_blocks(&target, blocks)?;
        let seq = self.core.finish_load(&target, self.space).map_err(problem("loading"))?;
        self.run_until("a load has ended", |core| core.published() >= seq)?;
        self.core.request_checkpoint();
        self.run_until("a checkpoint has ended", |core| !core.is_active())
    }

    fn write_blocks(
        &mut self,
        target: &LoadTarget,
        blocks: impl Iterator<Item = Result<LoadedBlock, Error>>,
    ) -> Result<(), Problem> {
        let mut on_their_way: VecDeque<RunId> = VecDeque::new();
        let mut chunk = Vec::new();
        for block in blocks {
            chunk.push(block.map_err(problem("loading"))?);
            if chunk.len() == CHUNK_BLOCKS {
                on_their_way.push_back(self.core.load(Chunk::new(target, &chunk)));
                chunk.clear();
            }
            if on_their_way.len() == CHUNKS {
                on_their_way.pop_front().map_or(Ok(()), |first| self.end_of_chunk(first))?;
            }
        }
        if !chunk.is_empty() {
            on_their_way.push_back(self.core.load(Chunk::new(target, &chunk)));
        }
        on_their_way.into_iter().try_for_each(|id| self.end_of_chunk(id))
    }

    fn end_of_chunk(&mut self, id: RunId) -> Result<(), Problem> {
        for _ in 0..IDLE_STEPS_MAX {
            if let Some(ended) = self.core.load_ended(id) {
                return ended.map_err(problem("loading"));
            }
            self.step()?;
        }
        Err(Problem::Simulation("a load does not end".into()))
    }
}
