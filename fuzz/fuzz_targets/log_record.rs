//! Log records: any bytes decode or are refused; what was sealed decodes as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::log::format::{RECORD_HEADER_BYTES, decode_record, record_seed, seal_record};
use upsweep::layers::log::{Seq, StreamId};

fuzz_target!(|data: &[u8]| {
    let seed = record_seed(b"a store of tests", 7);
    if let Ok(record) = decode_record(data, seed) {
        assert!(record.bytes() <= data.len());
    }
    let mut record = vec![0; RECORD_HEADER_BYTES];
    record.extend_from_slice(data);
    let (seq, valid) = (Seq::new(data.len() as u64), data.len() % 2 == 0);
    seal_record(&mut record, seed, StreamId(3), seq, valid);
    let decoded = decode_record(&record, seed).expect("it was sealed");
    assert_eq!((decoded.payload, decoded.seq, decoded.valid), (data, seq, valid));
    assert!(decode_record(&record, seed ^ 1).is_err(), "another store's record");
});
