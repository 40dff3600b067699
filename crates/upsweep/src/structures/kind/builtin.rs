//! The built-in kinds: the ordered table, the table of expiring records, the hash table and the
//! array.

use std::sync::Arc;

use super::{Record, RecordChanges, Records, StructureKind};
use crate::engine::block_format::BlockFormat;
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::error::Error;
use crate::structures::array::body_format::index_of;
use crate::structures::array::{ArrayFormat, CellKind};
use crate::structures::hash::{ByHash, HashFormat};
use crate::structures::modifiers::Expiring;
use crate::structures::snapshot::Changes;
use crate::structures::space::OpenSpace;
use crate::structures::table::{ByKey, Lifetime, LoadOptions, TableFormat, Value};

/// Ordered tables, of records with this lifetime.
pub(super) struct TableKind(pub(super) Lifetime);

impl StructureKind for TableKind {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(TableFormat(self.0))
    }

    fn describe(&self, _parameters: &str) -> String {
        let text = match self.0 {
            Lifetime::Endless => "a table",
            Lifetime::Limited => "a table of expiring records",
        };
        text.to_owned()
    }

    fn has_large_values(&self) -> bool {
        true
    }

    /// Those of limited lifetime with their times, including expired records that have not been
    /// dropped yet.
    fn records(&self, space: &OpenSpace) -> Records {
        Box::new(space.table::<ByKey>().iter())
    }

    fn changes(&self, earlier: &OpenSpace, later: &OpenSpace) -> Option<RecordChanges> {
        Some(Box::new(Changes::new(Some(earlier.table()), Some(later.table()))))
    }

    fn check_record(&self, _parameters: &str, _key: &[u8], value: &Value) -> Result<(), String> {
        if self.0 == Lifetime::Endless {
            return Ok(());
        }
        let record = Expiring::decode(&value.bytes).filter(|_| value.kind == ValueKind::Bytes);
        let missing = || format!("{} bytes that are no record that expires", value.bytes.len());
        record.ok_or_else(missing).map(drop)
    }

    fn restore(
        &self,
        space: &OpenSpace,
        records: &mut dyn Iterator<Item = Result<Record, Error>>,
    ) -> Result<(), Error> {
        let table = space.table::<ByKey>();
        table.load_records(records, LoadOptions::default(), self.0).map(drop)
    }
}

pub(super) struct HashKind;

impl StructureKind for HashKind {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(HashFormat)
    }

    fn describe(&self, _parameters: &str) -> String {
        "a hash table".to_owned()
    }

    fn has_large_values(&self) -> bool {
        true
    }

    fn records(&self, space: &OpenSpace) -> Records {
        Box::new(space.table::<ByHash>().iter())
    }
}

pub(super) struct ArrayKind;

impl StructureKind for ArrayKind {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(ArrayFormat::default())
    }

    fn describe(&self, parameters: &str) -> String {
        format!("an array of {parameters}")
    }

    fn check_record(&self, parameters: &str, key: &[u8], value: &Value) -> Result<(), String> {
        let cells: CellKind = parameters.parse()?;
        index_of(key).ok_or_else(|| format!("a key of {} bytes that is no index", key.len()))?;
        cells.cell_of(ValueRef { kind: value.kind, bytes: &value.bytes }).map(drop)
    }
}
