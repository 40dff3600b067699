//! Reading ahead for scans: what is read, and how much.
//!
//! A scan that reads ahead says how far it is, and how many bytes it wants to be ahead. [`Scans`]
//! goes over the next blocks in the directory, takes those whose images are on the device alone,
//! and joins neighbours on the device into long requests, which end at boundaries of the device: on
//! a rotating drive each is a track. So that no track is read twice, it looks at some more blocks
//! than it needs, of which one may lie before some of those. A request that has completed is handed
//! to the scan as it is: the scan checks each image when it gets there, and offers it to the view
//! of that block, which ignores it unless the block is still at that place. So nothing has to be
//! pinned, and an image that is not what was expected there is no damage: the space may have been
//! freed, and written again. The block is then read as for any query.
//!
//! Invariants: what is in flight, and what has been read and is still held, takes at most the share
//! of scans, each of which has an equal part; requests of a scan that has ended count until they
//! complete; nothing of it enters the cache. (Lachesis paper, sections 3.4 and 4.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::gather::wanted_block;
use super::turns::{Turns, Waiting};
use super::{Expected, ReadImage, Wanted};
use crate::device::{Buffer, Completion, DeviceId, Joint, Token, join};
use crate::engine::base::Base;
use crate::engine::cache::Image;
use crate::engine::config::Config;
use crate::engine::directory::BlockId;
use crate::engine::foreground::{ForegroundRequests, QUIET_US, RecentRequests};
use crate::engine::ids::SpaceId;
use crate::engine::io::{IoKind, owner_of};
use crate::log::Seq;
use crate::placement::Extent;

/// Blocks that one call goes over at most: the core is locked meanwhile.
const BLOCKS_MAX: usize = 256;

/// Number of a scan that reads ahead, within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanId(pub u64);

/// The place from which to read ahead.
#[derive(Clone, Debug)]
pub enum AheadOf {
    /// Behind the block that this view shows.
    View(Wanted),
    /// Behind the block with this key.
    Key(Box<[u8]>),
}

/// What a scan wants to be read.
#[derive(Clone, Debug)]
pub struct AheadRequest<'a> {
    /// Its space.
    pub space: SpaceId,
    /// The last block that need not be read any more.
    pub behind: &'a AheadOf,
    /// Towards smaller keys.
    pub reverse: bool,
    /// No block with a key at or above this one; in reverse: none below the block that covers it.
    pub bound: Option<&'a [u8]>,
    /// How far to be ahead, in bytes.
    pub window_bytes: usize,
}

/// A block that is being read for a scan.
#[derive(Debug)]
pub struct AheadPart {
    /// The request that reads it.
    pub token: Token,
    /// Bytes of the request.
    pub request_bytes: usize,
    /// Its place, and where it is in the buffer of the request.
    extent: Extent,
    start: usize,
    expected: Expected,
}

/// An image that was read ahead, for the view of its block.
#[derive(Clone, Debug)]
pub struct AheadImage {
    extent: Extent,
    seq: Seq,
    /// The image.
    pub image: Arc<Image>,
}

impl AheadPart {
    /// The key of the block.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.expected.key
    }

    /// Bytes of its image.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.extent.bytes as usize
    }

    /// Its image in the buffer of its request; `None` if it is not what was expected there. Pure
    /// work, to be done without any lock.
    #[must_use]
    pub fn check(&self, buffer: &Arc<Buffer>) -> Option<AheadImage> {
        let range = self.start..self.start + self.bytes();
        let body = self.expected.check(&buffer[range]).ok()?;
        let body = self.start + body.start..self.start + body.end;
        let image = Arc::new(Image::new(Arc::clone(buffer), body));
        Some(AheadImage { extent: self.extent, seq: self.expected.seq, image })
    }
}

impl From<AheadImage> for ReadImage {
    fn from(AheadImage { extent, seq, image }: AheadImage) -> Self {
        (extent, seq, image)
    }
}

/// What is read next for a scan.
#[derive(Debug, Default)]
pub struct Planned {
    /// The blocks, in the order of the scan. Some may be behind `through`, as they are in the same
    /// requests; they are not requested again.
    pub parts: Vec<AheadPart>,
    /// The last block that need not be read any more, if that has changed.
    pub through: Option<Box<[u8]>>,
    /// Whether there are no more blocks.
    pub is_over: bool,
}

