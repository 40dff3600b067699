//! Transmission: from the header of a request to its event, its refusal, or the end.
//!
//! A complete header stays in `held` until there is room for the request. The payload of a write is
//! announced with its event; every other payload is held (a filter, which is short) or skipped.

use super::{Event, InFlight, Session, State};
use crate::fault::{End, ErrorCode, Violation};
use crate::format::{self, REPLY_HEADER_BYTES_MAX, ReplyTo, RequestHeader};
use crate::request::{
    Accepted, Command, Request, RequestId, Rules, Verdict, judge, judge_filtered,
};

impl<B: AsRef<[u8]>> Session<B> {
    fn rules(&self) -> Rules<'_> {
        Rules {
            export: self.export.as_ref().expect("requests come once an export is open"),
            framing: self.framing,
            selected: self.selected.as_ref().map_or(&[], |(_, selected)| selected),
            payload_bytes_max: self.config.payload_bytes_max,
            extents_max: self.config.extents_max,
            shutting_down: self.shutting_down,
        }
    }

    /// Acts on the header that is held, or leaves it if there is no room.
    pub(super) fn request_header(&mut self) -> bool {
        let Some(header) = format::request_header(&self.held, self.framing) else {
            return self.violated(Violation::RequestMagic);
        };
        let rules = self.rules();
        let verdict = judge(&header, &rules);
        let bytes = verdict.bytes(&rules);
        let needs_room = !matches!(verdict, Verdict::Disconnect | Verdict::PayloadTooLong);
        if needs_room && !self.has_room(bytes) {
            return false;
        }
        self.held.clear();
        match verdict {
            Verdict::Serve(accepted) => self.start(&header, accepted, bytes),
            Verdict::Filter { payload_bytes } => {
                // At most a few bytes for each context that was selected.
                self.state = State::Filter { header, bytes: payload_bytes as usize };
                true
            }
            Verdict::Answer { result, payload_bytes } => {
                let answer = Some((self.reply_to(&header), result));
                self.state = State::Skip { bytes: payload_bytes, answer };
                true
            }
            Verdict::Disconnect => self.end(End::Disconnected),
            Verdict::PayloadTooLong => self.violated(Violation::PayloadTooLong),
        }
    }

    /// Whether a request that needs so many bytes may be taken. Alone it always may.
    fn has_room(&self, bytes: u64) -> bool {
        let in_use = self.bytes_in_flight();
        let needed = in_use.saturating_add(bytes).saturating_add(REPLY_HEADER_BYTES_MAX);
        let is_alone = self.in_flight.is_empty() && in_use == 0;
        is_alone
            || (self.in_flight.len() < self.config.requests_in_flight_max
                && needed <= self.config.bytes_in_flight_max)
    }

    fn start(&mut self, header: &RequestHeader, accepted: Accepted, reserved_bytes: u64) -> bool {
        let id = RequestId(self.request_id_next);
        self.request_id_next += 1;
        self.state = match accepted.command {
            Command::Write { length, .. } => State::Payload { id, bytes: length },
            _ => State::RequestHeader,
        };
        let to = self.reply_to(header);
        let command = accepted.command.clone();
        self.event = Some(Event::Request(Request { id, command }));
        let Accepted { command, context_ids } = accepted;
        let in_flight = InFlight { to, header: *header, command, context_ids, reserved_bytes };
        self.in_flight.insert(id, in_flight);
        self.reserved_bytes += reserved_bytes;
        false
    }

    pub(super) fn filter(&mut self, header: &RequestHeader, held: &[u8]) -> bool {
        let rules = self.rules();
        let accepted = match format::status_filter(held) {
            Some((length, ids)) => judge_filtered(header, length, &ids, &rules),
            None => Err(ErrorCode::Invalid),
        };
        match accepted {
            Ok(accepted) => {
                let verdict = Verdict::Serve(accepted);
                let bytes = verdict.bytes(&rules);
                let Verdict::Serve(accepted) = verdict else { unreachable!("made above") };
                self.start(header, accepted, bytes)
            }
            Err(code) => {
                self.answer(self.reply_to(header), Err(code));
                self.state = State::RequestHeader;
                true
            }
        }
    }

    /// Answers a request that the owner does not get.
    pub(super) fn answer(&mut self, to: ReplyTo, result: Result<(), ErrorCode>) {
        self.output.put(|out| match result {
            Ok(()) => format::put_done(out, to),
            Err(code) => format::put_error(out, to, code as u32, "", None),
        });
    }

    fn reply_to(&self, header: &RequestHeader) -> ReplyTo {
        ReplyTo { framing: self.framing, cookie: header.cookie, offset: header.offset }
    }
}
