//! Versions of the blocks of a volume, which clients write: the volumes of the product, on a store
//! without threads, or the same payload without a volume that knows where it is.
//!
//! Clients write a block each, and their writes end together with a flush, as those of an NBD
//! server that asks for durable writes do: a flush is for all who wait for it. What comes meanwhile
//! waits for the next one.
//!
//! A store without threads has one caller, so the work of the volumes in the background, such as
//! trimming and cleaning, comes between two flushes, and clients wait for it. Its time is known,
//! and can be left out.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use upsweep::layers::device::{Buffer, Class, Simulated, WriteMode};
use upsweep::layers::runtime::ReservedExtent;
use upsweep::{CreateOptions, OpenOptions, Store, Table, WallClock};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, History, Past, Volume, Volumes};

use super::Traffic;
use super::threadless::Threadless;
use crate::problem::Problem;

/// The volume, and what shows its past.
const VOLUME: &str = "disk";
const WAS: &str = "was";
/// The table that owns the payload, if there is no volume.
const PAYLOAD: &str = "payload";
/// What a volume reserves at a time, and the longest write of its buffer.
const SEGMENT_BYTES: u64 = 4 << 20;
const WRITE_BYTES: u64 = 256 << 10;
/// How long the work in the background rests when there is none, as that of the server.
const REST_US: u64 = 1_000_000;
/// When it all begins, after the Unix epoch.
const BEGIN: Duration = Duration::from_secs(1_000_000_000);

/// What is kept of the versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Their payload, and nothing that says what it is.
    Payload,
    /// The last one of each block.
    Present,
    /// Every one.
    History,
}

/// The store that they are in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Its memory.
    pub(crate) memory_bytes: u64,
    /// How many of the devices have data; the others have the log.
    pub(crate) data_devices: u16,
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    /// Processor time of a version and, with an index, again of its entry.
    pub(crate) processor_us: u64,
}

/// Clients that write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    /// How many there are; each has one write under way.
    pub(crate) count: usize,
    /// Time from one write to the next at least, in microseconds.
    pub(crate) interval_us: u64,
}

/// For how long they write at least, besides the work in the background.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lasting {
    /// Versions.
    pub(crate) versions: u64,
    /// Virtual time, in microseconds.
    pub(crate) us: u64,
}

/// What they saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    versions: u64,
    us: u64,
    /// Of that, the time in which clients waited for the work in the background.
    work_us: u64,
    traffic: Traffic,
}

impl Written {
    /// Versions in a second, without the time of the work in the background.
    pub(crate) fn per_second(&self) -> f64 {
        self.versions as f64 * 1e6 / (self.us - self.work_us) as f64
    }

    /// The share of the time that the work in the background took, in per cent.
    pub(crate) fn work_percent(&self) -> f64 {
        100.0 * self.work_us as f64 / self.us as f64
    }

    /// Bytes that were written to the devices for a version, and those that were read.
    pub(crate) fn bytes_per_version(&self) -> (f64, f64) {
        let per_version = |bytes: u64| bytes as f64 / self.versions as f64;
        (per_version(self.traffic.bytes_written), per_version(self.traffic.bytes_read))
    }
}

/// Where versions go.
enum Target {
    Payload { table: Table, segment: Option<(ReservedExtent, u64)> },
    Volume { volumes: Volumes, volume: Volume },
}

/// A store with versions.
pub(crate) struct Versions {
    /// Dropped before the store closes.
    target: Option<Target>,
    store: Option<Store>,
    bank: Threadless,
    setup: Setup,
    /// When clients may write next.
    free_us: u64,
    /// When the work in the background goes on.
    work_due_us: u64,
    /// Versions so far, and the last one of each block.
    written: u64,
    last: BTreeMap<u64, u64>,
    /// A moment, and what each block was then.
    noted: Option<(u64, BTreeMap<u64, u64>)>,
}

fn problem(error: impl std::fmt::Display) -> Problem {
    Problem::Simulation(format!("volumes: {error}"))
}

/// The content of a version.
fn content(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK_BYTES as usize / size_of::<u64>())
}

impl Versions {
    /// None so far, on a bank at rest.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the store cannot be made.
    pub(crate) fn create(
        keeping: Keeping,
        setup: Setup,
        drives: Box<dyn Simulated>,
    ) -> Result<Self, Problem> {
        let bank = Threadless::new(drives);
        let clock = bank.clock();
        let time = move || SystemTime::UNIX_EPOCH + BEGIN + Duration::from_micros(clock.now_us());
        let options = OpenOptions::default()
            .memory_bytes(setup.memory_bytes as usize)
            .wall_clock(WallClock::new(time))
            .without_threads();
        let builder = Store::builder().options(options);
        let create = CreateOptions::default();
        let store = builder.create_on(bank.clone(), setup.data_devices, &create);
        let store = store.map_err(problem)?;
        bank.set_store(store.blocks().clone());
        let target = Target::create(keeping, setup.blocks, &store)?;
        let now_us = bank.now_us();
        Ok(Self {
            target: Some(target),
            store: Some(store),
            bank,
            setup,
            free_us: now_us,
            work_due_us: now_us,
            written: 0,
            last: BTreeMap::new(),
            noted: None,
        })
    }

