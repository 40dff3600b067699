//! What the device allows, by the physical reference of the same run.

use crate::engine::{COUNTER_BYTES, VALUE_BYTES};
use crate::outcome::{DataSet, Reference, Settings};

/// Bounds of the rate of uniform increments on a data set, in updates per second.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Of engines that gather updates in memory and then read and write all data in sequence.
    pub(super) sweep: f64,
    /// Of engines that read and write a page for each update.
    pub(super) pairs: f64,
    /// Of one caller that waits for a synchronous write after the other.
    pub(super) syncs: f64,
}

/// The bounds on a data set.
pub(super) fn of(settings: &Settings, reference: &Reference, set: DataSet) -> Bounds {
    let memory = settings.memory_bytes as f64;
    // A waiting update is a key and an operand.
    let waiting = memory / (usize::from(set.key_bytes) + COUNTER_BYTES) as f64;
    let data = memory * set.ratio as f64;
    let seconds = data / reference.read_bytes_per_second.max(1.0)
        + data / reference.write_bytes_per_second.max(1.0);
    Bounds {
        sweep: waiting / seconds.max(1e-9),
        pairs: reference.pairs_per_second,
        syncs: reference.syncs_per_second,
    }
}

/// How the bounds are computed, for the reader.
pub(super) fn explanation() -> String {
    format!(
        "Bounds of uniform increments. **Sweep**: with q updates waiting in memory and B bytes of \
         data, a sweep reads and writes B once and applies q, so at most q / (B / read bandwidth + \
         B / write bandwidth) updates a second; q is the memory over the bytes of a key and of an \
         operand ({COUNTER_BYTES}), with nothing left for anything else; B is the ratio times the \
         memory, in records of a key and {VALUE_BYTES} bytes. **Pairs**: one random read and one \
         random write of 4 KiB for each update, which is what a tree that is updated in place does \
         beyond what it has cached. **Syncs**: synchronous writes of 4 KiB, one after the other. \
         An engine may be above a bound of a kind that is not its own, and above that of the sweep \
         where it keeps less than whole keys in memory. What the processors allow is not in these \
         bounds."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_bound_is_that_of_the_formula() {
        let settings = Settings { memory_bytes: 160_000_000, ..Settings::default() };
        let reference = Reference {
            read_bytes_per_second: 1e9,
            write_bytes_per_second: 5e8,
            pairs_per_second: 7.0,
            ..Reference::default()
        };
        // 10 million updates wait; 1.6 GB are read in 1.6 s and written in 3.2 s.
        let bounds = of(&settings, &reference, DataSet { ratio: 10, key_bytes: 8 });
        assert!((bounds.sweep - 1e7 / 4.8).abs() < 1.0, "{}", bounds.sweep);
        // With keys of 56 bytes a quarter as many wait.
        let longer = of(&settings, &reference, DataSet { ratio: 10, key_bytes: 56 });
        assert!((longer.sweep - 2.5e6 / 4.8).abs() < 1.0, "{}", longer.sweep);
        assert!((bounds.pairs - 7.0).abs() < 1e-9);
    }
}
