//! The model against an oracle of its mapping, the theory of cleaning, and times worked out by
//! hand.

use std::collections::BTreeMap;

use super::description::Geometry;
use super::filled::Filled;
use super::space::Space;
use super::*;
use crate::device::random::SplitMix64;
use crate::device::sim::drive::Status;

const KIB: u64 = 1024;

/// Four dies on two channels, each with 32 blocks of four pages of two units: half are spare.
pub(in crate::device) fn small() -> SolidStateDescription {
    SolidStateDescription {
        schema: 1,
        id: "small".into(),
        name: "A small device".into(),
        model: String::new(),
        status: Status::Estimated,
        capacity: Capacity { bytes: 2048 * KIB, logical_block_bytes: 512 },
        flash: Flash {
            channels: 2,
            dies_per_channel: 2,
            blocks_per_die: 32,
            pages_per_block: 4,
            page_bytes: 8192,
            read_ns: 50_000,
            program_ns: 300_000,
            erase_ns: 2_000_000,
            channel_mb_s: 200,
        },
        mapping: Mapping { unit_bytes: 4096, persist_ns: 0 },
        cleaning: Cleaning { free_blocks_low: 4, free_blocks_idle: 4 },
        buffer: WriteBuffer { bytes: 64 * KIB, write_back: true, power_protected: false },
        host: Host {
            command_ns: 10_000,
            latency_ns: 5_000,
            mb_s: 500,
            full_duplex: false,
            interface: None,
        },
        start: Start::default(),
        datasheet: BTreeMap::new(),
        source: BTreeMap::new(),
    }
}

fn filled(mut description: SolidStateDescription, order: FillOrder) -> SolidStateDescription {
    description.start = Start { filled_percent: 100, order };
    assert_eq!(description.check(), Ok(()));
    description
}

fn write(unit: u64) -> Demand {
    Demand::Write { offset: unit * 4096, bytes: 4096, stable: false }
}

fn read(unit: u64) -> Demand {
    Demand::Read { offset: unit * 4096, bytes: 4096 }
}

/// Lets a device serve commands one after another; returns how long each took.
fn latencies(device: &mut SolidState, demands: &[Demand]) -> Vec<u64> {
    let (mut now_ns, mut all, mut completed) = (0, Vec::new(), Vec::new());
    for demand in demands {
        device.arrive(7, *demand, now_ns);
        while completed.is_empty() {
            let next_ns = device.next_ns().expect("a command is in progress");
            device.advance(next_ns, &mut completed);
        }
        let (number, end_ns) = completed.remove(0);
        assert_eq!((number, completed.len()), (7, 0));
        all.push(end_ns - now_ns);
        now_ns = end_ns;
    }
    all
}

/// Lets a device serve commands, `depth` at a time; returns how long all took.
fn serve(device: &mut SolidState, depth: usize, demands: impl IntoIterator<Item = Demand>) -> u64 {
    let mut demands = demands.into_iter();
    let (mut now_ns, mut completed) = (device.now_ns(), Vec::new());
    let start_ns = now_ns;
    let mut arrivals = depth;
    let mut in_progress = 0;
    loop {
        for demand in demands.by_ref().take(arrivals) {
            device.arrive(0, demand, now_ns);
            in_progress += 1;
        }
        if in_progress == 0 {
            return now_ns - start_ns;
        }
        completed.clear();
        while completed.is_empty() {
            now_ns = device.next_ns().expect("a command is in progress");
            device.advance(now_ns, &mut completed);
        }
        arrivals = completed.len();
        in_progress -= arrivals;
    }
}

/// Asserts that exactly these units are mapped, each to a place of its own that knows it, and that
/// the blocks agree.
fn audit(device: &SolidState, is_mapped: &[bool]) {
    let filled = device.map.filled();
    let mut places = Vec::new();
    for (unit, expected) in (0..).zip(is_mapped) {
        let place = device.map.place(unit);
        assert_eq!(place.is_some(), *expected, "unit {unit}");
        let Some(place) = place else { continue };
        let (die, ..) = device.geometry.parts(place);
        let page = device.geometry.page(place);
        let mut held = device.spaces[die as usize].held(page, &device.map);
        assert!(held.any(|found| found == (unit, place)), "unit {unit} at {place}");
        places.push(place);
    }
    let mapped = places.len() as u64;
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len() as u64, mapped, "two units have one place");
    let live: u64 = device.spaces.iter().map(|space| space.live(filled)).sum();
    assert_eq!(live, mapped, "what the blocks count");
}

