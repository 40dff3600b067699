//! The hostile bank: the guarantees that hold through a power cut, and each fault by itself.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::device::{
    Bulk, DeviceError, FailureKind, FaultRange, Faults, Geometry, HostileDevices, MemoryDevices,
    Simulated, read_all, read_alone, run_alone, write_alone,
};

const DEVICE: DeviceId = DeviceId(0);
const SECTOR: u64 = 512;
const SECTORS: u64 = 64;
const EIO: Result<(), DeviceError> = Err(DeviceError::Failed { errno: 5 });

fn geometry(size_bytes: u64) -> Geometry {
    Geometry {
        size_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        rotational: false,
        growable: true,
    }
}

fn bank(seed: u64) -> HostileDevices {
    HostileDevices::in_memory(vec![geometry(SIZE)], seed)
}

#[derive(Clone, Debug)]
enum Step {
    Write { sector: u64, sectors: u64, stable: bool },
    Flush,
    Wait,
    Cut,
    Copy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..SECTORS - 8, 1..8_u64, any::<bool>());
    let write = write.prop_map(|(sector, sectors, stable)| Step::Write { sector, sectors, stable });
    let step = prop_oneof![8 => write, 2 => Just(Step::Flush), 8 => Just(Step::Wait),
        1 => Just(Step::Cut), 1 => Just(Step::Copy)];
    prop::collection::vec(step, 1..120)
}

/// One write as the oracle sees it. Its stamp fills its sectors, and is its number plus one.
#[derive(Debug)]
struct Written {
    sector: u64,
    sectors: u64,
    stable: bool,
    /// Position in the order of completion.
    completed: Option<usize>,
}

/// What may be on the media, derived from requests and completions alone.
#[derive(Debug, Default)]
struct Oracle {
    writes: Vec<Written>,
    completions: usize,
    /// How many completions each flush in flight covers, by token.
    flushes: BTreeMap<u64, usize>,
    /// For each sector: the stamp that is certain, and its position in the order of completion.
    certain: BTreeMap<u64, (u64, usize)>,
    /// Writes from this one on were submitted after the last cut.
    since_cut: usize,
}

/// Tokens from here on are flushes.
const FLUSHES: u64 = 1 << 32;

impl Oracle {
    fn complete(&mut self, token: u64) {
        self.completions += 1;
        let now = self.completions;
        if let Some(covered) = self.flushes.remove(&token) {
            for number in self.since_cut..self.writes.len() {
                if self.writes[number].completed.is_some_and(|position| position <= covered) {
                    self.make_certain(number);
                }
            }
            return;
        }
        self.writes[token as usize].completed = Some(now);
        if self.writes[token as usize].stable {
            self.make_certain(token as usize);
        }
    }

    fn make_certain(&mut self, number: usize) {
        let write = &self.writes[number];
        let position = write.completed.expect("only completed writes become certain");
        for sector in write.sector..write.sector + write.sectors {
            let certain = self.certain.entry(sector).or_default();
            if certain.1 <= position {
                *certain = (number as u64 + 1, position);
            }
        }
    }

    /// The stamps that the sector may hold after a power cut at this moment.
    fn allowed(&self, sector: u64) -> Vec<u64> {
        let (stamp, certain_at) = self.certain.get(&sector).copied().unwrap_or_default();
        let at_risk = self.writes.iter().enumerate().skip(self.since_cut).filter(|(_, write)| {
            (write.sector..write.sector + write.sectors).contains(&sector)
                && write.completed.is_none_or(|position| position > certain_at)
        });
        at_risk.map(|(number, _)| number as u64 + 1).chain([stamp]).collect()
    }
}

fn stamped(stamp: u64, sectors: u64) -> Buffer {
    let mut buffer = Buffer::zeroed((sectors * SECTOR) as usize);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&stamp.to_le_bytes());
    }
    buffer
}

/// The stamp of a sector; fails if the sector mixes two.
fn stamp_of(sector: &[u8]) -> u64 {
    let mut words = sector
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let stamp = words.next().expect("a sector has words");
    assert!(words.all(|word| word == stamp), "a sector is torn");
    stamp
}

