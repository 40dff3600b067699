//! The probe, on banks whose speed is known.

use std::time::Duration;

use super::*;
use crate::device::{
    DeviceError, DeviceProfile, LatencyModel, MemoryDevices, ScratchRange, Simulated, probe,
};

fn profile(latency: LatencyModel, offset: u64, bytes: u64) -> Result<DeviceProfile, DeviceError> {
    let mut bank = MemoryDevices::with_sizes(&[8 << 20], 1);
    bank.set_latency(latency);
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let scratch = ScratchRange { offset, bytes };
    let profile = probe(&mut bank, DeviceId(0), scratch, now);
    let before = bank.peek(DeviceId(0), 0, offset as usize);
    assert!(before.iter().all(|byte| *byte == 0), "only the scratch range is written");
    profile
}

#[test]
fn finds_the_speed_of_a_solid_state_disk() {
    let latency = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 0 };
    let profile = profile(latency, 4 << 20, 4 << 20).expect("measured");
    for bandwidth in
        [profile.sequential_read_bytes_per_second, profile.sequential_write_bytes_per_second]
    {
        assert!((480_000_000..=512_000_000).contains(&bandwidth), "{profile:?}");
    }
    assert_eq!((profile.random_read_us, profile.sync_write_us), (108, 108));
    assert!(!profile.rotational && profile.reason.contains("108 us"), "{profile:?}");
    let text = serde_json::to_string(&profile).expect("serialisable");
    assert_eq!(serde_json::from_str::<DeviceProfile>(&text).expect("readable"), profile);
}

#[test]
fn finds_a_rotating_disk_whatever_the_host_says() {
    let latency = LatencyModel { base_us: 8000, bytes_per_us: 150, jitter_us: 4000 };
    let profile = profile(latency, 0, 2 << 20).expect("measured");
    assert!(profile.rotational, "{profile:?}");
    assert!(profile.reason.contains("although the host reports rotational=0"), "{profile:?}");
}

#[test]
fn refuses_a_bad_range() {
    let latency = LatencyModel::default();
    for (offset, bytes) in [(0, 4096), (4 << 20, 8 << 20)] {
        assert_eq!(profile(latency, offset, bytes), Err(DeviceError::InvalidRange));
    }
}
