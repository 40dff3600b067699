//! Requests to the devices: each has a token, and its completion is matched to its owner by the
//! token.
//!
//! Invariants: a token is given once; a request is in flight from its creation until its completion
//! has been handled. The log makes its own requests and tracks them itself.

use std::collections::BTreeMap;

use super::ids::SpaceId;
use crate::device::{Buffer, Class, DeviceId, Hint, Operation, Request, Token, WriteMode};
use crate::placement::Extent;

/// Number of a run within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// Number of a spill within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpillId(pub(super) u64);

/// What the completion of a request concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoKind {
    RunRead(RunId),
    RunWrite(RunId),
    ValueRead(RunId, usize),
    SpillSegmentRead,
    BlockRead(RunId, usize),
    SpillWrite(SpillId),
    Flush,
    View,
    ScanRead,
    CheckpointWrite,
    Superblock,
    FileSpace,
    LogGrowth,
}

impl IoKind {
    /// Whether the store accepts no more updates if the request fails: what it was to make stable
    /// may never become so, and a retry would prove nothing.
    pub(super) fn must_succeed(self) -> bool {
        match self {
            Self::RunWrite(_)
            | Self::SpillWrite(_)
            | Self::Flush
            | Self::CheckpointWrite
            | Self::Superblock => true,
            // Readers get the error; without space nothing grows; log growth handles its own
            // failures.
            Self::RunRead(_)
            | Self::ValueRead(..)
            | Self::SpillSegmentRead
            | Self::BlockRead(..)
            | Self::View
            | Self::ScanRead
            | Self::FileSpace
            | Self::LogGrowth => false,
        }
    }

    fn class(self) -> Class {
        match self {
            Self::RunRead(_)
            | Self::BlockRead(..)
            | Self::ValueRead(..)
            | Self::SpillSegmentRead => Class::SweepRead,
            Self::RunWrite(_) => Class::SweepWrite,
            Self::SpillWrite(_) => Class::Spill,
            Self::Flush => Class::Flush,
            Self::View => Class::ForegroundRead,
            Self::ScanRead => Class::ScanRead,
            Self::CheckpointWrite | Self::Superblock => Class::Checkpoint,
            Self::FileSpace | Self::LogGrowth => Class::FileSpace,
        }
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) kind: IoKind,
    /// Its offset on its device; `None` for a flush.
    pub(super) offset: Option<u64>,
}

/// The requests of the core.
#[derive(Default)]
pub(super) struct Io {
    in_flight: BTreeMap<Token, InFlight>,
    last_token: u64,
    /// To be submitted, in this order.
    outgoing: Vec<Request>,
}

impl Io {
    /// A new request, about the content of the space `owner` if that is a single one. It counts as
    /// in flight from now on: [`Io::send`] it, or let another part submit it.
    pub(super) fn request(
        &mut self,
        kind: IoKind,
        owner: Option<SpaceId>,
        device: DeviceId,
        operation: Operation,
    ) -> Request {
        self.last_token += 1;
        let token = Token(self.last_token);
        let offset = operation.offset();
        let before = self.in_flight.insert(token, InFlight { kind, offset });
        assert!(before.is_none(), "a token is given once");
        let hint = Hint { owner: owner.map(SpaceId::get), ..kind.class().into() };
        Request { device, token, hint, operation }
    }

    /// A new request that reads `extent`.
    pub(super) fn read_request(
        &mut self,
        kind: IoKind,
        owner: Option<SpaceId>,
        extent: Extent,
    ) -> Request {
        let buffer = Buffer::recycled(extent.bytes as usize);
        let operation = Operation::Read { offset: extent.offset, buffer };
        self.request(kind, owner, extent.device, operation)
    }

    /// The last request that was made, whoever submits it. The log makes its own.
    pub(super) fn last_made(&self) -> Token {
        Token(self.last_token)
    }

    /// Queues a request for submission.
    pub(super) fn send(&mut self, request: Request) {
        debug_assert!(self.in_flight.contains_key(&request.token), "it was made here");
        self.outgoing.push(request);
    }

    /// Makes a request and queues it for submission.
    pub(super) fn submit(
        &mut self,
        kind: IoKind,
        owner: Option<SpaceId>,
        device: DeviceId,
        operation: Operation,
    ) {
        let request = self.request(kind, owner, device, operation);
        self.send(request);
    }

    /// Reads `extent`; returns the token of the request.
    pub(super) fn read(&mut self, kind: IoKind, owner: Option<SpaceId>, extent: Extent) -> Token {
        let request = self.read_request(kind, owner, extent);
        let token = request.token;
        self.send(request);
        token
    }

    /// Writes to `extent`; a flush makes it stable.
    pub(super) fn write(
        &mut self,
        kind: IoKind,
        owner: Option<SpaceId>,
        extent: Extent,
        buffer: Buffer,
    ) {
        debug_assert_eq!(buffer.len(), extent.bytes as usize, "a write fills its extent");
        let (offset, mode) = (extent.offset, WriteMode::Cached);
        let operation = Operation::Write { offset, buffer, mode };
        self.submit(kind, owner, extent.device, operation);
    }

    /// Records that a request has completed; returns what it was.
    pub(super) fn completed(&mut self, token: Token) -> InFlight {
        self.in_flight.remove(&token).expect("a completion belongs to a request")
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether there are requests to submit.
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The requests to submit, for the log to add its own in order, and for the caller to take out.
    pub(super) fn outgoing(&mut self) -> &mut Vec<Request> {
        &mut self.outgoing
    }
}

/// The owner of a request about the content of these spaces: their common space, if they are all
/// one.
pub(super) fn owner_of(spaces: impl IntoIterator<Item = SpaceId>) -> Option<SpaceId> {
    let mut spaces = spaces.into_iter();
    spaces.next().filter(|first| spaces.all(|space| space == *first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_finds_what_it_moves_on_and_only_once() {
        let mut io = Io::default();
        let extent = Extent { device: DeviceId(1), offset: 8192, bytes: 4096 };
        let read = io.read(IoKind::RunRead(RunId(7)), Some(SpaceId::new(9)), extent);
        io.write(IoKind::SpillWrite(SpillId(3)), None, extent, Buffer::zeroed(4096));
        let kept = io.read_request(IoKind::View, None, extent);
        let sent: Vec<Request> = io.outgoing().drain(..).collect();
        assert_eq!(sent.len(), 2, "a request made for another part is not submitted");
        assert_eq!((sent[0].token, sent[0].hint.owner), (read, Some(9)));
        assert_eq!(sent[0].hint.class, Class::SweepRead);
        assert_eq!(sent[1].hint.class, Class::Spill);
        let write = InFlight { kind: IoKind::SpillWrite(SpillId(3)), offset: Some(8192) };
        assert_eq!(io.completed(sent[1].token), write);
        assert_eq!(io.completed(read).kind, IoKind::RunRead(RunId(7)));
        assert!(!io.is_idle(), "a view's read is in flight though its caller does it");
        assert_eq!(io.completed(kept.token).kind, IoKind::View);
        assert!(io.is_idle());
    }

    #[test]
    #[should_panic(expected = "a completion belongs to a request")]
    fn a_completion_that_nobody_asked_for_is_a_bug() {
        let _ = Io::default().completed(Token(1));
    }
}
