//! Volumes in virtual time, on devices whose power is cut, beside a model that knows what each
//! block may be.
//!
//! After a power cut a block is what it was at the last flush, or anything that was written to it
//! since; what was acknowledged as durable is there. Volumes that keep a history show every moment
//! of it as it was, if no power cut came before the next flush. A close loses nothing. A third of
//! the worlds has too little room: what is refused changes nothing, and a write leaves blocks of
//! either content. One seed gives one history. `UPSWEEP_VOLUME_SEEDS=FIRST..END` chooses others
//! than the default, and `UPSWEEP_VOLUME_MOMENTS=WRITES` makes one of them longer.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use upsweep::layers::device::{
    Buffer, FailureKind, HostileDevices, LatencyModel, MemoryDevices, Simulated, ThreadedDevices,
};
use upsweep::{CreateOptions, OpenOptions, RetryError, Store, StoreBuilder, WallClock};
use upsweep_volume::{
    Acknowledge, BLOCK_BYTES, Error, ExtentKind, History, MomentKind, Past, ScrubPosition, Volume,
    Volumes,
};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of a volume at first.
const BLOCKS: u64 = 600;
/// Sizes of volumes in blocks.
const SIZES: [u64; 3] = [BLOCKS, 250, 700];
/// Moments of a history that are looked at in a check.
const LOOKS: u64 = 4;
const STEPS: u64 = 120;
const VOLUMES_MAX: usize = 4;

type Bank = ThreadedDevices<HostileDevices>;

/// What a block may be: numbers that fill it, the last of which it is now.
type May = Vec<u64>;

/// What a volume or a snapshot is.
#[derive(Clone, Default)]
struct Model {
    blocks: Vec<May>,
    /// What it was, from one moment to another one.
    past: Vec<Then>,
    history: History,
    /// How many bytes have been written.
    written: u64,
}

#[derive(Clone)]
struct Then {
    from: u64,
    to: u64,
    /// What had been written then.
    written: u64,
    blocks: Rc<Vec<u64>>,
}

impl Then {
    /// Whether a history need not have all of it any more.
    fn may_be_gone(&self, history: History, now: u64, written: u64) -> bool {
        let is_old =
            history.window.is_some_and(|window| u128::from(now - self.to) > window.as_micros());
        let is_far = history.bytes.is_some_and(|bytes| written - self.written > bytes);
        is_old || is_far || !history.is_on()
    }
}

impl Model {
    fn empty(blocks: u64) -> Self {
        Self { blocks: vec![vec![0]; blocks as usize], ..Self::default() }
    }

    /// The same without a past, as that of a clone.
    fn cloned(&self) -> Self {
        Self { blocks: self.blocks.clone(), ..Self::default() }
    }

    fn now(&self) -> Vec<u64> {
        self.blocks.iter().map(|may| *may.last().expect("it is something")).collect()
    }
}

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
    /// Dropped before the devices, which it may be waiting for.
    store: Option<(Store, Volumes)>,
    bank: Bank,
    /// Contents by name; those of snapshots have a name with '@'.
    model: BTreeMap<String, Model>,
    /// Snapshots that have been deleted since the store was opened.
    gone: Vec<Volume>,
    /// The moment of the last flush.
    flushed: u64,
    next_content: u64,
    slots_per_home: u16,
    cuts: u64,
    /// Whether the devices may be full.
    is_small: bool,
    /// What others have of them.
    others_bytes: u64,
}

/// Whether there was no room.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Store(upsweep::Error::Retry(RetryError::Full { .. })))
}

/// Lets others have all but so many bytes of the devices.
fn leave(store: &Store, bytes: u64) {
    let (blocks, others) = (store.blocks(), store.table("others").expect("made"));
    while blocks.reservable_bytes().is_some_and(|left| left > bytes) {
        blocks.reserve_extent(others.space(), 1 << 18).expect("there is room");
    }
}

/// The time of day is that of the devices.
fn builder(bank: &Bank) -> StoreBuilder {
    let clock = bank.with(|devices| devices.bank_mut().clock());
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let wall_clock = WallClock::new(move || begin + Duration::from_micros(clock.now_us()));
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    Store::builder().options(options.wall_clock(wall_clock))
}

