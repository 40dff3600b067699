//! How one thread wakes another that waits in `poll`.
//!
//! A bell is a pair of sockets. To ring is to write a byte; if there is no room for it, the bell
//! rings already.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Wakes the thread that waits for it.
pub(super) struct Bell {
    rope: UnixStream,
    sound: UnixStream,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let (rope, sound) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        sound.set_nonblocking(true)?;
        Ok(Self { rope, sound })
    }

    pub(super) fn ring(&self) {
        // It can only fail because enough bytes are there already: this holds both ends.
        let _ = (&self.rope).write(&[1]);
    }

    /// Forgets that it rang. Look after this at what it rang for, or a later ring may be lost.
    pub(super) fn quiet(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.sound).read(&mut bytes), Ok(count) if count == bytes.len()) {}
    }
}

impl AsFd for Bell {
    /// Readable once it rang.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sound.as_fd()
    }
}
