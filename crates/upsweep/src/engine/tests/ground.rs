//! The base of a part, without a core: a base with a log in memory, for the tests of parts that can
//! be driven alone. Here a test submits the requests of a part, or makes them fail.

use super::{SEGMENT, config, format};
use crate::device::{
    Class, Completion, DeviceError, DeviceId, Devices, Geometry, MemoryDevices, Operation, Request,
};
use crate::engine::Config;
use crate::engine::accept::{self, Admission};
use crate::engine::base::Base;
use crate::engine::catalog::{
    FIRST_USER_SPACE, QUARANTINE_COMPANION, QUARANTINE_SPACE, REFERENCES_SPACE,
};
use crate::engine::config::DATA_START;
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::flush::Flushing;
use crate::engine::format::record_format::{LoggedUpdate, Placement, SpaceRecord};
use crate::engine::growth::Growth;
use crate::engine::ids::{Seq, SnapshotId, SpaceId};
use crate::engine::index::{Index, Release};
use crate::engine::io::IoKind;
use crate::engine::jobs::JobOutput;
use crate::engine::journal::{Journal, Publish};
use crate::engine::pipeline::Pipeline;
use crate::engine::registry::{ADD_I64, ModifierId, PUT, Registry};
use crate::log::{self, Log, LogConfig, LogRegion, Urgency};
use crate::placement::SpaceMap;

/// The number of the ordered space that exists from the start.
pub(super) fn space() -> SpaceId {
    FIRST_USER_SPACE
}

/// The number of a space without companion whose blocks are found by their exact keys.
pub(super) fn exact_space() -> SpaceId {
    FIRST_USER_SPACE.plus(2)
}

/// A space without companion.
pub(super) fn record(space: SpaceId, format: &str, name: &str) -> SpaceRecord {
    let (format, name) = (format.to_owned(), name.to_owned());
    SpaceRecord { space, companion: SpaceId::new(0), snapshot: SnapshotId::new(0), format, name }
}

/// A device of this length.
pub(super) fn geometry(size_bytes: u64, growable: bool) -> Geometry {
    Geometry {
        size_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        rotational: false,
        growable,
    }
}

/// A base and its devices.
pub(super) struct Ground {
    pub(super) base: Base,
    pub(super) devices: MemoryDevices,
}

impl Ground {
    pub(super) fn new() -> Self {
        let log = geometry(4096 + 16 * SEGMENT, false);
        Self::with(config(), geometry(4 << 20, false), log)
    }

    /// On one data device and one for the log, which may be shorter than in the configuration.
    pub(super) fn with(config: Config, data: Geometry, log: Geometry) -> Self {
        Self::with_formats(config, data, log, &format::registry())
    }

    /// The same with other formats and modifiers.
    pub(super) fn with_formats(
        config: Config,
        data: Geometry,
        log: Geometry,
        registry: &Registry,
    ) -> Self {
        let data_bytes = data.size_bytes;
        let mut devices = MemoryDevices::new(vec![data, log], 1);
        let present = |region: &LogRegion| region.present(&devices, config.log_segment_bytes);
        let regions = config.log_regions.iter().map(present).collect();
        let log_config = LogConfig {
            batch_bytes: config.log_batch_bytes,
            ..LogConfig::new(config.store, 1, regions, config.log_segment_bytes)
        };
        Log::format(&mut devices, &log_config).expect("a new log");
        let mut reader =
            log::recover(&mut devices, &log_config, Seq::new(1)).expect("an empty log");
        let log = reader.to_log(&mut devices, log_config).expect("an empty log");
        let space_map = SpaceMap::new(&[(DATA_START, data_bytes)]);
        let first = (Seq::NONE, FIRST_USER_SPACE);
        let mut index = Index::new(&config, registry, space_map, first);
        let quarantine = SpaceRecord {
            companion: QUARANTINE_COMPANION,
            ..record(QUARANTINE_SPACE, "table", "(quarantine)")
        };
        index.add_space(quarantine, Seq::new(1));
        index.add_space(record(REFERENCES_SPACE, "array:i64", "(references)"), Seq::new(1));
        index.add_space(record(space(), "table", "t"), Seq::new(1));
        index.add_space(record(exact_space(), "raw", "exact"), Seq::new(1));
        Self { base: Base::new(config, Journal::new(log).expect("two streams"), index), devices }
    }

