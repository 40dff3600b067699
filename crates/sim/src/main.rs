//! The simulator as a program: runs seeds in succession and reports those that failed.
//!
//! Standard output has one line per failed seed, with the command that replays it, and the verdict
//! `N passed, N failed` as its last line. Progress goes to standard error.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to people")]
#![expect(clippy::disallowed_methods, reason = "reports the duration of the runs to people")]

#[cfg(feature = "broken")]
mod breaking;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use upsweep_sim::history::{self, Outcome};
use upsweep_sim::world::Tally;

/// Runs the whole engine in virtual time: on hostile devices, compared with an oracle, and under
/// load, to measure how it keeps up.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of each history.
    #[arg(long, default_value_t = 2000)]
    steps: u64,
    /// How many consecutive seeds.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Stop after this many failed seeds.
    #[arg(long)]
    failures_max: Option<u64>,
    /// Run one of the two histories of each seed only.
    #[arg(long)]
    only: Option<Only>,
    /// Show a summary of every history.
    #[arg(long)]
    verbose: bool,
    #[cfg(feature = "broken")]
    #[command(flatten)]
    breaking: breaking::Breaking,
}

/// One of the histories of a seed.
#[derive(Clone, Copy, ValueEnum)]
enum Only {
    /// The one on hostile devices.
    Hostile,
    /// The one under load.
    Load,
}

/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "broken")]
    if !arguments.breaking.goes_on() {
        return ExitCode::SUCCESS;
    }
    history::catch_panics(arguments.verbose);
    let (mut passed, mut failed) = (0u64, 0u64);
    let mut tally = Tally::default();
    let started = Instant::now();
    let mut shown = started;
    for run in 0..arguments.runs {
        let seed = arguments.seed.wrapping_add(run);
        let outcome = match arguments.only {
            None => history::run(seed, arguments.steps),
            Some(Only::Hostile) => history::run_hostile(seed, arguments.steps),
            Some(Only::Load) => history::of_load(seed, history::run_load(seed)),
        };
        tally.add(&outcome.tally);
        if arguments.verbose {
            eprintln!("{outcome:?}");
        }
        match &outcome.failure {
            None => passed += 1,
            Some(reason) => {
                failed += 1;
                report(&outcome, reason, arguments.steps);
            }
        }
        if shown.elapsed() > PROGRESS_EVERY {
            shown = Instant::now();
            eprintln!("{passed} passed, {failed} failed so far");
        }
        if arguments.failures_max.is_some_and(|most| failed >= most) {
            break;
        }
    }
    let each_ms = started.elapsed().as_millis() as u64 / (passed + failed).max(1);
    eprintln!("{each_ms} ms per seed; {tally:?}");
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(outcome: &Outcome, reason: &str, steps: u64) {
    let seed = outcome.seed;
    println!(
        "seed {seed} failed: {reason}; replay: cargo run --release -p upsweep-sim -- --seed {seed} \
         --steps {steps}"
    );
}
