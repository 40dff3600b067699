//! Loggers that append each record with a synchronous write of its own, as section 6.1 of the
//! dissertation describes them: through a file system with a journal, and to a raw device.
//!
//! Both write one record at a time, however many callers there are: the next is issued when the
//! one before has ended. A raw append writes consecutive sectors, and so arrives just after its
//! sector has passed. An append to a file whose cache is bypassed reads the last block if it is
//! partly filled, writes it, and commits a transaction of the journal.

use std::collections::VecDeque;

use upsweep::layers::device::Token;

use super::{Finished, Io, Model};

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    /// Its length.
    pub(crate) bytes: u64,
}

/// The device of both loggers in their bank.
const DEVICE: u16 = 0;

/// Appends that wait, and the one under way.
#[derive(Default)]
struct OneAtATime {
    waiting: VecDeque<(u64, Append)>,
    /// The number of the append under way, and when it began.
    current: Option<(u64, u64)>,
}

impl OneAtATime {
    /// The next append, if none is under way.
    fn start(&mut self, now_us: u64) -> Option<Append> {
        if self.current.is_some() {
            return None;
        }
        let (number, append) = self.waiting.pop_front()?;
        self.current = Some((number, now_us));
        Some(append)
    }

    /// The one under way has ended.
    fn end(&mut self, io: &mut Io) {
        if let Some((number, begun_us)) = self.current.take() {
            io.finish(Finished { number, begun_us, found: None });
        }
    }
}

/// Appends to a raw device, in whole sectors.
pub(crate) struct RawAppend {
    sector_bytes: u64,
    size_bytes: u64,
    next_offset: u64,
    appends: OneAtATime,
}

impl RawAppend {
    /// On a device with sectors of this size, and this many bytes in all; wraps at its end.
    pub(crate) fn new(sector_bytes: u64, size_bytes: u64) -> Self {
        Self { sector_bytes, size_bytes, next_offset: 0, appends: OneAtATime::default() }
    }

    fn start(&mut self, io: &mut Io) {
        let Some(append) = self.appends.start(io.now_us()) else { return };
        let bytes = append.bytes.next_multiple_of(self.sector_bytes);
        if self.next_offset + bytes > self.size_bytes {
            self.next_offset = 0;
        }
        io.write(DEVICE, self.next_offset, bytes);
        self.next_offset += bytes;
    }
}

impl Model for RawAppend {
    type Operation = Append;

    fn begin(&mut self, number: u64, append: Append, io: &mut Io) {
        self.appends.waiting.push_back((number, append));
        self.start(io);
    }

    fn ended(&mut self, _token: Token, io: &mut Io) {
        self.appends.end(io);
        self.start(io);
    }
}

/// Where a file system has what an append writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem {
    /// Unit of all I/O.
    pub(crate) block_bytes: u64,
    /// First byte of the journal.
    pub(crate) journal_offset: u64,
    /// Blocks of the journal, which is a ring.
    pub(crate) journal_blocks: u64,
    /// First byte of the file.
    pub(crate) file_offset: u64,
    /// Bytes that the file can have; then it is written from its beginning.
    pub(crate) file_bytes: u64,
    /// Blocks of metadata that change with each append: the inode.
    pub(crate) inode_blocks: u64,
    /// Blocks of metadata that change as well when the file gets a block: bitmap and group.
    pub(crate) allocation_blocks: u64,
}

/// The file system of the experiments: its blocks, its journal, and 1 GiB for the file behind it.
pub(crate) const FILE_SYSTEM: FileSystem = FileSystem {
    block_bytes: 4096,
    journal_offset: 0,
    journal_blocks: 32 << 10,
    file_offset: 1 << 30,
    file_bytes: 1 << 30,
    inode_blocks: 1,
    allocation_blocks: 2,
};

/// What an append to a file does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Reads the last block of the file, to fill it up.
    Read,
    /// Writes the record's blocks.
    Data,
    /// Writes the descriptor and the changed metadata, each block with a request of its own.
    Journal,
    /// Writes the block that commits the transaction, once all before it is on the media.
    Commit,
}

/// Appends to a file, past the cache of the file system.
pub(crate) struct FileAppend {
    system: FileSystem,
    /// Bytes appended so far.
    length: u64,
    journal_next: u64,
    append: Append,
    step: Step,
    /// Requests of the step under way.
    requests: u64,
    appends: OneAtATime,
}

impl FileAppend {
    /// An empty file in this file system.
    pub(crate) fn new(system: FileSystem) -> Self {
        Self {
            system,
            length: 0,
            journal_next: 0,
            append: Append { bytes: 0 },
            step: Step::Read,
            requests: 0,
            appends: OneAtATime::default(),
        }
    }

    fn start(&mut self, io: &mut Io) {
        let Some(append) = self.appends.start(io.now_us()) else { return };
        self.append = append;
        if self.length + append.bytes > self.system.file_bytes {
            self.length = 0;
        }
        let is_partial = !self.length.is_multiple_of(self.system.block_bytes);
        self.begin_step(if is_partial { Step::Read } else { Step::Data }, io);
    }

