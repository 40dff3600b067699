//! Stamps: the order of all changes, and which of them are written.
//!
//! A change takes a stamp and declares its records while it holds the gate for reading. Whoever
//! needs a moment between changes, such as a snapshot, takes a stamp with the gate closed: then
//! every change before it has declared its records, and none after it has.

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use upsweep::Seq;

use crate::address::{Physical, Stamp};

/// The source of stamps.
pub struct Stamps {
    gate: RwLock<()>,
    state: Mutex<State>,
}

struct State {
    last: Stamp,
    /// From which moment on looks that are being taken need what there is, and how many do.
    looks: BTreeMap<Stamp, usize>,
    /// Changes whose records may not be declared yet.
    in_flight: BTreeMap<Stamp, InFlight>,
}

/// A change that is being made.
#[derive(Clone, Copy)]
struct InFlight {
    /// The sequence of the store before its records.
    after: Seq,
    /// Its first slot, once it has some.
    first: Option<Physical>,
}

/// Up to where everything is declared: see [`Stamps::written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Changes up to this one.
    pub stamp: Stamp,
    /// The store's sequence that comes before the records of all other changes.
    pub seq: Seq,
    /// The first slot of changes in flight.
    pub first: Option<Physical>,
}

/// A change that has begun; it is in flight until this is dropped.
pub struct Change<'a> {
    stamps: &'a Stamps,
    /// Its moment.
    pub stamp: Stamp,
}

/// A look that is being taken, until this is dropped.
pub struct Looking<'a> {
    stamps: &'a Stamps,
    from: Stamp,
}

impl Stamps {
    /// All changes up to `last` were made in earlier sessions.
    pub fn after(last: Stamp) -> Self {
        let state = State { last, looks: BTreeMap::new(), in_flight: BTreeMap::new() };
        Self { gate: RwLock::new(()), state: Mutex::new(state) }
    }

    /// Lets a change declare its records.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Begins a change at the present, `now_us`, whose records have sequences after `after`. The
    /// caller holds the gate.
    pub fn begin(&self, now_us: u64, after: Seq) -> Change<'_> {
        let mut state = self.state.lock();
        let stamp = state.next(now_us);
        state.in_flight.insert(stamp, InFlight { after, first: None });
        Change { stamps: self, stamp }
    }

    /// A stamp between changes: `act` runs while none has a stamp whose records are not declared.
    pub fn between<T>(&self, now_us: u64, act: impl FnOnce(Stamp) -> T) -> T {
        let _closed = self.gate.write();
        let stamp = self.state.lock().next(now_us);
        act(stamp)
    }

    /// Begins a look at the present, which may take a while.
    pub fn look(&self) -> Looking<'_> {
        let mut state = self.state.lock();
        let from = state.before_all_in_flight();
        *state.looks.entry(from).or_default() += 1;
        Looking { stamps: self, from }
    }

    /// From which moment on someone looks; [`Stamp::NOW`] if nobody does.
    pub fn first_look(&self) -> Stamp {
        self.state.lock().looks.first_key_value().map_or(Stamp::NOW, |(from, _)| *from)
    }

    /// Later stamps are after this one.
    pub fn advance(&self, to: Stamp) {
        let mut state = self.state.lock();
        state.last = state.last.max(to);
    }

    /// The last stamp that was given out.
    pub fn last(&self) -> Stamp {
        self.state.lock().last
    }

    /// What is declared now: a flush that begins from now on makes it stable, with its payload.
    /// `last` is the last sequence of the store.
    pub fn written(&self, last: Seq) -> Written {
        let state = self.state.lock();
        match state.in_flight.first_key_value() {
            None => Written { stamp: state.last, seq: last, first: None },
            Some((_, first)) => {
                let slots = state.in_flight.values().filter_map(|change| change.first);
                let stamp = state.before_all_in_flight();
                Written { stamp, seq: first.after, first: slots.min() }
            }
        }
    }
}

impl State {
    /// The last stamp of which all changes up to it are declared.
    fn before_all_in_flight(&self) -> Stamp {
        self.in_flight.first_key_value().map_or(self.last, |(first, _)| Stamp(first.0 - 1))
    }

    fn next(&mut self, now_us: u64) -> Stamp {
        self.last = Stamp(now_us.max(self.last.0 + 1));
        self.last
    }
}

impl Change<'_> {
    /// Its payload goes to slots from here on.
    pub fn writes_to(&self, first: Physical) {
        let mut state = self.stamps.state.lock();
        if let Some(change) = state.in_flight.get_mut(&self.stamp) {
            change.first = Some(change.first.map_or(first, |known| known.min(first)));
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.stamps.state.lock().in_flight.remove(&self.stamp);
    }
}

impl Looking<'_> {
    /// From which moment on it needs what there is.
    pub fn from(&self) -> Stamp {
        self.from
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut state = self.stamps.state.lock();
        if let Some(count) = state.looks.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                state.looks.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_whatever_the_clock_does() {
        let stamps = Stamps::after(Stamp(100));
        let given: Vec<u64> = [50, 200, 200, 10]
            .into_iter()
            .map(|now| stamps.begin(now, Seq::NONE).stamp.0)
            .collect();
        assert_eq!(given, [101, 200, 201, 202]);
    }

    #[test]
    fn what_is_written_ends_before_the_first_change_in_flight() {
        let stamps = Stamps::after(Stamp(0));
        let slot = |slot| Physical { home: 1, slot };
        let first = stamps.begin(10, Seq::new(5));
        let second = stamps.begin(20, Seq::new(6));
        first.writes_to(slot(3));
        second.writes_to(slot(4));
        let written = stamps.written(Seq::new(9));
        assert_eq!(written, Written { stamp: Stamp(9), seq: Seq::new(5), first: Some(slot(3)) });
        drop(first);
        let written = stamps.written(Seq::new(9));
        assert_eq!(written, Written { stamp: Stamp(19), seq: Seq::new(6), first: Some(slot(4)) });
        drop(second);
        let written = stamps.written(Seq::new(9));
        assert_eq!(written, Written { stamp: Stamp(20), seq: Seq::new(9), first: None });
    }
}
