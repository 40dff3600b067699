//! Finds the stripe unit of an array of drives, and how many reads a device serves in parallel, by
//! timing reads that are under way together.
//!
//! 1. Two reads together take longer if one drive has to serve both. In an array of `ways` drives,
//!    with data in units in turn on each, their places say whether they meet on one. That holds for
//!    RAID 0, and for RAID 5 if data begins behind the parity of each stripe.
//! 2. So pairs at random places are timed, and each unit and number of ways is held against the
//!    times. What counts is whether a pair meets beyond how likely that is at its distance: on one
//!    drive, too, times depend on the distance, by the seek and by the turn. With errors that are
//!    normal, the log of the likelihood against no dependence at all is half the square of the
//!    correlation's score. No dependence and all units and ways together have the same weight
//!    before.
//! 3. If one is nearly certain, it is the answer; after [`PAIRS_MAX`] pairs, that no boundary was
//!    found.
//! 4. Where reads take no mechanical time, ever more of them are under way together until the rate
//!    no longer rises. Its rise is the number of reads that are served in parallel. A drive also
//!    gains from a choice of reads, so that its rise says nothing.
//!
//! Distances are longer than drives read ahead. Nothing is written. The two attributes are those of
//! Lachesis (section 3.3).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::SplitMix64;
use super::{DeviceError, DeviceId, Devices, Geometry, read_together};

/// Bytes of a read.
const READ_BYTES: u64 = 4096;
/// Shortest distance of a pair, more than a drive reads ahead.
const DISTANCE_MIN: u64 = 4 << 20;
/// Distances are up to so many bytes longer, or a quarter of the device.
const DISTANCES_MAX: u64 = 4 << 30;
/// Fewest, of several turns of the longest unit.
const DISTANCES_MIN: u64 = 256 << 20;
/// Units that are looked for, and the steps between them.
const UNIT_BYTES: (u64, u64) = (16 << 10, 2 << 20);
const UNIT_STEP: u64 = 4096;
/// Ways that are looked for.
const WAYS: (u64, u64) = (2, 16);
/// Pairs after which the times are looked at.
const PAIRS: usize = 1000;
/// Pairs after which the search gives up.
const PAIRS_MAX: usize = 6000;
/// Pairs after which a check looks at the times, first and last; it looks whenever their number has
/// doubled.
const CHECKED_PAIRS: (usize, usize) = (100, 800);
/// Standard errors by which the mean time of pairs on one drive is above that of pairs on two, if a
/// stripe unit is that of a device; and fewer than which it may be after twice the first pairs.
/// By chance it is four of them above in 3 of 100,000 looks.
const CHECK_SCORES: (f64, f64) = (4.0, 0.5);
/// A read that takes longer than this on average, in seconds, is mechanical.
const MECHANICAL_S: f64 = 1e-3;
/// Most reads under way together: so many that those of the part that gets most of them take little
/// longer than those of others.
const TOGETHER_MAX: usize = 8192;
/// Times that as many reads are timed.
const REPEATS: usize = 4;

/// A stripe unit that shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stripes {
    /// Bytes of a unit, a multiple of 4,096; the first one begins at byte 0.
    pub unit_bytes: u64,
    /// Drives, or other parts, that serve reads in parallel.
    pub ways: u64,
    /// How certain both are against all others that were looked for, from 0.99 to 1.
    pub confidence: f64,
}

impl Stripes {
    /// A unit is an answer, and used, if it is at least so certain.
    pub const CONFIDENCE_MIN: f64 = 0.99;

