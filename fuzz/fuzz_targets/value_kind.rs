//! The number of a value kind on disk: any byte is a kind with that number or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::modifier::ValueKind;

fuzz_target!(|data: &[u8]| {
    for &number in data {
        match ValueKind::from_number(number) {
            Some(kind) => assert_eq!(kind as u8, number),
            None => assert!(number > ValueKind::F64 as u8),
        }
    }
});