    /// Performs one request.
    pub(super) fn perform(&mut self, request: Request) -> Completion {
        self.devices.submit(request);
        let mut completions = Vec::new();
        self.devices.wait(&mut completions);
        completions.pop().expect("nothing else is in flight")
    }

    /// Makes all records of the log durable.
    pub(super) fn write_log(&mut self) {
        while !self.base.journal.is_idle() {
            self.base.dispatch_log();
            let outgoing = self.base.io.outgoing();
            let (of_log, others) = std::mem::take(outgoing)
                .into_iter()
                .partition(|request| request.hint.class == Class::Log);
            *outgoing = others;
            let of_log: Vec<Request> = of_log;
            for request in of_log {
                let completion = self.perform(request);
                self.base.complete_log(completion);
            }
        }
    }

    /// The requests to submit, except those of the log.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        std::mem::take(self.base.io.outgoing())
    }

    /// The only one of them.
    pub(super) fn request(&mut self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.pop().expect("there is one")
    }

    /// Ends a request with the result of its device.
    pub(super) fn end(&mut self, request: Request) -> Completion {
        self.base.io.completed(request.token);
        self.perform(request)
    }

    /// Ends a request with an error.
    pub(super) fn fail(&mut self, request: Request, error: DeviceError) -> Completion {
        self.base.io.completed(request.token);
        request.end(Err(error))
    }

    /// Makes records durable and lets events take effect; returns the other changes that take
    /// effect.
    pub(super) fn publish(&mut self) -> Vec<(Seq, Publish)> {
        self.write_log();
        let mut others = Vec::new();
        while let Some((seq, publish)) = self.base.journal.next_durable() {
            match publish {
                Publish::Event(event) => self.base.index.apply_event(seq, event, Release::Now),
                other => others.push((seq, other)),
            }
        }
        self.base.journal.pass_updates();
        others
    }

    /// Accepts one update as the core does; returns its sequence.
    pub(super) fn accept(
        &mut self,
        space: SpaceId,
        modifier: ModifierId,
        key: &str,
        to: &[u8],
    ) -> Seq {
        let updates = [LoggedUpdate { space, modifier, key: key.as_bytes(), operand: to }];
        let offer = accept::check(&self.base.index, &updates).expect("a sound update");
        let appended = Admission::new().append(&mut self.base, &updates, &offer, Urgency::Now, 0);
        appended.expect("the log has room")
    }

    pub(super) fn put(&mut self, key: &str, value: i64) -> Seq {
        self.accept(space(), PUT, key, &format::number(value))
    }

    pub(super) fn add(&mut self, key: &str, amount: i64) -> Seq {
        self.accept(space(), ADD_I64, key, &format::number(amount))
    }

    /// The block that covers a key of the ordered space.
    pub(super) fn block_of(&self, key: &str) -> BlockId {
        let found = self.base.index.directory().covering(space(), key.as_bytes());
        found.expect("an ordered space covers every key")
    }

    /// Gives the exact space blocks with these keys; returns the sequence of their record.
    pub(super) fn make_blocks(&mut self, keys: impl IntoIterator<Item = String>) -> Seq {
        let wanted = keys.into_iter().map(|key| (exact_space(), key.into_bytes().into()));
        let publish = Publish::Event(Event::Blocks(wanted.collect(), 0));
        let seq = self.base.journal.append(b"blocks", publish, 0).expect("the log has room");
        self.publish();
        seq
    }

    /// Advances runs by one step of everything; those that are durable are published.
    pub(super) fn step_runs(&mut self, pipeline: &mut Pipeline, growth: &mut Growth) {
        self.pump_runs(pipeline, growth);
        for request in self.requests() {
            let kind = self.base.io.completed(request.token).kind;
            let completion = self.perform(request);
            self.complete(pipeline, kind, completion);
        }
        for (seq, publish) in self.publish() {
            if let Publish::Run(run) = publish {
                pipeline.publish(&mut self.base, run, seq, Release::Now);
            }
        }
    }

    /// Advances runs as far as possible without a device; returns how many jobs were done.
    pub(super) fn pump_runs(&mut self, pipeline: &mut Pipeline, growth: &mut Growth) -> usize {
        let mut jobs = Vec::new();
        pipeline.pump(&mut self.base, growth, 0, &mut jobs);
        let count = jobs.len();
        for job in jobs {
            let JobOutput::Run(output) = job.run(|| {}) else { panic!("nothing is spilled") };
            pipeline.applied(output);
        }
        self.pump_flushes();
        count
    }

    /// Starts a flush for all waiters.
    pub(super) fn pump_flushes(&mut self) {
        let Base { flushes, io, .. } = &mut self.base;
        flushes.pump(1, 0, io);
    }

    /// Tells runs that a request of this kind has ended.
    pub(super) fn complete(&mut self, pipeline: &mut Pipeline, kind: IoKind, done: Completion) {
        let base = &mut self.base;
        match kind {
            IoKind::RunRead(run) => pipeline.read_done(base, run, done),
            IoKind::BlockRead(run, block) => pipeline.block_read_done(base, run, block, done),
            IoKind::ValueRead(run, value) => pipeline.value_read_done(base, run, value, done),
            IoKind::SpillSegmentRead => pipeline.spill_segment_read_done(base, done),
            IoKind::RunWrite(run) => pipeline.write_done(base, run, &done),
            IoKind::Flush => {
                for who in base.flushes.device_done(done.result.is_ok()) {
                    let Flushing::Run(run) = who else { panic!("{who:?} is no run") };
                    pipeline.flushed(base, run);
                }
            }
            other => panic!("{other:?} is not of a run"),
        }
    }

    /// Sweeps blocks in one run.
    pub(super) fn sweep(&mut self, blocks: &[BlockId]) {
        let (mut pipeline, mut growth) = (Pipeline::default(), Growth::new(&[false]));
        pipeline.start(&mut self.base, blocks);
        for _ in 0..100 {
            if pipeline.is_empty() {
                return;
            }
            self.step_runs(&mut pipeline, &mut growth);
        }
        panic!("a run never ends");
    }

    /// Puts this many records into the ordered space and sweeps them; returns its blocks, by key.
    pub(super) fn fill(&mut self, records: usize) -> Vec<BlockId> {
        for number in 0..records {
            self.put(&format!("k{number:04}"), number as i64);
        }
        let first = self.block_of("");
        self.sweep(&[first]);
        self.blocks()
    }

    /// The blocks of the ordered space, by key.
    pub(super) fn blocks(&self) -> Vec<BlockId> {
        let directory = self.base.index.directory();
        directory.blocks_of(directory.space(space()).expect("it is there")).collect()
    }

    /// The key of a block.
    pub(super) fn key_of(&self, block: BlockId) -> String {
        String::from_utf8_lossy(&self.base.index.directory().block(block).key).into_owned()
    }

    /// Updates that wait in the queue of a block.
    pub(super) fn queued(&self, block: BlockId) -> u32 {
        self.base.index.directory().block(block).queue.count()
    }

    /// The place of a block, and figures of its content.
    pub(super) fn placement(&self, block: BlockId) -> Placement {
        self.base.index.directory().block(block).placement()
    }

    /// Allocates all free space except this many bytes.
    pub(super) fn take_space_but(&mut self, bytes: u64) {
        let map = &mut self.base.index.space_map;
        while map.free_bytes() > bytes {
            map.allocate_high(4096).expect("it is free");
        }
    }
}

/// The offset and the length of a request that allocates space.
pub(super) fn allocation(request: &Request) -> (u64, u64) {
    match request.operation {
        Operation::Allocate { offset, bytes } => (offset, bytes),
        ref other => panic!("{other:?} allocates nothing"),
    }
}

/// The device of the data.
pub(super) fn data_device() -> DeviceId {
    DeviceId(0)
}
