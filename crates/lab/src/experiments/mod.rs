//! The experiments. None knows an expected number; see `experiment.rs`.

mod beluga_baseline;
mod beluga_batches;
mod beluga_depth;
mod beluga_disks;
mod beluga_flash;
mod beluga_offsets;
mod beluga_records;
mod beluga_sentinels;
mod beluga_sparse;
mod bosc_gma;
mod bosc_hash;
mod bosc_logging;
mod bosc_mariner;
mod bosc_memory;
mod bosc_reads;
mod bosc_recovery;
mod bosc_sensitivity;
mod bosc_split;
mod bosc_tpcc;
mod dense;
mod indexes;
mod lachesis_compound;
mod lachesis_efficiency;
mod lachesis_raid;
mod lachesis_scans;
mod lachesis_stripes;
mod lachesis_tracks;
mod lachesis_updates;
mod mariner;
mod modern;
mod modern_stores;
mod petabyte;
mod shadowed;
mod shadowed_build;
mod shadowed_disk;
mod shadowed_latency;
mod shadowed_rates;

use crate::experiment::Experiment;

/// All experiments, in the order of the report.
pub(crate) const ALL: &[Experiment] = &[
    bosc_split::EXPERIMENT,
    bosc_memory::INSERT,
    bosc_memory::UPDATE,
    bosc_tpcc::EXPERIMENT,
    bosc_sensitivity::LEAF_SIZE,
    bosc_sensitivity::RECORD_SIZE,
    bosc_sensitivity::RECORD_AND_LEAF_SIZE,
    bosc_sensitivity::INDEX_SIZE,
    bosc_sensitivity::MEMORY,
    bosc_reads::EXPERIMENT,
    bosc_logging::EXPERIMENT,
    bosc_recovery::EXPERIMENT,
    bosc_gma::EXPERIMENT,
    bosc_mariner::EXPERIMENT,
    mariner::EXPERIMENT,
    bosc_hash::INSERT,
    bosc_hash::UPDATE,
    beluga_baseline::EXPERIMENT,
    beluga_batches::EXPERIMENT,
    beluga_records::EXPERIMENT,
    beluga_offsets::TABLE,
    beluga_offsets::FIGURE,
    beluga_disks::EXPERIMENT,
    beluga_depth::EXPERIMENT,
    beluga_sparse::EXPERIMENT,
    beluga_sentinels::EXPERIMENT,
    beluga_flash::EXPERIMENT,
    shadowed_disk::EXPERIMENT,
    shadowed_latency::EXPERIMENT,
    shadowed_rates::THROUGHPUT,
    shadowed_build::EXPERIMENT,
    shadowed_rates::BY_MEMORY,
    lachesis_tracks::EXPERIMENT,
    lachesis_efficiency::EXPERIMENT,
    lachesis_stripes::EXPERIMENT,
    lachesis_scans::EXPERIMENT,
    lachesis_raid::EXPERIMENT,
    lachesis_updates::EXPERIMENT,
    modern::DRIVE,
    modern::SOLID_STATE,
    petabyte::EXPERIMENT,
];
