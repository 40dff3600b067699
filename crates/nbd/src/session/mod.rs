//! One connection: which bytes come next, what they mean, and what is sent.
//!
//! The state says what the next bytes of the client are. Units of known length (the flags, headers,
//! data of options, filters of a block status) are gathered in `held`, payloads that nobody wants
//! are skipped, and payloads of writes go past the session. Nothing else of the input is stored:
//! the caller keeps what was not taken.
//!
//! Invariants:
//! - At most one event waits, and while it does, no input is taken.
//! - `held` never exceeds the unit of the state, which is at most [`OPTION_BYTES_MAX`].
//! - A request is taken only if the bytes reserved by all requests in flight, the output and its
//!   own reservation keep within the configuration, or if nothing else is in flight.
//! - `reserved_bytes` is the sum of the reservations of the requests in flight.
//!
//! | module | content |
//! |---|---|
//! | `handshake` | options, and the answers of the owner |
//! | `transmission` | requests |
//! | `replies` | replies of the owner |

mod handshake;
mod replies;
mod transmission;

use std::collections::BTreeMap;

use crate::config::{Config, InvalidConfig, TlsMode};
use crate::export::Export;
use crate::fault::{End, ErrorCode, Violation};
use crate::format::{self, Framing, OptionError, ReplyTo, RequestHeader};
use crate::output::Output;
use crate::request::{Command, Request, RequestId, Selected};

pub use handshake::{OPTION_BYTES_MAX, Purpose, SELECTED_CONTEXTS_MAX};
pub use replies::{Extent, Piece};

/// What the owner of a session has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// List the exports: [`Session::answer_list`].
    List,
    /// Find an export: [`Session::answer_lookup`].
    Lookup {
        /// As the client names it; empty for the default.
        name: String,
        /// What for.
        purpose: Purpose,
    },
    /// Perform a request and reply to it, in any order with others.
    Request(Request),
}

/// What a session needs next from its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Bytes of the client, for [`Session::receive`].
    Bytes,
    /// The payload of a write, straight into the buffer of the owner, and then
    /// [`Session::payload_received`].
    Payload {
        /// The write.
        id: RequestId,
        /// What is still to come of the payload.
        bytes: u32,
    },
    /// No bytes now: an event, an answer, a reply, or output to send comes first. Do not read from
    /// the connection.
    Nothing,
    /// TLS, once all output is sent: then [`Session::tls_established`].
    Tls,
    /// No bytes ever again; see [`Session::ended`].
    End,
}

/// What the next bytes of the client are.
enum State {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        bytes: usize,
    },
    /// Data of an option whose reply is known.
    OptionSkip {
        option: u32,
        bytes: u64,
        reply: Result<(), OptionError>,
    },
    /// None: the owner has been asked.
    Owner(handshake::Question),
    Tls,
    RequestHeader,
    Payload {
        id: RequestId,
        bytes: u32,
    },
    Filter {
        header: RequestHeader,
        bytes: usize,
    },
    /// The payload of a request that is answered behind it, or was already.
    Skip {
        bytes: u64,
        answer: Option<(ReplyTo, Result<(), ErrorCode>)>,
    },
    Ended(End),
}

/// A request that waits for its reply.
struct InFlight {
    to: ReplyTo,
    header: RequestHeader,
    command: Command,
    context_ids: Vec<u32>,
    reserved_bytes: u64,
}

/// The server's side of one connection.
///
/// It is driven like this, until [`is_finished`](Self::is_finished):
/// - Take every [`event`](Self::event) and see to it.
/// - Send [`output`](Self::output) and [`consume`](Self::consume) what was sent.
/// - Do what it [`wants`](Self::wants).
///
/// All calls return at once. `B` is what data that were read are in; it is dropped once they are
/// sent.
pub struct Session<B = Vec<u8>> {
    config: Config,
    state: State,
    held: Vec<u8>,
    event: Option<Event>,
    output: Output<B>,
    shutting_down: bool,
    // Negotiated.
    is_fixed: bool,
    has_zeroes: bool,
    is_encrypted: bool,
    framing: Framing,
    /// The export of which contexts were selected, as the client named it, and these.
    selected: Option<(String, Vec<Selected>)>,
    context_id_next: u32,
    // Transmission.
    export: Option<Export>,
    in_flight: BTreeMap<RequestId, InFlight>,
    reserved_bytes: u64,
    request_id_next: u64,
}

impl<B: AsRef<[u8]>> Session<B> {
    /// A session on a connection that was just accepted, with the greeting as its first output.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`] names the field that cannot work.
    pub fn new(config: Config) -> Result<Self, InvalidConfig> {
        config.check()?;
        let mut output = Output::new();
        output.put(format::put_greeting);
        Ok(Self {
            config,
            state: State::ClientFlags,
            held: Vec::new(),
            event: None,
            output,
            shutting_down: false,
            is_fixed: false,
            has_zeroes: true,
            is_encrypted: false,
            framing: Framing::Simple,
            selected: None,
            context_id_next: 1,
            export: None,
            in_flight: BTreeMap::new(),
            reserved_bytes: 0,
            request_id_next: 0,
        })
    }

