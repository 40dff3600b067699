//! The stream of `send` and `receive`: what a volume was at a moment, or what has changed since
//! another one.
//!
//! A stream begins with a magic number and the version of the format. Then there are records, each
//! of which is a kind, the length of its body, the body, and a checksum: the CRC-32C of the whole
//! stream up to there, without earlier checksums. So a record is known to be right, and in its
//! place, before it has any effect. The first record is the header and the last one the end, with
//! totals. Records of data and zeros are in the order of the volume and do not overlap; what none
//! of them has is as it was at the base, or zero if there is none. Numbers are little endian.
//!
//! | kind | record | body |
//! |---|---|---|
//! | 1 | header | [`Header`], in the format of `postcard` |
//! | 2 | data | offset (8 bytes), content: whole blocks, up to 1 MiB |
//! | 3 | zeros | offset (8), length in bytes (8), whole blocks |
//! | 4 | end | number of records of data and zeros (8), bytes of data (8), bytes of zeros (8) |
//!
//! Both sides need memory for one record.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufReader, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address::BLOCK_BYTES;
use crate::catalog::{check_name, check_size};
use crate::error::Error;
use crate::rows::BlockSize;

const MAGIC: &[u8; 12] = b"upsweep-send";
const VERSION: u32 = 1;
const HEADER: u8 = 1;
const DATA: u8 = 2;
const ZEROS: u8 = 3;
const END: u8 = 4;
/// The most content of a record of data, in bytes.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Bytes of a record before its body: kind and length.
const PREFIX_BYTES: usize = 5;
const NUMBER_BYTES: usize = 8;
const BODY_BYTES_MAX: usize = NUMBER_BYTES + DATA_BYTES_MAX;

/// A moment of a volume, of whichever store: no other one has the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The identity of the store.
    pub store: u128,
    /// The branch that the volume looked at.
    pub branch: u32,
    /// The moment.
    pub stamp: u64,
}

/// What a stream continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The moment.
    pub identity: Identity,
    /// Its name at the sender, for messages.
    pub name: String,
}

/// What a stream has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The moment that was sent.
    pub target: Identity,
    /// The name of the snapshot that the receiver gets of it.
    pub name: String,
    /// The logical block size of the volume.
    pub block_size: BlockSize,
    /// The size of the volume then, in bytes.
    pub bytes: u64,
    /// The moment since which it has what changed; `None`: it has everything.
    pub base: Option<Base>,
    /// Offset in the volume, in bytes, before which it has nothing: the receiver has that.
    pub start: u64,
}

/// Where an interrupted stream goes on: see [`Sending::resume`](crate::Sending::resume).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// The moment that is being sent.
    pub target: Identity,
    /// Offset in the volume, in bytes, up to which the receiver has all.
    pub start: u64,
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// It has this content.
    Data {
        /// Offset in the volume, in bytes.
        offset: u64,
        /// The content: whole blocks.
        data: &'a [u8],
    },
    /// It is zero.
    Zeros {
        /// Offset in the volume, in bytes.
        offset: u64,
        /// Length in bytes: whole blocks.
        bytes: u64,
    },
}

/// What the records of a stream have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Number of records of data and of zeros.
    pub records: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of zeros.
    pub zero_bytes: u64,
}

impl Display for ResumeToken {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Identity { store, branch, stamp } = self.target;
        write!(formatter, "{store:032x}-{branch}-{stamp}-{}", self.start)
    }
}

impl FromStr for ResumeToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('-').collect();
        let parsed = || {
            let [store, branch, stamp, start] = parts[..] else { return None };
            let store = u128::from_str_radix(store, 16).ok()?;
            let (branch, stamp) = (branch.parse().ok()?, stamp.parse().ok()?);
            let start = start.parse().ok().filter(|start: &u64| start.is_multiple_of(BLOCK_BYTES));
            Some(Self { target: Identity { store, branch, stamp }, start: start? })
        };
        let advice = "give a token that `upsweep volume receive --resume-token` has printed";
        parsed().ok_or_else(|| advice.to_owned())
    }
}

impl Header {
    /// Where to go on with this stream once the receiver has all before its start.
    #[must_use]
    pub fn token(&self) -> ResumeToken {
        ResumeToken { target: self.target, start: self.start }
    }

