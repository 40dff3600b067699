//! Requests: what a client asks for, and whether it may.
//!
//! [`judge`] decides from the header alone, so that a payload that nobody wants is never stored.
//! What it lets through fits the export: within its size, aligned, allowed, and no longer than the
//! limits.

use crate::export::{Context, Export};
use crate::fault::ErrorCode;
use crate::format::{
    EXTENT_BYTES_MAX, FILTER_FIXED_BYTES, FILTER_ID_BYTES, Framing, PAYLOAD_BYTES_DEFAULT,
    RequestHeader, command, command_flag,
};

/// Names a request of one session; no other of it ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// A request that waits for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names it in the reply.
    pub id: RequestId,
    /// What to do.
    pub command: Command,
}

/// What a client asks for. Ranges are never empty, lie within the export and are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Return this range: [`reply_read`](crate::Session::reply_read).
    Read {
        /// Where, in bytes.
        offset: u64,
        /// How much, at most the longest payload.
        length: u32,
    },
    /// Write the payload, which follows: [`Wants::Payload`](crate::Wants::Payload).
    Write {
        /// Where, in bytes.
        offset: u64,
        /// How much, at most the longest payload.
        length: u32,
        /// Whether the data have to be on stable media before the reply.
        durable: bool,
    },
    /// Bring everything that was replied to before to stable media.
    Flush,
    /// The content of this range does not matter any more.
    Trim {
        /// Where, in bytes.
        offset: u64,
        /// How much; it may be far more than the longest payload.
        length: u64,
        /// Whether the effect has to be on stable media before the reply.
        durable: bool,
    },
    /// This range will be read soon.
    Cache {
        /// Where, in bytes.
        offset: u64,
        /// How much; it may be far more than the longest payload.
        length: u64,
    },
    /// Make this range zeros.
    WriteZeroes {
        /// Where, in bytes.
        offset: u64,
        /// How much; it may be far more than the longest payload.
        length: u64,
        /// Whether the effect has to be on stable media before the reply.
        durable: bool,
        /// Whether space has to stay reserved for the range.
        no_hole: bool,
        /// Whether to fail at once, with [`ErrorCode::NotSupported`] and without effect, unless
        /// this is faster than to write zeros as data.
        fast: bool,
    },
    /// Tell the status of this range: [`reply_status`](crate::Session::reply_status).
    BlockStatus {
        /// Where, in bytes.
        offset: u64,
        /// How much the client is interested in; less may be told.
        length: u64,
        /// What about, in the order of the reply; at least one.
        contexts: Vec<Context>,
        /// How many extents of each context are sent at most; further ones are in vain.
        extents_max: u32,
    },
}

impl Command {
    /// Where it applies, and to how many bytes; a flush to none.
    pub(crate) fn range(&self) -> (u64, u64) {
        match *self {
            Self::Read { offset, length } | Self::Write { offset, length, .. } => {
                (offset, u64::from(length))
            }
            Self::Flush => (0, 0),
            Self::Trim { offset, length, .. }
            | Self::Cache { offset, length }
            | Self::WriteZeroes { offset, length, .. }
            | Self::BlockStatus { offset, length, .. } => (offset, length),
        }
    }
}

/// A context that the client selected, with the number that it has in replies.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    pub(crate) id: u32,
    pub(crate) context: Context,
}

/// What a request is judged by.
pub(crate) struct Rules<'a> {
    pub(crate) export: &'a Export,
    pub(crate) framing: Framing,
    pub(crate) selected: &'a [Selected],
    pub(crate) payload_bytes_max: u32,
    pub(crate) extents_max: u32,
    pub(crate) shutting_down: bool,
}

/// A request that the owner gets, and the numbers of its contexts.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) command: Command,
    pub(crate) context_ids: Vec<u32>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The owner gets it.
    Serve(Accepted),
    /// Its payload says which contexts it is about.
    Filter {
        payload_bytes: u64,
    },
    /// It is answered once its payload is skipped.
    Answer {
        result: Result<(), ErrorCode>,
        payload_bytes: u64,
    },
    Disconnect,
    PayloadTooLong,
}

