//! A device in memory that knows what is on stable media, and fails on demand.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use upsweep_nbd::server::{Closing, Device, Exports, IncomingWrite, Peer, Zeroing};
use upsweep_nbd::{Command, Context, ErrorCode, Export, Extent, Fault, Refusal};

use crate::PATIENCE;

pub const SIZE: usize = 1 << 20;
pub const BLOCK: usize = 512;
/// Writes of this length and more are begun by the disk, and accepted.
pub const ACCEPTED: usize = 8 * BLOCK;
/// Reading this block fails, writing it finds no space.
pub const BAD: usize = SIZE - BLOCK;
/// This block makes the device panic.
pub const PANIC: usize = SIZE - 4 * BLOCK;
/// The kinds of threads that perform requests: those of the server, and those of connections.
pub const WORKER: &str = "worker";
pub const CONNECTION: &str = "connection";

struct State {
    content: Vec<u8>,
    stable: Vec<u8>,
    allocated: Vec<bool>,
    is_shut: bool,
    /// Writes that were accepted do not end.
    is_held: bool,
    /// Calls that wait at the gate.
    waiting: usize,
    /// How long a request waits, and how many have been told.
    delay: Duration,
    delays: usize,
    /// Those that were told and will not be performed.
    cancelled: usize,
    /// The kind of the thread that has entered last.
    thread: &'static str,
    /// How long a write takes, or a list of exports.
    write_time: Duration,
    flushes: usize,
    /// How many reads were performed together, each time.
    reads: Vec<usize>,
}

