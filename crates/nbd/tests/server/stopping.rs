//! How a server stops.

use std::time::Duration;

use upsweep_nbd::server::Stopped;

use crate::client::{Client, OPT_LIST, unix};
use crate::disk::BLOCK;
use crate::running::{start, start_with};

const ESHUTDOWN: u32 = 108;

#[test]
fn requests_in_flight_are_finished_and_later_ones_refused() {
    let running = start();
    let mut client = running.pipelining();
    let mut handshaking = running.client();
    let idle = running.opened();
    running.disk().shut(true);
    let early = client.ask_durable_write(0, &[5; BLOCK]);
    running.disk().until_waiting(1);
    running.handle.stop();
    // The sockets are closed before connections are told.
    assert!(handshaking.is_closed());
    assert!(!running.socket().exists());
    let late = [client.ask_write(BLOCK, &[6; BLOCK]), client.ask_read(0, BLOCK)];
    for cookie in late {
        assert_eq!(client.error_of(cookie), ESHUTDOWN);
    }
    running.disk().shut(false);
    assert_eq!(client.error_of(early), 0);
    assert!(client.is_closed());
    let content = running.disk().content();
    assert_eq!((content[0], content[BLOCK]), (5, 0));
    assert!({ idle }.is_closed());
    let shelf = std::sync::Arc::clone(&running.shelf);
    assert_eq!(running.join(), Stopped { connections_left: 0, requests_left: 0 });
    assert_eq!(shelf.until_closed(3), ["the server stopped"; 3]);
}

#[test]
fn a_write_whose_payload_is_coming_is_finished() {
    let running = start();
    let mut client = running.opened();
    let cookie_bytes = 99_u64.to_be_bytes();
    let mut header = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
    header.extend(cookie_bytes);
    header.extend([0; 8]);
    header.extend(1024_u32.to_be_bytes());
    client.send(&header);
    client.send(&[8; 1000]);
    // The flags, the option, the header and most of the payload.
    running.until(|counters| counters.received_bytes == 4 + 16 + 10 + 28 + 1000);
    running.handle.stop();
    client.send(&[8; 24]);
    assert_eq!(client.read(16)[4..], [[0; 4].as_slice(), &cookie_bytes].concat());
    assert!(client.is_closed());
    assert_eq!(running.disk().content()[..1024], [8; 1024]);
    running.join();
}

#[test]
fn a_device_that_hangs_delays_the_end_only_so_long() {
    let running = start_with(|config| {
        config.drain_time_max = Duration::from_millis(50);
        // Two of them for one client.
        config.workers = 3;
    });
    let mut client = running.pipelining();
    running.disk().shut(true);
    for slot in 0..5 {
        client.ask_durable_write(slot * BLOCK, &[1; BLOCK]);
    }
    running.disk().until_waiting(2);
    running.until(|counters| counters.requests_in_flight == 5);
    running.handle.stop();
    let shelf = std::sync::Arc::clone(&running.shelf);
    let handle = running.handle.clone();
    let stopped = running.join();
    assert_eq!(stopped.connections_left, 1);
    // Two are with the device; those that wait behind them are in vain.
    assert_eq!(stopped.requests_left, 5);
    assert!(client.is_closed());
    shelf.disk.shut(false);
    assert_eq!(shelf.until_closed(1), ["the server stopped"]);
    assert_eq!(handle.counters().requests_in_flight, 0);
    assert_eq!(shelf.disk.content()[..6 * BLOCK].iter().filter(|byte| **byte == 1).count(), 1024);
}

#[test]
fn a_lone_request_that_hangs_delays_the_end_no_longer() {
    let running = start_with(|config| config.drain_time_max = Duration::from_millis(50));
    let mut client = running.opened();
    running.disk().shut(true);
    let cookie = client.ask_write(0, &[1; BLOCK]);
    running.disk().until_waiting(1);
    running.handle.stop();
    let shelf = std::sync::Arc::clone(&running.shelf);
    assert_eq!(running.join(), Stopped { connections_left: 1, requests_left: 1 });
    shelf.disk.shut(false);
    assert_eq!(client.error_of(cookie), 0);
    assert!(client.is_closed());
    assert_eq!(shelf.until_closed(1), ["the server stopped"]);
}

#[test]
fn a_server_that_was_stopped_before_it_ran_returns() {
    let running = start();
    running.stop();
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("socket");
    let listen = vec![upsweep_nbd::server::Listen::Unix(path.clone())];
    let config = upsweep_nbd::server::ServerConfig::new(listen);
    let shelf = std::sync::Arc::new(crate::disk::Shelf::new());
    let server = upsweep_nbd::server::Server::bind(config, shelf).expect("a server");
    server.handle().stop();
    let waiting = unix(&path);
    server.run().expect("it returns");
    assert!(Client::on(Box::new(waiting)).is_closed());
}

#[test]
fn a_client_in_the_handshake_is_refused_what_it_asks_at_the_end() {
    let running = start();
    let mut client = running.client();
    assert_eq!(client.last(OPT_LIST, &[]), 1);
    running.handle.stop();
    assert!(client.is_closed());
    running.join();
}
