//! [`BlockStore::load`] for tables, by ordinary updates.
//!
//! The blocks are taken apart again: every record is put, which costs a log record and a place in
//! a queue each, and a sweep brings all of them into blocks that the engine cuts for itself. It
//! stands in for an entry of the engine that writes blocks as they are. What callers see is the
//! same, but for three things: only tables are loaded; a process that is killed on the way, or a
//! write that fails, leaves the first part of the records; a large value needs a log that holds it.

use super::Table;
use super::leaf::TableFormat;
use super::leaf_format::{Leaf, Stored};
use crate::engine::block_format::BlockFormat;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoadSummary, LoadedBlock, LoggedUpdate};
use crate::structures::modifiers::{PUT, value_operand};

impl BlockStore {
    /// Fills an empty space of format `table` with whole `blocks`, in the order of their keys: all
    /// of them, or none if this returns an error. An error among the blocks ends the load and comes
    /// back. When it returns, everything is on stable media. Nobody else may change the space
    /// meanwhile.
    ///
    /// Cost: an update per record, and a sweep. If the process ends on the way, the first part of
    /// the records is there.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::NotEmpty`]; [`RequestError::BadFormat`] for
    /// another format, or a body that is not of it; as [`BlockStore::modify`], where after
    /// [`Error::Closed`] the first part of the records may be there.
    pub fn load(
        &self,
        space: u32,
        blocks: &mut dyn Iterator<Item = Result<LoadedBlock, Error>>,
    ) -> Result<LoadSummary, Error> {
        let known = self.spaces().into_iter().find(|(record, _)| record.space == space);
        let Some((record, _)) = known else {
            return Err(RequestError::NoTable(format!("number {space}")).into());
        };
        if record.format != TableFormat.name() {
            let reason = "its blocks cannot be loaded; those of tables can".to_owned();
            return Err(RequestError::BadFormat { format: record.format, reason }.into());
        }
        let table = Table::new(self.clone(), record).with_durability(Durability::Relaxed);
        if let Some(record) = table.iter().next() {
            record?;
            return Err(RequestError::NotEmpty(table.name().to_owned()).into());
        }
        let mut summary = LoadSummary::default();
        let put_all = || {
            for block in blocks {
                let block = block?;
                put(self, space, &block)?;
                summary.add(&block);
            }
            self.sweep()
        };
        let Err(error) = put_all() else { return Ok(summary) };
        // What cannot be deleted, because the store has closed or is damaged, is for the caller to
        // see in the error that is on its way.
        drop(delete_all(&table).and_then(|()| self.flush()));
        Err(error)
    }
}

/// Puts the records of a block.
fn put(blocks: &BlockStore, space: u32, block: &LoadedBlock) -> Result<(), Error> {
    let bad = |reason| RequestError::BadFormat { format: TableFormat.name().to_owned(), reason };
    let leaf = Leaf::parse(&block.body).map_err(bad)?;
    let mut operands = Vec::with_capacity(leaf.count());
    let mut values = block.values.iter();
    for index in 0..leaf.count() {
        let record = leaf.record(index).map_err(bad)?;
        let operand = match record.value {
            Stored::Inline(value) => value_operand(value.kind, value.bytes),
            // The body of a large value and the operand that puts it are the same bytes.
            Stored::Large { .. } => {
                let found = values.next().filter(|(key, _)| key == record.key);
                let (_, body) = found.ok_or_else(|| bad("a large value is missing".to_owned()))?;
                body.clone()
            }
        };
        operands.push((record.key, operand));
    }
    let updates: Vec<LoggedUpdate<'_>> = operands
        .iter()
        .map(|(key, operand)| LoggedUpdate { space, modifier: PUT, key, operand })
        .collect();
    blocks.modify_each(updates.chunks(1), Durability::Relaxed).map(drop)
}

fn delete_all(table: &Table) -> Result<(), Error> {
    for record in table.iter() {
        let (key, _) = record?;
        drop(table.delete(&key)?);
    }
    Ok(())
}
