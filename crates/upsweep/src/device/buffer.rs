//! Aligned, owned memory for direct I/O.
//!
//! Invariant: the memory of a [`Buffer`] starts at a multiple of [`ALIGNMENT`] and holds `len`
//! initialised bytes. A buffer is moved into a request and comes back with its completion, so that
//! no one can touch memory that a device is reading or writing.
//!
//! Buffers of [`MAPPED_BYTES_MIN`] and more are mapped one by one. The general allocator would keep
//! what such buffers leave behind, in holes that nothing else fits: measured on a sweep with a
//! budget of 32 MiB, 64 MB stayed resident instead of 39. A mapping whose buffer ends is kept for
//! the next one, up to [`SPARE_BYTES_MAX`] in all: to map, clear and account for pages takes the
//! system about as long as to write them.

#![expect(
    clippy::disallowed_types,
    reason = "buffers end on any thread, and others take them over"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Alignment in bytes of every buffer: satisfies direct I/O on devices of up to 4 KiB sectors.
pub const ALIGNMENT: usize = 4096;

/// Buffers from this size on come from the operating system directly.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Mapped bytes that are kept while nobody uses them. They were part of the budget of whoever had
/// them, which will need as much again.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// Mappings that nobody uses.
static SPARE: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

/// Owned bytes, aligned for direct I/O. Cost: one allocation; moved, never copied.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// Where the bytes are, if not in the heap.
    mapping: Option<Mapping>,
}

// SAFETY: a `Buffer` owns its allocation exclusively, as a `Box<[u8]>` does.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads plain bytes, as with a `Box<[u8]>`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes, all zero. `len` may be 0; direct I/O wants a multiple of the sector size.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (mut buffer, is_zero) = Self::of_any_age(len);
        if !is_zero {
            buffer.fill(0);
        }
        buffer
    }

    /// `len` bytes of any content, for what is overwritten as a whole.
    #[must_use]
    pub fn recycled(len: usize) -> Self {
        Self::of_any_age(len).0
    }

    /// `len` bytes, and whether they are zero.
    fn of_any_age(len: usize) -> (Self, bool) {
        let layout = Self::layout(len);
        if layout.size() < MAPPED_BYTES_MIN {
            // SAFETY: `layout` has a non-zero size (at least one alignment unit).
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let Some(start) = start else { handle_alloc_error(layout) };
            return (Self { start, len, mapping: None }, true);
        }
        let (mapping, is_zero) = match Mapping::spare(layout.size()) {
            Some(mapping) => (mapping, false),
            None => {
                (Mapping::new(layout.size()).unwrap_or_else(|| handle_alloc_error(layout)), true)
            }
        };
        (Self { start: mapping.start, len, mapping: Some(mapping) }, is_zero)
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn layout(len: usize) -> Layout {
        let size = len.max(1).next_multiple_of(ALIGNMENT);
        Layout::from_size_align(size, ALIGNMENT).expect("a buffer below isize::MAX bytes")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.mapping.take() {
            Some(mapping) => mapping.keep(),
            // SAFETY: `start` came from `alloc_zeroed` with this same layout, and is freed once.
            None => unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) },
        }
    }
}

/// Memory straight from the operating system; of initialised bytes, for new ones are zero.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Mapping` owns its memory exclusively, as a `Box<[u8]>` does.
unsafe impl Send for Mapping {}

impl Mapping {
    /// A new one of `bytes` zeros; `None` if the system has none.
    fn new(bytes: usize) -> Option<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new private mapping at an address of the system's choice touches nothing of
        // ours.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        Some(Self { start: NonNull::new(start.ok()?.cast())?, bytes })
    }

    /// A spare one of at least `bytes`, and not much more.
    fn spare(bytes: usize) -> Option<Self> {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |mapping: &Self| (bytes..=2 * bytes).contains(&mapping.bytes);
        let position = spare.iter().position(fits)?;
        Some(spare.swap_remove(position))
    }

    /// Keeps it for others, if there are not too many.
    fn keep(self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = spare.iter().map(|mapping| mapping.bytes).sum();
        if kept + self.bytes <= SPARE_BYTES_MAX {
            spare.push(self);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nobody refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.len)
    }
}
