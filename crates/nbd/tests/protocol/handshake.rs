//! What each option is answered with.

use upsweep_nbd::{Config, End, Export, InvalidConfig, InvalidExport, Misuse, Session, TlsMode};
use upsweep_nbd::{OPTION_BYTES_MAX, Refusal, Violation, Wants};

use crate::client::{self, OptionReply, Wire, option};
use crate::owner::{Owner, SIZE, exports};

pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_POLICY: u32 = 0x8000_0002;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_TLS_REQD: u32 = 0x8000_0005;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
pub const ERR_BLOCK_SIZE_REQD: u32 = 0x8000_0008;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;
pub const ERR_EXT_HEADER_REQD: u32 = 0x8000_000a;

pub fn extended() -> Config {
    Config { extended_headers: true, ..Config::default() }
}

fn with_tls(tls: TlsMode) -> Config {
    Config { tls, ..Config::default() }
}

/// The replies to options that follow flags of 3, and how the session ended.
fn answers(config: Config, options: &[Vec<u8>]) -> (Vec<OptionReply>, Option<End>) {
    let exports = exports();
    let mut owner = Owner::new(config, &exports);
    let mut parts = vec![client::client_flags(3)];
    parts.extend_from_slice(options);
    let end = owner.run_plainly(&parts);
    let mut sent = &owner.sent[..];
    client::greeting(&mut sent).expect("a greeting");
    let replies = client::option_replies(&mut sent).expect("replies");
    assert!(sent.is_empty(), "{sent:?}");
    (replies, end)
}

/// The types of the replies.
pub fn kinds(config: Config, options: &[Vec<u8>]) -> Vec<u32> {
    answers(config, options).0.iter().map(|reply| reply.kind).collect()
}

fn reply(option: u32, kind: u32, data: Wire) -> OptionReply {
    OptionReply { option, kind, data: data.0 }
}

#[test]
fn export_name_is_answered_with_and_without_zeros() {
    for (flags, zeroes) in [(3, 0), (1, 124), (2, 0), (0, 124)] {
        let exports = exports();
        let mut owner = Owner::new(Config::default(), &exports);
        assert_eq!(owner.run_plainly(&[client::client_flags(flags), option(1, b"")]), None);
        let size = (SIZE as u64).to_be_bytes();
        let expected = [&size[..], &[0x0d, 0x6d], &vec![0; zeroes]].concat();
        assert_eq!(owner.sent[18..], expected);
        assert_eq!(owner.opened.as_deref(), Some(""));
        assert_eq!(owner.session.wants(), Wants::Bytes);
    }
}

#[test]
fn list_names_and_describes_every_export() {
    let (replies, end) = answers(Config::default(), &[option(3, b"")]);
    let server =
        |name: &str, text: &str| reply(3, 2, Wire::default().text(name).raw(text.as_bytes()));
    let expected = [
        server("disk", "a disk"),
        server("frozen", ""),
        server("secret", ""),
        reply(3, 1, Wire::default()),
    ];
    assert_eq!((&replies[..], end), (&expected[..], None));
}

#[test]
fn info_tells_what_is_asked_and_always_sizes() {
    let (replies, _) = answers(Config::default(), &[option(6, &client::info("", &[1, 2, 9]))]);
    let sizes = Wire::default().n16(3).n32(1).n32(4096).n32(1 << 25);
    let expected = [
        reply(6, 3, sizes),
        reply(6, 3, Wire::default().n16(0).n64(SIZE as u64).n16(0x0d6d)),
        reply(6, 3, Wire::default().n16(1).raw(b"disk")),
        reply(6, 3, Wire::default().n16(2).raw(b"a disk")),
        reply(6, 1, Wire::default()),
    ];
    assert_eq!(replies, expected);
    // Read-only and rotational, without description; the last reply ends the handshake.
    let (replies, _) = answers(Config::default(), &[option(7, &client::info("frozen", &[2]))]);
    let expected = [
        reply(7, 3, Wire::default().n16(3).n32(512).n32(4096).n32(1 << 25)),
        reply(7, 3, Wire::default().n16(0).n64(SIZE as u64).n16(0x041f)),
        reply(7, 1, Wire::default()),
    ];
    assert_eq!(replies, expected);
}

