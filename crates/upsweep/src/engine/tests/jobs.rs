//! Jobs: the output of a worker for blocks and waiting updates, without a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::format;
use crate::device::Buffer;
use crate::engine::block_format::UpdateRef;
use crate::engine::cache::Image;
use crate::engine::directory::BlockId;
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::{BlockRef, RangeRecord};
use crate::engine::format::spill_segment_format::encode_spill_segment;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::io::{RunId, SpillId};
use crate::engine::jobs::{
    JobBlock, JobDone, JobResult, JobSpillSegments, NewSpillSegment, RunJob, SpillJob,
};
use crate::engine::queue::{Arena, Packed, Queue, Waiting};
use crate::engine::registry::{ADD_I64, DELETE, DELETE_RANGE, KeyRange, ModifierId, PUT};
use crate::engine::spill_segments;
use crate::engine::visitor::Visitors;

const STORE: [u8; 16] = *b"a store of tests";

fn space() -> SpaceId {
    SpaceId::new(1000)
}

/// Updates in the form of a queue.
fn frozen(updates: &[(u64, ModifierId, &str, Vec<u8>)]) -> Arc<Packed> {
    let (mut arena, mut queue) = (Arena::new(1 << 20, 1 << 20), Queue::default());
    let modifiers = format::registry().builtins;
    for (seq, modifier, key, operand) in updates {
        let (seq, modifier, key) = (*seq, *modifier, key.as_bytes());
        arena.push(
            &mut queue,
            b"",
            &UpdateRef { seq: Seq::new(seq), modifier, key, operand },
            &modifiers,
        );
    }
    Arc::new(arena.snapshot(&queue, b""))
}

fn puts(keys: std::ops::Range<u64>) -> Arc<Packed> {
    let keys: Vec<(u64, String)> =
        keys.map(|number| (number + 1, format!("k{number:04}"))).collect();
    let puts = keys.iter().map(|(seq, key)| (*seq, PUT, &**key, format::number(1)));
    frozen(&puts.collect::<Vec<_>>())
}

fn block(key: &str, frozen: Arc<Packed>) -> JobBlock {
    JobBlock {
        id: BlockId(7),
        space: space(),
        companion: SpaceId::new(0),
        key: key.as_bytes().into(),
        format: Arc::clone(&format::registry().formats["table"]),
        image: None,
        is_cached: false,
        spill_segments: JobSpillSegments::default(),
        frozen,
        values: Vec::new(),
        next_is_neighbour: false,
        keep_whole: false,
    }
}

fn job(blocks: Vec<JobBlock>) -> RunJob {
    RunJob {
        run: RunId(1),
        store: STORE,
        frontier: Seq::new(5000),
        expired_us: 0,
        block_bytes: 4096,
        inline_value_bytes_max: 1024,
        modifiers: Arc::new(format::registry().builtins),
        visitors: Arc::new(Visitors::default()),
        blocks,
    }
}

fn done(blocks: Vec<JobBlock>) -> Box<JobDone> {
    match job(blocks).work_off(|| {}).result {
        JobResult::Done(done) => done,
        JobResult::NeedValues(_) | JobResult::Corrupt(..) => panic!("all is there and sound"),
    }
}

fn image_of(body: &[u8]) -> Option<Arc<Image>> {
    let bytes = body.len();
    Some(Arc::new(Image::new(Arc::new(Buffer::copy_of(body)), 0..bytes)))
}

#[test]
fn a_block_that_grows_splits_into_images_that_say_what_they_are() {
    let done = done(vec![block("", puts(0..600))]);
    assert!(done.blocks.len() > 2, "{} blocks", done.blocks.len());
    assert_eq!(done.blocks.iter().map(|block| block.records).sum::<u32>(), 600);
    let mut offset = 0;
    for (index, block) in done.blocks.iter().enumerate() {
        assert_eq!((block.position, block.bytes % 4096), (0, 0));
        let identity = Identity {
            store: STORE,
            kind: ImageKind::Block,
            number: space().get(),
            seq: Seq::new(5000),
            key: &block.key,
        };
        let end = offset + block.bytes as usize;
        let image = image_format::decode(&done.buffer[offset..end], &identity);
        assert!(image.is_ok(), "image {index}: {image:?}");
        offset = end;
    }
    assert_eq!(offset, done.buffer.len(), "one behind the other, and nothing else");
    assert!(done.blocks.is_sorted_by(|left, right| left.key < right.key));
}

