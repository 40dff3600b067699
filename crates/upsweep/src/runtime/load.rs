//! Bulk loads: their blocks, the limits of a block, and how they are carried out.
//!
//! Steps: the caller's thread takes blocks, which is where records are packed, and gathers them
//! into chunks; a thread of the load checks each chunk, makes its images and submits their writes.
//! So the two share the processor time per byte, and neither waits for the device.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime is where threads and channels are made"
)]
#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, scope};

use super::block_store::BlockStore;
use crate::device::Bulk;
use crate::engine::block_format::{BlockFormat, Routing};
use crate::engine::format::image_format;
use crate::engine::{BlockSizes, Chunk, Core, LoadTarget, LoadedBlock, RunId, SpaceId};
use crate::error::{Error, RequestError, RetryError};

/// Maximum number of packed chunks that wait for the writing thread.
const PACKED_MAX: usize = 2;

/// Consecutive blocks, enough to be written together.
#[derive(Default)]
struct PackedBlocks {
    blocks: Vec<LoadedBlock>,
    /// Bytes of their bodies and large values.
    bytes: usize,
    /// The key of the block after them, if there is one.
    high: Option<Vec<u8>>,
}

/// Summary of a bulk load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadSummary {
    /// Records.
    pub records: u64,
    /// Blocks that hold them.
    pub blocks: u64,
    /// Large values, which are stored outside these blocks.
    pub values: u64,
    /// Bytes of the bodies of blocks and large values together.
    pub bytes: u64,
}

impl LoadSummary {
    /// Counts a loaded block.
    pub fn add(&mut self, block: &LoadedBlock) {
        self.records += u64::from(block.records);
        self.blocks += 1;
        self.values += block.values.len() as u64;
        self.bytes += block.bytes() as u64;
    }
}

/// The limits of the blocks of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Target sizes of a block with its header and key.
    pub block_sizes: BlockSizes,
    /// Bytes of the store's existing blocks.
    pub image_bytes: u64,
    /// Values above this many bytes are stored outside their block.
    pub inline_value_bytes_max: usize,
}

impl BlockLimits {
    /// Those of a store.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        let config = core.config();
        Self {
            block_sizes: config.block_sizes(),
            image_bytes: core.costs().image_bytes,
            inline_value_bytes_max: config.inline_value_bytes_max(),
        }
    }

    /// Target maximum length of the body of the block with this key, in bytes, unless it holds a
    /// single record. `loaded_bytes` are those of the blocks before it; as many more are assumed to
    /// follow: the more data, the larger blocks are.
    #[must_use]
    pub fn body_bytes(&self, block_key: &[u8], loaded_bytes: u64) -> usize {
        let target = self.block_sizes.target_for(self.image_bytes + 2 * loaded_bytes);
        image_format::body_bytes_max(target as usize, block_key)
    }

    /// Maximum length of its body, in bytes.
    fn body_bytes_max(&self, block_key: &[u8]) -> usize {
        image_format::body_bytes_max(self.block_sizes.most as usize, block_key)
    }
}

impl BlockStore {
    /// Fills an empty space of ordered blocks with whole `blocks`, in the order of their keys: all
    /// of them, or none if this returns an error, also after a crash. An error among the blocks
    /// ends the load and is returned. When this returns, everything is on stable media. Updates of
    /// the space meanwhile are accepted, and make the load fail.
    ///
    /// Cost: every block is written once, in the order in which they come, with requests of
    /// [`OpenOptions::bulk_request_bytes`](crate::OpenOptions::bulk_request_bytes); one log record
    /// for each; one additional thread. Memory besides the budget: about 12 MiB with requests of up
    /// to 1 MiB, and 8 requests from 2 MiB on; with large values, three more blocks, each with all
    /// its large values.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::NotEmpty`]; [`RequestError::ReadOnly`];
    /// [`RequestError::BadFormat`] for a body that the format of the space does not write, or if
    /// its blocks are not ordered; [`RetryError::Full`]; [`RetryError::NoThread`];
    /// [`Error::Closed`].
    pub fn load(
        &self,
        space: SpaceId,
        blocks: &mut dyn Iterator<Item = Result<LoadedBlock, Error>>,
    ) -> Result<LoadSummary, Error> {
        let format = self.format_of(space)?;
        if format.routing() != Routing::Ordered {
            let reason = "its blocks are not ordered, so they cannot be loaded".to_owned();
            return Err(RequestError::BadFormat { format: format.name().to_owned(), reason }.into());
        }
        let (target, seq) = self.structural(|core| core.begin_load(space))?;
        self.wait_published(seq)?;
        let mut unfinished = Unfinished { store: self, hidden: Some(target.space) };
        let summary = self.load_all(&target, &*format, blocks)?;
        let seq = self.structural(|core| core.finish_load(&target, space))?;
        unfinished.hidden = None;
        self.wait_published(seq)?;
        Ok(summary)
    }

