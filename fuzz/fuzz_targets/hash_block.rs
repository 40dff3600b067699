//! Buckets of hash tables: any body is refused or sound; see `leaf`.
#![no_main]

mod leaf;

use libfuzzer_sys::fuzz_target;
use upsweep::layers::structures::hash::{ByHash, HashFormat};

fuzz_target!(|data: &[u8]| leaf::check::<ByHash>(&HashFormat, data));
