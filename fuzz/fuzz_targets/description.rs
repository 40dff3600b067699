//! The description of a store: any JSON is one or is refused; what is one writes and reads equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use upsweep::layers::runtime::description::Description;

fuzz_target!(|data: &[u8]| {
    let Ok(description) = Description::parse(data) else { return };
    let text = serde_json::to_string_pretty(&description).expect("plain values");
    let again: Description = serde_json::from_str(&text).expect("it was just written");
    assert_eq!(serde_json::to_string_pretty(&again).expect("plain values"), text);
});
