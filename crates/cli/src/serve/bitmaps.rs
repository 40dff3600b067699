//! Dirty bitmaps: which ranges of a volume have changed since a snapshot or a mark, until now, or
//! until the snapshot that is exported.
//!
//! A bitmap is made when a client first asks for it, and stays as it is until the connection is
//! closed: it has all changes that were answered before that, and none that comes later. So replies
//! to several queries fit together. Who wants later changes connects again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use upsweep_nbd::{Context as Meta, Extent};
use upsweep_volume::{BLOCK_BYTES, Error, MomentKind, Past, Volume, VolumeInfo, Volumes};

/// Ranges of the first bitmap of a connection, of 16 bytes each; of the second one half as many, of
/// the third one a third, and so on. If there are more, neighbours are joined: then some of what
/// has not changed is said to have.
const RANGES_MAX: usize = 1 << 20;

/// The names of the bitmaps of a volume, or of a snapshot of it: those of the snapshots and the
/// marks before, each once.
pub(super) fn names(
    volumes: &Volumes,
    volume: &VolumeInfo,
    snapshot: Option<&str>,
) -> Vec<Arc<str>> {
    let is_it = |(name, _): &&(String, u64)| Some(name.as_str()) == snapshot;
    let end = volume.snapshots.iter().find(is_it).map(|(_, at)| *at);
    let is_before = |at: u64| end.is_none_or(|end| at < end);
    let snapshots = volume.snapshots.iter().filter(|(_, at)| is_before(*at));
    let snapshots = snapshots.map(|(name, _)| Arc::from(name.as_str()));
    // Without a history there are none.
    let moments = volumes.moments(&volume.name).unwrap_or_default();
    let moments = moments.into_iter().filter(|moment| is_before(moment.at));
    let marks = moments.filter_map(|moment| match moment.kind {
        MomentKind::Mark(name) => Some(Arc::from(name)),
        _ => None,
    });
    let mut names: Vec<Arc<str>> = snapshots.chain(marks).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The bitmaps that a connection has asked for.
#[derive(Default)]
pub(super) struct Bitmaps {
    made: Mutex<BTreeMap<Arc<str>, Arc<Bitmap>>>,
}

impl Bitmaps {
    /// What a bitmap says of a range, in so many extents or less.
    pub(super) fn status(
        &self,
        (volumes, volume): (&Volumes, &Volume),
        name: &Arc<str>,
        range: Range<u64>,
        extents_max: u32,
    ) -> Result<Vec<Extent>, Error> {
        // Others who ask for it meanwhile wait.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let bitmap = match made.get(name) {
            Some(bitmap) => Arc::clone(bitmap),
            None => {
                let ranges_max = RANGES_MAX / (made.len() + 1);
                let bitmap = Arc::new(make(volumes, volume, name, ranges_max)?);
                made.insert(Arc::clone(name), Arc::clone(&bitmap));
                bitmap
            }
        };
        drop(made);
        Ok(bitmap.extents(range, extents_max))
    }
}

/// Finds out what has changed since a snapshot, or a mark if there is none of this name.
fn make(
    volumes: &Volumes,
    volume: &Volume,
    name: &str,
    ranges_max: usize,
) -> Result<Bitmap, Error> {
    let of = volume.name()?;
    let until = volume.snapshot().map(Past::Snapshot);
    let changes = match volumes.changes(&of, Past::Snapshot(name), until) {
        Err(Error::NoSnapshot { snapshot, .. }) if snapshot == name => {
            volumes.changes(&of, Past::Mark(name), until)
        }
        found => found,
    };
    let mut bitmap = Bitmap::new(ranges_max);
    for range in changes? {
        bitmap.add(range?);
    }
    // Fails if it has been deleted: then what was looked at may have been another snapshot.
    volume.bytes()?;
    // If it has another name now, what was looked at may have been another volume.
    if volume.name()? == of { Ok(bitmap) } else { make(volumes, volume, name, ranges_max) }
}