/// A request of a scan that has completed; without a buffer if it has failed.
#[derive(Debug)]
pub struct Arrived {
    /// The request.
    pub token: Token,
    /// Its length.
    bytes: usize,
    /// What was read.
    pub buffer: Option<Arc<Buffer>>,
}

#[derive(Default)]
struct Progress {
    /// Of requests in flight, and of what was read and is still held.
    bytes: usize,
    in_flight: usize,
    /// The last request.
    last: Option<Token>,
    arrived: Vec<Arrived>,
    /// Images that were requested although some before them were not: no more than `arrived` and
    /// those in flight have.
    early: BTreeSet<Extent>,
}

/// How many requests a scan may have in flight.
fn requests_max(config: &Config, is_beside: bool) -> usize {
    match is_beside {
        false => config.scan_requests_in_flight,
        true => config.scan_requests_beside_queries,
    }
}

/// The scans that read ahead.
#[derive(Default)]
pub(in crate::engine) struct Scans {
    next: u64,
    scans: BTreeMap<ScanId, Progress>,
    reads: BTreeMap<Token, (ScanId, DeviceId, usize)>,
    turns: Turns,
    /// As plans have seen them.
    queries: RecentRequests,
    /// Requests that were made so far.
    requests: u64,
    /// Of all scans, and of requests in flight of those that have ended.
    bytes: usize,
    /// Scans for which something has arrived since the last pump.
    news: Vec<ScanId>,
}

impl Scans {
    /// A scan begins, after so many reads of queries.
    pub(in crate::engine) fn begin(&mut self, queries: u64) -> ScanId {
        if self.scans.is_empty() {
            self.queries = RecentRequests::since(queries);
        }
        self.next += 1;
        let id = ScanId(self.next);
        self.scans.insert(id, Progress::default());
        id
    }

    /// Forgets a scan that has released all that it held.
    pub(in crate::engine) fn end(&mut self, base: &mut Base, id: ScanId) {
        for token in self.turns.withdraw(base, id) {
            let (.., bytes) = self.reads.remove(&token).expect("a scan's read is listed");
            self.bytes -= bytes;
        }
        for arrived in self.take_arrived(id) {
            self.release(base, id, arrived.bytes, arrived.bytes);
        }
        self.scans.remove(&id);
    }

    /// Submits the requests whose turn it is.
    pub(in crate::engine) fn pump(&mut self, base: &mut Base, queries: ForegroundRequests) {
        self.turns.pump(base, queries);
    }

    /// When the next pump has something to submit even if nothing happens, in microseconds.
    pub(in crate::engine) fn deadline_us(&self) -> Option<u64> {
        self.turns.deadline_us()
    }

    /// What has been read for a scan since the last call, which it now holds.
    pub(in crate::engine) fn take_arrived(&mut self, id: ScanId) -> Vec<Arrived> {
        self.scans.get_mut(&id).map(|scan| std::mem::take(&mut scan.arrived)).unwrap_or_default()
    }