fn power_cut_keeps_its_promises(seed: u64, steps: Vec<Step>) {
    let mut devices = bank(seed);
    let mut oracle = Oracle::default();
    for step in steps.into_iter().chain([Step::Cut]) {
        match step {
            Step::Write { sector, sectors, stable } => {
                let token = oracle.writes.len() as u64;
                let buffer = stamped(token + 1, sectors);
                let mode = if stable { WriteMode::Stable } else { WriteMode::Cached };
                let offset = sector * SECTOR;
                submit(&mut devices, token, Operation::Write { offset, buffer, mode });
                oracle.writes.push(Written { sector, sectors, stable, completed: None });
            }
            Step::Flush => {
                let token =
                    FLUSHES + oracle.completions as u64 * 1000 + oracle.flushes.len() as u64;
                oracle.flushes.insert(token, oracle.completions);
                submit(&mut devices, token, Operation::Flush);
            }
            Step::Wait => {
                let mut completions = Vec::new();
                devices.wait(&mut completions);
                completions.iter().for_each(|done| oracle.complete(done.token.0));
            }
            Step::Cut => cut_and_compare(&mut devices, &mut oracle),
            Step::Copy => copy_and_compare(&devices, seed, &oracle),
        }
    }
}

/// The stamps of all sectors, each of which may be there.
fn stamps(devices: &mut HostileDevices, oracle: &Oracle) -> Vec<(u64, u64)> {
    let content = read_alone(devices, DEVICE, 0, (SECTORS * SECTOR) as usize).expect("works again");
    let stamps = (0..).zip(content.chunks(SECTOR as usize)).map(|(sector, bytes)| {
        let stamp = stamp_of(bytes);
        let allowed = oracle.allowed(sector);
        assert!(allowed.contains(&stamp), "sector {sector} holds {stamp}, not of {allowed:?}");
        (sector, stamp)
    });
    stamps.collect()
}

/// Checks that the copy after a power cut is an allowed state, and that the devices are unchanged.
fn copy_and_compare(devices: &HostileDevices, seed: u64, oracle: &Oracle) {
    let (before, in_flight) = (devices.bank().digest(), devices.in_flight());
    let mut copy = devices.copy_after_power_cut(seed ^ 1);
    assert_eq!((copy.in_flight(), copy.bank().now_us()), (0, devices.bank().now_us()));
    stamps(&mut copy, oracle);
    assert_eq!((devices.bank().digest(), devices.in_flight()), (before, in_flight));
}

fn cut_and_compare(devices: &mut HostileDevices, oracle: &mut Oracle) {
    devices.power_cut();
    assert_eq!(devices.in_flight(), 0);
    for (sector, stamp) in stamps(devices, oracle) {
        oracle.completions += 1;
        oracle.certain.insert(sector, (stamp, oracle.completions));
    }
    oracle.flushes.clear();
    oracle.since_cut = oracle.writes.len();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn power_cuts_keep_their_promises(seed in any::<u64>(), steps in steps()) {
        power_cut_keeps_its_promises(seed, steps);
    }
}

#[test]
fn a_power_cut_tears_loses_and_keeps() {
    let (mut kept, mut lost, mut torn, mut mixed) = (0, 0, 0, 0);
    for seed in 0..50 {
        let mut devices = bank(seed);
        submit(&mut devices, 0, write(0, 65536, 1, WriteMode::Cached));
        wait_for(&mut devices, 1);
        submit(&mut devices, 1, write(131_072, 65536, 2, WriteMode::Stable));
        let cut = devices.power_cut();
        assert_eq!(cut.requests_in_flight, 1);
        kept += cut.writes_kept;
        lost += cut.writes_lost;
        torn += cut.writes_torn;
        let content = devices.bank().peek(DEVICE, 0, 65536);
        mixed += usize::from(content.contains(&0) && content.contains(&1));
    }
    assert_eq!(kept + lost + torn, 100);
    assert!(kept > 15 && lost > 15 && torn > 15 && mixed > 5, "{kept} {lost} {torn} {mixed}");
}

