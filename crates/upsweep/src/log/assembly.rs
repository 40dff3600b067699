//! Batches that are being filled or wait for a place in the pipeline, and their recycled memory.

use super::Seq;
use super::format::{self, BATCH_HEADER_BYTES};
use crate::device::Buffer;
use crate::metrics::Metrics;

/// A batch in memory, without a place on a device yet.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) buffer: Buffer,
    page_bytes: u32,
    /// Bytes in use, the header's room included.
    pub(super) used: usize,
    /// Most of them.
    limit: usize,
    pub(super) records: u32,
    pub(super) first_seq: Seq,
    /// A caller waits for it: no delay.
    pub(super) urgent: bool,
    /// When its first record was appended.
    pub(super) since_us: u64,
}

impl Assembly {
    pub(super) fn new(buffer: Buffer, page_bytes: u32, first_seq: Seq, since_us: u64) -> Self {
        let (used, limit) = (BATCH_HEADER_BYTES, buffer.len());
        Self { buffer, page_bytes, used, limit, records: 0, first_seq, urgent: false, since_us }
    }

    /// Makes it shorter than its buffer.
    pub(super) fn limit_to(&mut self, bytes: u64) {
        self.limit = self.limit.min(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    pub(super) fn last_seq(&self) -> Seq {
        self.first_seq.previous().plus(u64::from(self.records))
    }

    /// As [`BatchHeader::needed_for`](format::BatchHeader::needed_for).
    pub(super) fn needed_for(&self) -> Seq {
        format::needed_for(self.first_seq, self.last_seq())
    }

    pub(super) fn record_bytes(&self) -> usize {
        self.used - BATCH_HEADER_BYTES
    }

    /// Counts it as dispatched, of which `bytes` are written.
    pub(super) fn count(&self, bytes: u64, metrics: &Metrics) {
        if self.records == 0 {
            metrics.log_dummy_batches_total.add(1);
            metrics.log_dummy_written_bytes_total.add(bytes);
            return;
        }
        metrics.log_batches_total.add(1);
        metrics.log_written_bytes_total.add(bytes);
        metrics.log_payload_bytes_total.add(self.used as u64);
        metrics.log_records_total.add(u64::from(self.records));
    }

    /// Bytes on the device: whole pages.
    pub(super) fn bytes(&self) -> u64 {
        format::batch_bytes(self.record_bytes(), self.page_bytes)
    }

    #[inline]
    pub(super) fn fits(&self, record_bytes: usize) -> bool {
        self.used + record_bytes <= self.limit
    }

    /// Whether one more record of the average length fits.
    pub(super) fn has_room(&self) -> bool {
        self.fits(self.record_bytes() / self.records.max(1) as usize)
    }

    /// Bytes on the device with one more record.
    #[inline]
    pub(super) fn bytes_with(&self, record_bytes: usize) -> u64 {
        format::batch_bytes(self.record_bytes() + record_bytes, self.page_bytes)
    }
}

/// Free buffers, each with at least the capacity of a full batch.
#[derive(Debug)]
pub(super) struct Pool {
    batch_bytes: usize,
    free: Vec<Buffer>,
    kept_max: usize,
    /// Bytes of all buffers that the log holds, lent to devices or not.
    pub(super) bytes: u64,
}

impl Pool {
    pub(super) fn new(batch_bytes: usize, kept_max: usize) -> Self {
        Self { batch_bytes, free: Vec::new(), kept_max, bytes: 0 }
    }

    /// A buffer for a batch: of the usual size, or of `bytes` for a single long record.
    pub(super) fn take(&mut self, bytes: usize) -> Buffer {
        if bytes <= self.batch_bytes
            && let Some(buffer) = self.free.pop()
        {
            return buffer;
        }
        let bytes = bytes.max(self.batch_bytes);
        self.bytes += bytes as u64;
        Buffer::zeroed(bytes)
    }

    /// Takes a buffer back, shortened or not; keeps a bounded number.
    pub(super) fn give(&mut self, mut buffer: Buffer) {
        buffer.restore();
        if buffer.len() == self.batch_bytes && self.free.len() < self.kept_max {
            self.free.push(buffer);
        } else {
            self.bytes -= buffer.len() as u64;
        }
    }
}
