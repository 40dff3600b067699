//! A server that runs on a thread, with a folder of its own for sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use tempfile::TempDir;
use upsweep_nbd::server::{Counters, Handle, Listen, Server, ServerConfig, ServerError, Stopped};

use crate::PATIENCE;
use crate::client::Client;
use crate::disk::{BLOCK, Disk, Shelf, WORKER};

pub struct Running {
    pub handle: Handle,
    pub shelf: Arc<Shelf>,
    /// It outlives the server if somebody else has it, too.
    pub folder: Arc<TempDir>,
    pub address: SocketAddr,
    thread: JoinHandle<Result<Stopped, ServerError>>,
}

/// A server on a Unix socket and on TCP.
pub fn start() -> Running {
    start_with(|_| {})
}

pub fn start_with(configure: impl FnOnce(&mut ServerConfig)) -> Running {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let unix = Listen::Unix(folder.path().join("socket"));
    let mut config = ServerConfig::new(vec![unix, Listen::Tcp("127.0.0.1:0".to_owned())]);
    configure(&mut config);
    let shelf = Arc::new(Shelf::new());
    let server = Server::bind(config, Arc::clone(&shelf) as _).expect("a server");
    let (handle, address) = (server.handle(), server.tcp_addresses()[0]);
    let thread = std::thread::spawn(move || server.run());
    Running { handle, shelf, folder, address, thread }
}

impl Running {
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn disk(&self) -> &Disk {
        &self.shelf.disk
    }

    /// A client on the Unix socket.
    pub fn client(&self) -> Client {
        Client::unix(&self.socket())
    }

    /// A client that has opened the disk.
    pub fn opened(&self) -> Client {
        let mut client = self.client();
        client.open("disk");
        client
    }

    /// A client that has opened the disk and does not wait for replies, as the server knows: its
    /// requests are left to the workers.
    pub fn pipelining(&self) -> Client {
        let mut client = self.opened();
        self.let_pipeline(&mut client);
        client
    }

    /// Sends requests before the replies of others until the server leaves them to the workers.
    pub fn let_pipeline(&self, client: &mut Client) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.disk().shut(true);
            let first = client.ask_read(0, BLOCK);
            self.disk().until_waiting(1);
            let second = client.ask_read(0, BLOCK);
            self.disk().shut(false);
            assert_eq!([first, second].map(|cookie| client.error_of(cookie)), [0, 0]);
            if self.disk().thread() == WORKER {
                return;
            }
            assert!(Instant::now() < until, "it goes on performing one request at a time");
        }
    }

    /// Waits until its counters are like this.
    pub fn until(&self, is_there: impl Fn(&Counters) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_there(&self.handle.counters()) {
            assert!(Instant::now() < until, "{:?}", self.handle.counters());
            std::thread::yield_now();
        }
    }

    /// Waits until it has stopped by itself.
    pub fn join(self) -> Stopped {
        self.thread.join().expect("no panic").expect("the server ran")
    }

    /// Stops it, and checks that nothing is left.
    pub fn stop(self) {
        self.handle.stop();
        let stopped = self.join();
        assert_eq!(stopped, Stopped { connections_left: 0, requests_left: 0 });
    }
}
