//! The bytes of a file of a backup: frames of records, each with its checksum.
//!
//! | bytes of a frame | content |
//! |---|---|
//! | 0..4 | bytes of the records |
//! | 4..8 | number of records, at least 1 |
//! | 8..12 | crc32c of the number of the frame in its file (8), bytes 0..8, and the records |
//! | 12.. | records, without gaps |
//!
//! | bytes of a record | content |
//! |---|---|
//! | 0 | 0 to 3 value kind; 4 a deletion |
//! | 1..3 | length of the key |
//! | 3..7 | length of the value; a deletion has neither this nor a value |
//! | then | key, value |
//!
//! All integers are little-endian. A file is frames and nothing else; the manifest says how many
//! bytes it has, and their checksum. Including the number of the frame in its checksum detects
//! frames in the wrong place.
//!
//! Invariants: readers return an error, but never panic, on any bytes; what they accept is written
//! again as the same bytes; nothing longer than [`RECORDS_BYTES_MAX`] is ever asked for.

use crate::engine::modifier::{ValueKind, check_value};
use crate::structures::modifiers::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::structures::table::Value;

/// Bytes of the header of a frame.
pub const HEADER_BYTES: usize = 12;
/// A frame with this many bytes of records is full.
pub const RECORDS_BYTES_FULL: usize = 256 << 10;
/// Maximum number of bytes of the records of a frame.
pub const RECORDS_BYTES_MAX: usize =
    RECORDS_BYTES_FULL + DELETION_BYTES + 4 + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// Bytes of a deletion besides its key.
const DELETION_BYTES: usize = 3;
const DELETION: u8 = 4;

/// A record of a backup: a key, and its value; `None` is a deletion.
pub type BackupRecord = (Vec<u8>, Option<Value>);

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the records after it.
    pub records_bytes: usize,
    /// Number of records.
    pub records: u32,
    crc: u32,
}

/// Collects records for a frame.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    records: Vec<u8>,
    count: u32,
}

impl FrameBuilder {
    /// Appends a record. The key has at most 4096 bytes, the value at most 1 MiB.
    pub fn push(&mut self, key: &[u8], value: Option<&Value>) {
        let key_bytes = u16::try_from(key.len()).expect("the limit of keys is far below");
        self.records.push(value.map_or(DELETION, |value| value.kind as u8));
        self.records.extend_from_slice(&key_bytes.to_le_bytes());
        if let Some(value) = value {
            let bytes = u32::try_from(value.bytes.len()).expect("the limit of values is far below");
            self.records.extend_from_slice(&bytes.to_le_bytes());
        }
        self.records.extend_from_slice(key);
        self.records.extend_from_slice(value.map_or(&[], |value| &value.bytes));
        self.count += 1;
    }

    /// Whether the frame has to be finished before the next record.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.records.len() >= RECORDS_BYTES_FULL
    }

    /// Whether it has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of frame `number` of its file, counted from 0; empties this.
    #[must_use]
    pub fn finish(&mut self, number: u64) -> Vec<u8> {
        let records = std::mem::take(&mut self.records);
        let bytes = u32::try_from(records.len()).expect("a frame is far below 4 GiB");
        let mut frame = Vec::with_capacity(HEADER_BYTES + records.len());
        frame.extend_from_slice(&bytes.to_le_bytes());
        frame.extend_from_slice(&std::mem::take(&mut self.count).to_le_bytes());
        let crc = checksum(number, &frame, &records);
        frame.extend_from_slice(&crc.to_le_bytes());
        frame.extend_from_slice(&records);
        frame
    }
}

fn checksum(number: u64, header: &[u8], records: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), header);
    crc32c::crc32c_append(crc, records)
}

/// Reads the header of a frame, so that its reader knows how many bytes follow.
///
/// # Errors
/// A description of the problem if the lengths are impossible: report the file as damaged.
pub fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, String> {
    let word = |at: usize| {
        let bytes = bytes[at..].first_chunk().expect("three words are a header");
        u32::from_le_bytes(*bytes)
    };
    let (records_bytes, records, crc) = (word(0) as usize, word(4), word(8));
    if records_bytes > RECORDS_BYTES_MAX {
        return Err(format!(
            "a frame of {records_bytes} bytes; the longest has {RECORDS_BYTES_MAX}"
        ));
    }
    if records == 0 || records_bytes / DELETION_BYTES < records as usize {
        return Err(format!("a frame of {records} records in {records_bytes} bytes"));
    }
    Ok(Header { records_bytes, records, crc })
}

