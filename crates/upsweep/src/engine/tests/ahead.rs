//! Reading ahead for scans: what is requested, what it counts, and what becomes of what was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ground::{Ground, space};
use super::spiller::Spills;
use crate::device::{Buffer, Class, DeviceError, Operation, Request, Simulated};
use crate::engine::directory::BlockId;
use crate::engine::foreground::{ForegroundRequests, QUIET_US};
use crate::engine::view::{
    AheadImage, AheadOf, AheadPart, AheadRequest, Planned, ScanId, Scans, ViewPoll, Views, Wanted,
};
use crate::placement::Boundaries;

/// Bytes of a request, and of all scans together.
const REQUEST: usize = 16 << 10;
pub(super) const SHARE: usize = 64 << 10;

/// The base, its scans and its views.
pub(super) struct Reads {
    pub(super) ground: Ground,
    pub(super) scans: Scans,
    views: Views,
    /// Of others.
    pub(super) queries: ForegroundRequests,
    /// The blocks of 4000 swept records, in key order.
    blocks: Vec<BlockId>,
}

impl Reads {
    pub(super) fn new() -> Self {
        Self::with_boundaries(&Boundaries::default())
    }

    fn with_boundaries(known: &Boundaries) -> Self {
        let mut ground = Ground::new();
        ground.base.index.space_map.set_boundaries(std::slice::from_ref(known));
        for number in 0..4000 {
            ground.put(&format!("k{number:04}"), number);
            if number % 200 == 0 {
                ground.write_log();
            }
        }
        let first = ground.block_of("");
        ground.sweep(&[first]);
        let blocks = ground.blocks();
        assert!(blocks.len() > 12, "{} blocks", blocks.len());
        Self {
            ground,
            scans: Scans::default(),
            views: Views::default(),
            queries: ForegroundRequests::default(),
            blocks,
        }
    }

    fn key(&self, block: usize) -> Box<[u8]> {
        self.ground.key_of(self.blocks[block]).into_bytes().into()
    }

    /// Plans for a scan that has passed this block.
    pub(super) fn plan(
        &mut self,
        id: ScanId,
        behind: usize,
        reverse: bool,
        window_bytes: usize,
    ) -> Planned {
        let behind = AheadOf::Key(self.key(behind));
        let request =
            AheadRequest { space: space(), behind: &behind, reverse, bound: None, window_bytes };
        self.scans.plan(&mut self.ground.base, id, &request, self.queries)
    }

    fn keys(parts: &[AheadPart]) -> Vec<Box<[u8]>> {
        parts.iter().map(|part| part.key().into()).collect()
    }

    /// The requests that are submitted now.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        self.scans.pump(&mut self.ground.base, self.queries);
        self.ground.requests()
    }

    pub(super) fn end(&mut self, request: Request) {
        let completion = self.ground.end(request);
        self.scans.read_done(&mut self.ground.base, completion);
    }

    /// Reads what was planned; the images, in order.
    fn read(&mut self, id: ScanId, planned: Planned) -> Vec<Option<AheadImage>> {
        self.requests().into_iter().for_each(|request| self.end(request));
        let arrived = self.scans.take_arrived(id);
        let image = |part: AheadPart| {
            let of_part = arrived.iter().find(|arrived| arrived.token == part.token);
            let buffer = of_part.expect("it was read").buffer.as_ref()?;
            part.check(buffer)
        };
        planned.parts.into_iter().map(image).collect()
    }

    fn offer(&mut self, block: usize, image: Option<AheadImage>) -> ViewPoll {
        let wanted = Wanted::Covering(self.key(block).into());
        let polled = self.views.view_for_scan(&mut self.ground.base, space(), wanted, image);
        polled.expect("a sound view")
    }

    fn unused(&self) -> u64 {
        self.ground.base.metrics.scan_unused_bytes_total.get()
    }
}

pub(super) fn offsets(requests: &[Request]) -> Vec<(u64, usize)> {
    let read = |request: &Request| match &request.operation {
        Operation::Read { offset, buffer } => (*offset, buffer.len()),
        other => panic!("{other:?}"),
    };
    requests.iter().map(read).collect()
}

