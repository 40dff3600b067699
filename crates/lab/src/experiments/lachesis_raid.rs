//! Scans of an array whose strips are tracks, or not.

use upsweep::layers::device::drive::Layout;
use upsweep::layers::device::{Effort, Parallelism, Profile, Simulated, Stripes};

use super::lachesis_compound::{
    Arm, DRIVE, IN_ORDER, MEAN, OUTSTANDING, PATTERNS, Pattern, TRAFFIC, Table as Pages,
    improvement, latency,
};
use crate::claims::Binding;
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::profile;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::load::SeenBeside;
use crate::systems::plan::ReadAhead;
use crate::systems::raid::{Raid, Striping};

const PAPER: &str = "lachesis-fig-6-raid5";
const BINDINGS: &[Binding] = &[];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-fig-6",
    title: "Scans of an array whose strips are tracks",
    method: "\
        The product's engine with a table in pages of 8 KB on RAID 5 of four simulated Maxtor \
        Atlas 10K III, in full detail, and its log on a fifth one. The array lies in the zone of \
        these drives whose tracks have 584 sectors, and begins with a track. Strips are of 256 \
        KB in the base array, and of 584 sectors in ours. Both stores know the strips and the \
        drives, as the product's search finds them: no image straddles a strip, and a request of \
        a scan is a strip. The paper has two requests outstanding; the product chooses more for \
        an array. Patterns, random reads beside them and the order in which drives serve \
        requests are those of lachesis-fig-5. The paper has no random reads here.",
    scaling: "\
        A full run has a table of 4 GB, of which a query reads 192 MB, or 1,536 random pages; a \
        quick run 1 GB and 24 MB.",
    papers: &[PAPER],
    bindings: BINDINGS,
    run,
};

const MEMBERS: u16 = 4;
const TRACK_SECTORS: u32 = 584;
const BASE_BYTES: u64 = 256 << 10;
/// Bytes of the array that are used: less than the zone has.
const USED_BYTES: u64 = 4500 << 20;

/// Where the zone begins whose tracks have so many sectors, in bytes.
fn zone_offset(sectors: u32) -> Result<(u64, u64), Problem> {
    let description = banks::description(DRIVE)?;
    let sector_bytes = u64::from(description.capacity.sector_bytes);
    let layout = Layout::new(&description);
    let mut before = 0;
    for piece in layout.pieces(0, layout.lbns()) {
        if piece.sectors == sectors {
            return Ok((before * sector_bytes, u64::from(sectors) * sector_bytes));
        }
        before += u64::from(piece.sectors);
    }
    Err(Problem::Data(format!("{DRIVE} has no tracks of {sectors} sectors")))
}

/// An array with strips of so many bytes.
#[derive(Clone, Copy, Debug)]
struct Array {
    strip_bytes: u64,
    drive_offset: u64,
}

impl Array {
    fn bank(self, scale: &Scale) -> Result<Box<dyn Simulated>, Problem> {
        let drives = banks::full_drives(DRIVE, MEMBERS + 1, Some(IN_ORDER), scale.seed)?;
        let Self { strip_bytes, drive_offset } = self;
        let used_bytes = USED_BYTES - USED_BYTES % 4096;
        let striping = Striping {
            drives: MEMBERS,
            parity: true,
            strip_bytes,
            drive_offset,
            used_bytes,
            one_by_one: false,
        };
        Ok(Box::new(Raid::new(drives, striping)))
    }

    /// Its profile, with the strips.
    fn profile(self, scale: &Scale) -> Result<Profile, Problem> {
        let (unit_bytes, ways) = (self.strip_bytes, u64::from(MEMBERS));
        let stripes = Some(Stripes { unit_bytes, ways, confidence: 1.0 });
        let parallelism = Some(Parallelism { stripes, ..Parallelism::default() });
        Ok(Profile { parallelism, ..profile::measured_of(self.bank(scale)?, Effort::Short)? })
    }
}

/// By pattern, and then by traffic.
type Seen = Vec<Vec<SeenBeside>>;

