//! What a server exports: size, properties and contexts, and which contexts a query means.
//!
//! The owner of a session describes an export each time that a client names it; the session keeps
//! the description that the client opened.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use crate::format::{
    BLOCK_MINIMUM_MAX, BLOCK_PREFERRED_MIN, Framing, PAYLOAD_BYTES_DEFAULT, export_flag, is_string,
};

/// A kind of knowledge about ranges of an export, which clients query by block status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// `base:allocation`: which ranges are holes, and which read as zeros. The status of an extent
    /// is made of [`HOLE`](Self::HOLE) and [`ZERO`](Self::ZERO).
    Allocation,
    /// `qemu:allocation-depth`: the status of an extent is 0 if it is not allocated, 1 if it is
    /// allocated in the volume itself, and more if in what it was cloned from.
    AllocationDepth,
    /// `qemu:dirty-bitmap:` and this name: which ranges changed. The status of an extent is
    /// [`DIRTY`](Self::DIRTY) or 0.
    DirtyBitmap(Arc<str>),
}

impl Context {
    /// Status of [`Context::Allocation`]: the extent is not allocated.
    pub const HOLE: u32 = 1;
    /// Status of [`Context::Allocation`]: the extent reads as zeros.
    pub const ZERO: u32 = 1 << 1;
    /// Status of [`Context::DirtyBitmap`]: the extent changed.
    pub const DIRTY: u32 = 1;

    /// Its name in the protocol.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Allocation => "base:allocation".to_owned(),
            Self::AllocationDepth => "qemu:allocation-depth".to_owned(),
            Self::DirtyBitmap(name) => format!("{DIRTY_BITMAPS}{name}"),
        }
    }

    fn check(&self) -> bool {
        match self {
            Self::Allocation | Self::AllocationDepth => true,
            Self::DirtyBitmap(name) => !name.is_empty() && is_string(&self.name()),
        }
    }
}

const DIRTY_BITMAPS: &str = "qemu:dirty-bitmap:";
/// Queries for several contexts, which only listing understands.
const WILDCARDS: [&str; 3] = ["base:", "qemu:", DIRTY_BITMAPS];

/// The contexts that one of the queries means, or `None` if a query has no namespace. Listing knows
/// wildcards, and without queries it means all.
pub(crate) fn select<'a>(
    contexts: &'a [Context],
    queries: &[String],
    is_listing: bool,
) -> Option<Vec<&'a Context>> {
    let is_query = |query: &String| query.find(':').is_some_and(|colon| colon > 0);
    if !queries.iter().all(is_query) {
        return None;
    }
    if is_listing && queries.is_empty() {
        return Some(contexts.iter().collect());
    }
    let is_meant = |name: &str| {
        queries.iter().any(|query| {
            let is_wildcard = is_listing && WILDCARDS.contains(&query.as_str());
            name == query || (is_wildcard && name.starts_with(query.as_str()))
        })
    };
    Some(contexts.iter().filter(|context| is_meant(&context.name())).collect())
}

/// What clients see of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name in lists; a client may have used another, such as the empty one.
    pub name: String,
    /// For people; empty if there is nothing to say.
    pub description: String,
    /// Its length in bytes, a multiple of `block_bytes_min`.
    pub size: u64,
    /// Whether requests that would change it are refused.
    pub read_only: bool,
    /// Whether it behaves like a rotating drive.
    pub rotational: bool,
    /// Whether what one connection flushed is on stable media for all others too, and what it wrote
    /// is seen by all.
    pub multi_connection: bool,
    /// Whether it is refused on connections without TLS.
    pub tls_only: bool,
    /// Clients are told that offsets and lengths are multiples of this, a power of two up to
    /// 65,536.
    pub block_bytes_min: u32,
    /// Whether requests that are no multiples of `block_bytes_min` are performed, too. Otherwise
    /// they fail.
    pub unaligned: bool,
    /// Requests of multiples of this are efficient: a power of two, at least 512 and at least
    /// `block_bytes_min`, at most [`Config::payload_bytes_max`](crate::Config::payload_bytes_max).
    pub block_bytes_preferred: u32,
    /// What block status can tell, without repetition.
    pub contexts: Vec<Context>,
}

