//! Banks of simulated devices.

use upsweep::layers::device::{Geometry, LatencyModel, MemoryDevices, Simulated};

use crate::problem::Problem;

/// One Caviar Black.
pub(crate) fn bank(count: usize, seed: u64) -> Result<Box<dyn Simulated>, Problem> {
    let geometry = Geometry {
        size_bytes: 30 << 30,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        rotational: true,
        growable: false,
    };
    let mut devices = MemoryDevices::new(vec![geometry; count], seed);
    devices.set_latency(LatencyModel { base_us: 8000, bytes_per_us: 30, jitter_us: 0 });
    Ok(Box::new(devices))
}
