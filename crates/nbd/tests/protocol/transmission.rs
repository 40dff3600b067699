//! Replies of every form, limits, and the end.

use std::collections::BTreeMap;

use upsweep_nbd::{
    Command, Config, End, ErrorCode, Event, Export, Extent, Fault, Misuse, Piece, Request,
    RequestId, Session, Wants,
};

use crate::client::{self, Asked, Form, Reply, Wire, option, request};
use crate::handshake::extended;
use crate::owner::{BAD, BLOCK, Owner, SIZE, disk, exports};

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

fn asked(kind: u16, flags: u16, cookie: u64, offset: usize, length: usize) -> Asked {
    let (offset, length) = (offset as u64, length as u64);
    Asked { flags, kind, cookie, offset, length, payload: Vec::new() }
}

fn with_payload(asked: &Asked, payload: &[u8]) -> Asked {
    Asked { length: payload.len() as u64, payload: payload.to_vec(), ..*asked }
}

fn write(form: Form, cookie: u64, offset: usize, payload: &[u8]) -> Asked {
    let flags = if form == Form::Extended { 32 } else { 0 };
    with_payload(&asked(1, flags, cookie, offset, 0), payload)
}

/// The options that negotiate the form, with all contexts.
pub fn negotiate(form: Form) -> Vec<Vec<u8>> {
    let all = ["base:allocation", "qemu:allocation-depth", "qemu:dirty-bitmap:b"];
    let mut parts = vec![client::client_flags(3)];
    match form {
        Form::Simple => {}
        Form::Structured => parts.push(option(8, b"")),
        Form::Extended => parts.push(option(11, b"")),
    }
    if form != Form::Simple {
        parts.push(option(10, &client::queries("disk", &all)));
    }
    parts.push(option(7, &client::info("disk", &[3])));
    parts
}

fn exchange(form: Form, all: &[Asked]) -> BTreeMap<u64, Reply> {
    let exports = exports();
    let mut owner = Owner::new(extended(), &exports);
    owner.run_plainly(&negotiate(form));
    owner.sent.clear();
    let parts: Vec<Vec<u8>> = all.iter().map(|asked| request(form, asked)).collect();
    assert_eq!(owner.run_plainly(&parts), None);
    client::replies(form, all, &owner.sent).expect("replies")
}

#[test]
fn reads_return_what_was_written() {
    for form in FORMS {
        let all = [
            asked(0, 0, 1, 100, 3000),
            write(form, 2, 700, &[9; 1000]),
            asked(0, 0, 3, 600, 1200),
            asked(6, 1, 4, 800, 10),
            asked(3, 0, 5, 0, 0),
            asked(0, 0, 6, 700, 1000),
            asked(0, 0, 7, 512, 1024),
        ];
        let replies = exchange(form, &all);
        assert_eq!(replies.len(), all.len());
        let mut expected = disk();
        assert_eq!(replies[&1].data, expected[100..3100]);
        expected[700..1700].fill(9);
        assert_eq!(replies[&3].data, expected[600..1800]);
        expected[800..810].fill(0);
        assert_eq!(replies[&6].data, expected[700..1700]);
        assert!(replies.values().all(|reply| reply.error.is_none()));
    }
}

#[test]
fn holes_are_chunks_of_their_own_unless_the_client_wants_no_fragments() {
    let all = [
        asked(0, 0, 1, 0, 4 * BLOCK),
        asked(0, 4, 2, 0, 4 * BLOCK),
        asked(0, 4, 3, BLOCK, 2 * BLOCK),
        asked(0, 0, 4, BLOCK, BLOCK),
    ];
    for form in [Form::Structured, Form::Extended] {
        let replies = exchange(form, &all);
        let content: Vec<(usize, usize)> = replies.values().map(|reply| reply.content).collect();
        assert_eq!(content, [(3, 1), (1, 0), (1, 1), (1, 1)]);
    }
}

#[test]
fn a_read_that_fails_says_where() {
    for form in FORMS {
        let unfragmented = if form == Form::Simple { 0 } else { 4 };
        let all = [asked(0, 0, 1, BAD - 600, 2000), asked(0, unfragmented, 2, BAD, 1)];
        let replies = exchange(form, &all);
        let at = |at: usize| (form != Form::Simple).then_some(at as u64);
        assert_eq!(replies[&1].error, Some((5, at(BAD))));
        assert_eq!(replies[&2].error, Some((5, at(BAD))));
        let before = if form == Form::Simple { 0 } else { 600 };
        assert_eq!(replies[&1].data, disk()[BAD - 600..BAD - 600 + before]);
    }
}

