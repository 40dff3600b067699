//! A drive for simulations in which it does not matter which one it is.

use std::collections::BTreeMap;

use super::description::{
    Bus, Cache, Capacity, DriveDescription, Host, LayoutRules, Mechanics, Overheads, Queue,
    ReadAhead, Scheduler, SeekCurve, SkewUnit, Spares, Start, Status, SurfaceOrder, Watermark,
    WriteBack, Zone,
};

impl DriveDescription {
    /// A drive of 7200 revolutions a minute with two surfaces, one zone, sectors of 512 bytes, 128
    /// of them on a track, and seeks of 1 to 15 ms. No cache, no overheads, and a queue of one.
    /// Every field may be changed; [`check`](DriveDescription::check) says whether the result is a
    /// drive.
    ///
    /// # Panics
    /// If there are more than 10^9 cylinders, or none.
    #[must_use]
    pub fn plain(cylinders: u32) -> Self {
        assert!((1..=1_000_000_000).contains(&cylinders), "{cylinders} cylinders");
        let (surfaces, sectors_per_track) = (2, 128);
        let lbns = u64::from(cylinders) * u64::from(surfaces * sectors_per_track);
        Self {
            schema: 1,
            id: "plain".into(),
            name: "A plain drive".into(),
            model: "none".into(),
            status: Status::Estimated,
            capacity: Capacity {
                sector_bytes: 512,
                physical_sector_bytes: None,
                lbns,
                mapped_lbns: lbns,
            },
            mechanics: Mechanics {
                rpm: 7200.0,
                surfaces,
                cylinders,
                head_switch_ms: 0.8,
                write_settle_ms: 0.1,
                zero_latency_read: false,
                zero_latency_write: false,
            },
            seek: SeekCurve::ThreePoint { single_ms: 1.0, average_ms: 8.0, full_ms: 15.0 },
            start: Start { cylinder: 0, surface: 0, angle_at_time_zero: 0.0 },
            layout: LayoutRules {
                order: SurfaceOrder::Ascending,
                skew_unit: SkewUnit::Sectors,
                spares: Spares::None,
            },
            overhead_ms: Overheads::default(),
            bus: Bus {
                sector_ms: 0.0,
                mb_per_s: None,
                interface: None,
                hold_whole_read: false,
                hold_whole_write: false,
            },
            queue: Queue {
                depth: 1,
                scheduler: Scheduler::Fcfs,
                unmergeable_write_hold_ms: 0.0,
                smallest_mergeable_write_sectors: 0,
            },
            cache: no_cache(),
            host: Host::default(),
            datasheet: BTreeMap::new(),
            source: BTreeMap::new(),
            zones: vec![Zone {
                first_lbn: 0,
                lbns,
                first_cylinder: 0,
                last_cylinder: cylinders - 1,
                sectors_per_track,
                track_skew: 16,
                cylinder_skew: 24,
                reserved_at_front: 0,
                spares_at_end: 0,
                slips: Vec::new(),
            }],
        }
    }
}

fn no_cache() -> Cache {
    Cache {
        enabled: false,
        buffer_kib: None,
        segments: 1,
        write_segments_max: 1,
        dedicated_write_segment: false,
        segment_sectors: 128,
        read_hits_on_write_data: false,
        partial_hit_transfers_at_once: false,
        read_ahead: ReadAhead::None,
        read_ahead_min_sectors: 0,
        read_ahead_max_sectors: 0,
        read_ahead_over_requested: false,
        read_ahead_on_idle_hit: false,
        read_ahead_stops_in_sector: false,
        read_sectors_before_request: false,
        write_back: WriteBack::None,
        combine_sequential_writes: false,
        write_hit_stops_read_ahead: false,
        watermark_read: 0.0,
        watermark_write: 0.0,
        watermark_of: Watermark::Request,
    }
}
