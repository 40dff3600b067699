//! `upsweep serve`: has a store open, runs the commands of other processes on it, and exports its
//! volumes.
//!
//! | module | content |
//! |---|---|
//! | `message` | what a command and the server say to each other |
//! | `socket` | the socket in the folder of the store |
//! | `client` | the side of a command |
//! | `calls` | the side of the server, one command on a thread |
//! | `nbd` | the NBD server beside them |
//! | `exports` | volumes as its exports |
//! | `access` | who may use them |
//! | `limits` | how much of them is performed in a second |
//! | `bitmaps` | what has changed of them, for its clients |
//! | `web` | metrics and health over HTTP |
//! | `upkeep` | work in the background |
//! | `scrub` | the pace of checks of all payload |
//!
//! One thread waits for everything: connections, signals, and the bell that is rung when a command
//! or the NBD server ends, or the store fails. At the first signal the socket goes and the commands
//! come to their end; at a second one, or after [`END_WAIT`], they are interrupted.

mod access;
mod bitmaps;
mod calls;
mod client;
mod exports;
mod limits;
mod message;
mod nbd;
mod scrub;
mod socket;
mod upkeep;
mod web;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;

use crate::args::ServeArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::open_store::OpenStore;
pub(crate) use access::{Clients, Setting};
use calls::{Bell, CALLS_MAX, Calls};
pub(crate) use client::forward;
pub(crate) use limits::Rate;
use nbd::Nbd;
pub(crate) use scrub::Period;
use socket::Listener;
use upkeep::Upkeep;
use web::Pages;

/// How long a server that is told to end waits for the commands that run.
const END_WAIT: Duration = Duration::from_secs(30);
/// Pause after a connection that could not be accepted, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(context: &Context, args: &ServeArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Refused(format!("cannot serve: {error}"));
    // Before there are other threads, which would take the signals.
    let signals = catch_signals().map_err(|errno| failed(errno.into()))?;
    let served = Arc::new(OpenStore::new(context.open(&args.open)?));
    served.existing_volumes()?;
    let bell = Arc::new(Bell::new().map_err(failed)?);
    let nbd = Nbd::start(context, args, &served, Arc::clone(&bell))?;
    let is_healthy = Arc::new(AtomicBool::new(true));
    let metrics = args.metrics.as_deref().map(|address| {
        let counters = nbd.as_ref().map(|nbd| Box::new(nbd.counters()) as Box<_>);
        let (store, is_healthy) = (Arc::clone(&served), Arc::clone(&is_healthy));
        web::start(address, Pages { store, counters, is_healthy })
    });
    let metrics = metrics.transpose()?;
    let listener = Listener::bind(&args.open.store)?;
    let upkeep = Upkeep::start(context, &served, args.scrub, Arc::clone(&bell)).map_err(failed)?;
    let mut server = Server {
        context,
        signals,
        listener: Some(listener),
        calls: Calls::new(Arc::clone(&served), Arc::clone(&bell)),
        bell,
        upkeep,
        nbd,
        is_healthy,
        ends_at: None,
    };
    let mut about = format!("serving {}", args.open.store.display());
    if let Some(nbd) = &server.nbd {
        about += &format!(", volumes on {}", nbd.places());
    }
    if let Some(address) = metrics {
        about += &format!(", metrics on http://{address}/metrics");
    }
    context.line(&about)?;
    tell_manager(context, &NotifyState::Ready);
    while !server.is_over() {
        server.step().map_err(failed)?;
    }
    let stopped = server.nbd.map(Nbd::end).transpose();
    let ended = server.upkeep.end();
    let flushed = match served.existing_volumes() {
        Ok(Some(volumes)) => volumes.flush(),
        other => other.map(drop),
    };
    let closed = served.store().clone().close();
    // The first failure is the cause of the others.
    ended?;
    if let Some(stopped) = stopped?.filter(|stopped| stopped.requests_left > 0) {
        let left = stopped.requests_left;
        context.note(&format!("upsweep: {left} requests of NBD clients were not finished"));
    }
    flushed?;
    Ok(closed?)
}

/// Lets the signals that end a server, or have it read certificates, be read.
fn catch_signals() -> nix::Result<SignalFd> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// Tells systemd, if it has started the server, how far it is.
fn tell_manager(context: &Context, state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        context.note(&format!("upsweep: the service manager cannot be told: {error}"));
    }
}

/// A server that runs.
struct Server<'a> {
    context: &'a Context,
    signals: SignalFd,
    /// `None` once it is told to end.
    listener: Option<Listener>,
    calls: Arc<Calls>,
    bell: Arc<Bell>,
    upkeep: Upkeep,
    nbd: Option<Nbd>,
    is_healthy: Arc<AtomicBool>,
    /// When commands are interrupted, once it is told to end.
    ends_at: Option<Instant>,
}

impl Server<'_> {
    fn is_over(&self) -> bool {
        self.listener.is_none() && self.calls.count() == 0
    }

    /// Waits for what comes next, and does it.
    fn step(&mut self) -> std::io::Result<()> {
        let listener = self.listener.as_ref().filter(|_| self.calls.count() < CALLS_MAX);
        let mut polled = vec![self.signals.as_fd(), self.bell.as_fd()];
        polled.extend(listener.map(|listener| listener.socket().as_fd()));
        let mut polled: Vec<PollFd<'_>> =
            polled.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let wait = self.ends_at.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut polled, wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            other => drop(other?),
        }
        let is_ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if let (true, Some(signal)) = (is_ready[0], self.signals.read_signal()?) {
            if signal.ssi_signo == Signal::SIGHUP as u32 { self.reload() } else { self.end() }
        }
        if is_ready[1] {
            self.bell.silence();
            let has_nbd_ended = self.nbd.as_ref().is_some_and(Nbd::has_ended);
            let is_serving = self.listener.is_some();
            if self.upkeep.has_failed() || is_serving && has_nbd_ended {
                self.end();
            }
        }
        if self.ends_at.is_some_and(|at| at <= Instant::now()) {
            self.calls.interrupt();
            self.ends_at = None;
        }
        if let (Some(true), Some(listener)) = (is_ready.get(2), &self.listener) {
            let accepted = listener.socket().accept();
            let started = accepted.and_then(|(socket, _)| self.calls.start(socket));
            if let Err(error) = started {
                self.context.note(&format!("upsweep: a command cannot be run: {error}"));
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
        Ok(())
    }

    /// Has certificates read again.
    fn reload(&self) {
        if let Some(Err(error)) = self.nbd.as_ref().map(Nbd::reload) {
            self.context.note(&format!("upsweep: {error}"));
        }
    }

    /// Begins to end; the second time, interrupts what still runs.
    fn end(&mut self) {
        if self.listener.take().is_some() {
            self.is_healthy.store(false, Ordering::Relaxed);
            self.nbd.iter().for_each(Nbd::stop);
            tell_manager(self.context, &NotifyState::Stopping);
            self.ends_at = Some(Instant::now() + END_WAIT);
        } else {
            self.calls.interrupt();
        }
    }
}
