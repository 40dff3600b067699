//! Every byte of the log on a device.
//!
//! A *log device* is a ring of equal *segments*; a segment holds *batches*, the first at its first
//! byte, each next one at the cursor of the one before, which is right behind it, or further on if
//! padding follows that its header does not count; or behind that cursor, if the one before says
//! so; none across a segment's end. A batch is whole pages: a header, records back to back,
//! padding. A *dummy batch* has no records. A page has `page_bytes`, a power of two from
//! [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`], fixed when the log is created and known from
//! elsewhere. All integers are little-endian.
//!
//! Batch header, [`BATCH_HEADER_BYTES`] bytes:
//!
//! ```text
//!   0  magic             "UpLg"
//!   4  version      u16  1
//!   6  device       u8   position of this device among the devices of the log
//!   7  flags        u8   bit 0, skips: the next batch may begin up to [`SKIP_BYTES_MAX`] behind
//!                        the cursor, in the same segment, at a page (not if the cursor is where a
//!                        segment begins); others 0
//!   8  store    [u8;16]  the store it belongs to
//!  24  epoch        u64  the open of the store that wrote it; never repeats
//!  32  number       u64  of this batch, consecutive over all devices, from 1
//!  40  first_seq    u64  sequence of the first valid record (of the next one if there is none)
//!  48  durable      u64  highest batch number known to be durable when this one was dispatched
//!  56  prev epoch   u64  epoch of batch number - 1; 0 before the first batch
//!  64  page         u32  where this batch starts in its ring, in pages
//!  68  prev page    u32  where batch number - 1 starts; 0 before the first batch
//!  72  prev device  u16  on which device; 0xffff before the first batch
//!  74  devices      u16  number of devices of the log, 1 to 8
//!  76  records      u32  valid records in this batch
//!  80  record bytes u32  bytes of all records, dummies included
//!  84  cursors   8*u32   per device: the page where its next batch goes, if it fits there; this
//!                        batch is counted in; 0 for devices that are not there; on this device at
//!                        or after its end, in the same segment, or where the ring begins
//! 116  run first    u64  the first batch number of this epoch: what earlier epochs wrote from
//!                        there on was cut off
//! 124  crc          u32  crc32c of bytes 0..124
//! ```
//!
//! Record, [`RECORD_HEADER_BYTES`] bytes and the payload:
//!
//! ```text
//!   0  crc          u32  crc32c of bytes 4.. up to the payload's end, continued from the crc32c of
//!                        store and epoch: the record of another store or epoch does not pass
//!   4  length       u32  bits 0..31: payload bytes; bit 31: valid. A record that is not valid is a
//!                        dummy: it keeps a pipeline moving, has sequence 0, and is skipped
//!   8  stream       u32  crc32c of the stream's name
//!  12  seq          u64  sequence, consecutive over all streams, from 1; 0 in a dummy
//!  20  payload
//! ```
//!
//! A batch is valid if its header checks and names the place it was read from, and every record
//! checks, the sequences count up from `first_seq`, and their number is `records`. The padding is
//! written as zeros and is not checked. Decoders take any bytes and never panic.

use super::{Seq, StreamId};

/// Smallest page in bytes: the smallest logical block of a device.
pub const PAGE_BYTES_MIN: u32 = 512;
/// Largest page in bytes.
pub const PAGE_BYTES_MAX: u32 = 4096;
/// Length of a batch header in bytes.
pub const BATCH_HEADER_BYTES: usize = 128;
/// Length of a record's header in bytes.
pub const RECORD_HEADER_BYTES: usize = 20;
/// Most devices that one log can have.
pub const DEVICES_MAX: usize = 8;
/// Furthest that a batch begins behind the cursor, in bytes: more than a turn of any drive.
pub const SKIP_BYTES_MAX: u64 = 4 << 20;
/// `previous_device` of the first batch.
pub const NO_DEVICE: u16 = u16::MAX;

const MAGIC: [u8; 4] = *b"UpLg";
const VERSION: u16 = 1;
const CRC_AT: usize = 124;
const SKIPS: u8 = 1;
const VALID: u32 = 1 << 31;
/// Longest payload that the length field can hold, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = (VALID - 1) as usize;

const _: () = assert!(BATCH_HEADER_BYTES + RECORD_HEADER_BYTES < PAGE_BYTES_MIN as usize);
const _: () =
    assert!(84 + 4 * DEVICES_MAX == 116 && 116 + 8 == CRC_AT && CRC_AT + 4 == BATCH_HEADER_BYTES);