impl Export {
    /// A writable export of this name and size with blocks of 1 byte, 4 KiB preferred, without
    /// description and contexts, for one connection at a time.
    #[must_use]
    pub fn new(name: &str, size: u64) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            size,
            read_only: false,
            rotational: false,
            multi_connection: false,
            tls_only: false,
            block_bytes_min: 1,
            unaligned: false,
            block_bytes_preferred: 4096,
            contexts: Vec::new(),
        }
    }

    /// Checks every field, in time linear in the number of contexts but for sorting them.
    pub(crate) fn check(&self, payload_bytes_max: u32) -> Result<(), InvalidExport> {
        if !is_string(&self.name) || !is_string(&self.description) {
            return Err(InvalidExport::Text);
        }
        let (minimum, preferred) = (self.block_bytes_min, self.block_bytes_preferred);
        let sizes_fit = minimum.is_power_of_two()
            && minimum <= BLOCK_MINIMUM_MAX
            && preferred.is_power_of_two()
            && preferred >= minimum.max(BLOCK_PREFERRED_MIN)
            && preferred <= payload_bytes_max;
        if !sizes_fit {
            return Err(InvalidExport::BlockSizes);
        }
        if !self.size.is_multiple_of(u64::from(minimum)) {
            return Err(InvalidExport::Size);
        }
        let mut sorted: Vec<&Context> = self.contexts.iter().collect();
        sorted.sort();
        let is_repeated = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        if is_repeated || !sorted.iter().all(|context| context.check()) {
            return Err(InvalidExport::Contexts);
        }
        Ok(())
    }

    /// Whether a client that did not ask for block sizes may use requests that do not fit them.
    pub(crate) fn has_unusual_sizes(&self, payload_bytes_max: u32) -> bool {
        (self.block_bytes_min > 1 && !self.unaligned) || payload_bytes_max < PAYLOAD_BYTES_DEFAULT
    }

    /// What the client may use, with what was negotiated.
    pub(crate) fn flags(&self, framing: Framing, has_contexts: bool) -> u16 {
        let mut flags = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_CACHE;
        let when = [
            (self.read_only, export_flag::READ_ONLY),
            (!self.read_only, export_flag::SEND_TRIM),
            (!self.read_only, export_flag::SEND_WRITE_ZEROES),
            (!self.read_only, export_flag::SEND_FAST_ZERO),
            (self.rotational, export_flag::ROTATIONAL),
            (self.multi_connection, export_flag::CAN_MULTI_CONN),
            (framing != Framing::Simple, export_flag::SEND_DF),
            (framing == Framing::Extended && has_contexts, export_flag::BLOCK_STATUS_PAYLOAD),
        ];
        for (_, flag) in when.iter().filter(|(is_set, _)| *is_set) {
            flags |= flag;
        }
        flags
    }
}

/// An [`Export`] that the protocol cannot express: correct the field, or refuse the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidExport {
    /// The name or the description is longer than 4,096 bytes or has a NUL.
    Text,
    /// A block size is no power of two or not within its range.
    BlockSizes,
    /// The size is no multiple of the minimum block size.
    Size,
    /// A context is there twice, or the name of a bitmap is empty, too long or has a NUL.
    Contexts,
}

impl Display for InvalidExport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Text => "the name or the description is too long or has a NUL",
            Self::BlockSizes => "a block size is no power of two or out of range",
            Self::Size => "the size is no multiple of the minimum block size",
            Self::Contexts => "a context is there twice or has no valid name",
        })
    }
}

impl std::error::Error for InvalidExport {}
