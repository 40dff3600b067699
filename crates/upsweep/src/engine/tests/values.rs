//! Large values of a run: written beside their block, loaded when a format requests them, and held
//! by one run at a time.

use std::borrow::Cow;
use std::sync::Arc;

use super::ground::{Ground, geometry, record};
use super::pipeline::Line;
use super::spiller::Spills;
use super::{SEGMENT, config, format};
use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing, UpdateRef, ValueBody,
};
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::format::record_format::RangeRecord;
use crate::engine::format::record_format::SpaceRecord;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::io::IoKind;
use crate::engine::journal::Publish;
use crate::engine::modifier::ValueRef;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::registry::PUT;
use crate::engine::{Config, Spilling};

/// A put of this operand requests the large value of its key.
const ASKS: &[u8] = b"asks";
/// Operands of at least this length are large values.
const LARGE_BYTES_MIN: usize = 100;

/// Records in the format of small worlds, and large values beside them.
struct Large(Arc<dyn BlockFormat>);

impl BlockFormat for Large {
    fn name(&self) -> &str {
        "large"
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let has = |key: &[u8]| input.values.iter().any(|(found, _)| found == key);
        let asks = input.updates.iter().filter(|update| update.operand == ASKS);
        let needed: Vec<Vec<u8>> =
            asks.filter(|update| !has(update.key)).map(|update| update.key.to_vec()).collect();
        if !needed.is_empty() {
            return Err(ApplyError::NeedValues(needed));
        }
        let large = input.updates.iter().filter(|update| update.operand.len() >= LARGE_BYTES_MIN);
        let value = |update: &UpdateRef<'a>| {
            let body = ValueBody { head: 0, rest: Cow::Borrowed(update.operand) };
            (update.key.to_vec(), Some(body))
        };
        let values = large.map(value).collect();
        let short = |update: &UpdateRef<'a>| UpdateRef {
            operand: &update.operand[..update.operand.len().min(8)],
            ..*update
        };
        let updates: Vec<UpdateRef<'a>> = input.updates.iter().map(short).collect();
        let applied = self.0.apply(&ApplyInput { updates: &updates, ..*input })?;
        Ok(Applied { values, ..applied })
    }

    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        self.0.for_each(low, body, visit)
    }

    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        self.0.check(body, low, high)
    }
}

fn space() -> SpaceId {
    super::ground::space().plus(10)
}

fn companion() -> SpaceId {
    space().next()
}

/// A space of large values with three blocks, each with an existing large value.
fn line(config: Config) -> (Line, Vec<BlockId>) {
    let mut registry = format::registry();
    let large = Large(Arc::clone(&registry.formats["table"]));
    registry.formats.insert("large".to_owned(), Arc::new(large));
    let (data, log) = (geometry(4 << 20, false), geometry(4096 + 16 * SEGMENT, false));
    let mut ground = Ground::with_formats(config, data, log, &registry);
    let record = SpaceRecord { companion: companion(), ..record(space(), "large", "large") };
    ground.base.index.add_space(record, Seq::new(1));
    for number in 0..600 {
        ground.accept(space(), PUT, &format!("k{number:04}"), &format::number(1));
    }
    ground.sweep(&blocks(&ground));
    let blocks = blocks(&ground);
    for block in &blocks {
        let key = ground.key_of(*block);
        ground.accept(space(), PUT, &key, &[b'v'; 5000]);
    }
    ground.sweep(&blocks);
    (Line::on(ground), blocks)
}

fn blocks(ground: &Ground) -> Vec<BlockId> {
    let directory = ground.base.index.directory();
    directory.blocks_of(directory.space(space()).expect("it is there")).collect()
}

fn ask(line: &mut Line, block: BlockId) {
    let key = line.ground.key_of(block);
    line.ground.accept(space(), PUT, &key, ASKS);
}

/// Reads of large values to submit, which then end.
fn value_reads(line: &mut Line) -> usize {
    line.end_requests().iter().filter(|kind| matches!(kind, IoKind::ValueRead(..))).count()
}

fn quarantined(line: &Line) -> u64 {
    line.ground.base.metrics.quarantined_updates_total.get()
}

