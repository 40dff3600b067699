//! Counters, gauges, families of metrics, and the trait that all metrics implement.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::histogram::{Distribution, Histogram};
use super::labels::Label;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises, from zero when the store is opened.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution of times.
    Histogram,
}

/// The entry of one metric in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Its name, including `upsweep_`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The name and the values of its label, if it has one.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// Its meaning, in one sentence.
    pub help: &'static str,
}

impl Descriptor {
    pub(super) const fn of<M: Metric>(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: M::KIND, label: M::LABEL, help }
    }

    /// The unit, from the name: `seconds`, `bytes`, `ratio`, or empty for a plain number.
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
    /// The value.
    pub value: SampleValue<'a>,
}

/// The value of a series.
pub enum SampleValue<'a> {
    /// The value of a counter.
    Count(u64),
    /// The value of a gauge.
    Level(f64),
    /// A live histogram.
    Times(&'a Histogram),
    /// A histogram as it was read earlier.
    Summary(Distribution),
}

/// A metric of any kind.
pub trait Metric: Sized {
    /// The result of [`Metric::read`].
    type Reading: Clone + std::fmt::Debug + Default + Serialize + DeserializeOwned;
    /// The kind of this metric.
    const KIND: Kind;
    /// The name and the values of its label, if it has one.
    const LABEL: Option<(&'static str, &'static [&'static str])> = None;

    /// A metric with nothing recorded.
    fn empty() -> Self;

    /// Its current value.
    fn read(&self) -> Self::Reading;

    /// All its series.
    fn samples(&self) -> Vec<Sample<'_>>;

    /// All series of an earlier reading.
    fn samples_of(reading: &Self::Reading) -> Vec<Sample<'static>>;
}

/// A number that only rises.
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. Only one thread at a time may do that: the owner of the log or of the core, or
    /// the thread that holds its lock.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// The current value.
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

    /// Adds `by`, from any thread at any time.
    pub(crate) fn change(&self, by: f64) {
        let add = |bits| Some((f64::from_bits(bits) + by).to_bits());
        // `add` always returns a value, so this cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The current value.
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

/// One metric for each value of a label.
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
