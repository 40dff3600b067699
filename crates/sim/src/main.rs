//! The simulator as a program: runs consecutive seeds, several at a time, and reports those that
//! failed.
//!
//! Standard output has one line per failed seed, with the command that replays it, and the verdict
//! `N passed, N failed` as its last line. Progress goes to standard error.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to people")]
#![expect(clippy::disallowed_methods, reason = "reports the duration of the runs to people")]

#[cfg(feature = "broken")]
mod breaking;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
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
    /// How many seeds at a time; as many as there are processors by default.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Stop after this many failed seeds; those that have begun are finished.
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
    let started = Instant::now();
    let verdict = Mutex::new(Verdict::default());
    let next = AtomicU64::new(0);
    let run_the_rest = || {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= arguments.runs {
                break;
            }
            let outcome = arguments.run(arguments.seed.wrapping_add(run));
            let mut verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner);
            verdict.add(&outcome, &arguments, started);
            if arguments.failures_max.is_some_and(|most| verdict.failed >= most) {
                next.store(arguments.runs, Ordering::Relaxed);
            }
        }
    };
    let jobs = arguments.jobs.or_else(|| thread::available_parallelism().ok());
    thread::scope(|scope| {
        for _ in 0..jobs.map_or(1, NonZero::get) {
            scope.spawn(run_the_rest);
        }
    });
    let Verdict { passed, failed, tally, .. } =
        verdict.into_inner().unwrap_or_else(PoisonError::into_inner);
    let each_ms = started.elapsed().as_millis() as u64 / (passed + failed).max(1);
    eprintln!("{each_ms} ms per seed; {tally:?}");
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    fn run(&self, seed: u64) -> Outcome {
        match self.only {
            None => history::run(seed, self.steps),
            Some(Only::Hostile) => history::run_hostile(seed, self.steps),
            Some(Only::Load) => history::of_load(seed, history::run_load(seed)),
        }
    }
}

/// What the seeds so far have shown.
#[derive(Default)]
struct Verdict {
    passed: u64,
    failed: u64,
    tally: Tally,
    /// When progress was last shown, since the start.
    shown: Duration,
}

impl Verdict {
    fn add(&mut self, outcome: &Outcome, arguments: &Arguments, started: Instant) {
        self.tally.add(&outcome.tally);
        if arguments.verbose {
            eprintln!("{outcome:?}");
        }
        match &outcome.failure {
            None => self.passed += 1,
            Some(reason) => {
                self.failed += 1;
                report(outcome, reason, arguments.steps);
            }
        }
        if started.elapsed() > self.shown + PROGRESS_EVERY {
            self.shown = started.elapsed();
            eprintln!("{} passed, {} failed so far", self.passed, self.failed);
        }
    }
}

fn report(outcome: &Outcome, reason: &str, steps: u64) {
    let seed = outcome.seed;
    println!(
        "seed {seed} failed: {reason}; replay: cargo run --release -p upsweep-sim -- --seed {seed} \
         --steps {steps}"
    );
}
