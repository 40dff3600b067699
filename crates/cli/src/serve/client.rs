//! The side of a command whose store a server has open: the server runs it.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::message::Request;
use super::socket;
use crate::args::{Command, StoreUse};
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED};

/// How long an interrupted command waits for what it has come to.
const INTERRUPTED_WAIT: Duration = Duration::from_secs(2);

/// Has the server run a command if one has its store open, and returns the exit status. `None`: no
/// server has, so the command runs here.
pub(crate) fn forward(context: &Context, command: &Command) -> Result<Option<u8>, Failure> {
    match command.store_use() {
        StoreUse::None => Ok(None),
        StoreUse::Open(store) => {
            let Some(socket) = socket::connect(store) else { return Ok(None) };
            context.catch_interrupts()?;
            have_run(context, &socket).map(Some)
        }
        StoreUse::Alone(store) => match socket::connect(store) {
            None => Ok(None),
            Some(socket) => Err(Failure::Refused(format!(
                "{} is open in {}; this command needs it for itself: stop the server first",
                store.display(),
                socket::describe_peer(&socket)
            ))),
        },
    }
}

fn have_run(context: &Context, mut socket: &UnixStream) -> Result<u8, Failure> {
    let broken = |error: std::io::Error| {
        let server = socket::describe_peer(socket);
        let advice = "it may have ended in the middle of the command";
        Failure::Refused(format!("no answer from {server}: {error}; {advice}"))
    };
    let request = Request::of_process()
        .map_err(|error| Failure::Refused(format!("the current folder: {error}")))?;
    request.send(socket, context.streams()).map_err(broken)?;
    let mut status = [0];
    // The server learns of the interrupt, lets the command say how far it has come, and answers.
    if context.wait_for_socket(socket).is_err() {
        socket.shutdown(Shutdown::Write).map_err(broken)?;
        socket.set_read_timeout(Some(INTERRUPTED_WAIT)).map_err(broken)?;
    }
    match socket.read_exact(&mut status) {
        Ok(()) => Ok(status[0]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            context.note("upsweep: interrupted; the server completes what it has begun");
            Ok(INTERRUPTED)
        }
        Err(error) => Err(broken(error)),
    }
}
