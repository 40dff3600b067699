//! One engine on devices and workers with a modelled speed, in virtual time.
//!
//! Completions and finished jobs are handed over in time order, and the core is pumped after each
//! event, as in production. Nothing fails here.

use std::collections::VecDeque;

use upsweep::SpaceId;
use upsweep::layers::device::{
    Completion, Devices, LatencyModel, MemoryDevices, Operation, Simulated,
};
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::engine::{
    self, Access, Actions, Core, Job, JobOutput, LoggedUpdate, Spilling, drive,
};
use upsweep::layers::log::Urgency;

use crate::load::plan::{JOB_BYTES_PER_US, LoadPlan, WORKERS};
use crate::oracle::Layout;
use crate::random::Digest;
use crate::resting::{self, FullWatch, Refused};
use crate::semantics::{BUILTINS, Op, kind};
use crate::world::{Verdict, registry};

/// Time between two steps while the store is filled, longer than any rest, in microseconds.
const FILL_STEP_US: u64 = 1_000_000;
/// Steps within which the store has to be filled.
const FILL_STEPS_MAX: u64 = 200_000;
/// Updates of one record while the store is filled.
const FILL_BATCH: usize = 16;
/// Most cells of an array that share a block: one in this many is set initially.
const FILL_CELLS: u64 = 256;
/// Approximate real time of a pump and of a byte of a job, in nanoseconds: see
/// [`Machine::work_ns`].
const PUMP_NS: u64 = 700;
const JOB_BYTE_NS: u64 = 3;

/// The number of a built-in modifier.
#[must_use]
pub fn builtin(op: Op) -> ModifierId {
    let number = BUILTINS.iter().position(|builtin| *builtin == op);
    ModifierId(u16::try_from(number.expect("a built-in modifier")).expect("there are few"))
}

/// An engine with its devices and workers.
pub struct Machine {
    /// The engine.
    pub core: Core,
    /// How often it has reported that there may be room.
    pub room_events: u64,
    /// The table, hash table or array.
    pub space: SpaceId,
    /// Everything that happened.
    pub history: Digest,
    /// Approximate real time spent, in nanoseconds: determines the length of a history, the same on
    /// every machine.
    pub work_ns: u64,
    devices: MemoryDevices,
    jobs: VecDeque<Job>,
    /// Jobs that are being run, with their completion times.
    working: Vec<(u64, JobOutput)>,
    full: FullWatch,
}

