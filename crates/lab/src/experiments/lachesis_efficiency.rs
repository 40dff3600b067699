//! How efficient a drive is with requests of a size, at the boundaries of tracks and anywhere.

use upsweep::layers::device::drive::{DriveDescription, Layout, SeekCurve};
use upsweep_sim::random::Random;

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::bare::{BarePages, PageAccess};
use crate::systems::load::Load;
use crate::systems::{Bench, banks};

const PAPER: &str = "lachesis-fig-3-efficiency";
const DRIVE: &str = "atlas10k3";
const LARGER: &str = "unaligned I/O must be this much larger to equal one aligned track";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-fig-3",
    title: "Efficiency of requests at the boundaries of tracks",
    method: "\
        Reads of one size at random places of the first zone of a simulated Maxtor Atlas 10K III, \
        two in flight. Aligned reads begin at the first sector of a track, the others at any \
        sector. The drive is simulated in full, with its queue, its buffer and reading ahead. \
        Efficiency is the part of the time in which sectors that are asked for pass under the \
        head. The maximum is that of reading track after track. Two times of the drive are in the \
        paper, and differ from those of the model: a mean seek of 2.2 ms in this zone (section \
        3.2), which is 1.1 ms by the seek curve of the model, that follows from the datasheet; and \
        a head switch of 0.6 ms (Table 1), of which the model takes 0.4 ms for the settling of a \
        write. The reads are measured twice: with the times of the paper, its mean seek as a line \
        through the seek over one cylinder of the model, and with those of the model. The first is \
        compared with the paper. What else the paper leaves open is varied one at a time.",
    scaling: "A quick run makes 400 reads of each size, a full run 4,000.",
    papers: &[PAPER],
    bindings: &[Binding::value(PAPER, LARGER, LARGER, Better::Neither)],
    run,
};

/// Efficiency by size, in tracks.
type Points = [(f64, f64)];

/// Sizes of reads, in eighths of a track.
const EIGHTHS: [u64; 34] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 17, 20, 22, 23, 24, 25, 28, 31, 32, 33, 36, 39,
    40, 41, 44, 47, 48, 49, 56, 57,
];
/// Those of a track.
const TRACK: u64 = 8;
/// Sizes between which reads at any sector become as efficient as an aligned one of one track,
/// whatever is open.
const CROSSING: [u64; 6] = [12, 16, 24, 28, 32, 40];
/// Reads in flight, of the paper's replays (section 5.2).
const IN_FLIGHT: usize = 2;
/// How many times the size of point A is that of point B.
const POINT_B: f64 = 4.0;

/// Mean seek in the first zone, in milliseconds, as the paper measured it (section 3.2).
const ZONE_SEEK_MS: f64 = 2.2;
/// Time of a head switch, in milliseconds (Table 1).
const HEAD_SWITCH_MS: f64 = 0.6;

/// Where reads begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    AtTracks,
    Anywhere,
    /// Where the last one ended.
    Behind,
}

/// The first zone of a drive, whose tracks all have so many sectors.
#[derive(Clone)]
struct Zone {
    drive: DriveDescription,
    track_sectors: u64,
    tracks: u64,
    in_flight: usize,
}

impl Zone {
    fn first(drive: DriveDescription) -> Self {
        let layout = Layout::new(&drive);
        let pieces = layout.pieces(0, layout.lbns()).into_iter();
        let mut lengths = pieces.map(|piece| u64::from(piece.sectors)).peekable();
        let track_sectors = lengths.peek().copied().unwrap_or(1);
        let tracks = lengths.take_while(|sectors| *sectors == track_sectors).count() as u64;
        Self { drive, track_sectors, tracks, in_flight: IN_FLIGHT }
    }

    /// The same zone with the times that the paper gives: of a head switch, and of a mean seek.
    fn with_times_of_the_paper(mut self) -> Self {
        let mechanics = &mut self.drive.mechanics;
        (mechanics.head_switch_ms, mechanics.write_settle_ms) = (HEAD_SWITCH_MS, 0.0);
        let cylinders = self.tracks as f64 / f64::from(mechanics.surfaces);
        let one_ms = self.drive.seek.time_ms(1, self.drive.mechanics.cylinders);
        // The mean distance of two different ones of so many cylinders.
        let points = vec![(1.0, one_ms), ((cylinders + 1.0) / 3.0, ZONE_SEEK_MS)];
        self.drive.seek = SeekCurve::Points { points };
        self
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.drive.capacity.sector_bytes)
    }

    fn sectors(&self, eighths: u64) -> u64 {
        self.track_sectors * eighths / TRACK
    }

    /// The efficiency of reads of so many sectors.
    fn efficiency(&self, start: Start, sectors: u64, scale: &Scale) -> Result<f64, Problem> {
        let zone_sectors = self.tracks * self.track_sectors;
        let bytes = zone_sectors * self.sector_bytes();
        let drive = banks::full_drive(&self.drive, bytes, scale.seed);
        let mut system = Bench::new(BarePages::new(sectors * self.sector_bytes()), drive, 0);
        let mut random = Random::new(scale.seed, "places");
        let places = zone_sectors - sectors + 1;
        let mut next = 0;
        let read = || {
            let sector = match start {
                Start::AtTracks => {
                    random.below(places.div_ceil(self.track_sectors)) * self.track_sectors
                }
                Start::Anywhere => random.below(places),
                Start::Behind => next % places,
            };
            next = sector + sectors;
            PageAccess::Read(sector * self.sector_bytes())
        };
        let load = Load { callers: self.in_flight, warm_up: 20, measured: scale.pick(400, 4000) };
        let seen = load.run(&mut system, read)?;
        let seconds = sectors as f64 / self.track_sectors as f64 * 60.0 / self.drive.mechanics.rpm;
        Ok(seen.per_second * seconds)
    }
}

