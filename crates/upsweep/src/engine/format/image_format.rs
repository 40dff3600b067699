//! The envelope of everything but superblocks and log batches: blocks, nodes and pages of the
//! directory, checkpoint roots, spill segments of spilled updates, and the label of every device.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic `UPSI` |
//! | 4..8 | crc32c over bytes 8 to the end of the body |
//! | 8..24 | store id |
//! | 24 | kind ([`ImageKind`]) |
//! | 25 | version of this layout, 1 |
//! | 26..28 | length of the key |
//! | 28..32 | space, or number of a node or page |
//! | 32..40 | sequence: frontier of a block, end of a spill segment, else begin of checkpoint |
//! | 40..44 | length of the body |
//! | 44..48 | 0 |
//! | 48.. | key, then body, then zeros up to a whole unit |
//!
//! Validity: magic, version, lengths and checksum hold, and store, kind, space, key and sequence
//! are the expected ones. A misdirected, stale or foreign image fails the second part.

use std::ops::Range;

use super::codec_format::{Malformed, Reader};
use crate::log::Seq;

/// Bytes before the key.
pub const HEADER_BYTES: usize = 48;
const MAGIC: [u8; 4] = *b"UPSI";
const VERSION: u8 = 1;

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ImageKind {
    /// A block of a space.
    Block = 1,
    /// A node of the directory.
    Node = 2,
    /// The root of a checkpoint.
    Root = 3,
    /// The label at the start of a device.
    Label = 4,
    /// A page of the block table.
    Page = 5,
    /// A spill segment of spilled updates.
    SpillSegment = 6,
}

/// The identity of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Its kind.
    pub kind: ImageKind,
    /// The space through which a block was written or that a spill segment belongs to; number of a
    /// node or page; 0 for a root.
    pub number: u32,
    /// Frontier of a block, last sequence of a spill segment, begin of the checkpoint that wrote a
    /// node, page or root.
    pub seq: Seq,
    /// Block key, or that of the first block of a spill segment; empty for all others.
    pub key: &'a [u8],
}

/// Length in bytes of an image without padding.
#[must_use]
pub fn image_bytes(key: &[u8], body_bytes: usize) -> usize {
    HEADER_BYTES + key.len() + body_bytes
}

/// Longest body of a block with this key and target size, unless it holds a single record.
#[must_use]
pub fn body_bytes_max(block_bytes: usize, key: &[u8]) -> usize {
    block_bytes.saturating_sub(image_bytes(key, 0)).max(block_bytes / 2)
}

/// Writes an image to the start of `out`, which must be large enough, and zeros behind it; returns
/// the range of the body.
pub fn encode(identity: &Identity<'_>, body: &[u8], out: &mut [u8]) -> Range<usize> {
    encode_parts(identity, [&[], body], out)
}

/// As [`encode`], for a body in two parts.
pub fn encode_parts(identity: &Identity<'_>, body: [&[u8]; 2], out: &mut [u8]) -> Range<usize> {
    let [head, rest] = body;
    let key_len = u16::try_from(identity.key.len()).expect("a block key has at most 4 KiB");
    let body_len = u32::try_from(head.len() + rest.len()).expect("a body is below 4 GiB");
    out[0..4].copy_from_slice(&MAGIC);
    out[8..24].copy_from_slice(&identity.store);
    out[24] = identity.kind as u8;
    out[25] = VERSION;
    out[26..28].copy_from_slice(&key_len.to_le_bytes());
    out[28..32].copy_from_slice(&identity.number.to_le_bytes());
    out[32..40].copy_from_slice(&identity.seq.get().to_le_bytes());
    out[40..44].copy_from_slice(&body_len.to_le_bytes());
    out[44..48].copy_from_slice(&[0; 4]);
    let body_start = HEADER_BYTES + identity.key.len();
    let rest_start = body_start + head.len();
    let end = rest_start + rest.len();
    out[HEADER_BYTES..body_start].copy_from_slice(identity.key);
    out[body_start..rest_start].copy_from_slice(head);
    out[rest_start..end].copy_from_slice(rest);
    out[end..].fill(0);
    let checksum = crc32c::crc32c(&out[8..end]);
    out[4..8].copy_from_slice(&checksum.to_le_bytes());
    body_start..end
}

