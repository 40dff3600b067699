//! The command line of Upsweep: a thin layer over the library, with texts for people.
//!
//! One module per command, or per few small ones. Shared modules: `args` (the command line),
//! `failure` (errors and exit statuses), `text` (escapes, sizes, values), `output` (opening a
//! store, printing), `input` (lines to read), `record` (records as lines), `structure` (structures
//! of any kind, now or in a snapshot).
//!
//! Exit status: 0 success; 1 damage found, or no such key; 2 bad input, bad usage, or a store that
//! cannot be used now.

mod apply;
mod args;
mod backup;
mod bench;
mod create;
mod device;
mod dump;
mod failure;
mod input;
mod load;
mod output;
mod quarantine;
mod read;
mod record;
mod snapshot;
mod stat;
mod structure;
mod sweep;
mod tables;
mod text;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, QuarantineCommand};
use failure::Failure;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args),
        Command::Apply(args) => apply::run(&args),
        Command::Get(args) => read::get(&args),
        Command::Scan(args) => read::scan(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Load(args) => load::run(&args),
        Command::RemoveRange(args) => tables::remove_range(&args),
        Command::Compact(args) => tables::compact(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Tables(args) => stat::tables(&args),
        Command::CreateTable(args) => tables::create(&args),
        Command::DropTable(args) => tables::drop_table(&args),
        Command::Clone(args) => tables::clone(&args),
        Command::Snapshot { command } => snapshot::run(&command),
        Command::Changes(args) => snapshot::changes(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Repair(args) => verify::repair(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Quarantine { command: QuarantineCommand::List(args) } => quarantine::list(&args),
        Command::Quarantine { command: QuarantineCommand::Retry(args) } => quarantine::retry(&args),
        Command::Quarantine { command: QuarantineCommand::Discard(args) } => {
            quarantine::discard(&args)
        }
        Command::Device { command } => device::run(&command),
        Command::Bench(args) => bench::run(&args),
    }
}
