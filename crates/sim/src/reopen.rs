//! Closing and reopening a store: shutdown, power cuts, also during recovery.

use upsweep::layers::device::{DeviceId, Devices, Simulated};
use upsweep::layers::engine::format::checkpoint_format::{
    SLOT_BYTES, Superblock, decode_superblock,
};
use upsweep::layers::engine::{self, Access, Config, Core, drive};
use upsweep::layers::log::{self, LogConfig, Seq};
use upsweep::{Error, SpaceId};

use crate::bank::Bank;
use crate::plan::Trouble;
use crate::world::{Verdict, World};

/// Offsets of the superblock slots.
const SLOTS: [u64; 2] = [4096, 8192];
/// Consecutive power cuts during recovery.
const CUTS_IN_A_ROW_MAX: u32 = 4;
/// A sweep without the modifiers of the application ends within this many steps.
const UPKEEP_STEPS_MAX: u64 = 20_000;
/// Duration of each of them: longer than any rest of the sweep.
const UPKEEP_STEP_US: u64 = 1_000_000;

impl World {
    /// Creates the store and opens it.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn create(&mut self) -> Verdict {
        let config = self.plan.config.clone();
        engine::create(&mut self.bank, &config).map_err(|error| format!("create: {error}"))?;
        let core = engine::open(&mut self.bank, config, &self.registry, Access::ReadWrite)
            .map_err(|error| format!("first open: {error}"))?;
        self.take(core)
    }

    /// Cuts the power and recovers.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn crash(&mut self) -> Verdict {
        self.tally.cuts += 1;
        let durable = self.core().durable();
        self.forget_core();
        self.bank.power_cut();
        self.stop_failing();
        self.recover(durable, true)
    }

    /// Waits until everything is durable, closes the store and opens it again.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn restart(&mut self) -> Verdict {
        if self.random.percent(50) {
            self.core().request_sweep();
        }
        self.turn_until("waiting for a quiet moment", |world| {
            let core = world.core();
            // A full store keeps trying, and is never quiet.
            let quiet = !core.is_active() || core.is_full();
            core.closed().is_some() || (core.durable() == core.last() && quiet)
        })?;
        if self.core().closed().is_some() {
            return Ok(());
        }
        let durable = self.core().durable();
        self.forget_core();
        self.bank.power_cut();
        self.stop_failing();
        self.recover(durable, false)
    }

    /// After a failed write the store has to be opened again.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn after_write_error(&mut self) -> Verdict {
        let durable = self.core().durable();
        let refused = self.core().drop_space(SpaceId::new(1));
        if !matches!(refused, Err(Error::Closed(_))) {
            return Err(format!("a closed store took a change: {refused:?}"));
        }
        self.forget_core();
        let cut = self.cutting.percent(50);
        if cut {
            self.bank.power_cut();
        } else {
            // The process continues. What the failed writes left can be read, but is not stable; so
            // a power cut during recovery may restore less than what recovery has seen.
            let mut ended = Vec::new();
            while self.bank.devices.in_flight() > 0 {
                self.bank.wait(&mut ended);
            }
        }
        self.stop_failing();
        self.recover(durable, cut)
    }

    fn stop_failing(&mut self) {
        self.bank.devices.stop_failing();
        for device in 0..self.plan.config.data_devices {
            self.bank.devices.set_refusing_writes(DeviceId(device), false);
        }
        self.failing = false;
    }

    fn forget_core(&mut self) {
        self.note_metrics();
        self.core = None;
        self.jobs.clear();
        self.arrived.clear();
        self.asked.clear();
        self.performers.clear();
        self.answers.clear();
        self.waiting = None;
        self.callers.forget();
        self.loading = None;
        self.follow_up.clear();
        self.unsettled.clear();
    }

    fn note_metrics(&mut self) {
        if let Some(core) = &self.core {
            self.tally.runs += core.metrics().sweep_runs_total.get();
            self.tally.spills += core.metrics().spills_total.get();
            self.tally.spills_carried += core.metrics().spills_carried_total.get();
            self.tally.ahead += core.metrics().scan_read_bytes_total.get() >> 10;
            self.tally.ahead_unused += core.metrics().scan_unused_bytes_total.get() >> 10;
            self.tally.checkpoints += core.metrics().checkpoints_total.get();
            self.tally.punches += core.metrics().holes_punched_total.get();
            self.tally.holes_filled += core.metrics().holes_filled_total.get();
            self.tally.log_growths += core.log().metrics().log_growths_total.get();
            self.tally.dummies += core.log().metrics().log_dummy_batches_total.get();
            self.tally.predictions += core.log().metrics().log_predictions_total.get();
        }
    }

    /// Recovers after a power cut; everything up to `durable` must be there. Injected damage may be
    /// reported instead.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn recover_from_cut(&mut self, durable: Seq) -> Verdict {
        match self.recover(durable, true) {
            Err(reason) if reason == DAMAGED && self.damaged => Ok(()),
            recovered => recovered,
        }
    }

    /// Opens the store; everything up to `durable` must be there again. With `cuts`, the power may
    /// fail in the meantime.
    fn recover(&mut self, durable: Seq, cuts: bool) -> Verdict {
        let mut least = durable;
        for attempt in 0.. {
            let Some(last) = self.survived()? else { return Err(DAMAGED.to_owned()) };
            if last < least && !self.may_lose_records() {
                return Err(format!(
                    "records up to {least} were durable; only up to {last} are found"
                ));
            }
            let attested = self.superblock().map_or(Seq::NONE, |superblock| superblock.durable);
            if attempt == 0 {
                self.oracle.crash(last);
                self.extents_after_crash();
            }
            least = last;
            if self.cutting.one_in(4) {
                self.check_read_only()?;
            }
            let config = self.plan.reopened(&mut self.cutting);
            let blows = cuts && attempt < CUTS_IN_A_ROW_MAX && self.cutting.percent(40);
            let most = self.cutting.pick(&[12, 60, 300]);
            let operations = 1 + self.cutting.below(most);
            self.bank.set_fuse(blows.then_some(operations));
            if attempt < CUTS_IN_A_ROW_MAX && self.cutting.one_in(16) {
                least = least.max(self.keep_up(config)?);
                self.bank.power_cut();
                continue;
            }
            let opened = self.open(config);
            self.check_trespass()?;
            if self.bank.is_blown() {
                self.tally.recovery_cuts += 1;
                if let Ok(core) = &opened {
                    least = least.max(core.durable());
                }
                drop(opened);
                self.bank.power_cut();
                continue;
            }
            self.bank.set_fuse(None);
            return match opened {
                Ok(_) if last < attested => {
                    Err(format!("opened with records up to {last}, but more were stable"))
                }
                Ok(core) => {
                    self.take(core)?;
                    self.check_recovered()
                }
                Err(Error::Damaged(_)) if self.damaged => Err(DAMAGED.to_owned()),
                Err(error) => Err(format!("open: {error}")),
            };
        }
        Ok(())
    }

    fn open(&mut self, config: Config) -> Result<Core, Error> {
        engine::open(&mut self.bank, config, &self.registry, Access::ReadWrite)
    }

    /// Sweeps without the modifiers of the application, until everything is swept that needs none
    /// of them or the power fails. Returns the sequence up to which everything is durable.
    fn keep_up(&mut self, config: Config) -> Verdict<Seq> {
        let mut registry = self.registry.clone();
        registry.modifiers.clear();
        let mut core = match engine::open(&mut self.bank, config, &registry, Access::Upkeep) {
            Ok(core) => core,
            Err(_) if self.damaged || self.bank.is_blown() => return Ok(Seq::NONE),
            Err(error) => return Err(format!("open for upkeep: {error}")),
        };
        self.tally.upkeeps += 1;
        core.request_sweep();
        let last = core.last();
        let is_over = |core: &Core, bank: &Bank| {
            core.is_swept(last) || core.is_full() || core.closed().is_some() || bank.is_blown()
        };
        for step in 1..=UPKEEP_STEPS_MAX {
            if is_over(&core, &self.bank) {
                self.tally.held += core.held_blocks();
                return Ok(core.durable());
            }
            drive::step(&mut core, &mut self.bank, step * UPKEEP_STEP_US);
        }
        Err(format!("a sweep without all modifiers does not end: swept {}", core.sweep_frontier()))
    }

    /// Damage of the log's end cannot always be distinguished from a torn end; but what a
    /// superblock records as stable is there, or damage is reported.
    fn may_lose_records(&self) -> bool {
        self.plan.trouble == Trouble::LogDamage && self.damaged
    }

    /// Checks that everything the store refers to is sound, and that reading a store changes
    /// nothing.
    fn check_read_only(&mut self) -> Verdict {
        let before = self.bank.digest();
        let config = self.plan.config.clone();
        let report = match engine::verify(&mut self.bank, config, &self.registry) {
            Err(Error::Damaged(_)) if self.damaged => return Err(DAMAGED.to_owned()),
            report => report.map_err(|error| format!("verification: {error}"))?,
        };
        if let Some(damage) = report.damage.first().filter(|_| !self.damaged) {
            return Err(format!("verification after a power cut: {damage}"));
        }
        if self.bank.digest() == before {
            Ok(())
        } else {
            Err("a store that was opened to look at was written to".to_owned())
        }
    }

    fn take(&mut self, core: Core) -> Verdict {
        self.tally.opens += 1;
        self.bank.advance_to(core.now_us().max(self.bank.now_us()));
        self.core = Some(core);
        // It does not know the waiting callers.
        self.room_events += 1;
        self.learn_modifiers()?;
        self.end_abandoned_loads()?;
        self.settle()
    }

    /// The last record that the log still has; `None` if it is damaged and damage is permitted.
    fn survived(&mut self) -> Verdict<Option<Seq>> {
        let config = &self.plan.config;
        let regions = config.log_regions.iter();
        let regions = regions.map(|region| region.present(&self.bank, config.log_segment_bytes));
        let log = LogConfig {
            store: config.store,
            epoch: 1,
            batch_bytes: config.log_batch_bytes,
            depth: config.log_depth,
            delay_us_max: config.log_delay_us_max,
            regions: regions.collect(),
            segment_bytes: config.log_segment_bytes,
            page_bytes: config.log_page_bytes,
            mode: config.log_mode,
            motion: config.log_motion,
            kept_bytes: 0,
            bulk: config.bulk,
        };
        let superblock = self.superblock().ok_or("no superblock has survived")?;
        match log::recover(&mut self.bank, &log, superblock.replay_from) {
            Ok(reader) => Ok(Some(reader.last_seq())),
            Err(Error::Damaged(_)) if self.damaged => Ok(None),
            Err(error) => Err(format!("recovery of the log: {error}")),
        }
    }

    /// The younger valid superblock.
    fn superblock(&mut self) -> Option<Superblock> {
        let read = |offset| self.bank.devices.bank().peek(DeviceId(0), offset, SLOT_BYTES);
        let decoded = SLOTS.map(|offset| decode_superblock(&read(offset)).ok());
        decoded.into_iter().flatten().max_by_key(|superblock| superblock.generation)
    }
}

/// The verdict of a history that ended early, which is permitted: damage has been reported.
pub const DAMAGED: &str = "damage was reported";
