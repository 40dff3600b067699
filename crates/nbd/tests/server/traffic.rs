//! Many clients at once, each against an oracle of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use upsweep_nbd::server::{Address, Counters, Kind};

use crate::PATIENCE;
use crate::client::{CACHE, Client, FUA, OPT_LIST, Payload, READ, TRIM, WRITE, WRITE_ZEROES};
use crate::disk::{ACCEPTED, BAD, BLOCK, CONNECTION, PANIC, SIZE, WORKER};
use crate::running::{Running, start, start_with};

const CLIENTS: usize = 8;
const SLOTS: usize = 8;
/// Slots of all clients, and room at the end where the disk has its faults.
const SLOT_BYTES: usize = SIZE / 2 / CLIENTS / SLOTS;
const STEPS: usize = 400;

/// A client with a range of the disk, in slots that have one request in flight at a time.
struct Worker<'a> {
    client: Client,
    random: TestRng,
    base: usize,
    oracle: Vec<u8>,
    /// By cookie: the slot, and what to expect of a read.
    flying: BTreeMap<u64, (usize, Option<Vec<u8>>)>,
    running: &'a Running,
}

impl Worker<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.random.next_u64() as usize % bound
    }

    fn free_slot(&mut self) -> Option<usize> {
        let is_free = |slot: &usize| self.flying.values().all(|(taken, _)| taken != slot);
        let free: Vec<usize> = (0..SLOTS).filter(is_free).collect();
        (!free.is_empty()).then(|| free[self.below(free.len())])
    }

    fn ask(&mut self, slot: usize) {
        let start = slot * SLOT_BYTES + self.below(SLOT_BYTES);
        let length = 1 + self.below((slot + 1) * SLOT_BYTES - start);
        let (at, range) = (self.base + start, start..start + length);
        let flags = if self.below(4) == 0 { FUA } else { 0 };
        let (kind, expected) = match self.below(8) {
            0..3 => (READ, Some(self.oracle[range].to_vec())),
            3..6 => (WRITE, None),
            6 => (WRITE_ZEROES, None),
            _ => ([TRIM, CACHE][self.below(2)], None),
        };
        let start_byte = self.below(251);
        let cookie = match kind {
            WRITE => {
                let data: Vec<u8> = (0..length).map(|at| (start_byte + at) as u8).collect();
                self.oracle[start..start + length].copy_from_slice(&data);
                self.client.ask(kind, flags, at, Payload::Data(&data))
            }
            WRITE_ZEROES | TRIM => {
                self.oracle[start..start + length].fill(0);
                self.client.ask(kind, flags, at, Payload::Length(length))
            }
            _ => self.client.ask(kind, flags, at, Payload::Length(length)),
        };
        self.flying.insert(cookie, (slot, expected));
    }

    fn take_answer(&mut self) -> u64 {
        let answer = self.client.answer();
        assert_eq!(answer.error, 0);
        if let Some((_, Some(expected))) = self.flying.remove(&answer.cookie) {
            assert!(answer.data == expected, "another content");
        }
        answer.cookie
    }

    /// Whatever was answered before the flush was sent is on stable media when it is answered.
    fn flush(&mut self) {
        let busy: Vec<usize> = self.flying.values().map(|(slot, _)| *slot).collect();
        let flush = self.client.ask_flush();
        while self.take_answer() != flush {}
        let stable = self.running.disk().stable();
        for slot in (0..SLOTS).filter(|slot| !busy.contains(slot)) {
            let range = slot * SLOT_BYTES..(slot + 1) * SLOT_BYTES;
            let there = &stable[self.base + range.start..self.base + range.end];
            assert!(*there == self.oracle[range], "slot {slot} is not on stable media");
        }
    }

    fn work(mut self) {
        for _ in 0..STEPS {
            match self.below(20) {
                0 => self.flush(),
                1..5 if !self.flying.is_empty() => {
                    self.take_answer();
                }
                _ => match self.free_slot() {
                    Some(slot) => self.ask(slot),
                    None => {
                        self.take_answer();
                    }
                },
            }
        }
        while !self.flying.is_empty() {
            self.take_answer();
        }
        let all = self.client.content(self.base, SLOTS * SLOT_BYTES);
        assert!(all == self.oracle, "another content at the end");
        self.client.leave();
    }
}

fn many_clients(running: &Running) {
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = match number % 2 {
                    0 => Client::unix(&running.socket()),
                    _ => Client::tcp(running.address),
                };
                client.open(if number % 3 == 0 { "" } else { "disk" });
                let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[number as u8; 32]);
                let base = number * SLOTS * SLOT_BYTES;
                let (oracle, flying) = (vec![0; SLOTS * SLOT_BYTES], BTreeMap::new());
                Worker { client, random, base, oracle, flying, running }.work();
            });
        }
    });
}