    /// Whether the unit and the ways are those of a device that nothing else uses. Two reads are
    /// under way together, half a unit more than whole turns of all drives apart, so that half of
    /// these pairs meet on a drive, whatever their distance; and they have to take longer. `read`
    /// is as in [`find_parallelism`]. Nothing is read of a device that is too short for this.
    /// Cost: 100 to 800 pairs of reads, the fewer the clearer it is: on simulated arrays a second
    /// with short queues, and six at most; on a single drive, which has no units, four to 18.
    ///
    /// # Errors
    /// A read failed: look at the device.
    pub fn check(
        &self,
        geometry: &Geometry,
        seed: u64,
        mut read: impl FnMut(&[u64], u64) -> Result<Duration, DeviceError>,
    ) -> Result<bool, DeviceError> {
        let Self { unit_bytes, ways, .. } = *self;
        let read_bytes = READ_BYTES.max(u64::from(geometry.logical_block_bytes));
        let turn = unit_bytes.saturating_mul(ways);
        let distances = (geometry.size_bytes / 4).min(DISTANCES_MAX);
        if unit_bytes < 4 * read_bytes || ways < WAYS.0 || turn > distances {
            return Ok(false);
        }
        let mut random = SplitMix64::new(seed);
        let half = unit_bytes / 2 / read_bytes * read_bytes;
        let (mut met, mut apart) = (Vec::new(), Vec::new());
        let mut look_at = CHECKED_PAIRS.0;
        for pairs in 1..=CHECKED_PAIRS.1 {
            let turns = DISTANCE_MIN.div_ceil(turn) + random.below(distances / turn);
            let distance = turns * turn + half;
            let Some(room) = geometry.size_bytes.checked_sub(distance + read_bytes) else {
                return Ok(false);
            };
            let first = random.below(room / read_bytes) * read_bytes;
            let seconds = read(&[first, first + distance], read_bytes)?.as_secs_f64();
            let is_met = first % unit_bytes + half < unit_bytes;
            if is_met { &mut met } else { &mut apart }.push(seconds);
            if pairs == look_at {
                let score = score(&met, &apart);
                if score >= CHECK_SCORES.0 {
                    return Ok(true);
                }
                if pairs > CHECKED_PAIRS.0 && score < CHECK_SCORES.1 {
                    return Ok(false);
                }
                look_at *= 2;
            }
        }
        Ok(false)
    }

    /// As [`Stripes::check`], on a device of a bank; `now` returns the time since any fixed moment.
    ///
    /// # Errors
    /// A read failed: look at the device.
    pub fn check_on(
        &self,
        devices: &mut dyn Devices,
        device: DeviceId,
        now: impl Fn() -> Duration,
    ) -> Result<bool, DeviceError> {
        let geometry = devices.geometry(device);
        let seed = now().as_nanos() as u64;
        self.check(&geometry, seed, |offsets, bytes| {
            let begin = now();
            read_together(devices, device, offsets, bytes as usize)?;
            Ok(now() - begin)
        })
    }
}

/// By how many standard errors the first times are longer on average.
fn score(longer: &[f64], shorter: &[f64]) -> f64 {
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let (first, second) = (mean(longer), mean(shorter));
    let of = |times: &[f64], mean: f64| {
        let squares = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
        let count = times.len() as f64;
        squares / (count * (count - 1.0)).max(1.0)
    };
    let error = (of(longer, first) + of(shorter, second)).sqrt();
    (first - second) / error.max(f64::MIN_POSITIVE)
}

/// What shows of how a device serves reads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parallelism {
    /// The stripe unit; `None` if no boundary was found.
    pub stripes: Option<Stripes>,
    /// Small reads at random places that are served in parallel; `None` if that does not show.
    pub reads: Option<f64>,
    /// Reads that it took.
    pub probes: u64,
}

/// A pair of reads: their places, in bytes, and the time until both were complete: first in
/// seconds, then as a score.
#[derive(Clone, Copy, Debug)]
struct Pair {
    first: u64,
    second: u64,
    time: f64,
}