/// The size at which these points reach an efficiency, on a straight line between two of them.
fn tracks_for(efficiency: f64, points: &Points) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let [(from, below), (to, above)] = [pair[0], pair[1]];
        let is_between = below <= efficiency && efficiency < above;
        is_between.then(|| from + (to - from) * (efficiency - below) / (above - below))
    })
}

/// What was measured of a zone: efficiency by size, in tracks.
struct Measured {
    aligned: Vec<(f64, f64)>,
    anywhere: Vec<(f64, f64)>,
    /// Of reading track after track.
    maximum: f64,
}

impl Measured {
    fn of(zone: &Zone, scale: &Scale, progress: &Progress) -> Result<Self, Problem> {
        let sizes = EIGHTHS.map(|eighths| zone.sectors(eighths));
        let mut cases = vec![(Start::Behind, zone.track_sectors)];
        cases.extend(sizes.map(|sectors| (Start::AtTracks, sectors)));
        cases.extend(sizes.map(|sectors| (Start::Anywhere, sectors)));
        let found =
            progress.each(&cases, |(start, sectors)| zone.efficiency(*start, *sectors, scale))?;
        let tracks = sizes.map(|sectors| sectors as f64 / zone.track_sectors as f64);
        let (aligned, anywhere) = found[1..].split_at(sizes.len());
        let points = |found: &[f64]| tracks.into_iter().zip(found.iter().copied()).collect();
        Ok(Self { aligned: points(aligned), anywhere: points(anywhere), maximum: found[0] })
    }

    /// The size, in tracks, at which a read at any sector is as efficient as an aligned one of one
    /// track.
    fn larger(&self) -> Option<f64> {
        tracks_for(at(1.0, &self.aligned), &self.anywhere)
    }
}

/// The efficiency with so many tracks.
fn at(tracks: f64, points: &Points) -> f64 {
    points.iter().find(|point| point.0 == tracks).map_or(0.0, |point| point.1)
}

/// Something that the paper does not say, and the drive could do otherwise.
struct Open {
    name: &'static str,
    /// Changes the zone with the times of the paper; the second is that with those of the model.
    change: fn(&mut Zone, &Zone),
    /// Whether it changes only reads at any sector.
    is_anywhere_only: bool,
}

const OPEN: [Open; 4] = [
    Open { name: "as the paper states", change: |_, _| {}, is_anywhere_only: false },
    Open {
        name: "a head switch for a read takes 0.2 ms, as in the model",
        change: |zone, own| zone.drive.mechanics = own.drive.mechanics.clone(),
        is_anywhere_only: false,
    },
    Open {
        name: "only reads of whole tracks begin in the middle",
        change: |zone, _| zone.drive.mechanics.zero_latency_read = false,
        is_anywhere_only: true,
    },
    Open {
        name: "one read in flight",
        change: |zone, _| zone.in_flight = 1,
        is_anywhere_only: false,
    },
];

