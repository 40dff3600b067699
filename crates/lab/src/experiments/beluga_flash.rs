//! Logging on a solid-state device of 2010: a synchronous write for each record, and Upsweep's log.

use upsweep::layers::device::{DeviceId, Simulated};
use upsweep::layers::log::LogMode;

use super::dense::{APPEND_NS, SEGMENT_BYTES, SUBMIT_NS};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::load::{Load, Seen};
use crate::systems::log::{Append, Host, Layout, UpsweepLog};
use crate::systems::loggers::{self, RawAppend};
use crate::systems::{Bench, banks};

const PAPER: &str = "beluga-table-6.9";
const DEVICE: &str = "jmf612-slc-64gb";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-table-6.9",
    title: "Logging on a solid-state device",
    method: "\
        Records of 512, 2,048 and 4,096 bytes are logged on one simulated 64 GB drive with a \
        JMicron JMF612 controller and SLC flash, its cache off, empty at first. The plain logger \
        writes each record with a synchronous write of its own, one after another. Upsweep's log, \
        the code of the product, is given one record at a time, and as many records as it takes in \
        batches of 32 and of 128 KB with two writes in flight: then fewer wait to be dispatched \
        than fill a batch. Its batches are whole pages of 4 KiB, and a record has 20 bytes of \
        header. The host is that of dense logging.",
    scaling: "\
        A quick run measures 2,000 records of the plain logger and of single ones of Upsweep, and \
        300 full batches; a full run 100,000 and 10,000. The paper has 1,000,000 records.",
    papers: &[PAPER],
    bindings: &[],
    run,
};

const RECORD_BYTES: [u64; 3] = [512, 2048, 4096];
const BATCH_KB: [u32; 2] = [32, 128];
/// Time that the plain logger spends between one write and the next.
const PROCESSOR_US: u64 = 20;
/// Bytes of the log's header of a record.
const HEADER_BYTES: u64 = 20;

/// How records are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Single,
    Full { batch_kb: u32 },
}

const WAYS: [Way; 4] = [
    Way::Plain,
    Way::Single,
    Way::Full { batch_kb: BATCH_KB[0] },
    Way::Full { batch_kb: BATCH_KB[1] },
];

impl Way {
    fn name(self) -> String {
        match self {
            Self::Plain => "a write for each record".into(),
            Self::Single => "Upsweep, one record at a time".into(),
            Self::Full { batch_kb } => format!("Upsweep, full batches of {batch_kb} KB"),
        }
    }

    fn measure(self, record_bytes: u64, scale: &Scale) -> Result<Seen, Problem> {
        let devices = banks::empty_solid_state(DEVICE, 1, scale.seed)?;
        let single = Load { callers: 1, warm_up: 100, measured: scale.pick(2000, 100_000) };
        let batch_kb = match self {
            Self::Plain => {
                let logger = RawAppend::new(512, bytes_of(&*devices));
                let append = || loggers::Append { bytes: record_bytes };
                return single.run(&mut Bench::new(logger, devices, PROCESSOR_US), append);
            }
            Self::Single => BATCH_KB[0],
            Self::Full { batch_kb } => batch_kb,
        };
        let layout = Layout {
            drives: 1,
            offset: 0,
            batch_bytes: batch_kb << 10,
            segment_bytes: SEGMENT_BYTES,
            depth: 2,
            mode: LogMode::Idle,
        };
        let host = Host { append_ns: APPEND_NS, submit_ns: SUBMIT_NS, jitter_ns: 0 };
        let never_late = (0, f64::INFINITY);
        let mut system = UpsweepLog::new(devices, layout, host, never_late, scale.seed)?;
        let append = || Append { bytes: record_bytes + HEADER_BYTES };
        if self == Self::Single {
            return single.run(&mut system, append);
        }
        let per_batch = layout.records_per_batch(record_bytes + HEADER_BYTES);
        let measured = scale.pick(300, 10_000) * per_batch;
        let load = Load { callers: 0, warm_up: 64 * per_batch, measured };
        load.run_while(&mut system, append, |system, _| system.waiting() < per_batch as usize)
    }
}