    /// The scan holds these bytes no more, and has not used so many of them.
    pub(in crate::engine) fn release(
        &mut self,
        base: &Base,
        id: ScanId,
        bytes: usize,
        unused_bytes: usize,
    ) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        scan.bytes -= bytes;
        self.bytes -= bytes;
        base.metrics.scan_unused_bytes_total.add(unused_bytes as u64);
    }

    /// The requests of scans.
    pub(in crate::engine) fn reads(&self) -> ForegroundRequests {
        ForegroundRequests { begun: self.requests, are_waiting: !self.reads.is_empty() }
    }

    /// The scans for which something has arrived since the last call.
    pub(in crate::engine) fn take_news(&mut self) -> Vec<ScanId> {
        std::mem::take(&mut self.news)
    }

    /// Bytes in flight, and read and not yet released.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests the next blocks of a scan, if it is far enough from where it wants to be for a
    /// request of full length, and memory and requests in flight permit it: fewer if there were
    /// reads of queries since the last plans, or are some. They are submitted at the next pump, or
    /// where scans take turns, in their turn. Cost: a search of the directory for each block, at
    /// most 256.
    pub(in crate::engine) fn plan(
        &mut self,
        base: &mut Base,
        id: ScanId,
        request: &AheadRequest<'_>,
        queries: ForegroundRequests,
    ) -> Planned {
        let count = self.scans.len().max(1);
        let is_beside = self.queries.look(queries, base.now_us, QUIET_US).is_some();
        let Some(scan) = self.scans.get_mut(&id) else { return Planned::default() };
        let config = &base.config;
        let takes_turns = config.scans_take_turns;
        let requests_max = requests_max(config, is_beside);
        self.turns.limit(takes_turns.then_some(requests_max));
        let window = request.window_bytes.min(config.scan_bytes_max / count);
        let short = config.scan_request_bytes_following.filter(|_| is_beside && count == 1);
        let follows = short.is_some() && scan.last == Some(base.io.last_made());
        let is_contended = self.turns.is_contended() && !follows;
        let is_far_ahead = scan.bytes > window / 2;
        // Turns are rare if there are several scans, or queries use the drive as they may.
        let is_rare = count > 1 || (is_contended && !is_far_ahead);
        let bytes_max = match short {
            _ if !is_beside || (takes_turns && is_rare) => config.scan_request_bytes,
            Some(short) if follows || (is_far_ahead && !is_contended) => short,
            _ => config.scan_request_bytes_beside_queries,
        } as usize;
        let room = window.saturating_sub(scan.bytes).min(config.scan_bytes_max - self.bytes);
        let request_bytes = bytes_max.min(window / 2);
        let slots = requests_max.saturating_sub(scan.in_flight);
        if slots == 0 || room < request_bytes.max(1) {
            return Planned::default();
        }
        // With the blocks of one more request, those within the room are complete.
        let next = next_blocks(base, request, room + request_bytes, &scan.early);
        let range = |at: &(BlockId, Extent)| (at.1.device, at.1.offset, at.1.bytes as usize);
        let ranges: Vec<_> = next.blocks.iter().map(range).collect();
        let gap_bytes_max = config.bulk.gap_bytes_max;
        let space_map = &base.index.space_map;
        let end_max = |device, at| space_map.end_of_access(device, at, request_bytes as u64);
        let (order, mut joints) = join(&ranges, end_max, gap_bytes_max);
        joints.sort_by_key(|joint| order[joint.parts.clone()].iter().min().copied());
        let mut rest = room;
        let fits = |joint: &Joint| {
            let left = rest.checked_sub(joint.bytes());
            rest = left.unwrap_or(0);
            left.is_some()
        };
        let joints: Vec<Joint> = joints.into_iter().take(slots).take_while(fits).collect();
        self.request(base, id, next, (&order, &joints), follows)
    }

    /// Makes these requests for the next blocks.
    fn request(
        &mut self,
        base: &mut Base,
        id: ScanId,
        mut next: Next,
        (order, joints): (&[usize], &[Joint]),
        follows: bool,
    ) -> Planned {
        let mut parts: Vec<Option<AheadPart>> = next.blocks.iter().map(|_| None).collect();
        for joint in joints {
            let inside = &order[joint.parts.clone()];
            let images = inside.iter().map(|index| next.blocks[*index]);
            let owner = owner_of(
                images
                    .map(|(block, _)| base.index.directory().block(block).placement().image_space),
            );
            let extent = Extent {
                device: joint.device,
                offset: joint.start,
                bytes: u32::try_from(joint.bytes()).expect("a request is below 4 GiB"),
            };
            let read = base.io.read_request(IoKind::ScanRead, owner, extent);
            let token = read.token;
            self.note_read(id, token, extent);
            let waiting = Waiting { scan: id, bytes: joint.bytes(), follows, request: read };
            self.turns.wait(base, waiting);
            for index in inside {
                let (block, extent) = next.blocks[*index];
                let start = (extent.offset - joint.start) as usize;
                let expected = Expected::of_block(base, block);
                let request_bytes = joint.bytes();
                parts[*index] = Some(AheadPart { token, request_bytes, extent, start, expected });
            }
        }
        let mut early = BTreeSet::new();
        if let Some(first) = parts.iter().position(Option::is_none) {
            early.extend(parts[first..].iter().flatten().map(|part| part.extent));
            let behind = next.early.iter().filter(|(before, _)| *before >= first);
            early.extend(behind.map(|(_, extent)| *extent));
            next.cut(base, first);
        }
        self.scans.get_mut(&id).expect("it reads ahead").early = early;
        let Next { through, is_over, .. } = next;
        Planned { parts: parts.into_iter().flatten().collect(), through, is_over }
    }

    fn note_read(&mut self, id: ScanId, token: Token, extent: Extent) {
        let scan = self.scans.get_mut(&id).expect("it reads ahead");
        let bytes = extent.bytes as usize;
        scan.bytes += bytes;
        scan.in_flight += 1;
        scan.last = Some(token);
        self.requests += 1;
        self.bytes += bytes;
        self.reads.insert(token, (id, extent.device, bytes));
    }

    pub(in crate::engine) fn read_done(&mut self, base: &mut Base, completion: Completion) {
        let listed = self.reads.remove(&completion.token);
        let (id, device, bytes) = listed.expect("a scan's read is listed");
        self.turns.completed(device);
        let buffer = completion.buffer.filter(|_| completion.result.is_ok());
        let Some(scan) = self.scans.get_mut(&id) else {
            self.bytes -= bytes;
            base.metrics.scan_unused_bytes_total.add(bytes as u64);
            return;
        };
        scan.in_flight -= 1;
        let token = completion.token;
        scan.arrived.push(Arrived { token, bytes, buffer: buffer.map(Arc::new) });
        self.news.push(id);
    }
}