#[test]
fn neighbours_are_read_by_long_requests_in_both_directions() {
    for reverse in [false, true] {
        let mut reads = Reads::new();
        let id = reads.scans.begin(0);
        let count = reads.blocks.len();
        let first = if reverse { count - 1 } else { 0 };
        let planned = reads.plan(id, first, reverse, SHARE);
        let requests = reads.requests();
        let expected: Vec<_> = if reverse {
            (0..count - 1).rev().map(|block| reads.key(block)).collect()
        } else {
            (1..count).map(|block| reads.key(block)).collect()
        };
        let planned_keys = Reads::keys(&planned.parts);
        assert!(expected.starts_with(&planned_keys), "in the order of the scan");
        assert!(!planned.is_over && planned.through.as_ref() == planned_keys.last());
        let total: usize = offsets(&requests).iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(total, planned.parts.iter().map(AheadPart::bytes).sum::<usize>());
        assert!(requests.len() <= 2 && planned.parts.len() > requests.len(), "{requests:?}");
        assert!(requests.iter().all(|request| request.hint.class == Class::ScanRead));
        assert!(offsets(&requests).iter().all(|(_, bytes)| *bytes <= REQUEST));
        let found = reads.scans.reads();
        assert_eq!((found.begun, found.are_waiting), (requests.len() as u64, true));
        requests.into_iter().for_each(|request| reads.end(request));
        assert!(!reads.scans.reads().are_waiting);
    }
}

#[test]
fn requests_end_at_boundaries() {
    // Units that are shorter than requests, as long, and longer.
    for pages in [2, 4, 7] {
        let unit = pages * 4096;
        let known = Boundaries::new([(0, unit, 1000)]).expect("in order");
        let mut reads = Reads::with_boundaries(&known);
        let id = reads.scans.begin(0);
        let planned = reads.plan(id, 0, false, SHARE);
        let requests = offsets(&reads.requests());
        assert_eq!(requests.len(), 2, "{requests:?}");
        let ends = requests.iter().map(|(offset, bytes)| offset + *bytes as u64);
        for ((start, bytes), end) in requests.iter().zip(ends) {
            assert!(end <= known.end_of_access(*start, REQUEST as u64), "{pages}: {requests:?}");
            let units = end.div_ceil(unit) - start / unit;
            assert_eq!(units, if pages == 2 { 2 } else { 1 }, "{pages}: {requests:?}");
            assert!(*bytes > 4096, "{pages}: {requests:?}");
        }
        if pages <= 4 {
            assert_eq!(requests[1].0 % unit, 0, "what follows is not in the same unit");
        }
        assert!(planned.parts.len() >= 3 && planned.through.is_some());
    }
}

#[test]
fn a_unit_is_read_once_although_its_blocks_are_not_in_order() {
    let mut reads = Reads::new();
    // As where a later block fills the end of a unit for which the next one was too long. Each is
    // two blocks then.
    for block in [1, 3, 2, 4] {
        let key = reads.ground.key_of(reads.blocks[block]);
        reads.ground.add(&key, 1);
        reads.ground.sweep(&[reads.blocks[block]]);
    }
    reads.blocks = reads.ground.blocks();
    let place = |block: usize| {
        let extent = reads.ground.placement(reads.blocks[block]).extent.expect("it was swept");
        (extent.offset / 4096, extent.bytes)
    };
    let start = place(1).0 * 4096;
    let places = [1, 2, 5, 6, 3, 4, 7, 8].map(place);
    assert!(places.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "{places:?}");
    let known = Boundaries::new([(start, 16384, 2)]).expect("in order");
    reads.ground.base.index.space_map.set_boundaries(&[known]);
    reads.ground.base.config.scan_requests_in_flight = 1;
    reads.ground.base.config.scan_request_bytes = 16384;
    let id = reads.scans.begin(0);
    let planned = reads.plan(id, 0, false, SHARE);
    assert_eq!(Reads::keys(&planned.parts), [1, 2, 5, 6].map(|block| reads.key(block)));
    assert_eq!(planned.through, Some(reads.key(2)), "the next is still to be read");
    let requests = reads.requests();
    assert_eq!(offsets(&requests), [(start, 16384)]);
    requests.into_iter().for_each(|request| reads.end(request));
    let planned = reads.plan(id, 2, false, SHARE);
    assert_eq!(Reads::keys(&planned.parts), [3, 4, 7, 8].map(|block| reads.key(block)));
    assert_eq!(planned.through, Some(reads.key(8)));
    let requests = reads.requests();
    assert_eq!(offsets(&requests), [(start + 16384, 16384)]);
    requests.into_iter().for_each(|request| reads.end(request));
    let planned = reads.plan(id, 8, false, SHARE);
    assert_eq!(Reads::keys(&planned.parts)[0], reads.key(9));
}

