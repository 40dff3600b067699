//! Cases that break the protocol, each with what has to come of it.

use upsweep_nbd::{Config, End, Export, Violation};

use crate::client::{self, Asked, Form, Wire, option, request};
use crate::handshake::{
    ERR_EXT_HEADER_REQD, ERR_INVALID, ERR_POLICY, ERR_UNKNOWN, ERR_UNSUP, extended, kinds,
};
use crate::owner::{Owner, SIZE, exports};

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;

#[test]
fn wrong_options_are_refused_and_the_next_one_is_served() {
    let queries = |data: Wire| option(9, &data.0);
    let name = || Wire::default().text("disk");
    let cases: Vec<(&str, Vec<u8>, u32)> = vec![
        ("unknown", option(4, b"peek"), ERR_UNSUP),
        ("list with data", option(3, b"x"), ERR_INVALID),
        ("TLS, which is off", option(5, b""), ERR_POLICY),
        ("TLS with data", option(5, b"x"), ERR_INVALID),
        ("structured replies with data", option(8, b"x"), ERR_INVALID),
        ("info without data", option(6, b""), ERR_INVALID),
        (
            "a name beyond the data",
            option(7, &Wire::default().n32(9).raw(b"disk\0\0").0),
            ERR_INVALID,
        ),
        (
            "a name that is no text",
            option(7, &Wire::default().n32(1).raw(b"\xff\0\0").0),
            ERR_INVALID,
        ),
        ("a name with NUL", option(7, &client::info("a\0b", &[])), ERR_INVALID),
        ("a name that is too long", option(7, &client::info(&"n".repeat(4097), &[])), ERR_INVALID),
        ("too few items", option(7, &name().n16(2).n16(0).0), ERR_INVALID),
        ("too many items", option(7, &name().n16(0).n16(0).0), ERR_INVALID),
        ("no such export", option(7, &client::info("none", &[])), ERR_UNKNOWN),
        ("a forbidden export", option(7, &client::info("private", &[])), ERR_POLICY),
        ("contexts of no export", option(9, &client::queries("none", &[])), ERR_UNKNOWN),
        ("a query without namespace", option(9, &client::queries("disk", &["x"])), ERR_INVALID),
        ("an empty namespace", option(10, &client::queries("disk", &[":x"])), ERR_INVALID),
        ("a query beyond the data", queries(name().n32(1).n32(5).raw(b"base")), ERR_INVALID),
        ("too few queries", queries(name().n32(u32::MAX).text("base:")), ERR_INVALID),
        ("data behind the queries", queries(name().n32(0).n32(0)), ERR_INVALID),
        ("a long query", option(9, &client::queries("disk", &[&"q:".repeat(3000)])), ERR_INVALID),
        ("extended headers, which are off", option(11, b""), ERR_UNSUP),
    ];
    for (what, wrong, expected) in cases {
        let options = [option(8, b""), wrong, option(6, &client::info("disk", &[]))];
        assert_eq!(kinds(Config::default(), &options), [1, expected, 3, 3, 1], "{what}");
    }
    let simple =
        [option(9, &client::queries("disk", &[])), option(10, &client::queries("disk", &[]))];
    assert_eq!(kinds(Config::default(), &simple), [ERR_INVALID; 2]);
    let downgrade = [option(11, b""), option(8, b""), option(11, b"x")];
    assert_eq!(kinds(extended(), &downgrade), [1, ERR_EXT_HEADER_REQD, ERR_INVALID]);
}

#[test]
fn what_cannot_be_answered_ends_the_session() {
    let flags = client::client_flags;
    let magic = Wire::default().raw(b"IHAVEOPS").n32(3).n32(0).0;
    let far_too_long = Wire::default().raw(b"IHAVEOPT").n32(3).n32((1 << 25) + 1).0;
    let read = Asked { flags: 0, kind: 0, cookie: 1, offset: 0, length: 512, payload: vec![] };
    let mut other_magic = request(Form::Simple, &read);
    other_magic[3] = 0x14;
    let long = Asked { kind: 1, length: (1 << 25) + 1, ..read.clone() };
    let go = option(7, &client::info("disk", &[]));
    let violated = End::Violated;
    let cases: Vec<(&str, Vec<Vec<u8>>, End)> = vec![
        ("unknown flags", vec![flags(7)], violated(Violation::ClientFlags)),
        ("high flags", vec![flags(0x1_0003)], violated(Violation::ClientFlags)),
        ("no fixed newstyle", vec![flags(2), go.clone()], violated(Violation::NotFixedNewstyle)),
        ("no option", vec![flags(3), magic], violated(Violation::OptionMagic)),
        ("a gigantic option", vec![flags(3), far_too_long], violated(Violation::OptionTooLong)),
        ("no such export", vec![flags(3), option(1, b"none")], End::Refused),
        ("no name", vec![flags(3), option(1, b"\xff")], violated(Violation::ExportName)),
        ("a long name", vec![flags(3), option(1, &[b'n'; 4097])], violated(Violation::ExportName)),
        (
            "a name with extended headers",
            vec![flags(3), option(11, b""), option(1, b"disk")],
            violated(Violation::ExportName),
        ),
        ("ABORT", vec![flags(3), option(2, b"")], End::Aborted),
        ("no request", vec![flags(3), go.clone(), other_magic], violated(Violation::RequestMagic)),
        (
            "a gigantic payload",
            vec![flags(3), go.clone(), request(Form::Simple, &long)],
            violated(Violation::PayloadTooLong),
        ),
        (
            "a compact header where an extended one is due",
            vec![flags(3), option(11, b""), go.clone(), request(Form::Simple, &read), vec![0; 4]],
            violated(Violation::RequestMagic),
        ),
        (
            "DISC",
            vec![flags(3), go, request(Form::Simple, &Asked { kind: 2, ..read })],
            End::Disconnected,
        ),
    ];
    for (what, parts, expected) in cases {
        let exports = exports();
        let mut owner = Owner::new(extended(), &exports);
        assert_eq!(owner.run_plainly(&parts), Some(expected), "{what}");
        assert!(owner.session.is_finished(), "{what}");
        assert_eq!(owner.session.receive(b"more"), 0, "{what}");
    }
}

