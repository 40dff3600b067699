//! `upsweep-lab drive`: serves a trace on one simulated drive, and prints how the time of every
//! request passed.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;
use upsweep::layers::device::drive::{
    Command, Detail, Drive, DriveDescription, Operation, Scheduler, Served,
};

/// Serve a trace on a simulated drive
///
/// TRACE has a line `arrival_us,read|write,lbn,sectors` for each request; a line of these names may
/// come first. Prints a line `index,arrival_us,start_us,seek_us,rotation_us,transfer_us,
/// completion_us` for each request, in the order of the trace.
///
/// Rotation begins at time 0 at the angle, and the head on the cylinder and surface, that the
/// drive's file gives.
///
/// With --mode full, start_us is when the drive begins to process a request; its seek can be much
/// later. completion_us is when the host knows that it has ended. The rules are in
/// crates/lab/drives/README.md.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The drive: a file such as those in crates/lab/drives, whose README describes them
    #[arg(value_name = "DRIVE.toml")]
    drive: PathBuf,
    /// The requests
    #[arg(value_name = "TRACE.csv")]
    trace: PathBuf,
    /// What is simulated
    #[arg(long, value_enum, default_value_t = Mode::Overheads)]
    mode: Mode,
    /// Requests that the drive holds and chooses from; with --closed-loop, how many are under way
    #[arg(long, value_name = "N", default_value_t = 1)]
    queue: usize,
    /// How the drive chooses the next one
    #[arg(long, value_enum, default_value_t = Order::Fcfs)]
    scheduler: Order,
    /// Send a request when one has ended, whatever its arrival in the trace
    #[arg(long)]
    closed_loop: bool,
    /// Wait for the first sector of a request, even if the drive can begin with another
    #[arg(long)]
    no_zero_latency: bool,
}

/// What is simulated.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Seek, rotation and transfer from or to the media
    Mech,
    /// Also processing of commands, and the bus; without a cache
    Overheads,
    /// Also the cache with reading ahead and write-back, work on several requests at a time, writes
    /// that are held or merged, and the host's interrupts
    Full,
}

/// How the drive chooses the next request.
#[derive(Clone, Copy, ValueEnum)]
enum Order {
    /// First come, first served
    Fcfs,
    /// Shortest seek first
    Sstf,
    /// Shortest positioning first: seek and rotation
    Sptf,
    /// The next one upwards, then again from the lowest
    CLook,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Read,
    Write,
}

/// A line of a trace.
#[derive(Deserialize)]
struct Line(f64, Kind, u64, u64);

pub(crate) fn failure(path: &Path, problem: impl Display) -> String {
    format!("{}: {problem}", path.display())
}

/// Reads and checks the description of a drive.
pub(crate) fn description(path: &Path) -> Result<DriveDescription, String> {
    let text = fs::read_to_string(path).map_err(|error| failure(path, error))?;
    let drive: DriveDescription = toml::from_str(&text).map_err(|error| failure(path, error))?;
    drive.check().map_err(|error| failure(path, error))?;
    Ok(drive)
}

/// Reads a trace for a drive with this many LBNs.
pub(crate) fn trace(path: &Path, lbns: u64) -> Result<Vec<Command>, String> {
    let reader = csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_path(path);
    let mut reader = reader.map_err(|error| failure(path, error))?;
    let mut commands = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| failure(path, error))?;
        let number = record.position().map_or(0, csv::Position::line);
        if number == 1 && record.get(0) == Some("arrival_us") {
            continue;
        }
        let line = record.deserialize(None).map_err(|error| failure(path, error))?;
        let command = command(&line, lbns);
        commands.push(command.map_err(|bad| failure(path, format!("line {number}: {bad}")))?);
    }
    Ok(commands)
}

fn command(Line(arrival_us, kind, lbn, sectors): &Line, lbns: u64) -> Result<Command, String> {
    if !(0.0..=1e15).contains(arrival_us) {
        return Err(format!("arrival_us is {arrival_us}, and must be 0 to 10^15"));
    }
    let fits = lbn.checked_add(*sectors).is_some_and(|end| end <= lbns);
    if *sectors == 0 || !fits {
        return Err(format!("{sectors} sectors at LBN {lbn}: the drive has {lbns} LBNs"));
    }
    let operation = match kind {
        Kind::Read => Operation::Read,
        Kind::Write => Operation::Write,
    };
    Ok(Command { arrival_ms: arrival_us / 1e3, operation, lbn: *lbn, sectors: *sectors })
}

/// Runs the command, and prints to `output`.
pub(crate) fn run(arguments: &Arguments, output: &mut impl Write) -> Result<(), String> {
    if arguments.queue == 0 {
        return Err("--queue is 0, and must be at least 1".to_owned());
    }
    let description = description(&arguments.drive)?;
    let detail = match arguments.mode {
        Mode::Mech => Detail::Mechanics,
        Mode::Overheads => Detail::Overheads,
        Mode::Full => Detail::Full,
    };
    let mut drive = Drive::new(&description, detail);
    let scheduler = match arguments.scheduler {
        Order::Fcfs => Scheduler::Fcfs,
        Order::Sstf => Scheduler::Sstf,
        Order::Sptf => Scheduler::Sptf,
        Order::CLook => Scheduler::CLook,
    };
    drive.set_queue(arguments.queue, scheduler);
    if arguments.no_zero_latency {
        drive.without_zero_latency();
    }
    let mut commands = trace(&arguments.trace, drive.lbns())?;
    let served = if arguments.closed_loop {
        closed_loop(&mut drive, &mut commands, arguments.queue)
    } else {
        open_loop(&mut drive, &commands)
    };
    let printed = print(&commands, &served, output);
    printed.map_err(|error| format!("cannot write the results: {error}"))
}

/// Every command arrives at its time.
fn open_loop(drive: &mut Drive, commands: &[Command]) -> Vec<Served> {
    let mut all = vec![Served::default(); commands.len()];
    (0..).zip(commands).for_each(|(number, command)| drive.offer(number, *command));
    while let Some((number, served)) = drive.serve_next() {
        all[number as usize] = served;
    }
    all
}

/// The next command arrives when one completes, so that `queue` are under way. Sets their arrivals.
fn closed_loop(drive: &mut Drive, commands: &mut [Command], queue: usize) -> Vec<Served> {
    let mut all = vec![Served::default(); commands.len()];
    let (mut next, mut arrivals) = (0, vec![0.0; queue]);
    loop {
        for arrival_ms in arrivals.drain(..) {
            if let Some(command) = commands.get_mut(next) {
                command.arrival_ms = arrival_ms;
                drive.offer(next as u64, *command);
                next += 1;
            }
        }
        let Some((number, served)) = drive.serve_next() else { return all };
        arrivals.push(served.completion_ms);
        all[number as usize] = served;
    }
}

fn print(commands: &[Command], served: &[Served], output: &mut impl Write) -> io::Result<()> {
    let names = "index,arrival_us,start_us,seek_us,rotation_us,transfer_us,completion_us";
    let mut output = io::BufWriter::new(output);
    writeln!(output, "{names}")?;
    for (index, (command, served)) in commands.iter().zip(served).enumerate() {
        let Served { start_ms, seek_ms, rotation_ms, transfer_ms, completion_ms, .. } = served;
        let times =
            [command.arrival_ms, *start_ms, *seek_ms, *rotation_ms, *transfer_ms, *completion_ms];
        write!(output, "{index}")?;
        for time_ms in times {
            write!(output, ",{:.3}", time_ms * 1e3)?;
        }
        writeln!(output)?;
    }
    output.flush()
}