/// A disk of [`SIZE`] bytes.
pub struct Disk {
    this: Weak<Self>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Disk {
    fn new() -> Arc<Self> {
        let state = State {
            content: vec![0; SIZE],
            stable: vec![0; SIZE],
            allocated: vec![false; SIZE / BLOCK],
            is_shut: false,
            is_held: false,
            waiting: 0,
            delay: Duration::ZERO,
            delays: 0,
            cancelled: 0,
            thread: "",
            write_time: Duration::ZERO,
            flushes: 0,
            reads: Vec::new(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Arc::new_cyclic(|this| Self { this: Weak::clone(this), state, changed })
    }

    pub fn content(&self) -> Vec<u8> {
        self.state.lock().content.clone()
    }

    pub fn stable(&self) -> Vec<u8> {
        self.state.lock().stable.clone()
    }

    /// The kind of the thread of the last call.
    pub fn thread(&self) -> &'static str {
        self.state.lock().thread
    }

    /// How many flushes have been performed.
    pub fn reads(&self) -> Vec<usize> {
        self.state.lock().reads.clone()
    }

    pub fn flushes(&self) -> usize {
        self.state.lock().flushes
    }

    /// How many requests will not be performed.
    pub fn cancelled(&self) -> usize {
        self.state.lock().cancelled
    }

    /// Lets each write, and each list of exports, take so long.
    pub fn slow_down(&self, write_time: Duration) {
        self.state.lock().write_time = write_time;
    }

    /// Lets calls wait before they have an effect, or lets all that wait go on.
    pub fn shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.changed.notify_all();
    }

    /// Lets writes that were accepted wait before they end, or lets all that wait go on.
    pub fn hold(&self, is_held: bool) {
        self.state.lock().is_held = is_held;
        self.changed.notify_all();
    }

    /// Lets requests that come now wait so long.
    pub fn delay_by(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Returns when so many requests have been told how long to wait.
    pub fn until_delayed(&self, delays: usize) {
        let mut state = self.state.lock();
        let until = Instant::now() + PATIENCE;
        while state.delays < delays {
            let waited = self.changed.wait_until(&mut state, until);
            assert!(!waited.timed_out(), "{} requests have been told", state.delays);
        }
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Returns when so many calls wait.
    pub fn until_waiting(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        while state.waiting < count {
            let result = self.changed.wait_until(&mut state, until);
            assert!(!result.timed_out(), "{} calls wait, not {count}", state.waiting);
        }
    }

    fn enter(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.waiting += 1;
        state.thread = match std::thread::current().name() {
            Some("upsweep-nbd-client") => CONNECTION,
            _ => WORKER,
        };
        self.changed.notify_all();
        while state.is_shut {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        state
    }

    fn change(&self, offset: u64, length: usize, durable: bool, change: impl Fn(&mut [u8])) {
        let mut state = self.enter();
        let range = offset as usize..offset as usize + length;
        change(&mut state.content[range.clone()]);
        if durable {
            change(&mut state.stable[range]);
        }
    }

    fn allocate(&self, offset: u64, length: u64, is_allocated: bool) {
        let end = (offset + length).div_ceil(BLOCK as u64) as usize;
        self.state.lock().allocated[offset as usize / BLOCK..end].fill(is_allocated);
    }
}

fn touches(block: usize, offset: u64, length: usize) -> bool {
    (offset as usize) < block + BLOCK && offset as usize + length > block
}

impl Device for Disk {
    fn delay(&self, _: &Command) -> Duration {
        let mut state = self.state.lock();
        state.delays += 1;
        self.changed.notify_all();
        state.delay
    }

    fn cancel(&self, _: &Command) {
        self.state.lock().cancelled += 1;
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let state = self.enter();
        let start = offset as usize;
        assert!(!touches(PANIC, offset, buffer.len()), "the disk panics, as it should");
        buffer.copy_from_slice(&state.content[start..start + buffer.len()]);
        if touches(BAD, offset, buffer.len()) {
            let message = "a bad block".to_owned();
            let at = (BAD as u64).max(offset);
            return Err(Fault { code: ErrorCode::Io, message, offset: Some(at) });
        }
        Ok(())
    }

    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        self.state.lock().reads.push(reads.len());
        reads.iter_mut().map(|(offset, buffer)| self.read(*offset, buffer)).collect()
    }

    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Fault> {
        if touches(BAD, offset, data.len()) {
            return Err(ErrorCode::NoSpace.into());
        }
        self.change(offset, data.len(), durable, |range| range.copy_from_slice(data));
        let write_time = self.state.lock().write_time;
        std::thread::sleep(write_time);
        self.allocate(offset, data.len() as u64, true);
        Ok(())
    }

    fn begin_write(&self, offset: u64, length: u32) -> Option<Box<dyn IncomingWrite>> {
        let (disk, length) = (self.this.upgrade()?, length as usize);
        // What was there before does not matter.
        let write = DiskWrite { disk, offset, payload: vec![0xee; length] };
        (length >= ACCEPTED).then(|| Box::new(write) as _)
    }

    fn flush(&self) -> Result<(), Fault> {
        let state = &mut *self.enter();
        state.stable.copy_from_slice(&state.content);
        state.flushes += 1;
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), Fault> {
        let is_aligned = (offset | length).is_multiple_of(BLOCK as u64);
        if how.fast && !is_aligned {
            return Err(ErrorCode::NotSupported.into());
        }
        self.change(offset, length as usize, how.durable, |range| range.fill(0));
        if is_aligned {
            self.allocate(offset, length, how.no_hole);
        }
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Result<(), Fault> {
        self.write_zeroes(offset, length, Zeroing { durable, ..Zeroing::default() })
    }

    fn status(
        &self,
        context: &Context,
        offset: u64,
        length: u64,
        extents_max: u32,
    ) -> Result<Vec<Extent>, Fault> {
        let state = self.enter();
        let end = offset + length;
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        while at < end && extents.len() <= extents_max as usize {
            let block = at as usize / BLOCK;
            let next = ((block + 1) * BLOCK) as u64;
            let status = match (context, state.allocated[block]) {
                (Context::Allocation, false) => Context::HOLE | Context::ZERO,
                (Context::Allocation, true) => 0,
                // A device that breaks its promise.
                _ => return Ok(Vec::new()),
            };
            match extents.last_mut().filter(|last| last.status == status) {
                Some(last) => last.length += next - at,
                None => extents.push(Extent { length: next - at, status }),
            }
            at = next;
        }
        Ok(extents)
    }
}

struct DiskWrite {
    disk: Arc<Disk>,
    offset: u64,
    payload: Vec<u8>,
}

impl IncomingWrite for DiskWrite {
    fn payload(&mut self) -> &mut [u8] {
        &mut self.payload
    }

    fn perform(self: Box<Self>, accepted: &mut dyn FnMut()) -> Result<(), Fault> {
        self.disk.write(self.offset, &self.payload, false)?;
        accepted();
        let mut state = self.disk.state.lock();
        while state.is_held {
            self.disk.changed.wait(&mut state);
        }
        drop(state);
        assert!(!touches(PANIC, self.offset, self.payload.len()), "the disk panics, as it should");
        Ok(())
    }
}

/// What became of connections, for tests that wait for it.
#[derive(Default)]
struct Log {
    opened: Vec<Peer>,
    closed: Vec<String>,
}

/// The exports `disk`, which is also the default, `secret`, which needs TLS, `odd`, which cannot be
/// expressed, and `panic`, which panics.
pub struct Shelf {
    pub disk: Arc<Disk>,
    log: Mutex<Log>,
    changed: Condvar,
}

impl Shelf {
    pub fn new() -> Self {
        let disk = Disk::new();
        Self { disk, log: Mutex::new(Log::default()), changed: Condvar::new() }
    }

    /// Waits until so many connections were closed, and returns how each was.
    pub fn until_closed(&self, count: usize) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        let mut log = self.log.lock();
        while log.closed.len() < count {
            let result = self.changed.wait_until(&mut log, until);
            assert!(!result.timed_out(), "closed: {:?}", log.closed);
        }
        log.closed.clone()
    }

    /// Who opened an export, in order.
    pub fn opened(&self) -> Vec<Peer> {
        self.log.lock().opened.clone()
    }
}

impl Exports for Shelf {
    fn list(&self, peer: &Peer) -> Result<Vec<(String, String)>, Refusal> {
        let time = self.disk.state.lock().write_time;
        std::thread::sleep(time);
        let secret = peer.is_encrypted.then(|| ("secret".to_owned(), String::new()));
        let disk = ("disk".to_owned(), "a disk".to_owned());
        Ok([disk].into_iter().chain(secret).collect())
    }

    fn describe(&self, name: &str, _: &Peer) -> Result<Export, Refusal> {
        let name = if name.is_empty() { "disk" } else { name };
        let mut export = Export::new(name, SIZE as u64);
        export.multi_connection = true;
        export.contexts = vec![Context::Allocation, Context::AllocationDepth];
        match name {
            "disk" => {}
            "secret" => export.tls_only = true,
            "odd" => export.block_bytes_preferred = 3,
            "panic" => panic!("the exports panic, as they should"),
            "private" => return Err(Refusal::Policy),
            _ => return Err(Refusal::Unknown),
        }
        Ok(export)
    }

    fn open(&self, name: &str, peer: &Peer) -> Result<(Export, Arc<dyn Device>), Refusal> {
        let export = self.describe(name, peer)?;
        self.log.lock().opened.push(peer.clone());
        Ok((export, Arc::clone(&self.disk) as Arc<dyn Device>))
    }

    fn closed(&self, _: &Peer, closing: &Closing) {
        self.log.lock().closed.push(closing.to_string());
        self.changed.notify_all();
    }
}
