//! Pages of the block table: any bytes decode or are refused; what decodes encodes equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::checkpoint_format::{decode_page, encode_page};

fuzz_target!(|data: &[u8]| {
    if let Ok(blocks) = decode_page(data) {
        assert_eq!(decode_page(&encode_page(&blocks)), Ok(blocks));
    }
});
