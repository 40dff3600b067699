//! Checkpoint roots: any bytes decode or are refused; what decodes encodes to an equal root.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::checkpoint_format::{decode_root, encode_root};

fuzz_target!(|data: &[u8]| {
    if let Ok(root) = decode_root(data) {
        assert_eq!(decode_root(&encode_root(&root)), Ok(root));
    }
});
