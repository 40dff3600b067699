//! One connection, on a thread of its own, which alone touches its session.
//!
//! The thread goes around: pass answers of the workers to the session, see to its events, send,
//! receive. When nothing of this is possible it waits until the socket or the bell of its mailbox
//! is ready, or until it has to close. Requests are with the workers, for which it does not wait,
//! except where a change of thread and back would take longer than what there is to do: for short
//! writes, unless they turn out to take long, and for a request that is alone, so that the client
//! waits for its reply, unless that is a write which the device may accept before it is over.
//!
//! Received bytes go through a buffer, so that many short requests take one call of the system. The
//! payload of a write goes from there, and what is not there yet straight from the socket, into the
//! memory that the device gets, or has given for it.
//!
//! A connection ends only when all of its jobs are over. So its place, which the limit on
//! connections counts, covers all memory that it causes.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::delayed::Delayed;
use super::device::{Address, Device, Peer};
use super::listener::Socket;
use super::tls;
use super::transport::Transport;
use super::workers::{Answer, Done, Job, Mailbox, Payload};
use super::{Closing, Shared, wait_for};
use crate::config::InvalidConfig;
use crate::fault::{ErrorCode, Fault, Misuse, Refusal};
use crate::request::{Command, Request};
use crate::session::{Event, Piece, Purpose, Session, Wants};

const INPUT_BYTES: usize = 1 << 16;
const SLICES_MAX: usize = 64;
/// Requests that are left to the workers once a client has sent one before the reply of another,
/// and writes that are once two in a row have taken long.
const LEFT: usize = 64;
/// The longest write that this thread performs although it is not alone.
const QUICK_BYTES_MAX: u32 = 1 << 16;
/// A write that takes longer would better be with the workers.
const QUICK_TIME_MAX: Duration = Duration::from_micros(100);
/// How long a client that is done, or has to go, may take to receive what is there for it.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes that were received and not yet used.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

/// A write whose payload is coming.
struct Incoming {
    request: Request,
    payload: Payload,
    filled: usize,
}

/// Whether short writes take long now.
#[derive(Default)]
struct SlowWrites {
    /// The last one that this thread has performed has.
    is_last: bool,
    /// How many are left to the workers.
    left: usize,
}

impl SlowWrites {
    /// Whether to leave a write to the workers.
    fn leave(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left -= usize::from(is_left);
        is_left
    }

    /// Takes in how long a write has taken. Only two in a row count: this thread may have been
    /// interrupted.
    fn note(&mut self, took: Duration) {
        let is_slow = took > QUICK_TIME_MAX;
        if is_slow && self.is_last {
            self.left = LEFT;
        }
        self.is_last = is_slow;
    }
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    session: Session,
    transport: Transport,
    peer: Peer,
    mailbox: Arc<Mailbox>,
    device: Option<Arc<dyn Device>>,
    input: Input,
    incoming: Option<Incoming>,
    delayed: Delayed,
    /// Requests that are with the workers.
    jobs: usize,
    /// This thread has performed a request that was alone, and has not looked since whether the
    /// client has sent more meanwhile.
    has_performed: bool,
    /// How many requests are left to the workers, because the client did not wait for a reply.
    pipelined: usize,
    slow_writes: SlowWrites,
    /// The socket has given all it had; ask it when it is ready again.
    is_drained: bool,
    /// The client will send nothing more.
    is_input_over: bool,
    handshake_until: Option<Instant>,
    /// When bytes last went through.
    moved: Instant,
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        socket: Socket,
        address: Address,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self, InvalidConfig> {
        let session = Session::new(shared.config.session.clone())?;
        let moved = Instant::now();
        let handshake_until = moved.checked_add(shared.config.handshake_time_max);
        let input = Input { buffer: vec![0; INPUT_BYTES].into(), start: 0, end: 0 };
        Ok(Self {
            shared,
            session,
            transport: Transport::new(socket),
            peer: Peer { address, is_encrypted: false, names: Vec::new() },
            mailbox,
            device: None,
            input,
            incoming: None,
            delayed: Delayed::default(),
            jobs: 0,
            has_performed: false,
            pipelined: 0,
            slow_writes: SlowWrites::default(),
            is_drained: false,
            is_input_over: false,
            handshake_until,
            moved,
        })
    }

    /// Serves the client until one of the two has enough.
    pub(super) fn serve(mut self) {
        let closing = loop {
            match self.turn() {
                Ok(true) => {
                    self.moved = Instant::now();
                    // A client that never lets this wait has the same time for its handshake.
                    if let Some(late @ Closing::HandshakeLate) = self.is_late(self.moved) {
                        break late;
                    }
                }
                Ok(false) => {
                    if let Err(closing) = self.wait() {
                        break closing;
                    }
                }
                Err(closing) => break closing,
            }
        };
        // The client need not wait for jobs that it gets no answers of. If there is no room to
        // announce the end, it sees it when the socket is closed.
        let _ = self.transport.end_output();
        self.await_jobs();
        if matches!(closing, Closing::Ended(_) | Closing::Stopped) {
            self.linger();
        }
        self.shared.note(&closing);
        self.shared.exports.closed(&self.peer, &closing);
    }

