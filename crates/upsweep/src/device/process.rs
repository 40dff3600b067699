//! Detects that the process is a fork of the one that opened a store, to which the store belongs.
//!
//! After `fork` the child has a copy of the memory but none of the threads. Nothing would submit
//! its writes, and the io_uring ring is not even mapped. So every call into a store checks first.
//! The check must cost next to nothing: it reads a page that the kernel clears in the child.

#![expect(clippy::disallowed_methods, reason = "this module is about the process identifier")]

use super::host::os::Mapping;

/// The process in which this value was made.
#[derive(Debug)]
pub struct Process {
    /// Memory whose first byte is 1 in the process that made it and 0 in its children; `None` where
    /// the system cannot clear memory in children.
    mark: Option<Mapping>,
    number: u32,
}

/// Size and alignment of the mark in bytes: the largest page size in use.
const MARK_BYTES: usize = 64 << 10;

impl Process {
    /// The current process. Cost: a page of memory.
    #[must_use]
    pub fn current() -> Self {
        Self { mark: mark(), number: std::process::id() }
    }

    /// Whether the calling process made this value, rather than being a child of the one that did.
    /// Cost: a read of memory; a system call where the system cannot clear memory in children, such
    /// as Linux before 4.14.
    #[must_use]
    #[inline]
    pub fn is_current(&self) -> bool {
        if let Some(mark) = &self.mark {
            // SAFETY: the memory is mapped until `self` is dropped, and is written only before it
            // is shared. The read is volatile because the kernel changes the byte.
            return unsafe { mark.start().read_volatile() } == 1;
        }
        self.number == std::process::id()
    }
}

fn mark() -> Option<Mapping> {
    let mark = Mapping::new(MARK_BYTES, MARK_BYTES)?;
    if !mark.clear_in_children() {
        return None;
    }
    // SAFETY: the memory was just mapped and is not shared yet.
    unsafe { mark.start().write(1) };
    Some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let process = Process::current();
        assert!(process.is_current());
        let other = Process { mark: None, number: process.number + 1 };
        assert!(!other.is_current());
    }
}
