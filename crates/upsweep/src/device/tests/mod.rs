//! Tests of the device layer: one conformance suite for all implementations, and specific tests of
//! each.

mod conformance;
mod hostile;
mod memory;
mod profile;
mod rotating;

use super::{Buffer, Class, Completion, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Bytes of the devices in these tests.
pub(crate) const SIZE: u64 = 1 << 20;

/// A buffer whose every byte is `byte`.
pub(crate) fn filled(bytes: usize, byte: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    buffer.fill(byte);
    buffer
}

/// Submits one operation on device 0.
pub(crate) fn submit(devices: &mut dyn Devices, token: u64, operation: Operation) {
    let (token, hint) = (Token(token), Class::Upkeep.into());
    devices.submit(Request { device: DeviceId(0), token, hint, operation });
}

/// A write of `bytes` times `byte`.
pub(crate) fn write(offset: u64, bytes: usize, byte: u8, mode: WriteMode) -> Operation {
    Operation::Write { offset, buffer: filled(bytes, byte), mode }
}

/// A read of `bytes` bytes.
pub(crate) fn read(offset: u64, bytes: usize) -> Operation {
    Operation::Read { offset, buffer: Buffer::zeroed(bytes) }
}

/// Waits until `count` requests have completed.
pub(crate) fn wait_for(devices: &mut dyn Devices, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        let before = completions.len();
        devices.wait(&mut completions);
        assert!(completions.len() > before, "nothing in flight, yet completions are missing");
    }
    assert_eq!(completions.len(), count);
    completions
}
