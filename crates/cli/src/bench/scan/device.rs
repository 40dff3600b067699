//! The device in sequence: what a scan could reach at most.

use std::path::Path;
use std::time::{Duration, Instant};

use upsweep::layers::device::{
    Buffer, Class, DeviceId, Devices, HostDevices, HostOptions, HostPath, Operation, Request, Token,
};

use crate::failure::Failure;

/// Bytes of a request.
const REQUEST_BYTES: u64 = 1 << 20;
/// Requests at a time.
const IN_FLIGHT: u64 = 4;

/// Reads the file past the page cache from its start to its end, for this long at most; returns
/// bytes per second. No store may have it open.
pub(super) fn sequential(path: &Path, most: Duration) -> Result<f64, Failure> {
    let host = HostPath { path: path.to_owned(), create: false };
    let mut devices = HostDevices::open(&[host], HostOptions::default())?;
    let device = DeviceId(0);
    let requests = devices.geometry(device).size_bytes / REQUEST_BYTES;
    let (started, mut completions) = (Instant::now(), Vec::new());
    let (mut next, mut read) = (0, 0);
    loop {
        while next < requests && next - read < IN_FLIGHT && started.elapsed() < most {
            let buffer = Buffer::recycled(REQUEST_BYTES as usize);
            let operation = Operation::Read { offset: next * REQUEST_BYTES, buffer };
            let hint = Class::Upkeep.into();
            devices.submit(Request { device, token: Token(next), hint, operation });
            next += 1;
        }
        if next == read {
            break;
        }
        devices.wait(&mut completions);
        for completion in completions.drain(..) {
            completion
                .result
                .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))?;
            read += 1;
        }
    }
    Ok((read * REQUEST_BYTES) as f64 / started.elapsed().as_secs_f64().max(1e-9))
}
