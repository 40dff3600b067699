//! Finding the beginning and the end of a log after a crash.
//!
//! **The chain.** (epoch, number) names at most one batch ever written: a run numbers its batches
//! once, and epochs never repeat. A batch names the one before it by place and epoch, so all
//! batches ever written form a tree under the empty log. A batch also carries the cursors of all
//! devices, so the places where its successor can be follow from it alone: at the cursor, at the
//! start of the next segment, or, if the batch says that its run skips, at one of the next pages
//! behind the cursor in the same segment. Recovery walks from the beginning, see below, to
//! successors that are whole, until there is none: the *tip*.
//!
//! **Why stale batches never reappear.** When a run takes over at a tip, the tip has no whole
//! successor. A successor whose header reached the device but whose records did not is wiped then
//! ([`LogReader::to_log`](super::LogReader::to_log)), before anything is written, so later writes
//! cannot complete it by accident: no run writes a header of an older epoch again. (A run's first
//! batch is at a cursor, so that what was torn behind one cannot be missed.) Hence a
//! successor of that tip that is whole later was written by a later run, and a batch of the cut-off
//! tail descends from one that never becomes whole. By induction every recovery finds a
//! continuation of what the previous one found, after any number of crashes, and whatever batches
//! of cut-off tails remain. It follows that epochs do not fall along the chain: the header check
//! tests it. External requirements: a write that a power cut lost does not land later, and
//! `config.epoch` is durable before the first append. Payloads that deliberately imitate batches
//! are not defended against.
//!
//! **Why recovered batches are kept.** A whole batch that no later one attests may be readable and
//! yet not be stable: its write, or a flush, failed, and the process continues without a power cut.
//! [`LogReader::to_log`](super::LogReader::to_log) rewrites these batches before anything else,
//! each in its place and with the same bytes, so that a power cut in between does no harm.
//! Otherwise the next batches would attest what a later power cut may destroy.
//!
//! **The beginning.** `replay_from = 1` starts before batch 1. Otherwise the record before it was
//! durable once, and is in the ring unless `replay_from` is durable too and a later record took its
//! place, which may leave its header where it was. The chain may begin with the batch that has the
//! record before, or with any that *begins with* `replay_from`: that has it as its first record, or
//! no record and stands before it. Of all of these, the ones of the highest epoch count, and of
//! those, the one with the lowest number.
//!
//! That one is in the chain, and everything that follows it there is in the ring. If a run has
//! written `replay_from` durably, no later run writes such batches, all those of that run are in
//! the chain, and none of them is overwritten before `replay_from` is released. If none has,
//! nothing after the record before is overwritten. Those of later runs follow it in the chain,
//! except for batches beyond a gap: a dummy was lost, one after it arrived. If the next run
//! recovers from an earlier record, it ends the chain before the gap. So that no later one begins
//! the chain beyond it, it wipes such batches ([`LogReader::to_log`](super::LogReader::to_log))
//! before it writes anything. They are after the cursors of the tip, where the damage is looked for
//! that is described below.
//!
//! The choice must not depend on what else is in the ring, because a run may overwrite all before
//! the batch that it has chosen, and the next one must not choose an earlier one. The first pages
//! of all segments (few) are read. A binary search over them would need numbers that rise around
//! the ring, and cut-off tails break that. Every segment is searched that may hold one of the
//! batches: its first one is not younger, and the next segment does not prove that they are not
//! here. (A segment that looks unused is searched beside used ones, and at the start of a ring: the
//! device may have lost the write of its first page.) That proof is a first batch that begins
//! before `replay_from` and is *attested*: one of the same epoch states that it is durable. This
//! usually leaves one or two segments, and of each ring the first unused one. If the next segment
//! begins with `replay_from` itself, that is no proof: dummies before that may be here.
//!
//! **Damage.** A missing batch is the end, unless a batch exists that attests it as durable, or
//! that was written by a later run over a number which the chain has: then it is an error. Evidence
//! is searched in all first pages, and after the cursor of each device in every page of the rest of
//! the segment, of the next one, and on up to a segment that the chain cannot have reached
//! according to its first page. (The next one is read in any case, for a device that lost a write
//! which it had confirmed, and for batches beyond a gap.) Without evidence, damage to the youngest
//! batches, those whose durability no later batch attests, cannot be distinguished from a torn
//! tail, and ends the log.

use std::collections::VecDeque;
use std::ops::Range;

use super::format::BatchHeader;
use super::media::{Head, Media, Tip};
use super::reader::{Found, LogReader};
use super::{LogConfig, Seq};
use crate::device::Devices;
use crate::error::Error;

