//! Every byte that the engine puts on a device: images, log payloads and the superblock.
//!
//! | module | content |
//! |---|---|
//! | [`codec_format`] | integers, lengths and byte strings, and the reader that never panics |
//! | [`image_format`] | the envelope around blocks, directory pages and checkpoint roots |
//! | [`record_format`] | payloads of log records: updates, changes, tables, modifiers, spills |
//! | [`quarantine_format`] | records of the quarantine table |
//! | [`reference_format`] | cells of the reference array |
//! | [`spill_segment_format`] | spill segments of spilled updates |
//! | [`checkpoint_format`] | nodes, pages of the block table, checkpoint root, superblock |
//!
//! All integers are little-endian; *varint* is LEB128 of at most 10 bytes.

use crate::engine::ids::SpaceId;

pub mod checkpoint_format;
pub mod codec_format;
pub mod image_format;
pub mod quarantine_format;
pub mod record_format;
pub mod reference_format;
pub mod spill_segment_format;

/// The space of the quarantine table; its large values are in the next one.
pub const QUARANTINE_SPACE: SpaceId = SpaceId::new(1);
/// The space of the quarantine table's large values.
pub const QUARANTINE_COMPANION: SpaceId = SpaceId::new(2);
/// The space of the reference array.
pub const REFERENCES_SPACE: SpaceId = SpaceId::new(3);
/// The first space of the application.
pub const FIRST_USER_SPACE: SpaceId = SpaceId::new(5);
