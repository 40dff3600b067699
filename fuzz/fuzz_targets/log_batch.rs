//! Log batches: any bytes decode or are refused, also behind a checksum that holds; a header that
//! decodes encodes to the same bytes, but for what it leaves out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::log::Seq;
use upsweep::layers::log::format::{BATCH_HEADER_BYTES, BatchHeader, check_records};

fuzz_target!(|data: &[u8]| {
    let mut batch = data.to_vec();
    for sealed in [false, true] {
        if sealed && batch.len() >= BATCH_HEADER_BYTES {
            batch[..6].copy_from_slice(b"UpLg\x01\0");
            let crc = crc32c::crc32c(&batch[..BATCH_HEADER_BYTES - 4]);
            batch[BATCH_HEADER_BYTES - 4..BATCH_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        }
        let Ok(header) = BatchHeader::decode(&batch) else { continue };
        for page_bytes in [512, 4096] {
            let bytes = header.bytes(page_bytes);
            assert!(bytes >= BATCH_HEADER_BYTES as u64 && bytes % u64::from(page_bytes) == 0);
        }
        assert!(header.last_seq() < Seq::MAX);
        let mut encoded = [0xff; BATCH_HEADER_BYTES];
        header.encode(&mut encoded);
        assert_eq!(encoded, batch[..BATCH_HEADER_BYTES]);
        assert_eq!(BatchHeader::decode(&encoded), Ok(header));
        let _ = check_records(&header, &batch);
    }
});
