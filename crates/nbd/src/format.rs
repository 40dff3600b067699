//! Every byte layout of the protocol: magic numbers, codes, and how messages are read and written.
//!
//! No other module knows a byte offset or a number of the specification. All numbers are
//! big-endian. Reading never panics and allocates no more than the bytes that it is given; what
//! does not fit its layout exactly is `None`.

/// The longest string: names of exports and contexts, descriptions, queries, messages.
pub(crate) const STRING_BYTES_MAX: usize = 4096;
/// The payload that every peer may rely on, and what a server takes that advertises nothing.
pub(crate) const PAYLOAD_BYTES_DEFAULT: u32 = 1 << 25;
/// A read without fragments of this length has to succeed.
pub(crate) const UNFRAGMENTED_BYTES_MIN: u32 = 1 << 16;
/// The largest minimum block size.
pub(crate) const BLOCK_MINIMUM_MAX: u32 = 1 << 16;
/// The smallest preferred block size.
pub(crate) const BLOCK_PREFERRED_MIN: u32 = 512;
/// The most extents in one chunk of a block status.
pub(crate) const EXTENTS_MAX: u32 = 1 << 20;

const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

pub(crate) const CLIENT_FLAGS_BYTES: usize = 4;
pub(crate) const OPTION_HEADER_BYTES: usize = 16;
const REQUEST_HEADER_BYTES: usize = 28;
const EXTENDED_REQUEST_HEADER_BYTES: usize = 32;
/// Zeros behind the answer to `EXPORT_NAME`, unless both sides renounce them.
const EXPORT_NAME_ZEROS: usize = 124;
/// The effect length in front of the context ids in the payload of a block status.
pub(crate) const FILTER_FIXED_BYTES: u64 = 8;
pub(crate) const FILTER_ID_BYTES: u64 = 4;
/// Bytes of an extent in the payload of a block status with extended headers, the longer form.
pub(crate) const EXTENT_BYTES_MAX: u64 = 16;
const EXTENT_BYTES: u64 = 8;
/// More than the header of any reply, together with what precedes its data.
pub(crate) const REPLY_HEADER_BYTES_MAX: u64 = 64;

/// Flags of the client, in answer to the greeting, which offers the same.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Flags of an export.
pub(crate) mod export_flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
    pub(crate) const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Items of information on an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Types of replies to options.
mod option_reply {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
    pub(super) const ERROR: u32 = 1 << 31;
}

/// Why an option is refused; the values are those of the specification, without bit 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionError {
    Unsupported = 1,
    Policy = 2,
    Invalid = 3,
    TlsRequired = 5,
    Unknown = 6,
    Shutdown = 7,
    BlockSizeRequired = 8,
    TooBig = 9,
    ExtendedHeadersRequired = 10,
}

impl OptionError {
    /// What people read about it.
    fn message(self) -> &'static str {
        match self {
            Self::Unsupported => "this server does not know the option",
            Self::Policy => "the server does not allow this",
            Self::Invalid => "the option is malformed or not allowed now",
            Self::TlsRequired => "TLS is required",
            Self::Unknown => "there is no such export",
            Self::Shutdown => "the server is shutting down",
            Self::BlockSizeRequired => "the client has to ask for the block sizes",
            Self::TooBig => "the option is too long",
            Self::ExtendedHeadersRequired => "extended headers are negotiated already",
        }
    }
}

/// Types of requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

const CHUNK_DONE: u16 = 1;

/// Types of reply chunks.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXT: u16 = 6;
    pub(super) const ERROR: u16 = (1 << 15) + 1;
    pub(super) const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// The form of requests and replies, as negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One simple reply for each request.
    Simple,
    /// Chunks for each request, with compact headers.
    Structured,
    /// Chunks for each request, with extended headers in both directions.
    Extended,
}

impl Framing {
    /// Length of the header of a request.
    pub(crate) fn request_header_bytes(self) -> usize {
        match self {
            Self::Simple | Self::Structured => REQUEST_HEADER_BYTES,
            Self::Extended => EXTENDED_REQUEST_HEADER_BYTES,
        }
    }

    /// Length of an extent in a block status.
    pub(crate) fn extent_bytes(self) -> u64 {
        if self == Self::Extended { EXTENT_BYTES_MAX } else { EXTENT_BYTES }
    }

    /// The longest extent that a block status can express, a multiple of every minimum block size.
    pub(crate) fn extent_length_max(self) -> u64 {
        let longest = if self == Self::Extended { u64::MAX } else { u64::from(u32::MAX) };
        longest - longest % u64::from(BLOCK_MINIMUM_MAX)
    }
}

/// What is left to read of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn number16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn number32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn number64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string behind its length.
    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.number32()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        string(first)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Whether this may be a string of the protocol.