impl Verdict {
    /// The bytes that the request and its reply may take, headers not counted.
    pub(crate) fn bytes(&self, rules: &Rules<'_>) -> u64 {
        let extents = u64::from(rules.extents_max) * EXTENT_BYTES_MAX;
        match self {
            Self::Serve(accepted) => match &accepted.command {
                Command::Read { length, .. } | Command::Write { length, .. } => u64::from(*length),
                Command::BlockStatus { contexts, extents_max, .. } => {
                    contexts.len() as u64 * u64::from(*extents_max) * EXTENT_BYTES_MAX
                }
                _ => 0,
            },
            Self::Filter { .. } => rules.selected.len() as u64 * extents,
            Self::Answer { .. } | Self::Disconnect | Self::PayloadTooLong => 0,
        }
    }
}

/// Judges a request by its header.
pub(crate) fn judge(header: &RequestHeader, rules: &Rules<'_>) -> Verdict {
    if header.command == command::DISC {
        return Verdict::Disconnect;
    }
    let payload_bytes = header.payload_bytes(rules.framing);
    // With compact headers a client that asked for no sizes may rely on the default.
    let payload_bytes_max = match rules.framing {
        Framing::Simple | Framing::Structured => rules.payload_bytes_max.max(PAYLOAD_BYTES_DEFAULT),
        Framing::Extended => rules.payload_bytes_max,
    };
    if payload_bytes > u64::from(payload_bytes_max) {
        return Verdict::PayloadTooLong;
    }
    if rules.shutting_down {
        return Verdict::Answer { result: Err(ErrorCode::Shutdown), payload_bytes };
    }
    let ids_bytes = FILTER_ID_BYTES * rules.selected.len() as u64;
    let is_filter = header.command == command::BLOCK_STATUS
        && payload_bytes > FILTER_FIXED_BYTES
        && payload_bytes <= FILTER_FIXED_BYTES + ids_bytes
        && payload_bytes.is_multiple_of(FILTER_ID_BYTES);
    if is_filter {
        return Verdict::Filter { payload_bytes };
    }
    match accept(header, rules) {
        Ok(Some(accepted)) => Verdict::Serve(accepted),
        Ok(None) => Verdict::Answer { result: Ok(()), payload_bytes },
        Err(code) => Verdict::Answer { result: Err(code), payload_bytes },
    }
}

/// Judges a block status whose payload gave its length and its contexts.
pub(crate) fn judge_filtered(
    header: &RequestHeader,
    length: u64,
    ids: &[u32],
    rules: &Rules<'_>,
) -> Result<Accepted, ErrorCode> {
    let is_repeated = |(at, id): (usize, &u32)| ids[..at].contains(id);
    if ids.iter().enumerate().any(is_repeated) {
        return Err(ErrorCode::Invalid);
    }
    let find = |id: &u32| rules.selected.iter().find(|selected| selected.id == *id);
    let chosen: Option<Vec<&Selected>> = ids.iter().map(find).collect();
    let flags = header.flags & !command_flag::PAYLOAD_LEN;
    let header = RequestHeader { flags, length, ..*header };
    accept_status(&header, &chosen.ok_or(ErrorCode::Invalid)?, rules)
}

