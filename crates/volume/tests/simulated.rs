//! Volumes in virtual time, on devices whose power is cut, beside a model that knows what each
//! block may be.
//!
//! After a power cut a block is what it was at the last flush, or anything that was written to it
//! since; what was acknowledged as durable is there. One seed gives one history.
//! `UPSWEEP_VOLUME_SEEDS=FIRST..END` chooses others than the default.

use std::collections::BTreeMap;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use upsweep::layers::device::{
    FailureKind, HostileDevices, LatencyModel, MemoryDevices, ThreadedDevices,
};
use upsweep::{CreateOptions, OpenOptions, Store, StoreBuilder};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, Volumes};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of a volume.
const BLOCKS: u64 = 600;
const STEPS: u64 = 120;
const VOLUMES_MAX: usize = 4;

type Bank = ThreadedDevices<HostileDevices>;

/// What a block may be: numbers that fill it, the last of which it is now.
type May = Vec<u64>;

struct Random(TestRng);

impl Random {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// One history.
struct World {
    random: Random,
    bank: Bank,
    store: Option<(Store, Volumes)>,
    /// Contents by name; those of snapshots have a name with '@'.
    model: BTreeMap<String, Vec<May>>,
    next_content: u64,
    slots_per_home: u16,
    cuts: u64,
}

fn builder() -> StoreBuilder {
    Store::builder().options(OpenOptions::default().memory_bytes(64 << 20).without_threads())
}

fn block_of(content: u64) -> Vec<u8> {
    content.to_le_bytes().repeat(BLOCK / 8)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut memory = MemoryDevices::with_sizes(&[0, 0, 0][..2 + seed as usize % 2], seed);
        let jitter_us = random.pick(&[0, 100, 5000]);
        memory.set_latency(LatencyModel { base_us: 50, bytes_per_us: 500, jitter_us });
        let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, seed));
        let options = CreateOptions::default().log_bytes(8 << 20);
        let data_devices = 1 + (seed % 2) as u16;
        let store = builder().create_on(bank.clone(), data_devices, &options).expect("made");
        let slots_per_home = random.pick(&[16, 32, 128]);
        let volumes = Volumes::open_with(&store, slots_per_home).expect("opens");
        volumes.create("first", BLOCKS * BLOCK_BYTES).expect("made");
        let model = BTreeMap::from([("first".to_owned(), vec![vec![0]; BLOCKS as usize])]);
        let store = Some((store, volumes));
        Self { random, bank, store, model, next_content: 1, slots_per_home, cuts: 0 }
    }

    fn volumes(&self) -> &Volumes {
        &self.store.as_ref().expect("open").1
    }

    fn any_volume(&mut self) -> String {
        let names: Vec<&String> = self.model.keys().filter(|name| !name.contains('@')).collect();
        names[self.random.below(names.len() as u64) as usize].clone()
    }

    /// A range of blocks, often where others have been.
    fn any_range(&mut self) -> (u64, u64) {
        let longest = self.random.pick(&[1, 1, 4, 20, 70, 300]);
        let blocks = 1 + self.random.below(longest);
        let align = self.random.pick(&[1, 1, 16]);
        let reach = self.random.pick(&[40, BLOCKS]);
        let first = self.random.below(reach) / align * align;
        (first, blocks.min(BLOCKS - first))
    }

    /// Everything that was written is stable from now on.
    fn settle(&mut self) {
        for may in self.model.values_mut().flatten() {
            may.drain(..may.len() - 1);
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let (name, (first, blocks)) = (self.any_volume(), self.any_range());
        let acknowledge =
            if self.random.below(3) == 0 { Acknowledge::Durable } else { Acknowledge::Written };
        let is_zero = self.random.below(5) == 0;
        let contents: Vec<u64> = (0..blocks)
            .map(|_| {
                self.next_content += 1;
                if is_zero { 0 } else { self.next_content }
            })
            .collect();
        let volume = self.volumes().volume(&name)?;
        let offset = first * BLOCK_BYTES;
        let written = if is_zero {
            volume.zero(offset, blocks * BLOCK_BYTES, acknowledge)
        } else {
            let data: Vec<u8> = contents.iter().flat_map(|content| block_of(*content)).collect();
            volume.write(offset, &data, acknowledge)
        };
        let all = self.model.get_mut(&name).expect("known");
        for (may, content) in all[first as usize..].iter_mut().zip(contents) {
            if written.is_ok() && acknowledge == Acknowledge::Durable {
                may.clear();
            }
            may.push(content);
        }
        written
    }

    /// Reads a range and compares it; after a power cut any of what it may be is right.
    fn compare(&mut self, name: &str, first: u64, blocks: u64, cut: bool) -> Result<(), Error> {
        let mut found = vec![0xee; (blocks * BLOCK_BYTES) as usize];
        let volume = self.volumes().volume(name)?;
        volume.read(first * BLOCK_BYTES, &mut found)?;
        let all = self.model.get_mut(name).expect("known");
        for (block, found) in (first..).zip(found.chunks(BLOCK)) {
            let content = u64::from_le_bytes(*found.first_chunk().expect("a block"));
            assert!(found == block_of(content), "block {block} of {name:?} is mixed");
            let may = &mut all[block as usize];
            let is_right = if cut { may.contains(&content) } else { may.last() == Some(&content) };
            assert!(is_right, "block {block} of {name:?} is {content}, may be {may:?}");
            *may = if cut { vec![content] } else { std::mem::take(may) };
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let (name, (first, blocks)) = (self.any_volume(), self.any_range());
        self.compare(&name, first, blocks, false)
    }

    fn snapshot(&mut self) -> Result<(), Error> {
        let name = self.any_volume();
        let snapshot = format!("s{}", self.random.below(3));
        let full = format!("{name}@{snapshot}");
        if self.model.contains_key(&full) {
            self.volumes().delete_snapshot(&name, &snapshot)?;
            self.model.remove(&full);
        } else {
            self.volumes().snapshot(&[&name], &snapshot)?;
            self.model.insert(full, self.model[&name].clone());
        }
        Ok(())
    }

    fn clone_or_delete(&mut self) -> Result<(), Error> {
        let names: Vec<String> = self.model.keys().cloned().collect();
        let of_volumes = names.iter().filter(|name| !name.contains('@')).count();
        if of_volumes >= VOLUMES_MAX {
            let name = self.any_volume();
            self.volumes().delete(&name)?;
            self.model.retain(|known, _| known != &name && !known.starts_with(&format!("{name}@")));
            return Ok(());
        }
        let source = &names[self.random.below(names.len() as u64) as usize];
        self.next_content += 1;
        let name = format!("clone {}", self.next_content);
        let (volume, snapshot) = match source.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (source.as_str(), None),
        };
        self.volumes().clone_volume(volume, snapshot, &name)?;
        self.model.insert(name, self.model[source].clone());
        Ok(())
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.random.below(100) {
            0..50 => self.write(),
            50..75 => self.read(),
            75..82 => {
                self.volumes().flush()?;
                self.settle();
                Ok(())
            }
            82..88 => self.snapshot(),
            88..92 => self.clone_or_delete(),
            92..94 => Ok(self.store.as_ref().expect("open").0.sweep()?),
            94 => self.work_until_done(),
            95..97 => {
                let store = self.store.take().expect("open").0;
                store.close()?;
                self.open();
                self.check(true)
            }
            _ => {
                (0..20).for_each(|_| self.store.as_ref().expect("open").0.blocks().work());
                Ok(())
            }
        }
    }

    fn work_until_done(&mut self) -> Result<(), Error> {
        for _ in 0..1000 {
            if !self.volumes().work()? {
                return Ok(());
            }
        }
        panic!("the work in the background does not end");
    }

    fn open(&mut self) {
        let store = builder().open_on(self.bank.clone()).expect("opens");
        let volumes = Volumes::open_with(&store, self.slots_per_home).expect("recovers");
        self.store = Some((store, volumes));
    }

    /// Compares everything, snapshots through clones of them.
    fn check(&mut self, cut: bool) -> Result<(), Error> {
        for name in self.model.keys().cloned().collect::<Vec<_>>() {
            let Some((volume, snapshot)) = name.split_once('@') else {
                self.compare(&name, 0, BLOCKS, cut)?;
                continue;
            };
            self.volumes().clone_volume(volume, Some(snapshot), "look")?;
            let model = self.model.remove(&name).expect("known");
            self.model.insert("look".to_owned(), model);
            self.compare("look", 0, BLOCKS, cut)?;
            let model = self.model.remove("look").expect("it was put there");
            self.model.insert(name, model);
            self.volumes().delete("look")?;
        }
        Ok(())
    }

    /// Lets the power fail after some operations of the devices, and recovers.
    fn cut(&mut self) {
        self.cuts += 1;
        let operations = self.random.pick(&[0, 3, 10, 40]);
        let operations = self.random.below(operations + 1);
        self.bank.with(|devices| devices.fail_after(operations, FailureKind::All));
        for _ in 0..2000 {
            let failed = match self.random.below(10) {
                0 => self.volumes().flush().map(|()| self.settle()),
                1 => self.snapshot(),
                2 => self.volumes().work().map(drop),
                _ => self.write(),
            };
            if failed.is_err() {
                break;
            }
        }
        // Before the devices forget, or its last writes would arrive later.
        self.store = None;
        self.bank.with(|devices| {
            devices.power_cut();
            devices.stop_failing();
        });
        self.open();
        self.take_over();
        self.check(true).expect("readable");
    }

    /// Snapshots that were being taken or removed are there or not.
    fn take_over(&mut self) {
        let list = self.volumes().list();
        let mut there: Vec<String> = Vec::new();
        for volume in &list {
            there.push(volume.name.clone());
            there
                .extend(volume.snapshots.iter().map(|(name, _)| format!("{}@{name}", volume.name)));
        }
        self.model.retain(|name, _| there.contains(name));
        for name in there.iter().filter(|name| !self.model.contains_key(*name)).collect::<Vec<_>>()
        {
            let (volume, snapshot) = name.split_once('@').expect("only snapshots are in doubt");
            self.volumes().delete_snapshot(volume, snapshot).expect("removed");
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            if self.random.below(25) == 0 {
                self.cut();
            }
            self.step().expect("no fault is injected");
        }
        self.check(false).expect("readable");
        self.check_space().expect("no fault is injected");
        let store = self.store.take().expect("open").0;
        store.close().expect("closes");
    }

    /// What nobody needs is given back, all of it.
    fn check_space(&mut self) -> Result<(), Error> {
        for name in self.volumes().list().into_iter().map(|volume| volume.name) {
            self.volumes().delete(&name)?;
        }
        // The sweep shows what was superseded, and the next one applies what was trimmed.
        for _ in 0..3 {
            self.store.as_ref().expect("open").0.sweep()?;
            self.volumes().flush()?;
            self.work_until_done()?;
        }
        let status = self.store.as_ref().expect("open").0.status();
        let segment_bytes = u64::from(self.slots_per_home) * BLOCK_BYTES;
        let segments = status.reserved_bytes / segment_bytes;
        assert!(segments <= 2, "{segments} segments are left: one is open, one for survivors");
        Ok(())
    }
}

#[test]
fn a_block_is_what_it_may_be_whatever_crashes() {
    let seeds = std::env::var("UPSWEEP_VOLUME_SEEDS").unwrap_or_else(|_| "0..30".to_owned());
    let (first, end) = seeds.split_once("..").expect("FIRST..END");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    for seed in number(first)..number(end) {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(run.is_ok(), "seed {seed} failed");
    }
}
