//! The metrics of a store: one table of all metrics, and the cells that hold their values.
//!
//! [`Metrics`] is generated from the table in `catalogue.rs`, and so is everything that shows it:
//! [`Metrics::read`] for `stat` and JSON, [`Metrics::text`] for Prometheus, and the list in
//! `docs/metrics.md`. A metric has the same name in the code and outside. The name says the unit:
//! it ends in `_seconds`, `_bytes` or `_ratio`, or the metric is a plain number. The names of
//! counters also end in `_total`.
//!
//! Cells are relaxed atomics, so any thread may read them at any time, without the lock of the
//! core. Events are recorded where they happen, nearly always under that lock, so only one thread
//! writes at a time, and most recording is a load and a store without a locked instruction.
//! Exceptions, which several threads may call at once, say so (`Histogram::record_shared`,
//! `Gauge::change`).
//!
//! **Recording does not affect the engine.** The core reads back a few counters that only it
//! writes; like all of its state, they are functions of its events.

mod catalogue;
mod cells;
mod histogram;
mod labels;
mod text;

pub use catalogue::{CATALOGUE, Metrics, Readings};
pub use cells::{Counter, Descriptor, Family, Gauge, Kind, Metric, Sample, SampleValue};
pub use histogram::{Distribution, Histogram};
pub use labels::{Finder, GrowthOf, Label, LockCause, LogRefusal, Place, Resource, WaitCause};
