//! `upsweep-lab solid-state`: serves a trace on one simulated solid-state device, and prints when
//! every request completed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use upsweep::layers::device::drive::{Command, Operation};
use upsweep::layers::device::solid_state::{Demand, SolidState, SolidStateDescription};

use crate::drive::{failure, trace};

/// Serve a trace on a simulated solid-state device
///
/// TRACE has a line `arrival_us,read|write,lbn,sectors` for each request; a line of these names may
/// come first. Prints a line `index,arrival_us,completion_us` for each request, in the order of the
/// trace.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The device: a file such as those in crates/lab/drives/solid-state, whose README describes
    /// them
    #[arg(value_name = "DEVICE.toml")]
    device: PathBuf,
    /// The requests
    #[arg(value_name = "TRACE.csv")]
    trace: PathBuf,
    /// With --closed-loop, how many requests are under way
    #[arg(long, value_name = "N", default_value_t = 1)]
    queue: usize,
    /// Send a request when one has ended, whatever its arrival in the trace
    #[arg(long)]
    closed_loop: bool,
    /// Let a write complete only when its data survives a power cut
    #[arg(long)]
    stable: bool,
}

/// Reads and checks the description of a device.
fn description(path: &Path) -> Result<SolidStateDescription, String> {
    let text = fs::read_to_string(path).map_err(|error| failure(path, error))?;
    let device: SolidStateDescription =
        toml::from_str(&text).map_err(|error| failure(path, error))?;
    device.check().map_err(|error| failure(path, error))?;
    Ok(device)
}

/// When a request arrived and completed, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Served {
    arrival_ns: u64,
    completion_ns: u64,
}

/// Runs the command, and prints to `output`.
pub(crate) fn run(arguments: &Arguments, output: &mut impl Write) -> Result<(), String> {
    if arguments.queue == 0 {
        return Err("--queue is 0, and must be at least 1".to_owned());
    }
    let description = description(&arguments.device)?;
    let sector_bytes = u64::from(description.capacity.logical_block_bytes);
    let commands = trace(&arguments.trace, description.capacity.bytes / sector_bytes)?;
    let demand = |command: &Command| {
        let (offset, bytes) = (command.lbn * sector_bytes, command.sectors * sector_bytes);
        match command.operation {
            Operation::Read => Demand::Read { offset, bytes },
            Operation::Write => Demand::Write { offset, bytes, stable: arguments.stable },
            Operation::StableWrite => Demand::Write { offset, bytes, stable: true },
            Operation::Flush => Demand::Flush,
        }
    };
    let mut requests: Vec<_> = (0..)
        .zip(&commands)
        .map(|(index, command)| ((command.arrival_ms * 1e6).round() as u64, index, demand(command)))
        .collect();
    if !arguments.closed_loop {
        requests.sort_by_key(|(arrival_ns, ..)| *arrival_ns);
    }
    let depth = arguments.closed_loop.then_some(arguments.queue);
    let served = serve(&mut SolidState::new(&description), &requests, depth);
    print(&served, output).map_err(|error| format!("cannot write the results: {error}"))
}

/// Sends requests at their times or, with a depth, so that as many are under way; returns them in
/// the order of their numbers.
fn serve(
    device: &mut SolidState,
    requests: &[(u64, u64, Demand)],
    depth: Option<usize>,
) -> Vec<Served> {
    let mut all = vec![Served::default(); requests.len()];
    let (mut now_ns, mut completed, mut left) = (0, Vec::new(), requests.len());
    let mut arrivals = depth.unwrap_or(requests.len());
    let mut requests = requests.iter();
    while left > 0 {
        for (arrival_ns, number, demand) in requests.by_ref().take(arrivals) {
            let arrival_ns = if depth.is_some() { now_ns } else { *arrival_ns };
            all[*number as usize].arrival_ns = arrival_ns;
            device.arrive(*number, *demand, arrival_ns);
        }
        while completed.is_empty()
            && let Some(next_ns) = device.next_ns()
        {
            now_ns = next_ns;
            device.advance(now_ns, &mut completed);
        }
        arrivals = completed.len();
        left -= arrivals;
        for (number, completion_ns) in completed.drain(..) {
            all[number as usize].completion_ns = completion_ns;
        }
    }
    all
}

fn print(served: &[Served], output: &mut impl Write) -> io::Result<()> {
    let mut output = io::BufWriter::new(output);
    writeln!(output, "index,arrival_us,completion_us")?;
    for (index, Served { arrival_ns, completion_ns }) in served.iter().enumerate() {
        let [arrival_us, completion_us] = [arrival_ns, completion_ns].map(|ns| *ns as f64 / 1e3);
        writeln!(output, "{index},{arrival_us:.3},{completion_us:.3}")?;
    }
    output.flush()
}
