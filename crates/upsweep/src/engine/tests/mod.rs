//! Small worlds: a core on devices in memory, one thread, and a separate format and modifiers, for
//! the tests of parts that need all the others to run.

mod accept;
mod ahead;
mod base;
mod checkpoint;
mod conditional;
mod extents;
mod format;
mod ground;
mod growth;
mod index;
mod jobs;
mod journal;
mod log_growth;
mod pipeline;
mod publish;
mod quarantine;
mod reclaim;
mod recovery;
mod replay;
mod spaces;
mod spiller;
mod sweep;
mod turns;
mod values;
mod verification;
mod view;

use crate::device::{Bulk, Devices, Geometry, MemoryDevices};
use crate::engine::block_format::{ApplyInput, UpdateRef};
use crate::engine::core::{Actions, Core};
use crate::engine::format::record_format::LoggedUpdate;
use crate::engine::ids::SpaceId;
use crate::engine::registry::{ADD_I64, DELETE, ModifierId, PUT};
use crate::engine::view::{View, ViewPoll, Wanted};
use crate::engine::{Accept, Access, Config, FileSpace, Spilling, drive, open, verify};
use crate::error::Error;
use crate::log::{LogMode, LogRegion, Urgency};

const SEGMENT: u64 = 32 << 10;
const STEPS_MAX: u32 = 20_000;

