//! Whether payload is written to stable media at once, or to the cache of the devices.
//!
//! A flush of a device takes longer than a small write that does not need one. So where flushes
//! follow each other closely, as under a database, payload is written to stable media at once, and
//! the flush finds nothing to do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upsweep::layers::device::WriteMode;

/// Flushes are close to each other if no more than this was written between them, in bytes.
const CLOSE_BYTES: u64 = 1 << 20;

/// How flushes follow each other.
#[derive(Debug, Default)]
pub struct Pace {
    /// Bytes that have been written since the last one.
    written: AtomicU64,
    /// Whether the last two were close to each other.
    is_close: AtomicBool,
}

impl Pace {
    /// How payload is written that need not be durable before the next flush.
    pub fn write_mode(&self, bytes: u64) -> WriteMode {
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_soon = self.is_close.load(Ordering::Relaxed) && written <= CLOSE_BYTES;
        if is_soon { WriteMode::Stable } else { WriteMode::Cached }
    }

    /// Takes note of a flush.
    pub fn flush(&self) {
        let written = self.written.swap(0, Ordering::Relaxed);
        if written > 0 {
            self.is_close.store(written <= CLOSE_BYTES, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_stable_at_once_while_flushes_are_close() {
        let pace = Pace::default();
        assert_eq!(pace.write_mode(4096), WriteMode::Cached);
        pace.flush();
        assert_eq!(pace.write_mode(4096), WriteMode::Stable);
        pace.flush();
        pace.flush();
        assert_eq!(pace.write_mode(CLOSE_BYTES), WriteMode::Stable);
        assert_eq!(pace.write_mode(4096), WriteMode::Cached, "no flush came");
        pace.flush();
        assert_eq!(pace.write_mode(4096), WriteMode::Cached);
    }
}
