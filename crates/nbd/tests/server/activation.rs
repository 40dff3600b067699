//! Sockets that the service manager passes.
//!
//! The test runs itself again as a process that inherits a socket, through a shell that knows its
//! own number and puts the socket where the service manager would.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use upsweep_nbd::server::{Listen, Server, ServerConfig, ServerError};

use crate::client::Client;
use crate::disk::{BLOCK, Shelf};

const CHILD: &str = "UPSWEEP_NBD_TEST_CHILD";
const SCRIPT: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

/// Serves on what it inherited, one client.
fn serve() {
    let shelf = Arc::new(Shelf::new());
    let config = ServerConfig::new(vec![Listen::Inherited]);
    let server = Server::bind(config.clone(), Arc::clone(&shelf) as _).expect("a socket");
    assert_eq!(server.tcp_addresses().len(), 1);
    let again = Server::bind(config, Arc::clone(&shelf) as _);
    assert!(matches!(again, Err(ServerError::NotActivated)));
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run());
    shelf.until_closed(1);
    handle.stop();
    thread.join().expect("no panic").expect("it served");
}

#[test]
fn a_socket_of_the_service_manager_is_served() {
    if std::env::var_os(CHILD).is_some() {
        serve();
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let mut child = Command::new("sh")
        .args(["-c", SCRIPT])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "activation::a_socket_of_the_service_manager_is_served"])
        .env(CHILD, "1")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let mut client = Client::tcp(address);
    client.open("disk");
    assert_eq!(client.content(0, BLOCK), [0; BLOCK]);
    client.leave();
    assert!(child.wait().expect("a process").success());
}
