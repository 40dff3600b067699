//! Spill segments: any bytes give sections or are refused, and reading what checks never panics;
//! spill segments of sections that check give the same updates again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::engine::format::spill_segment_format::{Sections, encode_spill_segment};

fuzz_target!(|data: &[u8]| {
    let Ok(sections) = Sections::of(data) else { return };
    let _ = sections.begin_at_or_below(b"key");
    let count = sections.count().min(64);
    let sound: Vec<_> = (0..count)
        .filter_map(|index| sections.get(index).and_then(|section| section.check()).ok())
        .filter(|section| section.count() <= 64)
        .collect();
    let body = encode_spill_segment(sound.iter().copied());
    let again = Sections::of(&body).expect("it was just encoded");
    assert_eq!(again.count(), sound.len());
    for (index, section) in sound.iter().enumerate() {
        let found = again.get(index).expect("it was just encoded").check().expect("it checked");
        assert_eq!((found.low(), found.unpack()), (section.low(), section.unpack()));
        assert_eq!(found.tails().count(), sections.tails().count());
        let _ = found.of_key(b"key");
    }
});