#[test]
fn flags_follow_from_what_was_negotiated() {
    let flags = |options: &[Vec<u8>]| {
        let (replies, _) = answers(extended(), options);
        let last_info = replies.iter().rfind(|reply| reply.kind == 3).expect("an export");
        u16::from_be_bytes([last_info.data[10], last_info.data[11]])
    };
    let go = option(7, &client::info("disk", &[]));
    let select = option(10, &client::queries("disk", &["base:allocation"]));
    let other = option(10, &client::queries("frozen", &["base:allocation"]));
    assert_eq!(flags(std::slice::from_ref(&go)), 0x0d6d);
    assert_eq!(flags(&[option(8, b""), go.clone()]), 0x0ded);
    assert_eq!(flags(&[option(8, b""), select.clone(), go.clone()]), 0x0ded);
    assert_eq!(flags(&[option(11, b""), go.clone()]), 0x0ded);
    assert_eq!(flags(&[option(11, b""), select, go.clone()]), 0x1ded);
    assert_eq!(flags(&[option(11, b""), other, go.clone()]), 0x0ded);
    // What was selected is gone, whatever made the next selection fail.
    let select = option(10, &client::queries("disk", &["base:allocation"]));
    for fails in [client::queries("none", &[]), vec![0; 7], vec![0; 70_000]] {
        let options = [option(11, b""), select.clone(), option(10, &fails), go.clone()];
        assert_eq!(flags(&options), 0x0ded);
    }
}

#[test]
fn contexts_are_listed_by_wildcards_and_selected_by_name() {
    let list = |queries: &[&str]| {
        let options = [option(8, b""), option(9, &client::queries("disk", queries))];
        let (replies, _) = answers(Config::default(), &options);
        assert!(replies.iter().all(|reply| reply.kind != 4 || reply.data[..4] == [0; 4]));
        let names = replies.iter().filter(|reply| reply.kind == 4);
        names.map(|reply| String::from_utf8_lossy(&reply.data[4..]).into_owned()).collect()
    };
    let (base, depth) = ("base:allocation", "qemu:allocation-depth");
    let (a, b) = ("qemu:dirty-bitmap:a", "qemu:dirty-bitmap:b");
    let cases: [(&[&str], &[&str]); 8] = [
        (&[], &[base, depth, a, b]),
        (&["base:"], &[base]),
        (&["qemu:"], &[depth, a, b]),
        (&["qemu:dirty-bitmap:"], &[a, b]),
        (&[b, "other:", "base:nothing", b], &[b]),
        (&["qemu:dirty-bitmap:c", "qemu:allocation"], &[]),
        (&["qemu:", "base:", a], &[base, depth, a, b]),
        (&["x-test:"], &[]),
    ];
    for (queries, expected) in cases {
        let found: Vec<String> = list(queries);
        assert_eq!(found, expected, "{queries:?}");
    }
    let select = |queries: &[&str]| option(10, &client::queries("disk", queries));
    let options = [option(8, b""), select(&[b, base]), select(&[]), select(&["qemu:", "base:", a])];
    let (replies, _) = answers(Config::default(), &options);
    let context = |id, name: &str| reply(10, 4, Wire::default().n32(id).raw(name.as_bytes()));
    let ack = |option| reply(option, 1, Wire::default());
    let expected =
        [ack(8), context(1, base), context(2, b), ack(10), ack(10), context(3, a), ack(10)];
    assert_eq!(replies, expected);
}

