//! A bank that keeps its content compressed. Beyond what stays in use, an experiment writes many
//! times its size: the sweep moves on over the drives and leaves old images behind.
//!
//! The bank around which it is made takes the time. It gets zeros of the same length.

use std::collections::{BTreeMap, VecDeque};

use lz4_flex::block;
use upsweep::layers::device::{
    Buffer, Completion, DeviceId, Devices, Geometry, Operation, Request, Simulated, Token,
    VirtualClock,
};
use upsweep_sim::random::mix;

/// Bytes of a page, which is compressed by itself.
const PAGE_BYTES: usize = 64 << 10;
/// Pages of a device that were written last: not compressed, as the next write often goes there.
const RECENT: usize = 16;

/// A page that is not absent; an absent one is zero.
#[derive(Clone, Debug)]
enum Page {
    Recent(Box<[u8]>),
    Compressed(Box<[u8]>),
}

/// The content of one device.
#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeMap<u64, Page>,
    /// The recent pages, in the order in which they became that.
    recent: VecDeque<u64>,
    /// Where a page is compressed, so that the memory of each is as long as it is compressed.
    scratch: Vec<u8>,
}

fn decompress(compressed: &[u8], into: &mut [u8]) {
    let length = block::decompress_into(compressed, into);
    assert!(matches!(length, Ok(PAGE_BYTES)), "a page is as it was compressed");
}

impl Content {
    /// Copies the content at `offset` into `into`.
    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut page = Vec::new();
        for (number, within, range) in pages(offset, into.len()) {
            let target = &mut into[range];
            let bytes = match self.pages.get(&number) {
                None => {
                    target.fill(0);
                    continue;
                }
                Some(Page::Recent(bytes)) => bytes,
                Some(Page::Compressed(compressed)) => {
                    page.resize(PAGE_BYTES, 0);
                    decompress(compressed, &mut page);
                    page.as_slice()
                }
            };
            target.copy_from_slice(&bytes[within..within + target.len()]);
        }
    }

    /// Replaces the content at `offset` by `bytes`.
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, within, range) in pages(offset, bytes.len()) {
            let source = &bytes[range];
            self.recent(number)[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// The bytes of a page, which is recent from now on.
    fn recent(&mut self, number: u64) -> &mut [u8] {
        if !matches!(self.pages.get(&number), Some(Page::Recent(_))) {
            if self.recent.len() == RECENT
                && let Some(oldest) = self.recent.pop_front()
            {
                self.compress(oldest);
            }
            let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
            if let Some(Page::Compressed(compressed)) = self.pages.get(&number) {
                decompress(compressed, &mut bytes);
            }
            self.pages.insert(number, Page::Recent(bytes));
            self.recent.push_back(number);
        }
        match self.pages.get_mut(&number) {
            Some(Page::Recent(bytes)) => bytes,
            _ => unreachable!("just made recent"),
        }
    }

    fn compress(&mut self, number: u64) {
        let Some(Page::Recent(bytes)) = self.pages.remove(&number) else { return };
        if bytes.iter().any(|byte| *byte != 0) {
            self.scratch.resize(block::get_maximum_output_size(PAGE_BYTES), 0);
            let length = block::compress_into(&bytes, &mut self.scratch);
            let length = length.expect("there is room for any page");
            self.pages.insert(number, Page::Compressed(self.scratch[..length].into()));
        }
    }
}

/// For every page of a range: its number, the offset in it, and the range in the caller's bytes.
fn pages(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let length = (PAGE_BYTES - within).min(bytes - done);
        let range = done..done + length;
        done += length;
        Some((at / PAGE_BYTES as u64, within, range))
    })
}

/// The bank.
pub(crate) struct Compressed {
    timing: Box<dyn Simulated>,
    content: Vec<Content>,
    /// What is being read, from where, or written, and where.
    under_way: BTreeMap<(DeviceId, Token), UnderWay>,
}

enum UnderWay {
    Read(u64),
    Write(u64, Buffer),
}

impl Compressed {
    /// A bank whose devices take their time as these do, which are zero.
    pub(crate) fn new(timing: Box<dyn Simulated>) -> Self {
        let content = vec![Content::default(); usize::from(timing.count())];
        Self { timing, content, under_way: BTreeMap::new() }
    }

    fn of(&mut self, device: DeviceId) -> &mut Content {
        &mut self.content[usize::from(device.0)]
    }

    fn ended(&mut self, mut completion: Completion) -> Completion {
        let key = (completion.device, completion.token);
        let is_done = completion.result.is_ok();
        match self.under_way.remove(&key) {
            Some(UnderWay::Read(offset)) if is_done => {
                if let Some(buffer) = &mut completion.buffer {
                    self.of(completion.device).read(offset, buffer);
                }
            }
            Some(UnderWay::Write(offset, content)) => {
                if is_done {
                    self.of(completion.device).write(offset, &content);
                }
                completion.buffer = Some(content);
            }
            _ => {}
        }
        completion
    }
}

impl Devices for Compressed {
    fn count(&self) -> u16 {
        self.timing.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.timing.geometry(device)
    }

    fn submit(&mut self, mut request: Request) {
        let key = (request.device, request.token);
        match &mut request.operation {
            Operation::Read { offset, .. } => {
                self.under_way.insert(key, UnderWay::Read(*offset));
            }
            Operation::Write { offset, buffer, .. } => {
                let zeros = Buffer::zeroed(buffer.len());
                let content = std::mem::replace(buffer, zeros);
                self.under_way.insert(key, UnderWay::Write(*offset, content));
            }
            Operation::Flush | Operation::Discard { .. } | Operation::Allocate { .. } => {}
        }
        self.timing.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut ended = Vec::new();
        self.timing.reap(&mut ended);
        completions.extend(ended.into_iter().map(|completion| self.ended(completion)));
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        let mut ended = Vec::new();
        self.timing.wait(&mut ended);
        completions.extend(ended.into_iter().map(|completion| self.ended(completion)));
    }
}