fn bytes_of(devices: &dyn Simulated) -> u64 {
    devices.geometry(DeviceId(0)).size_bytes
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let of_record = |bytes| WAYS.map(|way| (bytes, way));
    let cases: Vec<(u64, Way)> = RECORD_BYTES.into_iter().flat_map(of_record).collect();
    let seen = progress.each(&cases, |(bytes, way)| way.measure(*bytes, scale))?;
    let measured: Vec<(u64, Way, Seen)> =
        cases.iter().zip(seen).map(|((bytes, way), seen)| (*bytes, *way, seen)).collect();
    let mut outcome = Outcome::default();
    outcome.setup("device", "JMicron JMF612, 64 GB of Samsung SLC, cache off, empty at first");
    outcome.setup("processor time of the plain logger", format!("{PROCESSOR_US} us"));
    outcome.setup("processor time to append a record to Upsweep", format!("{APPEND_NS} ns"));
    if let [plain, single, _, full, ..] = measured.as_slice() {
        outcome.finding(format!(
            "Records of {} bytes: {} ms with a write for each, {} ms for one at a time in \
             Upsweep's log, where it takes a page. With as many as it takes, {} ms, but {} in a \
             second instead of {}.",
            plain.0,
            short(plain.2.service_ms),
            short(single.2.service_ms),
            short(full.2.latency_ms),
            short(full.2.per_second),
            short(plain.2.per_second),
        ));
    }
    outcome.tables.push(table(&measured));
    outcome.tables.push(ways(&measured));
    outcome.figures.push(figure(&measured));
    outcome.caveat(&[], FITTED);
    outcome.caveat(&["write limit per MLC cell, cited"], CELLS);
    Ok(outcome)
}

const FITTED: &str = "\
    How this device makes a write persistent is not known. The description of it has 0.92 ms for \
    that, which were chosen from this very table, so that the latency of plain writes says nothing \
    about the model but that its transfers and pages fit all three sizes. What Upsweep's log gains \
    by writing many records together follows from the same number.";
const CELLS: &str = "\
    The limit of a cell is cited by the dissertation, and nothing that a simulation without wear \
    could measure.";

fn table(measured: &[(u64, Way, Seen)]) -> Table {
    let row = |bytes: u64| {
        let of = |way: Way| {
            let found = measured.iter().find(|(of, one, _)| *of == bytes && *one == way);
            found.map_or(f64::NAN, |(.., seen)| seen.service_ms)
        };
        vec![(bytes as f64).into(), of(Way::Plain).into(), of(Way::Single).into()]
    };
    Table {
        name: "table".into(),
        title: "Latency of one record at a time".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("record [bytes]"),
            Column::published("latency [ms]"),
            Column::own("Upsweep's log [ms]"),
        ],
        rows: RECORD_BYTES.map(row).into(),
    }
}

fn ways(measured: &[(u64, Way, Seen)]) -> Table {
    let row = |(bytes, way, seen): &(u64, Way, Seen)| {
        let bytes_written = seen.traffic.bytes_written as f64 / seen.operations as f64;
        vec![
            (*bytes as f64).into(),
            way.name().as_str().into(),
            seen.latency_ms.into(),
            seen.per_second.into(),
            (seen.per_second * *bytes as f64 / 1e6).into(),
            bytes_written.into(),
        ]
    };
    Table {
        name: "ways".into(),
        title: "All ways of logging on it".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("record [bytes]"),
            Column::own("log"),
            Column::own("latency [ms]"),
            Column::own("throughput [ops/s]"),
            Column::own("payload [MB/s]"),
            Column::own("bytes written for a record"),
        ],
        rows: measured.iter().map(row).collect(),
    }
}

fn figure(measured: &[(u64, Way, Seen)]) -> Figure {
    let curve = |way: Way| {
        let of_it = measured.iter().filter(|(_, one, _)| *one == way);
        let points = of_it.map(|(bytes, _, seen)| (*bytes as f64, seen.latency_ms));
        Curve { name: way.name(), points: points.collect() }
    };
    Figure {
        name: "latency".into(),
        title: "Latency of a record on a solid-state device".into(),
        across: Axis::linear("record [bytes]"),
        up: Axis::linear("latency [ms]"),
        curves: WAYS.map(curve).into(),
        papers: vec![PaperPoints {
            name: "paper".into(),
            paper: PAPER.into(),
            across: "record [bytes]".into(),
            up: "latency [ms]".into(),
            only: None,
        }],
    }
}