#[test]
fn tls_modes_refuse_what_they_have_to() {
    let info = |name: &str| option(6, &client::info(name, &[]));
    let structured = option(8, b"");
    let query = option(9, &client::queries("secret", &[]));
    let options = [option(5, b""), option(99, b"x"), info("disk"), info("secret")];
    let with = |mode| {
        let mut all = options.to_vec();
        all.extend([structured.clone(), query.clone(), option(5, b"")]);
        kinds(with_tls(mode), &all)
    };
    assert_eq!(
        with(TlsMode::Off),
        [ERR_POLICY, ERR_UNSUP, 3, 3, 1, ERR_POLICY, 1, ERR_POLICY, ERR_POLICY]
    );
    // With TLS everything is open, and a second time is invalid.
    let encrypted = [1, ERR_UNSUP, 3, 3, 1, 3, 3, 1, 1, 1, ERR_INVALID];
    assert_eq!(with(TlsMode::Optional), encrypted);
    assert_eq!(with(TlsMode::Required), encrypted);
    // Without.
    let plain = [option(99, b"x"), info("disk"), info("secret"), structured, query];
    assert_eq!(
        kinds(with_tls(TlsMode::Optional), &plain),
        [ERR_UNSUP, 3, 3, 1, ERR_TLS_REQD, 1, ERR_UNKNOWN]
    );
    assert_eq!(kinds(with_tls(TlsMode::Required), &plain), [ERR_TLS_REQD; 5]);
    let (replies, end) = answers(with_tls(TlsMode::Required), &[option(2, b"bye")]);
    assert_eq!((replies[0].kind, end), (1, Some(End::Aborted)));
    for (mode, name) in [(TlsMode::Required, "disk"), (TlsMode::Optional, "secret")] {
        let (replies, end) = answers(with_tls(mode), &[option(1, name.as_bytes())]);
        assert_eq!((replies.len(), end), (0, Some(End::Refused)));
    }
}

#[test]
fn starttls_forgets_what_was_negotiated_and_takes_no_plain_bytes() {
    let go = option(7, &client::info("disk", &[]));
    let options = [option(8, b""), option(5, b""), go.clone()];
    let (replies, _) = answers(with_tls(TlsMode::Optional), &options);
    let export = replies.iter().rfind(|reply| reply.kind == 3).expect("an export");
    assert_eq!(export.data[10..], [0x0d, 0x6d]);
    // Bytes that arrive together with the option, or before its reply was sent.
    let injected = [option(5, b""), go.clone()].concat();
    let (replies, end) = answers(with_tls(TlsMode::Optional), &[injected]);
    assert_eq!((replies.len(), end), (1, Some(End::Violated(Violation::PlainBytes))));
    let mut session: Session = Session::new(with_tls(TlsMode::Required)).expect("valid");
    session.consume(u64::MAX);
    let input = [client::client_flags(3), option(5, b"")].concat();
    assert_eq!(session.receive(&input), input.len());
    assert_eq!(session.wants(), Wants::Tls);
    // Not before the reply is sent.
    session.tls_established();
    assert!(!session.is_encrypted());
    session.consume(20);
    session.tls_established();
    assert!(session.is_encrypted());
    assert_eq!(session.wants(), Wants::Bytes);
}

#[test]
fn unusual_block_sizes_may_be_required() {
    let config = Config { block_sizes_required: true, ..Config::default() };
    let go = |items: &[u16]| option(7, &client::info("frozen", items));
    assert_eq!(kinds(config.clone(), &[go(&[])]), [3, ERR_BLOCK_SIZE_REQD]);
    assert_eq!(kinds(config.clone(), &[go(&[]), go(&[3])]), [3, ERR_BLOCK_SIZE_REQD, 3, 3, 1]);
    let end = answers(config.clone(), &[option(1, b"frozen")]).1;
    assert_eq!(end, Some(End::Refused));
    assert_eq!(kinds(config, &[option(7, &client::info("disk", &[]))]), [3, 3, 1]);
}

