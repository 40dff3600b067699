//! The experiments. None knows an expected number; see `experiment.rs`.

mod beluga_baseline;

use crate::experiment::Experiment;

/// All experiments, in the order of the report.
pub(crate) const ALL: &[Experiment] = &[beluga_baseline::EXPERIMENT];
