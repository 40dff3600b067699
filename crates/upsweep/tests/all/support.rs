//! A world for tests of the engine under faults: a core on hostile devices in memory, and a model
//! that knows every update that was declared, in order.
//!
//! The payload is additions, which show it if one is lost, applied twice or applied to the wrong
//! key. All are positive, so no two moments of a history have the same sums. Invariants: an answer
//! is what the model says, or an error; after a crash the answers are those of one moment of the
//! history, at or after the youngest acknowledged update.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use upsweep::layers::device::{
    Bulk, Completion, DeviceId, Devices, Geometry, HostileDevices, Operation, PowerCut, Request,
    Simulated,
};
use upsweep::layers::engine::block_format::UpdateRef;
use upsweep::layers::engine::format::image_format::{self, ImageKind};
use upsweep::layers::engine::format::quarantine_format::decode_entry;
use upsweep::layers::engine::quarantine::QUARANTINE_SPACE;
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::engine::{
    self, Accept, Access, Actions, Conditional, Config, Core, FileSpace, LoggedUpdate, Registry,
    Report, Seen, Spilling, View, ViewId, ViewPoll, Wanted,
};
use upsweep::layers::log::{LogMode, LogRegion, Seq, Urgency};
use upsweep::layers::structures::modifiers::{ADD_I64, DELETE};
use upsweep::layers::structures::registry;
use upsweep::layers::structures::table::{ByKey, Lookup, PageRequest, get, page};
use upsweep::{Error, SpaceId};

pub const DATA: DeviceId = DeviceId(0);
pub const LOG: DeviceId = DeviceId(1);
/// Where the ring is on the log device, and how long its segments are, in bytes.
pub const LOG_START: u64 = 4096;
pub const SEGMENT: u64 = 32 << 10;
/// Bytes of a page of the log, unless others are asked for.
pub const PAGE: u64 = 4096;
pub const KEYS: u32 = 40;
const DATA_BYTES: u64 = 4 << 20;
/// Segments of the log, unless others are asked for.
pub const SEGMENTS: u64 = 12;
const STEPS_MAX: u32 = 20_000;

/// What unwinds when the power goes.
struct PowerOff;

/// A hostile bank whose power goes at a chosen step: a submission, or a wait for completions.
pub struct Powered {
    pub bank: HostileDevices,
    pub steps: u64,
    pub cut_at: Option<u64>,
}

impl Powered {
    fn step(&mut self) {
        if self.cut_at == Some(self.steps) {
            resume_unwind(Box::new(PowerOff));
        }
        self.steps += 1;
    }
}

impl Devices for Powered {
    fn count(&self) -> u16 {
        self.bank.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.bank.geometry(device)
    }

    fn submit(&mut self, request: Request) {
        self.step();
        self.bank.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.bank.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.step();
        self.bank.wait(completions);
    }
}

/// A bank on which nothing but reading is allowed.
struct ReadOnly<'a>(&'a mut HostileDevices);

impl Devices for ReadOnly<'_> {
    fn count(&self) -> u16 {
        self.0.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.0.geometry(device)
    }

    fn submit(&mut self, request: Request) {
        let reads = matches!(request.operation, Operation::Read { .. });
        assert!(reads, "verification writes: {:?}", request.operation);
        self.0.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.0.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.0.wait(completions);
    }
}

/// One addition that was accepted.
#[derive(Clone, Copy, Debug)]
struct Add {
    seq: Seq,
    key: u32,
    delta: i64,
}

/// An image on the data device that something refers to.
#[derive(Clone, Debug)]
pub struct Live {
    pub kind: ImageKind,
    pub space: SpaceId,
    pub key: Vec<u8>,
    pub offset: u64,
}