#[test]
fn a_scan_is_no_further_ahead_than_it_wants_nor_than_its_share_permits() {
    let mut reads = Reads::new();
    let (one, other) = (reads.scans.begin(0), reads.scans.begin(0));
    assert!(reads.plan(one, 0, false, 0).parts.is_empty());
    let planned = reads.plan(one, 0, false, 2 * 4096);
    let mut requests = reads.requests();
    assert_eq!(planned.parts.len(), requests.len(), "half of it is a request");
    assert!(reads.scans.bytes() <= 2 * 4096 && !planned.parts.is_empty());
    assert!(reads.plan(one, 0, false, 2 * 4096).parts.is_empty(), "it is there");
    if requests.len() < 2 {
        assert!(!reads.plan(one, 0, false, SHARE).parts.is_empty());
        requests.extend(reads.requests());
    }
    assert_eq!(requests.len(), 2);
    assert!(reads.plan(one, 0, false, SHARE).parts.is_empty(), "two are in flight");
    requests.into_iter().for_each(|request| reads.end(request));
    for _ in 0..10 {
        for id in [one, other] {
            let planned = reads.plan(id, 0, false, usize::MAX);
            reads.read(id, planned);
        }
    }
    assert!(reads.scans.bytes() <= SHARE && reads.scans.bytes() > SHARE / 2);
    let held = reads.scans.bytes();
    reads.scans.release(&reads.ground.base, one, 4096, 0);
    assert_eq!(reads.scans.bytes(), held - 4096);
}

#[test]
fn requests_of_a_scan_that_has_ended_count_until_they_complete() {
    let mut reads = Reads::new();
    let id = reads.scans.begin(0);
    let planned = reads.plan(id, 0, false, SHARE);
    let mut requests = reads.requests();
    let bytes: usize = offsets(&requests).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((reads.scans.bytes(), planned.parts.is_empty()), (bytes, false));
    let first = requests.remove(0);
    let arrived = offsets(std::slice::from_ref(&first))[0].1;
    reads.end(first);
    assert_eq!(reads.scans.take_news(), [id]);
    assert_eq!(reads.scans.bytes(), bytes, "what has arrived is held");
    reads.scans.end(&mut reads.ground.base, id);
    assert_eq!(reads.scans.bytes(), bytes - arrived);
    requests.into_iter().for_each(|request| reads.end(request));
    assert_eq!((reads.scans.bytes(), reads.unused()), (0, bytes as u64));
    assert!(reads.scans.take_news().is_empty(), "there is nobody to tell");
}

#[test]
fn blocks_that_are_cached_or_out_of_bounds_are_not_read() {
    let mut reads = Reads::new();
    let id = reads.scans.begin(0);
    let cached = reads.ground.placement(reads.blocks[2]).extent.expect("it was swept");
    let image = Arc::new(crate::engine::Image::new(Arc::new(Buffer::zeroed(8)), 0..0));
    reads.ground.base.index.cache.put(cached, image);
    let (behind, bound) = (AheadOf::Key(reads.key(0)), reads.key(4));
    let request = AheadRequest {
        space: space(),
        behind: &behind,
        reverse: false,
        bound: Some(&bound),
        window_bytes: SHARE,
    };
    let planned =
        reads.scans.plan(&mut reads.ground.base, id, &request, ForegroundRequests::default());
    assert_eq!(Reads::keys(&planned.parts), [reads.key(1), reads.key(3)]);
    assert!(planned.is_over);
    let behind = AheadOf::View(Wanted::Below(None));
    let low = reads.key(reads.blocks.len() - 3);
    let inside = [&low[..], b"!"].concat();
    let request = AheadRequest { behind: &behind, reverse: true, bound: Some(&inside), ..request };
    reads.requests().into_iter().for_each(|request| reads.end(request));
    let planned =
        reads.scans.plan(&mut reads.ground.base, id, &request, ForegroundRequests::default());
    let keys = [reads.key(reads.blocks.len() - 2), low];
    assert_eq!(Reads::keys(&planned.parts), keys, "down to the block that covers the bound");
    assert!(planned.is_over);
}

#[test]
fn what_was_read_ahead_is_the_block_and_does_not_enter_the_cache() {
    let mut reads = Reads::new();
    let id = reads.scans.begin(0);
    let planned = reads.plan(id, 0, false, SHARE);
    let images = reads.read(id, planned);
    for (block, image) in (1..).zip(images) {
        let image = image.expect("it is sound");
        let ViewPoll::Ready(view) = reads.offer(block, Some(image.clone())) else {
            panic!("it was read ahead")
        };
        assert!(view.image.is_some_and(|shown| Arc::ptr_eq(&shown, &image.image)));
        assert_eq!(*view.low, *reads.key(block));
    }
    assert_eq!(reads.ground.base.index.cache.bytes(), 0);
    let ViewPoll::Pending(_) = reads.offer(0, None) else { panic!("it was not read") };
    reads.views.pump(&mut reads.ground.base, &mut Vec::new());
    let request = reads.ground.request();
    let completion = reads.ground.end(request);
    reads.views.read_done(&mut reads.ground.base, completion);
    assert_eq!(reads.ground.base.index.cache.bytes(), 0, "nor does what the scan reads alone");
}

