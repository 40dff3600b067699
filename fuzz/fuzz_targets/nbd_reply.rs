//! Replies of the NBD protocol: whatever is asked, and in whatever order it is replied to, a client
//! that checks everything understands the replies, and there is one for each request.
#![no_main]

mod nbd;

use libfuzzer_sys::fuzz_target;
use nbd::client::{self, Asked, Form};
use upsweep_nbd::TlsMode;

/// Type, flags, offset and length in front of the next request; payloads are zeros, or a filter of
/// the two contexts.
fn requests(form: Form, mut data: &[u8]) -> Vec<Asked> {
    let mut all = Vec::new();
    while let Some((&[kind, flags, a, b, c, d], rest)) = data.split_first_chunk::<6>() {
        data = rest;
        let kind = u16::from(kind % 9);
        if kind == 2 {
            continue;
        }
        let (offset, length) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let has_payload = if form == Form::Extended { flags & 32 != 0 } else { kind == 1 };
        let mut payload = Vec::new();
        if has_payload && kind == 7 {
            payload.extend_from_slice(&u64::from(length).to_be_bytes());
            payload.extend_from_slice(&u32::from(d % 4).to_be_bytes());
        } else if has_payload {
            payload.resize(usize::from(length), 0);
        }
        all.push(Asked {
            flags: flags.into(),
            kind,
            cookie: all.len() as u64,
            offset: offset.into(),
            length: if has_payload { payload.len() as u64 } else { length.into() },
            payload,
        });
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let Some((&[settings, seed], data)) = data.split_first_chunk::<2>() else { return };
    let (form, handshake) = nbd::handshake(settings);
    let asked = requests(form, data);
    let bytes: Vec<u8> = asked.iter().flat_map(|asked| client::request(form, asked)).collect();
    let (_, sent, _) = nbd::run(&nbd::config(TlsMode::Off), &[handshake, bytes], seed);
    let replies = client::replies(form, &asked, &sent).expect("replies that a client understands");
    assert_eq!(replies.len(), asked.len());
});