/// The next blocks of a scan.
#[derive(Default)]
struct Next {
    /// Those to read, with their places, in the order of the scan.
    blocks: Vec<(BlockId, Extent)>,
    /// The places of those that were requested early, and how many of `blocks` are before each.
    early: Vec<(usize, Extent)>,
    /// The last block that was looked at.
    through: Option<Box<[u8]>>,
    /// Whether there are no more.
    is_over: bool,
}

impl Next {
    /// Keeps the first `count` of those to read.
    fn cut(&mut self, base: &Base, count: usize) {
        self.blocks.truncate(count);
        let last = self.blocks.last().map(|(id, _)| base.index.directory().block(*id));
        self.through = last.map(|block| (*block.key).into());
        self.is_over = false;
    }
}

/// The next blocks of a scan whose images have to be read, as many as fit into `bytes`, without
/// those that were requested early.
fn next_blocks(
    base: &Base,
    request: &AheadRequest<'_>,
    bytes: usize,
    early: &BTreeSet<Extent>,
) -> Next {
    let &AheadRequest { space, behind, reverse, bound, .. } = request;
    let (directory, mut next) = (base.index.directory(), Next::default());
    let first = match behind {
        AheadOf::Key(key) => Some(key.clone()),
        AheadOf::View(wanted) => {
            let space = directory.space(space);
            let found = space.and_then(|space| wanted_block(base, space, wanted));
            found.map(|id| (*directory.block(id).key).into())
        }
    };
    let Some(mut at) = first else { return Next { is_over: true, ..next } };
    let mut rest = bytes;
    for _ in 0..BLOCKS_MAX {
        let is_last = reverse && bound.is_some_and(|bound| *at <= *bound);
        let found =
            if reverse { directory.below(space, Some(&at)) } else { directory.above(space, &at) };
        let Some(id) = found.filter(|_| !is_last) else {
            next.is_over = true;
            break;
        };
        let block = directory.block(id);
        if !reverse && bound.is_some_and(|bound| *block.key >= *bound) {
            next.is_over = true;
            break;
        }
        let extent = block.extent().filter(|extent| !base.index.cache.has(*extent));
        if let Some(extent) = extent.filter(|extent| early.contains(extent)) {
            next.early.push((next.blocks.len(), extent));
        } else if let Some(extent) = extent {
            let Some(left) = rest.checked_sub(extent.bytes as usize) else { break };
            rest = left;
            next.blocks.push((id, extent));
        }
        at = (*block.key).into();
        next.through = Some(at.clone());
    }
    next
}
