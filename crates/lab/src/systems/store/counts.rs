//! A store with an array of counters.

use upsweep::layers::device::Simulated;
use upsweep::layers::engine::{Accept, LoadedBlock, LoggedUpdate};
use upsweep::layers::log::{Seq, Urgency};
use upsweep::layers::structures::array::body_format::{Body, BodyEditor, block_key, key_of};
use upsweep::layers::structures::modifiers::ADD_U64;

use super::{CellKind, Plan, Store, config, problem};
use crate::problem::Problem;
use crate::systems::pages::Records;
use crate::systems::plan::Memory;

impl Store {
    /// A store on a bank at rest, with an array of so many counters of this kind, all of which are
    /// 1, and so many runs of the sweep under way.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the store cannot be made, for example with too little memory.
    pub(crate) fn with_counters(
        plan: Plan,
        (cell, counters): (CellKind, u64),
        runs: usize,
        devices: Box<dyn Simulated>,
    ) -> Result<Self, Problem> {
        let records = Records { count: counters, stride: 1 };
        let mut config = config(&plan, records, &*devices, None);
        let buffers = config.fixed_bytes();
        config.runs_in_flight_max = runs;
        if let Memory::Shrunk(_) = plan.memory {
            config.memory_bytes += config.fixed_bytes().saturating_sub(buffers);
        }
        let mut store = Self::empty(plan, config, devices)?;
        store.make(&format!("array:{cell}"), false)?;
        let cells = cell.cells_per_block();
        let wrong = |reason| Problem::Simulation(format!("an array: {reason}"));
        let mut body = BodyEditor::new(Body::parse(cell, &[]).map_err(wrong)?, cells);
        let one = &1_u64.to_le_bytes()[..cell.cell_bytes()];
        (0..cells).for_each(|offset| body.set(offset, one));
        let (body, records) = body.finish();
        // The last one is full too.
        let blocks = (0..counters.div_ceil(cells as u64)).map(|number| {
            let (key, body) = (block_key(number).to_vec(), body.clone());
            Ok(LoadedBlock { key, body, records: records as u32, values: Vec::new() })
        });
        store.fill(blocks)?;
        Ok(store)
    }

    /// Adds 1 to neighbouring counters, in one record of the log; `None` if there is no room.
    pub(super) fn count_cells(&mut self, first: u64, cells: u64) -> Result<Option<Seq>, Problem> {
        let keys: Vec<[u8; 8]> = (first..first + cells).map(key_of).collect();
        let (space, modifier, one) = (self.space, ADD_U64, 1_u64.to_le_bytes());
        let update = |key| LoggedUpdate { space, modifier, key, operand: &one };
        let updates: Vec<_> = keys.iter().map(|key| update(key)).collect();
        match self.core.modify(&updates, Urgency::Now, self.devices.now_us()) {
            Ok(Accept::Accepted(seq)) => Ok(Some(seq)),
            Ok(Accept::Wait) => Ok(None),
            Err(error) => Err(problem("counting")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use upsweep::layers::engine::{Actions, View, ViewPoll, Wanted};
    use upsweep::layers::structures::array::block::cell;
    use upsweep_sim::random::Random;

    use super::super::super::banks;
    use super::super::super::in_place::Access;
    use super::super::super::load::Load;
    use super::*;

    #[test]
    fn counters_are_what_was_counted() {
        let plan = Plan {
            data_devices: 2,
            log_bytes: 64 << 20,
            memory: Memory::Whole(16 << 20),
            record_bytes: 16,
            fill_percent: 70,
            processor_us: 5,
            ..Plan::TABLE
        };
        let (counters, mut random) = (4_000_000, Random::new(1, "counters"));
        let disks = banks::drives("dtla307030", 3, None, 1).expect("drives");
        let mut store =
            Store::with_counters(plan, (CellKind::U32, counters), 4, disks).expect("a store");
        let mut oracle = BTreeMap::<u64, u32>::new();
        // More than memory has room for, so that the array is swept.
        let load = Load { callers: 16, warm_up: 0, measured: 30_000 };
        let next = || {
            let first = random.below(counters - 100);
            (first..first + 100).for_each(|index| *oracle.entry(index).or_insert(1) += 1);
            Access::Count(first, 100)
        };
        let seen = load.run(&mut store, next).expect("it works");
        assert!(seen.traffic.reads > 100, "{:?}", seen.traffic);
        store.run_until("nothing is under way", |core| !core.is_active()).expect("it works");
        for (index, expected) in oracle.into_iter().step_by(1009) {
            let view = view(&mut store, index);
            let body = view.image.as_ref().map(|image| image.body());
            let found = cell(CellKind::U32, body, &store.modifiers, index, &view.updates());
            assert_eq!(found.expect("it is sound"), expected.to_le_bytes(), "{index}");
        }
    }

    /// The block with a counter, and the updates of it that wait.
    fn view(store: &mut Store, index: u64) -> View {
        let wanted = Wanted::Point(key_of(index).to_vec());
        let polled = store.core.view(store.space, wanted).expect("it can be read");
        let mut ready = if let ViewPoll::Ready(view) = polled { Some(view) } else { None };
        while ready.is_none() {
            let mut actions = Actions::default();
            store.core.pump(store.devices.now_us(), &mut actions);
            actions.requests.into_iter().for_each(|request| store.devices.submit(request));
            ready = actions.views.into_iter().find_map(|(_, view)| view.ok());
            if let Some(us) = store.devices.next_event_us() {
                store.devices.advance_to(us);
            }
            let mut completions = Vec::new();
            store.devices.reap(&mut completions);
            completions.into_iter().for_each(|one| store.core.complete(one));
        }
        ready.expect("it was read")
    }
}