fn block_of(content: u64) -> Vec<u8> {
    content.to_le_bytes().repeat(BLOCK / 8)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (data_devices, is_small) = (1 + (seed % 2) as u16, seed % 3 == 2);
        let mut memory = if is_small {
            let sizes = [vec![32 << 20; data_devices.into()], vec![64 << 20]].concat();
            MemoryDevices::with_fixed_sizes(&sizes, seed)
        } else {
            MemoryDevices::with_sizes(&[0, 0, 0][..1 + usize::from(data_devices)], seed)
        };
        let jitter_us = random.pick(&[0, 100, 5000]);
        memory.set_latency(LatencyModel { base_us: 50, bytes_per_us: 500, jitter_us });
        let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, seed));
        let options = CreateOptions::default().log_bytes(8 << 20);
        let store = builder(&bank).create_on(bank.clone(), data_devices, &options).expect("made");
        if is_small {
            let left = random.pick(&[3, 5, 8]) << 20;
            leave(&store, left);
        }
        let others_bytes = store.status().reserved_bytes;
        let slots_per_home = random.pick(&[16, 32, 128]);
        let volumes = Volumes::open_with(&store, slots_per_home).expect("opens");
        volumes.create("first", BLOCKS * BLOCK_BYTES).expect("made");
        let model = BTreeMap::from([("first".to_owned(), Model::empty(BLOCKS))]);
        let store = Some((store, volumes));
        Self {
            random,
            bank,
            store,
            model,
            gone: Vec::new(),
            flushed: 0,
            next_content: 1,
            slots_per_home,
            cuts: 0,
            is_small,
            others_bytes,
        }
    }

    /// What was refused for want of room has been done, as far as it can be.
    fn tolerate(&self, done: Result<(), Error>) -> Result<(), Error> {
        match done {
            Err(error) if self.is_small && is_full(&error) => Ok(()),
            done => done,
        }
    }

    fn volumes(&self) -> &Volumes {
        &self.store.as_ref().expect("open").1
    }

    fn any_volume(&mut self) -> String {
        let names: Vec<&String> = self.model.keys().filter(|name| !name.contains('@')).collect();
        names[self.random.below(names.len() as u64) as usize].clone()
    }

    /// A volume or a snapshot.
    fn any_of_all(&mut self) -> String {
        let nth = self.random.below(self.model.len() as u64) as usize;
        self.model.keys().nth(nth).expect("one of them").clone()
    }

    /// A volume or a snapshot, to be read.
    fn opened(&self, name: &str) -> Result<Volume, Error> {
        match name.split_once('@') {
            Some((volume, snapshot)) => self.volumes().at_snapshot(volume, snapshot),
            None => self.volumes().volume(name),
        }
    }

    /// A range of so many blocks, often where others have been.
    fn any_range(&mut self, size: u64) -> (u64, u64) {
        let longest = self.random.pick(&[1, 1, 4, 20, 70, 300]);
        let blocks = 1 + self.random.below(longest);
        let align = self.random.pick(&[1, 1, 16]);
        let reach = self.random.pick(&[40, size]);
        let first = self.random.below(reach) / align * align;
        (first, blocks.min(size - first))
    }

    fn size_of(&self, name: &str) -> u64 {
        self.model[name].blocks.len() as u64
    }

    /// Everything that was written is stable from now on.
    fn settle(&mut self) {
        for may in self.model.values_mut().flat_map(|model| &mut model.blocks) {
            may.drain(..may.len() - 1);
        }
        self.flushed = self.volumes().moment();
    }

    fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.volumes().flush();
        assert!(!flushed.as_ref().is_err_and(is_full), "a flush needs no room");
        flushed?;
        self.settle();
        Ok(())
    }

    /// Notes what a volume was until this moment: `before` is one after its last change.
    fn note_past(&mut self, name: &str, before: u64) {
        let to = self.volumes().moment();
        let model = self.model.get_mut(name).expect("known");
        if model.history.is_on() {
            let (written, blocks) = (model.written, Rc::new(model.now()));
            model.past.push(Then { from: before, to, written, blocks });
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let name = self.any_volume();
        let size = self.size_of(&name);
        let (mut first, mut blocks) = self.any_range(size);
        let acknowledge =
            if self.random.below(3) == 0 { Acknowledge::Durable } else { Acknowledge::Written };
        let is_zero = self.random.below(5) == 0;
        if is_zero && self.random.below(3) == 0 {
            // With spans of zeros that are longer than a chunk.
            first = self.random.below(3) * 128;
            blocks = size.saturating_sub(first).clamp(1, 300);
            first = first.min(size - blocks);
        }
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
            if acknowledge == Acknowledge::Durable || self.random.below(2) == 0 {
                volume.write(offset, &data, acknowledge)
            } else {
                self.write_behind(&volume, offset, &data)
            }
        };
        let all = &mut self.model.get_mut(&name).expect("known").blocks;
        for (may, content) in all[first as usize..].iter_mut().zip(contents) {
            if written.is_ok() && acknowledge == Acknowledge::Durable {
                may.clear();
            }
            may.push(content);
        }
        match written {
            Err(error) if self.is_small && is_full(&error) => self.see(&name, first, blocks)?,
            written => written?,
        }
        let model = self.model.get_mut(&name).expect("known");
        model.written += if is_zero { 0 } else { blocks * BLOCK_BYTES };
        let moment = self.volumes().moment();
        self.pass_time();
        self.note_past(&name, moment);
        Ok(())
    }

    /// Finds out which blocks a write has changed that was refused.
    fn see(&mut self, name: &str, first: u64, blocks: u64) -> Result<(), Error> {
        let mut found = vec![0; (blocks * BLOCK_BYTES) as usize];
        self.volumes().volume(name)?.read(first * BLOCK_BYTES, &mut found)?;
        let all = &mut self.model.get_mut(name).expect("known").blocks;
        for (may, found) in all[first as usize..].iter_mut().zip(found.chunks(BLOCK)) {
            let content = u64::from_le_bytes(*found.first_chunk().expect("a block"));
            let last = may.len() - 1;
            if last > 0 && may[last] != content {
                may.swap(last - 1, last);
            }
        }
        self.compare(name, first, blocks, false)
    }

    fn pass_time(&mut self) {
        let us = self.random.pick(&[0, 10, 1000, 100_000, 1_000_000]);
        self.bank.with(|devices| {
            let bank = devices.bank_mut();
            bank.advance_to(bank.now_us() + us);
        });
    }

    /// Reads a range and compares it; after a power cut any of what it may be is right.
    fn compare(&mut self, name: &str, first: u64, blocks: u64, cut: bool) -> Result<(), Error> {
        let mut found = vec![0xee; (blocks * BLOCK_BYTES) as usize];
        let volume = self.opened(name)?;
        if first.is_multiple_of(2) {
            volume.read(first * BLOCK_BYTES, &mut found)?;
        } else {
            // In parts, from the last one to the first.
            let parts = found.chunks_mut(3 * BLOCK).enumerate().rev();
            let at = |nth| (first + 3 * nth as u64) * BLOCK_BYTES;
            let mut parts: Vec<_> = parts.map(|(nth, part)| (at(nth), part)).collect();
            volume.read_all(&mut parts).into_iter().collect::<Result<(), Error>>()?;
        }
        assert_eq!(volume.bytes()?, self.size_of(name) * BLOCK_BYTES, "{name:?}");
        let all = &mut self.model.get_mut(name).expect("known").blocks;
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
        let name = self.any_of_all();
        let (first, blocks) = self.any_range(self.size_of(&name));
        self.compare(&name, first, blocks, false)?;
        if name.contains('@') {
            let written = self.opened(&name)?.write(0, &block_of(1), Acknowledge::Written);
            assert!(matches!(written, Err(Error::ReadOnly(_))), "{name:?} was written");
        }
        for gone in &self.gone {
            let read = gone.read(0, &mut [0; BLOCK]);
            let is_refused = matches!(read, Err(Error::NoSnapshot { .. } | Error::Deleted));
            assert!(is_refused, "a deleted snapshot was read");
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), Error> {
        let name = self.any_volume();
        let snapshot = format!("s{}", self.random.below(3));
        let full = format!("{name}@{snapshot}");
        if self.model.contains_key(&full) {
            let handle = self.opened(&full)?;
            self.volumes().delete_snapshot(&name, &snapshot)?;
            self.model.remove(&full);
            self.gone.push(handle);
        } else {
            self.volumes().snapshot(&[&name], &snapshot)?;
            self.model.insert(full, self.model[&name].cloned());
        }
        Ok(())
    }

    fn clone_or_delete(&mut self) -> Result<(), Error> {
        let names: Vec<String> = self.model.keys().cloned().collect();
        let of_volumes = names.iter().filter(|name| !name.contains('@')).count();
        if of_volumes >= VOLUMES_MAX {
            let name = self.any_volume();
            let is_its = |known: &&String| known.starts_with(&format!("{name}@"));
            let its = self.model.keys().filter(is_its).map(|known| self.opened(known));
            let its: Vec<Volume> = its.collect::<Result<_, _>>()?;
            self.volumes().delete(&name)?;
            self.model.retain(|known, _| known != &name && !known.starts_with(&format!("{name}@")));
            self.gone.extend(its);
            return Ok(());
        }
        let source = &names[self.random.below(names.len() as u64) as usize];
        self.next_content += 1;
        let name = format!("clone {}", self.next_content);
        let (volume, snapshot) = match source.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(Past::Snapshot(snapshot))),
            None => (source.as_str(), None),
        };
        self.volumes().clone_volume(volume, snapshot, &name)?;
        self.model.insert(name, self.model[source].cloned());
        Ok(())
    }

    fn resize(&mut self) -> Result<(), Error> {
        let (name, size) = (self.any_volume(), self.random.pick(&SIZES));
        self.volumes().resize(&name, size * BLOCK_BYTES)?;
        let moment = self.volumes().moment();
        self.model.get_mut(&name).expect("known").blocks.resize(size as usize, vec![0]);
        self.note_past(&name, moment);
        Ok(())
    }

    fn change_history(&mut self) -> Result<(), Error> {
        let name = self.any_volume();
        let window = self.random.pick(&[None, Some(Duration::from_secs(3)), Some(Duration::MAX)]);
        let bytes = self.random.pick(&[None, Some(4 << 20), Some(1 << 40)]);
        let history = History { window, bytes };
        self.volumes().set_history(&name, history)?;
        let moment = self.volumes().moment();
        let model = self.model.get_mut(&name).expect("known");
        // What the new one does not keep may be kept for a while.
        let (old, written, is_on) = (model.history, model.written, history.is_on());
        model.past.retain(|then| {
            let first = Then { to: then.from, ..then.clone() };
            is_on && !first.may_be_gone(old, moment, written)
        });
        model.history = history;
        self.note_past(&name, moment);
        Ok(())
    }

    /// A moment of the history of a volume whose content is known.
    fn any_past(&mut self, name: &str) -> Option<(u64, Then)> {
        let past = &self.model[name].past;
        if past.is_empty() {
            return None;
        }
        let then = past[self.random.below(past.len() as u64) as usize].clone();
        Some((then.from + self.random.below(then.to - then.from + 1), then))
    }

    /// Checks that a moment is refused only if it has left the history; returns whether it is.
    fn is_refused<T>(
        &self,
        name: &str,
        (at, then): (u64, &Then),
        looked: &Result<T, Error>,
    ) -> bool {
        let Err(Error::NoMoment { first, last, .. }) = looked else { return false };
        let Model { history, written, .. } = self.model[name];
        let is_gone = Then { to: at, ..then.clone() }.may_be_gone(history, *last, written);
        assert!(at < *first && is_gone, "{name:?} at {at} is in the history");
        true
    }

    /// Lets a volume be again what it was.
    fn roll_back(&mut self) -> Result<(), Error> {
        let name = self.any_volume();
        self.flush()?;
        let Some((at, then)) = self.any_past(&name) else { return Ok(()) };
        let rolled = self.volumes().roll_back(&name, Past::At(at));
        if self.is_refused(&name, (at, &then), &rolled) {
            return Ok(());
        }
        rolled?;
        let moment = self.volumes().moment();
        let model = self.model.get_mut(&name).expect("known");
        model.blocks = then.blocks.iter().map(|content| vec![*content]).collect();
        self.note_past(&name, moment);
        Ok(())
    }

    /// Compares what a volume with a history was at so many moments, and what changed since;
    /// returns how many of them are in the history.
    fn look_back(&mut self, name: &str, looks: u64) -> Result<u64, Error> {
        let mut seen = 0;
        for _ in 0..looks {
            let Some((at, then)) = self.any_past(name) else { return Ok(seen) };
            seen += 1;
            let look = self.volumes().view(name, Past::At(at), "look");
            if self.is_refused(name, (at, &then), &look) {
                seen -= 1;
                continue;
            }
            let (look, blocks) = (look?, then.blocks);
            let mut found = vec![0xee; blocks.len() * BLOCK];
            look.read(0, &mut found)?;
            for (block, (found, content)) in found.chunks(BLOCK).zip(&*blocks).enumerate() {
                assert!(found == block_of(*content), "block {block} of {name:?} at {at}");
            }
            let mut changed = vec![false; self.model[name].blocks.len().max(blocks.len())];
            for range in self.volumes().changes(name, Past::At(at), None)? {
                let range = range?;
                (range.start / BLOCK_BYTES..range.end / BLOCK_BYTES)
                    .for_each(|block| changed[block as usize] = true);
            }
            for (block, (was, is)) in blocks.iter().zip(self.model[name].now()).enumerate() {
                assert!(changed[block] || *was == is, "block {block} of {name:?} since {at}");
            }
            self.volumes().delete("look")?;
        }
        Ok(seen)
    }

    /// Writes; after an accepted write has failed, a flush has to fail.
    fn write_behind(&self, volume: &Volume, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut is_accepted = false;
        let mut accepted = || is_accepted = true;
        let written = volume.write_behind(offset, Buffer::copy_of(data), &mut accepted);
        let is_lost = is_accepted && written.is_err();
        assert!(!is_lost || volume.flush().is_err(), "a flush that does not cover what is lost");
        written
    }

    /// What is said to be zero is zero, and extents cover the range.
    fn status(&mut self) -> Result<(), Error> {
        let name = self.any_of_all();
        let (first, blocks) = self.any_range(self.size_of(&name));
        let volume = self.opened(&name)?;
        let now = self.model[&name].now();
        let mut next = first as usize;
        for extent in volume.status(first * BLOCK_BYTES, blocks * BLOCK_BYTES)? {
            let end = next + (extent.bytes / BLOCK_BYTES) as usize;
            let is_zero = now[next..end].iter().all(|content| *content == 0);
            assert!(is_zero || extent.kind != ExtentKind::Zero, "blocks {next}..{end} of {name:?}");
            let is_data = now[next..end].iter().all(|content| *content != 0);
            assert!(is_data || extent.kind == ExtentKind::Zero, "blocks {next}..{end} of {name:?}");
            next = end;
        }
        assert_eq!(next as u64, first + blocks);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.random.below(100) {
            0..50 => self.write(),
            50..63 => self.read(),
            63..66 => self.status(),
            66..69 => self.change_history(),
            69..71 => self.resize(),
            71..73 => self.roll_back(),
            73..75 => {
                let name = self.any_volume();
                self.look_back(&name, LOOKS).map(|_| ())
            }
            75..80 => self.flush(),
            80..85 => self.snapshot(),
            85..88 => self.clone_or_delete(),
            88..90 => Ok(self.store.as_ref().expect("open").0.sweep()?),
            90..93 => self.work_until_done(),
            93..95 => self.volumes().work().map(|_| ()),
            95..97 => {
                self.gone.clear();
                let store = self.store.take().expect("open").0;
                store.close()?;
                self.open();
                self.check(false)
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
        let store = builder(&self.bank).open_on(self.bank.clone()).expect("opens");
        let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
        assert_eq!((report.damage, report.faults), (Vec::new(), Vec::new()), "before recovery");
        let volumes = Volumes::open_with(&store, self.slots_per_home).expect("recovers");
        self.store = Some((store, volumes));
    }

    /// A scrub finds no damage.
    fn scrub(&self) -> Result<(), Error> {
        let mut next = Some(ScrubPosition::default());
        while let Some(from) = next {
            let step = self.volumes().scrub(None, from, 1 << 18)?;
            assert_eq!(step.damage, []);
            next = step.next;
        }
        Ok(())
    }

    /// Compares everything; snapshots also through clones of them.
    fn check(&mut self, cut: bool) -> Result<(), Error> {
        self.scrub()?;
        for name in self.model.keys().cloned().collect::<Vec<_>>() {
            let Some((volume, snapshot)) = name.split_once('@') else {
                self.compare(&name, 0, self.size_of(&name), cut)?;
                self.look_back(&name, LOOKS)?;
                continue;
            };
            self.compare(&name, 0, self.size_of(&name), cut)?;
            self.volumes().clone_volume(volume, Some(Past::Snapshot(snapshot)), "look")?;
            let model = self.model.remove(&name).expect("known");
            self.model.insert("look".to_owned(), model);
            self.compare("look", 0, self.size_of("look"), false)?;
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
                0 => self.flush(),
                1 => self.snapshot(),
                2 => self.volumes().work().map(drop),
                _ => self.write(),
            };
            if self.tolerate(failed).is_err() {
                break;
            }
        }
        // Before the devices forget, or its last writes would arrive later.
        self.gone.clear();
        self.store = None;
        self.bank.with(|devices| {
            devices.power_cut();
            devices.stop_failing();
        });
        self.open();
        self.take_over();
        // What was not flushed may not have been as it seemed.
        let flushed = self.flushed;
        for model in self.model.values_mut() {
            model.past.retain(|then| then.to <= flushed);
        }
        self.check(true).expect("readable");
        for name in
            self.model.keys().filter(|name| !name.contains('@')).cloned().collect::<Vec<_>>()
        {
            let moment = self.volumes().moment();
            self.note_past(&name, moment);
        }
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
            let done = self.step();
            self.tolerate(done).expect("no fault is injected");
            // A part of the volumes, which goes on while they change.
            let step = self.volumes().continue_scrub(1 << 18).expect("no fault is injected");
            assert_eq!(step.damage, []);
        }
        self.check(false).expect("readable");
        self.check_space().expect("no fault is injected");
        self.gone.clear();
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
        let segments = (status.reserved_bytes - self.others_bytes) / segment_bytes;
        // One is open, one for survivors, and one to spare, or more if there is little room.
        let spare = if self.is_small { 8 } else { 1 };
        assert!(segments <= 2 + spare, "{segments} segments are left");
        Ok(())
    }
}

