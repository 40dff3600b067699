//! `upsweep apply`: a stream of lines into a table or array, in order and fast.
//!
//! Steps: read what is there ([`Input`]), cut it into lines and these into updates ([`lines`]),
//! hand groups of lines to the store under one lock, each line a record of its own, and go on while
//! their log writes are in flight. A thread ([`acks`]) waits for them and says how far they are.
//!
//! Invariants: lines are handed over in input order, so what is durable is always a first part of
//! the input; a count is printed only once that many lines are on stable media. An interrupt ends
//! the input, so it counts what is durable, too.

mod acks;
mod cells;
mod lines;
mod progress;

use std::time::Instant;

use serde::Serialize;
use upsweep::layers::runtime::{BlockStore, PartlyAccepted};
use upsweep::{CellKind, Durability, Error, RequestError, SpaceId, Store, Ticket};

use crate::args::{ApplyArgs, DurabilityChoice};
use crate::context::Context;
use crate::failure::Failure;
use crate::input::Input;
use crate::structure::KnownKind;
use crate::{structure, tables, text};
use acks::Acks;
use lines::Lines;
use progress::Progress;

/// Lines that are handed over under one lock at most: half a millisecond's worth.
const LINES_PER_GROUP: u64 = 512;

/// What was done.
#[derive(Serialize)]
struct Summary {
    applied: u64,
    durable: u64,
    seconds: f64,
    updates_per_second: f64,
}

pub(crate) fn run(context: &Context, args: &ApplyArgs) -> Result<(), Failure> {
    tables::check_not_of_volumes(&args.table, "`upsweep serve` lets clients write to one")?;
    context.catch_interrupts()?;
    // The input comes first: no table is made for a file that is not there.
    let mut input = Input::open(context, &args.file)?;
    let store = context.open(&args.open)?;
    let is_new = store.kind(&args.table).is_none();
    let (space, cells) = target(&store, &args.table)?;
    let started = Instant::now();
    let mut applier = Applier {
        context,
        blocks: store.blocks(),
        space,
        durability: args.durability,
        lines_per_group: args.ack_every.unwrap_or(u64::MAX).min(LINES_PER_GROUP),
        ack_every: args.ack_every,
        applied: 0,
        lines: Lines::new(cells),
    };
    let progress = Progress::start(context, &store, input.length());
    let bar = progress.as_ref().and_then(|progress| progress.on_output(context));
    let acks = Acks::start(context, args.ack_every, bar);
    let outcome = apply_all(&mut applier, &mut input, &acks, progress.as_ref());
    let acknowledged = acks.finish();
    let durable = acknowledged.durable;
    let summary = Summary::of(applier.applied, durable, started);
    drop(progress);
    if is_new && outcome.is_err() && applier.applied == 0 {
        tables::drop_if_empty(&store, &args.table);
    }
    // An error says all where nothing was applied.
    let is_told = matches!(&outcome, Err(failure) if !matches!(failure, Failure::Interrupted));
    let is_mute = is_told && summary.applied == 0 && !args.json;
    let printed = if is_mute { Ok(()) } else { print(context, &summary, args.json) };
    outcome?;
    acknowledged.result?;
    printed
}

impl Summary {
    fn of(applied: u64, durable: u64, started: Instant) -> Self {
        let seconds = started.elapsed().as_secs_f64();
        Self { applied, durable, seconds, updates_per_second: durable as f64 / seconds.max(1e-9) }
    }
}

/// The space of the table or array of this name, and its cells if it is an array. Makes an ordered
/// table if nothing has the name.
fn target(store: &Store, name: &str) -> Result<(SpaceId, Option<CellKind>), Failure> {
    let kind = store.kind(name).map(|kind| structure::known(name, &kind)).transpose()?;
    Ok(match kind {
        None | Some(KnownKind::Table) => (store.table(name)?.space(), None),
        Some(KnownKind::ExpiringTable) => {
            let only = "the lines have no times; only an application can change it";
            let kind = "a table of expiring records";
            return Err(Failure::Refused(format!("{name:?} is {kind}, and {only}")));
        }
        Some(KnownKind::HashTable) => (store.existing_hash_table(name)?.space(), None),
        Some(KnownKind::Array(cells)) => {
            (structure::space_of_numbers(store, name, cells)?, Some(cells))
        }
    })
}