    /// Lets clients write; `next` gives the blocks.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if a write fails.
    pub(crate) fn write(
        &mut self,
        clients: Clients,
        lasting: Lasting,
        mut next: impl FnMut() -> u64,
    ) -> Result<Written, Problem> {
        let (from_us, before) = (self.bank.now_us(), self.bank.traffic());
        let mut due_us: VecDeque<u64> = VecDeque::new();
        let (mut versions, mut us, mut work_us) = (0, 0, 0);
        while versions < lasting.versions || us - work_us < lasting.us {
            while due_us.len() < clients.count {
                let next_us = self.free_us.max(self.bank.now_us());
                self.free_us = next_us + clients.interval_us;
                due_us.push_back(next_us);
            }
            self.bank.pass_until(due_us[0]);
            let now_us = self.bank.now_us();
            let together = due_us.partition_point(|due_us| *due_us <= now_us);
            due_us.drain(..together);
            let blocks: Vec<u64> = std::iter::repeat_with(&mut next).take(together).collect();
            self.write_together(&blocks)?;
            versions += together as u64;
            work_us += self.work()?;
            us = self.bank.now_us() - from_us;
        }
        Ok(Written { versions, us, work_us, traffic: self.bank.traffic().since(before) })
    }

    /// Writes versions of blocks, and makes them durable.
    fn write_together(&mut self, blocks: &[u64]) -> Result<(), Problem> {
        let Some(target) = &mut self.target else { return Ok(()) };
        let parts = if matches!(target, Target::Payload { .. }) { 1 } else { 2 };
        let mut payload = Vec::new();
        for block in blocks {
            self.bank.pass_until(self.bank.now_us() + parts * self.setup.processor_us);
            self.written += 1;
            self.last.insert(*block, self.written);
            let data = content(self.written);
            match target {
                Target::Payload { .. } => payload.extend(data),
                Target::Volume { volume, .. } => {
                    let offset = block * BLOCK_BYTES;
                    volume.write(offset, &data, Acknowledge::Written).map_err(problem)?;
                }
            }
        }
        match target {
            Target::Volume { volumes, .. } => volumes.flush().map_err(problem),
            Target::Payload { table, segment } => {
                let Some(store) = &self.store else { return Ok(()) };
                write_payload(store, table, segment, &payload)
            }
        }
    }

    /// Does a part of the work in the background if there is some; returns how long it took.
    fn work(&mut self) -> Result<u64, Problem> {
        let now_us = self.bank.now_us();
        let Some(Target::Volume { volumes, .. }) = &self.target else { return Ok(0) };
        if now_us < self.work_due_us {
            return Ok(0);
        }
        let is_more = volumes.work().map_err(problem)?;
        let end_us = self.bank.now_us();
        self.work_due_us = if is_more { end_us } else { end_us + REST_US };
        Ok(end_us - now_us)
    }

    /// Notes what each block is now.
    pub(crate) fn note(&mut self) {
        if let Some(Target::Volume { volumes, .. }) = &self.target {
            self.noted = Some((volumes.moment(), self.last.clone()));
        }
    }

    /// Checks that some of these blocks are what was written last, and, with a history, what they
    /// were at the moment that was noted.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if they are not.
    pub(crate) fn check(&self, blocks: &[u64]) -> Result<(), Problem> {
        let Some(Target::Volume { volumes, volume }) = &self.target else { return Ok(()) };
        compare(volume, &self.last, blocks)?;
        let has_history = volumes.list().iter().any(|info| info.history.is_on());
        match &self.noted {
            Some((moment, then)) if has_history => {
                let was = volumes.view(VOLUME, Past::At(*moment), WAS).map_err(problem)?;
                compare(&was, then, blocks)
            }
            _ => Ok(()),
        }
    }
}

impl Target {
    fn create(keeping: Keeping, blocks: u64, store: &Store) -> Result<Self, Problem> {
        if keeping == Keeping::Payload {
            let table = store.table(PAYLOAD).map_err(problem)?;
            return Ok(Self::Payload { table, segment: None });
        }
        let volumes = Volumes::open(store).map_err(problem)?;
        let volume = volumes.create(VOLUME, blocks * BLOCK_BYTES).map_err(problem)?;
        if keeping == Keeping::History {
            let history = History { window: Some(Duration::MAX), bytes: None };
            volumes.set_history(VOLUME, history).map_err(problem)?;
        }
        Ok(Self::Volume { volumes, volume })
    }
}