/// Reads the records of frame `number`, counted from 0; `bytes` are those after its header.
///
/// # Errors
/// A description of the problem if the checksum or a record is invalid: report the file as damaged.
pub fn decode_records(
    number: u64,
    header: &Header,
    bytes: &[u8],
) -> Result<Vec<BackupRecord>, String> {
    let length = u32::try_from(bytes.len()).map_err(|_| "a frame above 4 GiB".to_owned())?;
    let head = [length.to_le_bytes(), header.records.to_le_bytes()].concat();
    if bytes.len() != header.records_bytes || checksum(number, &head, bytes) != header.crc {
        return Err("checksum mismatch".to_owned());
    }
    let mut entries = Vec::with_capacity(header.records as usize);
    let mut rest = bytes;
    while !rest.is_empty() {
        entries.push(take_record(&mut rest)?);
    }
    if entries.len() != header.records as usize {
        let (found, wanted) = (entries.len(), header.records);
        return Err(format!("{found} records in a frame that is to have {wanted}"));
    }
    Ok(entries)
}

fn take_record(rest: &mut &[u8]) -> Result<BackupRecord, String> {
    let kind = take(rest, 1)?[0];
    let key_bytes = usize::from(u16::from_le_bytes([take(rest, 1)?[0], take(rest, 1)?[0]]));
    if key_bytes > KEY_BYTES_MAX {
        return Err(format!("a key of {key_bytes} bytes"));
    }
    if kind == DELETION {
        return Ok((take(rest, key_bytes)?.to_vec(), None));
    }
    let kind =
        ValueKind::from_number(kind).ok_or_else(|| format!("a record of unknown kind {kind}"))?;
    let length = take(rest, 4)?.first_chunk().expect("four bytes were taken");
    let length = u32::from_le_bytes(*length) as usize;
    let key = take(rest, key_bytes)?.to_vec();
    let bytes = take(rest, length)?.to_vec();
    check_value(kind, &bytes).map_err(|refusal| refusal.0)?;
    Ok((key, Some(Value { kind, bytes })))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let short = || "the last record is cut short".to_owned();
    let (taken, after) = rest.split_at_checked(count).ok_or_else(short)?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<BackupRecord>> {
        let numbers = prop_oneof![Just(ValueKind::I64), Just(ValueKind::U64), Just(ValueKind::F64)];
        let value = prop_oneof![
            vec(any::<u8>(), 0..100).prop_map(|bytes| Value { kind: ValueKind::Bytes, bytes }),
            (numbers, vec(any::<u8>(), 8)).prop_map(|(kind, bytes)| Value { kind, bytes }),
        ];
        vec((vec(any::<u8>(), 0..40), proptest::option::of(value)), 1..40)
    }

    fn frame(number: u64, entries: &[BackupRecord]) -> Vec<u8> {
        let mut builder = FrameBuilder::default();
        entries.iter().for_each(|(key, value)| builder.push(key, value.as_ref()));
        let frame = builder.finish(number);
        assert!(builder.is_empty());
        frame
    }

    fn decode(number: u64, frame: &[u8]) -> Result<Vec<BackupRecord>, String> {
        let (header, records) = frame.split_first_chunk().ok_or("short")?;
        decode_records(number, &decode_header(header)?, records)
    }

    proptest! {
        #[test]
        fn frames_hold_what_was_pushed_and_any_change_is_noticed(
            entries in entries(), number in 0u64..1000, at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut frame = frame(number, &entries);
            prop_assert_eq!(decode(number, &frame), Ok(entries));
            prop_assert!(decode(number + 1, &frame).is_err());
            prop_assert!(decode(number, &frame[..frame.len() - 1]).is_err());
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            prop_assert!(decode(number, &frame).is_err());
        }
    }

    #[test]
    fn the_longest_record_fits_the_fullest_frame() {
        let mut builder = FrameBuilder::default();
        let largest = Value { kind: ValueKind::Bytes, bytes: vec![1; VALUE_BYTES_MAX] };
        let rest = RECORDS_BYTES_FULL - DELETION_BYTES - 4 - 1;
        builder.push(&[], Some(&Value { kind: ValueKind::Bytes, bytes: vec![2; rest] }));
        assert!(!builder.is_full());
        builder.push(&[7; KEY_BYTES_MAX], Some(&largest));
        assert!(builder.is_full());
        let frame = builder.finish(3);
        assert_eq!(frame.len(), HEADER_BYTES + RECORDS_BYTES_MAX - 1);
        assert_eq!(decode(3, &frame).map(|entries| entries.len()), Ok(2));
    }

    #[test]
    fn headers_that_ask_for_too_much_are_refused() {
        let header = |bytes: u32, records: u32| {
            let words = [bytes, records, 0].map(u32::to_le_bytes).concat();
            decode_header(words.first_chunk().expect("three words"))
        };
        assert!(header(RECORDS_BYTES_MAX as u32 + 1, 1).is_err());
        assert!(header(100, 0).is_err() && header(100, 34).is_err() && header(100, 33).is_ok());
    }
}