    /// Does what is possible now, and returns whether any byte went through.
    fn turn(&mut self) -> Result<bool, Closing> {
        if self.shared.drain_until.get().is_some() {
            self.session.shut_down();
        }
        self.release();
        for done in self.mailbox.take() {
            self.answer(done);
        }
        self.take_events();
        self.look_for_more()?;
        // Replies of requests that came together go together.
        let is_sent = !self.has_input() && self.send()?;
        let is_received = self.receive()?;
        self.take_events();
        Ok(is_sent || is_received)
    }

    fn answer(&mut self, done: Done) {
        self.jobs -= 1;
        let (id, session) = (done.id, &mut self.session);
        let replied = match done.result {
            Ok(Answer::Done) => session.reply_done(id),
            Ok(Answer::Read(data)) => session.reply_read(id, vec![Piece::Data(data)]),
            Ok(Answer::Status(lists)) => session.reply_status(id, &lists),
            Err(failure) if failure.before.is_empty() => session.reply_error(id, failure.fault),
            Err(failure) => {
                session.reply_read_until(id, vec![Piece::Data(failure.before)], &failure.fault)
            }
        };
        if replied.is_err() {
            let message = "the device told no status".to_owned();
            let fault = Fault { code: ErrorCode::Io, message, offset: None };
            session.reply_error(id, fault).expect("the request is in flight");
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.session.event() {
            match event {
                Event::List => self.list(),
                Event::Lookup { name, purpose } => self.look_up(&name, purpose),
                Event::Request(request) => match request.command {
                    Command::Write { offset, length, durable } => {
                        let begin = |device: &Arc<dyn Device>| device.begin_write(offset, length);
                        let begun = self.device.as_ref().filter(|_| !durable).and_then(begin);
                        let payload = Payload::of(length, begun);
                        self.incoming = Some(Incoming { request, payload, filled: 0 });
                    }
                    _ => self.submit(request, Payload::default()),
                },
            }
        }
    }

    fn list(&mut self) {
        let listed = self.shared.exports.list(&self.peer);
        let pairs = listed.as_ref().map(|listed| {
            listed.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>()
        });
        let answer = pairs.as_deref().map_err(|refusal| **refusal);
        if let Err(Misuse::Export(_)) = self.session.answer_list(answer) {
            self.session.answer_list(Err(Refusal::Policy)).expect("it was asked");
        }
    }

    fn look_up(&mut self, name: &str, purpose: Purpose) {
        let exports = &self.shared.exports;
        let (answer, device) = match purpose {
            Purpose::Describe => (exports.describe(name, &self.peer), None),
            Purpose::Open => match exports.open(name, &self.peer) {
                Ok((export, device)) => (Ok(export), Some(device)),
                Err(refusal) => (Err(refusal), None),
            },
        };
        if let Err(Misuse::Export(_)) = self.session.answer_lookup(answer) {
            self.session.answer_lookup(Err(Refusal::Policy)).expect("it was asked");
        }
        if self.session.export().is_some() {
            self.device = device;
        }
    }

    fn submit(&mut self, request: Request, payload: Payload) {
        let device = self.device.clone().expect("requests come once an export is open");
        let (mailbox, received) = (Arc::clone(&self.mailbox), Instant::now());
        let delay = device.delay(&request.command);
        self.delayed.push(Job { request, payload, device, mailbox, received }, delay);
        self.release();
    }

    /// Begins requests whose time has come: when the server stops, all of them.
    fn release(&mut self) {
        let is_stopping = self.shared.drain_until.get().is_some();
        let next = if is_stopping { Delayed::take } else { Delayed::take_due };
        while let Some(job) = next(&mut self.delayed) {
            let is_quick = job.is_quick(QUICK_BYTES_MAX) && !self.slow_writes.leave();
            let is_alone = self.pipelined == 0 && job.is_short() && self.is_alone();
            self.jobs += 1;
            if is_quick || is_alone {
                let began = Instant::now();
                let done = self.shared.pool.perform(job);
                if is_quick {
                    self.slow_writes.note(began.elapsed());
                }
                self.answer(done);
                self.has_performed |= !is_quick;
            } else {
                self.pipelined = self.pipelined.saturating_sub(1);
                self.shared.pool.submit(job);
            }
        }
    }

    /// Whether a request of the client is the only one. Of several that were delayed and are due
    /// together, none is.
    fn is_alone(&self) -> bool {
        let is_input_empty = self.input.rest().is_empty() && self.is_drained;
        self.jobs == 0 && is_input_empty && self.delayed.is_empty() && !self.has_unsent()
    }

    /// After this thread has performed a request that was alone: if the client has sent more before
    /// it got the reply, it does not wait for replies, and the next requests are left to the
    /// workers.
    fn look_for_more(&mut self) -> Result<(), Closing> {
        if std::mem::take(&mut self.has_performed) && self.input.rest().is_empty() {
            self.is_drained = false;
            if self.fill()? {
                self.pipelined = LEFT;
            }
        }
        Ok(())
    }

    /// Whether something was received that the session can take now.
    fn has_input(&self) -> bool {
        let takes = matches!(self.session.wants(), Wants::Bytes | Wants::Payload { .. });
        takes && !self.input.rest().is_empty()
    }

    /// Sends as much as the socket takes, and returns whether it took any.
    fn send(&mut self) -> Result<bool, Closing> {
        let mut is_sent = false;
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(self.session.output()) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            if count == 0 {
                break;
            }
            match self.transport.write(&slices[..count]) {
                Ok(sent) => {
                    self.session.consume(sent as u64);
                    self.shared.meters.sent_bytes.fetch_add(sent as u64, Relaxed);
                    is_sent |= sent > 0;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(is_sent),
                Err(error) => return Err(lost(error)),
            }
        }
        match self.transport.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(lost(error)),
            _ => Ok(is_sent),
        }
    }

