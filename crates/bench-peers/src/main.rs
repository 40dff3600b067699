//! `bench-peers`: Upsweep and its peers under the same workloads, in the same memory, on the same
//! file system.
//!
//! A *parent* plans the cells (engine, workload, class of durability, data set) and
//! runs each in a *child* process, this program again, inside a memory cgroup. The child measures
//! (`cell`) an engine (`engines`) behind one trait (`engine`) and replies with an outcome, which
//! the parent keeps (`outcome`) and turns into a report (`report`).

mod args;
mod cell;
mod engine;
mod engines;
mod failure;
mod outcome;
mod report;
mod run;
mod spread;
mod text;
mod workload;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match (arguments.command, arguments.run) {
        (Some(Command::Report { folder }), _) => report::remake(&folder),
        (Some(Command::Child { orders }), _) => cell::live(&orders),
        (None, Some(run)) => run::run(&run),
        (None, None) => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody misses it if standard error is gone.
            drop(writeln!(std::io::stderr(), "bench-peers: {failure}"));
            ExitCode::FAILURE
        }
    }
}
