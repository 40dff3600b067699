//! The steps of a history, chosen by the seed.

use upsweep::layers::engine::{Accept, SnapshotId, ViewPoll, Wanted};
use upsweep::layers::log::{Seq, Urgency};
use upsweep::{Error, RequestError, RetryError, SpaceId};

use upsweep::layers::device::{DeviceId, FailureKind, Simulated};

use crate::callers::logged;
use crate::loading::Load;
use crate::oracle::{Layout, Record, Update};
use crate::plan::Trouble;
use crate::resting::Refused;
use crate::semantics::{self, Op};
use crate::world::{Asked, Verdict, World};

/// Places at which damage is tried, until one has content.
const PLACES_TRIED: usize = 64;
/// Average number of steps between returns of free space.
const STEPS_PER_PUNCHING: u64 = 200;
/// Most tables at a time.
const TABLES_MAX: usize = 4;
/// Most snapshots at a time.
const SNAPSHOTS_MAX: usize = 3;
/// A record of at most this many bytes always fits.
const SMALL_RECORD_BYTES: usize = 1024;
/// And at most this many updates.
const SMALL_RECORD_UPDATES: usize = 8;
/// A directory of this many bytes never causes updates to be refused.
const DIRECTORY_PROMISED_BYTES: usize = 32 << 10;

