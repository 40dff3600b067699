//! The stripe units of arrays and the parallelism of devices, found by timing reads, beside the
//! truth.

use std::time::Duration;

use upsweep::layers::device::solid_state::SolidStateDescription;
use upsweep::layers::device::{
    DeviceId, Parallelism, Simulated, Stripes, find_parallelism, read_together,
};
use upsweep_sim::random::Random;

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::raid::{Raid, Striping};

const GOALS: &str = "goals-stripes";
const RIGHT: &str = "stripe units and drives that were found and are right";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "lachesis-stripes",
    title: "Stripe units and parallelism, found by timing reads",
    method: "\
        The product's search for stripe units reads pairs of 4 KB at random places and distances \
        from 4 MB to 2 GB, both under way together, and knows only how long each pair took. The \
        arrays are of two to eight simulated drives with their buffers and queues, RAID 0 and \
        RAID 5, in units of 64 KB to 1 MB and of 584 sectors, which is a track of one zone of \
        the Maxtor Atlas 10K III. Drives turn at angles of their own. Single drives and solid- \
        state devices have no unit. On solid-state devices, half full, the search then reads up \
        to 8,192 at a time. What is found is beside the truth: the drives of an array, and for a \
        solid-state device the time of a read by itself times the highest rate that its \
        description allows, of which dies, channels, controller and interface each set a limit. \
        Then the check that a store makes when it opens is made 20 times on each device: with the \
        unit and the ways that are true, with twice the unit, and with one more way; on devices \
        without units with 64 KB on 4 ways.",
    scaling: "A quick run has a third of the arrays.",
    papers: &[GOALS],
    bindings: &[Binding::value(GOALS, RIGHT, RIGHT, Better::More)],
    run,
};

/// Drives of which arrays are made.
const DRIVES: [&str; 2] = ["atlas10k3", "modern-18tb-cmr"];
const KB: u64 = 1024;
/// Bytes of units.
const UNITS: [u64; 4] = [64 * KB, 256 * KB, 1024 * KB, 584 * 512];
/// Drives of an array, and whether it has parity.
const ARRAYS: [(u16, bool); 6] =
    [(2, false), (3, true), (4, false), (5, true), (8, false), (8, true)];
/// Checks of each unit.
const CHECKS: u64 = 20;
/// Bytes of a device that are used.
const USED_BYTES: u64 = 8 << 30;