/// Finds the end of the log and returns a reader positioned before the record `replay_from`.
///
/// `replay_from` is the first sequence that the caller needs: at least the last argument of
/// [`Log::release`](super::Log::release), at most one more than what was durable; 1 for a fresh
/// log. `config` may have any epoch.
///
/// Cost: the first page of every segment, the one or two where `replay_from` is, unused ones beside
/// used ones, everything after `replay_from`, and one to two segments per device. Memory: that of
/// the reader, and the headers in the segments that are searched.
///
/// # Errors
/// [`Error::Damaged`] if a batch that was durable is missing or bad, or if `replay_from` is not
/// found; [`Error::Request`] if the configuration is wrong.
pub fn recover(
    devices: &mut dyn Devices,
    config: &LogConfig,
    replay_from: Seq,
) -> Result<LogReader, Error> {
    config.check()?;
    let replay_from = replay_from.max(Seq::FIRST);
    let mut media = Media::open(devices, config)?;
    let mut seen = Vec::new();
    let first = match replay_from {
        Seq::FIRST => None,
        _ => Some(find_first(&mut media, devices, replay_from, &mut seen)?),
    };
    let mut last_seqs: Vec<Vec<Seq>> = (0..config.regions.len())
        .map(|device| vec![Seq::NONE; media.heads[device].len()])
        .collect();
    let mut tip = Tip::GENESIS;
    let mut reached = match &first {
        Some(header) => Some(*header),
        None => media.child(devices, &tip)?,
    };
    let mut unattested = VecDeque::new();
    while let Some(header) = reached {
        unattested.push_back(header);
        while unattested.pop_front_if(|earlier| earlier.number <= header.durable).is_some() {}
        let segment = media.offset_of(header.page) / media.segment_bytes();
        last_seqs[usize::from(header.device)][segment as usize] = header.needed_for();
        tip = Tip::of(&header);
        reached = media.child(devices, &tip)?;
    }
    if replay_from > tip.last_seq.next() {
        return Err(not_found(&media, replay_from));
    }
    let seen = check_end(&mut media, devices, &tip, seen)?;
    let epoch_seen = seen.iter().map(|header| header.epoch).fold(tip.link.epoch, u64::max);
    let beyond_gap = beyond_gap(&media, &tip, seen);
    let unattested = unattested.into();
    let found = Found { first, end: tip, last_seqs, unattested, beyond_gap, epoch_seen };
    Ok(LogReader::new(media, replay_from, found))
}

/// Batches beyond a gap after `tip` that a later recovery could take for the first one.
fn beyond_gap(media: &Media, tip: &Tip, seen: Vec<BatchHeader>) -> Vec<BatchHeader> {
    let is_beyond = |header: &BatchHeader| {
        header.first_seq == tip.last_seq.next()
            && header.number > tip.number
            && header.epoch >= tip.link.epoch
            && !tip.precedes(header, &media.config)
    };
    let mut beyond: Vec<_> = seen.into_iter().filter(is_beyond).collect();
    beyond.sort_by_key(|header| (header.epoch, header.number));
    beyond.dedup();
    beyond
}

fn not_found(media: &Media, replay_from: Seq) -> Error {
    let what = format!("log record {replay_from}");
    media.damage(0, 0, &what, "neither it nor the one before is in the log")
}

/// The batch to start from: see the module text.
fn find_first(
    media: &mut Media,
    devices: &mut dyn Devices,
    replay_from: Seq,
    seen: &mut Vec<BatchHeader>,
) -> Result<BatchHeader, Error> {
    for device in 0..media.heads.len() {
        for segment in 0..media.heads[device].len() {
            if may_hold(media, device, segment, replay_from) {
                let start = segment as u64 * media.segment_bytes();
                search(media, devices, device, start..start + media.segment_bytes(), seen)?;
            }
        }
    }
    let holds = |header: &&BatchHeader| {
        let before = header.first_seq < replay_from && header.last_seq().next() >= replay_from;
        before || header.first_seq == replay_from
    };
    let mut found: Vec<_> = seen.iter().filter(holds).copied().collect();
    found.sort_by_key(|header| (std::cmp::Reverse(header.epoch), header.number));
    let mut bad: Option<BatchHeader> = None;
    for header in found {
        // The record before was last written in this epoch.
        if bad.is_some_and(|bad| header.epoch < bad.epoch) {
            break;
        }
        if media.is_whole(devices, &header)? {
            return Ok(header);
        }
        if header.first_seq < replay_from {
            bad = Some(header);
            if header.last_seq() >= replay_from {
                break;
            }
            // None of its records is needed, so another batch may have taken its place in part.
        }
    }
    let Some(bad) = bad else { return Err(not_found(media, replay_from)) };
    let (device, offset) = (usize::from(bad.device), media.offset_of(bad.page));
    let what = format!("log batch {}", bad.number);
    Err(media.damage(device, offset, &what, "bad records"))
}

