//! Counters, gauges, families of them, and what they have in common.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::histogram::{Distribution, Histogram};
use super::labels::Label;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, from zero at the open.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How many times of which length there were.
    Histogram,
}

/// What the catalogue says of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Its name, `upsweep_` included.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The name of its label and the values that this has, if it has one.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// What it tells, in one sentence.
    pub help: &'static str,
}

impl Descriptor {
    pub(super) const fn of<M: Metric>(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: M::KIND, label: M::LABEL, help }
    }

    /// The unit, as the name tells it: `seconds`, `bytes`, `ratio`, or nothing for a number.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let base = self.name.trim_end_matches("_total");
        let has = |unit: &&&str| base.rsplit('_').next() == Some(unit);
        ["seconds", "bytes", "ratio"].iter().find(has).copied().unwrap_or_default()
    }
}

/// One series of a metric.
pub struct Sample<'a> {
    /// The value of the label, if the metric has one.
    pub label: Option<&'static str>,
    /// What was recorded.
    pub value: SampleValue<'a>,
}

/// What was recorded of a series.
pub enum SampleValue<'a> {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram.
    Times(&'a Histogram),
    /// Of a histogram that was read.
    Summary(Distribution),
}

/// A metric of any kind.
pub trait Metric: Sized {
    /// What [`Metric::read`] gives.
    type Reading: Clone + std::fmt::Debug + Default + Serialize + DeserializeOwned;
    /// What it is.
    const KIND: Kind;
    /// The name of the label and its values.
    const LABEL: Option<(&'static str, &'static [&'static str])> = None;

    /// One with nothing recorded.
    fn empty() -> Self;

    /// Its value now.
    fn read(&self) -> Self::Reading;

    /// All series of it.
    fn samples(&self) -> Vec<Sample<'_>>;

    /// All series of what was read of one.
    fn samples_of(reading: &Self::Reading) -> Vec<Sample<'static>>;
}

/// A number that only rises.
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. One thread at a time may do that: the owner of the log or of the core, or who
    /// holds its lock.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metric for Counter {
    type Reading = u64;
    const KIND: Kind = Kind::Counter;

    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }

    fn read(&self) -> u64 {
        self.get()
    }

    fn samples(&self) -> Vec<Sample<'_>> {
        Self::samples_of(&self.get())
    }

    fn samples_of(reading: &u64) -> Vec<Sample<'static>> {
        vec![Sample { label: None, value: SampleValue::Count(*reading) }]
    }
}

/// A number that rises and falls; integers are exact up to 2^53.
pub struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `by`; any thread may do that at any time.
    pub(crate) fn change(&self, by: f64) {
        let add = |bits| Some((f64::from_bits(bits) + by).to_bits());
        // It always has a value to store.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Metric for Gauge {
    type Reading = f64;
    const KIND: Kind = Kind::Gauge;

    fn empty() -> Self {
        Self(AtomicU64::new(0))
    }

    fn read(&self) -> f64 {
        self.get()
    }

    fn samples(&self) -> Vec<Sample<'_>> {
        Self::samples_of(&self.get())
    }

    fn samples_of(reading: &f64) -> Vec<Sample<'static>> {
        vec![Sample { label: None, value: SampleValue::Level(*reading) }]
    }
}

fn labelled<'a>(value: &'static str, samples: Vec<Sample<'a>>) -> impl Iterator<Item = Sample<'a>> {
    samples.into_iter().map(move |sample| Sample { label: Some(value), ..sample })
}

/// A metric for each value of a label.
pub struct Family<L, M> {
    each: Box<[M]>,
    label: PhantomData<L>,
}

impl<L: Label, M> Index<L> for Family<L, M> {
    type Output = M;

    fn index(&self, value: L) -> &M {
        &self.each[value.index()]
    }
}

impl<L, M> Family<L, M> {
    /// The metrics of all values.
    pub fn iter(&self) -> std::slice::Iter<'_, M> {
        self.each.iter()
    }
}

impl<'a, L, M> IntoIterator for &'a Family<L, M> {
    type Item = &'a M;
    type IntoIter = std::slice::Iter<'a, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<L: Label, M: Metric> Metric for Family<L, M> {
    type Reading = BTreeMap<String, M::Reading>;
    const KIND: Kind = M::KIND;
    const LABEL: Option<(&'static str, &'static [&'static str])> = Some((L::NAME, L::VALUES));

    fn empty() -> Self {
        Self { each: L::VALUES.iter().map(|_| M::empty()).collect(), label: PhantomData }
    }

    fn read(&self) -> Self::Reading {
        let each = L::VALUES.iter().zip(&self.each);
        each.map(|(value, metric)| ((*value).to_owned(), metric.read())).collect()
    }

    fn samples(&self) -> Vec<Sample<'_>> {
        let each = L::VALUES.iter().zip(&self.each);
        each.flat_map(|(value, metric)| labelled(value, metric.samples())).collect()
    }

    fn samples_of(reading: &Self::Reading) -> Vec<Sample<'static>> {
        let each = L::VALUES.iter().filter_map(|value| Some((*value, reading.get(*value)?)));
        each.flat_map(|(value, reading)| labelled(value, M::samples_of(reading))).collect()
    }
}
