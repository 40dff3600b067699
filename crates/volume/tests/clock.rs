//! Volumes whose clock is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use upsweep::layers::device::{HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions, Store, WallClock};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, History, Past, Volume, Volumes};

type Bank = ThreadedDevices<HostileDevices>;

const HOUR: u64 = 3600;

/// A machine with a store, and a clock that anybody may set.
struct Machine {
    bank: Bank,
    seconds: Arc<AtomicU64>,
}

impl Machine {
    /// One with a volume.
    fn new() -> (Self, Store, Volumes) {
        let memory = MemoryDevices::with_sizes(&[0, 0], 1);
        let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, 1));
        let machine = Self { bank, seconds: Arc::new(AtomicU64::new(1_000_000_000)) };
        let options = CreateOptions::default().log_bytes(16 << 20);
        let store = Store::builder().options(machine.options());
        let store = store.create_on(machine.bank.clone(), 1, &options).expect("made");
        let volumes = Volumes::open_with(&store, 256).expect("opens");
        volumes.create("disk", 1 << 20).expect("made");
        (machine, store, volumes)
    }

    fn options(&self) -> OpenOptions {
        let seconds = Arc::clone(&self.seconds);
        let now =
            move || SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::Relaxed));
        let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
        options.wall_clock(WallClock::new(now))
    }

    /// Loses its power, has the clock set back, and opens the store again.
    fn set_back(&self, (store, volumes): (Store, Volumes), seconds: u64) -> (Store, Volumes) {
        std::mem::forget((volumes, store));
        self.bank.with(HostileDevices::power_cut);
        self.seconds.fetch_sub(seconds, Ordering::Relaxed);
        let store = Store::builder().options(self.options()).open_on(self.bank.clone());
        let store = store.expect("opens");
        let volumes = Volumes::open(&store).expect("opens");
        (store, volumes)
    }

    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

fn write(volumes: &Volumes, content: u8) {
    let disk = volumes.volume("disk").expect("there");
    disk.write(0, &[content; 4096], Acknowledge::Durable).expect("written");
}

fn content(volume: &Volume) -> u8 {
    let mut found = [0; 4096];
    volume.read(0, &mut found).expect("readable");
    assert!(found == [found[0]; 4096]);
    found[0]
}

#[test]
fn a_snapshot_stays_what_it_was_although_the_clock_was_set_back() {
    let (machine, store, volumes) = Machine::new();
    write(&volumes, 1);
    machine.pass(60);
    volumes.snapshot(&["disk"], "before").expect("taken");
    let (_store, volumes) = machine.set_back((store, volumes), HOUR);
    write(&volumes, 2);
    assert_eq!(content(&volumes.at_snapshot("disk", "before").expect("there")), 1);
}

#[test]
fn a_clock_that_is_far_ahead_makes_no_history_forget_everything() {
    let (machine, store, volumes) = Machine::new();
    let history = History { window: Some(Duration::from_secs(24 * HOUR)), bytes: None };
    volumes.set_history("disk", history).expect("set");
    machine.pass(60);
    write(&volumes, 1);
    let was = volumes.moment();
    machine.pass(60);
    write(&volumes, 2);

    machine.pass(10 * 365 * 24 * HOUR);
    while volumes.work().expect("no fault") {}
    write(&volumes, 3);
    store.sweep().expect("swept");
    while volumes.work().expect("no fault") {}
    volumes.flush().expect("flushed");
    let (_store, volumes) = machine.set_back((store, volumes), 10 * 365 * 24 * HOUR);
    assert_eq!(content(&volumes.view("disk", Past::At(was), "was").expect("in the history")), 1);

    // Whoever wants less gets it at once.
    machine.pass(HOUR);
    let history = History { window: Some(Duration::from_secs(HOUR)), bytes: None };
    volumes.work().expect("no fault");
    volumes.set_history("disk", history).expect("set");
    while volumes.work().expect("no fault") {}
    let found = volumes.view("disk", Past::At(was - 1_000_000), "older");
    assert!(matches!(found, Err(Error::NoMoment { .. })), "{:?}", found.err());
}

#[test]
fn a_history_of_bytes_has_its_limit_while_the_clock_is_behind_the_last_change() {
    let (machine, store, volumes) = Machine::new();
    let history = History { window: None, bytes: Some(64 * BLOCK_BYTES) };
    volumes.set_history("disk", history).expect("set");
    machine.pass(10 * 365 * 24 * HOUR);
    write(&volumes, 0);
    let was = volumes.moment();
    let (_store, volumes) = machine.set_back((store, volumes), 10 * 365 * 24 * HOUR);
    for nth in 0..200 {
        write(&volumes, nth);
        while volumes.work().expect("no fault") {}
    }
    let found = volumes.view("disk", Past::At(was), "was");
    assert!(matches!(found, Err(Error::NoMoment { .. })), "{:?}", found.err());
    let usage = volumes.usage().expect("known");
    assert!(usage.volumes[0].history_bytes <= 70 * BLOCK_BYTES, "{usage:?}");
}