#[test]
fn block_status_has_a_list_for_each_context_that_is_asked_for() {
    for form in [Form::Structured, Form::Extended] {
        let all = [
            write(form, 1, 2 * BLOCK, &[1; 100]),
            asked(7, 0, 2, BLOCK + 10, 4 * BLOCK - 10),
            asked(7, 8, 3, BLOCK + 10, 100),
        ];
        let replies = exchange(form, &all);
        let block = BLOCK as u64;
        let expected = vec![
            (1, vec![(block - 10, 3), (2 * block, 0), (block, 3)]),
            (2, vec![(block - 10, 0), (2 * block, 1), (block, 0)]),
            (3, vec![(block - 10, 0), (block, 1), (2 * block, 0)]),
        ];
        assert_eq!(replies[&2].status, expected);
        let first: Vec<_> = [(1, 3), (2, 0), (3, 0)].map(|(id, s)| (id, vec![(100, s)])).to_vec();
        assert_eq!(replies[&3].status, first);
    }
}

#[test]
fn a_filter_chooses_among_the_contexts() {
    let filter = |cookie, length: u64, ids: &[u32]| {
        let wire = ids.iter().fold(Wire::default().n64(length), |wire, id| wire.n32(*id));
        with_payload(&asked(7, 32, cookie, 0, 0), &wire.0)
    };
    let all = [
        filter(1, 512, &[3, 1]),
        filter(2, 512, &[2, 2]),
        filter(3, 512, &[4]),
        filter(4, SIZE as u64 + 1, &[1]),
        filter(5, 512, &[]),
        filter(6, 0, &[1]),
        filter(7, 512, &[2]),
    ];
    let replies = exchange(Form::Extended, &all);
    let ids = |cookie| replies[&cookie].status.iter().map(|list| list.0).collect::<Vec<u32>>();
    assert_eq!((ids(1), ids(7)), (vec![3, 1], vec![2]));
    for cookie in 2..=6 {
        assert_eq!(replies[&cookie].error, Some((22, None)), "{cookie}");
    }
}

/// A session in the transmission, with an export of this size.
fn open(config: Config, form: Form, size: u64) -> Session {
    let mut export = Export::new("disk", size);
    export.contexts = vec![upsweep_nbd::Context::Allocation];
    let mut session: Session = Session::new(config).expect("valid");
    for part in negotiate(form) {
        session.consume(u64::MAX);
        assert_eq!(session.receive(&part), part.len());
        if session.event().is_some() {
            session.answer_lookup(Ok(export.clone())).expect("it was asked");
        }
    }
    session.consume(u64::MAX);
    assert_eq!(session.wants(), Wants::Bytes);
    session
}

fn next(session: &mut Session) -> Option<Request> {
    match session.event() {
        Some(Event::Request(request)) => Some(request),
        None => None,
        Some(other) => panic!("{other:?}"),
    }
}

fn send(session: &mut Session, form: Form, asked: &Asked) -> RequestId {
    let bytes = request(form, asked);
    session.receive(&bytes);
    next(session).expect("a request").id
}

fn output(session: &mut Session) -> Vec<u8> {
    let bytes: Vec<u8> = session.output().flatten().copied().collect();
    session.consume(bytes.len() as u64);
    bytes
}

#[test]
fn the_lengths_of_status_are_cut_to_what_the_form_holds() {
    let size = 1 << 34;
    let extent = |length, status| Extent { length, status };
    let long = |flags| asked(7, flags, 1, 1 << 20, 1 << 31);
    let wanted = 1_u64 << 31;
    let longest = u64::from(u32::MAX) - 65_535;
    let two = vec![extent(wanted - 512, 0), extent(0, 1), extent(size, 3), extent(5, 0)];
    let cases = [
        (Form::Structured, 0, vec![extent(size, 3)], vec![(longest, 3)]),
        (Form::Structured, 8, vec![extent(size, 3)], vec![(wanted, 3)]),
        (Form::Extended, 0, vec![extent(u64::MAX, 3)], vec![(size - (1 << 20), 3)]),
        (Form::Structured, 0, two.clone(), vec![(wanted - 512, 0), (longest, 3)]),
        (Form::Extended, 0, two, vec![(wanted - 512, 0), (size - (1 << 20) - wanted + 512, 3)]),
        (Form::Structured, 0, vec![extent(7, 1); 3], vec![(21, 1)]),
    ];
    for (form, flags, extents, expected) in cases {
        let mut session = open(extended(), form, size);
        let asked = long(flags);
        let id = send(&mut session, form, &asked);
        assert_eq!(session.reply_status(id, &[]), Err(Misuse::WrongExtents));
        assert_eq!(session.reply_status(id, &[vec![extent(0, 1)]]), Err(Misuse::WrongExtents));
        assert_eq!(session.reply_done(id), Err(Misuse::WrongKind));
        assert_eq!(session.reply_status(id, &[extents]), Ok(()));
        let replies = client::replies(form, &[asked], &output(&mut session)).expect("a reply");
        assert_eq!(replies[&1].status, [(1, expected)]);
    }
    let config = Config { extents_max: 2, ..extended() };
    let mut session = open(config, Form::Structured, size);
    let id = send(&mut session, Form::Structured, &long(0));
    let extents: Vec<Extent> = (0..9).map(|status| extent(512, status)).collect();
    assert_eq!(session.reply_status(id, &[extents]), Ok(()));
    let sent = output(&mut session);
    let replies = client::replies(Form::Structured, &[long(0)], &sent).expect("a reply");
    assert_eq!(replies[&1].status[0].1, [(512, 0), (512, 1)]);
}