/// Settings of a small store with one data device and a log of 16 segments.
fn config() -> Config {
    Config {
        store: *b"a store of tests",
        data_devices: 1,
        log_regions: vec![LogRegion {
            device: crate::device::DeviceId(1),
            offset: 4096,
            bytes: 16 * SEGMENT,
        }],
        log_times_data: 4,
        log_segment_bytes: SEGMENT as u32,
        log_page_bytes: 4096,
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
        scan_requests_beside_queries: 2,
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

/// A core, its devices, and a table named `t`.
struct World {
    core: Core,
    devices: MemoryDevices,
    config: Config,
    now_us: u64,
    space: SpaceId,
    /// How often the core has reported that there may be room.
    room_events: u32,
}

impl World {
    fn new() -> Self {
        Self::with(config(), 4 << 20)
    }

    /// A store on data devices of this length each, which cannot grow.
    fn with(config: Config, data_bytes: u64) -> Self {
        let geometry = |size_bytes| Geometry {
            size_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            rotational: false,
            growable: false,
        };
        let log_bytes = 4096 + config.log_regions[0].bytes;
        let mut geometries = vec![geometry(data_bytes); usize::from(config.data_devices)];
        geometries.push(geometry(log_bytes));
        let mut devices = MemoryDevices::new(geometries, 1);
        crate::engine::create(&mut devices, &config).expect("a new store");
        let core = open(&mut devices, config.clone(), &format::registry(), Access::ReadWrite)
            .expect("an empty store opens");
        let mut world =
            Self { core, devices, config, now_us: 0, space: SpaceId::NONE, room_events: 0 };
        world.space = world.create("t");
        world
    }

    fn create(&mut self, name: &str) -> SpaceId {
        let (space, _) = self.core.create_space(name, "table", true).expect("a new name");
        self.until_published();
        space
    }

    /// One step of everything.
    fn step(&mut self) {
        self.now_us += 1000;
        let mut actions = Actions::default();
        self.core.pump(self.now_us, &mut actions);
        self.room_events += u32::from(actions.room);
        for job in actions.jobs {
            self.core.job_done(job.run(|| {}));
        }
        for request in actions.requests {
            self.devices.submit(request);
        }
        let mut completions = Vec::new();
        self.devices.wait(&mut completions);
        completions.into_iter().for_each(|completion| self.core.complete(completion));
    }

    fn until(&mut self, what: &str, done: impl Fn(&Core) -> bool) {
        for _ in 0..STEPS_MAX {
            if done(&self.core) {
                return;
            }
            self.step();
        }
        panic!("it never comes to this: {what}");
    }

    fn until_published(&mut self) {
        let last = self.core.last();
        self.until("all is published", |core| core.published() >= last);
    }

    /// Sweeps everything that was accepted.
    fn sweep(&mut self) {
        let accepted = self.core.accepted();
        self.core.request_sweep();
        self.until("all is swept", |core| core.is_swept(accepted));
    }

    fn checkpoint(&mut self) {
        self.core.request_checkpoint();
        self.until("a checkpoint", |core| !core.is_checkpointing());
    }

    fn offer(
        &mut self,
        space: SpaceId,
        modifier: ModifierId,
        key: &[u8],
        operand: &[u8],
    ) -> Result<Accept, Error> {
        let update = LoggedUpdate { space, modifier, key, operand };
        self.core.modify(&[update], Urgency::Now, self.now_us)
    }

    /// Offers an update until it is accepted.
    fn accept(&mut self, space: SpaceId, modifier: ModifierId, key: &[u8], operand: &[u8]) {
        for _ in 0..STEPS_MAX {
            match self.offer(space, modifier, key, operand).expect("a sound update") {
                Accept::Accepted(_) => return,
                Accept::Wait => self.step(),
            }
        }
        panic!("an update waits indefinitely");
    }

    fn add(&mut self, key: &str, amount: i64) {
        self.accept(self.space, ADD_I64, key.as_bytes(), &format::number(amount));
    }

    fn put(&mut self, space: SpaceId, key: &str, value: i64) {
        self.accept(space, PUT, key.as_bytes(), &format::number(value));
    }

    fn delete(&mut self, key: &str) {
        self.accept(self.space, DELETE, key.as_bytes(), &[]);
    }

    fn view(&mut self, space: SpaceId, key: &str) -> View {
        match self.core.view(space, Wanted::Point(key.into())).expect("a sound view") {
            ViewPoll::Ready(view) => view,
            ViewPoll::Pending(id) => {
                for _ in 0..STEPS_MAX {
                    if let Some(read) = self.core.take_read(id) {
                        let devices = &mut self.devices;
                        let checked = read.run(|request| {
                            devices.submit(request);
                            let mut completions = Vec::new();
                            devices.wait(&mut completions);
                            completions.pop().expect("nothing else is in flight")
                        });
                        if let Some(answer) = self.core.complete_read(id, checked) {
                            return answer.expect("a sound block");
                        }
                    }
                }
                panic!("a view waits indefinitely");
            }
        }
    }

    /// The value of a key, as a query returns it. Nothing may be in flight.
    fn get(&mut self, space: SpaceId, key: &str) -> Option<i64> {
        self.until("nothing is in flight", |core| !core.is_writing());
        let view = self.view(space, key);
        let updates: Vec<UpdateRef<'_>> = view.updates();
        let input = ApplyInput {
            body: view.image.as_ref().map(|image| image.body()),
            updates: &updates,
            modifiers: &self.core.modifiers(),
            values: &[],
            body_bytes_max: usize::MAX,
            inline_value_bytes_max: usize::MAX,
            expired_us: 0,
        };
        format::value_of(&input, key)
    }

    /// Ends the process and opens the store again, as after a kill: what is in flight is lost.
    fn reopen(self) -> Self {
        let Self { mut devices, config, space, core, .. } = self;
        drop(core);
        let mut lost = Vec::new();
        devices.wait(&mut lost);
        let core = open(&mut devices, config.clone(), &format::registry(), Access::ReadWrite)
            .expect("the store opens again");
        Self { core, devices, config, now_us: 0, space, room_events: 0 }
    }

    /// Comes to rest, and checks the directory and every image.
    fn check(&mut self) {
        let core = &mut self.core;
        drive::until(core, &mut self.devices, |core| !core.is_active());
        assert_eq!(self.core.audit(), Vec::<String>::new());
        let report = verify(&mut self.devices, self.config.clone(), &format::registry());
        assert_eq!(report.expect("a look at it").damage, []);
    }
}
