//! Why a server cannot begin, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::config::InvalidConfig;

/// Why a server cannot begin, or cannot read its certificates again.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The settings of sessions cannot work.
    #[error("{0}: correct this setting")]
    Session(#[from] InvalidConfig),
    /// This setting has to be at least 1.
    #[error("{0} is 0: it has to be at least 1")]
    Zero(&'static str),
    /// There is no address to listen on.
    #[error("no address to listen on: name at least one")]
    Nowhere,
    /// TLS is switched on without certificate.
    #[error("TLS is on, but there is no certificate: name its files, or switch TLS off")]
    NoTlsFiles,
    /// An address cannot be listened on.
    #[error("cannot listen on {listen}: {error}; choose another address, or end what uses it")]
    Listen {
        /// The address or path.
        listen: String,
        /// What the system says.
        error: io::Error,
    },
    /// A server answers on a Unix socket.
    #[error("a server listens on {} already: stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// The path of a Unix socket is taken by something else.
    #[error("{} exists and is no socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The service manager passed no sockets, or they were taken before.
    #[error(
        "no sockets were passed to this process: start it by a socket unit, or name an address"
    )]
    NotActivated,
    /// The service manager passed something that is neither a TCP nor a Unix stream socket.
    #[error("socket {0} of those passed is not for streams: set ListenStream in the socket unit")]
    NotAStream(usize),
    /// A file of TLS cannot be used.
    #[error("cannot use {} for TLS: {reason}; correct the file, and reload", path.display())]
    TlsFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system lacks threads, descriptors or memory.
    #[error("the system has no room for the server: {0}; raise its limits")]
    System(io::Error),
}