/// The request, `None` if there is nothing to do, or its error.
fn accept(header: &RequestHeader, rules: &Rules<'_>) -> Result<Option<Accepted>, ErrorCode> {
    let &RequestHeader { flags, offset, length, .. } = header;
    let durable = flags & command_flag::FUA != 0;
    let command = match header.command {
        command::READ => {
            let df = if rules.framing == Framing::Simple { 0 } else { command_flag::DF };
            check_flags(flags, df)?;
            check_range(header, rules, ErrorCode::Invalid)?;
            let too_long = match rules.framing {
                Framing::Simple => ErrorCode::Invalid,
                Framing::Structured | Framing::Extended => ErrorCode::Overflow,
            };
            Command::Read { offset, length: payload_length(length, rules, too_long)? }
        }
        command::WRITE => {
            check_write_flags(flags, rules.framing)?;
            check_writable(rules)?;
            check_range(header, rules, ErrorCode::NoSpace)?;
            let length = payload_length(length, rules, ErrorCode::Invalid)?;
            Command::Write { offset, length, durable }
        }
        command::FLUSH => {
            check_flags(flags, 0)?;
            if (offset, length) != (0, 0) {
                return Err(ErrorCode::Invalid);
            }
            let accepted = Accepted { command: Command::Flush, context_ids: Vec::new() };
            return Ok(Some(accepted));
        }
        command::TRIM => {
            check_flags(flags, 0)?;
            check_writable(rules)?;
            check_range(header, rules, ErrorCode::Invalid)?;
            Command::Trim { offset, length, durable }
        }
        command::CACHE => {
            check_flags(flags, 0)?;
            check_range(header, rules, ErrorCode::Invalid)?;
            Command::Cache { offset, length }
        }
        command::WRITE_ZEROES => {
            check_flags(flags, command_flag::NO_HOLE | command_flag::FAST_ZERO)?;
            check_writable(rules)?;
            check_range(header, rules, ErrorCode::NoSpace)?;
            let no_hole = flags & command_flag::NO_HOLE != 0;
            let fast = flags & command_flag::FAST_ZERO != 0;
            Command::WriteZeroes { offset, length, durable, no_hole, fast }
        }
        command::BLOCK_STATUS => {
            let all: Vec<&Selected> = rules.selected.iter().collect();
            return accept_status(header, &all, rules).map(Some);
        }
        _ => return Err(ErrorCode::Invalid),
    };
    Ok((length > 0).then_some(Accepted { command, context_ids: Vec::new() }))
}

fn accept_status(
    header: &RequestHeader,
    selected: &[&Selected],
    rules: &Rules<'_>,
) -> Result<Accepted, ErrorCode> {
    let &RequestHeader { flags, offset, length, .. } = header;
    check_flags(flags, command_flag::REQ_ONE)?;
    check_range(header, rules, ErrorCode::Invalid)?;
    // An extent is never empty, so no reply to an empty range would be right.
    if selected.is_empty() || length == 0 {
        return Err(ErrorCode::Invalid);
    }
    let extents_max = if flags & command_flag::REQ_ONE != 0 { 1 } else { rules.extents_max };
    let contexts = selected.iter().map(|selected| selected.context.clone()).collect();
    Ok(Accepted {
        command: Command::BlockStatus { offset, length, contexts, extents_max },
        context_ids: selected.iter().map(|selected| selected.id).collect(),
    })
}

/// Every export advertises FUA, which is then valid for all commands.
fn check_flags(flags: u16, allowed: u16) -> Result<(), ErrorCode> {
    let is_known = flags & !(allowed | command_flag::FUA) == 0;
    if is_known { Ok(()) } else { Err(ErrorCode::Invalid) }
}

/// With extended headers a write has to say that it has a payload, without it must not.
fn check_write_flags(flags: u16, framing: Framing) -> Result<(), ErrorCode> {
    let payload = command_flag::PAYLOAD_LEN;
    let expected = if framing == Framing::Extended { payload } else { 0 };
    check_flags(flags, payload)?;
    if flags & payload == expected { Ok(()) } else { Err(ErrorCode::Invalid) }
}

fn check_writable(rules: &Rules<'_>) -> Result<(), ErrorCode> {
    if rules.export.read_only { Err(ErrorCode::NotPermitted) } else { Ok(()) }
}

/// Checks that the range lies within the export, and that it is aligned.
fn check_range(
    header: &RequestHeader,
    rules: &Rules<'_>,
    beyond: ErrorCode,
) -> Result<(), ErrorCode> {
    let end = header.offset.checked_add(header.length);
    if end.is_none_or(|end| end > rules.export.size) {
        return Err(beyond);
    }
    let minimum = u64::from(rules.export.block_bytes_min);
    let is_aligned = header.offset.is_multiple_of(minimum) && header.length.is_multiple_of(minimum);
    if is_aligned || rules.export.unaligned { Ok(()) } else { Err(ErrorCode::Invalid) }
}

fn payload_length(length: u64, rules: &Rules<'_>, too_long: ErrorCode) -> Result<u32, ErrorCode> {
    let length = u32::try_from(length).ok().filter(|length| *length <= rules.payload_bytes_max);
    length.ok_or(too_long)
}
