//! The socket of a server, in the folder of its store.
//!
//! Who has the store open has made the socket that is there, or finds one that a killed server has
//! left. So the server replaces it, and others find out whether it is alive by connecting.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};

use crate::failure::Failure;

/// Its name in the folder.
const NAME: &str = "server.socket";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket that listens, and is removed at the end.
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

/// The path of the socket with a length that fits an address, whatever that of the folder is; and
/// the folder, which is to stay open.
fn short_path(store: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(store)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()));
    Ok((folder, path))
}

impl Listener {
    /// Makes the socket of a store that this process has open.
    pub(super) fn bind(store: &Path) -> Result<Self, Failure> {
        let path = store.join(NAME);
        let made = || {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let (_folder, short) = short_path(store)?;
            let (unix, kind, flags) =
                (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
            let socket = socket_with(unix, kind, flags, None)?;
            // Before it is there for others: they may do what the user of the server may.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &SocketAddrUnix::new(&short)?)?;
            listen(&socket, BACKLOG)?;
            Ok(UnixListener::from(socket))
        };
        let socket = made().map_err(|error| Failure::file(&path, &error))?;
        Ok(Self { socket, path })
    }

    pub(super) fn socket(&self) -> &UnixListener {
        &self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // What is left is replaced by the next server.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Connects to the server of a store; `None` if there is none, or not for this user.
pub(super) fn connect(store: &Path) -> Option<UnixStream> {
    let (_folder, path) = short_path(store).ok()?;
    UnixStream::connect(path).ok()
}

/// The server at the other end, for messages.
pub(super) fn describe_peer(socket: &UnixStream) -> String {
    match sockopt::socket_peercred(socket) {
        Ok(peer) => format!("a server, process {}", peer.pid.as_raw_nonzero()),
        Err(_) => "a server".to_owned(),
    }
}
