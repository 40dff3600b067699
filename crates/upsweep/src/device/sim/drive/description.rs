//! A rotating drive as data: geometry, mechanics, overheads, bus, queue and cache.
//!
//! The shape is that of the drive files in `crates/lab/drives`, whose README gives the meaning of
//! every key. Times are milliseconds, distances cylinders, sizes sectors, unless the name says
//! otherwise. Cylinder 0 is the outermost; cylinders, surfaces, sectors and LBNs count from 0.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A drive. [`check`](DriveDescription::check) says whether it can be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveDescription {
    /// Version of the shape: 1.
    pub schema: u32,
    /// Short name, unique among drives.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Model number of the maker.
    pub model: String,
    /// Where the values come from.
    pub status: Status,
    /// Sizes.
    pub capacity: Capacity,
    /// What moves.
    pub mechanics: Mechanics,
    /// Time of a seek by its distance.
    pub seek: SeekCurve,
    /// The state at time 0.
    pub start: Start,
    /// The order of sectors.
    pub layout: LayoutRules,
    /// Time for processing a command.
    pub overhead_ms: Overheads,
    /// The connection to the host.
    pub bus: Bus,
    /// Commands in the drive.
    pub queue: Queue,
    /// The buffer.
    pub cache: Cache,
    /// The host of the measurements for which the drive is described.
    #[serde(default)]
    pub host: Host,
    /// Published figures to compare the model with; they are no inputs.
    #[serde(default)]
    pub datasheet: BTreeMap<String, f64>,
    /// Which values are known, by key.
    #[serde(default)]
    pub source: BTreeMap<String, Source>,
    /// Zones, from the outermost.
    #[serde(rename = "zone")]
    pub zones: Vec<Zone>,
}

/// Where the values of a description come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// From one real drive.
    Measured,
    /// From published figures; the rest is chosen so that the model meets them.
    Estimated,
}

/// Sizes of a drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Bytes of a sector on the media, if they differ.
    #[serde(default)]
    pub physical_sector_bytes: Option<u32>,
    /// LBNs that the host may use.
    pub lbns: u64,
    /// LBNs that the zones hold.
    pub mapped_lbns: u64,
}

/// What moves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanics {
    /// Revolutions a minute.
    pub rpm: f64,
    /// Surfaces, which is heads.
    pub surfaces: u32,
    /// Cylinders.
    pub cylinders: u32,
    /// Time to change to another surface.
    pub head_switch_ms: f64,
    /// Additional time before a write once the head has moved.
    pub write_settle_ms: f64,
    /// Whether a read takes the sectors of a track in the order in which they come.
    pub zero_latency_read: bool,
    /// Whether a write does.
    pub zero_latency_write: bool,
}

/// Time of a seek by its distance in cylinders.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SeekCurve {
    /// Linear between these points, and beyond the last one as between the last two.
    Points {
        /// Distance, time.
        points: Vec<(f64, f64)>,
    },
    /// `single + a sqrt(x) + b x`, where x grows from 0 at one cylinder to 1 at all of them (Lee
    /// and Katz, 1993).
    ThreePoint {
        /// Of one cylinder.
        single_ms: f64,
        /// The mean over all pairs of different cylinders.
        average_ms: f64,
        /// Over all cylinders.
        full_ms: f64,
    },
}

/// The state of a drive at time 0.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Where the head is.
    pub cylinder: u32,
    /// Which surface it is on.
    pub surface: u32,
    /// The angle under the head, as a fraction of a revolution.
    pub angle_at_time_zero: f64,
}

/// The order of sectors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutRules {
    /// The order of surfaces.
    pub order: SurfaceOrder,
    /// The unit of skews.
    pub skew_unit: SkewUnit,
    /// Where the spare sectors are.
    pub spares: Spares,
}

/// The order in which a cylinder's surfaces are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SurfaceOrder {
    /// From surface 0 upwards in every cylinder.
    Ascending,
    /// Upwards in a zone's even cylinders, downwards in the odd ones.
    Serpentine,
}

/// The unit of skews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkewUnit {
    /// Whole sectors of the zone.
    Sectors,
}

/// Where the spare sectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spares {
    /// At the end of each zone.
    Zone,
    /// At the end of the drive.
    Disk,
    /// Nowhere.
    None,
}

