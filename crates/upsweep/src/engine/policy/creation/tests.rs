//! Each rule at its edges.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn blocks_suit_the_devices_unless_somebody_says_otherwise() {
    assert_eq!(block_bytes(false, None, &Scale::FULL), 16 << 10);
    assert_eq!(block_bytes(true, None, &Scale::FULL), 64 << 10);
    assert_eq!(block_bytes(true, Some(5), &Scale::FULL), 5, "the check reports what is wrong");
    let small = |blocks| block_bytes(true, None, &Scale { blocks, ..Scale::FULL });
    assert_eq!([0, 4, 5, u32::MAX].map(small), [64 << 10, 16 << 10, 12 << 10, 4 << 10]);
}

#[test]
fn a_ring_has_64_segments_or_longer_ones_and_at_least_8() {
    let segment = |rings: &[u64]| u64::from(log_segment_bytes(rings, &Scale::FULL));
    assert_eq!(segment(&[512 * MIB]), 8 * MIB);
    assert_eq!(segment(&[512 * MIB, 16 * MIB]), 2 * MIB, "by the shortest ring");
    assert_eq!(segment(&[128 * MIB]), 2 * MIB);
    assert_eq!(segment(&[MIB]), MIB / 8);
    assert_eq!(segment(&[MIB - 4096]), MIB / 8 - 4096, "whole pages");
    assert_eq!(segment(&[4096 * MIB]), 64 * MIB);
    assert_eq!(segment(&[4097 * MIB]), 64 * MIB, "no longer ones");
    assert_eq!([segment(&[]), segment(&[0]), segment(&[u64::MAX])], [0, 0, 64 * MIB]);
    let small = Scale { log: 64, ..Scale::FULL };
    assert_eq!(log_segment_bytes(&[MIB], &small), 32 << 10);
}

#[test]
fn a_log_file_begins_with_8_segments_or_all_of_the_ring() {
    assert_eq!(log_bytes_first(512 * MIB, 8 << 20), 64 * MIB);
    assert_eq!(log_bytes_first(16 * MIB, 2 << 20), 16 * MIB);
    assert_eq!(log_bytes_first(16 * MIB - 1, 2 << 20), 16 * MIB - 1);
    assert_eq!(log_bytes_first(u64::MAX, u32::MAX), 8 * u64::from(u32::MAX));
    assert_eq!(log_bytes_first(0, u32::MAX), 0);
}

#[test]
fn a_page_is_the_largest_logical_block_if_that_is_shorter_and_can_be_numbered() {
    assert_eq!(log_page_to_try(&[512], &[MIB]), Some(512));
    assert_eq!(log_page_to_try(&[512, 2048], &[MIB, MIB]), Some(2048));
    for block in [0, 4096, 8192, u32::MAX] {
        assert_eq!(log_page_to_try(&[block], &[MIB]), None, "{block}");
    }
    assert_eq!(log_page_to_try(&[], &[]), None);
    let longest = u64::from(u32::MAX) * 512 + 511;
    assert_eq!(log_page_to_try(&[512], &[longest]), Some(512));
    assert_eq!(log_page_to_try(&[512], &[MIB, longest + 1]), None);
    assert!(are_pages_numbered(0, 0) && !are_pages_numbered(u64::MAX, 4096));
}

#[test]
fn a_page_is_short_where_writes_of_it_are_as_fast_on_all_devices() {
    let writes = |block_us, unit_us| BlockWrites { block_bytes: 512, block_us, unit_us };
    let (fast, slow) = (writes(125, 100), writes(126, 100));
    assert_eq!(log_page_bytes(512, &[fast, fast]), 512);
    assert_eq!(log_page_bytes(512, &[fast, slow]), 4096);
}

proptest! {
    #[test]
    fn a_segment_is_whole_pages_and_a_ring_of_a_mebibyte_has_eight(
        ring in LOG_BYTES_MIN..=LOG_BYTES_MAX,
        log: u32,
    ) {
        let segment = log_segment_bytes(&[ring], &Scale { log, ..Scale::FULL });
        prop_assert!(segment > 0 && segment.is_multiple_of(4096) && segment <= 64 << 20);
        prop_assert!(ring / u64::from(segment) >= 8);
    }
}
