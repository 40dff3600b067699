//! Gathering a view: the updates that wait for a key or a block, in queues and in spill segments,
//! and the image, unless these updates decide the result alone.

use std::sync::Arc;

use super::{Gathered, PendingView, ReadImage, ReadTarget, View, Wanted};
use crate::broken::{self, Fault};
use crate::engine::base::Base;
use crate::engine::block_format::{BlockFormat, Routing, UpdateRef};
use crate::engine::cache::Image;
use crate::engine::directory::{BlockId, Space};
use crate::engine::format::record_format::{LOST_UPDATES, Placement};
use crate::engine::format::spill_segment_format::SpillSegmentRecord;
use crate::engine::modifier::Modifier;
use crate::engine::queue::{Packed, Waiting};
use crate::engine::registry::DELETE_RANGE;
use crate::engine::spill_segments::{self, SpillSegment};
use crate::error::{Damage, Error, RequestError};
use crate::log::Seq;
use crate::placement::Extent;

enum Spilled {
    /// The updates, older parts first, and the images in which they were found.
    Here(Vec<Waiting<'static>>, Vec<ReadImage>),
    NeedsRead(Arc<SpillSegment>),
}

/// Gathers what a view needs, or returns what has to be read for it.
pub(in crate::engine) fn gather(base: &mut Base, view: &PendingView) -> Result<Gathered, Error> {
    let PendingView { space, wanted, .. } = view;
    let no_table = || RequestError::NoTable(format!("number {space}"));
    let found_space = base.index.directory().space(*space).ok_or_else(no_table)?;
    found_space.check_format()?;
    let found = wanted_block(base, found_space, wanted);
    if let Some(view) = pending_without_block(base, found_space, wanted, found) {
        return Ok(Gathered::Complete(view));
    }
    let version = base.index.directory().table.versions().now(found.map(|id| id.0));
    let mut gathered = View { version, ..View::default() };
    let Some(id) = found else { return Ok(Gathered::Complete(gathered)) };
    let block = base.index.directory().block(id);
    gathered.low = Box::from(&*block.key);
    let Placement { extent, image_seq, frontier, .. } = block.placement();
    if extent.is_some() && frontier != image_seq {
        return Err(set_aside(base, id).into());
    }
    let needs_block = |extent| Ok(Gathered::NeedsRead(ReadTarget::Block(id), extent));
    let is_point = matches!(wanted, Wanted::Point(_));
    // If the image has to be read, what waits is gathered after that, and not twice.
    if let Some(extent) = extent.filter(|_| !is_point) {
        gathered.image = image_at(base, view, extent, image_seq, !view.passes_cache);
        if gathered.image.is_none() {
            return needs_block(extent);
        }
    }
    if !is_point {
        gathered.high = base.index.high_of(*space, &gathered.low);
    }
    let mut waiting = queued(base, view, id, gathered.high.as_deref());
    base.metrics.query_waiting_bytes_total.add(queued_bytes(base, id));
    let mut segments = Vec::new();
    if !(is_point && is_decided(base, &waiting)) {
        match gather_spilled(base, view, id)? {
            Spilled::Here(mut spilled, read) => {
                let bytes = if read.is_empty() { 0 } else { spilled_bytes(base, id) };
                base.metrics.query_waiting_bytes_total.add(bytes);
                spilled.append(&mut waiting);
                (waiting, segments) = (spilled, read);
            }
            Spilled::NeedsRead(segment) => {
                let extent = segment.record.extent;
                return Ok(Gathered::NeedsRead(ReadTarget::SpillSegment(segment), extent));
            }
        }
    }
    check_modifiers(base, &waiting)?;
    if let Some(extent) = extent.filter(|_| is_point && !is_decided(base, &waiting)) {
        gathered.image = image_at(base, view, extent, image_seq, !view.passes_cache);
        if gathered.image.is_none() {
            return needs_block(extent);
        }
    }
    Ok(Gathered::Complete(View { extent, image_seq, waiting, segments, ..gathered }))
}

/// The updates in memory for a view of a block, which ends at `high`.
fn queued(
    base: &Base,
    view: &PendingView,
    id: BlockId,
    high: Option<&[u8]>,
) -> Vec<Waiting<'static>> {
    let mut waiting = Vec::new();
    let Some(space) = base.index.directory().space(view.space) else { return waiting };
    let block = base.index.directory().block(id);
    let (low, pending) = (&block.key, &space.pending);
    let queue = block.waits().then(|| base.index.arena().snapshot(&block.queue, low));
    let parts = block.frozen.as_deref().into_iter().chain(&queue);
    match &view.wanted {
        Wanted::Point(key) => {
            waiting.extend(parts.map(|part| part.of_key(key).into_owned()));
            if pending.len() > 0 {
                let position = space.format.position(key);
                let after = [&position, &[0][..]].concat();
                waiting.push(pending.in_range(&position, Some(&after), |found| found == key));
            }
        }
        wanted => {
            waiting.extend(parts.map(|part| unpack(part, wanted, &*space.format)));
            waiting.push(pending.in_range(low, high, |_| true));
        }
    }
    waiting.retain(|part| part.count() > 0);
    waiting
}

