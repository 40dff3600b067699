//! Spills: what they take, what they leave to the sweep, and the outcome of failed ones.

use std::collections::BTreeSet;

use super::ground::{Ground, geometry, space};
use super::{SEGMENT, config};
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::flush::Flushing;
use crate::engine::format::record_format::{CloneRecord, SpaceRecord};
use crate::engine::growth::Growth;
use crate::engine::index::Release;
use crate::engine::io::{IoKind, SpillId};
use crate::engine::jobs::{JobOutput, SpillOutput};
use crate::engine::journal::Publish;
use crate::engine::policy::Figures;
use crate::engine::registry::KeyRange;
use crate::engine::spiller::Spiller;
use crate::engine::{Config, Spilling};

/// The base, and the spills on it, which always run at full pace.
pub(super) struct Spills {
    pub(super) ground: Ground,
    spiller: Spiller,
    growth: Growth,
}

impl Spills {
    fn new() -> Self {
        let config = Config { spilling: Spilling::Always, ..config() };
        let log = geometry(4096 + 16 * SEGMENT, false);
        Self::on(Ground::with(config, geometry(4 << 20, false), log))
    }

    pub(super) fn on(ground: Ground) -> Self {
        let mut spills =
            Self { ground, spiller: Spiller::default(), growth: Growth::new(&[false]) };
        spills.spiller.note_sweep(&spills.ground.base, 0, 100.0);
        spills
    }

    fn can_spill(&self) -> bool {
        self.spiller.can_spill(&self.ground.base, &self.growth)
    }

    /// Spills everything that can be spilled.
    pub(super) fn spill(&mut self) {
        let output = self.gather().expect("updates wait");
        self.spiller.encoded(output);
        self.write();
        self.flush();
        self.publish();
    }

    /// Some blocks with an image, each with a waiting update.
    pub(super) fn with_waiting() -> (Self, Vec<BlockId>) {
        let mut spills = Self::new();
        let blocks = spills.ground.fill(600);
        for block in &blocks {
            let key = spills.ground.key_of(*block);
            spills.ground.add(&key, 1);
        }
        (spills, blocks)
    }

    /// Starts a spill of everything that can be spilled; its job is done, if there is one.
    fn gather(&mut self) -> Option<SpillOutput> {
        let figures = Figures { spills_for_memory: true, can_spill: true, ..Figures::default() };
        let (base, mut jobs) = (&mut self.ground.base, Vec::new());
        for _ in 0..10 {
            if self.spiller.pump(base, &self.growth, &mut jobs) && jobs.is_empty() {
                self.spiller.start_if_due(base, &self.growth, figures, &mut jobs);
            }
        }
        assert!(jobs.len() <= 1, "the blocks are few");
        let output = jobs.pop().map(|job| job.run(|| {}))?;
        let JobOutput::Spill(output) = output else { panic!("nothing is swept") };
        Some(output)
    }

    fn pump(&mut self) {
        let mut jobs = Vec::new();
        self.spiller.pump(&mut self.ground.base, &self.growth, &mut jobs);
        assert!(jobs.is_empty());
    }

    /// Ends the writes of a spill, and the subsequent flush.
    fn write(&mut self) {
        self.pump();
        let mut written = 0;
        for request in self.ground.requests() {
            let kind = self.ground.base.io.completed(request.token).kind;
            let IoKind::SpillWrite(spill) = kind else { panic!("{kind:?}") };
            let completion = self.ground.perform(request);
            self.spiller.write_done(&mut self.ground.base, spill, &completion);
            written += 1;
        }
        assert!(written > 0, "something is to be written");
    }

    fn flush(&mut self) {
        self.ground.pump_flushes();
        let request = self.ground.request();
        self.ground.end(request);
        for who in self.ground.base.flushes.device_done(true) {
            let Flushing::Spill(spill) = who else { panic!("{who:?}") };
            self.spiller.flushed(&mut self.ground.base, spill);
        }
    }

    fn publish(&mut self) {
        for (seq, publish) in self.ground.publish() {
            let Publish::Spill(spill) = publish else { panic!("nothing is swept") };
            self.spiller.publish(&mut self.ground.base, spill, seq, Release::Now);
        }
    }

