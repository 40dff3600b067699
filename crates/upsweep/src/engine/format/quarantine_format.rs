//! Records of the quarantine table.
//!
//! Key: sequence of the update (8 bytes, big-endian), space (4), position among the refused updates
//! of one record and key (4), crc32c of its key (4). Value: space, modifier (varints), key,
//! operand, reason (length and bytes each).

use super::codec_format::{Malformed, Reader, put_bytes, put_varint};
use crate::engine::block_format::UpdateRef;
use crate::engine::ids::SpaceId;
use crate::engine::modifier::ValueKind;
use crate::engine::registry::{KeyRange, ModifierId};
use crate::log::Seq;

/// One quarantined update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineEntry {
    /// The space that it was meant for.
    pub space: SpaceId,
    /// Its modifier.
    pub modifier: ModifierId,
    /// Its key.
    pub key: Vec<u8>,
    /// Its operand.
    pub operand: Vec<u8>,
    /// Why it was refused.
    pub reason: String,
}

impl QuarantineEntry {
    /// The range of keys that it removes, if it does.
    #[must_use]
    pub fn range(&self) -> Option<KeyRange<'_>> {
        let (key, operand) = (&*self.key, &*self.operand);
        KeyRange::of(&UpdateRef { seq: Seq::NONE, modifier: self.modifier, key, operand })
    }
}

/// The key of a quarantine record.
#[must_use]
pub fn encode_key(seq: Seq, space: SpaceId, position: u32, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(20);
    out.extend_from_slice(&seq.get().to_be_bytes());
    out.extend_from_slice(&space.get().to_be_bytes());
    out.extend_from_slice(&position.to_be_bytes());
    out.extend_from_slice(&crc32c::crc32c(key).to_be_bytes());
    out
}

/// The value of a quarantine record as the operand of a put: value kind, then space, modifier, key,
/// operand and reason.
#[must_use]
pub fn encode_entry(entry: &QuarantineEntry) -> Vec<u8> {
    let mut out = vec![ValueKind::Bytes as u8];
    put_varint(&mut out, u64::from(entry.space.get()));
    put_varint(&mut out, u64::from(entry.modifier.0));
    put_bytes(&mut out, &entry.key);
    put_bytes(&mut out, &entry.operand);
    put_bytes(&mut out, entry.reason.as_bytes());
    out
}

/// Decodes the value of a quarantine record (without the value kind).
///
/// # Errors
/// [`Malformed`] when it is none.
pub fn decode_entry(value: &[u8]) -> Result<QuarantineEntry, Malformed> {
    let mut reader = Reader::new(value);
    Ok(QuarantineEntry {
        space: reader.space()?,
        modifier: ModifierId(reader.narrow()?),
        key: reader.bytes()?.to_vec(),
        operand: reader.bytes()?.to_vec(),
        reason: reader.text()?.to_owned(),
    })
}