/// Memory of the updates that wait for a block in queues, in bytes.
fn queued_bytes(base: &Base, id: BlockId) -> u64 {
    let block = base.index.directory().block(id);
    let frozen = block.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
    u64::from(block.queue.bytes()) + frozen as u64
}

/// Approximate bytes of the updates that wait for a block in spill segments.
fn spilled_bytes(base: &Base, id: BlockId) -> u64 {
    let segments = &base.index.spill_segments;
    let spilled = u64::from(base.index.directory().block(id).spilled);
    spilled * (segments.disk_bytes() / segments.entries().max(1))
}

/// What a queue has for a view of a block.
fn unpack(queue: &Packed, wanted: &Wanted, format: &dyn BlockFormat) -> Waiting<'static> {
    let Wanted::Range { from, to } = wanted else { return queue.unpack().into_owned() };
    let range = (&**from, &**to);
    queue.with_keys(|key| is_in(range, &format.position(key))).into_owned()
}

fn is_in((from, to): (&[u8], &[u8]), position: &[u8]) -> bool {
    from <= position && position < to
}

pub(super) fn wanted_block(base: &Base, of: &Space, wanted: &Wanted) -> Option<BlockId> {
    let space = of.record.space;
    match wanted {
        Wanted::Point(key) => base.index.directory().covering(space, &of.format.position(key)),
        Wanted::Covering(position) | Wanted::Range { from: position, .. } => {
            base.index.directory().covering(space, position)
        }
        Wanted::Below(position) => base.index.directory().below(space, position.as_deref()),
        Wanted::AtOrAbove(position) => {
            let exact = base.index.directory().exact(space, position);
            exact.or_else(|| base.index.directory().above(space, position))
        }
    }
}

/// What was read at this place, for the view or for others; `uses`: it will be of use again.
fn image_at(
    base: &mut Base,
    view: &PendingView,
    extent: Extent,
    seq: Seq,
    uses: bool,
) -> Option<Arc<Image>> {
    let read = view.images.iter().find(|image| (image.0, image.1) == (extent, seq));
    let read = read.map(|image| Arc::clone(&image.2));
    let cache = &mut base.index.cache;
    read.or_else(|| if uses { cache.get(extent) } else { cache.peek(extent) })
}

/// The updates in spill segments for a view of a block.
fn gather_spilled(base: &mut Base, view: &PendingView, id: BlockId) -> Result<Spilled, Error> {
    let (mut found, mut read) = (Vec::new(), Vec::new());
    if broken::is(Fault::QueryWithoutSpills) {
        return Ok(Spilled::Here(found, read));
    }
    for segment in base.index.spill_segments_of(view.space, id) {
        if matches!(&view.wanted, Wanted::Point(key) if !segment.may_have(key)) {
            continue;
        }
        let SpillSegmentRecord { extent, through, .. } = segment.record;
        let Some(image) = image_at(base, view, extent, through, true) else {
            return Ok(Spilled::NeedsRead(segment));
        };
        let Some(space) = base.index.directory().space(view.space) else { continue };
        let (format, body) = (&*space.format, image.body());
        let waiting = if let Wanted::Point(key) = &view.wanted {
            spill_segments::waiting_of(body, key, &format.position(key)).map(|found| vec![found])
        } else {
            let low = &base.index.directory().block(id).key;
            let high = base.index.high_of(view.space, low);
            let is_wanted = |position: &[u8]| match &view.wanted {
                Wanted::Range { from, to } => is_in((from, to), position),
                _ => true,
            };
            spill_segments::waiting_in(body, low, high.as_deref(), format, is_wanted)
        };
        let what = || format!("spill segment {:?}", String::from_utf8_lossy(&segment.record.low));
        let waiting = waiting.map_err(|malformed| {
            let location = Some(extent.location());
            Damage { location, what: what(), reason: malformed.to_string() }
        })?;
        found.extend(waiting.into_iter().map(Waiting::into_owned));
        read.push((extent, through, image));
    }
    found.retain(|part| part.count() > 0);
    Ok(Spilled::Here(found, read))
}