/// Devices, a core on them, and what must be true of both.
pub struct World {
    pub devices: Powered,
    pub core: Option<Core>,
    pub space: SpaceId,
    registry: Registry,
    config: Config,
    history: Vec<Add>,
    /// Everything up to this sequence was acknowledged.
    acknowledged: Seq,
    /// What that was at the first power cut since the last check: recovery, too, logs.
    at_cut: Option<Seq>,
    now_us: u64,
    next_delta: i64,
    answers: Vec<(ViewId, Result<View, Error>)>,
}

/// The key with this number: long, so that few make a block.
pub fn key(number: u32) -> Vec<u8> {
    let mut key = format!("key {number:05} ").into_bytes();
    key.resize(300, b'.');
    key
}

fn config(segments: u64) -> Config {
    Config {
        store: *b"a store of tests",
        data_devices: 1,
        log_regions: vec![LogRegion { device: LOG, offset: LOG_START, bytes: segments * SEGMENT }],
        log_times_data: 4,
        log_segment_bytes: SEGMENT as u32,
        log_page_bytes: PAGE as u32,
        log_batch_bytes: 8 << 10,
        log_depth: 2,
        log_delay_us_max: 200,
        log_mode: LogMode::Idle,
        log_motion: None,
        block_bytes: 4096,
        directory_percent: 20,
        memory_bytes: 2 << 20,
        cache_bytes: 64 << 10,
        cache_borrows: true,
        fold_bytes_min: 4096,
        run_blocks_max: 8,
        run_bytes_max: 64 << 10,
        run_density_percent_min: 50,
        runs_in_flight_max: 2,
        scan_request_bytes: 16 << 10,
        scan_requests_in_flight: 2,
        scan_request_bytes_beside_queries: 16 << 10,
        scan_request_bytes_following: None,
        scan_requests_beside_queries: 1,
        scans_take_turns: false,
        scan_bytes_max: 64 << 10,
        bulk: Bulk::default(),
        fanout_min: 6,
        spilling: Spilling::Never,
        spill_fill_percent: 0,
        spill_segment_bytes: 2048,
        sweep_when_idle: false,
        sweep_for_queries: false,
        file_space: FileSpace::default(),
        boundaries: Vec::new(),
    }
}

impl World {
    /// An empty store, closed.
    pub fn new(seed: u64) -> Self {
        Self::with_log(seed, SEGMENTS)
    }

    /// An empty store with a log of this many segments, at least 4, closed.
    pub fn with_log(seed: u64, segments: u64) -> Self {
        Self::with_config(seed, config(segments))
    }

    /// An empty store whose log has pages of this many bytes, closed.
    pub fn with_log_pages(seed: u64, log_page_bytes: u32) -> Self {
        Self::with_config(seed, Config { log_page_bytes, ..config(SEGMENTS) })
    }

    /// An empty store whose files grow and shrink so, closed.
    pub fn with_file_space(seed: u64, file_space: FileSpace) -> Self {
        Self::with_config(seed, Config { file_space, ..config(SEGMENTS) })
    }

    fn with_config(seed: u64, config: Config) -> Self {
        let log_bytes = LOG_START + config.log_regions[0].bytes;
        let geometry = |size_bytes, growable| Geometry {
            size_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            rotational: false,
            growable,
        };
        let geometries = vec![geometry(DATA_BYTES, true), geometry(log_bytes, false)];
        let bank = HostileDevices::in_memory(geometries, seed);
        let mut devices = Powered { bank, steps: 0, cut_at: None };
        engine::create(&mut devices, &config).expect("a new store");
        devices.steps = 0;
        Self {
            devices,
            core: None,
            space: SpaceId::NONE,
            registry: registry(),
            config,
            history: Vec::new(),
            acknowledged: Seq::NONE,
            at_cut: None,
            now_us: 0,
            next_delta: 0,
            answers: Vec::new(),
        }
    }

    /// An empty store with blocks of this many bytes, closed.
    pub fn with_blocks(seed: u64, block_bytes: u32) -> Self {
        let mut world = Self::new(seed);
        world.config.block_bytes = block_bytes;
        world.config.memory_bytes = world.config.memory_bytes_min() + (1 << 20);
        world
    }

