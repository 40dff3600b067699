//! Scans and queries on a rotating drive: whose turn it is, and how much a scan reads in its own.

use super::ahead::{Reads, SHARE, offsets};
use crate::device::{DeviceId, Request};
use crate::engine::foreground::ForegroundRequests;
use crate::engine::io::IoKind;
use crate::engine::view::ScanId;
use crate::placement::Extent;

/// A drive on which scans take turns, with one request beside queries.
fn on_a_drive() -> Reads {
    let mut reads = Reads::new();
    let config = &mut reads.ground.base.config;
    config.scans_take_turns = true;
    config.scan_requests_beside_queries = 1;
    reads
}

/// What is submitted at a time, if so many queries have read, and one waits or not.
fn at(reads: &mut Reads, now_us: u64, begun: u64, are_waiting: bool) -> Vec<Request> {
    reads.ground.base.now_us = now_us;
    reads.queries = ForegroundRequests { begun, are_waiting };
    reads.requests()
}

/// A scan whose first request took 15 ms, until now, and a query that waits.
fn scan_beside_a_query(takes_turns: bool) -> (Reads, u64) {
    let mut reads = on_a_drive();
    reads.ground.base.config.scans_take_turns = takes_turns;
    let now_us = 1_000_000;
    reads.queries.are_waiting = true;
    let id = reads.scans.begin(0);
    reads.plan(id, 0, false, SHARE);
    let first = at(&mut reads, now_us - 15_000, 1, true);
    assert_eq!(first.len(), 1, "nothing was submitted before");
    reads.ground.base.now_us = now_us;
    first.into_iter().for_each(|request| reads.end(request));
    assert!(!reads.plan(id, 3, false, SHARE).parts.is_empty());
    (reads, now_us)
}

#[test]
fn after_a_request_of_a_scan_queries_have_a_drive_while_they_follow_each_other() {
    let (mut reads, start_us) = scan_beside_a_query(true);
    let mut held_until = |after_us, begun, are_waiting| {
        let requests = at(&mut reads, start_us + after_us, begun, are_waiting);
        let until_us = reads.scans.deadline_us().map(|until_us| until_us - start_us);
        assert_ne!(requests.is_empty(), until_us.is_none());
        until_us
    };
    assert_eq!(held_until(0, 1, true), Some(500));
    assert_eq!(held_until(3_000, 1, true), Some(3_500), "it still waits");
    assert_eq!(held_until(4_500, 1, false), Some(5_000), "it has ended just now");
    assert_eq!(held_until(4_999, 2, true), Some(5_499), "another follows");
    assert_eq!(held_until(7_000, 2, false), Some(7_500));
    assert_eq!(held_until(7_400, 3, false), Some(7_900), "one that was fast");
    assert_eq!(held_until(7_900, 3, false), None, "no other follows");
}

#[test]
fn queries_have_a_drive_no_longer_than_a_request_of_a_scan_had_it() {
    let (mut reads, start_us) = scan_beside_a_query(true);
    for after_us in (0..15_000).step_by(500) {
        assert!(at(&mut reads, start_us + after_us, 1, true).is_empty(), "{after_us}");
    }
    assert_eq!(reads.scans.deadline_us(), Some(start_us + 15_000));
    assert_eq!(at(&mut reads, start_us + 15_000, 1, true).len(), 1);
    assert_eq!(reads.scans.deadline_us(), None);
}

/// What queries do before a request of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    Nothing,
    /// One reads, and ends.
    Once,
    /// One reads after another, until the turn of queries is over.
    On,
}

/// Bytes of a request of one block, of two, and of four.
const SHORT: usize = 8 << 10;
const MIDDLE: usize = 16 << 10;
const LONG: usize = 32 << 10;