/// The view of a block of exact routing that does not exist yet but has pending updates; `found` is
/// the block that exists.
fn pending_without_block(
    base: &Base,
    space: &Space,
    wanted: &Wanted,
    found: Option<BlockId>,
) -> Option<View> {
    let is_exact = space.format.routing() == Routing::Exact;
    if !is_exact || space.pending.len() == 0 {
        return None;
    }
    let low: Box<[u8]> = match wanted {
        Wanted::Point(_) | Wanted::Covering(_) | Wanted::Range { .. } if found.is_some() => {
            return None;
        }
        Wanted::Point(key) => Box::from(&*space.format.position(key)),
        Wanted::Covering(position) | Wanted::Range { from: position, .. } => {
            position.clone().into()
        }
        Wanted::Below(position) => {
            let last = space.pending.last_below(position.as_deref())?;
            if found.is_some_and(|id| *base.index.directory().block(id).key >= *last) {
                return None;
            }
            last.into()
        }
        Wanted::AtOrAbove(position) => {
            let first = space.pending.first_from(position)?;
            if found.is_some_and(|id| *base.index.directory().block(id).key <= *first) {
                return None;
            }
            first.into()
        }
    };
    let after = [&*low, &[0]].concat();
    let is_wanted = |found: &[u8]| match wanted {
        Wanted::Point(key) => key == found,
        _ => true,
    };
    let pending = space.pending.in_range(&low, Some(&after), is_wanted);
    let (high, waiting) = (Some(after.into()), vec![pending]);
    let version = base.index.directory().table.versions().now(None);
    Some(View { low, high, waiting, version, ..View::default() })
}

/// The damage of a block that could not be read when it was swept. Its updates went to the
/// quarantine, so its image is not the answer even if it can be read now.
fn set_aside(base: &Base, id: BlockId) -> Damage {
    let block = base.index.directory().block(id);
    let key = String::from_utf8_lossy(&block.key);
    let what = format!("block {key:?} of space {}", block.space);
    let set_aside = "it could not be read when it was swept, and updates of it are in the \
                     quarantine: retry them";
    let is_lost = block.placement().has_lost_updates();
    let reason = if is_lost { LOST_UPDATES } else { set_aside }.to_owned();
    Damage { location: block.extent().map(Extent::location), what, reason }
}

/// Checks that all waiting updates can be applied. In a store that is open for reading only
/// modifiers may be missing, and the effect of such an update on its key is unknown.
fn check_modifiers(base: &Base, waiting: &[Waiting<'_>]) -> Result<(), Error> {
    let bindings = &base.index.bindings;
    if bindings.missing().is_none() {
        return Ok(());
    }
    let is_missing = |update: &UpdateRef<'_>| {
        update.modifier != DELETE_RANGE && bindings.modifiers().get(update.modifier).is_none()
    };
    let missing = waiting.iter().flat_map(Waiting::updates).find(is_missing);
    missing.map_or(Ok(()), |update| Err(bindings.unknown(update.modifier)))
}

/// Whether the updates of one key determine its value without the previous one.
fn is_decided(base: &Base, waiting: &[Waiting<'_>]) -> bool {
    let is_blind = |update: UpdateRef<'_>| {
        base.index.bindings.modifiers().get(update.modifier).is_some_and(Modifier::blind)
    };
    waiting.iter().flat_map(Waiting::updates).any(is_blind)
}