impl Simulated for Compressed {
    fn now_us(&self) -> u64 {
        self.timing.now_us()
    }

    fn clock(&self) -> VirtualClock {
        self.timing.clock()
    }

    fn next_event_us(&self) -> Option<u64> {
        self.timing.next_event_us()
    }

    fn advance_to(&mut self, us: u64) {
        self.timing.advance_to(us);
    }

    fn peek_into(&self, device: DeviceId, offset: u64, into: &mut [u8]) {
        self.content[usize::from(device.0)].read(offset, into);
    }

    fn poke(&mut self, device: DeviceId, offset: u64, bytes: &[u8]) {
        self.of(device).write(offset, bytes);
    }

    fn allocate_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        self.timing.allocate_now(device, offset, bytes);
    }

    fn punch_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        self.timing.punch_now(device, offset, bytes);
    }

    fn unallocated_bytes(&self, device: DeviceId, offset: u64, bytes: u64) -> u64 {
        self.timing.unallocated_bytes(device, offset, bytes)
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
        self.timing.forget_requests();
    }

    fn digest(&self) -> u64 {
        let (mut digest, mut bytes) = (0, vec![0; PAGE_BYTES]);
        for (device, content) in (0_u64..).zip(&self.content) {
            for number in content.pages.keys().copied() {
                content.read(number * PAGE_BYTES as u64, &mut bytes);
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                digest = mix(digest ^ device ^ number.rotate_left(16));
                for word in bytes.as_chunks().0 {
                    digest = mix(digest ^ u64::from_le_bytes(*word));
                }
            }
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{Class, MemoryDevices, WriteMode};
    use upsweep_sim::random::Random;

    use super::*;

    const BYTES: u64 = 1 << 20;

    fn perform(bank: &mut Compressed, operation: Operation) -> Completion {
        let (device, token, hint) = (DeviceId(0), Token(1), Class::Upkeep.into());
        bank.submit(Request { device, token, hint, operation });
        let mut completions = Vec::new();
        bank.wait(&mut completions);
        completions.remove(0)
    }

    #[test]
    fn what_is_written_is_read_however_well_it_compresses() {
        let mut bank = Compressed::new(Box::new(MemoryDevices::with_sizes(&[BYTES], 1)));
        let (mut oracle, mut random) = (vec![0; BYTES as usize], Random::new(1, "compressed"));
        for _ in 0..400 {
            let offset = random.below(200) * 4096;
            let length = 4096 * (1 + random.below(40)) as usize;
            let bytes = match random.below(3) {
                0 => random.bytes(length),
                1 => vec![0; length],
                _ => vec![random.below(3) as u8; length],
            };
            oracle[offset as usize..][..length].copy_from_slice(&bytes);
            let mut buffer = Buffer::zeroed(length);
            buffer.copy_from_slice(&bytes);
            let mode = WriteMode::Stable;
            let written = perform(&mut bank, Operation::Write { offset, buffer, mode });
            assert_eq!(written.buffer.expect("it comes back").to_vec(), bytes);
            let offset = random.below(200) * 4096;
            let length = 4096 * (1 + random.below(40)) as usize;
            let read = Operation::Read { offset, buffer: Buffer::zeroed(length) };
            let read = perform(&mut bank, read).buffer.expect("a read has a buffer");
            assert!(read[..] == oracle[offset as usize..][..length]);
        }
        assert_eq!(bank.peek(DeviceId(0), 0, BYTES as usize), oracle);
    }

    #[test]
    fn what_repeats_takes_little_memory_and_zeros_take_none() {
        let mut content = Content::default();
        let pages = 10 * RECENT;
        let counters: Vec<u8> = (0..PAGE_BYTES * pages).map(|at| (at % 8 == 0).into()).collect();
        content.write(0, &counters);
        content.write(0, &vec![0; PAGE_BYTES * RECENT]);
        content.write(1 << 40, &vec![0; PAGE_BYTES * RECENT]);
        let bytes = |page: &Page| match page {
            Page::Recent(bytes) => bytes.len(),
            Page::Compressed(bytes) => bytes.len(),
        };
        let compressed = content.pages.range(..1 << 20);
        assert_eq!(compressed.clone().count(), pages - RECENT);
        let sum: usize = compressed.map(|(_, page)| bytes(page)).sum();
        assert!(sum < PAGE_BYTES * pages / 100, "{sum} bytes");
    }

    #[test]
    fn equal_content_has_an_equal_digest() {
        let bank = || Compressed::new(Box::new(MemoryDevices::with_sizes(&[1 << 30], 1)));
        let (mut straight, mut roundabout) = (bank(), bank());
        straight.poke(DeviceId(0), 4096, &[7; 5000]);
        roundabout.poke(DeviceId(0), 4096, &[8; 5000]);
        roundabout.poke(DeviceId(0), 1 << 24, &[9; PAGE_BYTES * RECENT]);
        assert_ne!(straight.digest(), roundabout.digest());
        roundabout.poke(DeviceId(0), 1 << 24, &[0; PAGE_BYTES * RECENT]);
        roundabout.poke(DeviceId(0), 4096, &[7; 5000]);
        assert_eq!(straight.digest(), roundabout.digest());
    }
}
