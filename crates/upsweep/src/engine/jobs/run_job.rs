//! The work of a run that needs no engine state: apply frozen updates, split, merge, encode.
//!
//! A job owns its input, runs on any thread, and is deterministic. Steps: sort each block's updates
//! by key; let the format apply them; merge thin neighbours; show the blocks to visitors; lay out
//! the images of the run consecutively, each in whole units, and seal them with their checksums.

use std::sync::Arc;

use crate::device::Buffer;
use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Piece, UpdateRef, ValueBody,
};
use crate::engine::blocks::BlockId;
use crate::engine::cache::Image;
use crate::engine::catalog::QUARANTINE_SPACE;
use crate::engine::format::codec_format::Malformed;
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::RangeRecord;
use crate::engine::ids::SpaceId;
use crate::engine::io::RunId;
use crate::engine::modifier::Refusal;
use crate::engine::queue::{Packed, Waiting};
use crate::engine::registry::{KeyRange, ModifierId, Modifiers};
use crate::engine::spill_segments;
use crate::engine::visitor::{VisitedBlock, Visitors};
use crate::log::Seq;
use crate::placement::UNIT_BYTES;

/// A large value: position of its block in the job, key, and the encoded image if there is one.
pub(in crate::engine) type LargeValue = (usize, Vec<u8>, Option<Buffer>);

/// One block of a job.
pub(in crate::engine) struct JobBlock {
    pub(in crate::engine) id: BlockId,
    pub(in crate::engine) space: SpaceId,
    pub(in crate::engine) companion: SpaceId,
    pub(in crate::engine) key: Box<[u8]>,
    pub(in crate::engine) format: Arc<dyn BlockFormat>,
    pub(in crate::engine) image: Option<Arc<Image>>,
    /// Whether that image is cached, so that the new one is to be as well.
    pub(in crate::engine) is_cached: bool,
    /// Its waiting updates in spill segments, which are older than the frozen ones.
    pub(in crate::engine) spill_segments: JobSpillSegments,
    pub(in crate::engine) frozen: Arc<Packed>,
    /// Large values that were loaded because a first attempt needed them.
    pub(in crate::engine) values: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the next block of the job is also the next one by key, of one space alone.
    pub(in crate::engine) next_is_neighbour: bool,
    /// The block is shared and must not be split, so that all its spaces can share the result.
    pub(in crate::engine) keep_whole: bool,
}

/// Spill segments that have updates of a block.
#[derive(Default)]
pub(in crate::engine) struct JobSpillSegments {
    /// Their images, older ones first.
    pub(in crate::engine) images: Vec<Arc<Image>>,
    /// The end of the keys of the block.
    pub(in crate::engine) high: Option<Box<[u8]>>,
    /// Ranges of keys whose removal replay has yet to reach, with their sequences.
    pub(in crate::engine) removed: Vec<(Seq, RangeRecord)>,
}

impl JobBlock {
    /// Everything that waits for the block, older parts first. Updates older than the removal of
    /// their key are left out: the block may never have had the record.
    pub(in crate::engine) fn waiting(&self) -> Result<Vec<Waiting<'_>>, Malformed> {
        let JobSpillSegments { images, high, removed } = &self.spill_segments;
        let frozen = self.frozen.unpack();
        let mut parts = Vec::new();
        for image in images {
            let high = high.as_deref();
            parts.extend(spill_segments::waiting_in(
                image.body(),
                &self.key,
                high,
                &*self.format,
                |_| true,
            )?);
        }
        if !parts.is_empty() {
            let mut removed = removed.clone();
            let waiting = parts.iter().chain([&frozen]).flat_map(Waiting::updates);
            removed.extend(waiting.filter_map(|update| {
                let KeyRange { from, to } = KeyRange::of(&update)?;
                let (space, from, to) = (self.space, from.to_vec(), to.map(<[u8]>::to_vec));
                Some((update.seq, RangeRecord { space, from, to }))
            }));
            let ranges: Vec<(Seq, KeyRange<'_>)> =
                removed.iter().map(|(seq, record)| (*seq, record.range())).collect();
            let left = parts.into_iter().map(|part| part.without_removed(&ranges));
            parts = left.collect();
        }
        parts.push(frozen);
        Ok(parts)
    }
}

/// The work of a run: [`RunJob::work_off`] does it.
pub struct RunJob {
    pub(in crate::engine) run: RunId,
    pub(in crate::engine) store: [u8; 16],
    pub(in crate::engine) frontier: Seq,
    /// What has expired by this time need not be kept.
    pub(in crate::engine) expired_us: u64,
    pub(in crate::engine) block_bytes: usize,
    pub(in crate::engine) inline_value_bytes_max: usize,
    pub(in crate::engine) modifiers: Arc<Modifiers>,
    pub(in crate::engine) visitors: Arc<Visitors>,
    pub(in crate::engine) blocks: Vec<JobBlock>,
}

