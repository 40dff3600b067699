//! Leaves of ordered tables: any body is refused or sound; see `leaf`.
#![no_main]

mod leaf;

use libfuzzer_sys::fuzz_target;
use upsweep::layers::structures::table::{ByKey, TableFormat};

fuzz_target!(|data: &[u8]| leaf::check::<ByKey>(&TableFormat::default(), data));