#[test]
fn a_bound_on_requests_holds_further_ones_back() {
    let config = Config { requests_in_flight_max: 2, ..Config::default() };
    let mut session = open(config, Form::Structured, 1 << 20);
    let bytes = request(Form::Structured, &asked(0, 0, 7, 0, 512)).repeat(4);
    let mut taken = session.receive(&bytes);
    let first = next(&mut session).expect("the first").id;
    taken += session.receive(&bytes[taken..]);
    let second = next(&mut session).expect("the second").id;
    taken += session.receive(&bytes[taken..]);
    // The third is taken, but not served; the fourth not even taken.
    assert_eq!((taken, next(&mut session)), (3 * 28, None));
    assert_eq!((session.wants(), session.receive(&bytes[taken..])), (Wants::Nothing, 0));
    assert_eq!(session.reply_read(second, vec![Piece::Hole(512)]), Ok(()));
    let third = next(&mut session).expect("the third, without further bytes").id;
    assert_eq!(session.wants(), Wants::Bytes);
    assert_eq!(session.reply_read(third, vec![Piece::Hole(500)]), Err(Misuse::WrongLength));
    assert_eq!(session.reply_read(first, vec![Piece::Data(vec![1; 512])]), Ok(()));
    assert_eq!(session.requests_in_flight(), 1);
}

#[test]
fn a_bound_on_bytes_counts_reads_writes_and_output() {
    let config = Config {
        payload_bytes_max: 1 << 16,
        bytes_in_flight_max: 1 << 16,
        extents_max: 64,
        ..Config::default()
    };
    let form = Form::Simple;
    let mut session = open(config, form, 1 << 20);
    // Alone, the longest is served.
    let id = send(&mut session, form, &asked(0, 0, 1, 0, 1 << 16));
    assert_eq!(session.bytes_in_flight(), 1 << 16);
    assert_eq!(session.receive(&request(form, &asked(3, 0, 2, 0, 0))), 28);
    assert_eq!((next(&mut session), session.wants()), (None, Wants::Nothing));
    assert_eq!(session.reply_read(id, vec![Piece::Data(vec![1; 1 << 16])]), Ok(()));
    // It is replied to, but not sent.
    assert_eq!(session.bytes_in_flight(), (1 << 16) + 16);
    assert_eq!((next(&mut session), session.wants()), (None, Wants::Nothing));
    session.consume(1 << 12);
    assert!(next(&mut session).is_some_and(|request| request.command == Command::Flush));
    assert_eq!(session.wants(), Wants::Bytes);
    // Refusals count too.
    let wrong = request(form, &asked(99, 0, 2, 0, 0)).repeat(10_000);
    let taken = session.receive(&wrong);
    assert!(taken < wrong.len() && session.bytes_in_flight() <= 1 << 16);
    assert_eq!(session.wants(), Wants::Nothing);
}

#[test]
fn a_write_may_fail_before_its_payload_is_there() {
    for form in FORMS {
        let mut session = open(extended(), form, 1 << 20);
        let first = write(form, 1, 0, &[1; 1000]);
        let id = send(&mut session, form, &first);
        assert_eq!(session.wants(), Wants::Payload { id, bytes: 1000 });
        session.payload_received(300);
        assert_eq!(session.wants(), Wants::Payload { id, bytes: 700 });
        assert_eq!(session.reply_done(id), Err(Misuse::PayloadMissing));
        let message = "quota".to_owned();
        let fault = Fault { code: ErrorCode::NoSpace, message, offset: Some(5) };
        assert_eq!(session.reply_error(id, fault), Ok(()));
        assert_eq!(session.wants(), Wants::Bytes);
        let second = asked(3, 0, 2, 0, 0);
        let rest = [&vec![1; 700], &request(form, &second)[..]].concat();
        assert_eq!(session.receive(&rest), rest.len());
        let flush = next(&mut session).expect("a flush").id;
        assert_eq!(session.reply_done(flush), Ok(()));
        let replies = client::replies(form, &[first, second], &output(&mut session));
        let replies = replies.expect("two replies");
        let at = (form != Form::Simple).then_some(5);
        assert_eq!((replies[&1].error, replies[&2].error), (Some((28, at)), None));
    }
}

