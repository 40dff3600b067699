//! The command line of `serve`.

use clap::Args;

use super::OpenArgs;

/// Have a store open, so that other commands work on it at the same time
///
/// A store is open in one process at a time. While this server runs, it is this one, and it runs
/// the commands that others are called with: `upsweep get STORE KEY` and all others find the server
/// through the socket `server.socket` in the folder of the store, and work as without it, at the
/// same time as each other. Only the user of the server, and root, may use the socket. `verify`,
/// `repair` and `device profile` need the store for themselves.
///
/// A command that is interrupted, or whose process is killed, stops at the next line that it reads
/// or writes. What the store does as a whole, such as `sweep`, `compact` or `backup`, it completes.
///
/// In the background the server gives back what volumes no longer need, and makes everything
/// durable. It prints a line once it can be used. SIGTERM or SIGINT ends it: it lets the commands
/// that run come to their end, for 30 seconds or until a second signal, and then interrupts them. A
/// server that is killed loses nothing that was durable. With systemd, Type=notify tells it when
/// the server can be used.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep serve hits.upsweep
  upsweep serve hits.upsweep --memory 4GiB")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}