/// Why bytes are not the requested structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Fewer bytes than the structure needs.
    Short,
    /// Not a batch header.
    Magic,
    /// Another format version.
    Version,
    /// Checksum mismatch.
    Checksum,
    /// A field outside its range.
    Field,
    /// Sequence numbers that do not count up, or another number of records than announced.
    Sequence,
}

impl Invalid {
    /// The reason in words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Short => "cut short",
            Self::Magic => "not a log batch",
            Self::Version => "unknown log format version",
            Self::Checksum => "checksum mismatch",
            Self::Field => "a field out of range",
            Self::Sequence => "sequence numbers do not match",
        }
    }
}

/// The fields of a batch header; see the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Position of the device among the devices of the log.
    pub device: u16,
    /// Whether the next batch may begin behind the cursor.
    pub skips: bool,
    /// Identity of the store.
    pub store: [u8; 16],
    /// Epoch of the run that wrote it.
    pub epoch: u64,
    /// Batch number, from 1.
    pub number: u64,
    /// Sequence of the first valid record.
    pub first_seq: Seq,
    /// Highest batch number known to be durable at dispatch.
    pub durable: u64,
    /// Epoch of the batch before.
    pub previous_epoch: u64,
    /// Place in the ring, in pages.
    pub page: u32,
    /// Place of the batch before, in pages.
    pub previous_page: u32,
    /// Device of the batch before, or [`NO_DEVICE`].
    pub previous_device: u16,
    /// Number of devices of the log.
    pub devices: u16,
    /// Number of valid records.
    pub records: u32,
    /// Bytes of all records.
    pub record_bytes: u32,
    /// Next place per device, in pages.
    pub cursors: [u32; DEVICES_MAX],
    /// First batch number of this epoch.
    pub run_first: u64,
}

impl BatchHeader {
    /// Sequence of the last valid record; `first_seq - 1` if there is none.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.first_seq.previous().plus(u64::from(self.records))
    }

    /// The sequence of the youngest record for which recovery needs this batch: its last one, or,
    /// if it has none, the next one, because it leads to that.
    #[must_use]
    pub fn needed_for(&self) -> Seq {
        needed_for(self.first_seq, self.last_seq())
    }

    /// Bytes that header and records take on the device: whole pages of `page_bytes`.
    #[must_use]
    pub fn bytes(&self, page_bytes: u32) -> u64 {
        batch_bytes(self.record_bytes as usize, page_bytes)
    }

    /// Where its last record ends, in bytes from its start.
    #[must_use]
    pub fn records_end(&self) -> usize {
        BATCH_HEADER_BYTES + self.record_bytes as usize
    }

    /// Writes the header into the first [`BATCH_HEADER_BYTES`] bytes of `batch`.
    pub fn encode(&self, batch: &mut [u8]) {
        let bytes = &mut batch[..BATCH_HEADER_BYTES];
        bytes.fill(0);
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        debug_assert!(usize::from(self.device) < DEVICES_MAX, "the configuration is checked");
        (bytes[6], bytes[7]) = (self.device as u8, if self.skips { SKIPS } else { 0 });
        bytes[8..24].copy_from_slice(&self.store);
        let first_seq = self.first_seq.get();
        let longs = [self.epoch, self.number, first_seq, self.durable, self.previous_epoch];
        for (field, value) in bytes[24..64].chunks_exact_mut(8).zip(longs) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&self.page.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.previous_page.to_le_bytes());
        bytes[72..74].copy_from_slice(&self.previous_device.to_le_bytes());
        bytes[74..76].copy_from_slice(&self.devices.to_le_bytes());
        bytes[76..80].copy_from_slice(&self.records.to_le_bytes());
        bytes[80..84].copy_from_slice(&self.record_bytes.to_le_bytes());
        for (field, value) in bytes[84..116].chunks_exact_mut(4).zip(self.cursors) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes[116..124].copy_from_slice(&self.run_first.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// [`Invalid`] if the bytes are not a header of this format. What the header says about its
    /// place and store is for the caller to compare.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES).ok_or(Invalid::Short)?;
        if bytes[..4] != MAGIC {
            return Err(Invalid::Magic);
        }
        if u32_at(bytes, CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
            return Err(Invalid::Checksum);
        }
        if u16_at(bytes, 4) != VERSION {
            return Err(Invalid::Version);
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[8..24]);
        let header = Self {
            device: u16::from(bytes[6]),
            skips: bytes[7] == SKIPS,
            store,
            epoch: u64_at(bytes, 24),
            number: u64_at(bytes, 32),
            first_seq: Seq::new(u64_at(bytes, 40)),
            durable: u64_at(bytes, 48),
            previous_epoch: u64_at(bytes, 56),
            page: u32_at(bytes, 64),
            previous_page: u32_at(bytes, 68),
            previous_device: u16_at(bytes, 72),
            devices: u16_at(bytes, 74),
            records: u32_at(bytes, 76),
            record_bytes: u32_at(bytes, 80),
            cursors: std::array::from_fn(|index| u32_at(bytes, 84 + 4 * index)),
            run_first: u64_at(bytes, 116),
        };
        let in_range = (1..=DEVICES_MAX).contains(&usize::from(header.devices))
            && header.device < header.devices
            && bytes[7] <= SKIPS
            && (1..=header.number).contains(&header.run_first)
            && header.number > header.durable
            && header.epoch > 0
            && header.previous_epoch <= header.epoch
            && header.first_seq > Seq::NONE
            && header.first_seq.checked_plus(u64::from(header.records)).is_some();
        if in_range { Ok(header) } else { Err(Invalid::Field) }
    }
}

