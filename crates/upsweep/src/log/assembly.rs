//! Batches that are being filled or wait for a place in the pipeline, and their recycled memory.

use super::Seq;
use super::format::{self, BATCH_HEADER_BYTES};
use crate::device::Buffer;

/// A batch in memory, without a place on a device yet.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) buffer: Buffer,
    page_bytes: u32,
    /// Bytes in use, the header's room included.
    pub(super) used: usize,
    pub(super) records: u32,
    pub(super) first_seq: Seq,
    /// Somebody waits for it: no delay.
    pub(super) urgent: bool,
    /// When its first record was appended.
    pub(super) since_us: u64,
}

impl Assembly {
    pub(super) fn new(buffer: Buffer, page_bytes: u32, first_seq: Seq, since_us: u64) -> Self {
        let used = BATCH_HEADER_BYTES;
        Self { buffer, page_bytes, used, records: 0, first_seq, urgent: false, since_us }
    }

    pub(super) fn last_seq(&self) -> Seq {
        self.first_seq - 1 + u64::from(self.records)
    }

    pub(super) fn record_bytes(&self) -> usize {
        self.used - BATCH_HEADER_BYTES
    }

    /// Bytes on the device: whole pages.
    pub(super) fn bytes(&self) -> u64 {
        format::batch_bytes(self.record_bytes(), self.page_bytes)
    }

    #[inline]
    pub(super) fn fits(&self, record_bytes: usize) -> bool {
        self.used + record_bytes <= self.buffer.len()
    }

    /// Bytes on the device with one more record.
    #[inline]
    pub(super) fn bytes_with(&self, record_bytes: usize) -> u64 {
        format::batch_bytes(self.record_bytes() + record_bytes, self.page_bytes)
    }
}

/// Free buffers. A device writes whole buffers, so a batch that does not fill its buffer is cut:
/// its pages are copied into a buffer of their length. A full pipeline fills its batches and does
/// not come here; a lone record copies one page.
#[derive(Debug)]
pub(super) struct Pool {
    batch_bytes: usize,
    full: Vec<Buffer>,
    cut: Vec<Buffer>,
    kept_max: usize,
    /// Bytes of all buffers that the log holds, lent to devices or not.
    pub(super) bytes: u64,
}

impl Pool {
    pub(super) fn new(batch_bytes: usize, kept_max: usize) -> Self {
        Self { batch_bytes, full: Vec::new(), cut: Vec::new(), kept_max, bytes: 0 }
    }

    /// A buffer for a batch: of the usual size, or of `bytes` for a single long record.
    pub(super) fn take(&mut self, bytes: usize) -> Buffer {
        match self.full.pop() {
            Some(buffer) if bytes <= self.batch_bytes => buffer,
            kept => {
                self.full.extend(kept);
                self.allocate(bytes.max(self.batch_bytes))
            }
        }
    }

    fn allocate(&mut self, bytes: usize) -> Buffer {
        self.bytes += bytes as u64;
        Buffer::zeroed(bytes)
    }

    /// The first `bytes` of `buffer`, as a buffer of that length.
    pub(super) fn cut(&mut self, buffer: Buffer, bytes: usize) -> Buffer {
        if bytes == buffer.len() {
            return buffer;
        }
        let mut short = match self.cut.iter().position(|kept| kept.len() == bytes) {
            Some(position) => self.cut.swap_remove(position),
            None => self.allocate(bytes),
        };
        short.copy_from_slice(&buffer[..bytes]);
        self.give(buffer);
        short
    }

    /// Takes a buffer back; keeps a bounded number.
    pub(super) fn give(&mut self, buffer: Buffer) {
        let kept = if buffer.len() == self.batch_bytes { &mut self.full } else { &mut self.cut };
        let forgotten = if buffer.len() > self.batch_bytes {
            Some(buffer)
        } else {
            kept.push(buffer);
            (kept.len() > self.kept_max).then(|| kept.remove(0))
        };
        self.bytes -= forgotten.map_or(0, |buffer| buffer.len() as u64);
    }
}