    /// Takes what the session wants and the client has sent, and returns whether anything happened.
    fn receive(&mut self) -> Result<bool, Closing> {
        match self.session.wants() {
            Wants::Bytes => {
                if self.input.rest().is_empty() && !self.fill()? {
                    return Ok(false);
                }
                self.input.start += self.session.receive(self.input.rest());
                Ok(true)
            }
            Wants::Payload { bytes, .. } => self.receive_payload(bytes),
            Wants::Tls => self.begin_tls(),
            Wants::Nothing | Wants::End => Ok(false),
        }
    }

    /// Reads into the empty buffer.
    fn fill(&mut self) -> Result<bool, Closing> {
        let mut buffer = std::mem::take(&mut self.input.buffer);
        let read = self.read(&mut buffer);
        self.input = Input { buffer, start: 0, end: *read.as_ref().unwrap_or(&0) };
        Ok(read? > 0)
    }

    /// Reads what is there; 0 bytes if there is nothing, now or ever.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Closing> {
        if self.is_drained || self.is_input_over {
            return Ok(0);
        }
        let count = match self.transport.read(buffer) {
            Ok(0) => {
                self.is_input_over = true;
                0
            }
            Ok(count) => {
                // TLS may have more.
                self.is_drained = count < buffer.len() && self.transport.tls().is_none();
                count
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_drained = true;
                0
            }
            Err(error) => return Err(lost(error)),
        };
        self.shared.meters.received_bytes.fetch_add(count as u64, Relaxed);
        Ok(count)
    }

    fn receive_payload(&mut self, missing: u32) -> Result<bool, Closing> {
        let mut incoming = self.incoming.take().expect("a write was announced");
        let space = &mut incoming.payload.bytes()[incoming.filled..];
        let there = self.input.rest();
        let count = if there.is_empty() {
            self.read(space)?
        } else {
            let count = there.len().min(space.len());
            space[..count].copy_from_slice(&there[..count]);
            self.input.start += count;
            count
        };
        incoming.filled += count;
        // No longer than the payload, whose length has 32 bits.
        self.session.payload_received(count as u32);
        if count == missing as usize {
            self.submit(incoming.request, incoming.payload);
        } else if self.is_input_over && self.input.rest().is_empty() {
            let message = "the payload is not complete".to_owned();
            let fault = Fault { code: ErrorCode::Invalid, message, offset: None };
            let replied = self.session.reply_error(incoming.request.id, fault);
            replied.expect("the write is in flight");
            return Ok(true);
        } else {
            self.incoming = Some(incoming);
        }
        Ok(count > 0)
    }

    fn begin_tls(&mut self) -> Result<bool, Closing> {
        // Plain bytes behind the option have ended the session, so TLS begins with an empty buffer.
        debug_assert!(self.input.rest().is_empty());
        if self.session.output().next().is_some() {
            return Ok(false);
        }
        if self.transport.tls().is_none() {
            let tls = self.shared.tls.as_ref().expect("the configuration was checked");
            let connection = tls.connection().map_err(|error| Closing::Tls(error.to_string()))?;
            self.transport.begin_tls(connection);
        }
        match self.transport.shake_hands() {
            Ok(_) => {
                self.session.tls_established();
                self.peer.is_encrypted = true;
                self.peer.names = self.transport.tls().map(tls::names).unwrap_or_default();
                // TLS may have read more than its handshake.
                self.is_drained = false;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(lost(error)),
        }
    }

    fn has_unsent(&self) -> bool {
        self.session.output().next().is_some() || self.transport.has_unsent()
    }

    /// Whether it is over, now that nothing more is possible without waiting.
    fn is_over(&self) -> Option<Closing> {
        if self.session.requests_in_flight() > 0 || self.has_unsent() {
            return None;
        }
        match self.session.ended() {
            Some(end) => Some(Closing::Ended(end)),
            None if self.is_input_over => Some(Closing::HungUp),
            None if self.shared.drain_until.get().is_some() => Some(Closing::Stopped),
            None => None,
        }
    }

    /// When it has to be over, and how that is called.
    fn deadline(&self) -> Option<(Instant, Closing)> {
        let drain = self.shared.drain_until.get().copied().flatten();
        let drain = drain.map(|until| (until, Closing::Stopped));
        let own = match self.session.ended() {
            Some(end) if self.session.requests_in_flight() == 0 => {
                Some((self.moved + LINGER, Closing::Ended(end)))
            }
            None if self.session.export().is_none() => {
                self.handshake_until.map(|until| (until, Closing::HandshakeLate))
            }
            _ => None,
        };
        [drain, own].into_iter().flatten().min_by_key(|(until, _)| *until)
    }

    /// Whether it has to be over by now.
    fn is_late(&self, now: Instant) -> Option<Closing> {
        self.deadline().and_then(|(until, closing)| (until <= now).then_some(closing))
    }

    /// Waits until something is possible.
    fn wait(&mut self) -> Result<(), Closing> {
        if let Some(closing) = self.is_over() {
            return Err(closing);
        }
        if let Some(closing) = self.is_late(Instant::now()) {
            return Err(closing);
        }
        let wants_input = match self.session.wants() {
            Wants::Bytes | Wants::Payload { .. } => !self.is_input_over,
            Wants::Tls => !self.has_unsent(),
            Wants::Nothing | Wants::End => false,
        };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wants_input);
        flags.set(PollFlags::OUT, self.has_unsent());
        let deadline = self.deadline().map(|(until, _)| until);
        let ready = self.poll(flags, deadline.into_iter().chain(self.delayed.due()).min());
        let gone = PollFlags::HUP | PollFlags::ERR;
        // With flags, reading or writing tells.
        if flags.is_empty() && ready.intersects(gone) {
            return Err(Closing::HungUp);
        }
        if ready.intersects(PollFlags::IN | gone) {
            self.is_drained = false;
        }
        Ok(())
    }

    /// Waits for the socket or the bell, and returns what the socket is ready for.
    fn poll(&self, flags: PollFlags, until: Option<Instant>) -> PollFlags {
        let socket = PollFd::new(&self.transport.socket, flags);
        let mut descriptors = [socket, PollFd::new(&self.mailbox.bell, PollFlags::IN)];
        wait_for(&mut descriptors, until);
        if !descriptors[1].revents().is_empty() {
            self.mailbox.bell.quiet();
        }
        descriptors[0].revents()
    }

    /// Waits until the workers have none of its requests any more; they begin no further one.
    fn await_jobs(&mut self) {
        self.mailbox.abandon();
        loop {
            self.jobs -= self.mailbox.take().len();
            if self.jobs == 0 && self.mailbox.are_accepted_over() {
                return;
            }
            let mut descriptors = [PollFd::new(&self.mailbox.bell, PollFlags::IN)];
            wait_for(&mut descriptors, None);
            self.mailbox.bell.quiet();
        }
    }

    /// Reads on until the client is gone: if the socket is closed before, what it has not received
    /// may be lost.
    fn linger(&mut self) {
        let mut until = Instant::now() + LINGER;
        let mut buffer = std::mem::take(&mut self.input.buffer);
        while !self.is_input_over && Instant::now() < until {
            if let Some(Some(drain)) = self.shared.drain_until.get() {
                until = until.min(*drain);
            }
            match io::Read::read(&mut self.transport.socket, &mut buffer) {
                Ok(0) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.poll(PollFlags::IN, Some(until));
                }
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }
}

impl Drop for Connection {
    /// Also if the exports panic.
    fn drop(&mut self) {
        self.await_jobs();
    }
}

/// What an error of the connection means.
fn lost(error: io::Error) -> Closing {
    match error.kind() {
        ErrorKind::InvalidData => Closing::Tls(error.to_string()),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Closing::HungUp
        }
        _ => Closing::Lost(error),
    }
}