/// A block after the run, not yet placed.
pub(in crate::engine) struct NewBlock {
    /// Position in the job of its source block; of the first, if several were merged.
    pub(in crate::engine) position: usize,
    pub(in crate::engine) key: Box<[u8]>,
    pub(in crate::engine) records: u32,
    /// Length in the run's buffer, in whole units; 0 if the block is empty.
    pub(in crate::engine) bytes: u32,
    /// A copy of its image for the cache, if the source block was there.
    pub(in crate::engine) for_cache: Option<Arc<Image>>,
}

/// An update that goes to the quarantine.
pub(in crate::engine) struct Quarantined {
    pub(in crate::engine) space: SpaceId,
    pub(in crate::engine) seq: Seq,
    pub(in crate::engine) modifier: ModifierId,
    pub(in crate::engine) key: Vec<u8>,
    pub(in crate::engine) operand: Vec<u8>,
    pub(in crate::engine) reason: String,
}

/// The result of a job.
pub(in crate::engine) enum JobResult {
    /// Large values that have to be loaded first: position of the block, key of the value.
    NeedValues(Vec<(usize, Vec<u8>)>),
    /// A block that its format cannot read: position of the block, description of the problem.
    Corrupt(usize, String),
    /// All blocks of the run, in order.
    Done(Box<JobDone>),
}

/// A finished run, in memory.
pub(in crate::engine) struct JobDone {
    /// New and kept blocks, in the order of their images in `buffer`.
    pub(in crate::engine) blocks: Vec<NewBlock>,
    /// Per block of the job, whether it was merged into the block before it.
    pub(in crate::engine) joined: Vec<bool>,
    /// Images one after another.
    pub(in crate::engine) buffer: Buffer,
    pub(in crate::engine) values: Vec<LargeValue>,
    pub(in crate::engine) quarantined: Vec<Quarantined>,
}

/// The result of a [`RunJob`], with the job for a second attempt.
pub struct RunOutput {
    pub(in crate::engine) job: RunJob,
    pub(in crate::engine) result: JobResult,
}

/// A piece with its space and whether its right neighbour is next in the job.
struct Laid {
    block: usize,
    key: Box<[u8]>,
    body: Vec<u8>,
    records: u32,
}

impl RunJob {
    /// Block and value with this running number.
    pub(in crate::engine) fn value_position(&self, index: usize) -> (usize, usize) {
        let mut left = index;
        for (position, block) in self.blocks.iter().enumerate() {
            if left < block.values.len() {
                return (position, left);
            }
            left -= block.values.len();
        }
        unreachable!("the index of a requested value")
    }

