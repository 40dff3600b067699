//! Structures of any kind, as they are now or as a snapshot has them.

use std::ops::Range;

use upsweep::modifiers::Expiring;
use upsweep::{
    Array, CellKind, Error, ExpiringTable, HashTable, Kind, NumberCell, RequestError, Snapshot,
    SpaceId, Store, Structure as _, Table, Value, ValueRef,
};

use crate::args::{KindChoice, OpenArgs};
use crate::context::Context;
use crate::failure::Failure;

/// Evaluates an expression with the number type of some cells; `None` if they are no numbers.
macro_rules! with_number {
    ($cells:expr, $number:ident => $result:expr) => {{
        macro_rules! of {
            ($type:ty) => {{
                type $number = $type;
                Some($result)
            }};
        }
        match $cells {
            CellKind::U8 => of!(u8),
            CellKind::U16 => of!(u16),
            CellKind::U32 => of!(u32),
            CellKind::U64 => of!(u64),
            CellKind::I64 => of!(i64),
            CellKind::F64 => of!(f64),
            CellKind::Bytes(_) => None,
        }
    }};
}

/// The kinds whose records the program can show and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownKind {
    Table,
    ExpiringTable,
    HashTable,
    Array(CellKind),
}

impl KnownKind {
    /// Which of them this is.
    pub(crate) fn of(kind: &Kind) -> Option<Self> {
        let array = || kind.parameters().parse().ok().map(Self::Array);
        let known = [Self::Table, Self::ExpiringTable, Self::HashTable].into_iter().chain(array());
        known.into_iter().find(|known| known.kind() == *kind)
    }

    /// What it is to the library.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Table => Kind::table(),
            Self::ExpiringTable => Kind::expiring_table(),
            Self::HashTable => Kind::hash_table(),
            Self::Array(cells) => Kind::array(cells),
        }
    }
}

/// A structure to read.
pub(crate) enum Structure {
    Table(Table),
    ExpiringTable(ExpiringTable),
    HashTable(HashTable),
    Array(Box<dyn Cells>),
}

/// The value of a record of a table of expiring records, as it is stored; `None` if it has expired.
pub(crate) fn unless_expired(table: &ExpiringTable, stored: Value) -> Option<Value> {
    let Some(record) = Expiring::decode(&stored.bytes) else { return Some(stored) };
    let is_there = record.expires_us > table.blocks().time_of_day_us();
    let ValueRef { kind, bytes } = record.value;
    is_there.then(|| Value { kind, bytes: bytes.to_vec() })
}

/// Cells with their indices, from both ends.
pub(crate) type Scanned = Box<dyn DoubleEndedIterator<Item = Result<(u64, Value), Error>>>;

/// An array of numbers of any type.
pub(crate) trait Cells {
    /// The number at an index.
    fn number(&self, index: u64) -> Result<Value, Error>;

    /// The numbers that are not zero.
    fn scan(&self, range: Range<u64>) -> Scanned;
}

impl<T: NumberCell> Cells for Array<T> {
    fn number(&self, index: u64) -> Result<Value, Error> {
        self.get(index).map(widened)
    }

    fn scan(&self, range: Range<u64>) -> Scanned {
        let widen =
            |cell: Result<(u64, T), Error>| cell.map(|(index, cell)| (index, widened(cell)));
        Box::new(self.iter(range).map(widen))
    }
}

/// A cell as a number of 8 bytes.
fn widened<T: NumberCell>(cell: T) -> Value {
    let mut bytes = cell.encode();
    bytes.resize(8, 0);
    Value { kind: T::KIND.value_kind(), bytes }
}

/// When to read.
pub(crate) enum Moment {
    /// Now.
    Now(Store),
    /// When this snapshot was made.
    Then(Snapshot),
}

impl Moment {
    /// Opens a store and, if one is named, a snapshot.
    pub(crate) fn open(
        context: &Context,
        open: &OpenArgs,
        at: Option<&str>,
    ) -> Result<Self, Failure> {
        let store = context.open_to_read(open)?;
        Ok(match at {
            Some(name) => Self::Then(store.existing_snapshot(name)?),
            None => Self::Now(store),
        })
    }

