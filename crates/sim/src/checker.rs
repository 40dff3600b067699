//! What must hold after every recovery, and at the end of a history.

use upsweep::SpaceId;
use upsweep::layers::engine::quarantine::FIRST_USER_SPACE;
use upsweep::layers::engine::{self, Access, LOADING};
use upsweep::layers::log::{LogMode, Seq};
use upsweep::layers::placement::{Extent, SpaceMap};

use crate::plan::Trouble;
use crate::reading::Answer;
use crate::world::{Verdict, World};

impl World {
    /// Checks that the state is that of the oracle: every row of every table, and the quarantine.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_recovered(&mut self) -> Verdict {
        self.check_tables()?;
        self.check_directory()?;
        for reverse in [false, true] {
            for space in self.oracle.state.keys().copied().collect::<Vec<_>>() {
                self.scan(space, reverse).map_err(|reason| format!("recovered: {reason}"))?;
            }
        }
        self.audit_conservation()
    }

    /// Checks that whatever was accepted is in an image, a queue, a spill segment, or the
    /// quarantine: at any time all values are those of the oracle, and refused updates that no
    /// longer wait are in the quarantine.
    ///
    /// # Errors
    /// Missing or unexpected content.
    pub fn audit_conservation(&mut self) -> Verdict {
        let swept = self.core().sweep_frontier();
        self.check_quarantine(swept)
    }

    /// Checks that the tables are those of the oracle, by number, name and reserved extents.
    fn check_tables(&mut self) -> Verdict {
        let found: Vec<(SpaceId, String)> = self
            .core()
            .spaces()
            .filter(|record| record.space >= FIRST_USER_SPACE && record.snapshot != LOADING)
            .map(|record| (record.space, record.name.clone()))
            .collect();
        let wanted: Vec<(SpaceId, String)> =
            self.oracle.state.iter().map(|(space, table)| (*space, table.name.clone())).collect();
        if found != wanted {
            return Err(format!("recovered: has the tables {found:?}, must have {wanted:?}"));
        }
        for (space, table) in &self.oracle.state {
            let core = self.core.as_ref().expect("the store is open");
            let found: Vec<Extent> = core.extents_of(*space).collect();
            if !found.iter().eq(&table.extents) {
                let wanted = &table.extents;
                return Err(format!("table {space} has {found:?}, must have {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the directory is sound: its trees, its references, the places of its blocks;
    /// nothing is leaked and nothing is freed that is referred to.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn check_directory(&mut self) -> Verdict {
        match self.core().audit().first() {
            Some(fault) => Err(format!("directory: {fault}")),
            None => Ok(()),
        }
    }

    fn check_quarantine(&mut self, swept: Seq) -> Verdict {
        let found = match self.quarantine()? {
            Answer::Is(found) => found,
            Answer::Damaged(_) => return Ok(()),
        };
        if self.damaged {
            // Updates set aside because of damage change what is refused later.
            return Ok(());
        }
        self.oracle.check_quarantine(&found, swept).map_err(|reason| {
            let refused = self.oracle.refusals.count();
            format!("quarantine of {}, {refused} refused: {reason}", found.len())
        })
    }

    /// Stops faults, and checks that all waiting work is done within bounded time; then compares
    /// everything, and checks that space is accounted for.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn finish(&mut self) -> Verdict {
        if self.failing {
            self.crash()?;
        }
        self.wait_for_the_waiting()?;
        self.end_loading()?;
        self.come_to_rest()?;
        self.check_answers()?;
        self.check_tables()?;
        for reverse in [false, true] {
            for space in self.oracle.state.keys().copied().collect::<Vec<_>>() {
                self.scan(space, reverse).map_err(|reason| format!("at the end: {reason}"))?;
            }
        }
        // Records were changed ahead of the scans.
        self.wait_for_the_waiting()?;
        let swept = self.come_to_rest()?;
        self.audit_conservation()?;
        self.check_directory()?;
        self.turn_until("waiting for memory of scans", |world| world.core().scan_bytes() == 0)?;
        self.stop_train()?;
        self.check_space(swept)?;
        self.restart_at_the_end()
    }

    /// Sweeps everything and makes a checkpoint; returns whether all was swept, which a full store
    /// may be unable to do.
    fn come_to_rest(&mut self) -> Verdict<bool> {
        let last = self.core().accepted();
        self.core().request_sweep();
        let full = self.plan.may_be_full();
        self.turn_until("waiting for the sweep", |world| {
            let core = world.core();
            core.is_swept(last) || (full && core.is_full())
        })?;
        let swept = self.core().is_swept(last);
        if swept {
            // Updates that the sweep has refused wait in the quarantine's own queue.
            self.core().request_sweep();
        }
        self.core().request_checkpoint();
        self.turn_until("waiting for rest", |world| {
            let core = world.core();
            !core.is_active() || (full && core.is_full() && core.durable() == core.last())
        })?;
        Ok(swept)
    }

    /// Checks that at rest no caller waits for a view or for durability.
    fn check_answers(&mut self) -> Verdict {
        self.turn_until("waiting for views", |world| {
            world.asked.is_empty() && world.performers.is_empty()
        })
    }

    /// Stops the train of the log, and waits until its last batches are written: with requests in
    /// flight the devices cannot be read. As it fills the log, one more checkpoint may have become
    /// due, which a full store may be unable to make.
    fn stop_train(&mut self) -> Verdict {
        if self.core().config().log_mode == LogMode::Idle {
            return Ok(());
        }
        self.core().stop_train();
        self.turn_until("waiting for the train", |world| {
            world.bank.devices.in_flight() == 0
                && world.arrived.is_empty()
                && world.performers.is_empty()
                && (!world.core().is_active() || world.core().is_full())
        })
    }

    fn wait_for_the_waiting(&mut self) -> Verdict {
        let waits = |world: &Self| world.waiting.is_some() || world.callers.wait_for_room();
        for _ in 0..crate::world::PATIENCE_TURNS {
            if !waits(self) {
                return Ok(());
            }
            // A waiting caller retries when this changes, so it has not stalled.
            let room_events = self.room_events;
            self.try_waiting()?;
            self.look_for_room(1)?;
            if waits(self) && !self.turn()? && self.room_events == room_events {
                return Err(format!("an update waits, and nothing happens: {}", self.dump()));
            }
        }
        Err(format!("an update waits indefinitely: {}", self.dump()))
    }

    /// Checks that used space is exactly what a fresh read of the devices finds in use, and that
    /// every image is valid.
    fn check_space(&mut self, swept: bool) -> Verdict {
        // A full store keeps trying; its requests would interfere with the reader of the devices.
        let busy = self.bank.devices.in_flight() > 0;
        if busy || self.damaged || self.plan.trouble == Trouble::LogDamage {
            return Ok(());
        }
        let used = |map: &SpaceMap| map.used_bytes();
        let (live, full) = (used(self.core().space_map()), self.core().is_full());
        let config = self.plan.config.clone();
        let seen = engine::open(&mut self.bank, config.clone(), &self.registry, Access::ReadOnly)
            .map_err(|error| format!("a look at the devices at the end: {error}"))?;
        let derived = used(seen.space_map());
        if swept && !full && live != derived {
            return Err(format!("{live} bytes are marked as used; {derived} are referred to"));
        }
        let report = engine::verify(&mut self.bank, config, &self.registry)
            .map_err(|error| format!("verification: {error}"))?;
        match report.damage.first() {
            Some(damage) => Err(format!("verification: {damage}")),
            None => Ok(()),
        }
    }

    fn restart_at_the_end(&mut self) -> Verdict {
        if self.core().is_full() { self.crash() } else { self.restart() }
    }
}
