//! The block API for reserved extents: space of the data devices for content of the application's
//! own, such as the payload of which a space is the index.
//!
//! The calling thread performs the I/O, and does not take the lock of the core. Each extent has at
//! most one handle, and giving it back takes that handle, so nothing can be written to space that
//! is not reserved any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::block_store::BlockStore;
use super::shared::Shared;
use crate::device::{
    Buffer, Class, Completion, DeviceError, Hint, Operation, Request, Token, WriteMode,
};
use crate::engine::{ForegroundRequests, SpaceId};
use crate::error::{ClosedError, Damage, Error, Location, RequestError};
use crate::placement::{Extent, UNIT_BYTES};

/// Requests to extents have tokens from here on, with a bit that neither those of the log nor those
/// of the data devices have.
const FIRST_TOKEN: u64 = 1 << 62;

/// The extents that have a handle. Its lock may be taken under that of the core.
#[derive(Default)]
pub(super) struct Handles {
    spaces: Mutex<BTreeMap<Extent, SpaceId>>,
    requests: AtomicU64,
    /// Requests in the foreground so far, and those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Handles {
    /// The requests for which callers wait.
    pub(super) fn foreground(&self) -> ForegroundRequests {
        // In this order no request has ended before it began.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        ForegroundRequests { begun, are_waiting: begun > ended }
    }

    /// Whether an extent of this space has a handle.
    pub(super) fn has_any_of(&self, space: SpaceId) -> bool {
        self.spaces.lock().values().any(|of| *of == space)
    }
}

/// A range of a data device that belongs to the owner of a space, until it is given back or the
/// space is dropped. Its content is the owner's: the engine never writes there, and neither
/// checksums nor repairs it. From any thread; ranges in it that overlap are unordered while both
/// are in flight.
pub struct ReservedExtent {
    shared: Arc<Shared>,
    space: SpaceId,
    extent: Extent,
    /// Whether it is on the way back, and may be somebody else's soon.
    is_returned: bool,
}

/// A read of a part of a reserved extent.
#[derive(Debug)]
pub struct ExtentRead<'a> {
    /// The extent.
    pub reserved: &'a ReservedExtent,
    /// Where in it, in bytes, a multiple of 4,096.
    pub offset: u64,
    /// What to read into; its length is a multiple of 4,096, and not 0.
    pub buffer: Buffer,
}

impl BlockStore {
    /// Reserves `bytes` of a data device in one piece for the owner of a space, and waits until
    /// that is durable. The length is a multiple of 4,096, not 0; the content is unknown. Cost: a
    /// log record; the file of a device grows if necessary.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::ReadOnly`] for a space of a snapshot;
    /// [`RequestError::ExtentLength`];
    /// [`RetryError::Full`](crate::RetryError::Full) if no device has so much in one piece besides
    /// what waiting updates need, and 1/128 of the devices (8 MiB to 1 GiB, but at most 1/32) for
    /// updates to come: ask for less, or give some back; [`Error::Closed`].
    pub fn reserve_extent(&self, space: SpaceId, bytes: u32) -> Result<ReservedExtent, Error> {
        let (reserved, seq) = self.structural(|core| {
            let (extent, seq) = core.reserve_extent(space, bytes)?;
            Ok((self.handle_of(space, extent), seq))
        })?;
        self.wait_published(seq)?;
        // If the space was being dropped, the extent went with it.
        let state = self.inner.shared.lock();
        let is_there =
            |own: &ReservedExtent| state.core.extents_of(space).any(|of| of == own.extent);
        reserved.filter(is_there).ok_or_else(|| RequestError::NoTable(space.to_string()).into())
    }

    /// How many bytes can still be reserved, in any number of pieces; `None` if the file of a
    /// device can grow, of which only the file system knows how far. For owners who free extents
    /// before they run out. Cost: O(devices).
    #[must_use]
    pub fn reservable_bytes(&self) -> Option<u64> {
        self.inner.shared.lock().core.reservable_bytes()
    }

    /// The reserved extents of a space that have no handle, by place: all of them after the store
    /// was opened. The owner compares them with its own records, and gives back those that it does
    /// not know: it was interrupted between the two. Cost: in proportion to the reserved extents of
    /// the store.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`Error::Closed`].
    pub fn extents(&self, space: SpaceId) -> Result<Vec<ReservedExtent>, Error> {
        self.inner.shared.check_caller()?;
        let state = self.inner.shared.lock();
        if state.core.space_record(space).is_none() {
            return Err(RequestError::NoTable(space.to_string()).into());
        }
        let all = state.core.extents_of(space);
        Ok(all.filter_map(|extent| self.handle_of(space, extent)).collect())
    }