fn print(context: &Context, summary: &Summary, json: bool) -> Result<(), Failure> {
    if json {
        return context.json(summary);
    }
    let Summary { applied, durable, seconds, updates_per_second } = summary;
    context.line(&format!(
        "applied {} in {seconds:.2} s, {} a second; {} are durable",
        text::counted(*applied, "update"),
        text::rate(*updates_per_second),
        if applied == durable { "all".to_owned() } else { text::count(*durable) },
    ))
}

/// Lines on their way into one table or array.
struct Applier<'a> {
    context: &'a Context,
    blocks: &'a BlockStore,
    space: SpaceId,
    durability: DurabilityChoice,
    lines_per_group: u64,
    ack_every: Option<u64>,
    /// Lines that the store has accepted.
    applied: u64,
    lines: Lines,
}

fn apply_all(
    applier: &mut Applier<'_>,
    input: &mut Input,
    acks: &Acks,
    progress: Option<&Progress>,
) -> Result<(), Failure> {
    let name = input.name().to_owned();
    while let Some(mut rest) = input.next(applier.applied + 1)? {
        while !rest.is_empty() {
            let taken = applier.apply_some(rest, &name, acks)?;
            rest = &rest[taken..];
            if let Some(progress) = progress {
                progress.note(applier.applied, taken);
            }
        }
    }
    Ok(())
}

impl Applier<'_> {
    /// Applies the first lines of `text`, which is whole lines; returns their length in bytes.
    fn apply_some(&mut self, text: &[u8], name: &str, acks: &Acks) -> Result<usize, Failure> {
        let mut lines_max = self.lines_per_group;
        if let Some(every) = self.ack_every {
            // Groups end where a count is due, so that no count waits for lines behind it.
            lines_max = lines_max.min(every - self.applied % every);
        }
        if self.durability == DurabilityChoice::Each {
            lines_max = 1;
        }
        let (taken, malformed) = self.lines.parse(text, lines_max);
        self.context.check()?;
        self.submit(name, acks)?;
        match malformed {
            Some(reason) => Err(self.refused_line(name, &reason)),
            None => Ok(taken),
        }
    }

    /// Hands the parsed lines over.
    fn submit(&mut self, name: &str, acks: &Acks) -> Result<(), Failure> {
        let updates = self.lines.updates(self.space);
        if updates.is_empty() {
            return Ok(());
        }
        let durability = match self.durability {
            DurabilityChoice::Each => Durability::Wait,
            DurabilityChoice::Group => Durability::Ticket,
            DurabilityChoice::Relaxed => Durability::Relaxed,
        };
        match self.blocks.modify_each(updates.chunks(1), durability) {
            Ok(ticket) => {
                self.applied += updates.len() as u64;
                acks.note(self.applied, ticket);
                Ok(())
            }
            Err(PartlyAccepted { accepted, error }) => {
                self.applied += accepted;
                if accepted > 0
                    && let Some(ticket) = self.ticket_of_accepted()
                {
                    acks.note(self.applied, ticket);
                }
                Err(match error {
                    Error::Request(RequestError::BatchTooLong { bytes, limit }) => {
                        let reason = format!(
                            "the update takes {bytes} bytes, above the limit of {limit}: make a \
                             store with a larger log (with 16MiB any value fits), or give more \
                             --memory"
                        );
                        self.refused_line(name, &reason)
                    }
                    Error::Request(error) => self.refused_line(name, &error.to_string()),
                    error => error.into(),
                })
            }
        }
    }

    /// Everything accepted so far; `None` if the store failed, which the acknowledgements report.
    fn ticket_of_accepted(&self) -> Option<Ticket> {
        self.blocks.modify(&[], Durability::Ticket).ok()
    }

    fn refused_line(&self, name: &str, reason: &str) -> Failure {
        Failure::Refused(format!("{name}:{}: {reason}", self.applied + 1))
    }
}
