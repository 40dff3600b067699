//! The handshake of the NBD protocol: any bytes are answered within the protocol or end the
//! session, in whatever pieces they come.
#![no_main]

#[expect(dead_code, reason = "the other targets use more of it")]
mod nbd;

use libfuzzer_sys::fuzz_target;
use upsweep_nbd::TlsMode;

// Settings, choices, and the length of what is sent before TLS may begin, in front of the bytes.
fuzz_target!(|data: &[u8]| {
    let Some((&[settings, seed, high, low], data)) = data.split_first_chunk::<4>() else { return };
    let tls = [TlsMode::Off, TlsMode::Optional, TlsMode::Required][usize::from(settings % 3)];
    let mut config = nbd::config(tls);
    config.extended_headers = settings & 4 != 0;
    config.block_sizes_required = settings & 8 != 0;
    let plain = usize::from(u16::from_be_bytes([high, low])).min(data.len());
    let (plain, rest) = data.split_at(plain);
    let (replies, sent, is_open) = nbd::run(&config, &[plain.to_vec(), rest.to_vec()], seed);
    assert!(is_open || sent.is_empty());
    let is_refusing = |kind: u32| kind == 0x8000_0005 || kind == 0x8000_0003 || kind == 1;
    let before_tls = replies.iter().take_while(|reply| (reply.option, reply.kind) != (5, 1));
    for reply in before_tls {
        assert!(tls != TlsMode::Required || is_refusing(reply.kind), "{reply:?}");
        assert!(tls != TlsMode::Off || reply.kind != 0x8000_0005, "{reply:?}");
    }
});