    /// Gives an extent back, and waits until that is durable. Cost: a log record.
    ///
    /// # Errors
    /// [`RequestError::NoExtent`] if its space has been dropped; [`RequestError::WrongStore`];
    /// [`Error::Closed`]. If it could not be given back, it is among [`BlockStore::extents`] again.
    pub fn give_extent_back(&self, mut reserved: ReservedExtent) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.inner.shared, &reserved.shared) {
            return Err(RequestError::WrongStore { table: reserved.space.to_string() }.into());
        }
        let (space, extent) = (reserved.space, reserved.extent);
        let handles = &self.inner.shared.extents;
        let seq = self.structural(|core| {
            let seq = core.give_extent_back(space, extent)?;
            // Under the lock of the core: once that is durable, the extent may be reserved again.
            handles.spaces.lock().remove(&extent);
            Ok(seq)
        })?;
        reserved.is_returned = true;
        self.wait_published(seq)
    }

    /// Reads parts of extents of this store, all at a time where the host can, and returns the
    /// buffers in the order of `reads`. As [`ReservedExtent::read`] otherwise.
    ///
    /// # Errors
    /// As [`ReservedExtent::read`], for the first of `reads` that failed;
    /// [`RequestError::WrongStore`].
    pub fn read_extents(
        &self,
        reads: Vec<ExtentRead<'_>>,
        class: Class,
    ) -> Result<Vec<Buffer>, Error> {
        let shared = &self.inner.shared;
        let mut places = Vec::with_capacity(reads.len());
        let mut requests = Vec::with_capacity(reads.len());
        for ExtentRead { reserved, offset, buffer } in reads {
            if !Arc::ptr_eq(shared, &reserved.shared) {
                return Err(RequestError::WrongStore { table: reserved.space.to_string() }.into());
            }
            let offset = reserved.place(offset, buffer.len())?;
            places.push((reserved, offset));
            requests.push(reserved.request(class, Operation::Read { offset, buffer }));
        }
        let count = requests.len() as u64;
        let perform = || shared.performer.perform_all(requests);
        let mut done = shared.perform_on_extents(class, count, perform)?;
        // As they were made.
        done.sort_by_key(|completion| completion.token.0);
        let buffers = done.into_iter().zip(places);
        buffers.map(|(done, (of, offset))| of.content(done, offset)).collect()
    }

    /// The handle of an extent, unless it has one.
    fn handle_of(&self, space: SpaceId, extent: Extent) -> Option<ReservedExtent> {
        let shared = &self.inner.shared;
        let is_first = shared.extents.spaces.lock().insert(extent, space).is_none();
        is_first.then(|| ReservedExtent {
            shared: Arc::clone(shared),
            space,
            extent,
            is_returned: false,
        })
    }
}

impl ReservedExtent {
    /// Its place.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The space that it belongs to.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Reads the whole buffer from `offset` within the extent, in bytes. Offset and length are
    /// multiples of 4,096. `class` says what the read is for: the sweep of a drive that rotates
    /// gives way to a [`Class::ForegroundRead`], and not to a [`Class::SweepRead`].
    ///
    /// # Errors
    /// [`RequestError::OutsideExtent`]; [`Error::Damaged`] if the device cannot read that place;
    /// [`Error::Closed`].
    pub fn read(&self, offset: u64, buffer: Buffer, class: Class) -> Result<Buffer, Error> {
        let offset = self.place(offset, buffer.len())?;
        let done = self.perform(class, Operation::Read { offset, buffer })?;
        self.content(done, offset)
    }

    /// What a request has read at an offset on the device.
    fn content(&self, done: Completion, offset: u64) -> Result<Buffer, Error> {
        let damage = |error: DeviceError| Damage {
            location: Some(Location { device: self.extent.device, offset }),
            what: format!("an extent of space {}", self.space),
            reason: error.to_string(),
        };
        done.result.map_err(damage)?;
        Ok(done.buffer.expect("a read gives its buffer back"))
    }

    /// Writes the whole buffer at `offset` within the extent, in bytes, and returns the buffer.
    /// Offset and length are multiples of 4,096. What was written in [`WriteMode::Cached`] is
    /// stable after a later [`ReservedExtent::flush`]. `class` says what the write is for: the
    /// sweep of a drive that rotates gives way to a [`Class::ForegroundWrite`], and not to a
    /// [`Class::SweepWrite`].
    ///
    /// # Errors
    /// [`RequestError::OutsideExtent`]; [`ClosedError::WriteFailed`] if the device failed, after
    /// which the range has any content and the store is closed; any other [`Error::Closed`].
    pub fn write(
        &self,
        offset: u64,
        buffer: Buffer,
        mode: WriteMode,
        class: Class,
    ) -> Result<Buffer, Error> {
        let (request, offset) = self.write_request(offset, buffer, mode, class)?;
        let perform = || self.shared.performer.perform(request);
        self.written(self.shared.perform_on_extents(class, 1, perform)?, offset)
    }

