//! What will happen, in the order of time, and at equal times in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The controller has taken up a command.
    Begin(u64),
    /// The data of a write is in the device.
    Data(u64),
    /// The cells of a die have been read, programmed or erased.
    Cells(u32),
    /// Data has crossed a channel.
    Crossed(u32),
    /// A command completes.
    End(u64),
}

/// The events that are planned.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
}

impl Events {
    pub(super) fn plan(&mut self, at_ns: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse((at_ns, self.planned, event)));
    }

    /// When the next one happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// The next one that happens at `now_ns` or before.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(u64, Event)> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}
