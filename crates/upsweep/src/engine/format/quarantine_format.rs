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
    /// The reason of the refusal.
    pub reason: String,
}

impl QuarantineEntry {
    /// The range of keys that it removes, if it removes one.
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
/// [`Malformed`] when it is not such a value.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::registry::{DELETE_RANGE, PUT};

    fn entry() -> QuarantineEntry {
        QuarantineEntry {
            space: SpaceId::new(300),
            modifier: PUT,
            key: b"a key".to_vec(),
            operand: vec![0, 255],
            reason: "no number".to_owned(),
        }
    }

    #[test]
    fn keys_are_in_the_order_of_sequence_space_and_position() {
        let keys = [(1, 900, 9), (2, 5, 0), (2, 5, 1), (2, 256, 0), (256, 1, 0)].map(
            |(seq, space, position)| encode_key(Seq::new(seq), SpaceId::new(space), position, b"k"),
        );
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|key| key.len() == 20));
        assert_ne!(
            encode_key(Seq::new(1), SpaceId::new(1), 0, b"k"),
            encode_key(Seq::new(1), SpaceId::new(1), 0, b"l"),
            "of other keys"
        );
    }

    #[test]
    fn an_entry_comes_back_behind_the_byte_of_its_kind_and_not_if_it_is_cut() {
        let encoded = encode_entry(&entry());
        assert_eq!(encoded[0], ValueKind::Bytes as u8);
        assert_eq!(decode_entry(&encoded[1..]), Ok(entry()));
        for end in 1..encoded.len() {
            assert!(decode_entry(&encoded[1..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn the_removal_of_a_range_is_told_as_one() {
        let removal =
            QuarantineEntry { modifier: DELETE_RANGE, operand: b"\x01m".to_vec(), ..entry() };
        let range = removal.range().expect("it is one");
        assert_eq!((range.from, range.to), (&b"a key"[..], Some(&b"m"[..])));
        assert_eq!(entry().range(), None);
    }
}
