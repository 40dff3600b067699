//! A server around sessions: sockets, threads, TLS, limits, and how it stops.
//!
//! [`Server::bind`] takes the sockets, [`Server::run`] serves until [`Handle::stop`]. What is
//! served is behind the traits [`Exports`] and [`Device`], whose calls may block.
//!
//! ```
//! use std::sync::Arc;
//! use upsweep_nbd::server::{Device, Exports, Listen, Peer, Server, ServerConfig, Zeroing};
//! use upsweep_nbd::{Context, ErrorCode, Export, Extent, Fault, Refusal};
//!
//! /// A read-only device in which each byte is the lowest of its offset.
//! struct Pattern;
//!
//! impl Device for Pattern {
//!     fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
//!         (offset..).zip(buffer).for_each(|(at, byte)| *byte = at as u8);
//!         Ok(())
//!     }
//!
//!     fn write(&self, _: u64, _: &[u8], _: bool) -> Result<(), Fault> {
//!         Err(ErrorCode::NotPermitted.into())
//!     }
//!
//!     fn flush(&self) -> Result<(), Fault> {
//!         Ok(())
//!     }
//!
//!     fn write_zeroes(&self, _: u64, _: u64, _: Zeroing) -> Result<(), Fault> {
//!         Err(ErrorCode::NotPermitted.into())
//!     }
//!
//!     fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), Fault> {
//!         Err(ErrorCode::NotPermitted.into())
//!     }
//!
//!     fn status(&self, _: &Context, _: u64, length: u64, _: u32) -> Result<Vec<Extent>, Fault> {
//!         Ok(vec![Extent { length, status: 0 }])
//!     }
//! }
//!
//! struct Patterns;
//!
//! impl Exports for Patterns {
//!     fn list(&self, _: &Peer) -> Result<Vec<(String, String)>, Refusal> {
//!         Ok(vec![("pattern".to_owned(), "bytes that count".to_owned())])
//!     }
//!
//!     fn describe(&self, name: &str, _: &Peer) -> Result<Export, Refusal> {
//!         let mut export = Export::new("pattern", 1 << 40);
//!         export.read_only = true;
//!         if name == "pattern" { Ok(export) } else { Err(Refusal::Unknown) }
//!     }
//!
//!     fn open(&self, name: &str, peer: &Peer) -> Result<(Export, Arc<dyn Device>), Refusal> {
//!         Ok((self.describe(name, peer)?, Arc::new(Pattern)))
//!     }
//! }
//!
//! let config = ServerConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())]);
//! let server = Server::bind(config, Arc::new(Patterns))?;
//! let (address, handle) = (server.tcp_addresses()[0], server.handle());
//! let thread = std::thread::spawn(move || server.run());
//!
//! // A client is greeted.
//! let mut client = std::net::TcpStream::connect(address)?;
//! let mut greeting = [0; 18];
//! std::io::Read::read_exact(&mut client, &mut greeting)?;
//! assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
//!
//! handle.stop();
//! let stopped = thread.join().expect("the server does not panic")?;
//! assert_eq!((stopped.connections_left, stopped.requests_left), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | `config` | settings and limits |
//! | `device` | what is served, and to whom |
//! | `listener` | sockets |
//! | `tls` | certificates |
//! | `transport` | bytes, plain or through TLS |
//! | `bell` | how a thread that waits for sockets is woken |
//! | `workers` | the threads that perform requests |
//! | `connection` | the thread of a connection |
//! | `delayed` | requests that wait for their time |
//! | `counters` | what the server has done |
//! | `error` | why it cannot begin |
//!
//! **Threads.** One accepts connections, one for each connection owns its session, and a fixed
//! number, the workers, performs the requests of all. Where that is faster the thread of a
//! connection performs one itself: a write of up to 64 KiB that need not be durable, unless such
//! writes take long, and a read, write or flush that is alone. A write that the device has begun
//! ([`Device::begin_write`]) is always left to the workers, and the client may have its reply
//! before it is over. A connection has at most two workers for each one that is left idle; a device
//! that blocks all workers blocks all connections.
//!
//! **Bounds.** [`ServerConfig`] limits connections, the requests and bytes of each, and the time of
//! the handshake and of stopping. A device limits the bytes of writes that it accepts before they
//! are over. An idle client may stay, and so may one that does not receive what it asked for.
//!
//! **Stopping.** The sockets that listen are closed first. Requests that come afterwards fail with
//! [`ErrorCode::Shutdown`](crate::ErrorCode::Shutdown), those in flight are finished, and each
//! connection is closed when it has none left, all that within [`ServerConfig::drain_time_max`].
//! Devices are not flushed: a client that needs it does that itself.