pub(crate) fn is_string(text: &str) -> bool {
    text.len() <= STRING_BYTES_MAX && !text.contains('\0')
}

/// A string of the protocol: UTF-8, not too long, without NUL.
pub(crate) fn string(bytes: &[u8]) -> Option<String> {
    if bytes.len() > STRING_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    is_string(text).then(|| text.to_owned())
}

/// Reads the flags of the client.
pub(crate) fn client_flags(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader(bytes);
    let flags = reader.number32()?;
    reader.end()?;
    Some(flags)
}

/// Reads the header of an option: the option, and the length of its data.
pub(crate) fn option_header(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut reader = Reader(bytes);
    if reader.number64()? != OPTION_MAGIC {
        return None;
    }
    let header = (reader.number32()?, reader.number32()?);
    reader.end()?;
    Some(header)
}

/// Reads the data of `INFO` and `GO`: the name of the export, and what the client asks for.
pub(crate) fn info_query(bytes: &[u8]) -> Option<(String, Vec<u16>)> {
    let mut reader = Reader(bytes);
    let name = reader.string()?;
    let count = reader.number16()?;
    let items: Option<Vec<u16>> = (0..count).map(|_| reader.number16()).collect();
    reader.end()?;
    Some((name, items?))
}

/// Reads the data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: the export, and the queries.
pub(crate) fn context_query(bytes: &[u8]) -> Option<(String, Vec<String>)> {
    let mut reader = Reader(bytes);
    let name = reader.string()?;
    let count = reader.number32()?;
    let queries: Option<Vec<String>> = (0..count).map(|_| reader.string()).collect();
    reader.end()?;
    Some((name, queries?))
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    /// Of the payload, or of the range that the request is about.
    pub(crate) length: u64,
}

impl RequestHeader {
    /// Bytes of payload behind the header.
    pub(crate) fn payload_bytes(&self, framing: Framing) -> u64 {
        let has_payload = match framing {
            Framing::Simple | Framing::Structured => self.command == command::WRITE,
            Framing::Extended => self.flags & command_flag::PAYLOAD_LEN != 0,
        };
        if has_payload { self.length } else { 0 }
    }
}

/// Reads the header of a request.
pub(crate) fn request_header(bytes: &[u8], framing: Framing) -> Option<RequestHeader> {
    let mut reader = Reader(bytes);
    let is_extended = framing == Framing::Extended;
    let magic = if is_extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
    if reader.number32()? != magic {
        return None;
    }
    let header = RequestHeader {
        flags: reader.number16()?,
        command: reader.number16()?,
        cookie: reader.number64()?,
        offset: reader.number64()?,
        length: if is_extended { reader.number64()? } else { u64::from(reader.number32()?) },
    };
    reader.end()?;
    Some(header)
}

/// Reads the payload of a block status: the effect length, and the contexts that are asked for.
pub(crate) fn status_filter(bytes: &[u8]) -> Option<(u64, Vec<u32>)> {
    let mut reader = Reader(bytes);
    let length = reader.number64()?;
    let mut ids = Vec::new();
    while reader.end().is_none() {
        ids.push(reader.number32()?);
    }
    Some((length, ids))
}

/// Writes the greeting.
pub(crate) fn put_greeting(out: &mut Vec<u8>) {
    out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    out.extend_from_slice(&flags.to_be_bytes());
}

/// Writes the answer to `EXPORT_NAME`.
pub(crate) fn put_export(out: &mut Vec<u8>, size: u64, flags: u16, zeroes: bool) {
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    if zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_ZEROS]);
    }
}

fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length32(length).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A length in a header; every part of a reply is bounded far below.
fn length32(length: usize) -> u32 {
    u32::try_from(length).expect("replies are made of strings and bounded lists")
}

/// Writes that an option succeeded.
pub(crate) fn put_ack(out: &mut Vec<u8>, option: u32) {
    put_option_reply(out, option, option_reply::ACK, &[]);
}

/// Writes that an option failed.
pub(crate) fn put_option_error(out: &mut Vec<u8>, option: u32, error: OptionError) {
    let kind = option_reply::ERROR + error as u32;
    put_option_reply(out, option, kind, &[error.message().as_bytes()]);
}

/// Writes one export of a list.
pub(crate) fn put_listed(out: &mut Vec<u8>, name: &str, description: &str) {
    let length = length32(name.len()).to_be_bytes();
    let parts = [&length[..], name.as_bytes(), description.as_bytes()];
    put_option_reply(out, option::LIST, option_reply::SERVER, &parts);
}

/// Writes size and flags of an export.
pub(crate) fn put_info_export(out: &mut Vec<u8>, option: u32, size: u64, flags: u16) {
    let parts = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()];
    put_option_reply(out, option, option_reply::INFO, &parts);
}