/// Checks an image against its expected identity and returns the range of its body in `bytes`.
///
/// # Errors
/// A description of the damage or of the difference, as text for people.
pub fn decode(bytes: &[u8], expected: &Identity<'_>) -> Result<Range<usize>, String> {
    let (found, body) = parse(bytes).map_err(|error| error.to_string())?;
    if found.store != expected.store {
        return Err("belongs to another store".to_owned());
    }
    if found.kind != expected.kind || found.number != expected.number || found.key != expected.key {
        return Err(format!(
            "holds {:?} {:?} of space {}: a misdirected or stale write",
            found.kind,
            String::from_utf8_lossy(found.key),
            found.number
        ));
    }
    if found.seq != expected.seq {
        return Err(format!(
            "holds sequence {} where {} was expected: a stale or misdirected write",
            found.seq, expected.seq
        ));
    }
    Ok(body)
}

/// Checks an image on its own: layout and checksum.
///
/// # Errors
/// [`Malformed`] with the faulty part.
pub fn parse(bytes: &[u8]) -> Result<(Identity<'_>, Range<usize>), Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.array()? != MAGIC {
        return Err(Malformed("magic number"));
    }
    let checksum = reader.u32()?;
    let store = reader.array()?;
    let kind = match reader.byte()? {
        1 => ImageKind::Block,
        2 => ImageKind::Node,
        3 => ImageKind::Root,
        4 => ImageKind::Label,
        5 => ImageKind::Page,
        6 => ImageKind::SpillSegment,
        _ => return Err(Malformed("image kind")),
    };
    if reader.byte()? != VERSION {
        return Err(Malformed("image version"));
    }
    let key_len = usize::from(u16::from_le_bytes(reader.array()?));
    let number = reader.u32()?;
    let seq = Seq::new(reader.u64()?);
    let body_len = reader.u32()? as usize;
    let body_start = HEADER_BYTES + key_len;
    let end = body_start.saturating_add(body_len);
    let checked = bytes.get(8..end).ok_or(Malformed("image length"))?;
    if crc32c::crc32c(checked) != checksum {
        return Err(Malformed("checksum"));
    }
    let key = &bytes[HEADER_BYTES..body_start];
    Ok((Identity { store, kind, number, seq, key }, body_start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity<'static> {
        let (store, kind) = (*b"a store of tests", ImageKind::Block);
        Identity { store, kind, number: 7, seq: Seq::new(9), key: b"key" }
    }

    fn image(body: &[u8]) -> Vec<u8> {
        let mut image = vec![0xff; 4096];
        encode(&identity(), body, &mut image);
        image
    }

    #[test]
    fn a_body_comes_back_and_the_rest_of_the_unit_is_zero() {
        let image = image(b"the body");
        let body = decode(&image, &identity()).expect("as it was written");
        assert_eq!(&image[body.clone()], b"the body");
        assert_eq!(body.end, image_bytes(b"key", 8));
        assert!(image[body.end..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_body_in_two_parts_is_the_same_as_in_one() {
        let mut parts = vec![0; 4096];
        encode_parts(&identity(), [b"the ", b"body"], &mut parts);
        assert_eq!(parts, image(b"the body"));
    }

    #[test]
    fn an_image_of_anything_else_is_not_the_one_that_is_expected() {
        let image = image(b"the body");
        let expected = identity();
        let others = [
            Identity { store: [0; 16], ..expected },
            Identity { kind: ImageKind::Node, ..expected },
            Identity { number: 8, ..expected },
            Identity { seq: Seq::new(8), ..expected },
            Identity { key: b"kez", ..expected },
        ];
        for other in others {
            assert!(decode(&image, &other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn any_bit_that_flips_before_the_end_of_the_body_is_noticed() {
        let image = image(b"the body");
        let end = image_bytes(b"key", 8);
        for bit in 0..end * 8 {
            let mut torn = image.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&torn, &identity()).is_err(), "bit {bit}");
        }
        assert!(parse(&image[..end - 1]).is_err(), "cut");
        assert!(parse(&[]).is_err());
        assert!(parse(&[0; 4096]).is_err(), "never written");
    }

    #[test]
    fn a_body_fills_its_block_and_has_half_of_it_whatever_the_key() {
        assert_eq!(image_bytes(b"key", body_bytes_max(4096, b"key")), 4096);
        assert_eq!(body_bytes_max(4096, &[0; 4096]), 2048);
    }
}