    /// Updates that wait in memory, and in spill segments.
    fn waiting(&self) -> (u64, u64) {
        let index = &self.ground.base.index;
        (index.waiting_entries(), index.spilled_entries())
    }

    fn is_any_pinned(&self, blocks: &[BlockId]) -> bool {
        blocks.iter().any(|id| self.ground.base.index.directory().block(*id).pinned)
    }
}

#[test]
fn what_is_spilled_is_logged_when_it_is_stable_and_given_up_when_that_is_durable() {
    let (mut spills, blocks) = Spills::with_waiting();
    let (count, last) = (blocks.len() as u64, spills.ground.base.journal.last());
    let output = spills.gather().expect("updates wait");
    assert!(blocks.iter().all(|block| spills.spiller.has(*block)));
    assert!(spills.is_any_pinned(&blocks), "no run takes them meanwhile");
    spills.spiller.encoded(output);
    spills.write();
    assert_eq!(spills.ground.base.journal.last(), last, "written is not stable");
    spills.flush();
    assert_eq!(spills.ground.base.journal.last(), last.next());
    assert_eq!(spills.waiting(), (count, 0), "its record is not durable");
    spills.publish();
    assert_eq!(spills.waiting(), (0, count));
    assert!(spills.spiller.is_empty() && !spills.is_any_pinned(&blocks));
    assert_eq!(spills.ground.base.index.queue_bytes(), 0, "the memory is there again");
    let segments = &spills.ground.base.index.spill_segments;
    assert_eq!((segments.entries(), segments.first_seq().is_some()), (count, true));
}

#[test]
fn what_comes_while_a_spill_is_on_its_way_waits_in_memory() {
    let (mut spills, blocks) = Spills::with_waiting();
    let output = spills.gather().expect("updates wait");
    let key = spills.ground.key_of(blocks[1]);
    spills.ground.add(&key, 1);
    spills.spiller.encoded(output);
    spills.write();
    spills.flush();
    spills.publish();
    assert_eq!(spills.waiting(), (1, blocks.len() as u64));
}

#[test]
fn updates_wait_again_when_there_is_no_room_for_their_spill_segments() {
    let (mut spills, blocks) = Spills::with_waiting();
    let before = (spills.waiting(), spills.ground.base.index.queue_bytes());
    let output = spills.gather().expect("updates wait");
    spills.ground.take_space_but(0);
    spills.spiller.encoded(output);
    spills.pump();
    assert!(spills.spiller.is_empty());
    assert!(spills.ground.requests().is_empty());
    assert_eq!((spills.waiting(), spills.ground.base.index.queue_bytes()), before);
    assert!(!spills.is_any_pinned(&blocks));
    assert!(spills.gather().is_none(), "a search finds nothing until something happens");
}

#[test]
fn a_spill_without_room_in_the_log_waits_and_a_checkpoint_can_carry_it() {
    let (mut spills, blocks) = Spills::with_waiting();
    let output = spills.gather().expect("updates wait");
    spills.ground.base.journal.leave_to_callers(true);
    spills.spiller.encoded(output);
    spills.write();
    spills.flush();
    assert!(spills.spiller.waits_for_log());
    let waiting: Vec<SpillId> = spills.spiller.waiting_for_log();
    assert_eq!(waiting.len(), 1);
    let base = &mut spills.ground.base;
    base.journal.run_ahead();
    let seq = base.journal.published();
    spills.spiller.publish(base, waiting[0], seq, Release::AfterCheckpoint);
    assert_eq!(spills.waiting(), (0, blocks.len() as u64));
    assert!(spills.spiller.is_empty());
}

#[test]
fn a_block_without_an_image_is_left_to_the_sweep() {
    let mut spills = Spills::new();
    for number in 0..50 {
        spills.ground.put(&format!("k{number}"), 1);
    }
    assert!(spills.gather().is_none());
    assert_eq!(spills.waiting(), (50, 0));
}

#[test]
fn a_block_that_waits_for_the_removal_of_a_range_is_left_to_the_sweep() {
    let (mut spills, blocks) = Spills::with_waiting();
    let key = spills.ground.key_of(blocks[1]).into_bytes();
    let range = KeyRange { from: &key, to: Some(&[&key[..], &[0]].concat()) };
    let seq = spills.ground.base.journal.last().next();
    spills.ground.base.index.push_range(seq, space(), &range, &mut BTreeSet::new());
    let _output = spills.gather().expect("others wait");
    let has = |block: &BlockId| spills.spiller.has(*block);
    assert!(!has(&blocks[1]) && has(&blocks[0]) && has(&blocks[2]));
}

