//! Rotating drives as the devices of a history: requests take milliseconds, overtake each other as
//! a drive chooses, and writes may end in a drive's buffer.

use upsweep::layers::device::drive::{
    Cache, Detail, Drive, DriveDescription, Overheads, Queue, ReadAhead, Scheduler, WriteBack,
};

use crate::random::Random;

/// Histories with drives, in per cent.
const PERCENT: u64 = 15;
/// Cylinders of a drive, which holds 1 GiB: more than any history writes.
const CYLINDERS: u32 = 8192;

/// The drive that each device of a history is.
#[derive(Clone, Debug)]
pub struct Drives {
    description: DriveDescription,
    detail: Detail,
}

impl Drives {
    /// Those of a seed; `None` if its devices are no drives.
    #[must_use]
    pub fn of(seed: u64) -> Option<Self> {
        let mut random = Random::new(seed, "drives");
        if !random.percent(PERCENT) {
            return None;
        }
        let plain = DriveDescription::plain(CYLINDERS);
        let schedulers = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::Sptf, Scheduler::CLook];
        let hold_ms = random.pick(&[0.0, 0.0, 1.0]);
        let mut description = DriveDescription {
            overhead_ms: Overheads {
                other: random.pick(&[0.0, 0.05, 0.3]),
                ..Overheads::default()
            },
            queue: Queue {
                depth: random.pick(&[1, 2, 4, 32]),
                scheduler: schedulers[random.below(4) as usize],
                unmergeable_write_hold_ms: hold_ms,
                smallest_mergeable_write_sectors: random.pick(&[0, 1, 8]),
            },
            cache: cache(&mut random, &plain.cache),
            ..plain
        };
        description.mechanics.rpm = random.pick(&[5400.0, 7200.0, 15_000.0]);
        description.mechanics.zero_latency_read = random.percent(50);
        description.mechanics.zero_latency_write = random.percent(50);
        let detail = if random.percent(70) { Detail::Full } else { Detail::Overheads };
        Some(Self { description, detail })
    }

    /// One of them, at time 0.
    #[must_use]
    pub fn one(&self) -> Drive {
        Drive::new(&self.description, self.detail)
    }
}

fn cache(random: &mut Random, none: &Cache) -> Cache {
    let write_backs = [WriteBack::None, WriteBack::AppendingMixed, WriteBack::Any];
    let read_aheads =
        [ReadAhead::None, ReadAhead::NextTrackIfSequential, ReadAhead::UntilSegmentFull];
    let segments = random.pick(&[2, 4, 16]);
    Cache {
        enabled: random.percent(80),
        segments,
        write_segments_max: random.between(1, u64::from(segments)) as u32,
        segment_sectors: random.pick(&[128, 512]),
        read_ahead: read_aheads[random.below(3) as usize],
        read_ahead_max_sectors: random.pick(&[64, 128]),
        write_back: write_backs[random.below(3) as usize],
        read_hits_on_write_data: random.percent(50),
        combine_sequential_writes: random.percent(50),
        ..none.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_of_every_seed_are_sound() {
        let drives: Vec<Drives> = (0..2000).filter_map(Drives::of).collect();
        assert!((200..400).contains(&drives.len()), "{}", drives.len());
        for Drives { description, .. } in drives {
            assert_eq!(description.check(), Ok(()));
        }
    }
}