    /// As [`ReservedExtent::write`], and waits until everything that was accepted before is on
    /// stable media, as [`BlockStore::flush`]: in the time of the longer of the two, where the host
    /// can.
    ///
    /// # Errors
    /// As [`ReservedExtent::write`]; [`Error::Closed`] if a log write failed.
    pub fn write_and_flush_log(
        &self,
        offset: u64,
        buffer: Buffer,
        mode: WriteMode,
        class: Class,
    ) -> Result<Buffer, Error> {
        self.shared.check_caller()?;
        let last = self.shared.lock().core.last();
        let mut flushed = Ok(());
        let mut flush = || flushed = self.shared.wait_durable(last);
        let (request, offset) = self.write_request(offset, buffer, mode, class)?;
        let perform = || self.shared.performer.perform_beside(request, &mut flush);
        let written = self.written(self.shared.perform_on_extents(class, 1, perform)?, offset)?;
        flushed.map(|()| written)
    }

    /// The request for a write at an offset, and the offset on the device.
    fn write_request(
        &self,
        offset: u64,
        buffer: Buffer,
        mode: WriteMode,
        class: Class,
    ) -> Result<(Request, u64), Error> {
        self.check_open()?;
        let offset = self.place(offset, buffer.len())?;
        Ok((self.request(class, Operation::Write { offset, buffer, mode }), offset))
    }

    /// The buffer of a write that has ended; closes the store if it failed.
    fn written(&self, done: Completion, offset: u64) -> Result<Buffer, Error> {
        match done.result {
            Ok(()) => Ok(done.buffer.expect("a write gives its buffer back")),
            Err(error) => Err(self.close(Some(offset), error)),
        }
    }

    /// Makes stable everything that was written to this and all other extents of the same device
    /// before the call.
    ///
    /// # Errors
    /// [`ClosedError::WriteFailed`] if the flush failed, after which the store is closed, because
    /// writes of its own may be lost as well; any other [`Error::Closed`].
    pub fn flush(&self) -> Result<(), Error> {
        self.check_open()?;
        let done = self.perform(Class::Flush, Operation::Flush)?;
        done.result.map_err(|error| self.close(None, error))
    }

    /// Closes the store after a failed write or flush; returns why.
    fn close(&self, offset: Option<u64>, error: DeviceError) -> Error {
        let failed = ClosedError::WriteFailed { device: self.extent.device, offset, error };
        let mut state = self.shared.lock();
        state.core.close(failed.clone());
        self.shared.pump(state);
        failed.into()
    }

    /// Checks that the store takes changes.
    fn check_open(&self) -> Result<(), Error> {
        if !self.shared.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.shared.lock();
        Err(state.core.closed().cloned().unwrap_or(ClosedError::Closed).into())
    }

    /// The offset on the device of `bytes` at `offset` within the extent.
    fn place(&self, offset: u64, bytes: usize) -> Result<u64, Error> {
        let end = offset.checked_add(bytes as u64);
        let is_inside = end.is_some_and(|end| end <= u64::from(self.extent.bytes));
        let is_whole = |bytes: u64| bytes.is_multiple_of(UNIT_BYTES);
        if is_inside && is_whole(offset) && is_whole(bytes as u64) && bytes > 0 {
            return Ok(self.extent.offset + offset);
        }
        let extent_bytes = self.extent.bytes;
        Err(RequestError::OutsideExtent { offset, bytes, extent_bytes }.into())
    }

    fn request(&self, class: Class, operation: Operation) -> Request {
        let hint = Hint { class, owner: Some(self.space.get()), deadline: None };
        let number = self.shared.extents.requests.fetch_add(1, Ordering::Relaxed);
        let token = Token(FIRST_TOKEN + number);
        Request { device: self.extent.device, token, hint, operation }
    }

    fn perform(&self, class: Class, operation: Operation) -> Result<Completion, Error> {
        let request = self.request(class, operation);
        self.shared.perform_on_extents(class, 1, || self.shared.performer.perform(request))
    }
}

impl Shared {
    /// Has so many requests performed.
    fn perform_on_extents<T>(
        &self,
        class: Class,
        count: u64,
        perform: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        self.check_caller()?;
        let in_foreground = count * u64::from(class.is_foreground());
        self.extents.begun.fetch_add(in_foreground, Ordering::Release);
        let done = perform();
        self.extents.ended.fetch_add(in_foreground, Ordering::Release);
        // After the store has closed, another process may have written there.
        self.check_caller().map(|()| done)
    }
}

impl Drop for ReservedExtent {
    fn drop(&mut self) {
        if !self.is_returned {
            self.shared.extents.spaces.lock().remove(&self.extent);
        }
    }
}

impl std::fmt::Debug for ReservedExtent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ReservedExtent").field(&self.extent).finish()
    }
}
