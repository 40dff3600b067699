//! Replies: what the owner did becomes chunks or simple replies.
//!
//! Whatever form was negotiated, the owner replies in the same way. A reply that does not fit its
//! request is refused as [`Misuse`] before anything of it is written, so what is sent always keeps
//! to the protocol.

use super::{InFlight, Session, State};
use crate::fault::{ErrorCode, Fault, Misuse};
use crate::format::{self, Framing, command_flag};
use crate::request::{Command, RequestId};

/// A part of what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<B = Vec<u8>> {
    /// These bytes. They are sent from where they are.
    Data(B),
    /// So many zeros. They are sent as a hole where the client understands that.
    Hole(u32),
}

impl<B: AsRef<[u8]>> Piece<B> {
    fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.as_ref().len() as u64,
            Self::Hole(length) => u64::from(*length),
        }
    }

    fn is_hole(&self) -> bool {
        matches!(self, Self::Hole(_))
    }
}

/// A range with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes. An extent of 0 bytes is ignored.
    pub length: u64,
    /// What its [`Context`](crate::Context) defines.
    pub status: u32,
}

impl<B: AsRef<[u8]>> Session<B> {
    /// Replies that a write, flush, trim, caching or writing of zeros is done.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotInFlight`], [`Misuse::WrongKind`] for a read or a block status, and
    /// [`Misuse::PayloadMissing`] for a write that cannot be done yet.
    pub fn reply_done(&mut self, id: RequestId) -> Result<(), Misuse> {
        let in_flight = self.in_flight(id)?;
        if matches!(in_flight.command, Command::Read { .. } | Command::BlockStatus { .. }) {
            return Err(Misuse::WrongKind);
        }
        if matches!(self.state, State::Payload { id: open, .. } if open == id) {
            return Err(Misuse::PayloadMissing);
        }
        let to = self.take(id).to;
        self.output.put(|out| format::put_done(out, to));
        Ok(())
    }

