//! The table of all metrics.

use serde::{Deserialize, Serialize};

use super::cells::{Counter, Descriptor, Family, Gauge, Metric, Sample};
use super::histogram::Histogram;
use super::labels::{Finder, GrowthOf, LockCause, LogRefusal, Place, Resource, WaitCause};

/// Generates [`Metrics`], [`Readings`] and [`CATALOGUE`] from fields and their help texts.
macro_rules! catalogue {
    ($($(#[doc = $help:literal])+ $name:ident: $metric:ty,)*) => {
        /// The metrics of one open store, since it was opened.
        pub struct Metrics {
            $($(#[doc = $help])+ pub $name: $metric,)*
        }

        impl Default for Metrics {
            fn default() -> Self {
                Self { $($name: Metric::empty(),)* }
            }
        }

        impl Metrics {
            /// The current values of all metrics. They are not read at one instant: metrics that
            /// the same event changes may differ by that event.
            #[must_use]
            pub fn read(&self) -> Readings {
                Readings { $($name: self.$name.read(),)* }
            }

            /// All series of all metrics, in the order of [`CATALOGUE`].
            pub(super) fn samples(
                &self,
            ) -> impl Iterator<Item = (&'static Descriptor, Vec<Sample<'_>>)> {
                CATALOGUE.iter().zip([$(self.$name.samples()),*])
            }
        }

        /// The values of the metrics of a store at one moment, under the same names. In JSON a
        /// metric with a label is an object with one field per value of the label.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Readings {
            $($(#[doc = $help])+ pub $name: <$metric as Metric>::Reading,)*
        }

        impl Readings {
            /// All series of all metrics, in the order of [`CATALOGUE`].
            pub(super) fn samples(
                &self,
            ) -> impl Iterator<Item = (&'static Descriptor, Vec<Sample<'_>>)> {
                CATALOGUE.iter().zip([$(<$metric as Metric>::samples_of(&self.$name)),*])
            }
        }

        /// All metrics.
        pub const CATALOGUE: &[Descriptor] = &[
            $(Descriptor::of::<$metric>(
                concat!("upsweep_", stringify!($name)),
                concat!($($help),+).trim_ascii_start(),
            ),)*
        ];
    };
}

catalogue! {
    /// Updates accepted.
    updates_total: Counter,
    /// Time from the start of a call that offers updates until they are on stable media; sampled,
    /// one update at a time.
    acknowledge_seconds: Histogram,
    /// Time that a call waited for room before its update was accepted or refused, by the first
    /// resource that was short.
    admission_wait_seconds: Family<WaitCause, Histogram>,
    /// Calls that are waiting for room, by the first resource that was short.
    admission_waiting: Family<WaitCause, Gauge>,
    /// Times that an update found no room, by the resource that was short.
    admission_refusals_total: Family<WaitCause, Counter>,
    /// Changes that waited for room without a thread and were accepted only because the store looks
    /// again when nothing has happened for a while: it was not told that there is room.
    admission_unasked_total: Counter,
    /// Part of the memory for waiting updates that is in use; at 1, callers wait.
    memory_fill_ratio: Gauge,
    /// Part of the log space for updates that is in use; at 1, callers wait.
    log_fill_ratio: Gauge,
    /// 1 if the store accepts no updates, after an error or because it is open read-only; otherwise
    /// 0.
    closed: Gauge,
    /// 1 if the data devices are full and cannot grow; otherwise 0.
    full: Gauge,
    /// Updates that were quarantined because their modifiers refused them.
    quarantined_updates_total: Counter,
    /// Times that a damaged block or spill segment was found.
    damage_total: Family<Finder, Counter>,

    /// Time of a query that needs a device, from the lookup in memory to the answer.
    query_seconds: Histogram,
    /// Device reads for queries.
    query_reads_total: Counter,
    /// Bytes of waiting updates that queries and scans went through, in queues and in spill
    /// segments. On solid-state devices the sweep may move as many bytes of blocks.
    query_waiting_bytes_total: Counter,
    /// Bytes that requests of scans read ahead.
    scan_read_bytes_total: Counter,
    /// Bytes of them that no scan used: blocks that moved meanwhile, scans that ended early, gaps
    /// between blocks.
    scan_unused_bytes_total: Counter,
    /// Time that a thread held the lock of the core, by purpose.
    core_lock_seconds: Family<LockCause, Histogram>,

    /// Time from the dispatch of a log batch until it is on stable media.
    log_write_seconds: Histogram,
    /// Log batches dispatched.
    log_batches_total: Counter,
    /// Log batches dispatched because the maximum delay had passed.
    log_delayed_batches_total: Counter,
    /// Records in dispatched log batches.
    log_records_total: Counter,
    /// Bytes of dispatched log batches, in whole pages.
    log_written_bytes_total: Counter,
    /// Used bytes of dispatched log batches, headers included.
    log_payload_bytes_total: Counter,
    /// Log batches without records dispatched: see `LogMode`. No other metric counts them.
    log_dummy_batches_total: Counter,
    /// Bytes of them.
    log_dummy_written_bytes_total: Counter,
    /// Distance from a log batch without records to the next, on the device where it is longest; 0
    /// without a train.
    log_train_stride_bytes: Gauge,
    /// Log batches put where the head of their drive was expected: see `LogMode`.
    log_predictions_total: Counter,
    /// Those of them that took a turn longer than expected.
    log_predictions_failed_total: Counter,
    /// Log devices on which the place of the head is known.
    log_known_heads: Gauge,
    /// Times that the log refused a record, of updates or of the store itself.
    log_refusals_total: Family<LogRefusal, Counter>,
    /// Times that a log ring was extended.
    log_growths_total: Counter,
    /// Bytes of the log that the next open would have to read, including free parts of segments in
    /// use.
    log_used_bytes: Gauge,
    /// Bytes of all log rings.
    log_capacity_bytes: Gauge,
    /// Bytes to which all log rings together may grow.
    log_capacity_limit_bytes: Gauge,
    /// Sequence number of the last record.
    log_last_sequence: Gauge,
    /// Sequence number up to which everything is on stable media.
    log_durable_sequence: Gauge,

    /// Sweep cycles completed.
    sweep_cycles_total: Counter,
    /// Time of a sweep cycle.
    sweep_cycle_seconds: Histogram,
    /// Progress of the current sweep cycle; 0 between cycles.
    sweep_progress_ratio: Gauge,
    /// Sequence number up to which everything is in block images.
    sweep_frontier_sequence: Gauge,
    /// Runs published.
    sweep_runs_total: Counter,
    /// Blocks in published runs.
    swept_blocks_total: Counter,
    /// Queue entries applied by published runs; folded updates count as one.
    swept_entries_total: Counter,
    /// Bytes that the sweep read from data devices.
    sweep_read_bytes_total: Counter,
    /// Bytes that the sweep wrote to data devices.
    sweep_written_bytes_total: Counter,
    /// Time of a flush of the data devices.
    flush_seconds: Histogram,

    /// Spills published.
    spills_total: Counter,
    /// Spills recorded by a checkpoint because the log had no room for their records.
    spills_carried_total: Counter,
    /// Time of a spill, from its first queue until it is published.
    spill_seconds: Histogram,
    /// Queue entries in published spills.
    spilled_entries_total: Counter,
    /// Bytes that spills wrote to data devices.
    spill_written_bytes_total: Counter,
    /// Bytes of spill segments that the sweep read; included in `sweep_read_bytes_total`.
    spill_read_bytes_total: Counter,
    /// Spill segments that hold updates.
    spill_segments: Gauge,

    /// Checkpoints completed.
    checkpoints_total: Counter,
    /// Time of a completed checkpoint.
    checkpoint_seconds: Histogram,
    /// Bytes that checkpoints wrote.
    checkpoint_written_bytes_total: Counter,

    /// Time of an attempt to extend a data file or the log, successful or not.
    growth_seconds: Family<GrowthOf, Histogram>,
    /// Times that free space was returned to a file system.
    holes_punched_total: Counter,
    /// Times that holes, or ranges that may be holes since the open, were allocated.
    holes_filled_total: Counter,
    /// Bytes of block images, directory, roots, spill segments and reserved extents.
    data_used_bytes: Gauge,
    /// Bytes of reserved extents.
    data_reserved_bytes: Gauge,
    /// Current size of the data devices in bytes.
    data_capacity_bytes: Gauge,

    /// Queue entries that wait for the sweep.
    waiting_entries: Family<Place, Gauge>,
    /// Blocks in the directory.
    blocks: Gauge,
    /// Memory in use.
    memory_used_bytes: Family<Resource, Gauge>,
    /// The memory budget.
    memory_budget_bytes: Gauge,
    /// Time that opening the store took, recovery included.
    open_seconds: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read().fmt(formatter)
    }
}

impl Readings {
    /// The batching degree: average number of queue entries applied per visit of a block.
    #[must_use]
    pub fn batching_degree(&self) -> f64 {
        self.swept_entries_total as f64 / self.swept_blocks_total.max(1) as f64
    }

    /// Used part of the written log batches, from 0 to 1.
    #[must_use]
    pub fn batch_fill(&self) -> f64 {
        self.log_payload_bytes_total as f64 / self.log_written_bytes_total.max(1) as f64
    }

    /// Bytes written to all devices.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.log_written_bytes_total
            + self.sweep_written_bytes_total
            + self.spill_written_bytes_total
            + self.checkpoint_written_bytes_total
    }

    /// Average number of bytes written to all devices per accepted update.
    #[must_use]
    pub fn written_bytes_per_update(&self) -> f64 {
        self.written_bytes() as f64 / self.updates_total.max(1) as f64
    }

    /// Whether updates were accepted or anything was swept.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.updates_total > 0 || self.sweep_runs_total > 0
    }
}