#[test]
fn a_block_is_what_it_may_be_whatever_crashes() {
    let seeds = std::env::var("UPSWEEP_VOLUME_SEEDS").unwrap_or_else(|_| "0..12".to_owned());
    let (first, end) = seeds.split_once("..").expect("FIRST..END");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (next, end) = (AtomicU64::new(number(first)), number(end));
    let run_the_rest = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let run = std::panic::catch_unwind(|| World::new(seed).run());
            assert!(run.is_ok(), "seed {seed} failed");
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(run_the_rest);
        }
    });
}

/// Overwrites blocks of a volume with a history again and again; returns the most space that this
/// took in the second half, in bytes.
fn space_of(history: History) -> u64 {
    const MIB: u64 = 1 << 20;
    let mut world = World::new(1);
    world.volumes().create("kept", MIB).expect("made");
    world.volumes().set_history("kept", history).expect("changed");
    let volume = world.volumes().volume("kept").expect("there");
    let (mut moments, mut most) = (Vec::new(), 0);
    for round in 1..=64_u64 {
        // Scattered blocks, a quarter of the volume.
        for block in (0..MIB / BLOCK_BYTES).filter(|block| (block * 7 + round) % 4 == 0) {
            volume
                .write(block * BLOCK_BYTES, &block_of(round), Acknowledge::Written)
                .expect("written");
        }
        moments.push(world.volumes().moment());
        world.bank.with(|devices| {
            let bank = devices.bank_mut();
            bank.advance_to(bank.now_us() + 2_000_000);
        });
        world.volumes().flush().expect("flushed");
        world.store.as_ref().expect("open").0.sweep().expect("swept");
        world.work_until_done().expect("no fault is injected");
        if round >= 32 {
            most = most.max(world.store.as_ref().expect("open").0.status().reserved_bytes);
        }
    }
    for (round, at) in (1..).zip(&moments) {
        let block = (0..4).find(|block| (block * 7 + round) % 4 == 0).expect("one of four");
        let mut found = vec![0; BLOCK];
        match world.volumes().view("kept", Past::At(*at), "look") {
            Ok(look) => look.read(block * BLOCK_BYTES, &mut found).expect("readable"),
            Err(Error::NoMoment { first, .. }) => {
                assert!(*at < first && round < 50, "round {round} is in the history");
                continue;
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        assert!(round > 32, "round {round} has left the history");
        assert_eq!(found, block_of(round));
        world.volumes().delete("look").expect("deleted");
    }
    most
}

#[test]
fn a_history_takes_the_space_that_it_may() {
    // 16 rounds of 256 KiB.
    let rounds = 16;
    let bytes = History { bytes: Some((rounds * 256) << 10), ..History::OFF };
    let window = History { window: Some(Duration::from_secs(2 * rounds)), ..History::OFF };
    for history in [bytes, window] {
        let most = space_of(history);
        // The volume, 4 MiB of history, what waits to be trimmed and cleaned.
        assert!(most <= 10 << 20, "{most} bytes with {history:?}");
        assert!(most >= 5 << 20, "{most} bytes with {history:?}");
    }
}

/// Lets time pass, and then the work in the background.
fn wait_and_work(world: &mut World, seconds: u64) {
    world.bank.with(|devices| {
        let bank = devices.bank_mut();
        bank.advance_to(bank.now_us() + seconds * 1_000_000);
    });
    world.work_until_done().expect("no fault is injected");
}

#[test]
fn what_leaves_a_history_is_given_back_though_nothing_more_is_written() {
    const MIB: u64 = 1 << 20;
    let mut world = World::new(1);
    let window = Some(Duration::from_secs(60));
    let volume = world.volumes().create("kept", 4 * MIB).expect("made");
    world.volumes().set_history("kept", History { window, ..History::OFF }).expect("changed");
    for round in 1..=4 {
        let data = block_of(round).repeat((4 * MIB / BLOCK_BYTES) as usize);
        volume.write(0, &data, Acknowledge::Durable).expect("written");
        wait_and_work(&mut world, 3);
    }
    // All of it is in swept blocks, which no later write has swept again.
    world.store.as_ref().expect("open").0.sweep().expect("swept");
    wait_and_work(&mut world, 1);
    let kept = world.volumes().usage().expect("readable").payload_bytes;
    assert_eq!(kept, 16 * MIB);
    for _ in 0..8 {
        wait_and_work(&mut world, 10);
    }
    let usage = world.volumes().usage().expect("readable");
    let reserved = world.store.as_ref().expect("open").0.status().reserved_bytes;
    assert_eq!(usage.payload_bytes, 4 * MIB);
    // The present, and some segments that are being filled, or spare.
    assert!(reserved <= 5 * MIB, "{reserved} bytes are reserved");
    let mut found = vec![0; BLOCK];
    volume.read(0, &mut found).expect("readable");
    assert_eq!(found, block_of(4));
}

#[test]
fn hundreds_of_moments_are_what_they_were() {
    let writes = std::env::var("UPSWEEP_VOLUME_MOMENTS");
    let writes: u64 = writes.map_or(1200, |writes| writes.parse().expect("a number"));
    let mut world = World::new(7);
    // A quarter of what passes, or less.
    let history = History { window: Some(Duration::from_secs(writes / 20)), ..History::OFF };
    world.volumes().set_history("first", history).expect("changed");
    world.model.get_mut("first").expect("known").history = history;
    for step in 1..=writes {
        world.write().expect("no fault is injected");
        match step % 500 {
            100 | 300 => world.flush().expect("flushed"),
            200 | 400 => world.store.as_ref().expect("open").0.sweep().expect("swept"),
            250 | 450 => world.work_until_done().expect("no fault is injected"),
            0 => world.cut(),
            _ => {}
        }
    }
    world.flush().expect("flushed");
    let moments = &world.model["first"].past;
    let (first, last) = (moments[0].from, moments[moments.len() - 1].to);
    assert!(last - first > writes * 100_000, "only {} us passed", last - first);
    let mut seen = 0;
    while seen < writes / 4 {
        seen += world.look_back("first", 100).expect("readable");
    }
}

#[test]
fn every_quiet_moment_is_worth_a_return() {
    let mut world = World::new(3);
    let history = History { window: Some(Duration::from_secs(24 * 3600)), ..History::OFF };
    world.volumes().set_history("first", history).expect("changed");
    let volume = world.volumes().volume("first").expect("there");
    let mut expected = Vec::new();
    for round in 1..=4 {
        volume.write(0, &block_of(round), Acknowledge::Written).expect("written");
        expected.push(round);
        wait_and_work(&mut world, 3);
    }
    let moments = world.volumes().moments("first").expect("kept");
    let found: Vec<u64> = moments
        .iter()
        .map(|moment| {
            assert_eq!(moment.kind, MomentKind::Quiet);
            let look = world.volumes().view("first", Past::At(moment.at), "look").expect("made");
            let mut block = vec![0; BLOCK];
            look.read(0, &mut block).expect("readable");
            world.volumes().delete("look").expect("deleted");
            u64::from_le_bytes(*block.first_chunk().expect("a block"))
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_list_of_a_history_stays_short() {
    let mut world = World::new(3);
    let window = Some(Duration::from_secs(90 * 24 * 3600));
    world.volumes().set_history("first", History { window, ..History::OFF }).expect("changed");
    let volume = world.volumes().volume("first").expect("there");
    let write = |world: &mut World, content: u64, seconds: u64| {
        volume.write(0, &block_of(content), Acknowledge::Durable).expect("written");
        world.bank.with(|devices| {
            let bank = devices.bank_mut();
            bank.advance_to(bank.now_us() + seconds * 1_000_000);
        });
        world.volumes().work().expect("no fault is injected");
    };
    // Two days with a moment each ten minutes, and an hour with one each 20 seconds.
    (1..=288).for_each(|content| write(&mut world, content, 600));
    (289..=468).for_each(|content| write(&mut world, content, 20));
    let moments = world.volumes().moments("first").expect("kept");
    let end = moments.last().expect("some").at;
    let older = |hours: u64| {
        moments.iter().filter(|moment| end - moment.at >= hours * 3_600_000_000).count()
    };
    assert!((24..=27).contains(&older(24)), "{} of the first day", older(24));
    let second_day = older(1) - older(24);
    assert!((23 * 6 - 2..=23 * 6 + 2).contains(&second_day), "{second_day} of the second day");
    let last_hour = moments.len() - older(1);
    assert!((178..=180).contains(&last_hour), "{last_hour} of the last hour");
    // Those that are gone have no row, and can be returned to all the same.
    world.volumes().flush().expect("flushed");
    let catalog = world.store.as_ref().expect("open").0.existing_table("volumes/catalog");
    let catalog = catalog.expect("there");
    let rows = catalog.iter().filter(|row| row.as_ref().expect("readable").0.starts_with(b"mom"));
    assert_eq!(rows.count(), moments.len());
    let before = Past::At(moments[1].at - 1);
    let look = world.volumes().view("first", before, "look").expect("made");
    let mut found = vec![0; BLOCK];
    look.read(0, &mut found).expect("readable");
    let [content, next] = [&found, &read_at(&world, moments[1].at)]
        .map(|block| u64::from_le_bytes(*block.first_chunk().expect("a block")));
    assert_eq!(content + 1, next, "one moment before");
}

/// The first block of the volume `first` at a moment.
fn read_at(world: &World, at: u64) -> Vec<u8> {
    let look = world.volumes().view("first", Past::At(at), "then").expect("made");
    let mut found = vec![0; BLOCK];
    look.read(0, &mut found).expect("readable");
    world.volumes().delete("then").expect("deleted");
    found
}