#![expect(clippy::disallowed_methods, reason = "the outside world: threads, clocks and files")]
#![expect(clippy::disallowed_types, reason = "the outside world: sockets and locks")]

mod bell;
mod config;
mod connection;
mod counters;
mod delayed;
mod device;
mod error;
mod listener;
mod tls;
mod transport;
mod workers;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::fault::End;
use bell::Bell;
use connection::Connection;
use counters::Meters;
use listener::{Listener, Socket};
use tls::Tls;
use workers::{Mailbox, Pool};

pub use config::{Listen, ServerConfig, TlsFiles};
pub use counters::{Counters, Histogram, Kind, RequestCounters};
pub use device::{Address, Device, Exports, IncomingWrite, Peer, Zeroing};
pub use error::ServerError;

/// How long no connection is accepted after the system could not give one.
const REST: Duration = Duration::from_millis(100);
/// How long connections may take to notice that the time to drain is over.
const GRACE: Duration = Duration::from_secs(1);

/// Why a connection was closed.
#[derive(Debug)]
pub enum Closing {
    /// The session ended: the client left, was refused, or broke the protocol.
    Ended(End),
    /// The client closed the connection without leaving. What it had not received is lost.
    HungUp,
    /// The connection failed.
    Lost(io::Error),
    /// TLS failed, for this reason.
    Tls(String),
    /// The handshake took too long.
    HandshakeLate,
    /// The server stopped.
    Stopped,
}

impl Display for Closing {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(End::Aborted | End::Disconnected) => formatter.write_str("the client left"),
            Self::Ended(End::Refused) => formatter.write_str("the client did not get its export"),
            Self::Ended(End::Violated(violation)) => write!(formatter, "{violation}"),
            Self::HungUp => formatter.write_str("the client hung up"),
            Self::Lost(error) => write!(formatter, "the connection failed: {error}"),
            Self::Tls(reason) => write!(formatter, "TLS failed: {reason}"),
            Self::HandshakeLate => formatter.write_str("the handshake took too long"),
            Self::Stopped => formatter.write_str("the server stopped"),
        }
    }
}

/// What all threads of a server share.
struct Shared {
    config: ServerConfig,
    exports: Arc<dyn Exports>,
    tls: Option<Tls>,
    meters: Arc<Meters>,
    pool: Arc<Pool>,
    /// Of the thread that accepts.
    bell: Bell,
    is_stopping: AtomicBool,
    /// Once it is stopping; `None` if it waits without limit.
    drain_until: OnceLock<Option<Instant>>,
    /// Connections whose threads are about to end.
    ended: Mutex<Vec<u64>>,
}

impl Shared {
    fn note(&self, closing: &Closing) {
        let meter = match closing {
            Closing::Ended(End::Violated(_)) => &self.meters.violations,
            Closing::Tls(_) => &self.meters.tls_failures,
            Closing::HandshakeLate => &self.meters.handshakes_late,
            _ => return,
        };
        meter.fetch_add(1, Relaxed);
    }
}

/// Controls a server while it runs, from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Makes the server stop. Returns at once; [`Server::run`] returns when it has.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, SeqCst);
        self.shared.bell.ring();
    }

    /// Reads the files of TLS again, for connections from now on. Does nothing without TLS.
    ///
    /// # Errors
    ///
    /// [`ServerError::TlsFile`] names the file that cannot be used. The server goes on with what it
    /// had.
    pub fn reload(&self) -> Result<(), ServerError> {
        self.shared.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    /// What the server has done so far. Takes no lock.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.meters.read()
    }
}

/// How a server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Connections whose threads still run, because their requests took longer than the time to
    /// drain. Their devices are still in use.
    pub connections_left: usize,
    /// Requests that are still being performed, or will never be.
    pub requests_left: u64,
}

/// A server that listens, but does not serve yet.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
}

impl Server {
    /// Reads certificates and takes the sockets. Clients can connect from here on, and wait until
    /// it runs.
    ///
    /// # Errors
    ///
    /// The [`ServerError`] says what to change. Nothing is left behind then.
    pub fn bind(config: ServerConfig, exports: Arc<dyn Exports>) -> Result<Self, ServerError> {
        config.check()?;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let mut listeners = Vec::new();
        for listen in &config.listen {
            listeners.extend(Listener::bind(listen)?);
        }
        let meters = Arc::new(Meters::default());
        let pool = Arc::new(Pool::new(config.workers, Arc::clone(&meters)));
        let shared = Shared {
            config,
            exports,
            tls,
            pool,
            meters,
            bell: Bell::new().map_err(ServerError::System)?,
            is_stopping: AtomicBool::new(false),
            drain_until: OnceLock::new(),
            ended: Mutex::new(Vec::new()),
        };
        Ok(Self { shared: Arc::new(shared), listeners })
    }

