//! Unix sockets that others have, or had.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tempfile::TempDir;
use upsweep_nbd::server::{Listen, Server, ServerConfig, ServerError};

use crate::client::Client;
use crate::disk::Shelf;
use crate::running::start;

fn bind(path: &std::path::Path) -> Result<Server, ServerError> {
    let config = ServerConfig::new(vec![Listen::Unix(path.to_owned())]);
    Server::bind(config, Arc::new(Shelf::new()))
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let server = bind(&path).expect("the old socket does not matter");
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run());
    Client::unix(&path).open("disk");
    handle.stop();
    thread.join().expect("no panic").expect("the server ran");
    assert!(!path.exists());
}

#[test]
fn a_socket_that_a_server_listens_on_stays() {
    let running = start();
    let (path, _folder) = (running.socket(), Arc::clone(&running.folder));
    assert!(matches!(bind(&path), Err(ServerError::InUse(taken)) if taken == path));
    running.opened().leave();
    running.stop();
    assert!(!path.exists());
    // One that accepts nothing, whose queue is full, counts too.
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("busy");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
    let listener = listener.expect("a socket");
    let address = SocketAddrUnix::new(&path).expect("a short path");
    rustix::net::bind(&listener, &address).expect("a socket");
    rustix::net::listen(&listener, 0).expect("a socket");
    for _ in 0..3 {
        assert!(matches!(bind(&path), Err(ServerError::InUse(_))));
    }
    assert!(path.exists());
}

#[test]
fn what_is_no_socket_stays() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, "precious").expect("a file");
    assert!(matches!(bind(&path), Err(ServerError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "precious");
    let path = folder.path().join("nowhere/socket");
    assert!(matches!(bind(&path), Err(ServerError::Listen { .. })));
}

#[test]
fn a_socket_that_took_the_place_of_its_own_is_not_removed() {
    let running = start();
    let (path, _folder) = (running.socket(), Arc::clone(&running.folder));
    std::fs::remove_file(&path).expect("its socket");
    let other = UnixListener::bind(&path).expect("another socket");
    running.stop();
    assert!(path.exists());
    drop(other);
}

#[test]
fn a_folder_that_somebody_keeps_locked_is_not_waited_for_without_end() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("socket");
    let locked = std::fs::File::open(folder.path()).expect("the folder");
    locked.lock().expect("nobody has it");
    let Err(error) = bind(&path) else { panic!("it has a socket") };
    assert!(error.to_string().contains("another process keeps its folder locked"), "{error}");
    locked.unlock().expect("it was locked");
    bind(&path).expect("nobody has it any more");
}
