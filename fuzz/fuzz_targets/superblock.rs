//! Superblocks: any bytes decode or are refused, also behind a checksum that holds; what decodes
//! encodes to something that decodes equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::checkpoint_format::{decode_superblock, encode_superblock};

fuzz_target!(|data: &[u8]| {
    let mut slot = data.to_vec();
    for sealed in [false, true] {
        if sealed && slot.len() >= 32 {
            let length = (slot.len() as u32).to_le_bytes();
            slot[..4].copy_from_slice(b"UPSS");
            slot[24..28].copy_from_slice(&1u32.to_le_bytes());
            slot[28..32].copy_from_slice(&length);
            let crc = crc32c::crc32c(&slot[8..]);
            slot[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(superblock) = decode_superblock(&slot) {
            assert_eq!(decode_superblock(&encode_superblock(&superblock)), Ok(superblock));
        }
    }
});