fn measure(
    array: Array,
    requests_in_flight: Option<usize>,
    scale: &Scale,
) -> Result<(Seen, String), Problem> {
    let pages = Pages::of(scale.pick(1 << 30, 4 << 30));
    let bytes = scale.pick(24 << 20, 192 << 20);
    let known = array.profile(scale)?;
    let read_ahead = ReadAhead { requests_in_flight, ..ReadAhead::CHOSEN };
    let mut store = pages.store(array.bank(scale)?, Arm { profile: Some(&known), read_ahead })?;
    let mut seen = Vec::new();
    for (pattern, _) in Pattern::ALL {
        let of =
            |(_, rate): &(&str, f64)| pages.measure(&mut store, (pattern, bytes), *rate, scale);
        seen.push(TRAFFIC.iter().map(of).collect::<Result<Vec<_>, Problem>>()?);
    }
    Ok((seen, store.scan_requests()))
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let (drive_offset, track_bytes) = zone_offset(TRACK_SECTORS)?;
    let arrays = [BASE_BYTES, track_bytes].map(|strip_bytes| Array { strip_bytes, drive_offset });
    let requests = [Some(OUTSTANDING), None];
    let cases = requests.into_iter().flat_map(|requests| arrays.map(|array| (array, requests)));
    let cases: Vec<_> = cases.collect();
    let found = progress.each(&cases, |(array, requests)| measure(*array, *requests, scale))?;
    let mut outcome = Outcome::default();
    outcome.setup("array", "four Maxtor Atlas 10K III, RAID 5, in the zone of 584 sectors a track");
    for (what, place) in [("as in the paper", 0), ("as chosen", 2)] {
        for (array, at) in [("base", place), ("ours", place + 1)] {
            outcome.setup(&format!("requests of scans, {array}, {what}"), found[at].1.as_str());
        }
    }
    outcome.tables.push(beside_paper(&found[0].0, &found[1].0));
    for (name, place, requests) in
        [("outstanding", 0, "two in flight, as in the paper"), ("chosen", 2, "as chosen")]
    {
        let title = format!("Times of queries, requests of scans {requests}");
        outcome.tables.push(times(name, title, &found[place].0, &found[place + 1].0));
    }
    outcome.caveat(&[], PATTERNS);
    Ok(outcome)
}

/// The improvement and the speed-up of queries under one traffic.
fn gains(base: &Seen, ours: &Seen, traffic: usize) -> Vec<(f64, f64)> {
    let both = base.iter().zip(ours);
    let times = both.map(|(base, ours)| (base[traffic].seconds, ours[traffic].seconds));
    times.map(|(base, ours)| (improvement(base, ours), base / ours)).collect()
}

/// Without random reads, as in the paper.
fn beside_paper(base: &Seen, ours: &Seen) -> Table {
    let gains = gains(base, ours, 0);
    let row = |(query, (percent, times)): (&str, (f64, f64))| {
        vec![query.into(), Cell::Number(percent), Cell::Number(times)]
    };
    let of_improvements = Pattern::mean_of_queries(gains.iter().map(|of| of.0));
    let average = (of_improvements, Pattern::mean_of_queries(gains.iter().map(|of| of.1)));
    let names = Pattern::ALL.into_iter().map(|(_, name)| name).chain([MEAN]);
    Table {
        name: "table".into(),
        title: "Improvement by strips that are tracks, no traffic, two requests in flight".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: ["queries", "improvement [%]", "speed-up [x]"].map(Column::published).into(),
        rows: names.zip(gains.into_iter().chain([average])).map(row).collect(),
    }
}

fn times(name: &str, title: String, base: &Seen, ours: &Seen) -> Table {
    let mut rows = Vec::new();
    for (traffic, (scenario, _)) in TRAFFIC.into_iter().enumerate() {
        for (pattern, (_, query)) in Pattern::ALL.into_iter().enumerate() {
            let [base, ours] = [base, ours].map(|seen| &seen[pattern][traffic]);
            let numbers = [base.seconds, ours.seconds, base.seconds / ours.seconds];
            let [base, ours] = [base, ours].map(|seen| &seen.last);
            let latencies = [base.mean_ms(), ours.mean_ms(), base.p99_ms(), ours.p99_ms()];
            let row: Vec<Cell> = vec![scenario.into(), query.into()];
            let row = row.into_iter().chain(numbers.map(Cell::Number));
            rows.push(row.chain(latencies.map(latency)).collect());
        }
    }
    let columns = [
        "scenario",
        "query",
        "base [s]",
        "ours [s]",
        "speed-up [x]",
        "random reads, mean, base [ms]",
        "random reads, mean, ours [ms]",
        "random reads, p99, base [ms]",
        "random reads, p99, ours [ms]",
    ];
    Table {
        name: name.into(),
        title,
        paper: None,
        keys: 2,
        columns: columns.map(Column::own).into(),
        rows,
    }
}