#[test]
fn no_unit_is_lost_and_no_place_has_two() {
    for seed in 0..12 {
        let mut description = small();
        let orders = [FillOrder::Sequential, FillOrder::Random];
        let order = orders[(seed % 2) as usize];
        description.start = Start { filled_percent: [0, 60, 100][(seed % 3) as usize], order };
        description.buffer.write_back = seed % 4 != 3;
        // A buffer of few blocks, or one larger than the spare ones.
        description.buffer.bytes = [64, 1024][usize::from(seed > 7)] * KIB;
        // As few spare blocks as there may be, or many.
        description.flash.blocks_per_die = [24, 32][usize::from(seed % 5 < 2)];
        assert_eq!(description.check(), Ok(()));
        let mut device = SolidState::new(&description);
        let units = 512_u64;
        let filled = device.map.filled().units();
        assert!(description.start.filled_percent == 0 || filled >= 300, "{filled}");
        let mut is_mapped: Vec<bool> = (0..512).map(|unit| unit < filled).collect();
        audit(&device, &is_mapped);
        let mut random = SplitMix64::new(seed);
        for round in 0..60 {
            let mut demands = Vec::new();
            for _ in 0..100 {
                let first = random.below(units);
                let count = (1 + random.below(8)).min(units - first);
                let (offset, bytes) = (first * 4096, count * 4096);
                demands.push(match random.below(20) {
                    0 => Demand::Flush,
                    1 => Demand::Discard { offset, bytes },
                    2..5 => Demand::Read { offset, bytes },
                    5 => Demand::Write { offset: offset + 512, bytes: 512, stable: false },
                    6 => Demand::Write { offset, bytes, stable: true },
                    _ => Demand::Write { offset, bytes, stable: false },
                });
            }
            for demand in &demands {
                let units = device.units(&demand.range());
                let units = units.start as usize..units.end as usize;
                match demand {
                    Demand::Write { .. } => is_mapped[units].fill(true),
                    Demand::Discard { .. } => is_mapped[units].fill(false),
                    _ => {}
                }
            }
            // One at a time, so that their effects come in this order.
            serve(&mut device, 1, demands);
            audit(&device, &is_mapped);
            assert!(device.commands.is_empty(), "round {round}");
        }
        let counters = device.counters();
        assert!(counters.copied_units > 1000, "cleaning was at work: {counters:?}");
    }
}

#[test]
fn a_device_that_begins_full_is_as_if_it_had_been_written() {
    let geometry = small().geometry();
    for (order, percent) in
        [(FillOrder::Sequential, 100), (FillOrder::Sequential, 37), (FillOrder::Random, 80)]
    {
        let filled = Filled::new(geometry, &Start { filled_percent: percent, order }, 4);
        let expected = 512 * percent / 100;
        assert!((expected - 8..=expected).contains(&filled.units()), "{}", filled.units());
        for unit in 0..filled.units() {
            let place = filled.place(unit).expect("it is in use");
            let (die, block, slot) = geometry.parts(place);
            assert_eq!(filled.unit(die, block, slot), Some(unit));
        }
        assert_eq!(filled.place(filled.units()), None);
        let live: Vec<u32> = (0..filled.blocks()).map(|block| filled.live(block)).collect();
        let is_random = order == FillOrder::Random;
        let last_is_in_part = percent == 37;
        assert_eq!(live.is_sorted(), !last_is_in_part, "{live:?}");
        assert_eq!(live.iter().sum::<u32>() * geometry.dies, filled.units());
        if is_random {
            assert_eq!((live.len(), live[27]), (28, 8), "all but the free blocks, the last full");
        }
    }
}

/// Write amplification of greedy cleaning under uniform random writes, by the spare factor: the
/// physical capacity over that of the host (Xiang and Kurkoski, An improved analytic expression for
/// write amplification in NAND flash, 2011: a / (a + W(-a exp(-a)))).
fn theory(spare_factor: f64) -> f64 {
    let product = spare_factor * (-spare_factor).exp();
    let mut share = 0.5;
    for _ in 0..10_000 {
        share = product * f64::exp(share);
    }
    spare_factor / (spare_factor - share)
}