/// A scan on a drive, whose requests beside queries have such lengths.
fn scan_of_three_lengths() -> (Reads, ScanId) {
    let mut reads = on_a_drive();
    let config = &mut reads.ground.base.config;
    config.scan_request_bytes = LONG as u32;
    config.scan_request_bytes_beside_queries = MIDDLE as u32;
    config.scan_request_bytes_following = Some(SHORT as u32);
    reads.ground.base.now_us = 1_000_000;
    let id = reads.scans.begin(0);
    (reads, id)
}

/// The next request of this scan, once it is submitted.
fn next(reads: &mut Reads, id: ScanId, window_bytes: usize, query: Query) -> Request {
    let extent = Extent { device: DeviceId(0), offset: 0, bytes: 4096 };
    let mut begun = reads.queries.begun;
    if query != Query::Nothing {
        begun += 1;
        let _ = reads.ground.base.io.read_request(IoKind::View, None, extent);
        reads.queries.begun = begun;
    }
    reads.plan(id, 0, false, window_bytes);
    let mut now_us = reads.ground.base.now_us;
    loop {
        match at(reads, now_us, begun, query == Query::On).pop() {
            Some(request) => return request,
            None => now_us += 100,
        }
    }
}

/// Ends a request so long after it was submitted; the scan holds the bytes that are returned.
fn end_after(reads: &mut Reads, request: Request, us: u64) -> usize {
    reads.ground.base.now_us += us;
    let (_, bytes) = offsets(std::slice::from_ref(&request))[0];
    reads.end(request);
    bytes
}

/// Bytes of the next request of this scan, which takes 1 ms.
fn next_bytes(reads: &mut Reads, id: ScanId, window_bytes: usize, query: Query) -> usize {
    let request = next(reads, id, window_bytes, query);
    end_after(reads, request, 1_000)
}

#[test]
fn a_request_is_short_where_the_head_is_and_long_if_queries_use_all_of_two_turns() {
    let (mut reads, id) = scan_of_three_lengths();
    let wanted = [
        (Query::Once, MIDDLE),
        (Query::Nothing, SHORT),
        (Query::Nothing, SHORT),
        (Query::Once, MIDDLE),
        (Query::On, MIDDLE),
        (Query::Nothing, SHORT),
        (Query::On, MIDDLE),
        (Query::On, MIDDLE),
        (Query::On, LONG),
        (Query::Once, LONG),
        (Query::Once, MIDDLE),
    ];
    for (step, (query, bytes)) in wanted.into_iter().enumerate() {
        assert_eq!(next_bytes(&mut reads, id, SHARE, query), bytes, "step {step}: {query:?}");
        reads.scans.release(&reads.ground.base, id, bytes, 0);
    }
}

#[test]
fn a_turn_of_queries_is_as_long_as_the_last_request_that_did_not_follow_another() {
    let (mut reads, id) = scan_of_three_lengths();
    let mut held = 0;
    for (query, took_us) in [(Query::Once, 9_000), (Query::Nothing, 1_000)] {
        let request = next(&mut reads, id, SHARE, query);
        held += end_after(&mut reads, request, took_us);
    }
    assert_eq!(held, MIDDLE + SHORT);
    let ended_us = reads.ground.base.now_us;
    let _ = next(&mut reads, id, SHARE, Query::On);
    assert_eq!(reads.ground.base.now_us, ended_us + 9_000);
}

#[test]
fn a_request_of_a_scan_that_is_far_ahead_is_one_step_shorter() {
    for (query, bytes) in [(Query::Once, SHORT), (Query::On, MIDDLE)] {
        let (mut reads, id) = scan_of_three_lengths();
        let held: usize = (0..2).map(|_| next_bytes(&mut reads, id, SHARE, query)).sum();
        assert_eq!(held, 2 * MIDDLE);
        let window_bytes = 2 * held - 1;
        assert_eq!(next_bytes(&mut reads, id, window_bytes, query), bytes, "{query:?}");
    }
}

#[test]
fn a_device_that_is_not_one_drive_serves_scans_and_queries_at_the_same_time() {
    let (mut reads, start_us) = scan_beside_a_query(false);
    assert_eq!(at(&mut reads, start_us, 1, true).len(), 1);
    assert_eq!(reads.scans.deadline_us(), None);
}

