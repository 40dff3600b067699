//! The laboratory as a program: simulated drives on their own, and the experiments of the papers.
//!
//! An experiment (`experiment.rs`, `experiments/`) drives systems (`systems/`) in virtual time and
//! returns an outcome (`outcome.rs`). What is published of it is data (`papers.rs`), and one
//! function judges every claim (`claims.rs`). A run becomes a record in files (`run.rs`,
//! `record.rs`), text (`text.rs`), figures (`plot.rs`) and a page (`report.rs`).

mod beside;
mod claims;
mod drive;
mod experiment;
mod experiments;
mod numbers;
mod outcome;
mod papers;
mod plot;
mod problem;
mod profile;
mod progress;
mod record;
mod report;
mod run;
mod solid_state;
mod systems;
mod text;
mod workloads;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Simulated drives, and the experiments of the papers on them
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Drive(drive::Arguments),
    SolidState(solid_state::Arguments),
    /// List the experiments: identifier, title, and where they are published
    List,
    Run(run::Arguments),
    Profile(profile::Arguments),
    Report(report::Arguments),
}

fn main() -> ExitCode {
    let mut output = std::io::stdout();
    let result = match Arguments::parse().command {
        Command::Drive(arguments) => drive::run(&arguments, &mut output),
        Command::SolidState(arguments) => solid_state::run(&arguments, &mut output),
        Command::List => run::list(&mut output).map_err(|problem| problem.to_string()),
        Command::Run(arguments) => {
            run::run(&arguments, &mut output).map_err(|problem| problem.to_string())
        }
        Command::Profile(arguments) => {
            profile::run(&arguments).map_err(|problem| problem.to_string())
        }
        Command::Report(arguments) => {
            report::run(&arguments).map_err(|problem| problem.to_string())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // If standard error is gone, the exit code still tells.
            drop(writeln!(std::io::stderr(), "upsweep-lab: {problem}"));
            ExitCode::FAILURE
        }
    }
}