#[test]
fn cleaning_writes_as_much_as_theory_says() {
    assert!((theory(1.3) - 2.36).abs() < 0.01, "the example of the paper");
    for (spare_percent, order) in [
        (15, FillOrder::Random),
        (30, FillOrder::Random),
        (30, FillOrder::Sequential),
        (60, FillOrder::Random),
    ] {
        let mut description = small();
        description.flash.dies_per_channel = 1;
        description.flash.blocks_per_die = 200;
        description.flash.pages_per_block = 256;
        let slots = 2 * 200 * 512 * 100 / (100 + spare_percent);
        description.capacity.bytes = slots * 4096;
        let mut device = SolidState::new(&filled(description, order));
        let mut random = SplitMix64::new(spare_percent);
        let mut writes = |count: u64| {
            let random = &mut random;
            (0..count).map(|_| write(random.below(slots))).collect::<Vec<_>>()
        };
        // A device that was filled in sequence has to come into the steady state first.
        let warm_up = if order == FillOrder::Sequential { 4 * slots } else { 0 };
        serve(&mut device, 64, writes(warm_up));
        let before = device.counters();
        serve(&mut device, 64, writes(slots));
        let after = device.counters();
        let host = after.host_units - before.host_units;
        let copied = after.copied_units - before.copied_units;
        let measured = (host + copied) as f64 / host as f64;
        // Of each die, between three and four blocks are free.
        let in_use: u32 = 2 * (400 - 7) * 512 / 2;
        let expected = theory(f64::from(in_use) / slots as f64);
        let ratio = measured / expected;
        let told = format!("{spare_percent} %: {measured}, in theory {expected}");
        assert!((0.98..1.02).contains(&ratio), "{told}");
    }
}

#[test]
fn cleaning_does_not_hold_up_the_host_for_a_whole_block() {
    let mut description = small();
    description.flash.channels = 1;
    description.flash.dies_per_channel = 1;
    description.flash.pages_per_block = 64;
    description.flash.blocks_per_die = 64;
    description.capacity.bytes = 6400 * 4096;
    let mut device = SolidState::new(&filled(description, FillOrder::Random));
    let mut random = SplitMix64::new(1);
    let writes: Vec<_> = (0..4000).map(|_| write(random.below(6400))).collect();
    let mut longest_ns = latencies(&mut device, &writes);
    longest_ns.sort_unstable();
    assert!(device.counters().copied_units > 4000, "{:?}", device.counters());
    // The block alone takes 64 reads and some 40 programs, which is more than 15 milliseconds. A
    // write waits for a few pages, and perhaps for an erase.
    assert!(longest_ns[3999] < 6_000_000, "{:?}", &longest_ns[3990..]);
}

#[test]
fn a_discard_removes_the_debt() {
    let mut description = small();
    description.flash.blocks_per_die = 24;
    let description = filled(description, FillOrder::Random);
    let sequence = || (0..256).map(|unit| write(unit * 2 % 512));
    let mut full = SolidState::new(&description);
    let full_ns = serve(&mut full, 8, sequence());
    let mut empty = SolidState::new(&description);
    serve(&mut empty, 1, [Demand::Discard { offset: 0, bytes: 2048 * KIB }]);
    audit(&empty, &[false; 512]);
    let empty_ns = serve(&mut empty, 8, sequence());
    assert!(full.counters().copied_units > 100, "{:?}", full.counters());
    assert_eq!(empty.counters().copied_units, 0);
    assert!(empty_ns * 3 < full_ns * 2, "{empty_ns} after the discard, {full_ns} without");
    // Only units that are wholly inside are given up.
    let mut device = SolidState::new(&description);
    serve(&mut device, 1, [Demand::Discard { offset: 2048, bytes: 8192 }]);
    let expected: Vec<bool> =
        (0..512).map(|unit| unit != 1 && unit < device.map.filled().units()).collect();
    audit(&device, &expected);
}

