//! Records of volumes that somebody has changed: the volumes are refused, or can be used.
#![no_main]

#[path = "../../crates/volume/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| hostile::use_after(data));
