//! The steady state of a store: as many updates wait as ever will.

use super::{Store, waiting};
use crate::problem::Problem;
use crate::systems::in_place::Access;
use crate::systems::load::{Phases, Seen};

/// How many more updates may wait after a phase than before it in the steady state, in per cent.
const GROWTH_PERCENT: u64 = 2;

impl Store {
    /// Measures so many changes in the steady state under so many callers. Before that they make
    /// others, which `before` gives, in phases in which all that was accepted earlier is applied to
    /// its blocks, until a phase adds hardly any to the updates that wait.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the engine did something wrong.
    pub(crate) fn measure_steady(
        &mut self,
        callers: usize,
        mut before: impl FnMut() -> Access,
        measured: u64,
        next: impl FnMut() -> Access,
    ) -> Result<Seen, Problem> {
        let mut phases = Phases::new(self, |_, under_way| under_way < callers);
        let mut waited = 0;
        loop {
            let through = phases.system().core.accepted();
            let is_over =
                |store: &Self, ended| ended >= callers as u64 && store.core.is_swept(through);
            phases.run(&mut before, |store, ended| !is_over(store, ended))?;
            let waits = waiting(&phases.system().core);
            if waits <= waited + waited * GROWTH_PERCENT / 100 {
                break;
            }
            waited = waits;
        }
        phases.run(next, |_, ended| ended < measured)
    }
}

#[cfg(test)]
mod tests {
    use upsweep_sim::random::Random;

    use super::super::super::banks;
    use super::super::super::plan::{Memory, Plan};
    use super::*;
    use crate::systems::in_place::ANY_VALUE;
    use crate::systems::pages::Records;

    const RECORDS: Records = Records { count: 1_000_000, stride: 1 << 20 };

    #[test]
    fn the_rate_of_a_store_in_its_steady_state_stays_and_spill_segments_are_full() {
        let plan = Plan {
            data_devices: 2,
            log_bytes: 64 << 20,
            memory: Memory::Shrunk(2 << 20),
            record_bytes: 64,
            processor_us: 5,
            ..Plan::TABLE
        };
        let disks = banks::drives("dtla307030", 3, None, 1).expect("drives");
        let mut store = Store::create(plan, RECORDS, disks).expect("a store");
        let random = std::cell::RefCell::new(Random::new(1, "updates"));
        let next = || {
            let record = random.borrow_mut().below(RECORDS.count);
            Access::Put(record * RECORDS.stride, ANY_VALUE)
        };
        let first = store.measure_steady(4000, next, 200_000, next).expect("it works");
        let waits = waiting(&store.core);
        assert!(waits > 10_000, "{waits} updates wait");
        let (spill_segments, bytes) = store.core.spill_segments_size();
        let mean_bytes = bytes / spill_segments as u64;
        assert!(mean_bytes > 48 << 10, "spill segments of {mean_bytes} bytes instead of 64 KiB");
        let again = Phases::new(&mut store, |_, under_way| under_way < 4000)
            .run(next, |_, ended| ended < 200_000)
            .expect("it works");
        let ratio = again.per_second / first.per_second;
        assert!((0.8..1.25).contains(&ratio), "{} and {}", first.per_second, again.per_second);
    }
}
