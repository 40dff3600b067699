//! Bulk loads: blocks filled by the caller are written to the data devices as they are.
//!
//! A load fills a separate hidden space. Its blocks come in *chunks*, and a chunk goes through the
//! pipeline like a run whose images exist: place, write, flush, log, publish. Only the places of
//! the blocks are logged, not their updates. At its end the tree of the hidden space becomes that
//! of the space to be filled, by one log record: so a load is atomic.
//!
//! Invariant: from begin to end of a load nothing is accepted for the space to be filled. Its
//! frontier is that of the begin, so replay would apply later updates to the loaded blocks.

use std::collections::{BTreeMap, VecDeque};

use super::Sweep;
use crate::device::Buffer;
use crate::engine::base::Base;
use crate::engine::catalog::FIRST_USER_SPACE;
use crate::engine::event::Event;
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::{
    SpaceRecord, encode_adopt, encode_create_space, encode_drop_space,
};
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::io::RunId;
use crate::engine::jobs::{JobDone, NewBlock};
use crate::engine::journal::Publish;
use crate::engine::pipeline::Pipeline;
use crate::error::{Error, RequestError};
use crate::log::Seq;
use crate::placement::UNIT_BYTES;

/// The snapshot number of spaces that are being loaded: they cannot be changed or listed, and are
/// dropped when the store is opened again.
pub const LOADING: SnapshotId = SnapshotId::new(u32::MAX);

/// One block that a bulk load writes as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedBlock {
    /// Its block key. That of the first block is empty; each is greater than the previous one.
    pub key: Vec<u8>,
    /// Its body, in the layout of the space's format.
    pub body: Vec<u8>,
    /// Records in the body.
    pub records: u32,
    /// Bodies of the large values to which the body refers, for the companion space, in the order
    /// of their record keys.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
}

impl LoadedBlock {
    /// Bytes of the bodies of the block and its large values together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len() + self.values.iter().map(|(_, body)| body.len()).sum::<usize>()
    }
}

/// The destination of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTarget {
    /// Identity of the store.
    pub store: [u8; 16],
    /// The hidden space.
    pub space: SpaceId,
    /// That of its large values.
    pub companion: SpaceId,
    /// The sequence that its images name: nothing older waits for them.
    pub seq: Seq,
}

/// Images of blocks, ready to be written.
pub struct Chunk {
    space: SpaceId,
    seq: Seq,
    done: Box<JobDone>,
}

impl Chunk {
    /// Makes the images of `blocks`, which are consecutive. Pure work: a copy and a checksum.
    #[must_use]
    pub fn new(target: &LoadTarget, blocks: &[LoadedBlock]) -> Self {
        let identity = |space: SpaceId, key| {
            let LoadTarget { store, seq, .. } = *target;
            Identity { store, kind: ImageKind::Block, number: space.get(), seq, key }
        };
        let padded = |key: &[u8], body: &[u8]| {
            image_format::image_bytes(key, body.len()).next_multiple_of(UNIT_BYTES as usize)
        };
        let total = blocks.iter().map(|block| padded(&block.key, &block.body)).sum();
        let mut buffer = Buffer::recycled(total);
        let mut news = Vec::with_capacity(blocks.len());
        let mut values = Vec::new();
        let mut offset = 0;
        for block in blocks {
            let end = offset + padded(&block.key, &block.body);
            let named = identity(target.space, &block.key);
            image_format::encode(&named, &block.body, &mut buffer[offset..end]);
            let bytes = u32::try_from(end - offset).expect("a block is below 4 GiB");
            let (key, records) = (block.key.clone().into(), block.records);
            news.push(NewBlock { position: 0, key, records, bytes, for_cache: None });
            offset = end;
            for (key, body) in &block.values {
                let mut image = Buffer::recycled(padded(key, body));
                image_format::encode(&identity(target.companion, key), body, &mut image);
                values.push((0, key.clone(), Some(image)));
            }
        }
        let quarantined = Vec::new();
        let done = JobDone { blocks: news, joined: Vec::new(), buffer, values, quarantined };
        Self { space: target.space, seq: target.seq, done: Box::new(done) }
    }
}

/// Loads, and their chunks in progress.
#[derive(Default)]
pub(super) struct Loads {
    waiting: VecDeque<(RunId, Chunk)>,
    /// By hidden space: the space to be filled, and whether anything was accepted for it.
    filling: BTreeMap<SpaceId, (SpaceId, bool)>,
}

impl Loads {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records that something was accepted for a space. Cost: a comparison while nothing loads.
    #[inline]
    pub(super) fn note_change(&mut self, space: SpaceId) {
        if !self.filling.is_empty() {
            let loads = self.filling.values_mut();
            loads.filter(|load| load.0 == space).for_each(|load| load.1 = true);
        }
    }
}

