//! The owner of a session in tests: an export in memory, and a connection that gives and takes
//! bytes in steps of any length.
//!
//! Every request takes effect when it arrives, so what is on the disk does not depend on the order
//! of replies, which is arbitrary. The disk of [`SIZE`] bytes is damaged at [`BAD`].

use upsweep_nbd::{
    Command, Config, Context, End, ErrorCode, Event, Export, Extent, Fault, Misuse, Piece, Purpose,
    Refusal, RequestId, Session, Wants,
};

pub const SIZE: usize = 1 << 16;
pub const BLOCK: usize = 512;
/// Reading this block fails.
pub const BAD: usize = 40 * BLOCK;

/// What a request did, kept until it is replied to.
enum Done {
    Yes,
    Read(Vec<Piece>, Option<Fault>),
    Status(Vec<Vec<Extent>>),
    Failed(ErrorCode),
}

pub struct Owner<'a> {
    pub session: Session,
    pub disk: Vec<u8>,
    pub dirty: Vec<bool>,
    pub sent: Vec<u8>,
    /// Whether an export was opened.
    pub opened: Option<String>,
    config: Config,
    exports: &'a [Export],
    done: Vec<(RequestId, Done)>,
    /// A write whose payload is coming: where it goes, and what is there of it.
    write: Option<(RequestId, usize, Vec<u8>)>,
}

/// A disk with data in every third block.
pub fn disk() -> Vec<u8> {
    let byte = |at: usize| if (at / BLOCK).is_multiple_of(3) { (at / 7) as u8 | 1 } else { 0 };
    (0..SIZE).map(byte).collect()
}

/// The exports of the tests: `disk`, also the default; `frozen`, read-only, with blocks of 512
/// bytes; `secret`, for TLS alone.
pub fn exports() -> Vec<Export> {
    let mut disk = Export::new("disk", SIZE as u64);
    disk.description = "a disk".to_owned();
    disk.multi_connection = true;
    let bitmap = |name: &str| Context::DirtyBitmap(name.into());
    disk.contexts = vec![Context::Allocation, Context::AllocationDepth, bitmap("a"), bitmap("b")];
    let mut frozen = Export::new("frozen", SIZE as u64);
    frozen.read_only = true;
    frozen.rotational = true;
    frozen.block_bytes_min = 512;
    let mut secret = Export::new("secret", SIZE as u64);
    secret.tls_only = true;
    vec![disk, frozen, secret]
}

impl<'a> Owner<'a> {
    pub fn new(config: Config, exports: &'a [Export]) -> Self {
        Self {
            session: Session::new(config.clone()).expect("a valid configuration"),
            disk: disk(),
            dirty: vec![false; SIZE / BLOCK],
            sent: Vec::new(),
            opened: None,
            config,
            exports,
            done: Vec::new(),
            write: None,
        }
    }

    /// Feeds the input, one part after the other: the next part comes only when the session has
    /// taken all of the last and wants more. `choose` decides between what could happen next, and
    /// how many bytes pass; its result is below its argument. Returns when nothing can happen any
    /// more.
    pub fn run(&mut self, parts: &[Vec<u8>], choose: &mut dyn FnMut(usize) -> usize) {
        let mut parts = parts.iter();
        let mut input: &[u8] = &[];
        loop {
            self.take_events();
            self.check_bounds();
            let first = choose(3);
            let acted = (first..first + 3).any(|action| match action % 3 {
                0 => self.send(choose),
                1 => self.reply(choose),
                _ => self.input(&mut input, choose),
            });
            if acted {
                continue;
            }
            let is_over = matches!(self.session.wants(), Wants::End | Wants::Nothing);
            match parts.next() {
                Some(next) if input.is_empty() && !is_over => input = next,
                _ => return,
            }
        }
    }

    /// Feeds the input at once.
    pub fn run_plainly(&mut self, parts: &[Vec<u8>]) -> Option<End> {
        self.run(parts, &mut |_| 0);
        self.session.ended()
    }

    fn check_bounds(&self) {
        let count = self.session.requests_in_flight();
        assert!(count <= self.config.requests_in_flight_max);
        let bytes = self.session.bytes_in_flight();
        assert!(count <= 1 || bytes <= self.config.bytes_in_flight_max || !self.in_transmission());
    }

    fn in_transmission(&self) -> bool {
        self.session.export().is_some()
    }