/// Writes the name or the description of an export.
pub(crate) fn put_info_text(out: &mut Vec<u8>, option: u32, item: u16, text: &str) {
    let parts = [&item.to_be_bytes()[..], text.as_bytes()];
    put_option_reply(out, option, option_reply::INFO, &parts);
}

/// Writes the block sizes of an export: the minimum, the preferred one, and the longest payload.
pub(crate) fn put_info_sizes(out: &mut Vec<u8>, option: u32, sizes: [u32; 3]) {
    let [minimum, preferred, payload] = sizes.map(u32::to_be_bytes);
    let parts = [&info::BLOCK_SIZE.to_be_bytes()[..], &minimum, &preferred, &payload];
    put_option_reply(out, option, option_reply::INFO, &parts);
}

/// Writes one context.
pub(crate) fn put_context(out: &mut Vec<u8>, option: u32, id: u32, name: &str) {
    let parts = [&id.to_be_bytes()[..], name.as_bytes()];
    put_option_reply(out, option, option_reply::META_CONTEXT, &parts);
}

/// The request that a reply belongs to, and the form of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) framing: Framing,
    pub(crate) cookie: u64,
    /// Of the request.
    pub(crate) offset: u64,
}

/// Writes a simple reply; the data of a read follow.
pub(crate) fn put_simple(out: &mut Vec<u8>, cookie: u64, error: u32) {
    out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

/// Writes the header of a chunk; `length` bytes follow.
fn put_chunk(out: &mut Vec<u8>, to: ReplyTo, is_last: bool, kind: u16, length: u64) {
    let flags = if is_last { CHUNK_DONE } else { 0 };
    let is_extended = to.framing == Framing::Extended;
    let magic = if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
    out.extend_from_slice(&magic.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&to.cookie.to_be_bytes());
    if is_extended {
        out.extend_from_slice(&to.offset.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        let length = u32::try_from(length).expect("the payload of a chunk is bounded");
        out.extend_from_slice(&length.to_be_bytes());
    }
}

/// Writes that a request succeeded.
pub(crate) fn put_done(out: &mut Vec<u8>, to: ReplyTo) {
    match to.framing {
        Framing::Simple => put_simple(out, to.cookie, 0),
        Framing::Structured | Framing::Extended => put_chunk(out, to, true, chunk::NONE, 0),
    }
}

/// Writes that a request failed, at an offset if it is known. Simple replies have only the number.
pub(crate) fn put_error(
    out: &mut Vec<u8>,
    to: ReplyTo,
    error: u32,
    message: &str,
    at: Option<u64>,
) {
    if to.framing == Framing::Simple {
        put_simple(out, to.cookie, error);
        return;
    }
    let message = message.get(..message.floor_char_boundary(STRING_BYTES_MAX)).unwrap_or_default();
    let kind = if at.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
    let at = at.map(u64::to_be_bytes);
    let at = at.as_ref().map_or(&[][..], |at| &at[..]);
    let message_length = u16::try_from(message.len()).expect("messages are cut");
    put_chunk(out, to, true, kind, 6 + u64::from(message_length) + at.len() as u64);
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&message_length.to_be_bytes());
    out.extend_from_slice(message.as_bytes());
    out.extend_from_slice(at);
}

/// Writes what precedes `length` bytes of data that were read at `at`.
pub(crate) fn put_data(out: &mut Vec<u8>, to: ReplyTo, is_last: bool, at: u64, length: u64) {
    put_chunk(out, to, is_last, chunk::OFFSET_DATA, 8 + length);
    out.extend_from_slice(&at.to_be_bytes());
}

/// Writes that `length` bytes at `at` are zero.
pub(crate) fn put_hole(out: &mut Vec<u8>, to: ReplyTo, is_last: bool, at: u64, length: u32) {
    put_chunk(out, to, is_last, chunk::OFFSET_HOLE, 12);
    out.extend_from_slice(&at.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

/// Writes the extents of one context: length and status of each. Lengths fit the framing.
pub(crate) fn put_status(
    out: &mut Vec<u8>,
    to: ReplyTo,
    is_last: bool,
    context: u32,
    extents: &[(u64, u32)],
) {
    let bytes = extents.len() as u64 * to.framing.extent_bytes();
    if to.framing == Framing::Extended {
        put_chunk(out, to, is_last, chunk::BLOCK_STATUS_EXT, 8 + bytes);
        out.extend_from_slice(&context.to_be_bytes());
        out.extend_from_slice(&length32(extents.len()).to_be_bytes());
        for &(length, status) in extents {
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&u64::from(status).to_be_bytes());
        }
    } else {
        put_chunk(out, to, is_last, chunk::BLOCK_STATUS, 4 + bytes);
        out.extend_from_slice(&context.to_be_bytes());
        for &(length, status) in extents {
            let length = u32::try_from(length).expect("extents are cut to what the framing holds");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&status.to_be_bytes());
        }
    }
}