    /// An open store with the table, its first keys swept and in a checkpoint.
    pub fn swept(seed: u64) -> Self {
        Self::new(seed).opened_and_swept()
    }

    /// The same, and from now on whatever waits is spilled.
    pub fn spilling(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.config.spilling = Spilling::Always;
        // Several spill segments for all keys, most of whose bytes are a tail that they have in
        // common.
        world.config.spill_segment_bytes = 512;
        world.opened_and_swept()
    }

    /// The same as [`World::spilling`], with the smallest log, and updates wait in memory until it
    /// is nearly full.
    pub fn spilling_late(seed: u64) -> Self {
        let spilling = Spilling::Always;
        let config =
            Config { spilling, spill_fill_percent: 80, spill_segment_bytes: 512, ..config(4) };
        Self::with_config(seed, config).opened_and_swept()
    }

    /// The same as [`World::swept`], with a log of this many segments, and from now on updates are
    /// spilled when they have filled half of it, though memory holds all of them with ease.
    pub fn spilling_for_log(seed: u64, segments: u64) -> Self {
        let mut world = Self::with_log(seed, segments);
        world.config.spilling = Spilling::WhenItPays;
        world.config.spill_fill_percent = 50;
        world.opened_and_swept()
    }

    fn opened_and_swept(self) -> Self {
        let mut world = self;
        world.open().expect("opens");
        world.add_all(1).expect("accepted");
        world.sweep().expect("swept");
        world.checkpoint().expect("a checkpoint");
        world
    }

    /// Opens the store, and makes the table if it is not there.
    pub fn open(&mut self) -> Result<(), Error> {
        let config = self.config.clone();
        self.core = None;
        self.answers.clear();
        let core = engine::open(&mut self.devices, config, &self.registry, Access::ReadWrite)?;
        self.core = Some(core);
        self.space = match self.core().space_named("hits") {
            Some(record) => record.space,
            None => {
                let (space, seq) = self.core().create_space("hits", "table", true)?;
                self.until(|core| core.durable() >= seq && core.space_record(space).is_some())?;
                space
            }
        };
        Ok(())
    }

    /// Waits for what is in flight and drops the core, without closing anything in order.
    pub fn stop(&mut self) {
        self.core = None;
        let mut completions = Vec::new();
        while self.devices.bank.in_flight() > 0 {
            self.devices.bank.wait(&mut completions);
        }
    }