#[test]
fn what_happens_does_not_depend_on_when_one_asks() {
    for order in [FillOrder::Sequential, FillOrder::Random] {
        let description = filled(small(), order);
        let mut random = SplitMix64::new(3);
        let mut now_ns = 0;
        let mut arrivals = Vec::new();
        for number in 0..3000 {
            // Bursts and pauses.
            let pause_ns = [10, 1_000_000][usize::from(random.below(8) == 0)];
            now_ns += random.below(pause_ns);
            let unit = random.below(500);
            let demand = match random.below(10) {
                0..4 => read(unit),
                4 => Demand::Write { offset: unit * 4096, bytes: 20_000, stable: true },
                5 => Demand::Flush,
                6 => Demand::Discard { offset: unit * 4096, bytes: 4 * 4096 },
                _ => write(unit),
            };
            arrivals.push((number, demand, now_ns));
        }
        let end_ns = now_ns + 1_000_000_000;
        // Never in between, at every event, and at arbitrary moments.
        let histories = [0, 1, 2].map(|way| {
            let mut device = SolidState::new(&description);
            let (mut all, mut asked_ns) = (Vec::new(), 0);
            for (number, demand, at_ns) in &arrivals {
                while way == 1 && device.next_ns().is_some_and(|next_ns| next_ns <= *at_ns) {
                    device.advance(device.next_ns().unwrap_or_default(), &mut all);
                }
                while way == 2 && asked_ns + 7_777 <= *at_ns {
                    asked_ns += 7_777;
                    device.advance(asked_ns, &mut all);
                }
                device.arrive(*number, *demand, *at_ns);
            }
            device.advance(end_ns, &mut all);
            (all, device.counters())
        });
        assert_eq!(histories[0].0.len(), 3000);
        assert_eq!(histories[0], histories[1]);
        assert_eq!(histories[0], histories[2]);
        assert!(histories[0].0.is_sorted_by_key(|(_, end_ns)| *end_ns));
    }
}

#[test]
fn memory_is_for_what_was_written() {
    let mut description = small();
    description.capacity.bytes = 2_000_000_000_000;
    description.flash.blocks_per_die = 70_000;
    description.flash.pages_per_block = 1024;
    for start in [Start::default(), Start { filled_percent: 100, order: FillOrder::Random }] {
        description.start = start;
        assert_eq!(description.check(), Ok(()));
        let mut device = SolidState::new(&description);
        let units = 64 * 1024;
        let large = |number: u64| Demand::Write {
            offset: 10 * KIB * KIB + number * 64 * 4096,
            bytes: 64 * 4096,
            stable: false,
        };
        serve(&mut device, 4, (0..units / 64).map(large));
        let Counters { host_units, copied_units, .. } = device.counters();
        assert_eq!(host_units, units);
        // What was written is in sequence, what was copied is not.
        let groups = device.map.groups() as u64;
        assert!(groups <= units / 64 + copied_units, "{groups} groups, {copied_units} copied");
        let kept: usize = device.spaces.iter().map(Space::slots_kept).sum();
        // Of a die, two open blocks at most are not full.
        assert!(kept as u64 <= units + copied_units + 8 * 2048, "{kept} slots");
    }
    // What is given up costs nothing any more.
    description.start = Start::default();
    let mut device = SolidState::new(&description);
    serve(&mut device, 4, (0..640).map(write));
    assert_eq!(device.map.groups(), 10);
    serve(&mut device, 4, [Demand::Discard { offset: 0, bytes: description.capacity.bytes }]);
    assert_eq!(device.map.groups(), 0);
}

#[test]
fn times_are_those_worked_out_by_hand() {
    let begin = 10_000;
    // 4096 bytes at 500 MB/s and at 200 MB/s.
    let (host, channel, latency) = (8_192, 20_480, 5_000);
    let program = |units: u64| units * channel + 300_000;
    let stable = |offset, bytes| Demand::Write { offset, bytes, stable: true };
    let found = latencies(
        &mut SolidState::new(&small()),
        &[
            // What was never written is not in flash.
            read(0),
            // Into the buffer, from which it is read again.
            write(0),
            read(0),
            // Its page is programmed with half of it empty.
            Demand::Flush,
            read(0),
            Demand::Flush,
            stable(4096, 4096),
            // A part of a unit: the rest is read first.
            stable(512, 512),
            // A part of a unit that holds nothing.
            stable(40_960, 512),
        ],
    );
    let small_host = 1_024;
    assert_eq!(
        found,
        [
            begin + host + latency,
            begin + host + latency,
            begin + host + latency,
            begin + program(1) + latency,
            begin + 50_000 + channel + host + latency,
            begin + latency,
            begin + host + program(1) + latency,
            begin + small_host + 50_000 + channel + program(1) + latency,
            begin + small_host + program(1) + latency,
        ]
    );
    // A buffer that survives a power cut.
    let mut description = small();
    description.buffer.power_protected = true;
    description.mapping.persist_ns = 1_000;
    let demands = [stable(0, 4096), Demand::Flush];
    let found = latencies(&mut SolidState::new(&description), &demands);
    assert_eq!(found, [begin + host + latency, begin + latency]);
    // No acknowledgement from the buffer.
    description.buffer = WriteBuffer { write_back: false, ..small().buffer };
    let found = latencies(&mut SolidState::new(&description), &[write(0), Demand::Flush]);
    assert_eq!(found, [begin + host + program(1) + 1_000 + latency, begin + latency]);
}