/// What each that is open would do: the efficiency of an aligned track, that at point B, and the
/// size at which reads at any sector are as efficient as the former.
fn what_is_open(
    zone: &Zone,
    own: &Zone,
    scale: &Scale,
    progress: &Progress,
) -> Result<Table, Problem> {
    let rows = progress.each(&OPEN, |open| {
        let mut changed = zone.clone();
        (open.change)(&mut changed, own);
        let of_aligned = if open.is_anywhere_only { zone } else { &changed };
        let aligned = of_aligned.efficiency(Start::AtTracks, zone.track_sectors, scale)?;
        let anywhere = CROSSING.map(|eighths| {
            let found = changed.efficiency(Start::Anywhere, zone.sectors(eighths), scale)?;
            Ok((eighths as f64 / TRACK as f64, found))
        });
        let anywhere = anywhere.into_iter().collect::<Result<Vec<_>, Problem>>()?;
        let larger = tracks_for(aligned, &anywhere).map_or("none".into(), Cell::Number);
        let at_b = Cell::Number(at(POINT_B, &anywhere));
        Ok(vec![open.name.into(), Cell::Number(aligned), at_b, larger])
    })?;
    let columns = [
        "the drive",
        "A: one aligned track",
        "B: unaligned, 4x larger",
        "as efficient as A [tracks]",
    ];
    Ok(Table {
        name: "open".into(),
        title: "What the paper leaves open".into(),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows,
    })
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let own = Zone::first(banks::description(DRIVE)?);
    let stated = own.clone().with_times_of_the_paper();
    let of_own = Measured::of(&own, scale, progress)?;
    let of_stated = Measured::of(&stated, scale, progress)?;
    let mut outcome = Outcome::default();
    outcome.setup("drive", "Maxtor Atlas 10K III, with its buffer and queue");
    outcome.setup("sectors of a track", short(own.track_sectors as f64));
    outcome.setup("reads in flight", short(IN_FLIGHT as f64));
    if let Some(tracks) = of_stated.larger() {
        outcome.value(LARGER, tracks, "x");
    }
    let kinds = [("of the paper", &of_stated), ("of the model", &of_own)];
    for (kind, measured) in kinds {
        if let Some(tracks) = measured.larger() {
            outcome.finding(format!(
                "With the times {kind}, an aligned read of one track has an efficiency of {}, \
                 and a read at any sector is as efficient once it has {} tracks.",
                short(at(1.0, &measured.aligned)),
                short(tracks)
            ));
        }
    }
    outcome.tables.push(marked_points(&of_stated));
    outcome.tables.push(what_is_open(&stated, &own, scale, progress)?);
    outcome.tables.push(all_sizes(&own, &of_stated, &of_own));
    for (name, (kind, measured)) in ["efficiency", "model"].into_iter().zip(kinds) {
        outcome.figures.push(figure(name, kind, &own, measured));
    }
    outcome.caveat(&[LARGER], FLAT);
    outcome.caveat(&[], ESTIMATES);
    Ok(outcome)
}

const FLAT: &str = "\
    The curve of reads at any sector is flat where it reaches the efficiency of an aligned track: \
    with four tracks (point B) it is within a few per cent of the paper's, which is a large part \
    of the size. The table of what the paper leaves open shows how much the size moves. Four \
    tracks do not follow from the other figures of the paper: with its mean seek of 2.2 ms and its \
    streaming efficiency of 0.89, which is a loss of 0.74 ms a track, an efficiency of 0.73 with \
    four tracks leaves 3.7 ms of rotational latency for a read, more than the half turn (3 ms) of \
    a drive that always waits for the first sector. Such a drive needs 3.6 tracks.";
const ESTIMATES: &str = "\
    How many zones this drive has, its skews and its seek over one cylinder are estimates.";

fn marked_points(measured: &Measured) -> Table {
    let row = |name: &str, efficiency: f64| {
        let share = 100.0 * efficiency / measured.maximum;
        vec![name.into(), Cell::Number(efficiency), Cell::Number(share)]
    };
    Table {
        name: "points".into(),
        title: "The two points that the paper marks".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: ["point", "efficiency", "share of the streaming maximum [%]"]
            .map(Column::published)
            .into(),
        rows: vec![
            row("A: one aligned track", at(1.0, &measured.aligned)),
            row("B: unaligned, 4x larger", at(POINT_B, &measured.anywhere)),
        ],
    }
}

/// Kilobytes of so many tracks.
fn kb(zone: &Zone, tracks: f64) -> f64 {
    tracks * (zone.track_sectors * zone.sector_bytes()) as f64 / 1024.0
}

fn all_sizes(zone: &Zone, stated: &Measured, own: &Measured) -> Table {
    let columns = [
        "size [tracks]",
        "size [KB]",
        "at a track",
        "anywhere",
        "at a track, times of the model",
        "anywhere, times of the model",
    ];
    let rows = stated.aligned.iter().enumerate().map(|(place, (tracks, aligned))| {
        let others = [&stated.anywhere, &own.aligned, &own.anywhere];
        let mut row = vec![*tracks, kb(zone, *tracks), *aligned];
        row.extend(others.map(|points| points[place].1));
        row.into_iter().map(Cell::Number).collect()
    });
    Table {
        name: "table".into(),
        title: "Efficiency by the size of reads".into(),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows: rows.collect(),
    }
}

fn figure(name: &str, kind: &str, zone: &Zone, measured: &Measured) -> Figure {
    let curve = |name: &str, points: &Points| Curve {
        name: name.into(),
        points: points.iter().map(|(tracks, found)| (kb(zone, *tracks), *found)).collect(),
    };
    let ends = [&measured.aligned[0], &measured.aligned[measured.aligned.len() - 1]];
    let line = ends.map(|(tracks, _)| (*tracks, measured.maximum));
    Figure {
        name: name.into(),
        title: format!("Efficiency of random reads, with the times {kind}"),
        across: Axis::linear("size of a read [KB]"),
        up: Axis::linear("efficiency"),
        curves: vec![
            curve("at the first sector of a track", &measured.aligned),
            curve("at any sector", &measured.anywhere),
            curve("track after track", &line),
        ],
        papers: Vec::new(),
    }
}
