//! A bank that keeps its content folded: where a word of 8 bytes follows its like, how often it
//! does. Arrays of counters that nobody has changed, or that were changed together, take next to no
//! memory, whatever their size.
//!
//! The bank around which it is made takes the time. It gets zeros of the same length.

use std::collections::BTreeMap;

use upsweep::layers::device::{
    Buffer, Completion, DeviceId, Devices, Geometry, Operation, Request, Simulated, Token,
};

/// Bytes of a page, which is folded by itself.
const PAGE_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = size_of::<u64>();

/// A page that is not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Page {
    /// Words, and how often each comes.
    Folded(Box<[(u64, u32)]>),
    /// Folding would not make it shorter.
    Whole(Box<[u8]>),
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Page {
    /// A page with these bytes; `None` if they are zero.
    fn new(bytes: &[u8]) -> Option<Self> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for chunk in bytes.chunks_exact(WORD_BYTES) {
            let word = word(chunk);
            let is_full = runs.len() * size_of::<(u64, u32)>() >= PAGE_BYTES;
            match runs.last_mut() {
                Some((last, count)) if *last == word => *count += 1,
                _ if is_full => return Some(Self::Whole(bytes.into())),
                _ => runs.push((word, 1)),
            }
        }
        (runs.len() != 1 || runs[0].0 != 0).then(|| Self::Folded(runs.into_boxed_slice()))
    }

    fn unfold(&self, into: &mut [u8]) {
        match self {
            Self::Whole(bytes) => into.copy_from_slice(bytes),
            Self::Folded(runs) => {
                let mut rest = into;
                for (word, count) in runs {
                    let (of_run, others) = rest.split_at_mut(*count as usize * WORD_BYTES);
                    let word = word.to_le_bytes();
                    of_run.chunks_exact_mut(WORD_BYTES).for_each(|at| at.copy_from_slice(&word));
                    rest = others;
                }
            }
        }
    }
}

/// The content of one device.
#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeMap<u64, Page>,
}

impl Content {
    fn unfold(&self, number: u64, into: &mut [u8]) {
        match self.pages.get(&number) {
            Some(page) => page.unfold(into),
            None => into.fill(0),
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut page = Vec::new();
        for (number, within, range) in pages(offset, into.len()) {
            let target = &mut into[range];
            if target.len() == PAGE_BYTES {
                self.unfold(number, target);
                continue;
            }
            page.resize(PAGE_BYTES, 0);
            self.unfold(number, &mut page);
            target.copy_from_slice(&page[within..within + target.len()]);
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut page = Vec::new();
        for (number, within, range) in pages(offset, bytes.len()) {
            let source = &bytes[range];
            let folded = if source.len() == PAGE_BYTES {
                Page::new(source)
            } else {
                page.resize(PAGE_BYTES, 0);
                self.unfold(number, &mut page);
                page[within..within + source.len()].copy_from_slice(source);
                Page::new(&page)
            };
            match folded {
                Some(page) => self.pages.insert(number, page),
                None => self.pages.remove(&number),
            };
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
pub(crate) struct Folded {
    timing: Box<dyn Simulated>,
    content: Vec<Content>,
    /// What is being read, from where, or written, and where.
    under_way: BTreeMap<(DeviceId, Token), UnderWay>,
}

enum UnderWay {
    Read(u64),
    Write(u64, Buffer),
}

impl Folded {
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

impl Devices for Folded {
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

impl Simulated for Folded {
    fn now_us(&self) -> u64 {
        self.timing.now_us()
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
        let mut bytes = vec![0; PAGE_BYTES];
        let mut digest = 0;
        for (device, content) in (0_u64..).zip(&self.content) {
            for (number, page) in &content.pages {
                page.unfold(&mut bytes);
                digest = upsweep_sim::random::mix(digest ^ device ^ number.rotate_left(16));
                for chunk in bytes.chunks_exact(WORD_BYTES) {
                    digest = upsweep_sim::random::mix(digest ^ word(chunk));
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

    fn perform(bank: &mut Folded, operation: Operation) -> Completion {
        let (device, token, hint) = (DeviceId(0), Token(1), Class::Upkeep.into());
        bank.submit(Request { device, token, hint, operation });
        let mut completions = Vec::new();
        bank.wait(&mut completions);
        completions.remove(0)
    }

    #[test]
    fn what_is_written_is_read_however_it_can_be_folded() {
        let mut bank = Folded::new(Box::new(MemoryDevices::with_sizes(&[BYTES], 1)));
        let (mut oracle, mut random) = (vec![0; BYTES as usize], Random::new(1, "folded"));
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
    fn words_that_repeat_take_next_to_no_memory_and_zeros_take_none() {
        let mut content = Content::default();
        content.write(0, &[7; 10 * PAGE_BYTES]);
        let folded = |page: &Page| matches!(page, Page::Folded(runs) if runs.len() == 1);
        assert!(content.pages.len() == 10 && content.pages.values().all(folded));
        content.write(4096, &[0; 10 * PAGE_BYTES - 8192]);
        assert_eq!(content.pages.keys().copied().collect::<Vec<_>>(), [0, 9]);
    }
}