#[test]
fn many_clients_read_what_they_wrote_and_flushes_cover_it() {
    let running = start();
    many_clients(&running);
    let closed = running.shelf.until_closed(CLIENTS);
    assert!(closed.iter().all(|how| how == "the client left"), "{closed:?}");
    let counters = running.handle.counters();
    assert_eq!(counters.connections_accepted, CLIENTS as u64);
    assert_eq!(counters.requests_in_flight, 0);
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::BlockStatus) {
        let requests = counters.of(kind);
        assert!(requests.answered > 0 && requests.failed == 0, "{kind:?}: {requests:?}");
        assert_eq!(requests.latency.counts.iter().sum::<u64>(), requests.answered);
    }
    let payload = counters.of(Kind::Write).bytes;
    assert!(counters.received_bytes > payload && payload > 0);
    assert!(counters.sent_bytes > counters.of(Kind::Read).bytes);
    running.stop();
}

#[test]
fn one_worker_and_one_request_at_a_time_suffice() {
    let running = start_with(|config| {
        config.workers = 1;
        config.session.requests_in_flight_max = 1;
    });
    many_clients(&running);
    running.stop();
}

#[test]
fn exports_are_listed_and_clients_are_known() {
    let running = start();
    let mut client = running.client();
    assert_eq!(client.option(OPT_LIST, &[]), [2, 1]);
    client.open("disk");
    client.leave();
    let mut client = Client::tcp(running.address);
    client.open("disk");
    client.leave();
    let peers = running.shelf.opened();
    let user = rustix::process::getuid().as_raw();
    assert_eq!(peers[0].address, Address::Unix { user: Some(user) });
    assert!(matches!(peers[1].address, Address::Tcp(address) if address.ip().is_loopback()));
    assert!(peers.iter().all(|peer| !peer.is_encrypted && peer.names.is_empty()));
    running.stop();
}

#[test]
fn a_durable_write_is_on_stable_media_when_it_is_answered() {
    let running = start();
    let mut client = running.opened();
    let cookie = client.ask_durable_write(4096, &[7; 512]);
    assert_eq!(client.error_of(cookie), 0);
    assert_eq!(running.disk().stable()[4096..4608], [7; 512]);
    let cookie = client.ask(WRITE, 0, 8192, Payload::Data(&[7; 512]));
    assert_eq!(client.error_of(cookie), 0);
    assert_eq!(running.disk().stable()[8192..8704], [0; 512]);
    client.leave();
    running.stop();
}

#[test]
fn a_client_that_waits_for_replies_is_served_by_its_connection_alone() {
    let running = start();
    let mut client = running.opened();
    for slot in 0..100 {
        let cookie = match slot % 3 {
            0 => client.ask_write(slot * BLOCK, &[7; BLOCK]),
            1 => client.ask_read(slot * BLOCK, BLOCK),
            _ => client.ask_flush(),
        };
        assert_eq!(client.error_of(cookie), 0);
        assert_eq!(running.disk().thread(), CONNECTION, "request {slot}");
    }
    // These may take long.
    for kind in [TRIM, WRITE_ZEROES] {
        let cookie = client.ask(kind, 0, 0, Payload::Length(BLOCK));
        assert_eq!((client.error_of(cookie), running.disk().thread()), (0, WORKER));
    }
    client.leave();
    running.stop();
}

#[test]
fn a_client_that_does_not_wait_for_a_reply_is_served_in_parallel_from_then_on() {
    let running = start();
    for mut client in [running.client(), Client::tcp(running.address)] {
        client.open("disk");
        for _ in 0..2 {
            running.let_pipeline(&mut client);
            // One after another, as long as it stays the same client.
            for _ in 0..5 {
                running.disk().shut(true);
                let cookies: Vec<u64> = (0..4)
                    .map(|nth| {
                        let cookie = client.ask_read(nth * BLOCK, BLOCK);
                        running.disk().until_waiting(nth + 1);
                        cookie
                    })
                    .collect();
                running.disk().shut(false);
                let mut answered: Vec<u64> = (0..4).map(|_| client.answer().cookie).collect();
                answered.sort_unstable();
                assert_eq!(answered, cookies);
            }
            // It waits for replies again.
            let lone = (0..100).position(|_| {
                client.content(0, BLOCK);
                running.disk().thread() == CONNECTION
            });
            assert!(lone.is_some_and(|requests| requests > 0), "{lone:?}");
        }
        client.leave();
    }
    running.stop();
}

/// Asks for writes, each before the reply of the one before, until such a thread performs them.
fn write_until(running: &Running, client: &mut Client, thread: &str) {
    let until = Instant::now() + PATIENCE;
    while running.disk().thread() != thread {
        assert!(Instant::now() < until, "no {thread} performs a write");
        let asked = [0, 1].map(|slot| client.ask_write(slot * BLOCK, &[3; BLOCK]));
        let mut answered = [client.answer(), client.answer()].map(|answer| answer.cookie);
        answered.sort_unstable();
        assert_eq!(answered, asked);
    }
}