/// Flags, type, offset, length, payload, and the error with simple, structured and extended form;
/// `None` is success.
type Case = (u16, u16, u64, u64, usize, [Option<u32>; 3]);

fn check(config: &Config, name: &str, cases: &[Case]) {
    for (at, form) in [Form::Simple, Form::Structured, Form::Extended].into_iter().enumerate() {
        let mut parts = vec![client::client_flags(3)];
        match form {
            Form::Simple => {}
            Form::Structured => parts.push(option(8, b"")),
            Form::Extended => parts.push(option(11, b"")),
        }
        parts.push(option(7, &client::info(name, &[])));
        let exports = exports();
        let mut owner = Owner::new(config.clone(), &exports);
        owner.run_plainly(&parts);
        owner.sent.clear();
        let mut asked = Vec::new();
        for (cookie, &(flags, kind, offset, length, payload, _)) in cases.iter().enumerate() {
            let payload = vec![7; payload];
            // With extended headers a write says that it has a payload; some cases do so anyway.
            let has_payload = form == Form::Extended && !payload.is_empty();
            let flags = flags | if has_payload { 32 } else { 0 };
            asked.push(Asked { flags, kind, cookie: cookie as u64, offset, length, payload });
        }
        let requests: Vec<Vec<u8>> = asked.iter().map(|asked| request(form, asked)).collect();
        assert_eq!(owner.run_plainly(&requests), None);
        let replies = client::replies(form, &asked, &owner.sent).expect("replies");
        for (asked, case) in asked.iter().zip(cases) {
            let error = replies[&asked.cookie].error.map(|error| error.0);
            assert_eq!(error, case.5[at], "{form:?} {case:?}");
        }
    }
}

const INVALID: [Option<u32>; 3] = [Some(EINVAL); 3];
const FINE: [Option<u32>; 3] = [None; 3];

#[test]
fn wrong_requests_fail_and_the_next_one_is_served() {
    let config = Config { payload_bytes_max: 1 << 16, extents_max: 64, ..extended() };
    let end = SIZE as u64;
    let beyond = [Some(ENOSPC); 3];
    check(
        &config,
        "disk",
        &[
            (0, 0, end - 512, 513, 0, INVALID),
            (0, 0, u64::MAX, 512, 0, INVALID),
            (0, 0, 0, 512, 0, FINE),
            (1, 0, 0, 512, 0, FINE),
            (2, 0, 0, 512, 0, INVALID),
            (4, 0, 0, 512, 0, [Some(EINVAL), None, None]),
            (0x8000, 0, 0, 512, 0, INVALID),
            (0, 0, 0, 0, 0, FINE),
            (0, 1, end - 8, 9, 9, beyond),
            (0, 1, u64::MAX - 3, 9, 9, beyond),
            (1, 1, 9, 100, 100, FINE),
            (2, 1, 9, 100, 100, INVALID),
            (0, 1, 9, 0, 0, [None, None, Some(EINVAL)]),
            (0, 3, 0, 0, 0, FINE),
            (0, 3, 0, 1, 0, INVALID),
            (0, 3, 1, 0, 0, INVALID),
            (0, 4, 0, end, 0, FINE),
            (0, 4, 1, end, 0, INVALID),
            (2, 4, 0, 1, 0, INVALID),
            (0, 5, 0, end, 0, FINE),
            (0, 5, 1, end, 0, INVALID),
            (4, 5, 0, 1, 0, INVALID),
            (0, 6, 0, 1024, 0, FINE),
            (0x13, 6, 0, 1024, 0, FINE),
            (0x10, 6, 1, 1024, 0, [Some(ENOTSUP); 3]),
            (0, 6, 1, end, 0, beyond),
            (4, 6, 0, 1024, 0, INVALID),
            (0, 7, 0, 1024, 0, INVALID),
            (0, 8, 0, 1024, 0, INVALID),
            (0, 77, 0, 0, 0, INVALID),
            (0, 0, 0, 512, 0, FINE),
        ],
    );
    // Longer than the longest payload: never possible on the disk of the tests, so a small limit.
    let exports = [Export::new("long", 1 << 30)];
    let long = |kind, payload| Asked {
        flags: if payload > 0 { 0 } else { 4 },
        kind,
        cookie: kind.into(),
        offset: 0,
        length: (1 << 16) + 1,
        payload: vec![0; payload],
    };
    let asked = [long(0, 0), long(1, (1 << 16) + 1)];
    let mut owner = Owner::new(config, &exports);
    let mut parts = vec![client::client_flags(3), option(8, b""), option(1, b"long")];
    owner.run_plainly(&parts);
    owner.sent.clear();
    parts = asked.iter().map(|asked| request(Form::Structured, asked)).collect();
    assert_eq!(owner.run_plainly(&parts), None);
    let replies = client::replies(Form::Structured, &asked, &owner.sent).expect("replies");
    assert_eq!(replies[&0].error, Some((EOVERFLOW, None)));
    assert_eq!(replies[&1].error, Some((EINVAL, None)));
}

