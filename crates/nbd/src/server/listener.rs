//! Sockets that listen, and the connections that they give.
//!
//! A Unix socket that another server left behind is removed, one that a server listens on is not:
//! whether it answers tells them apart. Between that and the new socket no other server may do the
//! same, so the folder is locked meanwhile.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use super::ServerError;
use super::config::Listen;
use super::device::Address;

/// How many signs of life are asked for, in vain, before a client is given up.
const KEEPALIVE_PROBES: u32 = 4;
/// How long the lock of a folder is waited for, and between two looks at it.
const LOCK_TIME_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that listens. It never blocks.
pub(super) struct Listener {
    kind: Kind,
    _own: Option<OwnPath>,
}

/// The path of a socket that this server made; it is removed with it.
struct OwnPath {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        // Another server may have put its own there.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If it cannot be removed, the next server does.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Listens there.
    pub(super) fn bind(listen: &Listen) -> Result<Vec<Self>, ServerError> {
        let failed = |error| ServerError::Listen { listen: listen.to_string(), error };
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                Ok(vec![Self::new(Kind::Tcp(listener), None).map_err(failed)?])
            }
            Listen::Unix(path) => Ok(vec![bind_unix(path, failed)?]),
            Listen::Inherited => inherited(failed),
        }
    }

    fn new(kind: Kind, own: Option<OwnPath>) -> io::Result<Self> {
        match &kind {
            Kind::Tcp(listener) => listener.set_nonblocking(true)?,
            Kind::Unix(listener) => listener.set_nonblocking(true)?,
        }
        Ok(Self { kind, _own: own })
    }

    /// Where TCP clients find it.
    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    /// The next connection, or `WouldBlock`.
    pub(super) fn accept(&self, keepalive: Option<Duration>) -> io::Result<(Socket, Address)> {
        let (socket, address) = match &self.kind {
            Kind::Tcp(listener) => {
                let (socket, address) = listener.accept()?;
                socket.set_nodelay(true)?;
                if let Some(time) = keepalive {
                    keep_alive(&socket, time)?;
                }
                (Socket::Tcp(socket), Address::Tcp(address))
            }
            Kind::Unix(listener) => {
                let (socket, _) = listener.accept()?;
                let user = user(&socket);
                (Socket::Unix(socket), Address::Unix { user })
            }
        };
        socket.set_nonblocking()?;
        Ok((socket, address))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tcp(listener) => listener.as_fd(),
            Kind::Unix(listener) => listener.as_fd(),
        }
    }
}

fn keep_alive(socket: &TcpStream, time: Duration) -> io::Result<()> {
    // What systems take.
    let seconds = Duration::from_secs(time.as_secs().clamp(1, 32_767));
    sockopt::set_tcp_keepidle(socket, seconds)?;
    sockopt::set_tcp_keepintvl(socket, seconds)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn user(socket: &UnixStream) -> Option<u32> {
    sockopt::socket_peercred(socket).ok().map(|credentials| credentials.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
fn user(_: &UnixStream) -> Option<u32> {
    None
}

fn bind_unix(
    path: &Path,
    failed: impl Fn(io::Error) -> ServerError,
) -> Result<Listener, ServerError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = File::open(parent.unwrap_or(Path::new("."))).map_err(&failed)?;
    lock(&folder).map_err(&failed)?;
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ServerError::NotASocket(path.to_owned()));
        }
        Ok(_) if is_listened_on(path).map_err(&failed)? => {
            return Err(ServerError::InUse(path.to_owned()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(&failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(&failed)?;
    // Also where the process changes its folder meanwhile.
    let path = std::path::absolute(path).map_err(&failed)?;
    let identity = identity(&path).map_err(&failed)?;
    Listener::new(Kind::Unix(listener), Some(OwnPath { path, identity })).map_err(failed)
}

/// Locks a folder, which servers have while they make a socket there, and nobody for long.
fn lock(folder: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_TIME_MAX;
    loop {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let reason = "another process keeps its folder locked";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, reason));
            }
            locked => return Ok(locked?),
        }
    }
}

/// Whether a server has this Unix socket, be it too busy to answer now.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The sockets that the service manager passes. Their paths are its own.
fn inherited(failed: impl Fn(io::Error) -> ServerError) -> Result<Vec<Listener>, ServerError> {
    let mut passed = listenfd::ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Err(ServerError::NotActivated);
    }
    let take = |at| {
        let tcp = passed.take_tcp_listener(at).ok().flatten().map(Kind::Tcp);
        let kind = match tcp {
            Some(kind) => Some(kind),
            None => passed.take_unix_listener(at).ok().flatten().map(Kind::Unix),
        };
        Listener::new(kind.ok_or(ServerError::NotAStream(at))?, None).map_err(&failed)
    };
    (0..count).map(take).collect()
}

/// A connection. It never blocks.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(true),
            Self::Unix(socket) => socket.set_nonblocking(true),
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn end_output(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(buffer),
            Self::Unix(socket) => socket.write(buffer),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(buffers),
            Self::Unix(socket) => socket.write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}
