//! Waits for submitted lines, and reports how many are durable.
//!
//! One thread takes tickets in order. So counts come out promptly while the input pauses, and
//! reading the input never waits for the log.

use std::io::{BufWriter, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use indicatif::ProgressBar;
use upsweep::Ticket;

use crate::context::Context;
use crate::failure::Failure;

/// The thread that waits.
pub(super) struct Acks {
    sender: Sender<(u64, Ticket)>,
    thread: JoinHandle<Acknowledged>,
}

/// The outcome.
pub(super) struct Acknowledged {
    /// Lines that are on stable media.
    pub(super) durable: u64,
    /// The error that kept the others from becoming durable.
    pub(super) result: Result<(), Failure>,
}

impl Acks {
    /// Starts the thread, which prints `durable COUNT` for every multiple of `every`. The counts
    /// go above `bar` if there is one.
    pub(super) fn start(context: &Context, every: Option<u64>, bar: Option<ProgressBar>) -> Self {
        let (sender, receiver) = channel();
        let context = context.clone();
        let wait = move || wait_for_all(&context, &receiver, every, bar.as_ref());
        let thread = std::thread::spawn(wait);
        Self { sender, thread }
    }

    /// The first `lines` lines are durable once `ticket` is. Their number is bounded by what fits
    /// into the log's pipeline.
    pub(super) fn note(&self, lines: u64, ticket: Ticket) {
        // The thread ends early only after a failure, which `finish` reports.
        drop(self.sender.send((lines, ticket)));
    }

    /// Waits for everything.
    pub(super) fn finish(self) -> Acknowledged {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| Acknowledged {
            durable: 0,
            result: Err(Failure::Refused("the thread that waits for the log panicked".to_owned())),
        })
    }
}

fn wait_for_all(
    context: &Context,
    receiver: &Receiver<(u64, Ticket)>,
    every: Option<u64>,
    bar: Option<&ProgressBar>,
) -> Acknowledged {
    let mut durable = 0;
    // If the reader of the output has closed it, the updates still continue.
    let mut prints = true;
    for (lines, ticket) in receiver {
        if let Err(error) = ticket.wait() {
            return Acknowledged { durable, result: Err(error.into()) };
        }
        let before = std::mem::replace(&mut durable, lines);
        if let Some(every) = every.filter(|every| prints && before / every < lines / every) {
            let print = || print(context, before, lines, every);
            match bar.map_or_else(print, |bar| bar.suspend(print)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => prints = false,
                Err(error) => return Acknowledged { durable, result: Err(error.into()) },
            }
        }
    }
    Acknowledged { durable, result: Ok(()) }
}

/// Prints every multiple of `every` above `before`, up to `lines`.
fn print(context: &Context, before: u64, lines: u64, every: u64) -> std::io::Result<()> {
    let mut out = BufWriter::new(context.output());
    for multiple in before / every + 1..=lines / every {
        writeln!(out, "durable {}", multiple * every)?;
    }
    out.flush()
}
