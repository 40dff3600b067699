//! The probe, on banks of known speed.

use std::time::Duration;

use super::*;
use crate::device::{
    BlockWrites, DeviceError, DeviceProfile, Geometry, LatencyModel, MemoryDevices, ScratchRange,
    Simulated, probe, probe_block_writes,
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
    // 7,200 turns a minute and seeks; 15,000 and hardly a seek, as in a small scratch range.
    for (base_us, jitter_us) in [(8000, 4000), (500, 4000)] {
        let latency = LatencyModel { base_us, bytes_per_us: 150, jitter_us };
        let profile = profile(latency, 0, 2 << 20).expect("measured");
        assert!(profile.rotational, "{profile:?}");
        assert!(profile.reason.contains("although the host reports rotational=0"), "{profile:?}");
    }
}

#[test]
fn a_busy_solid_state_disk_does_not_count_as_rotating() {
    let latency = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 3000 };
    let profile = profile(latency, 0, 2 << 20).expect("measured");
    assert!(profile.random_read_us > 1000 && !profile.rotational, "{profile:?}");
}

#[test]
fn refuses_a_bad_range() {
    let latency = LatencyModel::default();
    for (offset, bytes) in [(0, 4096), (4 << 20, 8 << 20)] {
        assert_eq!(profile(latency, offset, bytes), Err(DeviceError::InvalidRange));
    }
}

/// Compares writes of blocks of this many bytes, on a device of this latency.
fn block_writes(block_bytes: u32, latency: LatencyModel) -> BlockWrites {
    let geometry = Geometry {
        size_bytes: 8 << 20,
        logical_block_bytes: block_bytes,
        physical_block_bytes: 4096,
        rotational: false,
        growable: false,
    };
    let mut bank = MemoryDevices::new(vec![geometry], 1);
    bank.set_latency(latency);
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let scratch = ScratchRange { offset: 1 << 20, bytes: 256 << 10 };
    let found =
        probe_block_writes(&mut bank, DeviceId(0), block_bytes, scratch, now).expect("measured");
    for (offset, bytes) in [(0, 1 << 20), ((1 << 20) + (256 << 10), 1 << 20)] {
        let outside = bank.peek(DeviceId(0), offset, bytes);
        assert!(outside.iter().all(|byte| *byte == 0), "only the scratch range is written");
    }
    let small = ScratchRange { offset: 0, bytes: 128 << 10 };
    let refused = probe_block_writes(&mut bank, DeviceId(0), block_bytes, small, now);
    assert_eq!(refused, Err(DeviceError::InvalidRange));
    found
}

#[test]
fn compares_writes_of_a_block_with_those_of_4_kib() {
    let latency = LatencyModel { base_us: 100, bytes_per_us: 512, jitter_us: 0 };
    let found = block_writes(512, latency);
    assert_eq!(found, BlockWrites { block_bytes: 512, block_us: 101, unit_us: 108 });
    assert!(found.are_fast());
    let slow = LatencyModel { base_us: 20_000, ..latency };
    assert_eq!(block_writes(512, slow).unit_us, 20_008, "fewer pairs");
    for (block_us, are_fast) in [(125, true), (126, false)] {
        assert_eq!(BlockWrites { block_bytes: 512, block_us, unit_us: 100 }.are_fast(), are_fast);
    }
}
