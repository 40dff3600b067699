//! Quarantine entries: any bytes decode or are refused; what decodes encodes to an equal entry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::quarantine_format::{decode_entry, encode_entry};

fuzz_target!(|data: &[u8]| {
    if let Ok(entry) = decode_entry(data) {
        let encoded = encode_entry(&entry);
        assert_eq!(decode_entry(&encoded[1..]), Ok(entry));
    }
});
