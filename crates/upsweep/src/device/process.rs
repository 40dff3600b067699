//! Which process this is: a store belongs to the one that opened it.
//!
//! After `fork` the child has a copy of the memory, and none of the threads. Nobody submits what it
//! writes, and the ring of the kernel is not even mapped. So whoever calls into a store asks first,
//! which has to cost next to nothing: a page that the kernel gives the child as zeros.

#![expect(clippy::disallowed_methods, reason = "the number of the process is what this is about")]

use super::host::os::Mapping;

/// The process in which this was made.
#[derive(Debug)]
pub struct Process {
    /// Memory whose first byte is 1 in the process that made it and 0 in its children; `None` where
    /// the system clears nothing for children.
    mark: Option<Mapping>,
    number: u32,
}

/// Bytes of the mark, and where it may start: a page, as large as pages are.
const MARK_BYTES: usize = 64 << 10;

impl Process {
    /// The present one. Cost: a page of memory.
    #[must_use]
    pub fn current() -> Self {
        Self { mark: mark(), number: std::process::id() }
    }

    /// Whether this process is the one that made it, and not a child of that. Cost: a read of
    /// memory; a system call where the system has no such memory, as Linux before 4.14.
    #[must_use]
    #[inline]
    pub fn is_current(&self) -> bool {
        if let Some(mark) = &self.mark {
            // SAFETY: the memory is mapped until `self` is dropped, and written only before
            // anybody else knows of it. The read is volatile because the byte changes without any
            // write of the program.
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
    // SAFETY: the memory was mapped just now, and nobody else knows of it.
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