#[test]
fn dies_work_at_once_and_share_their_channel() {
    let large = |bytes| Demand::Write { offset: 0, bytes, stable: true };
    // A page on each die: those of a channel cross it one after another.
    let mut device = SolidState::new(&small());
    let found = latencies(&mut device, &[large(4 * 8192)]);
    assert_eq!(found, [10_000 + 65_536 + 2 * 40_960 + 300_000 + 5_000]);
    let found = latencies(&mut SolidState::new(&small()), &[large(8192)]);
    assert_eq!(found, [10_000 + 16_384 + 40_960 + 300_000 + 5_000]);
    // Two pages on a die are programmed one after another.
    let mut description = small();
    description.flash.channels = 1;
    description.flash.dies_per_channel = 1;
    description.capacity.bytes = 256 * KIB;
    let found = latencies(&mut SolidState::new(&description), &[large(16_384)]);
    assert_eq!(found, [10_000 + 32_768 + 2 * (40_960 + 300_000) + 5_000]);
}

#[test]
fn a_read_overtakes_pages_that_wait_for_the_die() {
    let mut description = small();
    description.flash.channels = 1;
    description.flash.dies_per_channel = 1;
    description.capacity.bytes = 256 * KIB;
    let mut device = SolidState::new(&filled(description, FillOrder::Sequential));
    // Eight pages to be programmed, a third of a millisecond each, and a read.
    device.arrive(1, Demand::Write { offset: 0, bytes: 65_536, stable: true }, 0);
    device.arrive(2, read(60), 400_000);
    let mut completed = Vec::new();
    device.advance(10_000_000, &mut completed);
    assert_eq!(completed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 1]);
    assert!(completed[0].1 < 1_000_000, "it waited for one page: {completed:?}");
}

#[test]
fn forgotten_commands_do_not_complete() {
    let mut device = SolidState::new(&filled(small(), FillOrder::Random));
    for unit in 0..100 {
        device.arrive(unit, write(unit), 0);
        device.arrive(unit + 100, read(unit + 200), 0);
    }
    device.arrive(200, Demand::Flush, 0);
    device.advance(300_000, &mut Vec::new());
    device.forget();
    device.arrive(1000, read(3), 300_000);
    let mut completed = Vec::new();
    device.advance(1_000_000_000, &mut completed);
    assert_eq!(completed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1000]);
}

#[test]
fn a_bad_description_is_named() {
    let bad = |change: fn(&mut SolidStateDescription), expected: &str| {
        let mut description = small();
        assert_eq!(description.check(), Ok(()));
        change(&mut description);
        let problem = description.check().expect_err(expected).to_string();
        assert!(problem.contains(expected), "{problem}");
    };
    bad(|it| it.schema = 2, "schema is 2");
    bad(|it| it.capacity.logical_block_bytes = 1024, "capacity.logical_block_bytes is 1024");
    bad(|it| it.capacity.bytes = 1000, "capacity.bytes is 1000");
    bad(|it| it.capacity.bytes = 4 << 20, "8 blocks a die must be spare");
    bad(|it| it.flash.channels = 0, "flash.channels is 0");
    bad(|it| it.flash.channel_mb_s = 0, "flash.channel_mb_s is 0");
    bad(|it| it.flash.page_bytes = 6000, "flash.page_bytes is 6000");
    bad(|it| it.flash.program_ns = 1 << 40, "flash.program_ns");
    bad(
        |it| (it.flash.blocks_per_die, it.flash.pages_per_block) = (1 << 20, 1 << 16),
        "flash holds",
    );
    bad(|it| it.mapping.unit_bytes = 3000, "mapping.unit_bytes is 3000");
    bad(|it| it.buffer.bytes = 4096, "buffer.bytes is 4096");
    bad(|it| it.cleaning.free_blocks_idle = 3, "cleaning.free_blocks_low is 4");
    bad(|it| it.cleaning.free_blocks_low = 3, "free_blocks_low is 3, and must be at least 4");
    bad(|it| it.start.filled_percent = 101, "start.filled_percent is 101");
}

#[test]
fn places_have_parts() {
    let geometry: Geometry = small().geometry();
    assert_eq!(
        (geometry.dies, geometry.slots, geometry.page_slots, geometry.units),
        (4, 8, 2, 512)
    );
    assert_eq!(geometry.parts(geometry.place(3, 31, 7)), (3, 31, 7));
    assert_eq!(geometry.page(geometry.place(3, 31, 7)), geometry.place(3, 31, 6));
}
