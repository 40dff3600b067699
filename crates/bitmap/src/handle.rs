//! The handle of a set in an open store.

use std::convert::Infallible;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::Arc;

use upsweep::layers::engine::registry::{DELETE, ModifierId};
use upsweep::layers::runtime::{BlockStore, BlockVisitor, VisitedBlock, Wanted};
use upsweep::{
    Batch, Durability, Error, OpenSpace, RequestError, Snapshot, SpaceId, Store, Structure,
    StructureKind, Ticket, WholeBlock,
};

use crate::BitmapKind;
use crate::block::{BITS_DEFAULT, BitmapFormat, key_of, members};
use crate::edit::Edit;

/// An iterator over members of a set. It ends after the first error.
pub type Members = Box<dyn Iterator<Item = Result<u64, Error>>>;

/// A set of integers in a store or in a snapshot. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Bitmap {
    space: OpenSpace,
    format: BitmapFormat,
    edit: ModifierId,
    durability: Durability,
}

impl Bitmap {
    /// Opens the set with this name, and creates it if it does not exist.
    ///
    /// # Errors
    /// As [`Store::space`].
    pub fn open(store: &Store, name: &str) -> Result<Self, Error> {
        let kind = store.kind(name).filter(|kind| kind.name() == BitmapKind.format().name());
        let kind = kind.unwrap_or_else(|| BitmapKind::with_bits(BITS_DEFAULT));
        Self::new(store.space(name, &kind)?)
    }

    /// Opens the set with this name in a snapshot, which cannot be changed.
    ///
    /// # Errors
    /// As [`Snapshot::space`].
    pub fn at(snapshot: &Snapshot, name: &str) -> Result<Self, Error> {
        let missing = || RequestError::NoTable(name.to_owned());
        let kind = snapshot.kind(name).ok_or_else(missing)?;
        let is_bitmap = kind.name() == BitmapKind.format().name();
        let wanted = if is_bitmap { kind } else { BitmapKind::with_bits(BITS_DEFAULT) };
        Self::new(snapshot.space(name, &wanted)?)
    }

