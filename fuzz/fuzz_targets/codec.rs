//! The reader of integers and byte strings: any calls on any bytes end, and integers come back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::codec_format::{Reader, put_bytes, put_varint, varint_len};

fuzz_target!(|data: &[u8]| {
    let (calls, bytes) = data.split_at(data.len() / 4);
    let mut reader = Reader::new(bytes);
    for call in calls {
        let before = reader.remaining();
        match call % 8 {
            0 => {
                if let Ok(value) = reader.varint() {
                    let mut out = Vec::new();
                    put_varint(&mut out, value);
                    assert_eq!(out.len(), varint_len(value));
                    assert_eq!(Reader::new(&out).varint(), Ok(value));
                }
            }
            1 => {
                if let Ok(found) = reader.bytes() {
                    let mut out = Vec::new();
                    put_bytes(&mut out, found);
                    assert_eq!(Reader::new(&out).bytes(), Ok(found));
                }
            }
            2 => drop(reader.text()),
            3 => drop(reader.u32()),
            4 => drop(reader.u64()),
            5 => drop(reader.narrow::<u16>()),
            6 => {
                if let Ok(count) = reader.count(3) {
                    assert!(count * 3 <= reader.remaining());
                }
            }
            _ => drop(reader.byte()),
        }
        assert!(reader.remaining() <= before);
    }
});
