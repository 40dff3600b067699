//! What happens inside a child process: one step on one store, measured.
//!
//! Steps of a run: open the store; learn the sum of all counters if it is not known; warm the
//! caches with reads (unless cold reads are what is measured); run, increments until the state is
//! steady; wait until all deferred work is done; count again. Read and written bytes and processor
//! time are taken at the end of the run and at the end of the deferred work.

pub(crate) mod acknowledged;
mod callers;
mod pauses;
mod recorder;
pub(crate) mod resources;
pub(crate) mod spec;

use std::path::Path;
use std::time::{Duration, Instant};

use acknowledged::Acknowledged;
use callers::Run;
use nix::sys::signal::Signal;
use pauses::Watch;
use recorder::Recorder;
use resources::Used;
use spec::{Reply, Spec, Step};

use crate::engine::{Config, Engine, record_bytes};
use crate::engines;
use crate::failure::Failure;
use crate::outcome::{Check, Outcome, Recovery, Series};
use crate::workload::Workload;
use crate::workload::keys::Keys;

/// Tells the number of a warm-up from that of its run: the run must not meet just those records
/// whose blocks the warm-up has read.
const WARM_UP: u64 = 1 << 31;
/// How many times longer than asked a run may last that somebody is to kill.
const PATIENCE: f64 = 20.0;

/// The child's whole life: reads its orders, enters its cgroup, does them, and replies.
///
/// # Errors
/// [`Failure`] if orders or reply cannot be read or written; what goes wrong in between is in the
/// reply.
pub(crate) fn live(orders: &Path) -> Result<(), Failure> {
    // Without its parent nobody would end it or read what it has found.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Failure::Refused(format!("a child cannot follow its parent: {error}")))?;
    let text = std::fs::read_to_string(orders).map_err(|error| Failure::file(orders, error))?;
    let spec: Spec = serde_json::from_str(&text)
        .map_err(|error| Failure::Refused(format!("{}: {error}", orders.display())))?;
    if let Some(cgroup) = &spec.cgroup {
        let procs = cgroup.join("cgroup.procs");
        std::fs::write(&procs, std::process::id().to_string())
            .map_err(|error| Failure::file(&procs, error))?;
    }
    let reply = perform(&spec);
    let text =
        serde_json::to_string(&reply).map_err(|error| Failure::Refused(error.to_string()))?;
    std::fs::write(&spec.reply, text).map_err(|error| Failure::file(&spec.reply, error))
}

/// Does one step on one store.
pub(crate) fn perform(spec: &Spec) -> Reply {
    let keys = Keys::new(spec.records, spec.seed, spec.key_bytes);
    let mut cell = Cell { spec, keys, counters: spec.counters };
    let outcome = match spec.step {
        Step::Load => cell.load(),
        Step::Run => cell.run(),
        Step::RunUntilKilled => cell.run_until_killed(),
        Step::Recover => cell.recover(),
    };
    Reply { outcome: outcome.map_err(|failure| failure.to_string()), counters: cell.counters }
}

struct Cell<'a> {
    spec: &'a Spec,
    keys: Keys,
    /// The sum of all counters, if it is known.
    counters: Option<u64>,
}

