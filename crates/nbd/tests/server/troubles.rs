//! Devices and clients that fail.

use std::io::{Read, Write};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use upsweep_nbd::server::Kind;

use crate::client::{
    self, ACK, BLOCK_STATUS, Client, OPT_ABORT, OPT_GO, OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY,
    Payload, WRITE,
};
use crate::disk::{BAD, BLOCK, PANIC, SIZE};
use crate::running::start;
use crate::wire::{self, Asked, Form};

const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

#[test]
fn faults_of_the_device_fail_their_request_alone() {
    let running = start();
    let mut client = running.opened();
    let cookie = client.ask_read(BAD, BLOCK);
    assert_eq!(client.error_of(cookie), EIO);
    let cookie = client.ask_write(BAD, &[1; BLOCK]);
    assert_eq!(client.error_of(cookie), ENOSPC);
    let cookie = client.ask_read(PANIC, BLOCK);
    assert_eq!(client.error_of(cookie), EIO);
    assert_eq!(client.content(0, BLOCK), [0; BLOCK]);
    client.leave();
    let counters = running.handle.counters();
    assert_eq!((counters.of(Kind::Read).failed, counters.of(Kind::Write).failed), (2, 1));
    assert_eq!(counters.of(Kind::Read).bytes, BLOCK as u64);
    running.stop();
}

/// Everything that the server sends until it closes the connection.
fn rest(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).expect("the server closes");
    bytes
}

#[test]
fn a_failed_read_brings_what_is_before_and_a_device_without_status_is_an_error() {
    let running = start();
    let mut client = running.opened();
    let cookie = client.ask_write(BAD - 100, &[7; 100]);
    assert_eq!(client.error_of(cookie), 0);
    client.leave();
    let mut client = running.client();
    assert_eq!(client.last(OPT_STRUCTURED_REPLY, &[]), ACK);
    let contexts = wire::queries("disk", &["base:allocation", "qemu:allocation-depth"]);
    assert_eq!(client.option(OPT_SET_META_CONTEXT, &contexts), [4, 4, ACK]);
    client.open("disk");
    let asked = |cookie, kind, offset: usize, length: usize| Asked {
        flags: 0,
        kind,
        cookie,
        offset: offset as u64,
        length: length as u64,
        payload: Vec::new(),
    };
    let requests = [asked(1, 0, BAD - 100, 300), asked(2, BLOCK_STATUS, 0, 512)];
    for request in &requests {
        client.send(&wire::request(Form::Structured, request));
    }
    client.send(&wire::request(Form::Structured, &asked(3, client::DISC, 0, 0)));
    let replies = wire::replies(Form::Structured, &requests, &rest(&mut client)).expect("replies");
    assert_eq!(replies[&1].error, Some((EIO, Some(BAD as u64))));
    assert_eq!(replies[&1].data, [7; 100]);
    assert_eq!(replies[&2].error, Some((EIO, None)));
    running.stop();
}

#[test]
fn a_client_that_ends_its_output_still_gets_its_answers() {
    let running = start();
    for mut client in [running.client(), Client::tcp(running.address)] {
        client.open("disk");
        running.let_pipeline(&mut client);
        running.disk().shut(true);
        let cookies = [client.ask_durable_write(0, &[9; 4096]), client.ask_read(65536, 100_000)];
        client.stream.end_output();
        running.disk().until_waiting(2);
        running.disk().shut(false);
        let mut answers = [client.answer(), client.answer()];
        answers.sort_by_key(|answer| answer.cookie);
        assert_eq!(answers.each_ref().map(|answer| answer.cookie), cookies);
        assert_eq!(answers.each_ref().map(|answer| answer.error), [0, 0]);
        assert!(client.is_closed());
    }
    let closed = running.shelf.until_closed(2);
    assert_eq!(closed, ["the client hung up"; 2]);
    running.stop();
}

/// Half of a write, as bytes.
fn half_a_write() -> Vec<u8> {
    let payload = vec![1; 100_000];
    let asked = Asked { flags: 0, kind: WRITE, cookie: 77, offset: 0, length: 100_000, payload };
    let mut bytes = wire::request(Form::Simple, &asked);
    bytes.truncate(50_000);
    bytes
}