/// Whether a batch to start from may be in the segment; see the module text.
fn may_hold(media: &Media, device: usize, segment: usize, replay_from: Seq) -> bool {
    let heads = &media.heads[device];
    let is_blank = |segment: usize| heads[segment % heads.len()] == Head::Blank;
    let number = match &heads[segment] {
        // Unused, unless the device has lost the write here: not where the others are unused too.
        Head::Blank => return segment == 0 || !is_blank(segment - 1) || !is_blank(segment + 1),
        Head::Unreadable => return true,
        Head::Batch(head) if head.first_seq > replay_from => return false,
        Head::Batch(head) => head.number,
    };
    let Head::Batch(next) = &heads[(segment + 1) % heads.len()] else { return true };
    let elsewhere =
        next.first_seq < replay_from && next.number > number && is_attested(media, next);
    !elsewhere
}

fn is_attested(media: &Media, head: &BatchHeader) -> bool {
    let attests = |other: &Head| match other {
        Head::Batch(other) => other.epoch == head.epoch && other.durable >= head.number,
        Head::Blank | Head::Unreadable => false,
    };
    media.heads.iter().flatten().any(attests)
}

/// Adds the headers in a part of a ring to `seen`. Looks at every page, because what is left of
/// earlier laps, between batches or where one is damaged, may claim the pages of others.
fn search(
    media: &mut Media,
    devices: &mut dyn Devices,
    device: usize,
    part: Range<u64>,
    seen: &mut Vec<BatchHeader>,
) -> Result<(), Error> {
    for offset in part.step_by(media.page_bytes() as usize) {
        seen.extend(media.peek(devices, device, offset)?);
    }
    Ok(())
}

/// Looks for evidence that the chain does not really end at `tip`, in `seen` and elsewhere; returns
/// all headers that it has seen.
fn check_end(
    media: &mut Media,
    devices: &mut dyn Devices,
    tip: &Tip,
    mut seen: Vec<BatchHeader>,
) -> Result<Vec<BatchHeader>, Error> {
    seen.extend(media.heads.iter().flatten().filter_map(|head| match head {
        Head::Batch(header) => Some(**header),
        Head::Blank | Head::Unreadable => None,
    }));
    for device in 0..media.heads.len() {
        let segments = media.segments(device);
        let mut offset = media.offset_of(tip.cursors[device]);
        let mut entered = 0;
        while entered < segments {
            let segment = offset / media.segment_bytes();
            let inside = !offset.is_multiple_of(media.segment_bytes());
            entered += u64::from(!inside);
            if entered > 1 && !may_be_reached(&media.heads[device][segment as usize], tip) {
                break;
            }
            let end = (segment + 1) * media.segment_bytes();
            search(media, devices, device, offset..end, &mut seen)?;
            offset = end % (segments * media.segment_bytes());
        }
    }
    match seen.iter().find_map(|header| contradiction(media, tip, header)) {
        Some(error) => Err(error),
        None => Ok(seen),
    }
}

/// Whether the chain, had it continued after `tip`, could have reached a segment with this head.
fn may_be_reached(head: &Head, tip: &Tip) -> bool {
    match head {
        Head::Blank => false,
        Head::Unreadable => true,
        Head::Batch(header) => header.number > tip.number && header.epoch >= tip.link.epoch,
    }
}

fn contradiction(media: &Media, tip: &Tip, header: &BatchHeader) -> Option<Error> {
    let missing = tip.number + 1;
    let later_run = header.epoch > tip.link.epoch && header.run_first < missing;
    let was_durable = header.epoch >= tip.link.epoch && header.durable >= missing;
    let mut device = usize::from(tip.link.device.min(header.device));
    let mut page = tip.cursors[device];
    if header.number == missing + 1 {
        (device, page) = (usize::from(header.previous_device), header.previous_page);
    }
    let device = if device < media.heads.len() { device } else { 0 };
    let (what, reason) = match (later_run, was_durable) {
        (true, _) => (format!("log batch {}", header.run_first), "that of a later run is missing"),
        (_, true) => (format!("log batch {missing}"), "not whole, though a later one attests it"),
        _ => return None,
    };
    Some(media.damage(device, media.offset_of(page), &what, reason))
}
