//! Limits: connections, the time of the handshake, and settings that cannot work.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use upsweep_nbd::server::{Listen, Server, ServerConfig};
use upsweep_nbd::{Config, TlsMode};

use crate::PATIENCE;
use crate::client::{self, Client};
use crate::disk::{BLOCK, Shelf};
use crate::running::{start, start_with};
use crate::wire;

#[test]
fn a_connection_too_many_is_closed_and_a_place_is_free_again() {
    let running = start_with(|config| config.connections_max = 2);
    let (first, mut second) = (running.opened(), running.opened());
    let mut third = Client::on(Box::new(client::unix(&running.socket())));
    assert!(third.is_closed());
    assert_eq!(second.content(0, BLOCK), [0; BLOCK]);
    assert_eq!(running.handle.counters().connections_refused, 1);
    first.leave();
    let until = Instant::now() + PATIENCE;
    let mut third = loop {
        let mut client = Client::on(Box::new(client::unix(&running.socket())));
        if client.greet().is_ok() {
            break client;
        }
        assert!(Instant::now() < until, "no place became free");
    };
    third.open("disk");
    assert_eq!(third.content(0, BLOCK), [0; BLOCK]);
    running.stop();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended_and_an_idle_client_is_not() {
    let running = start_with(|config| config.handshake_time_max = Duration::from_millis(300));
    let mut idle = running.opened();
    let mut clients = [running.client(), Client::tcp(running.address), running.client()];
    // One does not even finish an option.
    clients[2].send(&wire::option(7, &wire::info("disk", &[]))[..20]);
    for client in &mut clients {
        assert!(client.is_closed());
    }
    assert_eq!(running.shelf.until_closed(3), ["the handshake took too long"; 3]);
    assert_eq!(running.handle.counters().handshakes_late, 3);
    assert_eq!(idle.content(0, BLOCK), [0; BLOCK]);
    running.stop();
}

#[test]
fn a_request_waits_as_long_as_the_device_says_and_keeps_no_worker() {
    let running = start_with(|config| config.workers = 1);
    let (mut slow, mut quick) = (running.opened(), running.opened());
    running.disk().delay_by(Duration::from_millis(300));
    let began = Instant::now();
    let cookies = [slow.ask_write(0, &[7; BLOCK]), slow.ask_read(0, BLOCK)];
    running.disk().until_delayed(2);
    running.disk().delay_by(Duration::ZERO);
    assert_eq!(quick.content(0, BLOCK), [0; BLOCK]);
    // Behind those that wait, and therefore not at once.
    let flush = slow.ask_flush();
    for cookie in cookies.into_iter().chain([flush]) {
        assert_eq!(slow.error_of(cookie), 0);
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(quick.content(0, BLOCK), [7; BLOCK]);
    running.stop();
}

#[test]
fn requests_that_wait_are_performed_when_the_server_stops_and_dropped_with_their_client() {
    let running = start();
    let (mut staying, mut leaving) = (running.opened(), running.opened());
    running.disk().delay_by(Duration::MAX);
    let cookie = staying.ask_write(0, &[7; BLOCK]);
    leaving.ask_write(BLOCK, &[8; BLOCK]);
    running.disk().until_delayed(2);
    running.until(|counters| counters.connections_open == 2);
    drop(leaving);
    running.until(|counters| counters.connections_open == 1);
    assert_eq!(running.disk().cancelled(), 1);
    running.handle.stop();
    assert_eq!(staying.error_of(cookie), 0);
    let content = running.disk().content();
    assert_eq!((content[0], content[BLOCK]), (7, 0));
    assert_eq!(running.disk().cancelled(), 1);
    running.join();
}

#[test]
fn a_client_that_never_stops_asking_has_no_more_time_than_others() {
    let running = start_with(|config| config.handshake_time_max = Duration::from_millis(300));
    // So that the next one is always there.
    running.disk().slow_down(Duration::from_micros(50));
    let stream = client::unix(&running.socket());
    let mut client = Client::on(Box::new(stream.try_clone().expect("a socket")));
    client.greet().expect("greeted");
    let mut output = stream.try_clone().expect("a socket");
    let asking = std::thread::spawn(move || {
        let asked = wire::option(client::OPT_LIST, &[]).repeat(4096);
        while output.write_all(&asked).is_ok() {}
    });
    let (mut replies, until) = (stream, Instant::now() + PATIENCE);
    while replies.read(&mut [0; 1 << 16]).is_ok_and(|count| count > 0) {
        assert!(Instant::now() < until, "it goes on being served");
    }
    asking.join().expect("no panic");
    assert_eq!(running.shelf.until_closed(1), ["the handshake took too long"]);
    running.stop();
}

#[test]
fn a_client_does_not_get_all_workers() {
    let running = start_with(|config| config.workers = 3);
    let (mut greedy, mut other) = (running.pipelining(), running.pipelining());
    running.disk().shut(true);
    let cookies: Vec<u64> = (0..4).map(|_| greedy.ask_durable_write(0, &[1; BLOCK])).collect();
    running.until(|counters| counters.requests_in_flight == 4);
    running.disk().until_waiting(2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(running.disk().waiting(), 2, "the third worker is for others");
    let cookie = other.ask_durable_write(BLOCK, &[2; BLOCK]);
    running.disk().until_waiting(3);
    running.disk().shut(false);
    assert_eq!(other.error_of(cookie), 0);
    let mut answered: Vec<u64> = cookies.iter().map(|_| greedy.answer().cookie).collect();
    answered.sort_unstable();
    assert_eq!(answered, cookies);
    running.stop();
}

#[test]
fn flushes_of_one_client_do_not_pass_what_others_ask_for() {
    let running = start_with(|config| config.workers = 1);
    let (mut flushing, mut other) = (running.pipelining(), running.pipelining());
    assert_eq!(flushing.content(0, BLOCK), [0; BLOCK]);
    running.disk().shut(true);
    let first = flushing.ask_flush();
    running.disk().until_waiting(1);
    let second = flushing.ask_flush();
    running.until(|counters| counters.requests_in_flight == 2);
    let written = other.ask_write(0, &vec![3; 70_000]);
    running.until(|counters| counters.requests_in_flight == 3);
    running.disk().shut(false);
    assert_eq!([first, second].map(|cookie| flushing.error_of(cookie)), [0, 0]);
    assert_eq!(other.error_of(written), 0);
    assert_eq!(running.disk().stable()[0], 3, "it comes before the second flush");
    running.stop();
}

#[test]
fn settings_that_cannot_work_are_named() {
    let good = || ServerConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())]);
    let message = |config| {
        let shelf = std::sync::Arc::new(Shelf::new());
        Server::bind(config, shelf).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(message(good()), "");
    let nowhere = ServerConfig::new(Vec::new());
    assert_eq!(message(nowhere), "no address to listen on: name at least one");
    let none = ServerConfig { connections_max: 0, ..good() };
    assert_eq!(message(none), "connections_max is 0: it has to be at least 1");
    let none = ServerConfig { workers: 0, ..good() };
    assert_eq!(message(none), "workers is 0: it has to be at least 1");
    let session = Config { requests_in_flight_max: 0, ..Config::default() };
    let session = ServerConfig { session, ..good() };
    assert_eq!(message(session), "requests_in_flight_max is 0: correct this setting");
    let session = Config { tls: TlsMode::Required, ..Config::default() };
    let unencrypted = ServerConfig { session, ..good() };
    assert!(message(unencrypted).starts_with("TLS is on, but there is no certificate"));
    let taken = start();
    let listen = vec![Listen::Tcp(taken.address.to_string())];
    let text = message(ServerConfig { listen, ..good() });
    assert!(text.starts_with(&format!("cannot listen on {}", taken.address)), "{text}");
    let listen = vec![Listen::Inherited];
    let text = message(ServerConfig { listen, ..good() });
    assert!(text.starts_with("no sockets were passed to this process"), "{text}");
    taken.stop();
}

#[test]
fn places_to_listen_are_read_and_written_alike() {
    for text in ["localhost:10809", "[::]:10809", "unix:/run/upsweep", "systemd"] {
        let Ok(listen) = text.parse::<Listen>();
        assert_eq!(listen.to_string(), text);
    }
    assert_eq!("unix:a".parse(), Ok(Listen::Unix("a".into())));
}