#[test]
fn what_was_read_ahead_of_a_block_that_has_moved_is_ignored() {
    let mut reads = Reads::new();
    let id = reads.scans.begin(0);
    let planned = reads.plan(id, 0, false, SHARE);
    let mut images = reads.read(id, planned);
    let key = reads.ground.key_of(reads.blocks[1]);
    reads.ground.add(&key, 100);
    reads.ground.sweep(&[reads.blocks[1]]);
    let old = images.swap_remove(0).expect("it was sound");
    assert!(matches!(reads.offer(1, Some(old)), ViewPoll::Pending(_)), "it is read again");
}

#[test]
fn an_image_that_is_not_what_was_expected_is_no_damage() {
    let mut reads = Reads::new();
    let id = reads.scans.begin(0);
    let planned = reads.plan(id, 0, false, SHARE);
    let extent = reads.ground.placement(reads.blocks[1]).extent.expect("it was swept");
    reads.ground.devices.poke(extent.device, extent.offset, &[7; 512]);
    let images = reads.read(id, planned);
    assert!(images[0].is_none() && images[1].is_some());
    assert_eq!(reads.ground.base.measured.damage().count(), 0);
    let planned = reads.plan(id, 10, false, SHARE);
    for request in reads.requests() {
        let completion = reads.ground.fail(request, DeviceError::Failed { errno: 5 });
        reads.scans.read_done(&mut reads.ground.base, completion);
    }
    assert!(!planned.parts.is_empty());
    assert!(reads.scans.take_arrived(id).iter().all(|arrived| arrived.buffer.is_none()));
    assert_eq!(reads.ground.base.measured.damage().count(), 0);
}

#[test]
fn spill_segments_of_the_next_blocks_are_read_into_the_cache() {
    let (mut spills, blocks) = Spills::with_waiting();
    spills.spill();
    let (base, mut views) = (&mut spills.ground.base, Views::default());
    let key = |id: &BlockId| base.index.directory().block(*id).key.to_vec();
    let keys: Vec<Vec<u8>> = blocks.iter().map(key).collect();
    let extents: Vec<_> = base.index.spill_segments.iter().map(|one| one.record.extent).collect();
    assert!(!extents.is_empty() && extents.iter().all(|extent| !base.index.cache.has(*extent)));
    views.read_segments_ahead(base, space(), keys.iter().map(Vec::as_slice));
    let requests = spills.ground.requests();
    assert_eq!(requests.len(), extents.len(), "each once");
    views.read_segments_ahead(&mut spills.ground.base, space(), keys.iter().map(Vec::as_slice));
    assert!(spills.ground.requests().is_empty(), "they are under way");
    for request in requests {
        let completion = spills.ground.end(request);
        views.read_done(&mut spills.ground.base, completion);
    }
    assert!(extents.iter().all(|extent| spills.ground.base.index.cache.has(*extent)));
    views.read_segments_ahead(&mut spills.ground.base, space(), keys.iter().map(Vec::as_slice));
    assert!(spills.ground.requests().is_empty(), "they are there");
}

#[test]
fn beside_queries_a_scan_has_fewer_requests_in_flight_until_they_are_over() {
    let mut reads = Reads::new();
    reads.ground.base.config.scan_requests_beside_queries = 1;
    let id = reads.scans.begin(0);
    let mut requests = |begun, are_waiting, now_us| {
        reads.queries = ForegroundRequests { begun, are_waiting };
        reads.ground.base.now_us = now_us;
        let planned = reads.plan(id, 0, false, SHARE);
        let requests = reads.requests();
        let count = requests.len();
        requests.into_iter().for_each(|request| reads.end(request));
        let held: BTreeMap<_, _> =
            planned.parts.iter().map(|part| (part.token, part.request_bytes)).collect();
        reads.scans.take_arrived(id);
        let bytes = held.into_values().sum();
        reads.scans.release(&reads.ground.base, id, bytes, 0);
        count
    };
    assert_eq!(requests(0, false, 1), 2);
    assert_eq!(requests(3, false, 2), 1);
    assert_eq!(requests(3, true, 5 * QUIET_US), 1, "as long as one waits");
    assert_eq!(requests(3, false, 6 * QUIET_US), 1, "it may have ended just now");
    assert_eq!(requests(3, false, 7 * QUIET_US - 1), 1);
    assert_eq!(requests(3, false, 7 * QUIET_US), 2);
    assert_eq!(requests(4, false, 8 * QUIET_US), 1);
}
