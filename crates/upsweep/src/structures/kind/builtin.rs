//! The built-in kinds: the ordered table, the hash table and the array.

use std::sync::Arc;

use super::{Record, RecordChanges, Records, StructureKind};
use crate::engine::block_format::BlockFormat;
use crate::engine::modifier::ValueRef;
use crate::error::Error;
use crate::structures::array::body_format::index_of;
use crate::structures::array::{ArrayFormat, CellKind};
use crate::structures::hash::{ByHash, HashFormat};
use crate::structures::snapshot::Changes;
use crate::structures::space::OpenSpace;
use crate::structures::table::{ByKey, LoadOptions, TableFormat, Value};

pub(super) struct TableKind;

impl StructureKind for TableKind {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(TableFormat)
    }

    fn describe(&self, _parameters: &str) -> String {
        "a table".to_owned()
    }

    fn has_large_values(&self) -> bool {
        true
    }

    fn records(&self, space: &OpenSpace) -> Records {
        Box::new(space.table::<ByKey>().iter())
    }

    fn changes(&self, earlier: &OpenSpace, later: &OpenSpace) -> Option<RecordChanges> {
        Some(Box::new(Changes::new(Some(earlier.table()), Some(later.table()))))
    }

    fn restore(
        &self,
        space: &OpenSpace,
        records: &mut dyn Iterator<Item = Result<Record, Error>>,
    ) -> Result<(), Error> {
        space.table::<ByKey>().load(records, LoadOptions::default()).map(drop)
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