    /// Replies that a request of any kind failed. Of a write, what is left of the payload is
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotInFlight`].
    pub fn reply_error(&mut self, id: RequestId, fault: impl Into<Fault>) -> Result<(), Misuse> {
        self.in_flight(id)?;
        let in_flight = self.take(id);
        if let State::Payload { id: open, bytes } = self.state
            && open == id
        {
            self.state = State::Skip { bytes: bytes.into(), answer: None };
        }
        self.put_fault(&in_flight, &fault.into());
        Ok(())
    }

    /// Replies to a read with all of its range, in order. Empty pieces are ignored. Pieces of data
    /// are not copied; neighbours share a chunk.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotInFlight`], [`Misuse::WrongKind`] if it is no read, and
    /// [`Misuse::WrongLength`] if the pieces do not have its length in sum.
    pub fn reply_read(&mut self, id: RequestId, pieces: Vec<Piece<B>>) -> Result<(), Misuse> {
        let (_, length) = self.read_range(id)?;
        check_length(&pieces, length)?;
        let in_flight = self.take(id);
        let to = in_flight.to;
        if to.framing == Framing::Simple {
            self.output.put(|out| format::put_simple(out, to.cookie, 0));
            pieces.into_iter().for_each(|piece| self.put_piece(piece));
        } else {
            self.put_chunks(&in_flight, pieces, true);
        }
        Ok(())
    }

    /// Replies to a read that failed at an offset, the one in `fault`, with what was read before
    /// it, for clients that understand that. Others get the error alone.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotInFlight`], [`Misuse::WrongKind`] if it is no read, and
    /// [`Misuse::WrongLength`] if the pieces do not end where the failure is, within the range.
    pub fn reply_read_until(
        &mut self,
        id: RequestId,
        pieces: Vec<Piece<B>>,
        fault: &Fault,
    ) -> Result<(), Misuse> {
        let (offset, length) = self.read_range(id)?;
        let before = fault.offset.and_then(|at| at.checked_sub(offset));
        let before = before.filter(|before| *before < length).ok_or(Misuse::WrongLength)?;
        check_length(&pieces, before)?;
        let in_flight = self.take(id);
        if in_flight.to.framing != Framing::Simple {
            self.put_chunks(&in_flight, pieces, false);
        }
        self.put_fault(&in_flight, fault);
        Ok(())
    }

    /// Replies to a block status with the extents of each context from the offset of the request
    /// on, in the order of [`Command::BlockStatus`]. Neighbours with the same status are joined.
    /// What is beyond the number of extents, the export or what the protocol allows is cut off.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotInFlight`], [`Misuse::WrongKind`] if it is no block status, and
    /// [`Misuse::WrongExtents`] unless there is at least one extent for each context.
    pub fn reply_status(&mut self, id: RequestId, status: &[Vec<Extent>]) -> Result<(), Misuse> {
        let in_flight = self.in_flight(id)?;
        let &Command::BlockStatus { offset, length, extents_max, .. } = &in_flight.command else {
            return Err(Misuse::WrongKind);
        };
        let size = self.export.as_ref().map_or(0, |export| export.size);
        let is_single = in_flight.header.flags & command_flag::REQ_ONE != 0;
        let cut = Cut {
            wanted: length,
            end: if is_single { length } else { size - offset },
            extent_length_max: in_flight.to.framing.extent_length_max(),
            extents_max: extents_max as usize,
        };
        let lists: Vec<Vec<(u64, u32)>> = status.iter().map(|extents| cut.apply(extents)).collect();
        let is_complete = lists.len() == in_flight.context_ids.len();
        if !is_complete || lists.iter().any(Vec::is_empty) {
            return Err(Misuse::WrongExtents);
        }
        let InFlight { to, context_ids, .. } = self.take(id);
        let last = context_ids.len() - 1;
        for (at, (context, extents)) in context_ids.into_iter().zip(&lists).enumerate() {
            self.output.put(|out| format::put_status(out, to, at == last, context, extents));
        }
        Ok(())
    }

    fn in_flight(&self, id: RequestId) -> Result<&InFlight, Misuse> {
        self.in_flight.get(&id).ok_or(Misuse::NotInFlight)
    }

    /// Removes a request that is there.
    fn take(&mut self, id: RequestId) -> InFlight {
        let in_flight = self.in_flight.remove(&id).expect("the caller has found it");
        self.reserved_bytes -= in_flight.reserved_bytes;
        in_flight
    }

    fn read_range(&self, id: RequestId) -> Result<(u64, u64), Misuse> {
        match self.in_flight(id)?.command {
            Command::Read { offset, length } => Ok((offset, u64::from(length))),
            _ => Err(Misuse::WrongKind),
        }
    }

    fn put_piece(&mut self, piece: Piece<B>) {
        match piece {
            Piece::Data(data) => self.output.put_data(data),
            Piece::Hole(length) => self.output.put_zeros(length as usize),
        }
    }

    /// Writes pieces as chunks: neighbours of the same kind in one, or all in one if the client
    /// wants no fragments.
    fn put_chunks(&mut self, in_flight: &InFlight, pieces: Vec<Piece<B>>, is_complete: bool) {
        let (to, is_whole) = (in_flight.to, in_flight.header.flags & command_flag::DF != 0);
        let is_all_holes = pieces.iter().all(|piece| piece.is_hole() || piece.len() == 0);
        let mut at = to.offset;
        let mut pieces = pieces.into_iter().filter(|piece| piece.len() > 0).peekable();
        while let Some(first) = pieces.next() {
            let is_hole = if is_whole { is_all_holes } else { first.is_hole() };
            let mut chunk = vec![first];
            while let Some(next) = pieces.next_if(|next| is_whole || next.is_hole() == is_hole) {
                chunk.push(next);
            }
            let is_last = is_complete && pieces.peek().is_none();
            let length: u64 = chunk.iter().map(Piece::len).sum();
            if is_hole {
                let hole = u32::try_from(length).expect("no longer than the read");
                self.output.put(|out| format::put_hole(out, to, is_last, at, hole));
            } else {
                self.output.put(|out| format::put_data(out, to, is_last, at, length));
                chunk.into_iter().for_each(|piece| self.put_piece(piece));
            }
            at += length;
        }
    }

    fn put_fault(&mut self, in_flight: &InFlight, fault: &Fault) {
        let to = in_flight.to;
        let code = self.permitted(fault.code, in_flight);
        let (start, length) = in_flight.command.range();
        let is_within = |at: &u64| at.checked_sub(start).is_some_and(|behind| behind < length);
        let at = fault.offset.filter(is_within);
        self.output.put(|out| format::put_error(out, to, code as u32, &fault.message, at));
    }

    /// The code, unless the protocol reserves it for other requests.
    fn permitted(&self, code: ErrorCode, in_flight: &InFlight) -> ErrorCode {
        let longest = u64::from(self.config.payload_bytes_max);
        let is_permitted = match (code, &in_flight.command) {
            (ErrorCode::NotSupported, Command::WriteZeroes { fast, .. }) => *fast,
            (ErrorCode::NotSupported, _) => false,
            (ErrorCode::Overflow, Command::Read { .. }) => in_flight.to.framing != Framing::Simple,
            (ErrorCode::Overflow, Command::Write { .. }) => false,
            (ErrorCode::Overflow, command) => command.range().1 > longest,
            _ => true,
        };
        if is_permitted { code } else { ErrorCode::Invalid }
    }
}

fn check_length<B: AsRef<[u8]>>(pieces: &[Piece<B>], expected: u64) -> Result<(), Misuse> {
    let length: u64 = pieces.iter().map(Piece::len).sum();
    if length == expected { Ok(()) } else { Err(Misuse::WrongLength) }
}

/// Where a list of extents is cut.
struct Cut {
    /// An extent begins before this length only.
    wanted: u64,
    /// None goes further.
    end: u64,
    extent_length_max: u64,
    extents_max: usize,
}

impl Cut {
    /// The beginning of the list, with neighbours of the same status joined.
    fn apply(&self, extents: &[Extent]) -> Vec<(u64, u32)> {
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut total = 0;
        for &Extent { length, status } in extents {
            let mut left = length.min(self.end - total);
            if let Some(last) = list.last_mut().filter(|last| last.1 == status) {
                let joined = left.min(self.extent_length_max - last.0);
                last.0 += joined;
                total += joined;
                left -= joined;
            }
            while left > 0 && total < self.wanted && list.len() < self.extents_max {
                let part = left.min(self.extent_length_max);
                list.push((part, status));
                total += part;
                left -= part;
            }
            if left > 0 {
                break;
            }
        }
        list
    }
}
