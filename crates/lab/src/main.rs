//! The laboratory as a program: simulated drives on their own.

mod drive;

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
}

fn main() -> ExitCode {
    let Command::Drive(arguments) = Arguments::parse().command;
    match drive::run(&arguments, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // If standard error is gone, the exit code still tells.
            drop(writeln!(std::io::stderr(), "upsweep-lab: {problem}"));
            ExitCode::FAILURE
        }
    }
}
