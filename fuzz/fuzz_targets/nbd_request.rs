//! Requests of the NBD protocol: any bytes behind a handshake are served, refused or end the
//! session, in whatever pieces they come.
#![no_main]

#[expect(dead_code, reason = "the other targets use more of it")]
mod nbd;

use libfuzzer_sys::fuzz_target;
use nbd::client::Form;
use upsweep_nbd::TlsMode;

/// Makes the magic number of every request true, so that the fuzzer gets past it.
fn correct(form: Form, bytes: &mut [u8]) {
    let is_extended = form == Form::Extended;
    let (magic, header) = if is_extended { (0x21e4_1c71, 32) } else { (0x2560_9513_u32, 28) };
    let mut rest = bytes;
    while rest.len() >= header {
        rest[..4].copy_from_slice(&magic.to_be_bytes());
        let has_payload = if is_extended { rest[5] & 32 != 0 } else { rest[6..8] == [0, 1] };
        let length = rest[24..header].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let payload = if has_payload { length } else { 0 };
        let skipped = usize::try_from(payload).unwrap_or(usize::MAX).saturating_add(header);
        rest = rest.get_mut(skipped..).unwrap_or_default();
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[settings, seed], data)) = data.split_first_chunk::<2>() else { return };
    let (form, handshake) = nbd::handshake(settings);
    let mut data = data.to_vec();
    if settings & 8 != 0 {
        correct(form, &mut data);
    }
    let (_, sent, is_open) = nbd::run(&nbd::config(TlsMode::Off), &[handshake, data], seed);
    assert!(is_open);
    // Without knowing the requests, only simple replies cannot be told apart.
    let magic: &[u8] = match form {
        Form::Simple => &[0x67, 0x44, 0x66, 0x98],
        Form::Structured => &[0x66, 0x8e, 0x33, 0xef],
        Form::Extended => &[0x6e, 0x8a, 0x27, 0x8c],
    };
    assert!(sent.is_empty() || sent.starts_with(magic));
});
