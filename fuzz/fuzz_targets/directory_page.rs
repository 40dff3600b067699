//! Directory pages: any bytes decode or are refused; what decodes encodes to an equal page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::engine::format::checkpoint_format::{decode_page, encode_page};

fuzz_target!(|data: &[u8]| {
    if let Ok(placed) = decode_page(data, 3) {
        assert_eq!(decode_page(&encode_page(placed.iter()), 3), Ok(placed));
    }
});