/// Writes payload where a volume would, with as long writes.
fn write_payload(
    store: &Store,
    table: &Table,
    segment: &mut Option<(ReservedExtent, u64)>,
    mut payload: &[u8],
) -> Result<(), Problem> {
    while !payload.is_empty() {
        let (extent, used) = match segment.take() {
            Some((extent, used)) if used < SEGMENT_BYTES => (extent, used),
            _ => {
                let reserved = store.blocks().reserve_extent(table.space(), SEGMENT_BYTES as u32);
                (reserved.map_err(problem)?, 0)
            }
        };
        let bytes = WRITE_BYTES.min(SEGMENT_BYTES - used).min(payload.len() as u64);
        let (now, later) = payload.split_at(bytes as usize);
        let (buffer, mode) = (Buffer::copy_of(now), WriteMode::Stable);
        extent.write(used, buffer, mode, Class::ForegroundWrite).map_err(problem)?;
        *segment = Some((extent, used + bytes));
        payload = later;
    }
    Ok(())
}

fn compare(volume: &Volume, expected: &BTreeMap<u64, u64>, blocks: &[u64]) -> Result<(), Problem> {
    for block in blocks {
        let mut found = vec![0; BLOCK_BYTES as usize];
        volume.read(block * BLOCK_BYTES, &mut found).map_err(problem)?;
        if found != content(expected.get(block).copied().unwrap_or_default()) {
            return Err(problem(format!("block {block} is not what was written")));
        }
    }
    Ok(())
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.target = None;
        self.bank.let_go();
        self.store = None;
    }
}

#[cfg(test)]
mod tests {
    use upsweep_sim::random::Random;

    use super::super::banks;
    use super::*;

    const BLOCKS: u64 = 300;
    const CLIENTS: Clients = Clients { count: 64, interval_us: 0 };

    fn store(keeping: Keeping) -> Versions {
        let setup =
            Setup { memory_bytes: 16 << 20, data_devices: 1, blocks: BLOCKS, processor_us: 10 };
        let drives = banks::drives_and_log("dtla307030", 1, 64 << 20, None, 1).expect("drives");
        Versions::create(keeping, setup, drives).expect("a store")
    }

    fn write(store: &mut Versions, clients: Clients, versions: u64) -> Written {
        let mut random = Random::new(1, "blocks");
        let lasting = Lasting { versions, us: 0 };
        store.write(clients, lasting, || random.below(BLOCKS)).expect("it works")
    }

    #[test]
    fn volumes_have_what_was_written_and_a_history_what_was_before() {
        let all: Vec<u64> = (0..BLOCKS).collect();
        for keeping in [Keeping::Present, Keeping::History] {
            let mut store = store(keeping);
            write(&mut store, CLIENTS, 1000);
            store.note();
            write(&mut store, CLIENTS, 1000);
            store.check(&all).expect("it is as expected");
            // The checks see another version in the past, and in the present.
            if let Some((_, then)) = &mut store.noted {
                *then.get_mut(&7).expect("it was written") += 1;
            }
            if let Some(Target::Volume { volumes, .. }) = &store.target
                && keeping == Keeping::History
            {
                volumes.delete(WAS).expect("it is there");
            }
            assert_eq!(store.check(&all).is_err(), keeping == Keeping::History);
            *store.last.get_mut(&7).expect("it was written") += 1;
            assert!(store.check(&all).is_err());
        }
    }

    #[test]
    fn a_sweep_that_nothing_needs_gives_way_to_clients() {
        let mut store = store(Keeping::History);
        write(&mut store, CLIENTS, 1000);
        let (written, read) = write(&mut store, CLIENTS, 1000).bytes_per_version();
        assert!(written < 5000.0 && read < 10.0, "{written} {read}");
        let idle_us = store.bank.now_us() + 1_000_000;
        let before = store.bank.traffic();
        store.bank.pass_until(idle_us);
        let swept = store.bank.traffic().since(before).bytes_written;
        assert!(swept > 50_000, "{swept}");
    }

    #[test]
    fn equal_runs_take_equal_time() {
        for keeping in [Keeping::Payload, Keeping::Present, Keeping::History] {
            let times = [(); 2].map(|()| {
                let mut store = store(keeping);
                [(); 40].map(|()| {
                    write(&mut store, CLIENTS, 100);
                    store.bank.now_us()
                })
            });
            assert_eq!(times[0], times[1], "{keeping:?}");
        }
    }

    #[test]
    fn without_an_index_payload_is_all_that_is_written() {
        let mut store = store(Keeping::Payload);
        let written = write(&mut store, CLIENTS, 64 * 64);
        let (bytes, read) = written.bytes_per_version();
        // The log has a few records of four ranges.
        assert!((4096.0..4150.0).contains(&bytes) && read == 0.0, "{bytes} {read}");
    }

    #[test]
    fn clients_keep_their_interval_and_share_flushes() {
        let rate = |count, interval_us| {
            let clients = Clients { count, interval_us };
            write(&mut store(Keeping::History), clients, 1000).per_second()
        };
        let (one, many, slow) = (rate(1, 0), rate(64, 0), rate(64, 20_000));
        assert!(many > 10.0 * one, "{many} {one}");
        assert!((45.0..=51.0).contains(&slow), "{slow}");
    }
}