#[test]
fn a_server_that_stops_refuses_options() {
    let exports = exports();
    let mut owner = Owner::new(Config::default(), &exports);
    owner.session.shut_down();
    let options = [option(3, b""), option(7, &client::info("disk", &[])), option(2, b"")];
    let end = owner.run_plainly(&[&[client::client_flags(3)], &options[..]].concat());
    let mut sent = &owner.sent[18..];
    let replies = client::option_replies(&mut sent).expect("replies");
    let kinds: Vec<u32> = replies.iter().map(|reply| reply.kind).collect();
    assert_eq!(kinds, [ERR_SHUTDOWN, ERR_SHUTDOWN, 1]);
    assert_eq!(end, Some(End::Aborted));
    assert!(owner.session.is_finished());
}

#[test]
fn options_wait_until_the_last_reply_is_sent() {
    let mut session: Session = Session::new(Config::default()).expect("valid");
    assert_eq!(session.receive(&client::client_flags(3)), 4);
    assert_eq!((session.wants(), session.receive(&option(99, b""))), (Wants::Nothing, 0));
    session.consume(18);
    let many = option(99, b"data").repeat(2);
    assert_eq!((session.wants(), session.receive(&many)), (Wants::Bytes, 20));
    assert_eq!(session.event(), None);
    assert_eq!((session.wants(), session.receive(&many)), (Wants::Nothing, 0));
}

#[test]
fn misuse_in_the_handshake_has_no_effect() {
    let mut session: Session = Session::new(Config::default()).expect("valid");
    assert_eq!(session.answer_list(Err(Refusal::Policy)), Err(Misuse::NotAsked));
    session.consume(18);
    let input = [client::client_flags(3), option(7, &client::info("x", &[]))].concat();
    session.receive(&input);
    assert!(session.event().is_some());
    assert_eq!(session.answer_list(Err(Refusal::Policy)), Err(Misuse::NotAsked));
    let mut export = Export::new("x", 1000);
    export.block_bytes_min = 512;
    let invalid = |export: &Export| {
        Err(Misuse::Export(match export {
            Export { block_bytes_min: 512, .. } => InvalidExport::Size,
            Export { block_bytes_preferred: 256, .. } => InvalidExport::BlockSizes,
            Export { name, .. } if name.len() > 4096 => InvalidExport::Text,
            _ => InvalidExport::Contexts,
        }))
    };
    let mut exports = vec![export.clone()];
    export.block_bytes_min = 1;
    exports.push(Export { block_bytes_preferred: 256, ..export.clone() });
    exports.push(Export { name: "x".repeat(4097), ..export.clone() });
    exports.push(Export { contexts: vec![upsweep_nbd::Context::Allocation; 2], ..export.clone() });
    for export in exports {
        assert_eq!(session.answer_lookup(Ok(export.clone())), invalid(&export));
    }
    assert_eq!(session.answer_lookup(Ok(export)), Ok(()));
    assert!(session.export().is_some());
}

#[test]
fn configurations_are_checked() {
    let check = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        Session::<Vec<u8>>::new(config).err()
    };
    assert_eq!(check(|_| {}), None);
    assert_eq!(check(|config| config.payload_bytes_max = 1000), Some(InvalidConfig::PayloadBytes));
    assert_eq!(
        check(|config| config.requests_in_flight_max = 0),
        Some(InvalidConfig::RequestsInFlight)
    );
    assert_eq!(
        check(|config| config.bytes_in_flight_max = 1 << 20),
        Some(InvalidConfig::BytesInFlight)
    );
    assert_eq!(check(|config| config.extents_max = 0), Some(InvalidConfig::Extents));
    assert_eq!(check(|config| config.extents_max = 1 << 22), Some(InvalidConfig::Extents));
}

#[test]
fn long_options_are_skipped_and_refused() {
    let long = vec![b'x'; OPTION_BYTES_MAX as usize + 1];
    for (number, expected) in [(7, ERR_TOO_BIG), (3, ERR_TOO_BIG), (99, ERR_UNSUP)] {
        assert_eq!(
            kinds(Config::default(), &[option(number, &long), option(8, b"")]),
            [expected, 1]
        );
    }
}
