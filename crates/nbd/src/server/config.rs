//! Where a server listens, and what it allows.
//!
//! Limits of one connection are in [`Config`](crate::Config), limits of all of them here.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::ServerError;
use crate::config::{Config, TlsMode};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address with its port, such as `127.0.0.1:10809`, `[::]:10809` or `localhost:10809`;
    /// port 0 is any free one.
    Tcp(String),
    /// A Unix socket at this path, which must not exist, or be a socket that no server listens on
    /// any more: that one is replaced. The server removes its socket when it stops. Who may connect
    /// is decided by the folder and the process's file mode mask.
    Unix(PathBuf),
    /// All sockets that the service manager passes by the variables `LISTEN_FDS` and `LISTEN_PID`:
    /// socket activation by systemd. They can be taken once in a process.
    Inherited,
}

impl FromStr for Listen {
    type Err = Infallible;

    /// `unix:PATH`, `systemd`, or a TCP address.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix("unix:") {
            Some(path) => Self::Unix(PathBuf::from(path)),
            None if text == "systemd" => Self::Inherited,
            None => Self::Tcp(text.to_owned()),
        })
    }
}

impl Display for Listen {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Inherited => formatter.write_str("systemd"),
        }
    }
}

/// The files of TLS, in PEM. They are read when the server is made and by
/// [`Handle::reload`](super::Handle::reload).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, then those of the authorities between it and the root.
    pub certificates: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
    /// The certificates of the authorities that sign certificates of clients. If there are some, a
    /// client without such a certificate is refused.
    pub client_authorities: Option<PathBuf>,
}

/// The settings of a [`Server`](super::Server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens, at least one place.
    pub listen: Vec<Listen>,
    /// What holds for each connection. [`Config::tls`] says whether it is encrypted.
    pub session: Config,
    /// The files of TLS, needed unless it is off.
    pub tls: Option<TlsFiles>,
    /// How many connections there may be at a time, at least 1, by default 64. Further ones are
    /// closed at once. Together they use up to [`Config::bytes_in_flight_max`] times this.
    pub connections_max: usize,
    /// How many requests are performed at a time, of all connections together, at least 1, by
    /// default 24, beside those that threads of connections perform. Each has a thread of its own.
    /// A connection has at most two for each one that is left idle, or one: two thirds of them if
    /// it is alone. Its flushes are performed together, and so are its short reads that wait; what
    /// else there is waits in the order in which it came.
    pub workers: usize,
    /// How long a client may take from the connection until it has opened an export, TLS included;
    /// by default 10 seconds. Later it may be idle as long as it likes.
    pub handshake_time_max: Duration,
    /// How long requests in flight are waited for when the server stops; by default 30 seconds.
    pub drain_time_max: Duration,
    /// After how long without a sign of life a TCP client is asked for one, from a second to nine
    /// hours; by default a minute. It is given up after four requests in vain. `None` never asks.
    pub keepalive: Option<Duration>,
}

impl ServerConfig {
    /// The defaults, listening here, without TLS.
    #[must_use]
    pub fn new(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            session: Config::default(),
            tls: None,
            connections_max: 64,
            workers: 24,
            handshake_time_max: Duration::from_secs(10),
            drain_time_max: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(60)),
        }
    }

    /// Checks what can be checked without a socket or file.
    pub(super) fn check(&self) -> Result<(), ServerError> {
        self.session.check()?;
        if self.listen.is_empty() {
            return Err(ServerError::Nowhere);
        }
        if self.connections_max == 0 {
            return Err(ServerError::Zero("connections_max"));
        }
        if self.workers == 0 {
            return Err(ServerError::Zero("workers"));
        }
        if self.session.tls != TlsMode::Off && self.tls.is_none() {
            return Err(ServerError::NoTlsFiles);
        }
        Ok(())
    }
}
