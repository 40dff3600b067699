//! What the log counts.

use super::assembly::Assembly;

/// What the log did since it was opened. Bytes are on the device, whole pages, unless said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Batches dispatched.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Of these, bytes in use by headers and records; `used_bytes / bytes` is the batch fill.
    pub used_bytes: u64,
    /// Records dispatched.
    pub records: u64,
    /// Batches that went out because `delay_us_max` had passed.
    pub delayed_batches: u64,
    /// Appends refused for lack of space.
    pub waits_full: u64,
    /// Appends refused because the queue of sealed batches was full.
    pub waits_busy: u64,
    /// Times that a ring became longer.
    pub growths: u64,
    /// Per log device.
    pub devices: Vec<LogDeviceStatistics>,
}

/// What one log device did since the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogDeviceStatistics {
    /// Batches given to it.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Batches it has completed.
    pub completed: u64,
}

impl LogStatistics {
    /// Counts a batch given to log device `device`.
    pub(super) fn count(&mut self, batch: &Assembly, device: u16) {
        self.batches += 1;
        self.bytes += batch.bytes();
        self.used_bytes += batch.used as u64;
        self.records += u64::from(batch.records);
        let device = &mut self.devices[usize::from(device)];
        device.batches += 1;
        device.bytes += batch.bytes();
    }
}
