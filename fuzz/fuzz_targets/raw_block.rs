//! Raw blocks: any body decodes or is refused; what decodes encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::block_format::BlockFormat;
use upsweep::layers::structures::table::RawFormat;
use upsweep::layers::structures::table::raw_format::{decode, encode};

fuzz_target!(|data: &[u8]| {
    let decoded = decode(data);
    assert_eq!(decoded.is_ok(), RawFormat.check(data, &[], None).is_ok());
    match decoded {
        Ok(Some(value)) => assert_eq!(encode(value.kind, value.bytes), data),
        Ok(None) => assert!(data.is_empty()),
        Err(_) => {}
    }
});
