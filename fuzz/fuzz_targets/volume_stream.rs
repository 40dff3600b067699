//! Streams of volumes: any bytes decode or are refused; what decodes encodes to what decodes equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep_volume::stream::{Decoder, Encoder, Header, Record};

/// Bytes before the first record: the magic number, and the version.
const START_BYTES: usize = 16;

/// What a stream has, if it is whole.
fn decode(stream: &[u8]) -> Option<(Header, Vec<(u64, u64, Option<Vec<u8>>)>)> {
    let mut decoder = Decoder::new(stream).ok()?;
    let mut records = Vec::new();
    while let Some(record) = decoder.next_record().ok()? {
        let (offset, bytes) = record.range();
        let data = match record {
            Record::Data { data, .. } => Some(data.to_vec()),
            Record::Zeros { .. } => None,
        };
        records.push((offset, bytes, data));
    }
    Some((decoder.header().clone(), records))
}

/// Makes the checksums of all records true, so that the fuzzer gets past them.
fn correct(stream: &mut [u8]) {
    let Some((start, mut rest)) = stream.split_at_mut_checked(START_BYTES) else { return };
    let mut crc = crc32c::crc32c(start);
    while let Some(length) = rest.get(1..5) {
        let length = length.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let Some((record, after)) = rest.split_at_mut_checked(5 + length) else { return };
        crc = crc32c::crc32c_append(crc, record);
        let Some((checksum, after)) = after.split_at_mut_checked(4) else { return };
        checksum.copy_from_slice(&crc.to_le_bytes());
        rest = after;
    }
}

fuzz_target!(|data: &[u8]| {
    let _any_bytes = decode(data);
    let mut stream = data.to_vec();
    correct(&mut stream);
    let Some((header, records)) = decode(&stream) else { return };
    let mut again = Vec::new();
    let mut encoder = Encoder::new(&mut again, &header).expect("memory takes all");
    for (offset, bytes, data) in &records {
        let (offset, bytes) = (*offset, *bytes);
        let record = match data {
            Some(data) => Record::Data { offset, data },
            None => Record::Zeros { offset, bytes },
        };
        encoder.push(&record).expect("memory takes all");
    }
    encoder.end().expect("memory takes all");
    assert_eq!(decode(&again), Some((header, records)));
});
