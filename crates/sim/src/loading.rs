//! Bulk loads as in the product, in steps, so that other events interleave.
//!
//! Steps: choose an empty ordered table and its rows; begin, once the table is durable; write the
//! chunks, several at a time; finish, and only then does the model have the rows. A load may be
//! abandoned instead; a power cut abandons it in any case.

use std::collections::{BTreeMap, VecDeque};

use upsweep::layers::engine::{Chunk, LoadTarget, LoadedBlock, RunId, SnapshotId};
use upsweep::layers::log::Seq;
use upsweep::layers::runtime::BlockLimits;
use upsweep::layers::structures::table::{LoadOptions, TableLoader};
use upsweep::{Error, RequestError, RetryError, SpaceId, ValueKind, ValueRef};

use crate::oracle::{Layout, Record};
use crate::semantics::Value;
use crate::world::{Verdict, World};

/// Most chunks in progress.
const CHUNKS_MAX: usize = 4;

/// A load in progress.
pub struct Load {
    space: SpaceId,
    rows: BTreeMap<Vec<u8>, Value>,
    /// Its hidden space, and the sequence from which on that exists.
    begun: Option<(LoadTarget, Seq)>,
    blocks: VecDeque<LoadedBlock>,
    on_their_way: Vec<RunId>,
    is_given_up: bool,
}

impl Load {
    /// The table to be filled.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }
}

impl World {
    /// Begins a load, or takes the next step of the present one.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn load(&mut self) -> Verdict {
        match self.loading.take() {
            Some(load) => self.go_on_loading(load)?,
            None => self.choose_to_load()?,
        }
        self.settle()
    }

    /// Abandons the present load, and waits until it has ended.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn end_loading(&mut self) -> Verdict {
        self.turn_until("waiting for the end of a load", |world| {
            let Some(mut load) = world.loading.take() else { return true };
            load.is_given_up = true;
            world.go_on_loading(load).is_err() || world.core().closed().is_some()
        })
    }

    /// Chooses one of the empty tables, if there are any, and its new content.
    fn choose_to_load(&mut self) -> Verdict {
        let empty = |(space, table): (&SpaceId, &crate::oracle::Table)| {
            let fits = table.layout == Layout::Table && table.snapshot == SnapshotId::NONE;
            (fits && table.rows.is_empty()).then_some(*space)
        };
        let tables: Vec<SpaceId> = self.oracle.state.iter().filter_map(empty).collect();
        if tables.is_empty() {
            return Ok(());
        }
        let space = self.random.pick(&tables);
        let rows = self.workload.rows();
        let blocks = self.pack(&rows)?;
        let (begun, on_their_way, is_given_up) = (None, Vec::new(), false);
        let load = Load { space, rows, begun, blocks, on_their_way, is_given_up };
        self.loading = Some(load);
        Ok(())
    }

    fn begin_load(&mut self, mut load: Load) -> Verdict {
        let is_there = self.oracle.state.contains_key(&load.space) && !load.is_given_up;
        match self.core().begin_load(load.space) {
            Ok(begun) => load.begun = Some(begun),
            Err(Error::Retry(RetryError::Busy) | Error::Request(RequestError::NoTable(_)))
                if is_there => {}
            Err(error) => return self.check_load_error(&error),
        }
        self.loading = Some(load);
        Ok(())
    }

    /// The leaves of some rows.
    fn pack(&mut self, rows: &BTreeMap<Vec<u8>, Value>) -> Verdict<VecDeque<LoadedBlock>> {
        let limits = BlockLimits::of(self.core());
        let records = rows.iter().map(|(key, value)| {
            let kind = ValueKind::from_number(value.kind).expect("a kind of the product");
            Ok((key, ValueRef { kind, bytes: &value.bytes }))
        });
        let fill_percent = self.random.between(50, 100) as u32;
        let loader =
            TableLoader::new(records, limits, LoadOptions::default().fill_percent(fill_percent));
        loader
            .and_then(Iterator::collect)
            .map_err(|error| format!("sound rows cannot be packed: {error}"))
    }

    fn go_on_loading(&mut self, mut load: Load) -> Verdict {
        if self.random.one_in(100) {
            load.is_given_up = true;
        }
        let Some((target, begun)) = load.begun else { return self.begin_load(load) };
        if self.core().published() >= begun {
            let core = self.core.as_mut().expect("the store is open");
            let mut is_full = false;
            load.on_their_way.retain(|id| match core.load_ended(*id) {
                None => true,
                Some(ended) => {
                    is_full |= ended.is_err();
                    false
                }
            });
            if is_full && !self.plan.may_be_full() {
                return Err("a load found no space on devices that have some".to_owned());
            }
            load.is_given_up |= is_full;
            let is_idle = load.on_their_way.is_empty();
            if load.is_given_up && is_idle {
                return self.give_up(load, target.space);
            } else if load.blocks.is_empty() && is_idle {
                return self.finish_load(load, &target);
            } else if !load.is_given_up && load.on_their_way.len() < CHUNKS_MAX {
                self.load_chunk(&mut load, &target);
            }
        }
        self.loading = Some(load);
        Ok(())
    }

    fn load_chunk(&mut self, load: &mut Load, target: &LoadTarget) {
        let count = self.random.between(1, 4).min(load.blocks.len() as u64) as usize;
        let blocks: Vec<LoadedBlock> = load.blocks.drain(..count).collect();
        if blocks.is_empty() {
            return;
        }
        let chunk = Chunk::new(target, &blocks);
        load.on_their_way.push(self.core().load(chunk));
    }

    fn finish_load(&mut self, load: Load, target: &LoadTarget) -> Verdict {
        match self.core().finish_load(target, load.space) {
            Ok(seq) => {
                self.tally.loads += 1;
                self.unsettled.push((load.space, seq));
                self.oracle.accept(seq, Record::Load(load.space, load.rows));
                Ok(())
            }
            Err(Error::Retry(RetryError::Busy)) => {
                self.loading = Some(load);
                Ok(())
            }
            Err(error) => {
                self.loading = Some(Load { is_given_up: true, ..load });
                self.check_load_error(&error)
            }
        }
    }

    fn give_up(&mut self, load: Load, hidden: SpaceId) -> Verdict {
        let given_up = self.core().abandon_load(hidden);
        match given_up {
            Ok(_) => Ok(()),
            Err(error) => {
                self.loading = Some(load);
                self.check_load_error(&error)
            }
        }
    }

    /// Abandons what the last process was loading, as the product does when it opens a store.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn end_abandoned_loads(&mut self) -> Verdict {
        for space in self.core().abandoned_loads() {
            if let Err(error) = self.core().abandon_load(space) {
                self.check_load_error(&error)?;
            }
        }
        Ok(())
    }

    fn check_load_error(&self, error: &Error) -> Verdict {
        match error {
            Error::Retry(RetryError::Busy)
            | Error::Request(RequestError::NoTable(_) | RequestError::NotEmpty(_)) => Ok(()),
            Error::Closed(_) if self.failing => Ok(()),
            error => Err(format!("a load failed: {error}")),
        }
    }
}