#[test]
fn thin_neighbours_become_one_block_and_others_never_do() {
    let blocks = |next_is_neighbour| {
        let left = JobBlock { next_is_neighbour, ..block("", puts(0..3)) };
        vec![left, block("k0003", puts(3..5))]
    };
    let merged = done(blocks(true));
    assert_eq!((merged.blocks.len(), merged.blocks[0].records), (1, 5));
    assert_eq!(merged.joined, [false, true]);
    let apart = done(blocks(false));
    assert_eq!((apart.blocks.len(), apart.joined), (2, vec![false, false]));
}

#[test]
fn a_block_without_records_has_no_image() {
    let gone = frozen(&[(1, PUT, "k", format::number(1)), (2, DELETE, "k", Vec::new())]);
    let done = done(vec![block("", gone)]);
    assert_eq!((done.blocks.len(), done.blocks[0].bytes, done.buffer.len()), (1, 0, 0));
}

#[test]
fn a_shared_block_is_kept_whole_for_all_who_share_it() {
    let whole = JobBlock { keep_whole: true, ..block("", puts(0..600)) };
    let done = done(vec![whole]);
    assert_eq!(done.blocks.len(), 1);
    assert!(done.blocks[0].bytes > 4096);
}

#[test]
fn what_a_modifier_refuses_is_told_with_its_reason_and_all_else_is_applied() {
    let text = b"no number".to_vec();
    let updates =
        [(1, PUT, "a", text), (2, ADD_I64, "a", format::number(1)), (3, PUT, "b", vec![])];
    let done = done(vec![block("", frozen(&updates))]);
    assert_eq!(done.blocks[0].records, 2);
    let [refused] = &done.quarantined[..] else { panic!("one is refused") };
    assert_eq!((refused.seq, refused.modifier, &*refused.key), (Seq::new(2), ADD_I64, &b"a"[..]));
    assert_eq!((refused.space, &*refused.reason), (space(), "no number"));
}

#[test]
fn a_block_that_its_format_cannot_read_is_named_and_nothing_comes_of_the_others() {
    let torn = JobBlock { image: image_of(b"\xff\xff"), ..block("k0003", puts(3..5)) };
    let output = job(vec![block("", puts(0..3)), torn]).work_off(|| {});
    let JobResult::Corrupt(position, reason) = output.result else { panic!("it is torn") };
    assert_eq!((position, &*reason), (1, "a record ends early"));
    assert_eq!(output.job.blocks.len(), 2, "the job comes back for another attempt");
}

#[test]
fn what_spill_segments_have_comes_first_but_for_what_a_range_removed_meanwhile() {
    let old = frozen(&[(1, PUT, "a", vec![1]), (2, PUT, "b", vec![1]), (3, PUT, "x", vec![1])]);
    let body = encode_spill_segment([old.as_section()].into_iter());
    let range = RangeRecord { space: space(), from: b"b".to_vec(), to: Some(b"c".to_vec()) };
    let segments = JobSpillSegments {
        images: image_of(&body).into_iter().collect(),
        high: Some(Box::from(&b"m"[..])),
        removed: vec![(Seq::new(9), range)],
    };
    let block =
        JobBlock { spill_segments: segments, ..block("", frozen(&[(8, PUT, "a", vec![2])])) };
    let waiting = block.waiting().expect("a sound segment");
    let found: Vec<(Seq, &[u8])> =
        waiting.iter().flat_map(Waiting::updates).map(|update| (update.seq, update.key)).collect();
    // "b" may never have been in this block, and "x" is beyond it.
    assert_eq!(found, [(Seq::new(1), &b"a"[..]), (Seq::new(8), b"a")]);
    let range = KeyRange { from: b"a", to: Some(b"b") }.operand();
    let later = frozen(&[(5, DELETE_RANGE, "a", range), (6, PUT, "a", vec![3])]);
    let later = encode_spill_segment([later.as_section()].into_iter());
    let images: Vec<_> = [&body, &later].into_iter().filter_map(|body| image_of(body)).collect();
    let segments = JobSpillSegments { images, ..<_>::default() };
    let block = JobBlock { spill_segments: segments, ..block_of_nothing() };
    let waiting = block.waiting().expect("sound segments");
    let mut found: Vec<u64> =
        waiting.iter().flat_map(Waiting::updates).map(|update| update.seq.get()).collect();
    found.sort_unstable();
    assert_eq!(found, [2, 3, 5, 6], "the removal may be in a spill segment, too");
    let torn =
        JobSpillSegments { images: image_of(&body[1..]).into_iter().collect(), ..<_>::default() };
    let block = JobBlock { spill_segments: torn, ..block_of_nothing() };
    assert!(block.waiting().is_err());
}

