//! Which process this is: a store belongs to the one that opened it.
//!
//! After `fork` the child has a copy of the memory, and none of the threads. Nobody submits what it
//! writes, and the ring of the kernel is not even mapped. So whoever calls into a store asks first,
//! which has to cost next to nothing: a page that the kernel gives the child as zeros.

#![expect(clippy::disallowed_methods, reason = "the number of the process is what this is about")]

#[cfg(target_os = "linux")]
use std::ptr::NonNull;

/// The process in which this was made.
#[derive(Debug)]
pub struct Process {
    /// A page of its own, whose first byte is 1 in the process that made it and 0 in its children;
    /// `None` where the kernel clears no pages for children.
    #[cfg(target_os = "linux")]
    mark: Option<NonNull<u8>>,
    number: u32,
}

// SAFETY: the page is written once, before anybody else knows of it, and only read from then on.
#[cfg(target_os = "linux")]
unsafe impl Send for Process {}
// SAFETY: as above.
#[cfg(target_os = "linux")]
unsafe impl Sync for Process {}

/// Bytes of the page.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

impl Process {
    /// The present one. Cost: a page of memory.
    #[must_use]
    pub fn current() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            mark: mark(),
            number: std::process::id(),
        }
    }

    /// Whether this process is the one that made it, and not a child of that. Cost: a read of
    /// memory; a system call where the kernel is older than 4.14.
    #[must_use]
    #[inline]
    pub fn is_current(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(mark) = self.mark {
            // SAFETY: the page is mapped until `self` is dropped. The read is volatile because the
            // byte changes without any write of the program.
            return unsafe { mark.as_ptr().read_volatile() } == 1;
        }
        self.number == std::process::id()
    }
}

#[cfg(target_os = "linux")]
fn mark() -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the page was mapped just now, and nobody else knows of it.
    unsafe {
        if madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).is_err() {
            // It would be there as long as the process, and be no use to anybody.
            let _unmapped = munmap(page, PAGE_BYTES);
            return None;
        }
        page.cast::<u8>().write(1);
    }
    NonNull::new(page.cast())
}

#[cfg(target_os = "linux")]
impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mark) = self.mark {
            // SAFETY: the page was mapped with this length, and nobody reads it after `self`.
            let _unmapped = unsafe { rustix::mm::munmap(mark.as_ptr().cast(), PAGE_BYTES) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let process = Process::current();
        assert!(process.is_current());
        let other = Process {
            #[cfg(target_os = "linux")]
            mark: None,
            number: process.number + 1,
        };
        assert!(!other.is_current());
    }
}