#[test]
fn equal_seeds_give_equal_images() {
    let image = |seed| {
        let mut devices = bank(seed);
        let faults = Faults { misdirected_writes: 100_000, bit_flips: 50_000, ..Faults::default() };
        devices.set_faults(faults);
        for token in 0..100 {
            submit(&mut devices, token, write(token * 4096, 8192, 7, WriteMode::Cached));
        }
        let mut completions = Vec::new();
        devices.wait(&mut completions);
        devices.power_cut();
        devices.bank().digest()
    };
    assert_eq!(image(1), image(1));
    assert_ne!(image(1), image(2));
}

#[test]
fn without_faults_it_is_the_bank_below() {
    let mut plain = MemoryDevices::with_sizes(&[SIZE], 3);
    let mut hostile = HostileDevices::new(MemoryDevices::with_sizes(&[SIZE], 3), 9);
    for devices in [&mut plain as &mut dyn Devices, &mut hostile] {
        for token in 0..50 {
            submit(devices, token, write(token * 4096, 8192, token as u8, WriteMode::Cached));
        }
        submit(devices, 50, Operation::Discard { offset: 0, bytes: 65536 });
        wait_for(devices, 51);
    }
    assert_eq!(plain.digest(), hostile.bank().digest());
    assert_eq!(plain.now_us(), hostile.bank().now_us());
}

#[test]
fn a_failed_flush_is_not_made_good_by_the_next() {
    let mut old = 0;
    for seed in 0..40 {
        let mut devices = bank(seed);
        submit(&mut devices, 0, write(0, 4096, 1, WriteMode::Cached));
        wait_for(&mut devices, 1);
        devices.fail_after(0, FailureKind::Writes);
        assert!(run_alone(&mut devices, DEVICE, Operation::Flush).is_err());
        devices.stop_failing();
        run_alone(&mut devices, DEVICE, Operation::Flush).expect("succeeds, and promises nothing");
        assert_eq!(devices.bank().peek(DEVICE, 0, 1), [1], "reads see the cache");
        devices.power_cut();
        old += usize::from(devices.bank().peek(DEVICE, 0, 4096).contains(&0));
    }
    assert!(old > 5, "the old content survived {old} times of 40");
}

#[test]
fn silent_faults_at_explicit_places() {
    let mut devices = bank(1);
    write_alone(&mut devices, DEVICE, 0, filled(4096, 1)).expect("written");
    devices.lose_next_write(DEVICE);
    write_alone(&mut devices, DEVICE, 0, filled(4096, 2)).expect("pretends");
    assert_eq!(devices.bank().peek(DEVICE, 0, 2), [1, 1]);
    devices.misdirect_next_write(DEVICE, 8192);
    write_alone(&mut devices, DEVICE, 0, filled(4096, 3)).expect("pretends");
    assert_eq!(devices.bank().peek(DEVICE, 0, 1), [1]);
    assert_eq!(devices.bank().peek(DEVICE, 8192, 4096), [3; 4096]);
    devices.flip_bit(DEVICE, 100, 3);
    devices.power_cut();
    let content = read_alone(&mut devices, DEVICE, 0, 4096).expect("read");
    assert_eq!((content[99], content[100]), (1, 1 ^ 8), "the flip is on stable media");
}

#[test]
fn unreadable_until_rewritten() {
    let mut devices = bank(1);
    devices.make_unreadable(DEVICE, 4100, 10);
    assert!(read_alone(&mut devices, DEVICE, 0, 4096).is_ok());
    submit(&mut devices, 1, read(0, 8192));
    let done = wait_for(&mut devices, 1).remove(0);
    assert_eq!((done.result, done.buffer.is_some()), (EIO, true));
    devices.power_cut();
    assert!(read_alone(&mut devices, DEVICE, 4096, 4096).is_err(), "a cut mends nothing");
    write_alone(&mut devices, DEVICE, 4096, filled(512, 1)).expect("written");
    assert!(read_alone(&mut devices, DEVICE, 4096, 4096).is_ok());
}

#[test]
fn errors_after_some_operations() {
    let mut devices = bank(1);
    devices.fail_after(2, FailureKind::Writes);
    for attempt in 0..4 {
        let written = write_alone(&mut devices, DEVICE, attempt * 4096, filled(4096, 1));
        assert_eq!(written.is_ok(), attempt < 2);
        assert!(read_alone(&mut devices, DEVICE, 0, 512).is_ok());
    }
    devices.power_cut();
    assert!(write_alone(&mut devices, DEVICE, 0, filled(4096, 1)).is_ok());
    devices.fail_after(0, FailureKind::Reads);
    assert!(read_alone(&mut devices, DEVICE, 0, 512).is_err());
    assert!(run_alone(&mut devices, DEVICE, Operation::Flush).is_ok());
}

