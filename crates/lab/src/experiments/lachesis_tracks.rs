//! Where the tracks of drives begin, found by timing reads, beside where they are.

use std::collections::BTreeSet;
use std::time::Duration;

use upsweep::layers::device::drive::Layout;
use upsweep::layers::device::{
    DeviceId, Simulated, TRACKS_LOOKED_AT, TrackSearch, Tracks, TracksError,
};

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;

const GOALS: &str = "goals-tracks";
const PAPER: &str = "lachesis-implementation";
const MEMORY: &str = "memory of the tracks, Maxtor Atlas 10K III";
const EVERY: &str = "tracks found, Maxtor Atlas 10K III";
const ATLAS: &str = "atlas10k3";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-tracks",
    title: "Where the tracks of drives begin",
    method: "\
        The product's search for tracks reads single sectors of a simulated drive, one after \
        another, and knows only when each read was complete. The drive does everything that it \
        does, reading ahead included. What is found is compared with the layout of the drive. A \
        track counts as found if it begins and ends where it does in truth. Then the check that a \
        store makes when it opens is made 50 times on each drive, of other tracks each time: with \
        what was found, with all boundaries a sector later, and with what was found on the next \
        drive of the list. The last \
        row has a solid-state device with the tracks of the Maxtor. The tables of Lachesis say \
        that the general method of its tool took 4 hours for a drive of 9 GB, and what looking up \
        tracks took in memory; both are beside what we measured on a drive of that size.",
    scaling: "\
        A quick run searches the first 2 GB of each drive, a full run the first 64 GB, which is \
        the whole of the older drives.",
    papers: &[GOALS, PAPER],
    bindings: &[Binding::value(GOALS, EVERY, EVERY, Better::More)],
    run,
};

/// Bytes of a drive that are searched at most, in a quick run and in a full run.
const BYTES_MAX: (u64, u64) = (2 << 30, 64 << 30);
/// Checks of each kind.
const CHECKS: u64 = 50;
/// A solid-state device.
const SOLID_STATE: &str = "d7-p5500-8tb";
const SMALL: &str = "atlas10k";

struct Found {
    name: String,
    gigabytes: f64,
    tracks: u64,
    /// Tracks that were found as they are.
    right: u64,
    /// Tracks that were found and are none.
    wrong: u64,
    reads: u64,
    hours: f64,
    found: Tracks,
    sector_bytes: u64,
}

impl Found {
    fn percent(&self) -> f64 {
        100.0 * self.right as f64 / self.tracks as f64
    }
}

fn search(id: &str, scale: &Scale) -> Result<Found, Problem> {
    let mut drive =
        banks::part_of_full_drive(id, scale.pick(BYTES_MAX.0, BYTES_MAX.1), scale.seed)?;
    let geometry = drive.geometry(DeviceId(0));
    let wrong = |reason: String| Problem::Simulation(format!("the tracks of {id}: {reason}"));
    let mut search = TrackSearch::new(&geometry);
    let clock = drive.clock();
    let now = || Duration::from_micros(clock.now_us());
    let tracks: Result<Tracks, TracksError> =
        search.run_on(&mut *drive, DeviceId(0), now, |_| Ok(()));
    let tracks = tracks.map_err(|error| wrong(error.to_string()))?;
    let description = banks::description(id)?;
    let sector_bytes = u64::from(description.capacity.sector_bytes);
    let truth = boundaries(&Layout::new(&description), geometry.size_bytes / sector_bytes);
    let ends = tracks.starts().skip(1).chain([geometry.size_bytes]);
    let found: BTreeSet<(u64, u64)> = tracks
        .starts()
        .zip(ends)
        .map(|(start, end)| (start / sector_bytes, end / sector_bytes))
        .collect();
    let right = truth.intersection(&found).count() as u64;
    Ok(Found {
        name: description.name,
        gigabytes: geometry.size_bytes as f64 / 1e9,
        tracks: truth.len() as u64,
        right,
        wrong: found.len() as u64 - right,
        reads: search.reads(),
        hours: drive.now_us() as f64 / 3.6e9,
        found: tracks,
        sector_bytes,
    })
}

/// How checks of tracks end on a device: how many hold, the fewest and the most tracks that one
/// confirms, and the seconds that one takes.
struct Checks {
    held: u64,
    least: u64,
    most: u64,
    seconds: f64,
}

fn check(device: &mut dyn Simulated, tracks: &Tracks) -> Result<Checks, Problem> {
    let clock = device.clock();
    let now = || Duration::from_micros(clock.now_us());
    let mut checks = Checks { held: 0, least: u64::MAX, most: 0, seconds: 0.0 };
    let begun = now();
    for _ in 0..CHECKS {
        let check = tracks
            .check_on(device, DeviceId(0), TRACKS_LOOKED_AT, now)
            .map_err(|error| Problem::Simulation(format!("the check of tracks: {error}")))?;
        checks.held += u64::from(check.is_right());
        checks.least = checks.least.min(check.confirmed);
        checks.most = checks.most.max(check.confirmed);
    }
    checks.seconds = (now() - begun).as_secs_f64() / CHECKS as f64;
    Ok(checks)
}

