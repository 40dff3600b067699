//! Continuous data protection by volumes.

use upsweep_sim::random::Random;

use super::indexes::{DATA_DISKS, ORDERING, PROCESSOR_US};
use crate::experiment::{Experiment, Scale};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::versions::{Clients, Keeping, Lasting, Setup, Versions, Written};

const DRIVE: &str = "dtla307030";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mariner",
    title: "Continuous data protection by volumes",
    method: "",
    scaling: "",
    papers: &[],
    bindings: &[],
    run,
};

const MEMORY_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 256 << 20;
const VERSIONS: u64 = (20 << 30) / 4096;
const BLOCKS: u64 = 1 << 20;
const SHRUNK: u64 = 32;
const UNDER_WAY: usize = 64;
const KEEPINGS: [Keeping; 3] = [Keeping::Payload, Keeping::Present, Keeping::History];

fn measure(
    keeping: Keeping,
    all: &[Clients],
    scale: &Scale,
) -> Result<Vec<Written>, Problem> {
    let shrunk = scale.pick(SHRUNK, 1);
    let memory: u64 = std::env::var("MEM").ok().and_then(|m| m.parse().ok()).unwrap_or(MEMORY_BYTES >> 20);
    let setup = Setup {
        memory_bytes: memory << 20,
        data_devices: DATA_DISKS,
        blocks: BLOCKS / shrunk,
        processor_us: PROCESSOR_US,
    };
    let drives = banks::drives_and_log(DRIVE, DATA_DISKS, LOG_BYTES, Some(ORDERING), scale.seed)?;
    let mut versions = Versions::create(keeping, setup, drives)?;
    let mut random = Random::new(scale.seed, "blocks");
    let fill = Clients { count: 1024, interval_us: 0 };
    let t = std::time::Instant::now();
    let w = versions.write(fill, Lasting { versions: VERSIONS / shrunk, us: 0 }, || random.below(setup.blocks))?;
    eprintln!("{keeping:?} fill {w:?} host {:?}", t.elapsed());
    versions.note();
    let lasting = Lasting { versions: 0, us: scale.pick(5, 30) * 1_000_000 };
    let mut found = Vec::new();
    for clients in all {
        let w = versions.write(*clients, lasting, || random.below(setup.blocks))?;
        eprintln!("{keeping:?} {clients:?} {w:?} host {:?}", t.elapsed());
        found.push(w);
    }
    let blocks: Vec<u64> = (0..100).map(|_| random.below(setup.blocks)).collect();
    versions.check(&blocks)?;
    Ok(found)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let clients = |(count, interval_us)| Clients { count, interval_us };
    let all = [(1024, 0), (256, 0), (UNDER_WAY, 0), (UNDER_WAY, 200), (UNDER_WAY, 1000), (UNDER_WAY, 5000), (16, 0), (1, 0)].map(clients);
    progress.each(&KEEPINGS, |keeping| measure(*keeping, &all, scale))?;
    Ok(Outcome::default())
}
