//! Calls to a core besides updates and spaces: advance look-ups, views, bulk loads, compactions,
//! and requests for immediate work.

use super::Core;
use crate::engine::format::record_format::LoggedUpdate;
use crate::engine::ids::SpaceId;
use crate::engine::io::RunId;
use crate::engine::sweep::{Chunk, CompactionId, CompactionProgress, LoadTarget};
use crate::engine::view::{CheckedRead, View, ViewId, ViewPoll, ViewRead, Wanted};
use crate::error::Error;
use crate::log::Seq;

impl Core {
    /// Looks up the destinations of updates, so that their acceptance finds them in the processor's
    /// cache: the memory accesses of many look-ups overlap, while those of successive acceptances
    /// do not.
    pub fn anticipate<'a>(&mut self, updates: impl Iterator<Item = &'a LoggedUpdate<'a>>) {
        self.base.index.anticipate(updates);
    }

    /// Gathers what a query needs. Cost: a search of the directory and a copy of the queue; at most
    /// one read, and one for each spill segment that seems to have the key, at the next pumps.
    ///
    /// # Errors
    /// [`NoTable`](crate::RequestError::NoTable) if the space does not exist; [`Error::Damaged`] if
    /// the block could not be read when it was swept.
    pub fn view(&mut self, space: SpaceId, wanted: Wanted) -> Result<ViewPoll, Error> {
        self.views.view(&mut self.base, space, wanted)
    }

    /// The read that a pending view needs, for its caller to perform and pass to
    /// [`Core::complete_read`]; `None` if that read is already in flight.
    pub fn take_read(&mut self, id: ViewId) -> Option<ViewRead> {
        self.views.take_read(&mut self.base, id)
    }

    /// Takes the outcome of a read, and answers the view that it was done for; `None` if it needs
    /// another read: of a spill segment, or because the block has moved in the meantime.
    pub fn complete_read(
        &mut self,
        id: ViewId,
        checked: CheckedRead,
    ) -> Option<Result<View, Error>> {
        self.views.complete_read(&mut self.base, id, checked)
    }

    /// Whether the next [`Core::pump`] has something to do for views.
    #[must_use]
    pub fn has_views_to_pump(&self) -> bool {
        self.views.has_some_to_pump() || self.base.io.has_outgoing()
    }

    /// Forgets a view whose caller has gone.
    pub fn forget_view(&mut self, id: ViewId) {
        self.views.forget(id);
    }

    /// A caller waits for this record: it is written without delay, even if it was declared as
    /// relaxed. Returns whether [`Core::pump`] has something to do for that.
    pub fn hurry(&mut self, seq: Seq) -> bool {
        self.base.journal.hurry(seq)
    }

    /// Requests a sweep of everything that was accepted so far, at full speed.
    pub fn request_sweep(&mut self) {
        self.sweep.request(&mut self.base);
    }

    /// Lets the sweep omit what has expired by this time of day, in microseconds since the Unix
    /// epoch. The caller ensures that no update accepted later depends on such a record.
    pub fn expire_through(&mut self, us: u64) {
        self.base.expired_us = self.base.expired_us.max(us);
    }

    /// Requests a checkpoint.
    pub fn request_checkpoint(&mut self) {
        self.checkpointer.request();
    }

    /// Returns free space of files to their file systems at once, except what the store keeps: see
    /// [`FileSpace`](crate::engine::FileSpace).
    pub fn request_punching(&mut self) {
        self.growth.request_punching();
    }

    /// Starts putting the blocks of a space into key order; [`Core::compaction`] reports its
    /// progress, and [`Core::compaction_ended`] its end. Cost: a pass over the blocks in memory; in
    /// total a read and a write of those that are out of order.
    ///
    /// # Errors
    /// [`NoTable`](crate::RequestError::NoTable); [`Busy`](crate::RetryError::Busy) while another
    /// compaction is in progress.
    pub fn request_compaction(&mut self, space: SpaceId) -> Result<CompactionId, Error> {
        self.sweep.request_compaction(&self.base, space)
    }

    /// The progress of a compaction; `None` if it has ended.
    #[must_use]
    pub fn compaction(&self, id: CompactionId) -> Option<CompactionProgress> {
        self.sweep.compaction(id)
    }

    /// The result of a compaction that has ended since the last call; returned once.
    ///
    /// # Errors
    /// [`RetryError::Full`](crate::RetryError::Full) if there was no room to move blocks.
    pub fn compaction_ended(
        &mut self,
        id: CompactionId,
    ) -> Option<Result<CompactionProgress, Error>> {
        self.sweep.compaction_ended(id)
    }

    /// Creates a hidden space to load blocks into that will become those of `space`.
    ///
    /// # Errors
    /// [`NoTable`](crate::RequestError::NoTable); [`NotEmpty`](crate::RequestError::NotEmpty);
    /// [`ReadOnly`](crate::RequestError::ReadOnly); [`Busy`](crate::RetryError::Busy) when the log
    /// has no room.
    pub fn begin_load(&mut self, space: SpaceId) -> Result<(LoadTarget, Seq), Error> {
        self.sweep.begin_load(&mut self.base, space)
    }

    /// Writes a chunk; [`Core::load_ended`] reports its completion.
    pub fn load(&mut self, chunk: Chunk) -> RunId {
        self.sweep.load(&mut self.pipeline, chunk)
    }

    /// Whether a chunk is on stable media and in the directory, or the reason why it never will be.
    ///
    /// # Errors
    /// [`RetryError::Full`](crate::RetryError::Full).
    pub fn load_ended(&mut self, id: RunId) -> Option<Result<(), Error>> {
        self.sweep.load_ended(&self.base, &mut self.pipeline, id)
    }

    /// Makes the loaded blocks the content of `space`, once the returned sequence is durable.
    ///
    /// # Errors
    /// As [`Core::begin_load`]: the space must still be empty, and nothing may have been accepted
    /// for it in the meantime.
    pub fn finish_load(&mut self, target: &LoadTarget, space: SpaceId) -> Result<Seq, Error> {
        self.sweep.finish_load(&mut self.base, target, space)
    }

    /// Discards what was loaded.
    ///
    /// # Errors
    /// [`RetryError::Busy`](crate::RetryError::Busy) when the log has no room.
    pub fn abandon_load(&mut self, space: SpaceId) -> Result<Seq, Error> {
        self.sweep.abandon_load(&mut self.base, space)
    }
}