    pub fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("the store is open")
    }

    /// One step of the core and of the devices; whether anything moved.
    pub fn step(&mut self) -> bool {
        self.now_us += 1_000_000;
        let mut actions = Actions::default();
        let core = self.core.as_mut().expect("the store is open");
        core.pump(self.now_us, &mut actions);
        let mut moved = !actions.jobs.is_empty() || !actions.requests.is_empty();
        actions.jobs.into_iter().for_each(|job| core.job_done(job.run(|| {})));
        actions.requests.into_iter().for_each(|request| self.devices.submit(request));
        moved |= !actions.views.is_empty();
        self.answers.append(&mut actions.views);
        let mut completions = Vec::new();
        if self.devices.bank.in_flight() > 0 {
            self.devices.wait(&mut completions);
        }
        moved |= !completions.is_empty();
        completions.into_iter().for_each(|completion| core.complete(completion));
        self.acknowledged = self.acknowledged.max(core.durable());
        moved
    }

    /// Steps until `done`; an error if the store closes before.
    pub fn until(&mut self, done: impl Fn(&Core) -> bool) -> Result<(), Error> {
        for _ in 0..STEPS_MAX {
            if done(self.core()) {
                return Ok(());
            }
            if let Some(closed) = self.core().closed() {
                return Err(closed.clone().into());
            }
            self.step();
        }
        panic!("the engine does not get there: {:?}", self.core().metrics());
    }

    /// Declares one addition and does not wait for it to be durable.
    pub fn add(&mut self, number: u32) -> Result<(), Error> {
        let delta = self.next_delta % 1000 + 1;
        let seq = self.modify(number, ADD_I64, &delta.to_le_bytes())?;
        self.next_delta += 7;
        self.history.push(Add { seq, key: number, delta });
        Ok(())
    }

    /// Deletes a key and does not wait for that to be durable; for histories without a crash.
    pub fn delete(&mut self, number: u32) -> Result<(), Error> {
        self.modify(number, DELETE, &[])?;
        self.history.retain(|add| add.key != number);
        Ok(())
    }

    fn modify(&mut self, number: u32, modifier: ModifierId, operand: &[u8]) -> Result<Seq, Error> {
        let (key, space) = (key(number), self.space);
        let update = LoggedUpdate { space, modifier, key: &key, operand };
        for _ in 0..STEPS_MAX {
            let now_us = self.now_us;
            match self.core().modify(&[update], Urgency::Now, now_us)? {
                Accept::Accepted(seq) => return Ok(seq),
                Accept::Wait => drop(self.step()),
            }
        }
        panic!("no room for an update: {:?}", self.core().metrics());
    }

    /// Adds to every key, this many times, and waits until all of it is durable.
    pub fn add_all(&mut self, rounds: u32) -> Result<(), Error> {
        for number in (0..rounds).flat_map(|_| 0..KEYS) {
            self.add(number)?;
        }
        self.flush()
    }

    /// Makes tables as long as the log has room for their records, also what it keeps for the
    /// engine, and so in each of some steps.
    pub fn fill_log(&mut self, steps: u32) -> Result<(), Error> {
        let mut number = 0;
        for _ in 0..steps {
            while self.core().create_space(&format!("{number:0200}"), "table", true).is_ok() {
                number += 1;
            }
            self.step();
        }
        Ok(())
    }

    /// Waits until everything accepted is durable.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.until(|core| core.durable() == core.last())
    }

    pub fn sweep(&mut self) -> Result<(), Error> {
        self.core().request_sweep();
        let accepted = self.core().accepted();
        self.until(|core| core.is_swept(accepted))
    }

    /// Waits until no update waits in memory: all are in spill segments.
    pub fn spill(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.until(|core| core.waiting_entries() == 0 && !core.is_active())
    }

    pub fn checkpoint(&mut self) -> Result<(), Error> {
        let before = self.core().metrics().checkpoints_total.get();
        self.core().request_checkpoint();
        self.until(|core| core.metrics().checkpoints_total.get() > before)
    }

    /// Runs `work` with the power going at step `cut_at` from now; then the power is cut, whether
    /// the work was done or not. Returns what the cut did, and whether the work was over before.
    pub fn cut_during(
        &mut self,
        cut_at: u64,
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> (PowerCut, bool) {
        self.devices.cut_at = Some(self.devices.steps + cut_at);
        let ended = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.devices.cut_at = None;
        let finished = match ended {
            Ok(result) => {
                result.expect("nothing fails but the power");
                true
            }
            Err(payload) if payload.is::<PowerOff>() => false,
            Err(payload) => resume_unwind(payload),
        };
        (self.power_cut(), finished)
    }

    pub fn power_cut(&mut self) -> PowerCut {
        self.core = None;
        self.at_cut.get_or_insert(self.acknowledged);
        self.devices.bank.power_cut()
    }

    fn view(&mut self, space: SpaceId, wanted: Wanted) -> Result<View, Error> {
        let id = match self.core().view(space, wanted)? {
            ViewPoll::Ready(view) => return Ok(view),
            ViewPoll::Pending(id) => id,
        };
        for _ in 0..STEPS_MAX {
            self.step();
            if let Some(at) = self.answers.iter().position(|answer| answer.0 == id) {
                return self.answers.swap_remove(at).1;
            }
        }
        panic!("a view is never answered");
    }

    /// What the engine says that this key has; 0 if nothing.
    pub fn get(&mut self, number: u32) -> Result<i64, Error> {
        self.see(number).map(|(_, found)| found)
    }

    /// As [`World::get`], with the view that says so.
    pub fn see(&mut self, number: u32) -> Result<(View, i64), Error> {
        let view = self.view(self.space, Wanted::Point(key(number)))?;
        let found = self.value_of(number, &view);
        Ok((view, found))
    }

    /// Adds to a key if `view` is still what there is to see of it.
    pub fn add_if(&mut self, number: u32, view: &View) -> Result<Conditional, Error> {
        let delta = self.next_delta % 1000 + 1;
        let (key, space, now_us) = (key(number), self.space, self.now_us);
        let (modifier, operand) = (ADD_I64, delta.to_le_bytes());
        let update = LoggedUpdate { space, modifier, key: &key, operand: &operand };
        let wanted = Wanted::Point(key.clone());
        let seen = Seen { space, wanted: &wanted, view };
        let answer = self.core().modify_if(&[seen], &[update], Urgency::Now, now_us)?;
        if let Conditional::Holds(Accept::Accepted(seq)) = answer {
            self.next_delta += 7;
            self.history.push(Add { seq, key: number, delta });
        }
        Ok(answer)
    }

    /// Begins to remove the keys from one number to below another; the model has lost them.
    pub fn remove_range(&mut self, from: u32, to: u32) -> Result<Seq, Error> {
        let space = self.space;
        let removed = self.core().remove_range(space, &key(from), Some(&key(to)))?;
        self.history.retain(|add| !(from..to).contains(&add.key));
        Ok(removed)
    }

    fn value_of(&mut self, number: u32, view: &View) -> i64 {
        let key = key(number);
        let waiting = sorted(view);
        let modifiers = self.core().modifiers();
        let body = view.image.as_ref().map(|image| image.body());
        match get::<ByKey>(body, &waiting, &modifiers, &key, None).expect("the checksum held") {
            Lookup::Absent => 0,
            Lookup::Value { bytes, .. } => {
                i64::from_le_bytes(bytes.as_ref().try_into().expect("a number"))
            }
            Lookup::NeedLarge { .. } => panic!("no value here is large"),
        }
    }

    /// The updates in the quarantine that were meant for the table, as key and addition.
    pub fn quarantined(&mut self) -> Vec<(u32, i64)> {
        let mut found = Vec::new();
        let mut from = Some(Vec::new());
        while let Some(low) = from {
            let view =
                self.view(QUARANTINE_SPACE, Wanted::Covering(low.clone())).expect("readable");
            let waiting = sorted(&view);
            let modifiers = self.core().modifiers();
            let request = PageRequest {
                from: &low,
                to: view.high.as_deref(),
                reverse: false,
                records_max: usize::MAX,
                bytes_max: usize::MAX,
            };
            let body = view.image.as_ref().map(|image| image.body());
            let page =
                page::<ByKey>(body, &waiting, &modifiers, &request).expect("the checksum held");
            for record in &page.records {
                let Lookup::Value { bytes, .. } = &record.value else { panic!("a small value") };
                let entry = decode_entry(bytes).expect("an entry");
                assert_eq!((entry.space, entry.modifier), (self.space, ADD_I64));
                let number = std::str::from_utf8(&entry.key[4..9]).expect("digits");
                let operand = entry.operand.try_into().expect("a number");
                let number = number.parse().expect("a number");
                found.push((number, i64::from_le_bytes(operand)));
            }
            from = view.high.map(<[u8]>::into_vec);
        }
        found
    }

    /// The sum that the model has for this key.
    pub fn expected(&self, number: u32) -> i64 {
        self.history.iter().filter(|add| add.key == number).map(|add| add.delta).sum()
    }

    /// Asserts that every key has the sum of the model.
    pub fn check(&mut self) {
        assert_eq!(self.check_or_damaged(), [], "damage where there is none");
    }

    /// Asserts that every key has the sum of the model, or is reported to be damaged, and returns
    /// the errors.
    pub fn check_or_damaged(&mut self) -> Vec<Error> {
        let mut errors = Vec::new();
        for number in 0..KEYS {
            match self.get(number) {
                Ok(found) => assert_eq!(found, self.expected(number), "key {number}"),
                Err(error @ Error::Damaged(_)) => errors.push(error),
                Err(error) => panic!("key {number}: {error}"),
            }
        }
        errors
    }

    /// After a crash: asserts that the answers are those of one moment of the history.
    pub fn check_crash(&mut self) {
        let found: Vec<i64> = (0..KEYS).map(|number| self.get(number).expect("readable")).collect();
        self.check_moment(&found);
    }

    /// After a crash: asserts that these sums are those of one moment of the history, at or after
    /// the youngest acknowledged update, and forgets what came after it.
    pub fn check_moment(&mut self, found: &[i64]) {
        let total: i64 = found.iter().sum();
        let mut sum = 0;
        let mut kept = 0;
        while sum < total && kept < self.history.len() {
            sum += self.history[kept].delta;
            kept += 1;
        }
        assert_eq!(sum, total, "the sums are of no moment of the history");
        let promised = self.at_cut.take().expect("after a power cut");
        let lost = self.history.get(kept).is_some_and(|add| add.seq <= promised);
        assert!(!lost, "{kept} adds kept, but all up to sequence {promised} acknowledged");
        self.history.truncate(kept);
        let expected: Vec<i64> = (0..KEYS).map(|number| self.expected(number)).collect();
        assert_eq!(found, expected);
        self.acknowledged = self.core().durable();
    }

    /// Verifies the store, which must be stopped, on a bank that allows no writes.
    pub fn verify(&mut self) -> Result<Report, Error> {
        assert!(self.core.is_none() && self.devices.bank.in_flight() == 0, "stopped before");
        let mut devices = ReadOnly(&mut self.devices.bank);
        engine::verify(&mut devices, self.config.clone(), &self.registry)
    }

    /// Asserts that verification finds nothing wrong.
    pub fn check_sound(&mut self) {
        let report = self.verify().expect("verified");
        assert_eq!(report.damage, []);
    }

    /// Every image that lies in space which is in use.
    pub fn live_images(&mut self) -> Vec<Live> {
        let map = self.core.as_ref().expect("the store is open").space_map();
        let free: Vec<_> = map.free_extents(DATA).map(|(at, bytes)| at..at + bytes).collect();
        let size = self.devices.bank.geometry(DATA).size_bytes;
        let bytes = self.devices.bank.bank().peek(DATA, 0, size as usize);
        let mut live = Vec::new();
        let mut offset = engine::DATA_START;
        while offset < size {
            let is_free = free.iter().any(|range| range.contains(&offset));
            if let (false, Ok((identity, _))) =
                (is_free, image_format::parse(&bytes[offset as usize..]))
            {
                let (kind, key) = (identity.kind, identity.key.to_vec());
                let space = SpaceId::new(identity.number);
                live.push(Live { kind, space, key, offset });
            }
            offset += 4096;
        }
        live
    }

    /// A block of the table, with a key in it: the lowest that is at or above the block's key.
    pub fn some_block(&mut self) -> (Live, u32) {
        let space = self.space;
        let mut live = self.live_images();
        live.retain(|image| image.kind == ImageKind::Block && image.space == space);
        live.sort_by(|left, right| left.key.cmp(&right.key));
        assert!(live.len() > 2, "the table has several blocks");
        let block = live.swap_remove(live.len() / 2);
        let number = (0..KEYS).find(|number| key(*number) >= block.key).expect("a key");
        (block, number)
    }
}

fn sorted(view: &View) -> Vec<UpdateRef<'_>> {
    let mut updates = view.updates();
    updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
    updates
}