#[test]
fn a_sector_that_is_unreadable_costs_only_the_range_that_has_it() {
    let mut devices = bank(1);
    for block in 0..16 {
        let filled = filled(4096, block as u8);
        write_alone(&mut devices, DEVICE, block * 4096, filled).expect("it works");
    }
    let range = Some(FaultRange { device: DEVICE, offset: 5 * 4096, bytes: 4096 });
    devices.set_faults(Faults { latent_errors: 1_000_000, range, ..Faults::default() });
    read_alone(&mut devices, DEVICE, 0, 512).expect("another sector becomes unreadable");
    devices.set_faults(Faults::default());
    let ranges: Vec<_> = (0..16).map(|block| (DEVICE, block * 4096, 4096)).collect();
    let mut found = [None; 16];
    let outcome: Result<(), ()> =
        read_all(&mut devices, &ranges, &Bulk::default(), |index, read| {
            found[index] = Some(read.ok().map(|content| content[0]));
            Ok(())
        });
    let wanted: Vec<_> = (0..16).map(|block| Some((block != 5).then_some(block))).collect();
    assert_eq!((outcome, &found[..]), (Ok(()), &wanted[..]));
}

#[test]
fn a_full_device() {
    let mut devices = bank(1);
    devices.set_capacity(DEVICE, 2 * SIZE);
    let mut allocate = |offset, bytes| {
        run_alone(&mut devices, DEVICE, Operation::Allocate { offset, bytes }).map(|_| ())
    };
    assert_eq!(allocate(SIZE, SIZE), Ok(()));
    assert_eq!(allocate(2 * SIZE, 4096), Err(DeviceError::NoSpace));
    assert_eq!(allocate(0, 2 * SIZE), Ok(()), "it has all of this");
    // Other files take the space that a hole has freed.
    let hole = Operation::Discard { offset: 65_536, bytes: 8192 };
    run_alone(&mut devices, DEVICE, hole).expect("discarded");
    devices.set_capacity(DEVICE, 2 * SIZE - 4096);
    let mut allocate = |offset, bytes| {
        run_alone(&mut devices, DEVICE, Operation::Allocate { offset, bytes }).map(|_| ())
    };
    assert_eq!(allocate(0, 2 * SIZE), Err(DeviceError::NoSpace));
    assert_eq!(allocate(65_536, 4096), Ok(()));
    assert_eq!(allocate(69_632, 4096), Err(DeviceError::NoSpace));
    devices.set_refusing_writes(DEVICE, true);
    let refused = write_alone(&mut devices, DEVICE, 0, filled(512, 1));
    assert_eq!(refused, Err(DeviceError::NoSpace));
    assert_eq!(devices.bank().peek(DEVICE, 0, 1), [0]);
    devices.set_refusing_writes(DEVICE, false);
    assert!(write_alone(&mut devices, DEVICE, 0, filled(512, 1)).is_ok());
}

#[test]
fn chances_hit_about_as_often_as_they_say() {
    let mut devices = bank(1);
    let range = Some(FaultRange { device: DEVICE, offset: 0, bytes: 4096 });
    let faults = Faults { read_errors: 250_000, bit_flips: 500_000, range, ..Faults::default() };
    devices.set_faults(faults);
    let mut failed = 0;
    for _ in 0..400 {
        failed += usize::from(read_alone(&mut devices, DEVICE, 8192, 512).is_err());
    }
    assert!((60..140).contains(&failed), "{failed} of 400 reads failed");
    let content = devices.bank().peek(DEVICE, 0, SIZE as usize);
    let flipped: u32 = content.iter().map(|byte| byte.count_ones()).sum();
    assert!((100..250).contains(&flipped), "{flipped} bits of 200 draws");
    assert!(content[4096..].iter().all(|byte| *byte == 0), "flips keep to their range");
}
