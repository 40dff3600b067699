//! What a store counts and times: one table of all metrics, and the cells they are kept in.
//!
//! [`Metrics`] is generated from the table in `catalogue.rs`, and so is everything that shows it:
//! [`Metrics::read`] for `stat` and JSON, [`Metrics::text`] for Prometheus, and the page
//! `docs/metrics.md`. A metric has one name, in the code and outside. The name tells the unit: a
//! metric ends in `_seconds`, `_bytes` or `_ratio`, or it is a number; `_total` comes last in the
//! names of counters.
//!
//! Cells are relaxed atomics, so anybody may read them at any time, without the lock of the core.
//! Each is recorded where the thing happens, nearly always under the lock of the core, where one
//! thread writes at a time. So most recording is a load and a store, without a locked
//! instruction. What several threads may record at once says so (`Histogram::record_shared`,
//! `Gauge::change`).
//!
//! **Recording changes nothing that the engine does.** The core reads a few counters back that it
//! alone writes; those are functions of its events, as all of its state is.

mod catalogue;
mod cells;
mod histogram;
mod labels;
mod text;

pub use catalogue::{CATALOGUE, Metrics, Readings};
pub use cells::{Counter, Descriptor, Family, Gauge, Kind, Metric, Sample, SampleValue};
pub use histogram::{Distribution, Histogram};
pub use labels::{Finder, GrowthOf, Label, LockCause, LogRefusal, Place, Resource, WaitCause};
