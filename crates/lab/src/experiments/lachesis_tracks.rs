//! Where the tracks of drives begin, found by timing reads, beside where they are.

use std::collections::BTreeSet;
use std::time::Duration;

use upsweep::layers::device::drive::Layout;
use upsweep::layers::device::{DeviceId, TrackSearch, read_alone};

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;

const GOALS: &str = "goals-tracks";
const EVERY: &str = "tracks found, Maxtor Atlas 10K III";
const ATLAS: &str = "atlas10k3";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-tracks",
    title: "Where the tracks of drives begin",
    method: "\
        The product's search for tracks reads single sectors of a simulated drive, one after \
        another, and knows only when each read was complete. The drive does everything that it \
        does, reading ahead included. What is found is compared with the layout of the drive. A \
        track counts as found if it begins and ends where it does in truth. The tables of Lachesis \
        say that the general method of its tool took 4 hours for a drive of 9 GB.",
    scaling: "\
        A quick run searches the first 2 GB of each drive, a full run the first 64 GB, which is \
        the whole of the older drives.",
    papers: &[GOALS],
    bindings: &[Binding::value(GOALS, EVERY, EVERY, Better::More)],
    run,
};

/// Bytes of a drive that are searched at most, in a quick run and in a full run.
const BYTES_MAX: (u64, u64) = (2 << 30, 64 << 30);

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
    let mut read = |offset: u64, bytes: u64| {
        read_alone(&mut *drive, DeviceId(0), offset, bytes as usize)?;
        Ok(Duration::from_micros(drive.now_us()))
    };
    while !search.round(&mut read).map_err(|error| wrong(error.to_string()))? {}
    let tracks = search.tracks().map_err(|error| wrong(error.to_string()))?;
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
    })
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
    if let Some((_, atlas)) = drives.iter().zip(&found).find(|(id, _)| **id == ATLAS) {
        outcome.value(EVERY, atlas.percent(), "%");
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
    outcome.caveat(&[], EXACT);
    Ok(outcome)
}

const EXACT: &str = "\
    Simulated drives turn evenly, and a read is complete when it says so, to a microsecond. On \
    real drives, requests of others and the times of the host disturb the search, which then \
    reads again, or says that no boundary was found.";