/// Ranges in order, which do not touch.
struct Bitmap {
    ranges: Vec<Range<u64>>,
    ranges_max: usize,
    /// Ranges begin and end at multiples of this.
    grain_bytes: u64,
}

impl Bitmap {
    fn new(ranges_max: usize) -> Self {
        Self { ranges: Vec::new(), ranges_max, grain_bytes: BLOCK_BYTES }
    }

    /// Adds a range that is after all others.
    fn add(&mut self, range: Range<u64>) {
        let start = range.start / self.grain_bytes * self.grain_bytes;
        let end = range.end.next_multiple_of(self.grain_bytes);
        match self.ranges.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => self.ranges.push(start..end),
        }
        if self.ranges.len() > self.ranges_max {
            self.grain_bytes *= 2;
            std::mem::take(&mut self.ranges).into_iter().for_each(|range| self.add(range));
        }
    }

    fn extents(&self, range: Range<u64>, extents_max: u32) -> Vec<Extent> {
        let first = self.ranges.partition_point(|dirty| dirty.end <= range.start);
        let (mut extents, mut at) = (Vec::new(), range.start);
        let mut push = |until: u64, status| {
            let until = until.min(range.end);
            if at < until {
                extents.push(Extent { length: until - at, status });
                at = until;
            }
            extents.len() < extents_max as usize && at < range.end
        };
        for dirty in &self.ranges[first..] {
            if !push(dirty.start, 0) || !push(dirty.end, Meta::DIRTY) {
                return extents;
            }
        }
        push(u64::MAX, 0);
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES;

    fn bitmap(ranges_max: usize, blocks: &[Range<u64>]) -> Bitmap {
        let mut bitmap = Bitmap::new(ranges_max);
        blocks.iter().for_each(|range| bitmap.add(range.start * BLOCK..range.end * BLOCK));
        bitmap
    }

    #[test]
    fn extents_begin_with_the_range_and_end_with_it() {
        let bitmap = bitmap(10, &[1..3, 5..6]);
        let extents = |range: Range<u64>, most| {
            let extents = bitmap.extents(range, most);
            extents.iter().map(|extent| (extent.length, extent.status)).collect::<Vec<_>>()
        };
        let clean_and_dirty =
            [(BLOCK, 0), (2 * BLOCK, 1), (2 * BLOCK, 0), (BLOCK, 1), (4 * BLOCK, 0)];
        assert_eq!(extents(0..10 * BLOCK, 100), clean_and_dirty);
        assert_eq!(extents(0..10 * BLOCK, 2), clean_and_dirty[..2]);
        assert_eq!(extents(BLOCK + 1..3 * BLOCK, 100), [(2 * BLOCK - 1, 1)]);
        assert_eq!(extents(3 * BLOCK - 1..3 * BLOCK + 1, 100), [(1, 1), (1, 0)]);
        assert_eq!(extents(3 * BLOCK..4 * BLOCK, 100), [(BLOCK, 0)]);
        assert_eq!(extents(7 * BLOCK..8 * BLOCK, 100), [(BLOCK, 0)]);
    }

    #[test]
    fn too_many_ranges_are_joined_and_none_is_lost() {
        let blocks: Vec<Range<u64>> = (0..1000).map(|nth| nth * 3..nth * 3 + 1).collect();
        for most in [1, 2, 7, 100, 999, 1000] {
            let bitmap = bitmap(most, &blocks);
            assert!(bitmap.ranges.len() <= most);
            let has = |range: &Range<u64>| {
                let dirty = bitmap.extents(range.start * BLOCK..range.end * BLOCK, 100);
                dirty == [Extent { length: BLOCK, status: 1 }]
            };
            assert!(blocks.iter().all(has), "{most}");
            assert!(bitmap.ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{most}");
        }
        assert_eq!(bitmap(1000, &blocks).grain_bytes, BLOCK);
        assert!(bitmap(999, &blocks).grain_bytes > BLOCK);
    }
}