    /// What a structure is.
    pub(crate) fn kind(&self, name: &str) -> Result<Kind, Failure> {
        match self {
            Self::Now(store) => store
                .kind(name)
                .ok_or_else(|| Error::from(RequestError::NoTable(name.to_owned())).into()),
            Self::Then(snapshot) => snapshot.kind(name).ok_or_else(|| {
                let snapshot = snapshot.name().unwrap_or_default();
                let advice = "`upsweep snapshot list` shows what it has";
                Failure::Refused(format!("no table {name:?} in snapshot {snapshot:?}; {advice}"))
            }),
        }
    }

    /// What a structure is, if the program can use it.
    pub(crate) fn known_kind(&self, name: &str) -> Result<KnownKind, Failure> {
        known(name, &self.kind(name)?)
    }

    /// How many records the blocks of a structure have, waiting updates aside; `None` if that is
    /// not known, as in a snapshot.
    pub(crate) fn records_in_blocks(&self, name: &str) -> Option<u64> {
        let Self::Now(store) = self else { return None };
        let found = store.structures().into_iter().find(|(found, ..)| found == name);
        found.map(|(_, _, size)| size.records)
    }

    /// Opens a structure of any kind.
    pub(crate) fn structure(&self, name: &str) -> Result<Structure, Failure> {
        Ok(match (self.known_kind(name)?, self) {
            (KnownKind::Table, Self::Now(store)) => Structure::Table(store.existing_table(name)?),
            (KnownKind::Table, Self::Then(snapshot)) => Structure::Table(snapshot.table(name)?),
            (KnownKind::ExpiringTable, Self::Now(store)) => {
                Structure::ExpiringTable(store.existing_expiring_table(name)?)
            }
            (KnownKind::ExpiringTable, Self::Then(snapshot)) => {
                Structure::ExpiringTable(snapshot.expiring_table(name)?)
            }
            (KnownKind::HashTable, Self::Now(store)) => {
                Structure::HashTable(store.existing_hash_table(name)?)
            }
            (KnownKind::HashTable, Self::Then(snapshot)) => {
                Structure::HashTable(snapshot.hash_table(name)?)
            }
            (KnownKind::Array(cells), moment) => {
                let array = with_number!(cells, T => moment.array::<T>(name)?);
                Structure::Array(array.ok_or_else(|| no_numbers(name, cells))?)
            }
        })
    }

    fn array<T: NumberCell>(&self, name: &str) -> Result<Box<dyn Cells>, Error> {
        Ok(Box::new(match self {
            Self::Now(store) => store.existing_array::<T>(name)?,
            Self::Then(snapshot) => snapshot.array::<T>(name)?,
        }))
    }
}

/// What `kind` is, if the program can use it; `name` has it.
pub(crate) fn known(name: &str, kind: &Kind) -> Result<KnownKind, Failure> {
    KnownKind::of(kind).ok_or_else(|| {
        let only = "only a program that has this kind can use it";
        Failure::Refused(format!("{name:?} is {kind}; {only}"))
    })
}

/// Makes a structure; nothing must have its name.
pub(crate) fn create(store: &Store, name: &str, kind: KnownKind) -> Result<(), Failure> {
    match kind {
        KnownKind::Table => drop(store.table(name)?),
        KnownKind::ExpiringTable => drop(store.expiring_table(name)?),
        KnownKind::HashTable => drop(store.hash_table(name)?),
        KnownKind::Array(cells) => {
            let array = with_number!(cells, T => store.array::<T>(name).map(drop));
            array.ok_or_else(|| no_numbers(name, cells))??;
        }
    }
    Ok(())
}

/// The number of the space of an array, whose cells must be numbers.
pub(crate) fn space_of_numbers(
    store: &Store,
    name: &str,
    cells: CellKind,
) -> Result<SpaceId, Failure> {
    let space = with_number!(cells, T => store.existing_array::<T>(name)?.space());
    space.ok_or_else(|| no_numbers(name, cells))
}

/// The refusal of an array whose cells the program cannot show.
fn no_numbers(name: &str, cells: CellKind) -> Failure {
    let only = "only the application that made it knows what they mean";
    Failure::Refused(format!("{name:?} is an array of {cells}, which are not numbers; {only}"))
}

/// A kind with its article, for messages.
pub(crate) fn describe(kind: &Kind) -> String {
    if *kind == Kind::table() { "an ordered table".to_owned() } else { kind.to_string() }
}

/// A kind as `--kind` takes it; one that the program does not have as its store has it on record.
pub(crate) fn name_of(kind: &Kind) -> String {
    let known = KnownKind::of(kind).map(|known| KindChoice(known).to_string());
    known.unwrap_or_else(|| kind.format().to_owned())
}
