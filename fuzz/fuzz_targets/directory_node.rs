//! Nodes of the directory: any bytes decode or are refused; what decodes encodes to an equal node.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::checkpoint_format::{decode_node, encode_node};

fuzz_target!(|data: &[u8]| {
    if let Ok(node) = decode_node(data) {
        assert_eq!(decode_node(&encode_node(node.level, &node.keys, &node.children)), Ok(node));
    }
});
