//! What the targets of the NBD protocol share: the client and the owner of the tests of
//! `upsweep-nbd`, and how a conversation is run and its answers are decoded.

#[path = "../../../crates/nbd/tests/protocol/client.rs"]
pub mod client;
#[path = "../../../crates/nbd/tests/protocol/owner.rs"]
pub mod owner;

use client::{Form, option};
use owner::{Owner, exports};
use upsweep_nbd::{Config, TlsMode};

/// Small bounds, so that they are met.
pub fn config(tls: TlsMode) -> Config {
    Config {
        tls,
        extended_headers: true,
        payload_bytes_max: 1 << 16,
        requests_in_flight_max: 3,
        bytes_in_flight_max: 100_000,
        extents_max: 64,
        ..Config::default()
    }
}

/// Choices of any kind from a few bits: a linear congruential generator.
pub fn chooser(seed: u8) -> impl FnMut(usize) -> usize {
    let mut state = u64::from(seed);
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed.into());
        (state >> 33) as usize % below
    }
}

/// The form that a number chooses, and the handshake up to the transmission.
pub fn handshake(number: u8) -> (Form, Vec<u8>) {
    let name = if number & 4 != 0 { "frozen" } else { "disk" };
    let select = option(10, &client::queries(name, &["base:allocation", "qemu:dirty-bitmap:a"]));
    let (form, options) = match number % 3 {
        0 => (Form::Simple, Vec::new()),
        1 => (Form::Structured, [option(8, b""), select].concat()),
        _ => (Form::Extended, [option(11, b""), select].concat()),
    };
    let go = option(7, &client::info(name, &[3]));
    (form, [client::client_flags(3), options, go].concat())
}

/// Runs a conversation twice, plainly and in arbitrary pieces, and returns what was sent in the
/// handshake, decoded, and the rest, once it is certain that the pieces made no difference to it.
pub fn run(
    config: &Config,
    parts: &[Vec<u8>],
    seed: u8,
) -> (Vec<client::OptionReply>, Vec<u8>, bool) {
    let exports = exports();
    let mut plain = Owner::new(config.clone(), &exports);
    let end = plain.run_plainly(parts);
    let mut pieces = Owner::new(config.clone(), &exports);
    pieces.run(parts, &mut chooser(seed));
    assert_eq!(pieces.session.ended(), end);
    assert_eq!(pieces.opened, plain.opened);
    assert_eq!(pieces.sent.len(), plain.sent.len());
    assert!(pieces.disk == plain.disk);
    let mut sent = &pieces.sent[..];
    client::greeting(&mut sent).expect("a greeting");
    let replies = client::option_replies(&mut sent).expect("replies to options");
    (replies, sent.to_vec(), pieces.opened.is_some())
}
