//! The properties that a store has from creation.

use super::configure::Scale;
use crate::device::BlockWrites;
use crate::log::format::PAGE_BYTES_MAX;

/// Most bytes of the log of a new store on each device, if no other number is given.
pub const LOG_BYTES_DEFAULT: u64 = 512 << 20;
/// Smallest log of one device, in bytes.
pub const LOG_BYTES_MIN: u64 = 1 << 20;
/// Largest log of one device, in bytes: the log numbers its pages with 32 bits.
pub const LOG_BYTES_MAX: u64 = u32::MAX as u64 * 4096;
/// Most log devices of a store.
pub const LOG_DEVICES_MAX: usize = 8;
/// First size of a data file, and the minimum of a raw data device: less is of no use.
pub const DATA_BYTES_MIN: u64 = 16 << 20;

/// Target size of blocks in bytes on solid-state devices, and on rotating ones, where a seek takes
/// longer than reading more.
const BLOCK_BYTES: u32 = 16 << 10;
const BLOCK_BYTES_ROTATING: u32 = 64 << 10;
/// Least target size of a block.
const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Segments of a ring; many, so that only a small part of it waits for a whole segment to be free.
const SEGMENTS: u64 = 64;
/// Least length of a segment, in bytes, so that a value of 1 MiB fits.
const SEGMENT_BYTES_MIN: u64 = 2 << 20;
/// Least number of segments, which takes precedence; a new log file has this many.
const SEGMENTS_MIN: u64 = 8;
/// Longest segment, in bytes.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Least target size of a block: the one `asked` for, or one that suits the data devices.
#[must_use]
pub fn block_bytes(rotates: bool, asked: Option<u32>, scale: &Scale) -> u32 {
    let suited = if rotates { BLOCK_BYTES_ROTATING } else { BLOCK_BYTES };
    let scaled = Scale::part(u64::from(suited), scale.blocks) as u32;
    asked.unwrap_or((scaled - scaled % BLOCK_BYTES_MIN).max(BLOCK_BYTES_MIN))
}

/// Bytes of a segment of a log whose rings may grow to this length.
#[must_use]
pub fn log_segment_bytes(rings: &[u64], scale: &Scale) -> u32 {
    let ring = rings.iter().copied().min().unwrap_or(0);
    let least = Scale::part(SEGMENT_BYTES_MIN, scale.log).min(ring / SEGMENTS_MIN);
    let wanted = (ring / SEGMENTS).max(least).min(SEGMENT_BYTES_MAX);
    // It fits, as it is SEGMENT_BYTES_MAX at most.
    (wanted - wanted % 4096) as u32
}

/// Initial bytes of a ring that may grow to `ring_bytes`.
#[must_use]
pub fn log_bytes_first(ring_bytes: u64, segment_bytes: u32) -> u64 {
    (SEGMENTS_MIN * u64::from(segment_bytes)).min(ring_bytes)
}

/// The page length to try on log devices with these logical blocks: the largest of them, if it is
/// shorter than what all devices can write, and if the pages of all rings can be numbered.
#[must_use]
pub fn log_page_to_try(logical_blocks: &[u32], rings: &[u64]) -> Option<u32> {
    let page = logical_blocks.iter().copied().max().filter(|page| *page > 0)?;
    let is_numbered = |ring: &u64| are_pages_numbered(*ring, page);
    (page < PAGE_BYTES_MAX && rings.iter().all(is_numbered)).then_some(page)
}

/// Whether headers can number the pages of a ring.
#[must_use]
pub fn are_pages_numbered(ring_bytes: u64, page_bytes: u32) -> bool {
    ring_bytes / u64::from(page_bytes.max(1)) <= u64::from(u32::MAX)
}

/// Bytes of a page of the log, after `tried` was compared with 4096 on each device: a lone update
/// takes a page, so small pages make the log last longer and wear devices less, if such writes are
/// as fast.
#[must_use]
pub fn log_page_bytes(tried: u32, writes: &[BlockWrites]) -> u32 {
    if writes.iter().all(BlockWrites::are_fast) { tried } else { PAGE_BYTES_MAX }
}

#[cfg(test)]
mod tests;
