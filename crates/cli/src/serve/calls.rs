//! The side of the server: it runs commands of other processes, each on a thread of its own.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Parser;
use rustix::event::{EventfdFlags, eventfd};

use super::message::{Request, VERSION};
use crate::args::{Arguments, StoreUse};
use crate::context::Context;
use crate::failure::Failure;
use crate::open_store::OpenStore;

/// Commands that run at a time; others wait.
pub(super) const CALLS_MAX: usize = 64;
/// How long a connection may take to say what it wants.
const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// Wakes the thread that waits for everything.
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn ring(&self) {
        // It fails only if it has been rung 2^64 times in vain.
        let _rings = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the rings so far.
    pub(super) fn silence(&self) {
        let _none = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The commands that run.
pub(super) struct Calls {
    served: Arc<OpenStore>,
    bell: Arc<Bell>,
    /// Their connections.
    sockets: Mutex<BTreeMap<u64, UnixStream>>,
}

impl Calls {
    pub(super) fn new(served: Arc<OpenStore>, bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { served, bell, sockets: Mutex::default() })
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sockets().len()
    }

    /// Runs what comes through a connection, and rings the bell at the end.
    pub(super) fn start(self: &Arc<Self>, socket: UnixStream) -> std::io::Result<()> {
        let copy = socket.try_clone()?;
        let mut sockets = self.sockets();
        let number = sockets.last_key_value().map_or(0, |(last, _)| last + 1);
        sockets.insert(number, copy);
        drop(sockets);
        let call = Call { calls: Arc::clone(self), number };
        let run = move || {
            call.run(&socket);
            drop(socket);
            drop(call);
        };
        std::thread::Builder::new().name(format!("call {number}")).spawn(run).map(drop)
    }

    /// Interrupts all that run.
    pub(super) fn interrupt(&self) {
        for socket in self.sockets().values() {
            // One that is closed has been interrupted by its other side.
            drop(socket.shutdown(Shutdown::Read));
        }
    }
}

/// One of them, which ends when this is dropped, also if it panics.
struct Call {
    calls: Arc<Calls>,
    number: u64,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.sockets().remove(&self.number);
        self.calls.bell.ring();
    }
}

impl Call {
    fn run(&self, mut socket: &UnixStream) {
        let limited = socket.set_read_timeout(Some(REQUEST_WAIT));
        // Who sends nothing, or something else, is not answered.
        let Ok(Some((request, streams))) = limited.and_then(|()| Request::receive(socket)) else {
            return;
        };
        let Ok(interrupts) = socket.try_clone() else { return };
        let served = Arc::clone(&self.calls.served);
        let context = Context::of_caller(streams, request.folder.clone(), interrupts, served);
        let status = match run(&context, &request) {
            Ok(()) => 0,
            Err(failure) => failure.report(&context),
        };
        // Its streams are closed before it ends.
        drop(context);
        // Whoever is gone needs no answer.
        drop(socket.write_all(&[status]));
    }
}

fn run(context: &Context, request: &Request) -> Result<(), Failure> {
    if request.version != VERSION {
        return Err(Failure::Refused(format!(
            "the server that has the store open is version {VERSION}, and this program is version \
             {}: use the same version, or stop the server and start that of this program",
            request.version
        )));
    }
    let refused = |reason: String| Failure::Refused(format!("the server refuses this: {reason}"));
    let arguments = Arguments::try_parse_from(&request.arguments);
    let command = arguments.map_err(|error| refused(error.to_string()))?.command;
    match command.store_use() {
        StoreUse::Open(_) => crate::run(context, command),
        StoreUse::Alone(_) | StoreUse::None => Err(refused("it is not for a server".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_of_its_version_that_open_a_store_are_run() {
        let store = upsweep::Store::in_memory().expect("a store");
        let (ours, _other) = UnixStream::pair().expect("a pair");
        let null =
            || std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("there");
        let streams = crate::context::Streams { input: null(), output: null(), errors: null() };
        let served = Arc::new(OpenStore::new(store));
        let context = Context::of_caller(streams, "/".into(), ours, served);
        let run = |version: &str, arguments: &[&str]| {
            let arguments = ["upsweep"].iter().chain(arguments).map(Into::into).collect();
            let request = Request { version: version.to_owned(), folder: "/".into(), arguments };
            run(&context, &request)
        };
        let refused = |version: &str, arguments: &[&str], reason: &str| {
            let Err(Failure::Refused(found)) = run(version, arguments) else {
                panic!("{arguments:?} is not refused");
            };
            assert!(found.contains(reason), "{found}");
        };
        assert!(run(VERSION, &["create-table", "store", "new"]).is_ok());
        refused("0.0.0", &["create-table", "store", "other"], "this program is version 0.0.0");
        refused(VERSION, &["create", "store"], "not for a server");
        refused(VERSION, &["serve", "store"], "not for a server");
        refused(VERSION, &["unknown", "store"], "unrecognized subcommand");
    }
}