#[test]
fn short_writes_are_performed_by_the_connection_unless_they_take_long() {
    let running = start();
    let mut client = running.pipelining();
    for _ in 0..2 {
        write_until(&running, &mut client, CONNECTION);
        running.disk().slow_down(Duration::from_millis(1));
        write_until(&running, &mut client, WORKER);
        running.disk().slow_down(Duration::ZERO);
    }
    write_until(&running, &mut client, CONNECTION);
    // Others may take long.
    running.let_pipeline(&mut client);
    let long = client.ask_write(0, &vec![3; 70_000]);
    assert_eq!((client.error_of(long), running.disk().thread()), (0, WORKER));
    let durable = client.ask_durable_write(0, &[3; BLOCK]);
    assert_eq!((client.error_of(durable), running.disk().thread()), (0, WORKER));
    client.leave();
    running.stop();
}

#[test]
fn flushes_that_come_during_another_one_are_performed_together() {
    let running = start();
    let mut client = running.pipelining();
    let before = running.disk().flushes();
    running.disk().shut(true);
    let first = client.ask_flush();
    running.disk().until_waiting(1);
    let others: Vec<u64> = (0..10).map(|_| client.ask_flush()).collect();
    running.until(|counters| counters.requests_in_flight == 11);
    running.disk().shut(false);
    let mut answered: Vec<u64> = (0..11).map(|_| client.answer().cookie).collect();
    answered.sort_unstable();
    assert_eq!(answered, [vec![first], others].concat());
    assert_eq!(running.disk().flushes() - before, 2);
    assert_eq!(running.handle.counters().requests_in_flight, 0);
    client.leave();
    running.stop();
}

#[test]
fn short_reads_that_wait_are_performed_together_and_fail_alone() {
    let running = start();
    let mut client = running.pipelining();
    let before = running.disk().reads().len();
    running.disk().shut(true);
    let sound: Vec<u64> = (0..98).map(|_| client.ask_read(BLOCK, BLOCK)).collect();
    let failing = [BAD, PANIC].map(|offset| client.ask_read(offset, BLOCK));
    running.until(|counters| counters.requests_in_flight == 100);
    running.disk().shut(false);
    let mut answered: Vec<(u64, bool)> = (0..100)
        .map(|_| client.answer())
        .map(|answer| (answer.cookie, answer.error == 0))
        .collect();
    answered.sort_unstable();
    let sound = sound.into_iter().map(|cookie| (cookie, true));
    let expected: Vec<(u64, bool)> = sound.chain(failing.map(|cookie| (cookie, false))).collect();
    assert_eq!(answered, expected);
    let together = running.disk().reads()[before..].to_vec();
    // At most 16 are begun at once, and then eight at a time.
    assert!(together.len() <= 45 && together.iter().sum::<usize>() == 100, "{together:?}");
    assert_eq!(running.handle.counters().requests_in_flight, 0);
    client.leave();
    running.stop();
}

#[test]
fn a_client_gets_its_reply_when_a_write_is_accepted_and_its_connection_ends_when_it_is_over() {
    let running = start();
    let mut client = running.opened();
    running.disk().hold(true);
    for nth in 0..4_u8 {
        let write = client.ask_write(usize::from(nth) * ACCEPTED, &[nth + 1; ACCEPTED]);
        assert_eq!(client.error_of(write), 0);
    }
    let flush = client.ask_flush();
    assert_eq!(client.error_of(flush), 0);
    assert_eq!(client.content(3 * ACCEPTED, ACCEPTED), [4; ACCEPTED]);
    let counters = running.handle.counters();
    assert_eq!((counters.of(Kind::Write).answered, counters.requests_in_flight), (4, 0));
    client.leave();
    let is_open = |counters: &Counters| counters.connections_open == 1;
    std::thread::sleep(Duration::from_millis(50));
    assert!(is_open(&running.handle.counters()), "its writes are not over");
    running.disk().hold(false);
    running.shelf.until_closed(1);
    running.stop();
}

#[test]
fn a_write_that_fails_before_it_is_accepted_fails_and_later_it_does_not() {
    let running = start();
    let mut client = running.opened();
    let bad = client.ask_write(BAD + BLOCK - ACCEPTED, &[1; ACCEPTED]);
    assert_ne!(client.error_of(bad), 0);
    let panicking = client.ask_write(PANIC - ACCEPTED + BLOCK, &[1; ACCEPTED]);
    assert_eq!(client.error_of(panicking), 0);
    let good = client.ask_write(0, &[1; ACCEPTED]);
    assert_eq!(client.error_of(good), 0);
    client.leave();
    running.shelf.until_closed(1);
    running.stop();
}