    /// Takes bytes from the client and returns how many: all, or those up to the next event or to a
    /// point where [`wants`](Self::wants) is no longer [`Wants::Bytes`]. Keep the rest and offer it
    /// again. Of a payload, copy what is there of it into its buffer instead.
    ///
    /// Also offer what is left when TLS is wanted: it was sent too early, and ends the session.
    /// Time is linear in what is taken.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.event.is_none() && self.step(&mut rest) {}
        bytes.len() - rest.len()
    }

    /// Goes on with the first of these bytes, and returns whether another step is possible.
    fn step(&mut self, rest: &mut &[u8]) -> bool {
        let unit_bytes = match &mut self.state {
            State::ClientFlags => format::CLIENT_FLAGS_BYTES,
            State::OptionHeader => format::OPTION_HEADER_BYTES,
            State::OptionData { bytes, .. } | State::Filter { bytes, .. } => *bytes,
            State::RequestHeader => self.framing.request_header_bytes(),
            State::OptionSkip { bytes, .. } | State::Skip { bytes, .. } => {
                let skipped = usize::try_from(*bytes).unwrap_or(usize::MAX).min(rest.len());
                *rest = &rest[skipped..];
                *bytes -= skipped as u64;
                return *bytes == 0 && self.finish_skip();
            }
            State::Tls if !rest.is_empty() => return self.violated(Violation::PlainBytes),
            State::Owner(_) | State::Tls | State::Payload { .. } | State::Ended(_) => return false,
        };
        if self.holds_option_back() {
            return false;
        }
        let count = (unit_bytes - self.held.len()).min(rest.len());
        let (first, after) = rest.split_at(count);
        self.held.extend_from_slice(first);
        *rest = after;
        self.held.len() == unit_bytes && self.finish_unit()
    }

    /// A client may not send an option before the reply to the last. So the output is bounded.
    fn holds_option_back(&self) -> bool {
        matches!(self.state, State::OptionHeader) && self.held.is_empty() && self.output.bytes() > 0
    }

    /// Acts on a complete unit, and returns whether another step is possible.
    fn finish_unit(&mut self) -> bool {
        if matches!(self.state, State::RequestHeader) {
            return self.request_header();
        }
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::ClientFlags => self.client_flags(&held),
            State::OptionHeader => self.option_header(&held),
            State::OptionData { option, .. } => self.option_data(option, &held),
            State::Filter { header, .. } => self.filter(&header, &held),
            _ => unreachable!("only these states have units"),
        }
    }

    fn finish_skip(&mut self) -> bool {
        match self.state {
            State::OptionSkip { option, reply, .. } => self.finish_option(option, reply),
            State::Skip { answer, .. } => {
                if let Some((to, result)) = answer {
                    self.answer(to, result);
                }
                self.state = State::RequestHeader;
                true
            }
            _ => unreachable!("only these states skip"),
        }
    }

    fn violated(&mut self, violation: Violation) -> bool {
        self.end(End::Violated(violation))
    }

    fn end(&mut self, end: End) -> bool {
        self.held = Vec::new();
        self.state = State::Ended(end);
        false
    }

    /// What the session needs next from its connection. It may change with every other call.
    #[must_use]
    pub fn wants(&self) -> Wants {
        match self.state {
            State::Ended(_) => Wants::End,
            _ if self.event.is_some() => Wants::Nothing,
            State::Owner(_) => Wants::Nothing,
            State::OptionHeader if self.holds_option_back() => Wants::Nothing,
            // Complete, but there is no room for it.
            State::RequestHeader if self.held.len() == self.framing.request_header_bytes() => {
                Wants::Nothing
            }
            State::Tls => Wants::Tls,
            State::Payload { id, bytes } => Wants::Payload { id, bytes },
            _ => Wants::Bytes,
        }
    }

    /// What the owner has to do next. Ask after every other call until there is `None`: a request
    /// that had to wait for room comes without further bytes.
    pub fn event(&mut self) -> Option<Event> {
        self.receive(&[]);
        self.event.take()
    }

    /// The owner has so many further bytes of the payload that is wanted; more than these are
    /// ignored. The write may be performed when all of them are there.
    pub fn payload_received(&mut self, count: u32) {
        if let State::Payload { bytes, .. } = &mut self.state {
            *bytes = bytes.saturating_sub(count);
            if *bytes == 0 {
                self.state = State::RequestHeader;
            }
        }
    }

    /// What is to be sent, in order, for a vectored write; empty if nothing is. There may be more
    /// behind it.
    pub fn output(&self) -> impl Iterator<Item = &[u8]> {
        self.output.slices()
    }

    /// So many bytes of the output were sent.
    pub fn consume(&mut self, count: u64) {
        self.output.consume(count);
    }

    /// From here on all bytes come from TLS and go to TLS. Nothing that was negotiated before
    /// counts. Without effect unless the session wants it and its output is sent.
    pub fn tls_established(&mut self) {
        if matches!(self.state, State::Tls) && self.output.bytes() == 0 {
            self.is_encrypted = true;
            self.framing = Framing::Simple;
            self.selected = None;
            self.state = State::OptionHeader;
        }
    }

    /// Whether TLS is established, for an owner that hides exports from others.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The server stops: from now on all options and requests are refused. Those in flight may
    /// still be answered, with success or [`ErrorCode::Shutdown`]. The client should leave then; if
    /// it does not, close the connection when [`requests_in_flight`](Self::requests_in_flight) is 0
    /// and the output sent.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// The export that the client opened, as soon as it did.
    #[must_use]
    pub fn export(&self) -> Option<&Export> {
        self.export.as_ref()
    }

    /// How many requests wait for their replies.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes that requests in flight reserve, and those of the output: what
    /// [`Config::bytes_in_flight_max`] limits.
    #[must_use]
    pub fn bytes_in_flight(&self) -> u64 {
        self.reserved_bytes + self.output.bytes()
    }

    /// How it ended, if it did: the client will say no more. Requests in flight may still be
    /// answered, and what is to be sent should be sent.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        if let State::Ended(end) = self.state { Some(end) } else { None }
    }

    /// Whether it ended, everything is answered and everything is sent: close the connection, TLS
    /// first.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended().is_some() && self.in_flight.is_empty() && self.output.bytes() == 0
    }

    fn needs_tls(&self) -> bool {
        self.config.tls == TlsMode::Required && !self.is_encrypted
    }
}