    /// Writes all `blocks`, and waits for them.
    fn load_all(
        &self,
        target: &LoadTarget,
        format: &dyn BlockFormat,
        blocks: &mut dyn Iterator<Item = Result<LoadedBlock, Error>>,
    ) -> Result<LoadSummary, Error> {
        let (hand_over, packed) = sync_channel(PACKED_MAX);
        let bulk = self.inner.shared.lock().core.config().bulk;
        scope(|scope| {
            let builder = Builder::new().name("upsweep-load".to_owned());
            let writer = builder
                .spawn_scoped(scope, || self.write_all(target, format, &bulk, packed))
                .map_err(|error| RetryError::NoThread(error.to_string()))?;
            let summary = pack_all(blocks, bulk.request_bytes as usize, &hand_over);
            drop(hand_over);
            // An error of the writer ends the packing too, and is the one to report.
            let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(summary)
        })
    }

    /// Writes chunks until there are no more, and waits for them.
    fn write_all(
        &self,
        target: &LoadTarget,
        format: &dyn BlockFormat,
        bulk: &Bulk,
        packed: Receiver<PackedBlocks>,
    ) -> Result<(), Error> {
        let mut on_their_way: VecDeque<(RunId, usize)> = VecDeque::new();
        let limits = self.limits();
        // While one chunk is prepared, others are written or wait for a flush.
        let bytes_max = bulk.bytes_in_flight();
        let mut is_first = true;
        for chunk in packed {
            for (index, block) in chunk.blocks.iter().enumerate() {
                let next = chunk.blocks.get(index + 1).map(|next| &next.key);
                let high = next.or(chunk.high.as_ref()).map(Vec::as_slice);
                check_block(format, limits, block, high, is_first)?;
                is_first = false;
            }
            let images = Chunk::new(target, &chunk.blocks);
            while on_their_way.iter().map(|chunk| chunk.1).sum::<usize>() >= bytes_max {
                let first = on_their_way.pop_front();
                first.map_or(Ok(()), |(first, _)| self.wait_loaded(first))?;
            }
            let mut images = Some(images);
            let id = self.inner.shared.wait_until(|core| Some(core.load(images.take()?)))?;
            on_their_way.push_back((id, chunk.bytes));
        }
        on_their_way.into_iter().try_for_each(|(id, _)| self.wait_loaded(id))
    }

    fn wait_loaded(&self, id: RunId) -> Result<(), Error> {
        self.inner.shared.wait_until(|core| core.load_ended(id))?
    }
}

/// A load that is abandoned unless it is finished.
struct Unfinished<'a> {
    store: &'a BlockStore,
    hidden: Option<SpaceId>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(hidden) = self.hidden {
            // If this fails, the store is closed, and the next open drops what was loaded.
            let given_up = self.store.structural(|core| core.abandon_load(hidden));
            drop(given_up.and_then(|seq| self.store.wait_published(seq)));
        }
    }
}

/// Gathers `blocks` into chunks of `chunk_bytes`, unless it is one block with many large values,
/// and hands them over; ends early if the writer has ended.
fn pack_all(
    blocks: &mut dyn Iterator<Item = Result<LoadedBlock, Error>>,
    chunk_bytes: usize,
    hand_over: &SyncSender<PackedBlocks>,
) -> Result<LoadSummary, Error> {
    let mut summary = LoadSummary::default();
    let mut chunk = PackedBlocks::default();
    for block in blocks {
        let block = block?;
        let bytes = block.bytes();
        if chunk.bytes > 0 && chunk.bytes + bytes > chunk_bytes {
            chunk.high = Some(block.key.clone());
            if hand_over.send(std::mem::take(&mut chunk)).is_err() {
                return Ok(summary);
            }
        }
        summary.add(&block);
        chunk.bytes += bytes;
        chunk.blocks.push(block);
    }
    if !chunk.blocks.is_empty() {
        // If it is not received, the writer has ended with an error.
        drop(hand_over.send(chunk));
    }
    Ok(summary)
}

/// Checks that a block is valid; `high` is the key of the next.
fn check_block(
    format: &dyn BlockFormat,
    limits: BlockLimits,
    block: &LoadedBlock,
    high: Option<&[u8]>,
    is_first: bool,
) -> Result<(), Error> {
    let found = format.check(&block.body, &block.key, high);
    let reason = match found {
        Err(reason) => reason,
        Ok(_) if is_first && !block.key.is_empty() => "the first block has a key".to_owned(),
        Ok(_) if high.is_some_and(|high| *block.key >= *high) => {
            "its key is not below that of the next block".to_owned()
        }
        Ok(found) if found.records != block.records || found.records == 0 => {
            format!("{} records in a block that is to have {}", found.records, block.records)
        }
        Ok(found) if !has_values(block, &found.values) => {
            "its large values are not those to which it refers".to_owned()
        }
        Ok(_) if block.records > 1 && block.body.len() > limits.body_bytes_max(&block.key) => {
            let (bytes, limit) = (block.body.len(), limits.body_bytes_max(&block.key));
            format!("its body has {bytes} bytes; the limit is {limit}")
        }
        Ok(_) => return Ok(()),
    };
    let key = String::from_utf8_lossy(&block.key);
    let reason = format!("block {key:?}: {reason}");
    Err(RequestError::BadFormat { format: format.name().to_owned(), reason }.into())
}

/// Whether the large values of a block are those that its body names, by key and length.
fn has_values(block: &LoadedBlock, named: &[(Vec<u8>, u32)]) -> bool {
    let mut pairs = block.values.iter().zip(named);
    block.values.len() == named.len()
        && pairs.all(|((key, body), (name, bytes))| key == name && body.len() == *bytes as usize)
}