/// Time for processing a command before anything else happens, by kind and by the kind of the
/// command before it (a read, before the first).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// A read from the buffer after a read.
    pub read_hit_after_read: f64,
    /// A read from the buffer after a write.
    pub read_hit_after_write: f64,
    /// A read from the media after a read.
    pub read_miss_after_read: f64,
    /// A read from the media after a write.
    pub read_miss_after_write: f64,
    /// A write that ends in the buffer, after a read.
    pub write_hit_after_read: f64,
    /// A write that ends in the buffer, after a write.
    pub write_hit_after_write: f64,
    /// A write that ends on the media, after a read.
    pub write_miss_after_read: f64,
    /// A write that ends on the media, after a write.
    pub write_miss_after_write: f64,
    /// Of every command, besides.
    pub other: f64,
}

/// The connection to the host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Time of one sector between host and buffer.
    pub sector_ms: f64,
    /// Nominal rate, in 10^6 bytes a second.
    #[serde(default)]
    pub mb_per_s: Option<f64>,
    /// Its name.
    #[serde(default)]
    pub interface: Option<String>,
    /// Whether a read keeps it from its first to its last sector.
    pub hold_whole_read: bool,
    /// Whether a write does.
    pub hold_whole_write: bool,
}

/// Commands in the drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Most commands that the drive chooses from.
    pub depth: usize,
    /// How it chooses.
    pub scheduler: Scheduler,
    /// How long a write is held that merges with no other in the queue.
    #[serde(default)]
    pub unmergeable_write_hold_ms: f64,
    /// Smaller writes never merge.
    #[serde(default)]
    pub smallest_mergeable_write_sectors: u32,
}

/// How the next command is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// First come, first served.
    Fcfs,
    /// Shortest seek time first.
    Sstf,
    /// Shortest positioning time first: seek and rotation.
    Sptf,
    /// The next one upwards, then again from the lowest.
    CLook,
}

/// The buffer of a drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Whether it is used.
    pub enabled: bool,
    /// Its size in KiB.
    #[serde(default)]
    pub buffer_kib: Option<u32>,
    /// Segments.
    pub segments: u32,
    /// Most of them that hold writes.
    pub write_segments_max: u32,
    /// Whether one is reserved for writes.
    pub dedicated_write_segment: bool,
    /// Sectors of a segment.
    pub segment_sectors: u32,
    /// Whether written data can be read from the buffer.
    pub read_hits_on_write_data: bool,
    /// Whether what is in the buffer crosses the bus while the rest is read.
    pub partial_hit_transfers_at_once: bool,
    /// What is read beyond a request.
    pub read_ahead: ReadAhead,
    /// Least sectors of it.
    pub read_ahead_min_sectors: u32,
    /// Most sectors of it.
    pub read_ahead_max_sectors: u32,
    /// Whether it may overwrite the data just returned.
    pub read_ahead_over_requested: bool,
    /// Whether it also starts after a full hit.
    pub read_ahead_on_idle_hit: bool,
    /// Whether it may be cut within a sector.
    pub read_ahead_stops_in_sector: bool,
    /// Whether sectors of the track that pass before the requested ones are kept.
    pub read_sectors_before_request: bool,
    /// Which writes are acknowledged from the buffer.
    pub write_back: WriteBack,
    /// Whether writes in sequence share a segment.
    pub combine_sequential_writes: bool,
    /// Whether a write that ends in the buffer stops reading ahead.
    pub write_hit_stops_read_ahead: bool,
    /// Fraction of `watermark_of` that is in the buffer before a read uses the bus.
    pub watermark_read: f64,
    /// Fraction of `watermark_of` that is in the buffer before a write uses the media.
    pub watermark_write: f64,
    /// What watermarks are fractions of.
    pub watermark_of: Watermark,
}

/// What is read beyond a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Nothing.
    None,
    /// To the end of the next track, if an earlier recent read ended on the track before.
    NextTrackIfSequential,
    /// Until the segment is full.
    UntilSegmentFull,
}

/// Which writes are acknowledged from the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteBack {
    /// None.
    None,
    /// Those that append to the dirty segment; anything else writes that first.
    AppendingMixed,
    /// Every one that fits.
    Any,
}

/// What a watermark is a fraction of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Watermark {
    /// The request.
    Request,
}

/// The host on which the papers measured the drive.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Processor time of a completion.
    #[serde(default)]
    pub completion_interrupt_ms: f64,
}

/// Whether a document or a drive gives a value, and which.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Whether one does.
    pub sourced: bool,
    /// Which, or how the value was derived or estimated.
    pub from: String,
}