impl Machine {
    /// The store of a plan with its initial data, swept and at rest.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn create(plan: &LoadPlan) -> Verdict<Self> {
        let mut devices = plan.devices();
        devices.set_latency(LatencyModel { base_us: 1, bytes_per_us: 1 << 30, jitter_us: 0 });
        engine::create(&mut devices, &plan.config).map_err(|error| format!("create: {error}"))?;
        // Updates that are not spilled may take all the memory that is otherwise unused.
        let mut settings = plan.settings.clone();
        settings.options.spilling = Spilling::Never;
        let core = engine::open(&mut devices, settings.config(), &registry(), Access::ReadWrite)
            .map_err(|error| format!("open: {error}"))?;
        let mut machine = Self {
            core,
            room_events: 0,
            space: SpaceId::NONE,
            history: Digest::default(),
            work_ns: 0,
            devices,
            jobs: VecDeque::new(),
            working: Vec::new(),
            full: FullWatch::default(),
        };
        machine.fill(plan)?;
        if plan.preloaded {
            machine.reopen(plan)?;
        }
        machine.devices.set_latency(plan.latency);
        machine.pump();
        Ok(machine)
    }

    /// Opens the store with the memory that leaves waiting updates the amount in the plan: only now
    /// is the memory of everything else known.
    fn reopen(&mut self, plan: &LoadPlan) -> Verdict {
        let now = self.core.config();
        let beside_cache = now.memory_bytes - now.cache_bytes;
        let others = beside_cache.saturating_sub(self.core.queue_limit_bytes());
        let buffers_of_spills = plan.config.fixed_bytes() - now.fixed_bytes();
        let mut settings = plan.settings.clone();
        settings.leave_beside_cache(others + buffers_of_spills + plan.waiting_bytes as usize);
        self.core =
            engine::open(&mut self.devices, settings.config(), &registry(), Access::ReadWrite)
                .map_err(|error| format!("open once more: {error}"))?;
        self.devices.advance_to(self.core.now_us().max(self.devices.now_us()));
        self.step_until("the store is open", |core| !core.is_active())
    }

    fn fill(&mut self, plan: &LoadPlan) -> Verdict {
        let (format, companion) = match plan.layout {
            Layout::Hash => ("hash", true),
            Layout::Array => ("array:i64", false),
            _ => ("table", true),
        };
        let created = self.core.create_space("load", format, companion);
        self.space = created.map_err(|error| format!("create a table: {error}"))?.0;
        self.step_until("the table is there", |core| core.durable() == core.last())?;
        if plan.preloaded {
            let step = if plan.layout == Layout::Array { FILL_CELLS } else { 1 };
            let numbers: Vec<u64> = (0..plan.keys).step_by(step as usize).collect();
            for numbers in numbers.chunks(FILL_BATCH) {
                self.fill_some(plan, numbers)?;
            }
        }
        let last = self.core.accepted();
        self.core.request_sweep();
        self.step_until("the data is swept", |core| core.is_swept(last))?;
        self.core.request_checkpoint();
        self.step_until("a checkpoint", |core| !core.is_active())
    }

    fn fill_some(&mut self, plan: &LoadPlan, numbers: &[u64]) -> Verdict {
        let mut operand = vec![kind::I64];
        operand.extend_from_slice(&1u64.to_le_bytes());
        if plan.value_bytes > 8 {
            operand = vec![kind::BYTES];
            operand.resize(1 + plan.value_bytes, b'v');
        }
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| plan.key(*number)).collect();
        let (space, modifier) = (self.space, builtin(Op::Put));
        let update = |key| LoggedUpdate { space, modifier, key, operand: &operand };
        let updates: Vec<_> = keys.iter().map(|key| update(key.as_slice())).collect();
        for _ in 0..FILL_STEPS_MAX {
            let now = self.devices.now_us();
            match self.core.modify(&updates, Urgency::Relaxed, now) {
                Ok(engine::Accept::Accepted(_)) => return Ok(()),
                Ok(engine::Accept::Wait) => self.step(),
                Err(error) => return Err(format!("filling the store: {error}")),
            }
        }
        Err(format!("filling the store does not end: {}", self.dump()))
    }

    fn step(&mut self) {
        let now = self.devices.now_us() + FILL_STEP_US;
        self.devices.advance_to(now);
        drive::step(&mut self.core, &mut self.devices, now);
    }

    fn step_until(&mut self, what: &str, done: impl Fn(&Core) -> bool) -> Verdict {
        for _ in 0..FILL_STEPS_MAX {
            if done(&self.core) {
                return Ok(());
            }
            self.step();
        }
        Err(format!("waiting indefinitely until {what}: {}", self.dump()))
    }

    /// The virtual time, in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.devices.now_us()
    }

    /// When the next event happens without calls, in microseconds.
    #[must_use]
    pub fn next_event_us(&self) -> Option<u64> {
        // The driver returns at once, which takes it some time.
        let deadline = self.core.deadline_us().map(|at| at.max(self.now_us() + 1));
        let job = self.working.iter().map(|(due, _)| *due).min();
        [self.devices.next_event_us(), job, deadline].into_iter().flatten().min()
    }

    /// Advances the time to `us`, at most to the next event, and handles what is due then.
    pub fn advance_to(&mut self, us: u64) {
        self.devices.advance_to(us);
        let mut arrived: Vec<Completion> = Vec::new();
        self.devices.reap(&mut arrived);
        for completion in arrived {
            self.history.add(completion.token.0);
            self.core.complete(completion);
            self.pump();
        }
        while let Some(done) = self.working.iter().position(|(due, _)| *due <= us) {
            let (_, output) = self.working.swap_remove(done);
            self.core.job_done(output);
            self.pump();
        }
        if self.core.deadline_us().is_some_and(|deadline| deadline <= us) {
            self.pump();
        }
    }

    /// Pumps the core and carries out its actions.
    pub fn pump(&mut self) {
        let now = self.now_us();
        self.work_ns += PUMP_NS;
        let mut actions = Actions::default();
        self.core.pump(now, &mut actions);
        self.room_events += u64::from(actions.room);
        for request in actions.requests {
            self.history.add(now ^ request.token.0);
            if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } =
                &request.operation
            {
                self.work_ns += buffer.len() as u64 / 2;
            }
            self.devices.submit(request);
        }
        self.jobs.extend(actions.jobs);
        while self.working.len() < WORKERS
            && let Some(job) = self.jobs.pop_front()
        {
            let bytes = job.bytes() as u64;
            self.work_ns += bytes * JOB_BYTE_NS;
            self.working.push((now + 1 + bytes / JOB_BYTES_PER_US, job.run(|| {})));
        }
        self.full.look(&self.core, now);
    }

    /// The fault if nothing is in progress while this caller waits.
    #[must_use]
    pub fn rest_fault(&self, refused: Refused) -> Option<String> {
        let idle = self.devices.in_flight() == 0 && self.jobs.is_empty() && self.working.is_empty();
        let fault =
            || resting::fault(&self.core, self.room_events, refused, self.now_us(), &self.full);
        if idle { fault() } else { None }
    }

    /// The state of the engine, for the report of a failure.
    #[must_use]
    pub fn dump(&self) -> String {
        let (core, metrics) = (&self.core, self.core.metrics().read());
        let (spill_segments, spill_segment_bytes) = core.spill_segments_size();
        format!(
            "now {}, deadline {:?}, {} requests in flight, {} jobs, queues {}% of {} KiB, log {}% \
             cycle {:?} after {} cycles, {} runs, {} spills ({spill_segments} spill_segments of \
             {} KiB, {}% of their room) and {} checkpoints, durable {}, swept {}, accepted {}, \
             waits {:?}",
            self.now_us(),
            core.deadline_us(),
            self.devices.in_flight(),
            self.jobs.len() + self.working.len(),
            core.queue_fill_percent(),
            core.queue_limit_bytes() >> 10,
            core.log_fill_percent(),
            core.sweep_progress(),
            metrics.sweep_cycles_total,
            metrics.sweep_runs_total,
            metrics.spills_total,
            spill_segment_bytes >> 10,
            core.spilled_fill_percent(),
            metrics.checkpoints_total,
            core.durable(),
            core.sweep_frontier(),
            core.accepted(),
            metrics.admission_refusals_total,
        )
    }
}