impl Sweep {
    /// Creates a hidden space to load blocks into that will become those of `space`.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::NotEmpty`]; [`RequestError::ReadOnly`];
    /// [`RetryError::Busy`](crate::RetryError::Busy) when the log has no room.
    pub(in crate::engine) fn begin_load(
        &mut self,
        base: &mut Base,
        space: SpaceId,
    ) -> Result<(LoadTarget, Seq), Error> {
        check_empty(base, space)?;
        let source = base.index.check_space(space)?.clone();
        let number = base.index.next_space();
        let companion =
            if source.companion == SpaceId::NONE { SpaceId::NONE } else { number.next() };
        let record = SpaceRecord { space: number, companion, snapshot: LOADING, ..source };
        let mut payload = Vec::new();
        encode_create_space(&record, &mut payload);
        let seq = base.append_or_make_room(&payload, Publish::Event(Event::Create(record)))?;
        base.index.take_spaces(1);
        // The images of the load state that they contain everything up to here: no run may state
        // less.
        base.index.accept_through(seq);
        self.loads.filling.insert(number, (space, false));
        let store = base.config.store;
        Ok((LoadTarget { store, space: number, companion, seq }, seq))
    }

    /// Writes a chunk; [`Sweep::load_ended`] reports its completion.
    pub(in crate::engine) fn load(&mut self, pipeline: &mut Pipeline, chunk: Chunk) -> RunId {
        let id = pipeline.new_id();
        self.loads.waiting.push_back((id, chunk));
        id
    }

    /// Whether a chunk is on stable media and in the directory, or the reason why it never will be.
    ///
    /// # Errors
    /// [`RetryError::Full`](crate::RetryError::Full).
    pub(in crate::engine) fn load_ended(
        &self,
        base: &Base,
        pipeline: &mut Pipeline,
        id: RunId,
    ) -> Option<Result<(), Error>> {
        if pipeline.take_failed_load(id) {
            return Some(Err(base.index.full_error()));
        }
        let waits = self.loads.waiting.iter().any(|(waiting, _)| *waiting == id);
        (!waits && !pipeline.has(id)).then_some(Ok(()))
    }

    /// Makes the loaded blocks the content of `space`, once the returned sequence is durable.
    ///
    /// # Errors
    /// As [`Sweep::begin_load`]: the space must still be empty, and nothing may have been accepted
    /// for it in the meantime.
    pub(in crate::engine) fn finish_load(
        &mut self,
        base: &mut Base,
        target: &LoadTarget,
        space: SpaceId,
    ) -> Result<Seq, Error> {
        check_empty(base, space)?;
        if self.loads.filling.get(&target.space) != Some(&(space, false)) {
            let name = base.index.check_space(space)?.name.clone();
            return Err(RequestError::NotEmpty(name).into());
        }
        let mut payload = Vec::new();
        encode_adopt(space, target.space, &mut payload);
        let publish = Publish::Event(Event::Adopt { space, source: target.space });
        let seq = base.append_or_make_room(&payload, publish)?;
        self.loads.filling.remove(&target.space);
        self.loads.note_change(space);
        // A run that includes loaded blocks must not pass what is accepted before they belong to
        // the space.
        [space, target.space].into_iter().for_each(|space| base.index.raise_fence(space, seq));
        Ok(seq)
    }

    /// Discards what was loaded.
    ///
    /// # Errors
    /// [`RetryError::Busy`](crate::RetryError::Busy) when the log has no room.
    pub(in crate::engine) fn abandon_load(
        &mut self,
        base: &mut Base,
        space: SpaceId,
    ) -> Result<Seq, Error> {
        let mut payload = Vec::new();
        encode_drop_space(space, &mut payload);
        let seq = base.append_or_make_room(&payload, Publish::Event(Event::Drop(space)))?;
        self.loads.filling.remove(&space);
        Ok(seq)
    }

    /// Starts chunks while there are buffers for them.
    pub(super) fn start_loads(&mut self, base: &Base, pipeline: &mut Pipeline) {
        while pipeline.has_buffers(&base.config)
            && let Some((id, chunk)) = self.loads.waiting.pop_front()
        {
            pipeline.start_load(id, (chunk.space, chunk.seq), chunk.done);
        }
    }
}

/// Checks that a space can be filled: it is empty, and no updates are in progress.
fn check_empty(base: &Base, space: SpaceId) -> Result<(), Error> {
    base.gate.check_open()?;
    let record = base.index.check_space(space)?;
    if record.snapshot != SnapshotId::NONE || space < FIRST_USER_SPACE {
        return Err(RequestError::ReadOnly(record.name.clone()).into());
    }
    let not_empty = || Err(RequestError::NotEmpty(record.name.clone()).into());
    let Some(found) = base.index.directory().space(space) else { return not_empty() };
    let mut blocks = base.index.directory().blocks_of(found);
    let is_idle = blocks.next().is_none_or(|id| {
        let block = base.index.directory().block(id);
        block.extent().is_none() && !block.waits() && !block.pinned
    });
    let is_settled = found.pending.len() == 0 && found.fences.is_empty();
    if is_idle && is_settled && blocks.next().is_none() { Ok(()) } else { not_empty() }
}