    fn begin_step(&mut self, step: Step, io: &mut Io) {
        let FileSystem { block_bytes, file_offset, .. } = self.system;
        let first = self.length / block_bytes * block_bytes;
        self.step = step;
        self.requests = 1;
        match step {
            Step::Read => {
                io.read(DEVICE, file_offset + first, block_bytes);
            }
            Step::Data => {
                let end = (self.length + self.append.bytes).next_multiple_of(block_bytes);
                io.write(DEVICE, file_offset + first, end - first);
            }
            Step::Journal => {
                let end = self.length + self.append.bytes;
                let blocks = |bytes: u64| bytes.div_ceil(block_bytes);
                let grows = blocks(end) > blocks(self.length);
                let allocation = if grows { self.system.allocation_blocks } else { 0 };
                // The first is the descriptor of the transaction.
                self.requests = 1 + self.system.inode_blocks + allocation;
                for _ in 0..self.requests {
                    self.write_journal(io);
                }
            }
            Step::Commit => self.write_journal(io),
        }
    }

    fn write_journal(&mut self, io: &mut Io) {
        let FileSystem { block_bytes, journal_offset, journal_blocks, .. } = self.system;
        io.write(DEVICE, journal_offset + self.journal_next * block_bytes, block_bytes);
        self.journal_next = (self.journal_next + 1) % journal_blocks;
    }
}

impl Model for FileAppend {
    type Operation = Append;

    fn begin(&mut self, number: u64, append: Append, io: &mut Io) {
        self.appends.waiting.push_back((number, append));
        self.start(io);
    }

    fn ended(&mut self, _token: Token, io: &mut Io) {
        self.requests -= 1;
        if self.requests > 0 {
            return;
        }
        match self.step {
            Step::Read => self.begin_step(Step::Data, io),
            Step::Data => self.begin_step(Step::Journal, io),
            Step::Journal => self.begin_step(Step::Commit, io),
            Step::Commit => {
                self.length += self.append.bytes;
                self.appends.end(io);
                self.start(io);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{LatencyModel, MemoryDevices};

    use super::super::load::{Load, Seen};
    use super::super::{Bench, System};
    use super::*;

    const SYSTEM: FileSystem = FileSystem {
        block_bytes: 4096,
        journal_offset: 0,
        journal_blocks: 64,
        file_offset: 1 << 20,
        file_bytes: 1 << 20,
        inode_blocks: 1,
        allocation_blocks: 2,
    };

    /// A bank on which every request takes 1 ms.
    fn bank() -> Box<MemoryDevices> {
        let mut devices = MemoryDevices::with_sizes(&[4 << 20], 1);
        devices.set_latency(LatencyModel { base_us: 1000, bytes_per_us: 1 << 40, jitter_us: 0 });
        Box::new(devices)
    }

    fn seen(model: impl Model<Operation = Append>, callers: usize, bytes: u64) -> Seen {
        let load = Load { callers, warm_up: 0, measured: 800 };
        let mut system = Bench::new(model, bank(), 0);
        load.run(&mut system, || Append { bytes }).expect("no request fails")
    }

    #[test]
    fn raw_appends_write_one_after_the_other_however_many_callers_there_are() {
        for callers in [1, 8] {
            let seen = seen(RawAppend::new(4096, 1 << 20), callers, 512);
            // If another caller waits, the next append has begun.
            let begun = 800 + u64::from(callers > 1);
            assert_eq!((seen.traffic.reads, seen.traffic.writes, seen.operations), (0, begun, 800));
            assert!((seen.per_second - 1000.0).abs() < 1.0, "{}", seen.per_second);
            assert!((seen.service_ms - 1.0).abs() < 1e-6, "{}", seen.service_ms);
            let waited = callers as f64;
            assert!((seen.latency_ms - waited).abs() < 0.05 * waited, "{}", seen.latency_ms);
        }
    }

    #[test]
    fn a_file_append_reads_a_partial_block_and_commits_its_metadata() {
        // Eight records fill a block: one of them allocates, and the others read.
        let seen = seen(FileAppend::new(SYSTEM), 1, 512);
        let (reads, writes) = (seen.traffic.reads, seen.traffic.writes);
        // Data, descriptor, inode and commit, and for one in eight bitmap and group.
        assert_eq!((reads, writes), (700, 800 * 4 + 100 * 2));
        // Read, data, journal, commit, each of 1 ms.
        assert!((seen.service_ms - (4.0 - 1.0 / 8.0)).abs() < 1e-6, "{}", seen.service_ms);
    }

    #[test]
    fn a_file_append_of_several_blocks_writes_all_of_them_at_once() {
        let mut system = Bench::new(FileAppend::new(SYSTEM), bank(), 0);
        system.submit(0, Append { bytes: 4096 });
        system.submit(1, Append { bytes: 10_000 });
        while let Some(us) = system.next_event_us() {
            system.advance_to(us, &mut Vec::new()).expect("no request fails");
        }
        // The second begins at a block, so that neither reads.
        assert_eq!((system.traffic().reads, system.model.length), (0, 14_096));
        assert_eq!(system.traffic().writes, 2 * 6);
    }
}