#[test]
fn a_read_only_export_is_not_changed_and_its_blocks_are_whole() {
    let denied = [Some(EPERM); 3];
    check(
        &extended(),
        "frozen",
        &[
            (0, 0, 512, 1024, 0, FINE),
            (0, 0, 1, 512, 0, INVALID),
            (0, 0, 512, 1, 0, INVALID),
            (0, 5, 512, 1, 0, INVALID),
            (0, 1, 0, 512, 512, denied),
            (0, 1, 0, 511, 511, denied),
            (0, 4, 0, 512, 0, denied),
            (0, 6, 0, 512, 0, denied),
            (0, 3, 0, 0, 0, FINE),
            (0, 0, 512, 512, 0, FINE),
        ],
    );
}

#[test]
fn an_export_may_take_requests_that_do_not_fit_its_blocks() {
    let mut loose = Export::new("loose", SIZE as u64);
    (loose.block_bytes_min, loose.unaligned) = (4096, true);
    let exports = [loose];
    // For a client that did not ask for sizes, too.
    let config = Config { block_sizes_required: true, ..Config::default() };
    let mut owner = Owner::new(config, &exports);
    let asked = |cookie, offset, length| Asked {
        flags: 0,
        kind: 0,
        cookie,
        offset,
        length,
        payload: Vec::new(),
    };
    let all = [asked(0, 1, 512), asked(1, SIZE as u64 - 1, 1), asked(2, SIZE as u64 - 1, 2)];
    owner.run_plainly(&[client::client_flags(3), option(8, b""), option(1, b"loose")]);
    owner.sent.clear();
    let parts: Vec<Vec<u8>> = all.iter().map(|asked| request(Form::Structured, asked)).collect();
    assert_eq!(owner.run_plainly(&parts), None);
    let replies = client::replies(Form::Structured, &all, &owner.sent).expect("replies");
    let errors = [0, 1, 2].map(|cookie| replies[&cookie].error);
    assert_eq!(errors, [None, None, Some((EINVAL, None))]);
}

#[test]
fn payloads_where_none_belongs_are_skipped() {
    let asked = |kind, flags, length: usize| Asked {
        flags,
        kind,
        cookie: u64::from(kind),
        offset: 0,
        length: length as u64,
        payload: vec![1; length],
    };
    let all: Vec<Asked> = [0, 3, 4, 5, 6, 7, 9].map(|kind| asked(kind, 32, 600)).to_vec();
    let exports = exports();
    let mut owner = Owner::new(extended(), &exports);
    let go = option(7, &client::info("disk", &[]));
    owner.run_plainly(&[client::client_flags(3), option(11, b""), go]);
    owner.sent.clear();
    let mut parts: Vec<Vec<u8>> = all.iter().map(|asked| request(Form::Extended, asked)).collect();
    assert_eq!(owner.run_plainly(&parts), None);
    let replies = client::replies(Form::Extended, &all, &owner.sent).expect("replies");
    assert_eq!(replies.len(), all.len());
    assert!(replies.values().all(|reply| reply.error == Some((EINVAL, None))));
    // Beyond the longest payload the extension asks to hang up.
    let long = Asked { length: (1 << 25) + 1, ..asked(0, 32, 0) };
    parts = vec![request(Form::Extended, &long)];
    assert_eq!(owner.run_plainly(&parts), Some(End::Violated(Violation::PayloadTooLong)));
}