    /// Bytes of the images that it works on and of their updates waiting in memory.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let image = |block: &JobBlock| block.image.as_ref().map_or(0, |image| image.body().len());
        self.blocks.iter().map(|block| image(block) + block.frozen.memory_bytes()).sum()
    }

    /// Splits off the blocks from this position on, as the job of another run.
    pub(in crate::engine) fn split_off(&mut self, position: usize, run: RunId) -> Self {
        let blocks = self.blocks.split_off(position);
        if let Some(last) = self.blocks.last_mut() {
            last.next_is_neighbour = false;
        }
        let (modifiers, visitors) = (Arc::clone(&self.modifiers), Arc::clone(&self.visitors));
        Self { run, modifiers, visitors, blocks, ..*self }
    }

    /// Does the work. Pure CPU work: milliseconds for a run of 32 blocks. Yields before each step
    /// of a block.
    #[must_use]
    pub(in crate::engine) fn work_off(self, give_way: fn()) -> RunOutput {
        let result = self.work(give_way);
        RunOutput { job: self, result }
    }

    fn work(&self, give_way: fn()) -> JobResult {
        let mut needed = Vec::new();
        let mut laid: Vec<Laid> = Vec::new();
        let mut joined = vec![false; self.blocks.len()];
        let mut values = Vec::new();
        let mut quarantined = Vec::new();
        for (position, block) in self.blocks.iter().enumerate() {
            give_way();
            let waiting = match block.waiting() {
                Ok(waiting) => waiting,
                Err(malformed) => return JobResult::Corrupt(position, malformed.to_string()),
            };
            let mut updates: Vec<UpdateRef<'_>> =
                waiting.iter().flat_map(Waiting::updates).collect();
            updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
            give_way();
            match self.apply(block, &updates) {
                Ok(applied) => {
                    quarantined.extend(refused(block, &updates, &applied));
                    if needed.is_empty() {
                        let encoded = |(key, value)| self.encode_value(position, key, value);
                        values.extend(applied.values.into_iter().map(encoded));
                    }
                    joined[position] = self.lay(position, applied.pieces, &mut laid);
                }
                Err(ApplyError::NeedValues(keys)) => {
                    needed.extend(keys.into_iter().map(|key| (position, key)));
                }
                Err(ApplyError::Corrupt(reason)) => return JobResult::Corrupt(position, reason),
            }
        }
        if !needed.is_empty() {
            return JobResult::NeedValues(needed);
        }
        for Laid { block, key, body, .. } in &laid {
            give_way();
            let space = self.blocks[*block].space;
            self.visitors.visit(&VisitedBlock { space, key, body });
        }
        JobResult::Done(Box::new(self.encode(laid, joined, values, quarantined, give_way)))
    }

    fn apply<'a>(
        &self,
        block: &'a JobBlock,
        updates: &[UpdateRef<'a>],
    ) -> Result<Applied<'a>, ApplyError> {
        block.format.apply(&ApplyInput {
            body: block.image.as_ref().map(|image| image.body()),
            updates,
            modifiers: &self.modifiers,
            values: &block.values,
            body_bytes_max: self.body_bytes_max(block),
            inline_value_bytes_max: self.inline_value_bytes_max,
            // Shared blocks stay shared: freeing a large value would separate them.
            expired_us: if block.keep_whole { 0 } else { self.expired_us },
        })
    }

    fn body_bytes_max(&self, block: &JobBlock) -> usize {
        if block.keep_whole {
            return usize::MAX;
        }
        image_format::body_bytes_max(self.block_bytes, &block.key)
    }

    /// Appends the pieces of a block, or merges the first of them into its left neighbour; returns
    /// whether it did so.
    fn lay(&self, position: usize, pieces: Vec<Piece>, laid: &mut Vec<Laid>) -> bool {
        let mut joined = false;
        let block = &self.blocks[position];
        let is_neighbour = position > 0 && self.blocks[position - 1].next_is_neighbour;
        for (index, piece) in pieces.into_iter().enumerate() {
            let Piece { key, body, records } = piece;
            if index == 0
                && is_neighbour
                && let Some(left) = laid.last_mut()
                && let Some(merged) =
                    block.format.merge(&left.body, &body, self.body_bytes_max(block))
            {
                left.body = merged;
                left.records += records;
                joined = true;
                continue;
            }
            let key = key.map_or_else(|| block.key.clone(), Vec::into_boxed_slice);
            laid.push(Laid { block: position, key, body, records });
        }
        joined
    }

    fn encode(
        &self,
        laid: Vec<Laid>,
        joined: Vec<bool>,
        values: Vec<LargeValue>,
        quarantined: Vec<Quarantined>,
        give_way: fn(),
    ) -> JobDone {
        let mut blocks = Vec::with_capacity(laid.len());
        for piece in &laid {
            let bytes =
                if piece.body.is_empty() { 0 } else { padded(&piece.key, piece.body.len()) };
            let (position, key, records) = (piece.block, piece.key.clone(), piece.records);
            blocks.push(NewBlock { position, key, records, bytes, for_cache: None });
        }
        let total: usize = blocks.iter().map(|block| block.bytes as usize).sum();
        let mut buffer = Buffer::recycled(total);
        let mut offset = 0;
        // Each body is released before the next image is copied.
        for (piece, block) in laid.into_iter().zip(&mut blocks).filter(|(_, new)| new.bytes > 0) {
            give_way();
            let end = offset + block.bytes as usize;
            let source = &self.blocks[piece.block];
            let identity = self.identity(source.space, &block.key);
            let image = &mut buffer[offset..end];
            let body = image_format::encode(&identity, &piece.body, image);
            let copy = || Arc::new(Image::new(Arc::new(Buffer::copy_of(image)), body));
            block.for_cache = source.is_cached.then(copy);
            offset = end;
        }
        JobDone { blocks, joined, buffer, values, quarantined }
    }

    fn encode_value(
        &self,
        position: usize,
        key: Vec<u8>,
        value: Option<ValueBody<'_>>,
    ) -> LargeValue {
        let image = value.map(|ValueBody { head, rest }| {
            let mut buffer = Buffer::recycled(padded(&key, 1 + rest.len()) as usize);
            let identity = self.identity(self.blocks[position].companion, &key);
            image_format::encode_parts(&identity, [&[head], &rest], &mut buffer);
            buffer
        });
        (position, key, image)
    }

    fn identity<'a>(&self, space: SpaceId, key: &'a [u8]) -> Identity<'a> {
        let (store, seq) = (self.store, self.frontier);
        Identity { store, kind: ImageKind::Block, number: space.get(), seq, key }
    }
}

/// Bytes of an image in whole units.
fn padded(key: &[u8], body_bytes: usize) -> u32 {
    let bytes = image_format::image_bytes(key, body_bytes).next_multiple_of(UNIT_BYTES as usize);
    u32::try_from(bytes).expect("an image is below 4 GiB")
}

fn refused<'a>(
    block: &'a JobBlock,
    updates: &'a [UpdateRef<'a>],
    applied: &'a Applied<'a>,
) -> impl Iterator<Item = Quarantined> + 'a {
    debug_assert!(
        block.space != QUARANTINE_SPACE || applied.refused.is_empty(),
        "the quarantine takes all that is put there"
    );
    applied.refused.iter().map(move |refused| {
        let update = &updates[refused.index];
        Quarantined {
            space: block.space,
            seq: update.seq,
            modifier: update.modifier,
            key: update.key.to_vec(),
            operand: update.operand.to_vec(),
            reason: Refusal(refused.reason.clone()).into_reason(),
        }
    })
}