    /// The size of the volume then in whole blocks of the map.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Says why it can be none.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_size(self.bytes, self.block_size).map_err(|error| error.to_string())?;
        let names = [&self.name].into_iter().chain(self.base.as_ref().map(|base| &base.name));
        for name in names {
            check_name(name).map_err(|error| error.to_string())?;
        }
        let is_inside = self.start.is_multiple_of(BLOCK_BYTES) && self.start <= self.whole_bytes();
        if is_inside { Ok(()) } else { Err(format!("it begins at {} of the volume", self.start)) }
    }
}

impl Record<'_> {
    /// Its offset and its length in bytes.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match self {
            Self::Data { offset, data } => (*offset, data.len() as u64),
            Self::Zeros { offset, bytes } => (*offset, *bytes),
        }
    }
}

impl Totals {
    fn count(&mut self, record: &Record<'_>) {
        self.records += 1;
        let of_kind = match record {
            Record::Data { .. } => &mut self.data_bytes,
            Record::Zeros { .. } => &mut self.zero_bytes,
        };
        *of_kind += record.range().1;
    }

    fn numbers(&self) -> [u64; 3] {
        [self.records, self.data_bytes, self.zero_bytes]
    }
}

/// Writes a stream.
pub struct Encoder<W> {
    out: W,
    position: u64,
    crc: u32,
    totals: Totals,
    /// A record that is being put together.
    frame: Vec<u8>,
}

impl<W: Write> Encoder<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// [`Error::Transfer`].
    pub fn new(out: W, header: &Header) -> Result<Self, Error> {
        let start = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let crc = crc32c::crc32c(&start);
        let mut encoder =
            Self { out, position: 0, crc, totals: Totals::default(), frame: Vec::new() };
        encoder.write(&start)?;
        let header = postcard::to_allocvec(header).expect("it is encoded to memory");
        encoder.record(HEADER, &[&header])?;
        Ok(encoder)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.write_all(bytes).map_err(|error| transfer(self.position, &error))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn record(&mut self, kind: u8, body: &[&[u8]]) -> Result<(), Error> {
        let length: usize = body.iter().map(|part| part.len()).sum();
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.push(kind);
        frame.extend((length as u32).to_le_bytes());
        body.iter().for_each(|part| frame.extend_from_slice(part));
        self.crc = crc32c::crc32c_append(self.crc, &frame);
        frame.extend(self.crc.to_le_bytes());
        let written = self.write(&frame);
        self.frame = frame;
        written
    }

    /// Writes a part of the volume, which is behind the one before: whole blocks, up to
    /// [`DATA_BYTES_MAX`] bytes of data.
    ///
    /// # Errors
    /// [`Error::Transfer`].
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), Error> {
        self.totals.count(record);
        match record {
            Record::Data { offset, data } => self.record(DATA, &[&offset.to_le_bytes(), data]),
            Record::Zeros { offset, bytes } => {
                self.record(ZEROS, &[&offset.to_le_bytes(), &bytes.to_le_bytes()])
            }
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`Error::Transfer`].
    pub fn end(mut self) -> Result<Totals, Error> {
        let numbers = self.totals.numbers().map(u64::to_le_bytes);
        self.record(END, &numbers.each_ref().map(<[u8; 8]>::as_slice))?;
        self.out.flush().map_err(|error| transfer(self.position, &error))?;
        Ok(self.totals)
    }
}

/// Reads a stream.
pub struct Decoder<R> {
    input: BufReader<R>,
    header: Header,
    position: u64,
    crc: u32,
    /// Where the next record begins in the volume, at least.
    next: u64,
    totals: Totals,
    body: Vec<u8>,
}

impl<R: Read> Decoder<R> {
    /// Reads the header of a stream.
    ///
    /// # Errors
    /// [`Error::BadStream`]; [`Error::Transfer`].
    pub fn new(input: R) -> Result<Self, Error> {
        let mut input = BufReader::new(input);
        let mut start = [0; MAGIC.len() + 4];
        let read = fill(&mut input, &mut start, 0)?;
        if !start.starts_with(MAGIC) {
            return Err(bad(0, "this is no stream of `upsweep volume send`"));
        }
        check_is_whole(read, start.len(), 0)?;
        let version = start[MAGIC.len()..].try_into().map(u32::from_le_bytes).unwrap_or_default();
        if version != VERSION {
            let known = format!("it is of version {version}, and this program knows {VERSION}");
            return Err(bad(0, &known));
        }
        let empty = Identity { store: 0, branch: 0, stamp: 0 };
        let (name, block_size) = (String::new(), BlockSize::default());
        let header = Header { target: empty, name, block_size, bytes: 0, base: None, start: 0 };
        let mut decoder = Self {
            input,
            header,
            position: start.len() as u64,
            crc: crc32c::crc32c(&start),
            next: 0,
            totals: Totals::default(),
            body: Vec::new(),
        };
        decoder.read_header()?;
        Ok(decoder)
    }