fn block_of_nothing() -> JobBlock {
    block("", Arc::default())
}

#[test]
fn a_job_that_is_split_has_each_block_once_and_ends_a_neighbourhood() {
    let neighbour = |key| JobBlock { next_is_neighbour: true, ..block(key, Arc::default()) };
    let mut first = job(vec![neighbour("a"), neighbour("b"), neighbour("c")]);
    let rest = first.split_off(2, RunId(9));
    assert_eq!((first.blocks.len(), rest.blocks.len(), rest.run), (2, 1, RunId(9)));
    assert_eq!(rest.frontier, first.frontier);
    let neighbours: Vec<bool> = first.blocks.iter().map(|block| block.next_is_neighbour).collect();
    assert_eq!(neighbours, [true, false]);
}

#[test]
fn the_values_of_a_job_are_numbered_over_all_its_blocks() {
    let with = |values: usize| JobBlock {
        values: vec![(b"key".to_vec(), Vec::new()); values],
        ..block_of_nothing()
    };
    let job = job(vec![with(2), with(0), with(1)]);
    assert_eq!([0, 1, 2].map(|index| job.value_position(index)), [(0, 0), (0, 1), (2, 0)]);
}

#[test]
fn a_worker_gives_way_between_the_parts_of_its_work() {
    static WAYS: AtomicUsize = AtomicUsize::new(0);
    let blocks = (0..5).map(|index| block(&format!("k{index}"), Arc::default())).collect();
    let _ = job(blocks).work_off(|| drop(WAYS.fetch_add(1, Ordering::Relaxed).to_string()));
    assert!(WAYS.load(Ordering::Relaxed) >= 10, "twice for each block at least");
}

#[test]
fn a_spill_segment_has_every_update_and_says_which_it_is() {
    let segment = |low: &str, frozen: Arc<Packed>| NewSpillSegment {
        space: space(),
        low: low.as_bytes().into(),
        high: None,
        first_seq: Seq::new(1),
        through: Seq::new(99),
        blocks: vec![BlockRef { number: 7, birth: Seq::new(1) }],
        frozen: vec![frozen],
    };
    let spill_segments = vec![segment("", puts(0..40)), segment("k0040", puts(40..41))];
    let job = SpillJob { spill: SpillId(3), store: STORE, spill_segments };
    let output = job.work_off(|| {});
    let mut offset = 0;
    for (encoded, count) in output.spill_segments.iter().zip([40, 1]) {
        let end = offset + encoded.bytes as usize;
        let identity =
            spill_segments::identity_of(STORE, space(), &encoded.segment.low, Seq::new(99));
        let image = &output.buffer[offset..end];
        let body = image_format::decode(image, &identity).expect("it says what it is");
        let found = spill_segments::waiting_all(&image[body]).expect("as it was encoded");
        assert_eq!(found.iter().map(Waiting::count).sum::<usize>(), count);
        assert_eq!(encoded.segment.updates() as usize, count);
        offset = end;
    }
    assert_eq!(offset, output.buffer.len());
}