impl World {
    /// One step.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn step(&mut self) -> Verdict {
        let cuts = self.cuts_now();
        if self.cutting.below(10_000) < cuts {
            return self.crash();
        }
        let published = self.core().published();
        self.unsettled.retain(|(_, seq)| *seq > published);
        self.try_waiting()?;
        self.flood()?;
        self.go_on_calling()?;
        self.use_extents()?;
        let patience = if self.loading.is_some() { 4 } else { 100 };
        if self.plan.loads && self.random.one_in(patience) {
            self.load()?;
        }
        match self.random.below(1000) {
            0..420 => self.offer()?,
            420..500 => self.look_up()?,
            500..900 => {
                self.turn()?;
            }
            900..930 => self.follow_up()?,
            930..936 => self.change_tables()?,
            936..941 if self.plan.clones => self.clone_or_snapshot()?,
            941..945 if self.plan.ranges => self.remove_range()?,
            945..955 if self.plan.sweeps => self.core().request_sweep(),
            955..960 if self.plan.sweeps => self.core().request_checkpoint(),
            960..962 => self.scan_one()?,
            962..968 => self.let_time_pass()?,
            968..970 => self.restart_now_and_then()?,
            970..975 => self.do_harm()?,
            _ => {
                for _ in 0..self.random.below(20) {
                    self.turn()?;
                }
            }
        }
        if self.core().closed().is_some() {
            return self.after_write_error();
        }
        self.audit_now_and_then()?;
        self.compact()?;
        if self.punching.one_in(STEPS_PER_PUNCHING) {
            self.core().request_punching();
        }
        self.settle()
    }

    /// Tables that exist for the model and for the engine, those of snapshots included.
    pub fn all_tables(&mut self) -> Vec<SpaceId> {
        let known: Vec<SpaceId> = self.oracle.state.keys().copied().collect();
        let core = self.core();
        known.into_iter().filter(|space| core.space_record(*space).is_some()).collect()
    }

    /// The tables that can be changed.
    pub fn tables(&mut self) -> Vec<SpaceId> {
        let mut tables = self.all_tables();
        tables.retain(|space| self.oracle.state[space].snapshot == SnapshotId::NONE);
        tables
    }

    fn offer(&mut self) -> Verdict {
        let mut tables = self.tables();
        if let Some(loading) = self.loading.as_ref().map(Load::space)
            && !self.random.one_in(20)
        {
            // An update would prevent the load from finishing.
            tables.retain(|space| *space != loading);
        }
        if self.waiting.is_some() || tables.is_empty() {
            return Ok(());
        }
        let updates = self.workload.record(&tables);
        self.modify(updates, None)?;
        if self.plan.bursts && self.workload.bursts() {
            self.burst(&tables)?;
        }
        Ok(())
    }

    /// Retries the waiting record.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn try_waiting(&mut self) -> Verdict {
        let Some((updates, refused)) = self.waiting.take() else { return Ok(()) };
        if self.random.one_in(500) {
            return Ok(());
        }
        self.check_patience(refused)?;
        self.modify(updates, Some(refused))
    }

    /// Offers a record, which may have been refused before.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn modify(&mut self, mut updates: Vec<Update>, refused: Option<Refused>) -> Verdict {
        if refused.is_none() {
            updates.iter_mut().for_each(|update| self.fit(update));
        }
        let urgency = if self.random.percent(50) { Urgency::Now } else { Urgency::Relaxed };
        let logged = logged(&self.modifier_ids, &updates);
        let now = self.bank.now_us();
        let rooms = self.room_events;
        let core = self.core.as_mut().expect("the store is open");
        match core.modify(&logged, urgency, now) {
            Ok(Accept::Accepted(seq)) => {
                let latest = core.accepted();
                self.note_accepted(seq, latest, updates, refused)?;
            }
            Ok(Accept::Wait) => {
                self.waiting = Some((updates, Refused::now(core, rooms, refused, now)));
                self.tally.waits += u64::from(refused.is_none());
            }
            Err(error) => self.check_refusal(&updates, &error)?,
        }
        self.settle()
    }

    /// The engine has accepted a record, perhaps after it was refused, and reported `latest` as the
    /// last one at the time.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn note_accepted(
        &mut self,
        seq: Seq,
        latest: Seq,
        updates: Vec<Update>,
        refused: Option<Refused>,
    ) -> Verdict {
        let (now, rooms) = (self.bank.now_us(), self.room_events);
        self.history.add(seq.get());
        let core = self.core.as_ref().expect("the store is open");
        if let Some(fault) = refused.and_then(|refused| refused.wake_fault(core, rooms, now)) {
            return Err(format!("{fault}: {}", self.dump()));
        }
        if seq != latest {
            return Err(format!("a record was accepted at {seq}, but {latest} is last"));
        }
        self.oracle.accept(seq, Record::Updates(updates));
        Ok(())
    }

    /// Adapts an update to its table: not every update is valid for an array.
    pub fn fit(&self, update: &mut Update) {
        let table = self.oracle.state.get(&update.space);
        if table.is_some_and(|table| table.layout == Layout::Array) {
            self.workload.fit_to_array(update);
        }
    }

    /// Whether the engine may refuse these updates with this error.
    ///
    /// # Errors
    /// It may not.
    pub fn check_refusal(&mut self, updates: &[Update], error: &Error) -> Verdict {
        let bytes: usize = updates.iter().map(|u| u.key.len() + u.operand.len() + 16).sum();
        let refused = |update: &Update| {
            let is_float = matches!(update.op, Op::AddF64 | Op::MaxF64 | Op::MinF64);
            is_float && semantics::apply(update.op, None, &update.operand).is_err()
        };
        let tables = self.tables();
        let justified = match error {
            Error::Retry(RetryError::Full { .. }) => {
                self.tally.full += 1;
                self.plan.may_be_full()
            }
            Error::Retry(RetryError::Memory { .. }) => {
                self.tally.memory += 1;
                let core = self.core();
                core.directory_size().1 > DIRECTORY_PROMISED_BYTES
            }
            Error::Request(RequestError::BatchTooLong { .. }) => {
                bytes > SMALL_RECORD_BYTES || updates.len() > SMALL_RECORD_UPDATES
            }
            Error::Request(RequestError::BadOperand { .. }) => updates.iter().any(refused),
            Error::Request(RequestError::NoTable(_)) => {
                updates.iter().any(|update| !tables.contains(&update.space))
            }
            Error::Closed(_) => self.failing,
            _ => false,
        };
        if justified { Ok(()) } else { Err(format!("an update was refused: {error}")) }
    }

    /// Requests one key; the answer is compared when it arrives.
    fn look_up(&mut self) -> Verdict {
        let tables = self.all_tables();
        if tables.is_empty() {
            return Ok(());
        }
        let space = self.random.pick(&tables);
        let key = self.workload.known_key(&self.oracle, space);
        match self.core().view(space, Wanted::Point(key.clone())) {
            Ok(ViewPoll::Ready(view)) => self.compare_answer(space, key, Ok(view)),
            Ok(ViewPoll::Pending(id)) => {
                if self.random.one_in(50) {
                    self.core().forget_view(id);
                } else {
                    self.asked.insert(id, Asked::Compare(space, key));
                    self.read_by_caller(id);
                }
                self.settle()
            }
            Err(error) => self.compare_answer(space, key, Err(error)),
        }
    }

    /// Reads the large values that views have referred to.
    fn follow_up(&mut self) -> Verdict {
        let Some((space, key)) = self.follow_up.pop() else { return Ok(()) };
        let tables = self.all_tables();
        match self.oracle.state.get(&space).map(|table| table.layout) {
            Some(layout) if tables.contains(&space) => self.compare_read(space, layout, &key),
            _ => Ok(()),
        }
    }

    /// Reads one table and compares it with the oracle.
    ///
    /// # Errors
    /// The first difference.
    pub fn scan_one(&mut self) -> Verdict {
        let tables = self.all_tables();
        if tables.is_empty() {
            return Ok(());
        }
        let (space, reverse) = (self.random.pick(&tables), self.random.percent(50));
        self.scan(space, reverse)
    }

    fn change_tables(&mut self) -> Verdict {
        let tables = self.tables();
        if tables.len() == TABLES_MAX || (tables.len() > 1 && self.random.percent(40)) {
            let space = self.random.pick(&tables);
            return match self.core().drop_space(space) {
                Ok(seq) => {
                    self.oracle.accept(seq, Record::Drop(space));
                    self.extents.drop_of(space, seq);
                    self.settle()
                }
                Err(error) => self.check_busy(&error),
            };
        }
        self.create_table()
    }

    /// Creates a table, if the log has room.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn create_table(&mut self) -> Verdict {
        let number = self.random.below(6);
        let name = format!("table {number}");
        let layout = match self.random.percent(80) {
            true if self.plan.arrays && number == 4 => Layout::Array,
            true if self.plan.hash_tables && number % 2 == 1 => Layout::Hash,
            true => Layout::Table,
            false => Layout::Raw,
        };
        let created = match layout {
            Layout::Table => self.core().create_space(&name, "table", true),
            Layout::Hash => self.core().create_space(&name, "hash", true),
            Layout::Raw => self.core().create_space(&name, "raw", false),
            Layout::Array => self.core().create_space(&name, "array:i64", false),
        };
        match created {
            Ok((space, seq)) => {
                if self.oracle.state.contains_key(&space) {
                    return Err(format!("table number {space} was given out twice"));
                }
                self.oracle.accept(seq, Record::Create(space, name, layout));
                if self.plan.loads && self.loading.is_none() && self.random.percent(70) {
                    self.load()?;
                }
                self.settle()
            }
            Err(Error::Request(RequestError::TableMismatch { .. })) => Ok(()),
            Err(error) => self.check_busy(&error),
        }
    }

    /// Clones a table, makes a snapshot of some or all tables, or drops a snapshot.
    fn clone_or_snapshot(&mut self) -> Verdict {
        let (all, tables) = (self.all_tables(), self.tables());
        let known: Vec<SnapshotId> =
            self.core().snapshots().map(|(snapshot, _)| snapshot.number).collect();
        if all.is_empty() {
            return Ok(());
        }
        if !known.is_empty() && (known.len() > SNAPSHOTS_MAX || self.random.percent(35)) {
            let snapshot = self.random.pick(&known);
            return match self.core().drop_snapshot(snapshot) {
                Ok(seq) => {
                    self.oracle.accept(seq, Record::DropSnapshot(snapshot));
                    self.settle()
                }
                Err(error) => self.check_busy(&error),
            };
        }
        if tables.len() < TABLES_MAX && self.random.percent(50) {
            return self.clone_one(&all);
        }
        self.take_snapshot(&tables)
    }

    fn clone_one(&mut self, tables: &[SpaceId]) -> Verdict {
        let source = self.random.pick(tables);
        let name = format!("table {}", self.random.below(6));
        match self.core().clone_space(source, &name) {
            Ok((space, seq)) => {
                self.tally.clones += 1;
                self.oracle
                    .accept(seq, Record::Clone(vec![(source, space, name, SnapshotId::NONE)]));
                self.settle()
            }
            Err(Error::Request(RequestError::TableMismatch { .. })) => Ok(()),
            Err(error) => self.check_busy(&error),
        }
    }

    fn take_snapshot(&mut self, tables: &[SpaceId]) -> Verdict {
        let name = format!("snapshot {}", self.random.below(4));
        let name = self.random.percent(50).then_some(name);
        let chosen =
            (!tables.is_empty() && self.random.percent(30)).then(|| vec![self.random.pick(tables)]);
        let identity = u128::from(self.random.word()).to_be_bytes();
        let made = self.core().create_snapshot(name.as_deref(), chosen.as_deref(), identity);
        let made = match made {
            Ok(made) => made,
            Err(Error::Request(RequestError::SnapshotExists(_))) => return Ok(()),
            Err(error) => return self.check_busy(&error),
        };
        // Tables being dropped are gone by then.
        let name = |space: &SpaceId| Some(self.oracle.state.get(space)?.name.clone());
        let clones = made.clones.iter();
        let named = clones
            .filter_map(|(source, space)| Some((*source, *space, name(source)?, made.number)));
        let record = Record::Clone(named.collect());
        self.tally.clones += 1;
        self.oracle.accept(made.seq, record);
        self.settle()
    }

    /// Removes a range of keys. Reads of it are not compared until the removal is durable.
    fn remove_range(&mut self) -> Verdict {
        let mut tables = self.tables();
        tables.retain(|space| self.oracle.state[space].layout == Layout::Table);
        if tables.is_empty() {
            return Ok(());
        }
        let space = self.random.pick(&tables);
        let mut bounds = [self.workload.known_key(&self.oracle, space), self.workload.key()];
        bounds.sort();
        let [from, to] = bounds;
        let from = if self.random.one_in(10) { Vec::new() } else { from };
        let to = (!self.random.one_in(10)).then_some(to);
        match self.core().remove_range(space, &from, to.as_deref()) {
            Ok(seq) => {
                self.tally.ranges += 1;
                self.unsettled.push((space, seq));
                self.oracle.accept(seq, Record::RemoveRange(space, from, to));
                self.settle()
            }
            Err(error) => self.check_busy(&error),
        }
    }

    /// Whether the engine may refuse a change of a table as a whole with this error.
    ///
    /// # Errors
    /// It may not.
    pub fn check_busy(&mut self, error: &Error) -> Verdict {
        match error {
            Error::Retry(RetryError::Busy) => Ok(()),
            Error::Closed(_) if self.failing => Ok(()),
            Error::Request(RequestError::NoTable(_) | RequestError::NoSnapshot(_)) => Ok(()),
            error => Err(format!("a table could not be made or dropped: {error}")),
        }
    }

    fn let_time_pass(&mut self) -> Verdict {
        let until = self.bank.now_us() + self.random.pick(&[100, 10_000, 1_000_000]);
        while self.bank.now_us() < until {
            if !self.turn()? {
                self.bank.advance_to(until);
                self.settle()?;
            }
        }
        Ok(())
    }

    fn restart_now_and_then(&mut self) -> Verdict {
        if self.failing || !self.random.one_in(4) {
            return Ok(());
        }
        self.restart()
    }

    /// Injects a fault of this history's kind.
    fn do_harm(&mut self) -> Verdict {
        let device = DeviceId(self.random.below(u64::from(self.plan.config.data_devices)) as u16);
        match self.plan.trouble {
            Trouble::Crashes => {}
            Trouble::WriteErrors if !self.failing => {
                self.failing = true;
                if self.random.one_in(3) {
                    self.bank.devices.set_refusing_writes(device, true);
                } else {
                    let operations = self.random.below(30);
                    self.bank.devices.fail_after(operations, FailureKind::Writes);
                }
            }
            Trouble::WriteErrors => {}
            Trouble::DataDamage => self.damage(device),
            Trouble::LogDamage => {
                let regions = self.plan.config.log_regions.len() as u64;
                let index = self.random.below(regions) as u16;
                self.damage(DeviceId(self.plan.config.data_devices + index));
            }
        }
        Ok(())
    }

    /// Flips a bit or makes a sector unreadable.
    fn damage(&mut self, device: DeviceId) {
        let bytes = upsweep::layers::device::Devices::geometry(&self.bank, device).size_bytes;
        let data = self.plan.trouble == Trouble::DataDamage;
        let start = if data { upsweep::layers::engine::DATA_START } else { 0 };
        if bytes <= start || !self.random.one_in(2) {
            return;
        }
        let Some(offset) = self.written_place(device, start, bytes) else { return };
        self.damaged = true;
        if self.random.percent(50) {
            self.bank.devices.flip_bit(device, offset, self.random.below(8) as u8);
        } else {
            self.bank.devices.make_unreadable(device, offset, 1);
        }
    }

    /// A place in `start..end` of the device that has content, if one is found.
    fn written_place(&mut self, device: DeviceId, start: u64, end: u64) -> Option<u64> {
        let reach = self.random.pick(&[64 << 10, 1 << 20, end - start]).min(end - start);
        let low = if self.random.percent(70) { start } else { end - reach };
        (0..PLACES_TRIED).find_map(|_| {
            let offset = low + self.random.below(reach);
            let sector = offset - offset % 512;
            let content = self.bank.devices.bank().peek(device, sector, 512);
            content.iter().any(|byte| *byte != 0).then_some(offset)
        })
    }
}