#[test]
fn half_a_write_is_none() {
    let running = start();
    // A client that still listens is told.
    let mut client = running.opened();
    client.send(&half_a_write());
    client.stream.end_output();
    let reply = rest(&mut client);
    assert_eq!((reply.len(), u32::from(reply[7]), reply[15]), (16, EINVAL, 77));
    // Others vanish.
    for mut client in [running.client(), Client::tcp(running.address)] {
        client.open("disk");
        client.send(&half_a_write());
        drop(client);
    }
    running.shelf.until_closed(3);
    assert_eq!(running.handle.counters().of(Kind::Write).answered, 0);
    assert!(running.disk().content() == vec![0; SIZE]);
    running.stop();
}

#[test]
fn a_client_that_vanishes_with_requests_in_flight_leaves_nothing_behind() {
    let running = start();
    let mut clients = [running.pipelining(), running.pipelining(), running.pipelining()];
    running.disk().shut(true);
    for client in &mut clients {
        for slot in 0..20 {
            client.ask_durable_write(slot * BLOCK, &[1; BLOCK]);
        }
    }
    // All workers have something, the rest is in the queue.
    running.disk().until_waiting(16);
    running.until(|counters| counters.requests_in_flight == 60);
    drop(clients);
    running.disk().shut(false);
    running.shelf.until_closed(3);
    let counters = running.handle.counters();
    assert_eq!(counters.requests_in_flight, 0);
    assert_eq!(running.opened().content(0, BLOCK).len(), BLOCK);
    running.stop();
}

#[test]
fn slow_clients_are_served_and_hold_up_nobody() {
    let running = start();
    let mut slow = Client::on(Box::new(client::tcp(running.address)));
    let mut greeting = [0; 18];
    slow.stream.read_exact(&mut greeting).expect("a greeting");
    let read = |cookie| Asked {
        flags: 0,
        kind: 0,
        cookie,
        offset: 0,
        length: SIZE as u64 / 2,
        payload: Vec::new(),
    };
    let mut bytes = wire::client_flags(3);
    bytes.extend(wire::option(OPT_GO, &wire::info("disk", &[])));
    (0..40).for_each(|cookie| bytes.extend(wire::request(Form::Simple, &read(cookie))));
    // One byte at a time, and no reply is read meanwhile.
    for byte in bytes {
        slow.stream.write_all(&[byte]).expect("the server receives");
    }
    let mut other = running.opened();
    let cookie = other.ask_write(0, &[3; BLOCK]);
    assert_eq!(other.error_of(cookie), 0);
    other.leave();
    // 20 MiB, in small pieces.
    let replies_bytes = 40 * (16 + SIZE / 2);
    let mut received = 0;
    let mut piece = vec![0; 1021];
    while received < replies_bytes {
        let count = slow.stream.read(&mut piece).expect("the server sends");
        assert!(count > 0);
        received += count;
    }
    running.stop();
}

#[test]
fn garbage_ends_its_connection_alone() {
    let running = start();
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let mut other = running.opened();
    let mut clients = 0;
    for round in 0..60 {
        let mut client = match round % 3 {
            0 => Client::on(Box::new(client::unix(&running.socket()))),
            1 => running.client(),
            _ => running.opened(),
        };
        let mut garbage = vec![0; 1 + random.next_u32() as usize % 5000];
        random.fill_bytes(&mut garbage);
        // The server may close before it has all.
        let _ = client.stream.write_all(&garbage);
        client.stream.end_output();
        let _ = client.stream.read_to_end(&mut Vec::new());
        clients += 1;
        assert_eq!(other.content(0, BLOCK).len(), BLOCK);
    }
    running.shelf.until_closed(clients);
    assert!(running.handle.counters().violations > 0);
    other.leave();
    running.stop();
}

#[test]
fn refusals_and_exports_that_fail_reach_the_client() {
    let running = start();
    let mut client = running.client();
    let policy = (1 << 31) + 2;
    let unknown = (1 << 31) + 6;
    for (name, error) in [("odd", policy), ("private", policy), ("nothing", unknown)] {
        assert_eq!(client.last(OPT_GO, &wire::info(name, &[])), error);
    }
    assert_eq!(client.last(OPT_ABORT, &[]), ACK);
    assert!(client.is_closed());
    // If the exports panic, that connection is closed, and its place is free again.
    let mut client = running.client();
    client.send(&wire::option(OPT_GO, &wire::info("panic", &[])));
    assert!(client.is_closed());
    let mut client = running.opened();
    let cookie = client.ask(WRITE, 0, SIZE - 1, Payload::Data(&[1, 2]));
    assert_eq!(client.error_of(cookie), ENOSPC);
    running.stop();
}