/// As [`BatchHeader::needed_for`], of a batch that begins and ends with these sequences.
#[must_use]
pub fn needed_for(first_seq: Seq, last_seq: Seq) -> Seq {
    last_seq.max(first_seq)
}

/// Bytes on the device of a batch whose records take `record_bytes`: whole pages of `page_bytes`.
#[must_use]
pub fn batch_bytes(record_bytes: usize, page_bytes: u32) -> u64 {
    ((BATCH_HEADER_BYTES + record_bytes) as u64).next_multiple_of(u64::from(page_bytes))
}

/// The checksum from which every record checksum of a store and epoch continues.
#[must_use]
pub fn record_seed(store: &[u8; 16], epoch: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(store), &epoch.to_le_bytes())
}

/// One record where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Sequence number; [`Seq::NONE`] in a dummy.
    pub seq: Seq,
    /// Stream of the record.
    pub stream: StreamId,
    /// What was appended.
    pub payload: &'a [u8],
    /// False in a dummy record, which readers skip.
    pub valid: bool,
}

impl RecordRef<'_> {
    /// Bytes of header and payload.
    #[must_use]
    pub fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload.len()
    }
}

/// Completes a record in place: `record` is the header's room followed by the payload, which is
/// there already and at most [`PAYLOAD_BYTES_MAX`] bytes.
#[inline]
pub fn seal_record(record: &mut [u8], seed: u32, stream: StreamId, seq: Seq, valid: bool) {
    let payload_bytes = record.len() - RECORD_HEADER_BYTES;
    debug_assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "append refuses longer payloads");
    let length = payload_bytes as u32 | if valid { VALID } else { 0 };
    record[4..8].copy_from_slice(&length.to_le_bytes());
    record[8..12].copy_from_slice(&stream.0.to_le_bytes());
    record[12..20].copy_from_slice(&seq.get().to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the record at the start of `bytes` and checks it.
///
/// # Errors
/// [`Invalid::Short`] or [`Invalid::Checksum`].
pub fn decode_record(bytes: &[u8], seed: u32) -> Result<RecordRef<'_>, Invalid> {
    let header = bytes.get(..RECORD_HEADER_BYTES).ok_or(Invalid::Short)?;
    let length = u32_at(header, 4);
    let end = RECORD_HEADER_BYTES + (length & !VALID) as usize;
    let record = bytes.get(..end).ok_or(Invalid::Short)?;
    if u32_at(record, 0) != crc32c::crc32c_append(seed, &record[4..]) {
        return Err(Invalid::Checksum);
    }
    Ok(RecordRef {
        seq: Seq::new(u64_at(record, 12)),
        stream: StreamId(u32_at(record, 8)),
        payload: &record[RECORD_HEADER_BYTES..],
        valid: length & VALID != 0,
    })
}

/// Checks every record of a batch, whose bytes start with its header. Cost: one checksum pass.
///
/// # Errors
/// [`Invalid`] with the problem of the first invalid record.
pub fn check_records(header: &BatchHeader, batch: &[u8]) -> Result<(), Invalid> {
    let seed = record_seed(&header.store, header.epoch);
    let mut rest = batch.get(BATCH_HEADER_BYTES..header.records_end()).ok_or(Invalid::Short)?;
    let mut seq = header.first_seq;
    while !rest.is_empty() {
        let record = decode_record(rest, seed)?;
        let expected = if record.valid { seq } else { Seq::NONE };
        if record.seq != expected {
            return Err(Invalid::Sequence);
        }
        seq = seq.checked_plus(u64::from(record.valid)).ok_or(Invalid::Sequence)?;
        rest = &rest[record.bytes()..];
    }
    if seq == header.last_seq().next() { Ok(()) } else { Err(Invalid::Sequence) }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