/// Looks for the stripe unit and the parallelism of a device that nothing else uses. `read` gets
/// the first bytes of ranges and their length, reads all of them together, and says how long that
/// took. Which are read follows from the seed. Nothing is read, and nothing found, on a device
/// shorter than 1 GiB.
/// Cost: 2,000 to 12,000 reads, two at a time: on simulated arrays 6 to 17 s, and up to 135 s on a
/// single drive, where none shows. On devices without moving parts 65,532 more. Processor time for
/// each pair and each unit and number of ways that is looked for, some seconds in all.
///
/// # Errors
/// A read failed: look at the device.
pub fn find_parallelism(
    geometry: &Geometry,
    seed: u64,
    mut read: impl FnMut(&[u64], u64) -> Result<Duration, DeviceError>,
) -> Result<Parallelism, DeviceError> {
    let mut random = SplitMix64::new(seed);
    let block_bytes = u64::from(geometry.logical_block_bytes);
    let mut found = Parallelism::default();
    let distances = (geometry.size_bytes / 4).min(DISTANCES_MAX);
    if distances < DISTANCES_MIN {
        return Ok(found);
    }
    let read_bytes = READ_BYTES.max(block_bytes);
    let mut read = |offsets: &[u64]| {
        found.probes += offsets.len() as u64;
        Ok(read(offsets, read_bytes)?.as_secs_f64())
    };
    let places = geometry.size_bytes / read_bytes;
    let mut pairs: Vec<Pair> = Vec::new();
    let mut stripes = None;
    while stripes.is_none() && pairs.len() < PAIRS_MAX {
        for _ in 0..PAIRS {
            let distance = (DISTANCE_MIN + random.below(distances)) / read_bytes;
            let first = random.below(places - distance);
            let seconds = read(&[first * read_bytes, (first + distance) * read_bytes])?;
            let [first, second] = [first, first + distance].map(|place| place * read_bytes);
            pairs.push(Pair { first, second, time: seconds });
        }
        stripes = stripes_of(&pairs);
    }
    let mean_s = pairs.iter().map(|pair| pair.time).sum::<f64>() / pairs.len() as f64;
    let reads = match stripes {
        Some(Stripes { ways, .. }) => Some(ways as f64),
        None if mean_s > MECHANICAL_S => None,
        None => Some(rise(&mut random, places, read_bytes, &mut read)?),
    };
    found.stripes = stripes;
    found.reads = reads;
    Ok(found)
}

/// How much the rate rises with reads under way together.
fn rise(
    random: &mut SplitMix64,
    places: u64,
    read_bytes: u64,
    read: &mut impl FnMut(&[u64]) -> Result<f64, DeviceError>,
) -> Result<f64, DeviceError> {
    let (mut alone_s, mut highest, mut together) = (0.0, 1.0_f64, 1);
    while together <= TOGETHER_MAX {
        let mut seconds = 0.0;
        for _ in 0..REPEATS {
            let offsets: Vec<u64> =
                (0..together).map(|_| random.below(places) * read_bytes).collect();
            seconds += read(&offsets)?;
        }
        let each_s = seconds / (REPEATS * together) as f64;
        if together == 1 {
            alone_s = each_s;
        }
        highest = highest.max(alone_s / each_s.max(f64::MIN_POSITIVE));
        together *= 2;
    }
    Ok(highest)
}

/// Whether two reads meet on one of so many ways, less how likely that is at their distance.
fn meets(pair: &Pair, unit_bytes: u64, ways: u64) -> f64 {
    let units = pair.second / unit_bytes - pair.first / unit_bytes;
    let is_met = units.is_multiple_of(ways);
    let turn = unit_bytes * ways;
    let beyond = (pair.second - pair.first) % turn;
    let off = beyond.min(turn - beyond).min(unit_bytes);
    f64::from(u8::from(is_met)) - (1.0 - off as f64 / unit_bytes as f64)
}

/// Twice the log of the likelihood of a unit and ways against that of no dependence: the square of
/// a normal score, if longer times go with meeting.
fn evidence(pairs: &[Pair], unit_bytes: u64, ways: u64) -> f64 {
    let (mut sum, mut squares, mut product) = (0.0, 0.0, 0.0);
    for pair in pairs {
        let meets = meets(pair, unit_bytes, ways);
        sum += meets;
        squares += meets * meets;
        product += meets * pair.time;
    }
    let spread = squares - sum * sum / pairs.len() as f64;
    if product > 0.0 && spread > 0.0 { product * product / spread } else { 0.0 }
}