    /// Controls this server.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Where TCP clients find it, in the order of the settings.
    #[must_use]
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(Listener::tcp_address).collect()
    }

    /// Serves on this thread and others until [`Handle::stop`], and returns when the requests in
    /// flight are done, at most a second later than [`ServerConfig::drain_time_max`] allows.
    ///
    /// # Errors
    ///
    /// [`ServerError::System`] if the threads of the workers cannot be started.
    pub fn run(self) -> Result<Stopped, ServerError> {
        let Self { shared, listeners } = self;
        let workers = shared.pool.start().map_err(ServerError::System)?;
        let mut live = Live { shared: Arc::clone(&shared), connections: BTreeMap::new(), next: 0 };
        while !shared.is_stopping.load(SeqCst) {
            live.round(&listeners);
        }
        drop(listeners);
        live.drain();
        shared.pool.close();
        let stopped = Stopped {
            connections_left: live.connections.len(),
            requests_left: shared.meters.requests_in_flight.load(Relaxed),
        };
        if stopped.connections_left == 0 {
            // A connection ends after its jobs, so the workers have nothing more to do.
            for worker in workers {
                worker.join().expect("a worker catches what devices do");
            }
        }
        Ok(stopped)
    }
}

/// The connections, on the thread that accepts them.
struct Live {
    shared: Arc<Shared>,
    connections: BTreeMap<u64, (Arc<Mailbox>, JoinHandle<()>)>,
    next: u64,
}

impl Live {
    /// Waits for connections and accepts at most one from each listener.
    fn round(&mut self, listeners: &[Listener]) {
        self.wait(listeners, None);
        self.reap();
        for listener in listeners {
            match listener.accept(self.shared.config.keepalive) {
                Ok(_) if self.connections.len() >= self.shared.config.connections_max => {
                    self.shared.meters.connections_refused.fetch_add(1, Relaxed);
                }
                Ok((socket, address)) => {
                    if self.start(socket, address).is_err() {
                        self.fail();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => self.fail(),
            }
        }
    }

    /// The system could not give a connection, and would not give the next one at once.
    fn fail(&mut self) {
        self.shared.meters.connections_failed.fetch_add(1, Relaxed);
        self.wait(&[], Instant::now().checked_add(REST));
        self.reap();
    }

    /// Waits for the listeners or the bell. Look afterwards at what the bell rang for.
    fn wait(&self, listeners: &[Listener], until: Option<Instant>) {
        let mut descriptors = vec![PollFd::new(&self.shared.bell, PollFlags::IN)];
        descriptors.extend(listeners.iter().map(|one| PollFd::new(one, PollFlags::IN)));
        wait_for(&mut descriptors, until);
        self.shared.bell.quiet();
    }

    fn start(&mut self, socket: Socket, address: Address) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox::new()?);
        let shared = Arc::clone(&self.shared);
        let connection = Connection::new(shared, socket, address, Arc::clone(&mailbox))
            .expect("the configuration was checked");
        let ended = Ended { shared: Arc::clone(&self.shared), id: self.next };
        let builder = std::thread::Builder::new().name("upsweep-nbd-client".to_owned());
        let thread = builder.spawn(move || {
            let _ended = ended;
            connection.serve();
        })?;
        self.connections.insert(self.next, (mailbox, thread));
        self.next += 1;
        self.shared.meters.connections_accepted.fetch_add(1, Relaxed);
        self.shared.meters.connections_open.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Forgets connections that have ended.
    fn reap(&mut self) {
        for id in std::mem::take(&mut *self.shared.ended.lock()) {
            if let Some((_, thread)) = self.connections.remove(&id) {
                // If the exports made it panic, that connection alone is gone.
                let _ = thread.join();
                self.shared.meters.connections_open.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Lets all connections come to their end, within the time for that.
    fn drain(&mut self) {
        let until = Instant::now().checked_add(self.shared.config.drain_time_max);
        self.shared.drain_until.get_or_init(|| until);
        for (mailbox, _) in self.connections.values() {
            mailbox.bell.ring();
        }
        let patience = until.and_then(|until| until.checked_add(GRACE));
        self.reap();
        while !self.connections.is_empty()
            && patience.is_none_or(|patience| Instant::now() < patience)
        {
            self.wait(&[], patience);
            self.reap();
        }
    }
}

/// Tells the accepting thread that a connection is over, however it ended.
struct Ended {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.ended.lock().push(self.id);
        self.shared.bell.ring();
    }
}

/// Waits until one of these is ready or the time is over. It may return early.
fn wait_for(descriptors: &mut [PollFd<'_>], until: Option<Instant>) {
    let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
    // A time that does not fit is far away.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // Interrupted, or out of memory: the caller looks at everything and comes back.
    let _ = rustix::event::poll(descriptors, timeout.as_ref());
}
