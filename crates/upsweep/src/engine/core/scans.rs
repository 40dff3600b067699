//! Calls of scans that read ahead: see [`ahead`](crate::engine::view).

use std::sync::Arc;

use super::Core;
use crate::engine::ids::SpaceId;
use crate::engine::versions::Versions;
use crate::engine::view::{
    AheadImage, AheadPart, AheadRequest, Arrived, Planned, ScanId, View, ViewPoll, Views, Wanted,
};
use crate::error::Error;

impl Core {
    /// A scan begins to read ahead. It must [end](Core::end_scan).
    pub fn begin_scan(&mut self) -> ScanId {
        self.scans.begin(self.views.queries().begun)
    }

    /// A scan that has released everything ends. Its requests in flight count until they complete;
    /// those that wait for their turn are withdrawn.
    pub fn end_scan(&mut self, id: ScanId) {
        self.scans.end(&mut self.base, id);
    }

    /// Requests the next blocks of a scan, if it is not yet as far ahead as it wants to be, and
    /// memory and requests in flight permit it; and spill segments with updates of these blocks,
    /// which enter the cache. Cost: two searches of the directory for each block, at most 256.
    pub fn read_ahead(&mut self, id: ScanId, request: &AheadRequest<'_>) -> Planned {
        let planned = self.scans.plan(&mut self.base, id, request, self.views.queries());
        let keys = planned.parts.iter().map(AheadPart::key);
        self.views.read_segments_ahead(&mut self.base, request.space, keys);
        planned
    }

    /// The requests of a scan that have completed since the last call. It holds their bytes until
    /// it releases them.
    pub fn take_arrived(&mut self, id: ScanId) -> Vec<Arrived> {
        self.scans.take_arrived(id)
    }

    /// A scan no longer holds requests of so many bytes, and has not used some of them.
    pub fn release_read(&mut self, id: ScanId, bytes: usize, unused_bytes: usize) {
        self.scans.release(&self.base, id, bytes, unused_bytes);
    }

    /// As [`Core::view`], for a scan that has perhaps read the image ahead: it is used if it still
    /// is the image of the block. What is read for this view does not enter the cache, except for
    /// spill segments.
    ///
    /// # Errors
    /// As [`Core::view`].
    pub fn view_for_scan(
        &mut self,
        space: SpaceId,
        wanted: Wanted,
        ahead: Option<AheadImage>,
    ) -> Result<ViewPoll, Error> {
        self.views.view_for_scan(&mut self.base, space, wanted, ahead)
    }

    /// As [`Core::view_for_scan`], but `None` if anything has to be read for it.
    ///
    /// # Errors
    /// As [`Core::view`].
    pub fn view_if_here(
        &mut self,
        space: SpaceId,
        wanted: Wanted,
        ahead: Option<AheadImage>,
    ) -> Result<Option<View>, Error> {
        Views::view_if_here(&mut self.base, space, wanted, ahead)
    }

    /// The versions of what views show.
    #[must_use]
    pub fn versions(&self) -> &Arc<Versions> {
        self.base.index.directory().table.versions()
    }

    /// Bytes that scans have in flight, or hold.
    #[must_use]
    pub fn scan_bytes(&self) -> usize {
        self.scans.bytes()
    }
}