/// The unit and ways that these pairs show; `None` if none is certain enough.
fn stripes_of(pairs: &[Pair]) -> Option<Stripes> {
    let count = pairs.len() as f64;
    let mean = pairs.iter().map(|pair| pair.time).sum::<f64>() / count;
    let variance = pairs.iter().map(|pair| (pair.time - mean).powi(2)).sum::<f64>() / count;
    let spread = variance.sqrt().max(f64::MIN_POSITIVE);
    let score = |pair: &Pair| Pair { time: (pair.time - mean) / spread, ..*pair };
    let scores: Vec<Pair> = pairs.iter().map(score).collect();
    let units = UNIT_BYTES.0 / UNIT_STEP..=UNIT_BYTES.1 / UNIT_STEP;
    let all: Vec<(f64, u64, u64)> = units
        .flat_map(|steps| (WAYS.0..=WAYS.1).map(move |ways| (steps * UNIT_STEP, ways)))
        .map(|(unit_bytes, ways)| (evidence(&scores, unit_bytes, ways), unit_bytes, ways))
        .collect();
    let best = all.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let weight = |evidence: f64| ((evidence - best.0) / 2.0).exp();
    let weights: f64 = all.iter().map(|one| weight(one.0)).sum();
    let confidence = 1.0 / (weights + all.len() as f64 * weight(0.0));
    let (_, unit_bytes, ways) = best;
    (confidence >= Stripes::CONFIDENCE_MIN).then_some(Stripes { unit_bytes, ways, confidence })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        size_bytes: 4 << 30,
        logical_block_bytes: 4096,
        physical_block_bytes: 4096,
        rotational: false,
        growable: false,
    };

    /// What is found on a device that serves a read at an offset with one of its parts, one after
    /// another, each in a time that `service_us` says with a random number.
    fn found(
        part: impl Fn(u64) -> u64,
        service_us: impl Fn(&mut SplitMix64) -> u64,
    ) -> Parallelism {
        let mut random = SplitMix64::new(11);
        let read = |offsets: &[u64], _| {
            let mut busy_us = std::collections::BTreeMap::new();
            for offset in offsets {
                *busy_us.entry(part(*offset)).or_insert(0) += service_us(&mut random);
            }
            Ok(Duration::from_micros(busy_us.into_values().max().unwrap_or(0)))
        };
        find_parallelism(&GEOMETRY, 1, read).expect("no read fails")
    }

    /// A drive: a seek and a part of a turn.
    fn drive_us(random: &mut SplitMix64) -> u64 {
        2000 + random.below(4000) + random.below(6000)
    }

    #[test]
    fn unit_and_ways_of_an_array_are_found() {
        for (unit_kb, ways) in [(64, 2), (64, 5), (256, 3), (1024, 2), (1024, 4), (292, 4)] {
            let found = found(|offset| offset / (unit_kb << 10) % ways, drive_us);
            let stripes = found.stripes.expect("it shows");
            assert_eq!((stripes.unit_bytes >> 10, stripes.ways), (unit_kb, ways), "{found:?}");
            assert!(stripes.confidence >= Stripes::CONFIDENCE_MIN, "{found:?}");
            assert_eq!(found.reads, Some(ways as f64));
            assert!(found.probes <= 2 * PAIRS_MAX as u64, "{found:?}");
        }
    }

    #[test]
    fn a_drive_has_no_unit_and_does_not_say_how_many_reads_it_serves() {
        let found = found(|_| 0, drive_us);
        assert_eq!((found.stripes, found.reads), (None, None));
    }

    /// The second read waits for a part of a turn that its distance says.
    #[test]
    fn times_that_depend_on_the_distance_alone_show_no_unit() {
        for track_kb in [256, 1102, 2204] {
            let mut random = SplitMix64::new(3);
            let read = |offsets: &[u64], _| {
                let distance = offsets.last().unwrap_or(&0) - offsets.first().unwrap_or(&0);
                let turn_us = 8000 * (distance % (track_kb << 10)) / (track_kb << 10);
                Ok(Duration::from_micros(drive_us(&mut random) + turn_us))
            };
            let found = find_parallelism(&GEOMETRY, 1, read).expect("no read fails");
            assert_eq!(found.stripes, None, "{found:?}");
        }
    }

    #[test]
    fn parts_without_an_order_have_no_unit_but_serve_reads_in_parallel() {
        let part = |offset: u64| SplitMix64::new(offset / 4096).below(16);
        let found = found(part, |_| 80);
        assert_eq!(found.stripes, None);
        let reads = found.reads.expect("it shows");
        assert!((14.0..=16.0).contains(&reads), "{reads}");
    }

    /// Whether a unit and ways are confirmed on a device that serves a read at an offset with one
    /// of its parts, one after another; for each of some seeds.
    fn checked(
        (unit_kb, ways): (u64, u64),
        part: impl Fn(u64) -> u64,
        service_us: impl Fn(&mut SplitMix64) -> u64,
    ) -> Vec<bool> {
        let stripes = Stripes { unit_bytes: unit_kb << 10, ways, confidence: 1.0 };
        let of_seed = |seed| {
            let mut random = SplitMix64::new(seed + 1000);
            let read = |offsets: &[u64], _| {
                let mut busy_us = std::collections::BTreeMap::new();
                for offset in offsets {
                    *busy_us.entry(part(*offset)).or_insert(0) += service_us(&mut random);
                }
                Ok(Duration::from_micros(busy_us.into_values().max().unwrap_or(0)))
            };
            stripes.check(&GEOMETRY, seed, read).expect("no read fails")
        };
        (0..50).map(of_seed).collect()
    }

    #[test]
    fn the_unit_of_an_array_is_confirmed_and_no_other() {
        let array = |unit_kb: u64, ways| move |offset: u64| offset / (unit_kb << 10) % ways;
        for (unit_kb, ways) in [(64, 2), (64, 5), (256, 3), (1024, 4), (292, 4)] {
            let right = checked((unit_kb, ways), array(unit_kb, ways), drive_us);
            assert!(right.iter().all(|holds| *holds), "{unit_kb} KiB, {ways} ways");
            let later = |offset| array(unit_kb, ways)(offset + (unit_kb << 9));
            let wrong = [
                checked((unit_kb, ways), later, drive_us),
                checked((2 * unit_kb, ways), array(unit_kb, ways), drive_us),
                checked((unit_kb, ways + 1), array(unit_kb, ways), drive_us),
                checked((unit_kb + 4, ways), array(unit_kb, ways), drive_us),
            ];
            for (number, wrong) in wrong.iter().enumerate() {
                assert!(!wrong.contains(&true), "{unit_kb} KiB, {ways} ways, {number}");
            }
        }
    }

    #[test]
    fn no_unit_is_confirmed_where_there_is_none() {
        for stripes in [(64, 2), (256, 3), (1024, 16)] {
            assert!(!checked(stripes, |_| 0, drive_us).contains(&true), "{stripes:?}");
            let spread = |offset: u64| SplitMix64::new(offset / 4096).below(16);
            assert!(!checked(stripes, spread, |_| 80).contains(&true), "{stripes:?}");
        }
    }

    #[test]
    fn a_unit_that_no_device_can_have_is_not_looked_for() {
        for (unit_bytes, ways) in [(0, 4), (8192, 4), (1 << 20, 1), (1 << 20, 0), (u64::MAX, 2)] {
            let stripes = Stripes { unit_bytes, ways, confidence: 1.0 };
            let found = stripes.check(&GEOMETRY, 1, |_, _| panic!("nothing is read"));
            assert_eq!(found, Ok(false));
        }
    }

    #[test]
    fn a_short_device_is_not_read() {
        let geometry = Geometry { size_bytes: 512 << 20, ..GEOMETRY };
        let found = find_parallelism(&geometry, 1, |_, _| panic!("nothing is read"));
        assert_eq!(found, Ok(Parallelism::default()));
    }

    #[test]
    fn what_is_found_can_be_kept() {
        let stripes = Stripes { unit_bytes: 65536, ways: 4, confidence: 0.995 };
        let found = Parallelism { stripes: Some(stripes), reads: Some(4.0), probes: 2000 };
        let text = serde_json::to_string(&found).expect("it is data");
        assert_eq!(serde_json::from_str::<Parallelism>(&text).expect("it is the same"), found);
    }
}