#[test]
fn a_large_value_lies_in_the_companion_space_and_is_read_when_it_is_asked_for() {
    let (mut line, blocks) = line(config());
    let key = line.ground.key_of(blocks[1]).into_bytes();
    let directory = line.ground.base.index.directory();
    let value = directory.exact(companion(), &key).expect("it was written");
    let placement = directory.block(value).placement();
    assert_eq!((placement.image_space, placement.records), (companion(), 1));
    assert!(placement.extent.is_some_and(|extent| extent.bytes >= 5000));
    ask(&mut line, blocks[1]);
    line.start(&[blocks[1]]);
    line.end_requests();
    assert_eq!(line.pump(), 1, "it is tried without the value");
    assert_eq!(line.pump(), 0);
    assert!(line.ground.base.in_hand.values_bytes >= 5000, "memory for it is counted");
    assert_eq!(value_reads(&mut line), 1);
    assert_eq!(line.pump(), 1, "and once more with it");
    line.finish();
    assert_eq!((line.waiting(), quarantined(&line)), (0, 0));
    assert_eq!(line.ground.base.in_hand.values_bytes, 0);
}

#[test]
fn a_block_whose_large_value_is_not_in_the_directory_is_set_aside() {
    let (mut line, blocks) = line(config());
    line.ground.accept(space(), PUT, "k0001", ASKS);
    line.start(&blocks);
    line.finish();
    assert_eq!((line.waiting(), quarantined(&line)), (1, 1));
    let quarantine = line.ground.base.index.directory().covering(QUARANTINE_SPACE, b"");
    assert_eq!(line.ground.queued(quarantine.expect("it has a block")), 1);
    assert!(line.ground.placement(blocks[0]).frontier > line.ground.placement(blocks[0]).image_seq);
}

#[test]
fn a_block_whose_large_value_cannot_be_read_is_set_aside() {
    let (mut line, blocks) = line(config());
    ask(&mut line, blocks[1]);
    line.start(&[blocks[1]]);
    line.end_requests();
    line.pump();
    line.pump();
    assert_eq!(line.fail_requests(), 1);
    line.finish();
    assert_eq!(quarantined(&line), 1);
}

#[test]
fn one_run_at_a_time_has_large_values_in_hand() {
    let (mut line, blocks) = line(config());
    for block in &blocks[..2] {
        ask(&mut line, *block);
        line.start(&[*block]);
    }
    line.end_requests();
    assert_eq!(line.pump(), 2);
    line.pump();
    assert_eq!(value_reads(&mut line), 1, "the other run waits for its turn");
    line.finish();
    assert_eq!((line.waiting(), quarantined(&line)), (0, 0));
}

#[test]
fn a_run_goes_on_with_as_many_blocks_as_there_is_memory_for_and_the_others_follow() {
    let (mut line, blocks) = line(Config { run_bytes_max: 1, ..config() });
    blocks.iter().for_each(|block| ask(&mut line, *block));
    let last = line.ground.base.journal.last();
    line.start(&blocks);
    line.end_requests();
    line.pump();
    line.pump();
    assert_eq!(value_reads(&mut line), 1, "of one block at least");
    assert_eq!(line.ground.base.in_hand.unlogged_blocks, blocks.len());
    line.finish();
    assert_eq!((line.waiting(), quarantined(&line)), (0, 0));
    assert_eq!(
        line.ground.base.journal.last().since(last),
        blocks.len() as u64,
        "a change for each"
    );
    assert_eq!(line.ground.base.index.queue_bytes(), 0, "what was frozen is given back once");
}

/// A block covers more keys after the blocks behind it were removed. What was spilled for those is
/// not for a run that has frozen its updates before.
#[test]
fn a_second_attempt_has_no_spilled_updates_of_blocks_that_were_removed_meanwhile() {
    let (line, _) = line(Config { spilling: Spilling::Always, ..config() });
    let mut spills = Spills::on(line.ground);
    let [first, second, ..] = blocks(&spills.ground)[..] else { panic!("there are several") };
    let from = spills.ground.key_of(second);
    for key in ["k0000", &format!("{from}-new")] {
        spills.ground.accept(space(), PUT, key, &format::number(2));
    }
    spills.spill();
    let mut line = Line::on(spills.ground);
    ask(&mut line, first);
    line.start(&[first]);
    assert_eq!(line.pump(), 0, "the spill segment is yet to be read");
    line.end_requests();
    assert_eq!(line.pump(), 1, "it is tried without the value");
    let range = RangeRecord { space: space(), from: from.into_bytes(), to: None };
    let publish = Publish::Event(Event::RemoveRange(range));
    line.ground.base.journal.append(b"range", publish, 0).expect("the log has room");
    line.ground.publish();
    line.finish();
    assert_eq!(blocks(&line.ground), [first], "there is nothing to split off");
    assert_eq!((line.waiting(), quarantined(&line)), (1, 0), "the removal waits");
}