/// These tracks, all but the first beginning so many bytes later, up to this end.
fn moved(tracks: &Tracks, later: u64, end: u64) -> Tracks {
    let inner = tracks.starts().skip(1).map(|start| start + later).filter(|start| *start < end);
    Tracks::between([0].into_iter().chain(inner).chain([end]), tracks.turn_ns)
}

/// What checks say of the tracks of each drive, of wrong ones, and of a device without any.
fn checks(drives: &[&str], all: &[Found], scale: &Scale) -> Result<Table, Problem> {
    let mut rows = Vec::new();
    for (place, found) in all.iter().enumerate() {
        let other = &all[(place + 1) % all.len()].found;
        let end = found.found.end();
        let on_drive = |tracks: &Tracks| {
            check(&mut *banks::part_of_full_drive(drives[place], end, scale.seed)?, tracks)
        };
        let right = on_drive(&found.found)?;
        let later = on_drive(&moved(&found.found, found.sector_bytes, end))?;
        let other = on_drive(&moved(other, 0, end))?;
        let mut row: Vec<Cell> = vec![found.name.as_str().into()];
        let numbers = [right.held, right.least, later.held, later.most, other.held, other.most];
        row.extend(numbers.map(|number| Cell::Number(number as f64)));
        row.push(Cell::Number(right.seconds));
        rows.push(row);
    }
    if let Some((_, found)) = drives.iter().zip(all).find(|(id, _)| **id == ATLAS) {
        let mut device = banks::solid_state(SOLID_STATE, 1, 50, found.found.end(), scale.seed)?;
        let Checks { held, most, seconds, .. } = check(&mut *device, &found.found)?;
        let mut row: Vec<Cell> = vec!["a solid-state device".into()];
        row.extend(["", "", "", ""].map(Cell::from));
        row.extend([held as f64, most as f64, seconds].map(Cell::Number));
        rows.push(row);
    }
    let columns = [
        "drive",
        "as found: hold",
        "fewest confirmed",
        "a sector later: hold",
        "most confirmed",
        "of another drive: hold",
        "most confirmed then",
        "time of a check [s]",
    ];
    Ok(Table {
        name: "checks".into(),
        title: format!("Checks that hold, of {CHECKS}, each of {TRACKS_LOOKED_AT} tracks"),
        paper: None,
        keys: 1,
        columns: columns.map(Column::own).into(),
        rows,
    })
}

/// What the paper says of its prototype, beside the same of ours.
fn beside_prototype(small: &Found, atlas: &Found) -> Table {
    let row = |what: &str, value: f64, unit: &str| vec![what.into(), value.into(), unit.into()];
    let kb = atlas.found.memory_bytes() as f64 / 1024.0;
    Table {
        name: "prototype".into(),
        title: "Beside the prototype of the paper".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: ["quantity", "value", "unit"].map(Column::published).into(),
        rows: vec![
            row("extent lookup structure, 36 GB disk", kb, "KB"),
            row("boundary extraction, general method, 9 GB disk", small.hours, "hours"),
        ],
    }
}

/// The tracks of the first sectors of a drive: first sector, and first one behind it.
fn boundaries(layout: &Layout, sectors: u64) -> BTreeSet<(u64, u64)> {
    let mut next = 0;
    let track = |sectors: u32| {
        let start = next;
        next += u64::from(sectors);
        (start, next)
    };
    let pieces = layout.pieces(0, sectors).into_iter();
    pieces.map(|piece| piece.sectors).map(track).collect()
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let drives: Vec<&str> = banks::ids().collect();
    let found = progress.each(&drives, |id| search(id, scale))?;
    let mut outcome = Outcome::default();
    outcome.setup("drives", "all that are described, with their buffers and queues");
    let of = |id: &str| drives.iter().position(|one| *one == id).map(|place| &found[place]);
    if let (Some(small), Some(atlas)) = (of(SMALL), of(ATLAS)) {
        outcome.value(EVERY, atlas.percent(), "%");
        outcome.value(MEMORY, atlas.found.memory_bytes() as f64, "bytes");
        outcome.tables.push(beside_prototype(small, atlas));
    }
    let row = |found: &Found| {
        let numbers = [
            found.gigabytes,
            found.tracks as f64,
            found.right as f64,
            found.wrong as f64,
            found.reads as f64 / found.tracks as f64,
            found.hours,
        ];
        let mut row: Vec<Cell> = vec![found.name.as_str().into()];
        row.extend(numbers.map(Cell::Number));
        row
    };
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Tracks by drive".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("drive"),
            Column::own("searched [GB]"),
            Column::own("tracks"),
            Column::own("found"),
            Column::own("found that are none"),
            Column::own("reads for a track"),
            Column::own("time of the drive [h]"),
        ],
        rows: found.iter().map(row).collect(),
    });
    outcome.tables.push(checks(&drives, &found, scale)?);
    outcome.caveat(&[], EXACT);
    Ok(outcome)
}

const EXACT: &str = "\
    Simulated drives turn evenly, and a read is complete when it says so, to a microsecond. On \
    real drives, requests of others and the times of the host disturb the search, which then \
    reads again, or says that no boundary was found.";