    fn read_header(&mut self) -> Result<(), Error> {
        let at = self.position;
        let kind = self.record()?;
        let header = postcard::take_from_bytes::<Header>(&self.body).ok();
        let header = header.filter(|(_, rest)| kind == HEADER && rest.is_empty());
        let (header, _) = header.ok_or_else(|| bad(at, "it has no header"))?;
        header.check().map_err(|reason| bad(at, &reason))?;
        self.next = header.start;
        self.header = header;
        Ok(())
    }

    /// What the stream has.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes of the stream have been read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the records had that have been read.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The next part of the volume; `None` at the end, where the stream has been checked as a
    /// whole.
    ///
    /// # Errors
    /// [`Error::BadStream`] if it is damaged or ends before; [`Error::Transfer`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        let at = self.position;
        let kind = self.record()?;
        let body = self.body.as_slice();
        let record = match kind {
            DATA => {
                let (offset, data) =
                    split_number(body).ok_or_else(|| bad(at, "data without an offset"))?;
                Record::Data { offset, data }
            }
            ZEROS => {
                let numbers = numbers(body).ok_or_else(|| bad(at, "zeros without a range"))?;
                let [offset, bytes] = numbers;
                Record::Zeros { offset, bytes }
            }
            END if numbers(body) == Some(self.totals.numbers()) => return Ok(None),
            END => return Err(bad(at, "its totals are wrong")),
            _ => return Err(bad(at, &format!("a record of unknown kind {kind}"))),
        };
        let (offset, bytes) = record.range();
        let is_whole = [offset, bytes].iter().all(|number| number.is_multiple_of(BLOCK_BYTES));
        let end = offset.checked_add(bytes).filter(|end| *end <= self.header.whole_bytes());
        match end {
            Some(end) if is_whole && bytes > 0 && offset >= self.next => self.next = end,
            _ => return Err(bad(at, &format!("{bytes} bytes at {offset} are out of place"))),
        }
        self.totals.count(&record);
        Ok(Some(record))
    }

    /// Reads a record, whose body is left in `body`; returns its kind.
    fn record(&mut self) -> Result<u8, Error> {
        let at = self.position;
        let mut prefix = [0; PREFIX_BYTES];
        self.read(&mut prefix)?;
        let [kind, length @ ..] = prefix;
        let length = u32::from_le_bytes(length) as usize;
        if length > BODY_BYTES_MAX {
            return Err(bad(at, &format!("a record of {length} bytes")));
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(length, 0);
        self.read(&mut body)?;
        let mut crc = [0; 4];
        self.read(&mut crc)?;
        self.crc = crc32c::crc32c_append(crc32c::crc32c_append(self.crc, &prefix), &body);
        self.body = body;
        let found = u32::from_le_bytes(crc);
        if found != self.crc {
            return Err(bad(at, &format!("its checksum is {found:08x}, not {:08x}", self.crc)));
        }
        Ok(kind)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let read = fill(&mut self.input, into, self.position)?;
        check_is_whole(read, into.len(), self.position)?;
        self.position += read as u64;
        Ok(())
    }
}

/// Reads until the buffer is full or the input ends; returns the number of bytes.
fn fill(input: &mut impl Read, into: &mut [u8], position: u64) -> Result<usize, Error> {
    let mut filled = 0;
    while filled < into.len() {
        match input.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(transfer(position + filled as u64, &error)),
        }
    }
    Ok(filled)
}

fn check_is_whole(read: usize, expected: usize, position: u64) -> Result<(), Error> {
    match read == expected {
        true => Ok(()),
        false => Err(bad(position + read as u64, "it ends before its end")),
    }
}

/// A number, and what follows it.
fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// So many numbers, and nothing else.
fn numbers<const COUNT: usize>(bytes: &[u8]) -> Option<[u64; COUNT]> {
    let (chunks, rest) = bytes.as_chunks::<NUMBER_BYTES>();
    let chunks: &[_; COUNT] = chunks.try_into().ok()?;
    rest.is_empty().then(|| chunks.map(u64::from_le_bytes))
}

fn bad(at: u64, reason: &str) -> Error {
    Error::BadStream { at, reason: reason.to_owned() }
}

fn transfer(at: u64, error: &io::Error) -> Error {
    Error::Transfer { at, kind: error.kind(), reason: error.to_string() }
}