/// A zone: neighbouring cylinders with equally long tracks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Its first LBN.
    pub first_lbn: u64,
    /// Its LBNs.
    pub lbns: u64,
    /// Its outermost cylinder.
    pub first_cylinder: u32,
    /// Its innermost cylinder.
    pub last_cylinder: u32,
    /// Sectors of a track.
    pub sectors_per_track: u32,
    /// Skew from a track to the next one of a cylinder.
    pub track_skew: u32,
    /// Skew from the last track of a cylinder to the first one of the next.
    pub cylinder_skew: u32,
    /// Sectors at its start that hold no LBN.
    #[serde(default)]
    pub reserved_at_front: u64,
    /// Sectors at its end that are spares.
    #[serde(default)]
    pub spares_at_end: u64,
    /// Defective sectors that are skipped: the first of them, from the start of the zone, and how
    /// many. Ascending.
    #[serde(default)]
    pub slips: Vec<(u64, u64)>,
}

impl Zone {
    /// Sectors of the zone on this many surfaces, those without an LBN included.
    #[must_use]
    pub fn sectors(&self, surfaces: u32) -> u64 {
        let cylinders = u64::from(self.last_cylinder - self.first_cylinder) + 1;
        cylinders * u64::from(surfaces) * u64::from(self.sectors_per_track)
    }
}

/// Why a description cannot be simulated; the text names the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDrive(pub String);

impl std::fmt::Display for BadDrive {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BadDrive {}

pub(in crate::device::sim) fn ensure(
    holds: bool,
    problem: impl FnOnce() -> String,
) -> Result<(), BadDrive> {
    if holds { Ok(()) } else { Err(BadDrive(problem())) }
}

impl DriveDescription {
    /// Whether the description is complete and consistent.
    ///
    /// # Errors
    /// [`BadDrive`] with the first value that is wrong: correct the file.
    pub fn check(&self) -> Result<(), BadDrive> {
        let schema = self.schema;
        ensure(schema == 1, || format!("schema is {schema}, and only 1 is known"))?;
        let sector = self.capacity.sector_bytes;
        ensure(sector.is_power_of_two() && (512..=4096).contains(&sector), || {
            format!("capacity.sector_bytes is {sector}, and must be 512, 1024, 2048 or 4096")
        })?;
        self.check_mechanics()?;
        self.check_seek()?;
        self.check_times()?;
        ensure(self.queue.depth > 0, || "queue.depth is 0, and must be at least 1".into())?;
        self.check_cache()?;
        ensure(!self.zones.is_empty(), || "there is no [[zone]]".into())?;
        let mut next = (0, 0);
        for (number, zone) in self.zones.iter().enumerate() {
            next = self.check_zone(zone, next).map_err(|BadDrive(problem)| {
                BadDrive(format!("zone {number} (counted from 0): {problem}"))
            })?;
        }
        let (mapped, lbns) = (self.capacity.mapped_lbns, self.capacity.lbns);
        ensure(next.0 == mapped, || {
            format!("capacity.mapped_lbns is {mapped}, but the zones hold {} LBNs", next.0)
        })?;
        ensure((1..=mapped).contains(&lbns), || {
            format!("capacity.lbns is {lbns}, and must be 1 to capacity.mapped_lbns, {mapped}")
        })
    }

    fn check_mechanics(&self) -> Result<(), BadDrive> {
        let Mechanics { rpm, surfaces, cylinders, .. } = self.mechanics;
        ensure((1.0..=1e6).contains(&rpm), || {
            format!("mechanics.rpm is {rpm}, and must be 1 to 1,000,000")
        })?;
        ensure((1..=1024).contains(&surfaces), || {
            format!("mechanics.surfaces is {surfaces}, and must be 1 to 1024")
        })?;
        ensure(cylinders > 0, || "mechanics.cylinders is 0".into())?;
        let Start { cylinder, surface, angle_at_time_zero: angle } = self.start;
        ensure(cylinder < cylinders && surface < surfaces, || {
            format!("start: there is no cylinder {cylinder} or no surface {surface}")
        })?;
        ensure((0.0..1.0).contains(&angle), || {
            format!("start.angle_at_time_zero is {angle}, and must be at least 0 and below 1")
        })
    }

    fn check_seek(&self) -> Result<(), BadDrive> {
        match &self.seek {
            SeekCurve::Points { points } => {
                ensure(points.len() >= 2, || "seek.points has fewer than two points".into())?;
                let ascends = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
                ensure(ascends && points[0].0 >= 1.0, || {
                    "seek.points: distances must begin at 1 or more, and ascend".into()
                })?;
                let times = points.iter().all(|(_, time)| is_time(*time));
                ensure(times, || "seek.points has a time that is negative or not a number".into())
            }
            SeekCurve::ThreePoint { single_ms, average_ms, full_ms } => {
                let ascends = 0.0 < *single_ms && single_ms <= average_ms && average_ms <= full_ms;
                ensure(ascends && is_time(*full_ms), || {
                    "seek: single_ms must be above 0, average_ms not below it, and full_ms not \
                     below that"
                        .into()
                })
            }
        }
    }

