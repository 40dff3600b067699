//! What a part stands on, without a core: a base with a log in memory, for the tests of parts that
//! can be driven alone. Here a test submits what a part asks for, or has it fail.

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
use crate::engine::format::record_format::{LoggedUpdate, SpaceRecord};
use crate::engine::index::{Index, Release};
use crate::engine::journal::{Journal, Publish};
use crate::engine::registry::{ADD_I64, ModifierId, PUT};
use crate::log::{self, Log, LogConfig, LogRegion, Urgency};
use crate::placement::SpaceMap;

/// The number of the ordered space that is there from the beginning.
pub(super) fn space() -> u32 {
    FIRST_USER_SPACE
}

/// The number of a space without companion whose blocks are found by their exact keys.
pub(super) fn exact_space() -> u32 {
    FIRST_USER_SPACE + 2
}

/// A space without companion.
pub(super) fn record(space: u32, format: &str, name: &str) -> SpaceRecord {
    let (format, name) = (format.to_owned(), name.to_owned());
    SpaceRecord { space, companion: 0, snapshot: 0, format, name }
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

    /// On one data device and one for the log, which may be shorter than the configuration has it.
    pub(super) fn with(config: Config, data: Geometry, log: Geometry) -> Self {
        let data_bytes = data.size_bytes;
        let mut devices = MemoryDevices::new(vec![data, log], 1);
        let present = |region: &LogRegion| region.present(&devices, config.log_segment_bytes);
        let regions = config.log_regions.iter().map(present).collect();
        let log_config = LogConfig {
            batch_bytes: config.log_batch_bytes,
            ..LogConfig::new(config.store, 1, regions, config.log_segment_bytes)
        };
        Log::format(&mut devices, &log_config).expect("a new log");
        let mut reader = log::recover(&mut devices, &log_config, 1).expect("an empty log");
        let log = reader.to_log(&mut devices, log_config).expect("an empty log");
        let space_map = SpaceMap::new(&[(DATA_START, data_bytes)]);
        let first = (0, FIRST_USER_SPACE);
        let mut index = Index::new(&config, &format::registry(), space_map, first);
        let quarantine = SpaceRecord {
            companion: QUARANTINE_COMPANION,
            ..record(QUARANTINE_SPACE, "table", "(quarantine)")
        };
        index.add_space(quarantine, 1);
        index.add_space(record(REFERENCES_SPACE, "array:i64", "(references)"), 1);
        index.add_space(record(space(), "table", "t"), 1);
        index.add_space(record(exact_space(), "raw", "exact"), 1);
        Self { base: Base::new(config, Journal::new(log).expect("two streams"), index), devices }
    }

    /// Does what one request asks for.
    pub(super) fn perform(&mut self, request: Request) -> Completion {
        self.devices.submit(request);
        let mut completions = Vec::new();
        self.devices.wait(&mut completions);
        completions.pop().expect("nothing else is in flight")
    }

    /// Has all records of the log become durable.
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

    /// The requests that are to be submitted, but for those of the log.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        std::mem::take(self.base.io.outgoing())
    }

    /// The only one of them.
    pub(super) fn request(&mut self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.pop().expect("there is one")
    }

    /// Ends a request as its device does.
    pub(super) fn end(&mut self, request: Request) -> Completion {
        self.base.io.completed(request.token);
        self.perform(request)
    }

    /// Ends a request with an error.
    pub(super) fn fail(&mut self, request: Request, error: DeviceError) -> Completion {
        self.base.io.completed(request.token);
        request.end(Err(error))
    }

    /// Has records become durable and events take effect; returns what else takes effect.
    pub(super) fn publish(&mut self) -> Vec<(u64, Publish)> {
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
    pub(super) fn accept(&mut self, space: u32, modifier: ModifierId, key: &str, to: &[u8]) -> u64 {
        let updates = [LoggedUpdate { space, modifier, key: key.as_bytes(), operand: to }];
        let offer = accept::check(&self.base.index, &updates).expect("a sound update");
        let appended =
            Admission::new().append(&mut self.base, &updates, &offer, Urgency::Now, 0);
        appended.expect("the log has room")
    }

    pub(super) fn put(&mut self, key: &str, value: i64) -> u64 {
        self.accept(space(), PUT, key, &format::number(value))
    }

    pub(super) fn add(&mut self, key: &str, amount: i64) -> u64 {
        self.accept(space(), ADD_I64, key, &format::number(amount))
    }

    /// The block that covers a key of the ordered space.
    pub(super) fn block_of(&self, key: &str) -> BlockId {
        let found = self.base.index.directory().covering(space(), key.as_bytes());
        found.expect("an ordered space covers every key")
    }

    /// Gives the exact space blocks with these keys; returns the sequence of their record.
    pub(super) fn make_blocks(&mut self, keys: impl IntoIterator<Item = String>) -> u64 {
        let wanted = keys.into_iter().map(|key| (exact_space(), key.into_bytes().into()));
        let publish = Publish::Event(Event::Blocks(wanted.collect()));
        let seq = self.base.journal.append(b"blocks", publish, 0).expect("the log has room");
        self.publish();
        seq
    }

    /// Takes all free space but so many bytes.
    pub(super) fn take_space_but(&mut self, bytes: u64) {
        let map = &mut self.base.index.space_map;
        while map.free_bytes() > bytes {
            map.allocate_high(4096).expect("it is free");
        }
    }
}

/// Where a request that allocates space begins, and how many bytes.
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