/// A device.
#[derive(Clone, Copy, Debug)]
enum Case {
    Array { drive: &'static str, drives: u16, parity: bool, unit: u64 },
    Drive(&'static str),
    SolidState(&'static str),
}

impl Case {
    fn bank(self, seed: u64) -> Result<Box<dyn Simulated>, Problem> {
        match self {
            Self::Array { drive, drives, parity, unit } => {
                let bank = banks::full_drives(drive, drives, None, seed)?;
                let turn = unit * u64::from(drives - u16::from(parity));
                let used_bytes = USED_BYTES / turn * turn;
                let striping = Striping {
                    drives,
                    parity,
                    strip_bytes: unit,
                    drive_offset: 0,
                    used_bytes,
                    one_by_one: false,
                };
                Ok(Box::new(Raid::new(bank, striping)))
            }
            Self::Drive(id) => banks::part_of_full_drive(id, USED_BYTES, seed),
            Self::SolidState(id) => banks::solid_state(id, 1, 50, USED_BYTES, seed),
        }
    }

    /// The unit in KB, and the ways.
    fn truth(self, seed: u64) -> Result<(Option<f64>, f64), Problem> {
        Ok(match self {
            Self::Array { drives, unit, .. } => (Some(unit as f64 / KB as f64), f64::from(drives)),
            Self::Drive(_) => (None, 1.0),
            Self::SolidState(id) => {
                let alone_ns = alone_ns(&mut *self.bank(seed)?, seed)?;
                (None, served_together(&banks::solid_state_description(id)?, alone_ns))
            }
        })
    }

    /// The right unit and ways, to check.
    fn right(self) -> Option<(u64, u64)> {
        match self {
            Self::Array { drives, unit, .. } => Some((unit, u64::from(drives))),
            Self::Drive(_) | Self::SolidState(_) => None,
        }
    }

    /// Wrong ones.
    fn wrong(self) -> Vec<(u64, u64)> {
        match self.right() {
            Some((unit, ways)) => vec![(2 * unit, ways), (unit, ways + 1)],
            None => vec![(64 * KB, 4)],
        }
    }

    fn name(self) -> Result<String, Problem> {
        Ok(match self {
            Self::Array { drive, drives, parity, .. } => {
                let kind = if parity { "RAID 5" } else { "RAID 0" };
                format!("{kind} of {drives} {}", banks::description(drive)?.name)
            }
            Self::Drive(id) => banks::description(id)?.name,
            Self::SolidState(id) => banks::solid_state_description(id)?.name,
        })
    }
}

/// Reads of 4 KiB that a solid-state device serves in parallel, by its description and the time of
/// a read by itself. If it maps less than 4 KiB, several dies serve one read.
fn served_together(device: &SolidStateDescription, alone_ns: f64) -> f64 {
    let (flash, host) = (&device.flash, &device.host);
    let ns = |mb_s: f64| 4096.0 * 1e3 / mb_s;
    let (channels, dies) = (f64::from(flash.channels), f64::from(flash.dies_per_channel));
    let (read_ns, command_ns) = (flash.read_ns as f64, host.command_ns as f64);
    let (channel_ns, host_ns) = (ns(flash.channel_mb_s.into()), ns(host.mb_s.into()));
    let pages = (4096.0 / f64::from(device.mapping.unit_bytes)).max(1.0);
    let each_ns = [pages * read_ns / (channels * dies), channel_ns / channels, command_ns, host_ns];
    alone_ns / each_ns.into_iter().fold(0.0, f64::max)
}

/// The mean time of a read of 4 KiB at a random place, by itself.
fn alone_ns(bank: &mut dyn Simulated, seed: u64) -> Result<f64, Problem> {
    const READS: u64 = 1000;
    let blocks = bank.geometry(DeviceId(0)).size_bytes / (4 * KB);
    let mut random = Random::new(seed, "reads alone");
    let begun_us = bank.now_us();
    for _ in 0..READS {
        let offset = random.below(blocks) * 4 * KB;
        read_together(bank, DeviceId(0), &[offset], 4096)
            .map_err(|error| Problem::Simulation(format!("a read alone: {error}")))?;
    }
    Ok((bank.now_us() - begun_us) as f64 * 1e3 / READS as f64)
}

/// How often checks of these units and ways hold, and the seconds that one takes.
fn check(case: Case, units: &[(u64, u64)], seed: u64) -> Result<(u64, f64), Problem> {
    let mut bank = case.bank(seed)?;
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let mut held = 0;
    for &(unit_bytes, ways) in units {
        let stripes = Stripes { unit_bytes, ways, confidence: 1.0 };
        for _ in 0..CHECKS {
            let holds = stripes.check_on(&mut *bank, DeviceId(0), now);
            let holds = holds
                .map_err(|error| Problem::Simulation(format!("a check of stripes: {error}")))?;
            held += u64::from(holds);
        }
    }
    let checks = CHECKS * units.len().max(1) as u64;
    Ok((held, now().as_secs_f64() / checks as f64))
}

fn find(case: Case, seed: u64) -> Result<Found, Problem> {
    let mut bank = case.bank(seed)?;
    let geometry = bank.geometry(DeviceId(0));
    let begun_us = bank.now_us();
    let read = |offsets: &[u64], bytes: u64| {
        let from_us = bank.now_us();
        read_together(&mut *bank, DeviceId(0), offsets, bytes as usize)?;
        Ok(Duration::from_micros(bank.now_us() - from_us))
    };
    let found = find_parallelism(&geometry, seed, read)
        .map_err(|error| Problem::Simulation(format!("the search for stripes: {error}")))?;
    let seconds = (bank.now_us() - begun_us) as f64 / 1e6;
    let right = case.right().map(|right| check(case, &[right], seed)).transpose()?;
    let (held_wrongly, _) = check(case, &case.wrong(), seed)?;
    Ok(Found { found, seconds, right, held_wrongly })
}

/// What is found of a device.
struct Found {
    found: Parallelism,
    seconds: f64,
    /// How many checks of the right unit hold, and the seconds that one takes.
    right: Option<(u64, f64)>,
    /// How many checks of wrong ones hold.
    held_wrongly: u64,
}

fn cases(scale: &Scale) -> Vec<Case> {
    let mut arrays = Vec::new();
    for drive in DRIVES {
        for (drives, parity) in ARRAYS {
            arrays.extend(UNITS.map(|unit| Case::Array { drive, drives, parity, unit }));
        }
    }
    let arrays = arrays.into_iter().step_by(scale.pick(3, 1));
    let drives = banks::ids().map(Case::Drive);
    let solid_state = banks::solid_state_ids().map(Case::SolidState);
    arrays.chain(drives).chain(solid_state).collect()
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let cases = cases(scale);
    let found = progress.each(&cases, |case| find(*case, scale.seed))?;
    let (mut rows, mut arrays, mut right, mut none, mut false_units) = (Vec::new(), 0, 0, 0, 0);
    for (case, all) in cases.iter().zip(&found) {
        let Found { found, seconds, .. } = all;
        let (unit, ways) = case.truth(scale.seed)?;
        let found_unit = found.stripes.map(|stripes| stripes.unit_bytes as f64 / KB as f64);
        if unit.is_some() {
            arrays += 1;
            right += u64::from(found_unit == unit && found.reads == Some(ways));
            none += u64::from(found_unit.is_none());
        } else {
            false_units += u64::from(found_unit.is_some());
        }
        let or_none = |number: Option<f64>| number.map_or("none".into(), Cell::Number);
        rows.push(vec![
            case.name()?.as_str().into(),
            or_none(unit),
            or_none(found_unit),
            Cell::Number(ways),
            or_none(found.reads),
            Cell::Number(found.probes as f64),
            Cell::Number(*seconds),
            or_none(all.right.map(|(held, _)| held as f64)),
            or_none(all.right.map(|(_, seconds)| seconds)),
            Cell::Number(all.held_wrongly as f64),
        ]);
    }
    let mut outcome = Outcome::default();
    let answers = (arrays - none).max(1) + false_units;
    outcome.value(RIGHT, 100.0 * right as f64 / answers as f64, "%");
    outcome.finding(format!(
        "Of {arrays} arrays, unit and drives are found as they are in {right}, and no unit is \
         found in {none}. Of {} devices without units, one is found in {false_units}.",
        cases.len() as u64 - arrays
    ));
    outcome.tables.push(Table {
        name: "table".into(),
        title: "What is found, beside the truth".into(),
        paper: None,
        keys: 1,
        columns: [
            "device",
            "unit [KB]",
            "found [KB]",
            "reads in parallel",
            "found",
            "reads",
            "time [s]",
            "checks that hold, of 20",
            "time of one [s]",
            "wrong ones that hold",
        ]
        .map(Column::own)
        .into(),
        rows,
    });
    outcome.caveat(&[], LAYOUT);
    Ok(outcome)
}

const LAYOUT: &str = "\
    The simulated RAID 5 puts data in turn on each drive. Other layouts of parity break the turns, \
    and were not tried. Nothing else used the arrays.";
