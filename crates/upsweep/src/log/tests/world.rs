//! A log on bytes in memory, with every write held until a test decides its fate.

use crate::device::{Completion, DeviceId, Devices, Geometry, Operation, Request};
use crate::error::Error;
use crate::log::{
    AppendError, Log, LogConfig, LogReader, LogRegion, Quota, Record, Seq, StreamId, Urgency,
    recover,
};

pub(super) const STORE: [u8; 16] = *b"the store of now";
const SECTOR: usize = 512;

/// Devices that perform submitted requests at once.
pub(super) struct Bank {
    pub(super) media: Vec<Vec<u8>>,
    pub(super) block_bytes: u32,
    done: Vec<Completion>,
    /// All reads: device, offset and bytes.
    pub(super) reads: Vec<(u16, u64, u64)>,
}

impl Bank {
    pub(super) fn new(devices: usize, bytes: usize) -> Self {
        let media = vec![vec![0; bytes]; devices];
        Self { media, block_bytes: 512, done: Vec::new(), reads: Vec::new() }
    }

    /// Performs the request.
    pub(super) fn perform(&mut self, request: Request) -> Completion {
        assert_eq!(request.operation.check(&self.geometry(request.device)), Ok(()));
        let Request { device, token, hint, operation } = request;
        let media = &mut self.media[usize::from(device.0)];
        let buffer = match operation {
            Operation::Read { offset, mut buffer } => {
                let start = offset as usize;
                let end = start + buffer.len();
                buffer.copy_from_slice(&media[start..end]);
                Some(buffer)
            }
            Operation::Write { offset, buffer, .. } => {
                let start = offset as usize;
                media[start..start + buffer.len()].copy_from_slice(&buffer);
                Some(buffer)
            }
            _ => None,
        };
        Completion { device, token, class: hint.class, buffer, result: Ok(()) }
    }

    /// Writes only those sectors for which `lands` returns true.
    pub(super) fn tear(&mut self, request: &Request, mut lands: impl FnMut(usize) -> bool) {
        let Operation::Write { offset, buffer, .. } = &request.operation else { return };
        let media = &mut self.media[usize::from(request.device.0)][*offset as usize..];
        for (index, sector) in buffer.chunks(SECTOR).enumerate() {
            if lands(index) {
                media[index * SECTOR..index * SECTOR + sector.len()].copy_from_slice(sector);
            }
        }
    }
}

impl Devices for Bank {
    fn count(&self) -> u16 {
        self.media.len() as u16
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        Geometry {
            size_bytes: self.media[usize::from(device.0)].len() as u64,
            logical_block_bytes: self.block_bytes,
            physical_block_bytes: 4096,
            rotational: false,
            growable: false,
        }
    }

    fn submit(&mut self, request: Request) {
        if let Operation::Read { offset, buffer } = &request.operation {
            self.reads.push((request.device.0, *offset, buffer.len() as u64));
        }
        let done = self.perform(request);
        self.done.push(done);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.reap(completions);
    }
}

/// A log, its devices, the writes in flight, and what was appended.
pub(super) struct World {
    pub(super) bank: Bank,
    pub(super) config: LogConfig,
    pub(super) log: Log,
    pub(super) flights: Vec<Request>,
    /// The record of sequence `n` at `n - 1`.
    pub(super) model: Vec<Record>,
    pub(super) released: Seq,
    pub(super) now_us: u64,
    /// The device that is being extended, and for how many bytes.
    extending: Option<(DeviceId, u64, u64)>,
}

/// `devices` rings of `segments` segments of `segment_pages` pages of 4096 bytes, batches of
/// `batch_pages`.
pub(super) fn config(
    devices: u16,
    segments: u64,
    segment_pages: u32,
    batch_pages: u32,
) -> LogConfig {
    let bytes = segments * u64::from(segment_pages) * 4096;
    let region = |device| LogRegion { device: DeviceId(device), offset: 4096, bytes };
    let regions = (0..devices).map(region).collect();
    let mut config = LogConfig::new(STORE, 1, regions, segment_pages * 4096);
    config.batch_bytes = batch_pages * 4096;
    config
}

/// The same in pages of 512 bytes. Sizes stay what they were.
pub(super) fn in_small_pages(config: LogConfig) -> LogConfig {
    LogConfig { page_bytes: 512, ..config }
}

impl World {
    pub(super) fn new(config: LogConfig) -> Self {
        let bytes = 8192 + config.regions[0].bytes as usize;
        let mut bank = Bank::new(config.regions.len(), bytes);
        Log::format(&mut bank, &config).expect("formats");
        let mut reader = recover(&mut bank, &config, Seq::FIRST).expect("recovers");
        assert_eq!((reader.last_seq(), reader.epoch_seen()), (Seq::NONE, 0));
        let log = reader.to_log(&mut bank, config.clone()).expect("opens");
        let (flights, model, extending) = (vec![], vec![], None);
        Self { bank, config, log, flights, model, released: Seq::FIRST, now_us: 0, extending }
    }

    pub(super) fn append(
        &mut self,
        stream: u32,
        payload: &[u8],
        urgency: Urgency,
        quota: Quota,
    ) -> Result<Seq, AppendError> {
        let stream = StreamId(stream);
        let seq = self.log.append_parts(stream, &[payload], urgency, quota, self.now_us)?;
        assert_eq!(seq, Seq::FIRST.plus(self.model.len() as u64));
        self.model.push(Record { seq, stream, payload: payload.to_vec() });
        Ok(seq)
    }