    fn check_times(&self) -> Result<(), BadDrive> {
        let Overheads {
            read_hit_after_read,
            read_hit_after_write,
            read_miss_after_read,
            read_miss_after_write,
            write_hit_after_read,
            write_hit_after_write,
            write_miss_after_read,
            write_miss_after_write,
            other,
        } = self.overhead_ms;
        let times = [
            ("mechanics.head_switch_ms", self.mechanics.head_switch_ms),
            ("mechanics.write_settle_ms", self.mechanics.write_settle_ms),
            ("bus.sector_ms", self.bus.sector_ms),
            ("queue.unmergeable_write_hold_ms", self.queue.unmergeable_write_hold_ms),
            ("host.completion_interrupt_ms", self.host.completion_interrupt_ms),
            ("overhead_ms.read_hit_after_read", read_hit_after_read),
            ("overhead_ms.read_hit_after_write", read_hit_after_write),
            ("overhead_ms.read_miss_after_read", read_miss_after_read),
            ("overhead_ms.read_miss_after_write", read_miss_after_write),
            ("overhead_ms.write_hit_after_read", write_hit_after_read),
            ("overhead_ms.write_hit_after_write", write_hit_after_write),
            ("overhead_ms.write_miss_after_read", write_miss_after_read),
            ("overhead_ms.write_miss_after_write", write_miss_after_write),
            ("overhead_ms.other", other),
        ];
        let bad = times.into_iter().find(|(_, time)| !is_time(*time));
        bad.map_or(Ok(()), |(key, time)| {
            Err(BadDrive(format!("{key} is {time}, and must be 0 to 60,000")))
        })
    }

    fn check_cache(&self) -> Result<(), BadDrive> {
        let Cache { segments, segment_sectors, write_segments_max, .. } = self.cache;
        let Cache { read_ahead_min_sectors, read_ahead_max_sectors, .. } = self.cache;
        let Cache { watermark_read, watermark_write, .. } = self.cache;
        ensure((1..=65_536).contains(&segments) && segment_sectors > 0, || {
            format!(
                "cache: {segments} segments of {segment_sectors} sectors, and there must be 1 to \
                 65,536 of 1 sector or more"
            )
        })?;
        ensure(write_segments_max <= segments, || {
            format!("cache.write_segments_max is {write_segments_max}, above cache.segments")
        })?;
        ensure(read_ahead_min_sectors <= read_ahead_max_sectors, || {
            format!("cache.read_ahead_min_sectors is {read_ahead_min_sectors}, above the most")
        })?;
        ensure(
            [watermark_read, watermark_write].iter().all(|part| (0.0..=1.0).contains(part)),
            || {
                format!(
                    "a watermark of the cache, {watermark_read} or {watermark_write}, is not 0 to 1"
                )
            },
        )
    }

    /// Checks a zone that must begin at this LBN, on this cylinder or further in; returns where
    /// the next one must begin.
    fn check_zone(&self, zone: &Zone, (lbn, cylinder): (u64, u32)) -> Result<(u64, u32), BadDrive> {
        ensure(zone.first_lbn == lbn, || {
            format!("first_lbn is {}, but the zones before it end at {lbn}", zone.first_lbn)
        })?;
        let (first, last) = (zone.first_cylinder, zone.last_cylinder);
        let inside = cylinder <= first && first <= last && last < self.mechanics.cylinders;
        ensure(inside, || {
            format!("cylinders {first} to {last} overlap the zone before it, or do not exist")
        })?;
        let per_track = zone.sectors_per_track;
        ensure(per_track > 0, || "sectors_per_track is 0".into())?;
        ensure(zone.track_skew < per_track && zone.cylinder_skew < per_track, || {
            format!("a skew is not below sectors_per_track, {per_track}")
        })?;
        let sectors = zone.sectors(self.mechanics.surfaces);
        let mut end = 0;
        for (at, count) in &zone.slips {
            ensure(end <= *at && *count > 0 && at + count <= sectors, || {
                format!("the slip at {at} overlaps the one before it, is empty or outside")
            })?;
            end = at + count;
        }
        let slipped: u64 = zone.slips.iter().map(|(_, count)| count).sum();
        let needed = zone.reserved_at_front.saturating_add(zone.lbns).saturating_add(slipped);
        ensure(zone.lbns > 0 && needed <= sectors, || {
            format!(
                "{} LBNs, {} reserved and {slipped} slipped sectors do not fit into {sectors}",
                zone.lbns, zone.reserved_at_front
            )
        })?;
        Ok((lbn + zone.lbns, last + 1))
    }
}

fn is_time(ms: f64) -> bool {
    (0.0..=60_000.0).contains(&ms)
}