    fn send(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> bool {
        let offered: Vec<u8> = self.session.output().flatten().copied().collect();
        if offered.is_empty() {
            assert!(self.session.output().next().is_none());
            return false;
        }
        let count = offered.len() - choose(offered.len());
        self.sent.extend_from_slice(&offered[..count]);
        self.session.consume(count as u64);
        true
    }

    fn input(&mut self, input: &mut &[u8], choose: &mut dyn FnMut(usize) -> usize) -> bool {
        match self.session.wants() {
            Wants::Tls if input.is_empty() => {
                self.session.tls_established();
                self.session.is_encrypted()
            }
            _ if input.is_empty() => false,
            Wants::Bytes | Wants::Tls => {
                let count = input.len() - choose(input.len());
                let taken = self.session.receive(&input[..count]);
                *input = &input[taken..];
                taken > 0 || self.session.ended().is_some()
            }
            Wants::Payload { id, bytes } => {
                let count = (input.len() - choose(input.len())).min(bytes as usize);
                let (open, offset, payload) = self.write.as_mut().expect("a write was announced");
                assert_eq!(*open, id);
                payload.extend_from_slice(&input[..count]);
                *input = &input[count..];
                if count == bytes as usize {
                    self.disk[*offset..*offset + payload.len()].copy_from_slice(payload);
                    let (offset, length) = (*offset, payload.len());
                    self.mark(offset, length);
                    self.write = None;
                    self.done.push((id, Done::Yes));
                } else {
                    assert_eq!(self.session.reply_done(id), Err(Misuse::PayloadMissing));
                }
                self.session.payload_received(count as u32);
                true
            }
            Wants::Nothing | Wants::End => false,
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.session.event() {
            match event {
                Event::List => {
                    let listed: Vec<(&str, &str)> = self
                        .exports
                        .iter()
                        .map(|export| (export.name.as_str(), export.description.as_str()))
                        .collect();
                    self.session.answer_list(Ok(&listed)).expect("it was asked");
                }
                Event::Lookup { name, purpose } => {
                    let is_it = |export: &&Export| {
                        export.name == name || (name.is_empty() && export.name == "disk")
                    };
                    let answer = match self.exports.iter().find(is_it) {
                        Some(export) => Ok(export.clone()),
                        None if name == "private" => Err(Refusal::Policy),
                        None => Err(Refusal::Unknown),
                    };
                    self.session.answer_lookup(answer).expect("it was asked");
                    if self.session.export().is_some() {
                        assert_eq!(purpose, Purpose::Open);
                        self.opened = Some(name);
                    }
                }
                Event::Request(request) => self.perform(request.id, request.command),
            }
        }
    }

    fn perform(&mut self, id: RequestId, command: Command) {
        let done = match command {
            Command::Write { offset, .. } => {
                self.write = Some((id, offset as usize, Vec::new()));
                return;
            }
            Command::Read { offset, length } => self.read(offset as usize, length as usize),
            Command::WriteZeroes { offset, length, fast, .. } => {
                let is_fast = (offset as usize).is_multiple_of(BLOCK);
                if fast && !is_fast {
                    Done::Failed(ErrorCode::NotSupported)
                } else {
                    self.disk[offset as usize..(offset + length) as usize].fill(0);
                    self.mark(offset as usize, length as usize);
                    Done::Yes
                }
            }
            Command::BlockStatus { offset, length, contexts, extents_max } => {
                let end = if extents_max == 1 { SIZE } else { (offset + length) as usize };
                let list = |context| self.status(context, offset as usize, end);
                Done::Status(contexts.iter().map(list).collect())
            }
            Command::Flush | Command::Trim { .. } | Command::Cache { .. } => Done::Yes,
        };
        self.done.push((id, done));
    }

    fn mark(&mut self, offset: usize, length: usize) {
        self.dirty[offset / BLOCK..(offset + length).div_ceil(BLOCK)].fill(true);
    }

    /// Pieces of at most a block; blocks of zeros are holes.
    fn read(&self, offset: usize, length: usize) -> Done {
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let block = at / BLOCK * BLOCK;
            let end = (block + BLOCK).min(offset + length);
            if block == BAD {
                let message = "a bad block".to_owned();
                let fault = Fault { code: ErrorCode::Io, message, offset: Some(at as u64) };
                return Done::Read(pieces, Some(fault));
            }
            let data = &self.disk[at..end];
            pieces.push(if data.iter().all(|byte| *byte == 0) {
                Piece::Hole((end - at) as u32)
            } else {
                Piece::Data(data.to_vec())
            });
            at = end;
        }
        Done::Read(pieces, None)
    }

    /// An extent for each block or part of one.
    fn status(&self, context: &Context, offset: usize, end: usize) -> Vec<Extent> {
        let status = |block: usize| {
            let bytes = &self.disk[block * BLOCK..(block + 1) * BLOCK];
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            match context {
                Context::Allocation if is_zero => Context::HOLE | Context::ZERO,
                Context::Allocation => 0,
                Context::AllocationDepth => u32::from(!is_zero),
                Context::DirtyBitmap(_) => u32::from(self.dirty[block]) * Context::DIRTY,
            }
        };
        (offset / BLOCK..end.div_ceil(BLOCK))
            .map(|block| {
                let length = (block + 1) * BLOCK - (block * BLOCK).max(offset);
                Extent { length: length as u64, status: status(block) }
            })
            .collect()
    }

    fn reply(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> bool {
        if self.done.is_empty() {
            return false;
        }
        let (id, done) = self.done.remove(choose(self.done.len()));
        let result = match done {
            Done::Yes => self.session.reply_done(id),
            Done::Read(pieces, None) => self.session.reply_read(id, pieces),
            Done::Read(pieces, Some(fault)) => self.session.reply_read_until(id, pieces, &fault),
            Done::Status(lists) => self.session.reply_status(id, &lists),
            Done::Failed(code) => self.session.reply_error(id, code),
        };
        assert_eq!(result, Ok(()));
        assert_eq!(self.session.reply_done(id), Err(Misuse::NotInFlight));
        true
    }
}