    /// An urgent user record of `bytes` bytes of `fill`.
    pub(super) fn put(&mut self, bytes: usize, fill: u8) -> Result<Seq, AppendError> {
        self.append(7, &vec![fill; bytes], Urgency::Now, Quota::User)
    }

    pub(super) fn dispatch(&mut self) {
        self.log.dispatch(self.now_us, &mut self.flights);
    }

    pub(super) fn complete(&mut self, index: usize) {
        let request = self.flights.remove(index);
        let done = self.bank.perform(request);
        self.log.complete(done).expect("the write succeeded");
    }

    /// Takes the next step of extending a ring by `more` segments, if possible.
    pub(super) fn grow(&mut self, more: u64) {
        self.log.has_refused = true;
        let segment = u64::from(self.config.segment_bytes);
        for (index, region) in self.log.config().regions.clone().iter().enumerate() {
            self.log.want(index, region.bytes + more * segment);
        }
        if self.extending.is_some() {
            self.extend();
            self.log.extended(true);
            assert_eq!(self.log.config().regions, self.config.regions);
        } else if let Some((device, offset, bytes)) = self.log.blank() {
            let media = &mut self.bank.media[usize::from(device.0)];
            media[offset as usize..(offset + bytes) as usize].fill(0);
            self.log.blanked();
        } else {
            self.extending = self.log.begin_growth();
        }
    }

    /// The device is extended; the new part does not contain zeros.
    pub(super) fn extend(&mut self) {
        let Some((device, offset, bytes)) = self.extending.take() else { return };
        let bytes = offset + bytes;
        let media = &mut self.bank.media[usize::from(device.0)];
        media.truncate(bytes as usize);
        media.resize(bytes as usize, 0xA5);
        let region = &mut self.config.regions[usize::from(device.0)];
        region.bytes = bytes - region.offset;
    }

    /// Runs until everything is durable.
    pub(super) fn drain(&mut self) {
        self.now_us += self.config.delay_us_max;
        self.dispatch();
        while !self.flights.is_empty() || self.log.is_growing() {
            if self.log.is_growing() {
                self.grow(0);
            } else {
                self.complete(0);
            }
            self.dispatch();
        }
        assert_eq!(self.log.durable(), self.log.last(), "whatever was accepted finds its place");
    }

    pub(super) fn release(&mut self, below: Seq) {
        self.released = self.released.max(below);
        self.log.release(below);
    }

    /// Everything from `replay_from` on, twice: with what the search for the end has kept, and with
    /// half of the memory.
    pub(super) fn replay(&mut self, replay_from: Seq) -> Result<Vec<Record>, Error> {
        let mut reader = recover(&mut self.bank, &self.config, replay_from)?;
        let first = self.pass(&mut reader)?;
        reader.keep_at_most(self.config.kept_bytes / 2);
        assert_eq!(self.pass(&mut reader)?, first);
        assert_eq!(reader.last_seq(), replay_from.previous().plus(first.len() as u64));
        Ok(first)
    }

    /// Everything that a reader yields.
    fn pass(&mut self, reader: &mut LogReader) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        reader.rewind();
        while let Some(batch) = reader.next_batch(&mut self.bank)? {
            records.extend(batch.records.into_iter().map(|record| Record {
                seq: record.seq,
                stream: record.stream,
                payload: record.payload.to_vec(),
            }));
        }
        Ok(records)
    }

    /// Loses what is in memory and in flight, opens again, and checks the content: a prefix of what
    /// was appended, no shorter than what was durable.
    pub(super) fn reopen(&mut self, replay_from: Seq) {
        self.flights.clear();
        self.extending = None;
        let durable = self.log.durable();
        let found = self.replay(replay_from).expect("recovers");
        let from = replay_from.since(Seq::FIRST) as usize;
        assert!(from + found.len() >= durable.get() as usize, "{durable} were acknowledged");
        assert!(found == self.model[from..from + found.len()], "a prefix of what was appended");
        self.model.truncate(from + found.len());
        let mut reader = recover(&mut self.bank, &self.config, replay_from).expect("recovers");
        self.check_read_back(&mut reader);
        self.config.epoch += 1;
        self.log = reader.to_log(&mut self.bank, self.config.clone()).expect("opens");
        let again = self.pass(&mut reader).expect("it is there still");
        assert!(again == found, "what a reader yields stays when the log opens");
        assert_eq!(self.log.durable(), Seq::new(self.model.len() as u64));
        self.released = replay_from;
    }

    fn check_read_back(&mut self, reader: &mut LogReader) {
        let stream = StreamId(7);
        let back = reader.read_back(&mut self.bank, stream, 5).expect("reads back");
        let known = self.model.iter().rev().filter(|record| record.stream == stream);
        let known: Vec<_> = known.take(back.len()).cloned().collect();
        assert_eq!(back, known);
        let needed = self.model.iter().filter(|record| record.stream == stream);
        let needed = needed.filter(|record| record.seq >= self.released).count().min(5);
        assert!(back.len() >= needed);
    }
}
