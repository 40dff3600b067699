//! Frames of backups: any bytes decode or are refused; what decodes is written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::structures::backup::frame_format::{
    FrameBuilder, HEADER_BYTES, decode_header, decode_records,
};

fuzz_target!(|data: &[u8]| {
    let Some((given, records)) = data.split_first_chunk::<HEADER_BYTES>() else { return };
    check(given, records);
    // With a true length and checksum, so that the fuzzer gets past them.
    let mut header = *given;
    header[..4].copy_from_slice(&(records.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&0u64.to_le_bytes()), &header[..8]);
    let crc = crc32c::crc32c_append(crc, records);
    header[8..].copy_from_slice(&crc.to_le_bytes());
    check(&header, records);
});

fn check(given: &[u8; HEADER_BYTES], records: &[u8]) {
    let Ok(header) = decode_header(given) else { return };
    let Ok(entries) = decode_records(0, &header, records) else { return };
    let mut builder = FrameBuilder::default();
    entries.iter().for_each(|(key, value)| builder.push(key, value.as_ref()));
    assert_eq!(builder.finish(0), [&given[..], records].concat());
}