    /// The set in a space of the kind [`BitmapKind`].
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`] if the kind is not registered: register it when opening
    /// the store; [`RequestError::BadFormat`] if the space is of a different kind.
    pub fn new(space: OpenSpace) -> Result<Self, Error> {
        let edit = space.blocks().modifier_id(&Edit)?;
        let bad =
            |reason| RequestError::BadFormat { format: space.record().format.clone(), reason };
        let format = BitmapFormat::with_parameters(space.parameters()).map_err(bad)?;
        Ok(Self { space, format, edit, durability: Durability::Wait })
    }

    /// The same set with a different durability: when changes return. The default is
    /// [`Durability::Wait`].
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability, ..self.clone() }
    }

    /// Adds an integer. Never reads the device.
    ///
    /// # Errors
    /// As [`OpenSpace::update`].
    pub fn insert(&self, member: u64) -> Result<Ticket, Error> {
        self.space.update(&key_of(member), self.edit, &Edit::insert(member), self.durability)
    }

    /// Removes an integer. Never reads the device.
    ///
    /// # Errors
    /// As [`OpenSpace::update`].
    pub fn remove(&self, member: u64) -> Result<Ticket, Error> {
        self.space.update(&key_of(member), self.edit, &Edit::remove(member), self.durability)
    }

    /// As [`Bitmap::insert`], as part of a batch.
    pub fn insert_in(&self, batch: &mut Batch, member: u64) {
        batch.update(self, &member, self.edit, &Edit::insert(member));
    }

    /// As [`Bitmap::remove`], as part of a batch.
    pub fn remove_in(&self, batch: &mut Batch, member: u64) {
        batch.update(self, &member, self.edit, &Edit::remove(member));
    }

    /// Whether an integer is in the set. Cost: at most one read of a block.
    ///
    /// # Errors
    /// As [`OpenSpace::view`].
    pub fn contains(&self, member: u64) -> Result<bool, Error> {
        let key = key_of(member);
        let view = self.space.view(Wanted::Point(key.to_vec()))?;
        let mut updates = view.updates();
        updates.retain(|update| update.key == key);
        let (body, modifiers) =
            (view.image.as_ref().map(|image| image.body()), self.space.blocks().modifiers());
        let word = self.format.word(body, &modifiers, &key, &updates);
        let word = word.map_err(|reason| self.space.damage(&view, reason))?;
        Ok(members(0, word).any(|bit| bit == member % u64::from(u64::BITS)))
    }

    /// The members in `range`, in order. Each block is read when the iterator reaches it, and shows
    /// its state at that time; in a snapshot, its state in the snapshot.
    pub fn iter(&self, range: impl RangeBounds<u64>) -> Members {
        let (range, format) = (bounds(&range), self.format);
        let ends = [range.start(), range.end()];
        let [first, last] = ends.map(|member| format.block_of(*member).to_be_bytes());
        let is_inside = move |block: &Result<WholeBlock, Error>| {
            block.as_ref().map_or(true, |block| *block.view.low <= last[..])
        };
        let blocks = self.space.scan(&first).take_while(is_inside);
        Box::new(blocks.flat_map(move |block| {
            let found = block.and_then(|block| format.members_of(&block));
            let (found, error) = match found {
                Ok(found) => (found, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            let range = range.clone();
            found.into_iter().filter(move |member| range.contains(member)).map(Ok).chain(error)
        }))
    }

    /// The number of members in `range`. Cost: a pass over its blocks.
    ///
    /// # Errors
    /// As [`Bitmap::contains`].
    pub fn count(&self, range: impl RangeBounds<u64>) -> Result<u64, Error> {
        self.iter(range).try_fold(0, |sum, member| member.map(|_| sum + 1))
    }

    /// Calls `visit` with the members of each block that is swept from now on: see
    /// [`OpenSpace::set_visitor`].
    ///
    /// # Errors
    /// As [`OpenSpace::set_visitor`].
    pub fn set_visitor(
        &self,
        visit: impl Fn(Vec<u64>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.space.set_visitor(Some(Arc::new(Visitor { format: self.format, visit })))
    }
}

impl BitmapFormat {
    fn members_of(self, block: &WholeBlock) -> Result<Vec<u64>, Error> {
        let words = self.numbered(&block.view.low, &block.body);
        let words = words.map_err(|reason| block.view.damage("a bitmap".to_owned(), reason))?;
        Ok(words.into_iter().flat_map(|(number, word)| members(number, word)).collect())
    }
}

impl Structure for Bitmap {
    /// An integer; its record is the word that contains it.
    type Key = u64;
    /// None: words are edited and never put.
    type Value = Infallible;

    fn name(&self) -> &str {
        self.space.name()
    }

    fn space(&self) -> SpaceId {
        self.space.number()
    }

    fn blocks(&self) -> &BlockStore {
        self.space.blocks()
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn key_bytes(member: &u64) -> Vec<u8> {
        key_of(*member).to_vec()
    }

    fn put_operand(value: &Infallible) -> Vec<u8> {
        match *value {}
    }

    fn check(&self, _member: &u64, modifier: ModifierId, _operand: &[u8]) -> Result<(), Error> {
        if modifier == self.edit || modifier == DELETE {
            return Ok(());
        }
        let modifiers = self.space.blocks().modifiers();
        let name = modifiers.get(modifier).map_or("", |modifier| modifier.name());
        let reason = "a bitmap accepts insertions and removals only".to_owned();
        Err(RequestError::BadOperand { modifier: name.to_owned(), reason }.into())
    }
}

/// The range with inclusive bounds.
fn bounds(range: &impl RangeBounds<u64>) -> RangeInclusive<u64> {
    let empty = RangeInclusive::new(1, 0);
    let start = match range.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(end) => Some(*end),
        Bound::Excluded(end) => end.checked_sub(1),
        Bound::Unbounded => Some(u64::MAX),
    };
    start.zip(end).map_or(empty, |(start, end)| start..=end)
}

/// Adapts a closure over members to the visitors of the engine.
struct Visitor<F> {
    format: BitmapFormat,
    visit: F,
}

impl<F: Fn(Vec<u64>) + Send + Sync> BlockVisitor for Visitor<F> {
    fn visit(&self, block: &VisitedBlock<'_>) {
        if let Ok(words) = self.format.numbered(block.key, block.body) {
            let all = words.into_iter().flat_map(|(number, word)| members(number, word));
            (self.visit)(all.collect());
        }
    }
}
