//! The envelope of images: any bytes parse or are refused, also behind a checksum that holds; what
//! parses encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::image_format::{HEADER_BYTES, decode, encode, parse};

fuzz_target!(|data: &[u8]| {
    let _ = parse(data);
    if data.len() < HEADER_BYTES {
        return;
    }
    // Make length and checksum true for what is there, so that the fuzzer gets past them.
    let mut image = data.to_vec();
    let key_len = usize::from(u16::from_le_bytes([image[26], image[27]])) % (data.len() - 47);
    let body_len = data.len() - HEADER_BYTES - key_len;
    image[..4].copy_from_slice(b"UPSI");
    (image[24], image[25]) = (image[24] % 5 + 1, 1);
    image[26..28].copy_from_slice(&(key_len as u16).to_le_bytes());
    image[40..44].copy_from_slice(&(body_len as u32).to_le_bytes());
    image[44..48].fill(0);
    let crc = crc32c::crc32c(&image[8..]);
    image[4..8].copy_from_slice(&crc.to_le_bytes());
    let (identity, body) = parse(&image).expect("everything holds");
    assert_eq!(decode(&image, &identity), Ok(body.clone()));
    let mut encoded = vec![0; image.len()];
    encode(&identity, &image[body], &mut encoded);
    assert_eq!(encoded, image);
});
