//! The server over real sockets: clients that speak the protocol by the letter, on a device in
//! memory that fails, waits and panics on demand, and clients of others where they are installed.
//!
//! Tests wait for events, with a limit of [`PATIENCE`] that only a failure reaches.

#![expect(clippy::disallowed_types, reason = "the outside world: sockets and locks")]
#![expect(clippy::disallowed_methods, reason = "the outside world: threads, clocks and files")]

mod activation;
mod client;
mod disk;
mod encryption;
mod limits;
mod running;
mod sockets;
mod stopping;
mod tools;
mod traffic;
mod troubles;
#[path = "../protocol/client.rs"]
mod wire;

use std::time::Duration;

/// How long a test waits for what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