impl Cell<'_> {
    fn open(&self) -> Result<Box<dyn Engine>, Failure> {
        let name = &self.spec.engine;
        let unknown = || Failure::Refused(format!("the engine {name} is not built in"));
        let entry = engines::find(name).ok_or_else(unknown)?;
        let config = Config {
            memory_bytes: self.spec.memory_bytes,
            data_bytes: self.spec.records * record_bytes(self.spec.key_bytes),
            key_bytes: self.spec.key_bytes,
            durability: self.spec.class.durability(),
        };
        (entry.open)(&self.spec.folder, &config)
    }

    fn load(&mut self) -> Result<Outcome, Failure> {
        let (started, before) = (Instant::now(), Used::now());
        let engine = self.open()?;
        engine.load(&mut self.keys.all())?;
        engine.quiesce()?;
        self.counters = Some(0);
        let mut outcome = Outcome {
            seconds: started.elapsed().as_secs_f64(),
            updates: self.keys.records(),
            ..Outcome::default()
        };
        self.finish(&mut outcome, Used::now().since(before), engine.as_ref());
        Ok(outcome)
    }

    fn run(&mut self) -> Result<Outcome, Failure> {
        let engine = self.open()?;
        let is_counted = self.spec.workload.is_counted();
        if self.spec.has_check && self.counters.is_none() {
            self.counters = Some(engine.scan(&[], u64::MAX)?.counters);
        }
        if !self.spec.workload.is_cold() && self.spec.warm_up_seconds > 0.0 {
            let workload = Workload::Reads;
            let duration = Duration::from_secs_f64(self.spec.warm_up_seconds);
            let orders = self.orders(engine.as_ref());
            let number = orders.number | WARM_UP;
            let run =
                Run { workload, duration, duration_max: duration, rate: None, number, ..orders };
            run.execute()?;
        }
        let (started, before) = (Instant::now(), Used::now());
        let watch = Watch::begin(started);
        let (recorder, lasted) = self.orders(engine.as_ref()).execute()?;
        let (ran, in_run) = (started.elapsed(), Used::now().since(before));
        let turns = engine.turns(recorder.updates);
        engine.quiesce()?;
        let mut outcome = summary(recorder, ran, started.elapsed());
        outcome.in_run = Some(in_run);
        outcome.callers_seconds = Some(lasted.as_secs_f64());
        if self.spec.workload == Workload::Increments {
            outcome.turns = turns;
            outcome.is_steady = Some(turns.is_none_or(|turns| turns.are_enough()));
        }
        outcome.pauses = Some(watch.end());
        outcome.rate = self.spec.rate;
        self.finish(&mut outcome, Used::now().since(before), engine.as_ref());
        let expected = self.counters.map(|counters| counters.wrapping_add(outcome.updates));
        self.counters = expected.filter(|_| is_counted);
        if let Some(expected) = self.counters
            && self.spec.has_check
        {
            let found = engine.scan(&[], u64::MAX)?.counters;
            outcome.check = Some(Check { expected, found });
            if found != expected {
                self.counters = Some(found);
                let text = format!("the counters add up to {found} and not to {expected}");
                return Err(Failure::Wrong(text));
            }
        }
        Ok(outcome)
    }

    fn run_until_killed(&mut self) -> Result<Outcome, Failure> {
        let engine = self.open()?;
        let counters = match self.counters {
            Some(counters) => counters,
            None => engine.scan(&[], u64::MAX)?.counters,
        };
        let noted = Acknowledged::create(&self.spec.acknowledged, counters)?;
        let orders = self.orders(engine.as_ref());
        let duration = orders.duration.mul_f64(PATIENCE);
        let acknowledged = Some(&noted);
        Run { acknowledged, duration, duration_max: duration, ..orders }.execute()?;
        self.counters = None;
        Err(Failure::Refused("nobody killed the run".to_owned()))
    }

    fn recover(&mut self) -> Result<Outcome, Failure> {
        let missing = || Failure::Refused("the killed run had no update acknowledged".to_owned());
        let noted = acknowledged::read(&self.spec.acknowledged).ok_or_else(missing)?;
        let (started, before) = (Instant::now(), Used::now());
        let engine = self.open()?;
        engine.get(&self.keys.loaded(0).to_vec())?;
        let seconds = started.elapsed().as_secs_f64();
        let mut outcome = Outcome { updates: noted.acknowledged, ..Outcome::default() };
        self.finish(&mut outcome, Used::now().since(before), engine.as_ref());
        let after = engine.scan(&[], u64::MAX)?.counters;
        self.counters = Some(after);
        let found = after.wrapping_sub(noted.counters);
        let (issued, acknowledged) = (noted.issued, noted.acknowledged);
        outcome.recovery = Some(Recovery { seconds, issued, acknowledged, found });
        if (acknowledged..=issued).contains(&found) {
            return Ok(outcome);
        }
        Err(Failure::Wrong(format!(
            "{found} increments are there after the kill; {acknowledged} were acknowledged and \
             {issued} handed over"
        )))
    }

    fn orders<'a>(&'a self, engine: &'a dyn Engine) -> Run<'a> {
        Run {
            engine,
            keys: self.keys,
            workload: self.spec.workload,
            class: self.spec.class,
            duration: Duration::from_secs_f64(self.spec.seconds),
            duration_max: Duration::from_secs_f64(self.spec.seconds_max),
            rate: self.spec.rate,
            seed: self.spec.seed,
            number: self.spec.run,
            text: self.spec.text.as_deref(),
            acknowledged: None,
        }
    }

    /// Fills in what is known of every step.
    fn finish(&self, outcome: &mut Outcome, used: Used, engine: &dyn Engine) {
        outcome.read_bytes = used.read_bytes;
        outcome.written_bytes = used.written_bytes;
        outcome.cpu_seconds = used.cpu_seconds;
        outcome.disk_bytes = resources::disk_bytes(&self.spec.folder);
        outcome.resident_bytes_peak = resources::resident_bytes_peak();
        outcome.statistics = engine.statistics();
    }
}

fn summary(recorder: Recorder, ran: Duration, paid: Duration) -> Outcome {
    let (seconds, paid) = (ran.as_secs_f64(), paid.as_secs_f64());
    let rate = |count: u64| count as f64 / seconds.max(1e-9);
    Outcome {
        seconds,
        quiesce_seconds: paid - seconds,
        updates: recorder.updates,
        updates_per_second: rate(recorder.updates),
        paid_updates_per_second: recorder.updates as f64 / paid.max(1e-9),
        reads_per_second: rate(recorder.reads),
        scans_per_second: rate(recorder.scans),
        update_latency: recorder.update_latencies.summary(),
        read_latency: recorder.read_latencies.summary(),
        scan_latency: recorder.scan_latencies.summary(),
        series: Series { ..recorder.series },
        ..Outcome::default()
    }
}
