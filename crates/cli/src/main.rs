//! The command line of Upsweep: a thin layer over the library, with texts for people.
//!
//! One module per command, or per few small ones. Shared modules: `args` (the command line),
//! `failure` (errors and exit statuses), `text` (escapes, sizes, values), `context` (where a
//! command runs: its streams, its store, interrupts), `output` (printing), `input` (lines to read),
//! `record` (records as lines), `structure` (structures of any kind, now or in a snapshot),
//! `open_store` (a store with its volumes), `when` (moments and histories of volumes).
//!
//! Exit status: 0 success; 1 damage found, or no such key; 2 bad input, bad usage, or a store that
//! cannot be used now; 130 interrupted.

mod apply;
mod args;
mod backup;
mod bench;
mod context;
mod create;
mod device;
mod dump;
mod failure;
mod input;
mod load;
mod open_store;
mod output;
mod quarantine;
mod read;
mod record;
mod serve;
mod snapshot;
mod stat;
mod structure;
mod sweep;
mod tables;
mod text;
mod verify;
mod volume;
mod when;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, QuarantineCommand};
use context::Context;
use failure::Failure;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Without descriptors for its streams no command can run, or say so.
    let Ok(context) = Context::of_process() else { return ExitCode::from(2) };
    let status = match serve::forward(&context, &command) {
        Ok(Some(status)) => Ok(status),
        Ok(None) => run(&context, command).map(|()| 0),
        Err(failure) => Err(failure),
    };
    ExitCode::from(status.unwrap_or_else(|failure| failure.report(&context)))
}

fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(context, args),
        Command::Apply(args) => apply::run(context, &args),
        Command::Get(args) => read::get(context, &args),
        Command::Scan(args) => read::scan(context, &args),
        Command::Dump(args) => dump::run(context, &args),
        Command::Load(args) => load::run(context, &args),
        Command::RemoveRange(args) => tables::remove_range(context, &args),
        Command::Compact(args) => tables::compact(context, &args),
        Command::Backup(args) => backup::backup(context, &args),
        Command::Restore(args) => backup::restore(context, &args),
        Command::Tables(args) => stat::tables(context, &args),
        Command::CreateTable(args) => tables::create(context, &args),
        Command::DropTable(args) => tables::drop_table(context, &args),
        Command::Clone(args) => tables::clone(context, &args),
        Command::Snapshot { command } => snapshot::run(context, &command),
        Command::Changes(args) => snapshot::changes(context, &args),
        Command::Volume { command } => volume::run(context, &command),
        Command::Stat(args) => stat::stat(context, &args),
        Command::Verify(args) => verify::run(context, &args),
        Command::Repair(args) => verify::repair(context, &args),
        Command::Sweep(args) => sweep::run(context, &args),
        Command::Quarantine { command: QuarantineCommand::List(args) } => {
            quarantine::list(context, &args)
        }
        Command::Quarantine { command: QuarantineCommand::Retry(args) } => {
            quarantine::retry(context, &args)
        }
        Command::Quarantine { command: QuarantineCommand::Discard(args) } => {
            quarantine::discard(context, &args)
        }
        Command::Device { command } => device::run(context, &command),
        Command::Serve(args) => serve::run(context, &args),
        Command::Bench(args) => bench::run(context, &args),
    }
}
