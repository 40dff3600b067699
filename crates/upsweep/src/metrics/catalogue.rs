//! The table of all metrics.

use serde::{Deserialize, Serialize};

use super::cells::{Counter, Descriptor, Family, Gauge, Metric, Sample};
use super::histogram::Histogram;
use super::labels::{Finder, GrowthOf, LockCause, LogRefusal, Place, Resource, WaitCause};

/// Makes [`Metrics`], [`Readings`] and [`CATALOGUE`] of fields with their help.
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
            /// All of them now. Those that one thing changes may differ by it.
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

        /// What the metrics of a store were at one moment, under the same names. In JSON a metric
        /// with a label is an object with a field for each value of that.
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
    /// Time from the begin of a call that offers updates to their being on stable media, of one
    /// update after the other, not of each.
    acknowledge_seconds: Histogram,
    /// Time that a call waited for room before its update was accepted or refused, by what was
    /// short first.
    admission_wait_seconds: Family<WaitCause, Histogram>,
    /// Calls that wait for room now, by what was short first.
    admission_waiting: Family<WaitCause, Gauge>,
    /// Times that an update was offered and found no room, by what was short.
    admission_refusals_total: Family<WaitCause, Counter>,
    /// Part of the memory for waiting updates that is in use; at 1 updates wait.
    memory_fill_ratio: Gauge,
    /// Part of the log space for updates that is in use; at 1 updates wait.
    log_fill_ratio: Gauge,
    /// 1 if the store takes no more updates, after an error or because it is open for reading only,
    /// else 0.
    closed: Gauge,
    /// 1 if the data devices have no room for more and cannot grow, else 0.
    full: Gauge,
    /// Updates that their modifiers refused and that went to the quarantine.
    quarantined_updates_total: Counter,
    /// Times that a damaged block or spill segment was met.
    damage_total: Family<Finder, Counter>,

    /// Time of a query that needs a device, from the look in memory to the answer.
    query_seconds: Histogram,
    /// Reads of devices for queries.
    query_reads_total: Counter,
    /// Time for which a thread held the lock of the core at once, by what for.
    core_lock_seconds: Family<LockCause, Histogram>,

    /// Time from the dispatch of a batch of the log to its being on stable media.
    log_write_seconds: Histogram,
    /// Batches of the log dispatched.
    log_batches_total: Counter,
    /// Batches of the log that went out because the longest delay had passed.
    log_delayed_batches_total: Counter,
    /// Records in the batches of the log that were dispatched.
    log_records_total: Counter,
    /// Bytes of the batches of the log that were dispatched, whole pages.
    log_written_bytes_total: Counter,
    /// Bytes in use of the batches of the log that were dispatched, headers included.
    log_payload_bytes_total: Counter,
    /// Times that the log did not take a record, of updates or of the store itself.
    log_refusals_total: Family<LogRefusal, Counter>,
    /// Times that a ring of the log became longer.
    log_growths_total: Counter,
    /// Bytes of the log that the next open would have to read, free parts of segments in use
    /// included.
    log_used_bytes: Gauge,
    /// Bytes of all rings of the log.
    log_capacity_bytes: Gauge,
    /// Bytes that all rings of the log may come to have.
    log_capacity_limit_bytes: Gauge,
    /// The last sequence that was given to a record.
    log_last_sequence: Gauge,
    /// Everything up to this sequence is on stable media.
    log_durable_sequence: Gauge,

    /// Cycles of the sweep completed.
    sweep_cycles_total: Counter,
    /// Time of a cycle of the sweep.
    sweep_cycle_seconds: Histogram,
    /// How far the present cycle of the sweep is; 0 between cycles.
    sweep_progress_ratio: Gauge,
    /// Everything up to this sequence is inside images.
    sweep_frontier_sequence: Gauge,
    /// Runs published.
    sweep_runs_total: Counter,
    /// Blocks that the runs held.
    swept_blocks_total: Counter,
    /// Queue entries that the runs applied; updates that were folded count as one.
    swept_entries_total: Counter,
    /// Bytes that the sweep read from data devices.
    sweep_read_bytes_total: Counter,
    /// Bytes that the sweep wrote to data devices.
    sweep_written_bytes_total: Counter,
    /// Time of a flush of the data devices.
    flush_seconds: Histogram,

    /// Spills published.
    spills_total: Counter,
    /// Spills that a checkpoint carried, because the log had no room for their records.
    spills_carried_total: Counter,
    /// Time of a spill, from its first queue to its being published.
    spill_seconds: Histogram,
    /// Queue entries that the spills held.
    spilled_entries_total: Counter,
    /// Bytes that spills wrote to data devices.
    spill_written_bytes_total: Counter,
    /// Bytes of spill segments that the sweep read; part of what it read in all.
    spill_read_bytes_total: Counter,
    /// Spill segments that hold updates.
    spill_segments: Gauge,

    /// Checkpoints completed.
    checkpoints_total: Counter,
    /// Time of a checkpoint that was completed.
    checkpoint_seconds: Histogram,
    /// Bytes that checkpoints wrote.
    checkpoint_written_bytes_total: Counter,

    /// Time in which a data file or the log became longer, or was refused space.
    growth_seconds: Family<GrowthOf, Histogram>,
    /// Times that free space went back to a file system.
    holes_punched_total: Counter,
    /// Times that holes, or what may be holes since the open, were allocated.
    holes_filled_total: Counter,
    /// Bytes of images of blocks, directory and roots, and of spill segments.
    data_used_bytes: Gauge,
    /// Bytes that the data devices have at present.
    data_capacity_bytes: Gauge,

    /// Queue entries that wait for the sweep.
    waiting_entries: Family<Place, Gauge>,
    /// Blocks in the directory.
    blocks: Gauge,
    /// Memory in use.
    memory_used_bytes: Family<Resource, Gauge>,
    /// The memory budget.
    memory_budget_bytes: Gauge,
    /// Time that the open of the store took, recovery included.
    open_seconds: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.read().fmt(formatter)
    }
}

impl Readings {
    /// Queue entries that one visit of a block applied, on average: the batching degree.
    #[must_use]
    pub fn batching_degree(&self) -> f64 {
        self.swept_entries_total as f64 / self.swept_blocks_total.max(1) as f64
    }

    /// Used part of the written batches of the log, from 0 to 1.
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

    /// Bytes written to all devices for an accepted update, on average.
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
