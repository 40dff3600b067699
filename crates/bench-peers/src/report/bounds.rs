//! What the device allows, by the physical reference of the same run.

use crate::engine::RECORD_BYTES;
use crate::outcome::{Reference, Settings};

/// Bytes of a waiting update that no engine can do without: key and operand.
const WAITING_BYTES: f64 = 16.0;

/// Bounds of the rate of uniform increments at a ratio, in updates per second.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Of engines that gather updates in memory and then read and write all data in sequence.
    pub(super) sweep: f64,
    /// Of engines that read and write a page for each update.
    pub(super) pairs: f64,
    /// Of one caller that waits for a synchronous write after the other.
    pub(super) syncs: f64,
}

/// The bounds at a ratio.
pub(super) fn at(settings: &Settings, reference: &Reference, ratio: u64) -> Bounds {
    let memory = settings.memory_bytes as f64;
    let (waiting, data) = (memory / WAITING_BYTES, memory * ratio as f64);
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
         B / write bandwidth) updates a second; q is the memory over {WAITING_BYTES} bytes, a key \
         and an operand, with nothing left for anything else; B is {RECORD_BYTES} bytes a record. \
         **Pairs**: one random read and one random write of 4 KiB for each update, which is what a \
         tree that is updated in place does beyond what it has cached. **Syncs**: synchronous \
         writes of 4 KiB, one after the other. An engine may be above a bound of a kind that is \
         not its own. What the processors allow is not in these bounds."
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
        let bounds = at(&settings, &reference, 10);
        assert!((bounds.sweep - 1e7 / 4.8).abs() < 1.0, "{}", bounds.sweep);
        assert!((bounds.pairs - 7.0).abs() < 1e-9);
    }
}
