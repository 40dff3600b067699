//! The laboratory as a program: simulated drives on their own.

mod drive;
mod solid_state;

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
}

fn main() -> ExitCode {
    let output = &mut std::io::stdout().lock();
    let result = match Arguments::parse().command {
        Command::Drive(arguments) => drive::run(&arguments, output),
        Command::SolidState(arguments) => solid_state::run(&arguments, output),
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
