//! Requests for several ranges that are close together.
//!
//! A rotating device would lose a turn between two requests for neighbouring ranges, and any device
//! does more with a few long requests than with many short ones.

use std::ops::Range;

use super::DeviceId;

/// A request for one range, or for several that are close together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    /// The device.
    pub(crate) device: DeviceId,
    /// The first byte.
    pub(crate) start: u64,
    /// The first byte beyond.
    pub(crate) end: u64,
    /// The positions of its ranges in their order on the device.
    pub(crate) parts: Range<usize>,
}

impl Joint {
    /// A request for the range at this position.
    pub(crate) fn of((device, start, length): (DeviceId, u64, usize), position: usize) -> Self {
        Self { device, start, end: start + length as u64, parts: position..position + 1 }
    }

    /// One request for this one and `next` behind it, if they are close enough and it ends by
    /// `end_max`.
    fn with(&self, next: &Self, gap_bytes_max: u64, end_max: u64) -> Option<Self> {
        let end = self.end.max(next.end);
        let fits =
            self.device == next.device && next.start <= self.end + gap_bytes_max && end <= end_max;
        fits.then_some(Self { end, parts: self.parts.start..next.parts.end, ..*self })
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// The indices of ranges, given as device, offset and length, in the order of their places, and
/// requests for all of them. One that begins at an offset of a device ends at most at `end_max` of
/// these, unless a single range is longer. Requests are in the order of their offsets, so that they
/// spread over the devices. Ranges of a request are at most `gap_bytes_max` apart.
pub(crate) fn join(
    ranges: &[(DeviceId, u64, usize)],
    end_max: impl Fn(DeviceId, u64) -> u64,
    gap_bytes_max: u64,
) -> (Vec<usize>, Vec<Joint>) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|index| (ranges[*index].0, ranges[*index].1));
    let mut joints: Vec<Joint> = Vec::new();
    for (position, index) in order.iter().enumerate() {
        let next = Joint::of(ranges[*index], position);
        let end_max = |last: &Joint| end_max(last.device, last.start);
        let joined = |last: &Joint| last.with(&next, gap_bytes_max, end_max(last));
        match joints.last_mut().and_then(|last| Some((joined(last)?, last))) {
            Some((joined, last)) => *last = joined,
            None => joints.push(next),
        }
    }
    joints.sort_by_key(|joint| joint.start);
    (order, joints)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Requests, as device, start and end in pages, for ranges of a page each, given as device and
    /// page.
    fn requests(gap_bytes_max: u64, ranges: &[(u16, u64)]) -> Vec<(u16, u64, u64)> {
        let range = |(device, page): &(u16, u64)| (DeviceId(*device), page * PAGE as u64, PAGE);
        let ranges: Vec<_> = ranges.iter().map(range).collect();
        let (order, joints) = join(&ranges, |_, start| start + (1 << 20), gap_bytes_max);
        for joint in &joints {
            for (device, start, length) in order[joint.parts.clone()].iter().map(|at| ranges[*at]) {
                assert!(joint.device == device && joint.start <= start);
                assert!(joint.end >= start + length as u64);
            }
        }
        let pages = |bytes: u64| bytes / PAGE as u64;
        joints.iter().map(|joint| (joint.device.0, pages(joint.start), pages(joint.end))).collect()
    }

    #[test]
    fn ranges_that_touch_are_read_by_one_request() {
        let ranges = [(0, 5), (1, 1), (0, 4), (0, 7), (1, 0), (0, 6)];
        assert_eq!(requests(0, &ranges), [(1, 0, 2), (0, 4, 8)]);
        assert_eq!(requests(0, &[(0, 4), (0, 6), (0, 4)]), [(0, 4, 5), (0, 6, 7)]);
        assert_eq!(requests(256 << 10, &[]), []);
    }

    #[test]
    fn short_gaps_are_read_over_in_requests_of_bounded_length() {
        let requests = |ranges: &[(u16, u64)]| requests(256 << 10, ranges);
        assert_eq!(requests(&[(0, 70), (0, 5), (1, 65)]), [(0, 5, 71), (1, 65, 66)]);
        assert_eq!(requests(&[(0, 5), (0, 71)]), [(0, 5, 6), (0, 71, 72)]);
        let many: Vec<_> = (0..300).map(|page| (0, page)).collect();
        assert_eq!(requests(&many), [(0, 0, 256), (0, 256, 300)]);
    }
}
