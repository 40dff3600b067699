//! Calls of scans that read ahead: see [`ahead`](crate::engine::view).

use super::Core;
use crate::engine::ids::SpaceId;
use crate::engine::view::{AheadImage, AheadRequest, Arrived, Planned, ScanId, ViewPoll, Wanted};
use crate::error::Error;

impl Core {
    /// A scan begins to read ahead. It must [end](Core::end_scan).
    pub fn begin_scan(&mut self) -> ScanId {
        self.scans.begin()
    }

    /// A scan that has released everything ends. Its requests in flight count until they complete.
    pub fn end_scan(&mut self, id: ScanId) {
        self.scans.end(&self.base, id);
    }

    /// Requests the next blocks of a scan, if it is not yet as far ahead as it wants to be, and
    /// memory and requests in flight permit it. Cost: a search of the directory for each block, at
    /// most 256.
    pub fn read_ahead(&mut self, id: ScanId, request: &AheadRequest<'_>) -> Planned {
        self.scans.plan(&mut self.base, id, request)
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

    /// Bytes that scans have in flight, or hold.
    #[must_use]
    pub fn scan_bytes(&self) -> usize {
        self.scans.bytes()
    }
}
