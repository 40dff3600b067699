//! What went wrong: with a request, with a connection, with a call of the owner.

use std::fmt::{self, Display, Formatter};

use crate::export::InvalidExport;

/// Why a request failed, as clients see it. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// `EPERM`: the export is read-only, or this client may not do it.
    NotPermitted = 1,
    /// `EIO`: the media failed.
    Io = 5,
    /// `ENOMEM`: avoid it; let requests wait.
    NoMemory = 12,
    /// `EINVAL`: the request is wrong.
    Invalid = 22,
    /// `ENOSPC`: there is no space left, or a quota is used up.
    NoSpace = 28,
    /// `EOVERFLOW`: too long for one reply, or for one operation without payload. Only reads with
    /// structured replies, and requests without payload that are longer than the longest payload,
    /// may fail so; for others the client gets `EINVAL`.
    Overflow = 75,
    /// `ENOTSUP`: zeros cannot be written fast. Only for
    /// [`WriteZeroes`](crate::Command::WriteZeroes) with `fast`; for others the client gets
    /// `EINVAL`.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is shutting down.
    Shutdown = 108,
}

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is.
    pub code: ErrorCode,
    /// For people. Only the first 4,096 bytes are sent, and none with simple replies.
    pub message: String,
    /// Where in the export it happened, if that is known and within the range of the request.
    pub offset: Option<u64>,
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: String::new(), offset: None }
    }
}

/// Why the owner refuses a client something in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such export, or this client is not to know of it.
    Unknown,
    /// The server does not allow it.
    Policy,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client left during the handshake.
    Aborted,
    /// The client left as it should, with requests in flight still to be answered.
    Disconnected,
    /// The client asked for an export, in a way that allows no answer, and did not get it.
    Refused,
    /// The client broke the protocol in a way that leaves nothing but to hang up.
    Violated(Violation),
}

/// What a client did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It set flags that nobody offered.
    ClientFlags,
    /// An option began with something else than its magic number.
    OptionMagic,
    /// An option was so long that not even skipping it is reasonable.
    OptionTooLong,
    /// It used an option beside `EXPORT_NAME` without fixed newstyle.
    NotFixedNewstyle,
    /// It named its export in a way that is not defined, or not allowed with extended headers.
    ExportName,
    /// It sent plain bytes after it had asked for TLS.
    PlainBytes,
    /// A request began with something else than its magic number.
    RequestMagic,
    /// A payload was so long that not even skipping it is reasonable.
    PayloadTooLong,
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ClientFlags => "the client set unknown flags",
            Self::OptionMagic => "an option has no magic number",
            Self::OptionTooLong => "an option is far too long",
            Self::NotFixedNewstyle => "an option needs fixed newstyle, which the client lacks",
            Self::ExportName => "EXPORT_NAME is malformed or not allowed",
            Self::PlainBytes => "plain bytes came where TLS has to begin",
            Self::RequestMagic => "a request has no magic number",
            Self::PayloadTooLong => "a payload is far too long",
        })
    }
}

impl std::error::Error for Violation {}

/// A call that does not fit the state of the session. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The session did not ask this, or was answered already.
    NotAsked,
    /// No request with this id waits for a reply: it was answered already.
    NotInFlight,
    /// The request needs another kind of reply.
    WrongKind,
    /// The payload of the write has not arrived completely; only an error may be replied.
    PayloadMissing,
    /// What was read does not have the length of the request, or not the one up to the failure.
    WrongLength,
    /// The block status lacks a context or has too many, or a context begins with no extent.
    WrongExtents,
    /// The export cannot be expressed.
    Export(InvalidExport),
}

impl Display for Misuse {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => formatter.write_str("the session has not asked this"),
            Self::NotInFlight => formatter.write_str("no such request waits for a reply"),
            Self::WrongKind => formatter.write_str("the request needs another kind of reply"),
            Self::PayloadMissing => formatter.write_str("the payload has not arrived completely"),
            Self::WrongLength => formatter.write_str("the pieces have another length in sum"),
            Self::WrongExtents => formatter.write_str("not one list of extents for each context"),
            Self::Export(invalid) => write!(formatter, "invalid export: {invalid}"),
        }
    }
}

impl std::error::Error for Misuse {}

impl From<InvalidExport> for Misuse {
    fn from(invalid: InvalidExport) -> Self {
        Self::Export(invalid)
    }
}