#[test]
fn nothing_is_due_when_the_scan_that_waited_has_ended() {
    let (mut reads, start_us) = scan_beside_a_query(true);
    assert!(at(&mut reads, start_us, 1, true).is_empty());
    let id = reads.scans.take_news()[0];
    reads.scans.end(&mut reads.ground.base, id);
    assert!(at(&mut reads, start_us + 1, 1, true).is_empty());
    assert_eq!(reads.scans.deadline_us(), None);
    assert!(reads.ground.base.io.is_idle());
}

#[test]
fn scans_that_take_turns_have_as_many_requests_in_flight_as_one() {
    for (beside, at_once) in [(false, 2), (true, 1)] {
        let mut reads = on_a_drive();
        reads.queries.are_waiting = beside;
        let scans = [0; 3].map(|begun| reads.scans.begin(begun));
        let planned = scans.map(|id| reads.plan(id, 0, false, SHARE / 2));
        let mut wanted: Vec<_> = planned.iter().flat_map(|of| &of.parts).map(|p| p.token).collect();
        wanted.dedup();
        assert_eq!(wanted.len(), 3 * at_once, "each has made all that it may");
        let mut submitted = Vec::new();
        loop {
            let requests = reads.requests();
            assert!(requests.len() <= at_once);
            submitted.extend(requests);
            let Some(first) = submitted.pop() else { break };
            let place = wanted.iter().position(|token| *token == first.token);
            assert!(place.is_some_and(|place| place < at_once), "in the order of their turns");
            wanted.retain(|token| *token != first.token);
            reads.end(first);
        }
        assert!(wanted.is_empty());
        let arrived = scans.map(|id| reads.scans.take_arrived(id).len());
        assert_eq!(arrived, [at_once; 3]);
    }
}

#[test]
fn a_request_beside_queries_is_shorter_unless_several_scans_take_turns() {
    for takes_turns in [false, true] {
        let mut reads = Reads::new();
        let config = &mut reads.ground.base.config;
        config.scans_take_turns = takes_turns;
        config.scan_requests_beside_queries = 1;
        config.scan_request_bytes_beside_queries = 8192;
        reads.queries.are_waiting = true;
        let length = |reads: &mut Reads, id, behind| {
            reads.plan(id, behind, false, SHARE / 2);
            let requests = reads.requests();
            let lengths: Vec<_> = offsets(&requests).into_iter().map(|(_, bytes)| bytes).collect();
            requests.into_iter().for_each(|request| reads.end(request));
            lengths
        };
        let one = reads.scans.begin(0);
        assert!(length(&mut reads, one, 0)[0] <= 8192);
        let other = reads.scans.begin(0);
        let lengths = length(&mut reads, other, 0);
        assert_eq!(lengths[0] > 8192, takes_turns, "{lengths:?}");
    }
}

#[test]
fn what_waits_for_its_turn_is_withdrawn_when_its_scan_ends() {
    let mut reads = on_a_drive();
    reads.queries.are_waiting = true;
    let (one, other) = (reads.scans.begin(0), reads.scans.begin(0));
    let parts = [one, other].map(|id| reads.plan(id, 0, false, SHARE / 2).parts.len());
    assert!(parts.iter().all(|parts| *parts > 0));
    let in_flight = reads.requests();
    assert_eq!(in_flight.len(), 1);
    reads.scans.end(&mut reads.ground.base, other);
    let bytes: usize = offsets(&in_flight).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(reads.scans.bytes(), bytes, "only that of the first counts");
    in_flight.into_iter().for_each(|request| reads.end(request));
    assert!(reads.requests().is_empty() && reads.ground.base.io.is_idle());
    assert_eq!(reads.ground.base.metrics.scan_read_bytes_total.get(), bytes as u64);
    let third = reads.scans.begin(0);
    reads.plan(third, 0, false, SHARE / 2);
    assert_eq!(reads.requests().len(), 1, "others are not held up");
}