#[test]
fn codes_that_belong_to_other_requests_become_invalid() {
    let longer = (1 << 25) + 512;
    let cases = [
        (asked(0, 0, 1, 0, 1), ErrorCode::Overflow, [22, 75, 75]),
        (asked(3, 0, 1, 0, 0), ErrorCode::Overflow, [22; 3]),
        (asked(4, 0, 1, 0, longer), ErrorCode::Overflow, [75; 3]),
        (asked(4, 0, 1, 0, 512), ErrorCode::NotSupported, [22; 3]),
        (asked(6, 0, 1, 0, 512), ErrorCode::NotSupported, [22; 3]),
        (asked(6, 16, 1, 0, 512), ErrorCode::NotSupported, [95; 3]),
        (asked(5, 0, 1, 0, 512), ErrorCode::Shutdown, [108; 3]),
    ];
    for (at, form) in FORMS.into_iter().enumerate() {
        for (asked, code, expected) in &cases {
            let mut session = open(extended(), form, 1 << 30);
            let id = send(&mut session, form, asked);
            let fault = Fault { code: *code, message: "m".repeat(5000), offset: Some(1 << 40) };
            assert_eq!(session.reply_error(id, fault), Ok(()));
            let sent = output(&mut session);
            let replies = client::replies(form, std::slice::from_ref(asked), &sent).expect("one");
            assert_eq!(replies[&1].error, Some((expected[at], None)));
        }
    }
}

#[test]
fn a_server_that_stops_answers_what_is_in_flight_and_refuses_the_rest() {
    for form in FORMS {
        let mut session = open(extended(), form, 1 << 20);
        let all = [
            asked(0, 0, 1, 0, 512),
            write(form, 2, 0, &[1; 1000]),
            asked(3, 0, 3, 0, 0),
            asked(2, 0, 4, 0, 0),
        ];
        let first = send(&mut session, form, &all[0]);
        session.shut_down();
        for asked in &all[1..] {
            let bytes = request(form, asked);
            assert_eq!(session.receive(&bytes), bytes.len());
            assert_eq!(next(&mut session), None);
        }
        assert_eq!(session.ended(), Some(End::Disconnected));
        assert!(!session.is_finished());
        assert_eq!(session.reply_read(first, vec![Piece::Hole(512)]), Ok(()));
        let replies = client::replies(form, &all, &output(&mut session)).expect("replies");
        assert_eq!(replies[&1].data, [0; 512]);
        assert_eq!(replies[&2].error, Some((108, None)));
        assert_eq!(replies[&3].error, Some((108, None)));
        assert!(session.is_finished());
    }
}

#[test]
fn data_are_dropped_when_they_are_sent() {
    use std::rc::Rc;

    /// A buffer that is shared, as one of a pool would be.
    struct Shared(Rc<[u8; 512]>);

    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0[..]
        }
    }

    let buffer = Rc::new([5; 512]);
    let mut session: Session<Shared> = Session::new(Config::default()).expect("valid");
    session.consume(18);
    session.receive(&[client::client_flags(3), option(1, b"disk")].concat());
    assert!(session.event().is_some());
    session.answer_lookup(Ok(Export::new("disk", 1024))).expect("it was asked");
    session.consume(u64::MAX);
    session.receive(&request(Form::Simple, &asked(0, 0, 1, 0, 1024)));
    let Some(Event::Request(request)) = session.event() else { panic!("a read") };
    let piece = || Piece::Data(Shared(Rc::clone(&buffer)));
    assert_eq!(session.reply_read(request.id, vec![piece(), piece()]), Ok(()));
    let start = buffer.as_ptr();
    assert!(session.output().skip(1).all(|slice| slice.as_ptr() == start));
    session.consume(16 + 511);
    assert_eq!(Rc::strong_count(&buffer), 3);
    session.consume(1);
    assert_eq!(Rc::strong_count(&buffer), 2);
    session.consume(512);
    assert_eq!(Rc::strong_count(&buffer), 1);
}