#[test]
fn nothing_is_spilled_while_the_store_rests_is_full_or_has_no_memory_for_more() {
    let (mut spills, _) = Spills::with_waiting();
    assert!(spills.can_spill());
    spills.ground.base.gate.pause();
    assert!(!spills.can_spill());
    spills.ground.base.gate.resume();
    spills.ground.base.index.set_full(true);
    assert!(!spills.can_spill());
    spills.ground.base.index.set_full(false);
    spills.ground.base.config.spilling = Spilling::Never;
    assert!(!spills.can_spill());
    spills.ground.base.config.spilling = Spilling::WhenItPays;
    assert!(spills.can_spill());
    spills.ground.take_space_but(0);
    assert!(!spills.can_spill(), "spill segments take no room from the sweep");
}

#[test]
fn a_space_that_was_cloned_meanwhile_keeps_what_waits_in_memory() {
    let (mut spills, blocks) = Spills::with_waiting();
    let before = spills.waiting();
    let output = spills.gather().expect("updates wait");
    spills.spiller.encoded(output);
    spills.write();
    spills.flush();
    let clone = SpaceRecord {
        space: space().plus(20),
        name: "clone".to_owned(),
        ..spills.ground.base.index.check_space(space()).expect("it is there").clone()
    };
    let clone = CloneRecord { snapshot: None, pairs: vec![(space(), clone)] };
    let seq = spills.ground.base.journal.published();
    spills.ground.base.index.apply_event(seq, Event::Clone(clone), Release::Now);
    let used = spills.ground.base.index.space_map.used_bytes();
    spills.publish();
    assert_eq!(spills.waiting(), before, "the spill segment would be for one of the two");
    assert!(spills.ground.base.index.spill_segments.is_empty());
    assert!(spills.ground.base.index.space_map.used_bytes() < used, "its place is free");
    assert!(!spills.is_any_pinned(&blocks));
}

#[test]
fn spills_wait_for_the_sweep_before_levels_are_used_up() {
    let (mut spills, blocks) = Spills::with_waiting();
    let keys: Vec<_> = blocks.iter().map(|block| spills.ground.key_of(*block)).collect();
    while spills.can_spill() {
        spills.spill();
        for key in &keys {
            spills.ground.add(key, 1);
        }
        spills.spiller.note_sweep(&spills.ground.base, 0, 100.0);
    }
    let levels = spills.ground.base.index.spill_segments.levels();
    assert!((20..30).contains(&levels), "{levels}");
    spills.spiller.note_sweep(&spills.ground.base, 1, 100.0);
    assert!(spills.can_spill(), "the sweep has passed a block");
}

#[test]
fn spills_wait_for_the_cycle_to_open_their_memory() {
    let (mut spills, _) = Spills::with_waiting();
    let open = |spills: &mut Spills, percent| {
        spills.spiller.note_sweep(&spills.ground.base, 0, percent);
    };
    open(&mut spills, 0.0);
    assert!(!spills.can_spill());
    open(&mut spills, 0.1);
    assert!(spills.can_spill());
    spills.spill();
    let key = spills.ground.key_of(spills.ground.blocks()[0]);
    spills.ground.add(&key, 1);
    let gauge = spills.spiller.spilled_gauge(&spills.ground.base);
    open(&mut spills, gauge.exact_percent());
    assert!(!spills.can_spill(), "{gauge:?}");
    open(&mut spills, gauge.exact_percent() + 0.1);
    assert!(spills.can_spill());
}

#[test]
fn a_round_begins_when_all_spills_of_the_last_one_have_ended() {
    let mut spills = Spills::new();
    let blocks = spills.ground.fill(600);
    let [first, second] = [0, 1].map(|number| spills.ground.key_of(blocks[number]));
    spills.ground.add(&first, 1);
    let output = spills.gather().expect("an update waits");
    spills.ground.add(&second, 1);
    assert!(spills.gather().is_none(), "the first update is still in a spill");
    spills.spiller.encoded(output);
    spills.write();
    spills.flush();
    spills.publish();
    assert!(spills.gather().is_some());
}
