//! Whether a request matches its class, which determines the ordering of requests.

use upsweep::layers::device::{Class, Operation, Request, WriteMode};

use crate::world::Verdict;

/// Checks a request of a running store, whose first devices are for data.
///
/// # Errors
/// A description of the problem.
pub fn check(request: &Request, data_devices: u16) -> Verdict {
    let is_data = request.device.0 < data_devices;
    let stable = |mode| mode == WriteMode::Stable;
    let class = request.hint.class;
    let fits = match &request.operation {
        Operation::Read { .. } => {
            is_data && matches!(class, Class::ForegroundRead | Class::ScanRead | Class::SweepRead)
        }
        Operation::Write { mode, .. } if is_data => match class {
            Class::SweepWrite | Class::Spill => !stable(*mode),
            Class::Checkpoint => true,
            _ => false,
        },
        Operation::Write { mode, .. } => {
            stable(*mode) && matches!(class, Class::Log | Class::FileSpace)
        }
        // The broken engine that forgets to allocate requests a flush instead.
        Operation::Flush => is_data && matches!(class, Class::Flush | Class::FileSpace),
        Operation::Discard { .. } | Operation::Allocate { .. } => class == Class::FileSpace,
    };
    let has_deadline = request.hint.deadline.is_some();
    if fits && has_deadline == (class == Class::Log) {
        return Ok(());
    }
    let (device, operation) = (request.device.0, &request.operation);
    Err(format!("{operation:?} on device {device} with {:?}", request.hint))
}
