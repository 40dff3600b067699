//! Payloads of log records.
//!
//! A payload starts with one byte that gives its kind:
//!
//! | kind | content |
//! |---|---|
//! | 1 updates | count, then per update: space, modifier, key, operand |
//! | 2 change | moved blocks, rebuilt groups, then updates as in kind 1 |
//! | 3 create space | a space |
//! | 4 drop space | space |
//! | 5 modifier | number, version, name |
//! | 6 clone | 0, or 1 and a snapshot; then pairs of a source and the space that is its clone |
//! | 7 release | how much of what was dropped is released |
//! | 8 remove range | space, first key, 0, or 1 and the first key beyond |
//! | 9 deferred counts | updates of the reference array as in kind 1 |
//! | 10 drop snapshot | snapshot |
//! | 11 adopt | space, and the source of its blocks, which is dropped |
//! | 12 spill | spill segments (`spill_segment_format.rs`), each with its blocks |
//! | 13 reserve | space, and an extent of the data devices that the engine leaves to its owner |
//! | 14 give back | an extent that was reserved |
//!
//! A *space* is its number, its companion space (0: none), the snapshot it belongs to (0: none),
//! format and name. A *snapshot* is its number, a byte (1 if it is temporary, and 2 if an identity
//! of 16 bytes follows), and its name. A *moved block* is its number, its birth, and its placement.
//! A *rebuilt group* is a space, blocks that are removed (number, birth), blocks that replace them
//! (key, placement), and large values of its companion (key, 0, or 1 and a placement). A
//! *placement* is the frontier, the distance from the image's sequence up to it, the space that the
//! image names, records, and the extent: length in units (0: no image), then device and offset in
//! units. Integers are varints, keys and operands byte strings.
//!
//! The updates of a change are quarantined ones, put into the quarantine table at the sequence of
//! the change itself, so that they are published with the sweep that refused them or not at all.

use super::codec_format::{Malformed, Reader, Room, put_bytes, put_varint, varint_len};
use super::spill_segment_format::{Spilled, put_spilled, read_spilled};
use crate::device::DeviceId;
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::registry::{KeyRange, ModifierId};
use crate::log::Seq;
use crate::placement::{DEVICE_BYTES_MAX, Extent, UNIT_BYTES};

/// One update of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedUpdate<'a> {
    /// The space.
    pub space: SpaceId,
    /// The modifier.
    pub modifier: ModifierId,
    /// Key of the record that it targets.
    pub key: &'a [u8],
    /// The modifier's operand.
    pub operand: &'a [u8],
}

/// The place of a block, and figures of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Updates through this sequence are inside the image, or in the quarantine.
    pub frontier: Seq,
    /// The frontier when the image was written; [`Seq::NONE`] if updates of the block in a spill
    /// segment are lost: then it is permanently damaged, even if its image is sound.
    pub image_seq: Seq,
    /// The space that the image names: the one through which it was written.
    pub image_space: SpaceId,
    /// Records in the image.
    pub records: u32,
    /// The place of the image; `None` if the block is empty.
    pub extent: Option<Extent>,
}

/// The damage of a block whose updates were in a spill segment that could not be read.
pub const LOST_UPDATES: &str = "updates of it were in a spill segment that could not be read, \
                                and are lost: restore the table from a backup";

impl Placement {
    /// Whether updates of the block are lost.
    #[must_use]
    pub fn has_lost_updates(&self) -> bool {
        self.extent.is_some() && self.image_seq == Seq::NONE
    }
}

/// A block of the directory with its birth, because numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockRef {
    /// Its number.
    pub number: u32,
    /// The sequence at which it got this number.
    pub birth: Seq,
}

/// A large value: its key, and its place unless it was removed.
pub type PlacedValue = (Box<[u8]>, Option<Placement>);

/// Neighbouring blocks of a space that are replaced by others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The only space concerned: others that share the blocks keep them.
    pub space: SpaceId,
    /// The old blocks, in key order.
    pub olds: Vec<BlockRef>,
    /// Their replacements, in key order; the first one has the key of the first old one.
    pub news: Vec<(Box<[u8]>, Placement)>,
    /// Large values that were written or removed.
    pub values: Vec<PlacedValue>,
}

/// A change of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Blocks of which only the place has changed, for all spaces that share them.
    pub moved: Vec<(BlockRef, Placement)>,
    /// Blocks that have split, merged or been removed.
    pub rebuilt: Vec<Rebuilt>,
}

/// A new space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its number; never used again after it is dropped.
    pub space: SpaceId,
    /// Number of the space that holds its large values, or [`SpaceId::NONE`].
    pub companion: SpaceId,
    /// The snapshot that it belongs to, or [`SnapshotId::NONE`]. Spaces of a snapshot never change.
    pub snapshot: SnapshotId,
    /// Name of its block format.
    pub format: String,
    /// Its name.
    pub name: String,
}

/// A preserved state of some spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Its number; never used again.
    pub number: SnapshotId,
    /// Whether it ends with the process that made it.
    pub temporary: bool,
    /// Distinguishes it from every other one, in copies of the store as well; zero for one that was
    /// made before snapshots had identities.
    pub identity: [u8; 16],
    /// Its name; empty if it is temporary.
    pub name: String,
}

/// New spaces that are clones of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneRecord {
    /// The snapshot that they form, if they form one.
    pub snapshot: Option<SnapshotRecord>,
    /// The sources, and the new spaces.
    pub pairs: Vec<(SpaceId, SpaceRecord)>,
}

/// A range of keys of a space is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRecord {
    /// The space.
    pub space: SpaceId,
    /// The first key.
    pub from: Vec<u8>,
    /// The first key beyond; `None` for no bound.
    pub to: Option<Vec<u8>>,
}

impl RangeRecord {
    /// The keys.
    #[must_use]
    pub fn range(&self) -> KeyRange<'_> {
        KeyRange { from: &self.from, to: self.to.as_deref() }
    }
}

/// A modifier is assigned its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModifierRecord {
    /// Its number in this store.
    pub id: ModifierId,
    /// Its version.
    pub version: u16,
    /// Its name.
    pub name: String,
}

/// A decoded payload.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Updates, all or none of which took effect.
    Updates(Updates<'a>),
    /// A change of the directory, with the updates that it sends to the quarantine.
    Change(DirectoryChange, Updates<'a>),
    /// A new space.
    CreateSpace(SpaceRecord),
    /// A space is dropped.
    DropSpace(SpaceId),
    /// A new modifier.
    Modifier(ModifierRecord),
    /// New spaces that are clones.
    Clone(CloneRecord),
    /// A portion of what was dropped is released.
    Release(usize),
    /// A range of keys is removed.
    RemoveRange(RangeRecord),
    /// Deferred reference counts, added to the reference array.
    DeferredCounts(Updates<'a>),
    /// A snapshot is dropped.
    DropSnapshot(SnapshotId),
    /// A space takes over the blocks of another, which is then removed.
    Adopt(SpaceId, SpaceId),
    /// Waiting updates are in spill segments from now on.
    Spill(Vec<Spilled>),
    /// An extent is reserved for the owner of a space.
    Reserve(SpaceId, Extent),
    /// A reserved extent is free again.
    GiveBack(Extent),
}

/// The encoded updates of a record, in order.
#[derive(Clone, Debug)]
pub struct Updates<'a> {
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Updates<'a> {
    /// The next update, or `None` after the last.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a list of updates.
    pub fn next_update(&mut self) -> Result<Option<LoggedUpdate<'a>>, Malformed> {
        if self.left == 0 {
            return if self.reader.is_empty() { Ok(None) } else { Err(Malformed("record end")) };
        }
        self.left -= 1;
        let space = self.reader.space()?;
        let modifier = ModifierId(self.reader.narrow()?);
        let (key, operand) = (self.reader.bytes()?, self.reader.bytes()?);
        Ok(Some(LoggedUpdate { space, modifier, key, operand }))
    }
}

const UPDATES: u8 = 1;
const CHANGE: u8 = 2;
const CREATE_SPACE: u8 = 3;
const DROP_SPACE: u8 = 4;
const MODIFIER: u8 = 5;
const CLONE: u8 = 6;
const RELEASE: u8 = 7;
const REMOVE_RANGE: u8 = 8;
const DEFERRED_COUNTS: u8 = 9;
const DROP_SNAPSHOT: u8 = 10;
const ADOPT: u8 = 11;
const SPILL: u8 = 12;
const RESERVE: u8 = 13;
const GIVE_BACK: u8 = 14;

/// Encoded length of one update in a record.
#[must_use]
pub fn update_len(update: &LoggedUpdate<'_>) -> usize {
    varint_len(u64::from(update.space.get()))
        + varint_len(u64::from(update.modifier.0))
        + varint_len(update.key.len() as u64)
        + update.key.len()
        + varint_len(update.operand.len() as u64)
        + update.operand.len()
}

/// Bytes of a record of kind 1 whose updates take `updates_bytes` together, by [`update_len`].
pub fn updates_len(count: usize, updates_bytes: usize) -> usize {
    1 + varint_len(count as u64) + updates_bytes
}

/// Writes a record of kind 1 into `room`, which has [`updates_len`] bytes at the final place, so
/// keys and operands are copied once.
pub fn fill_updates(updates: &[LoggedUpdate<'_>], room: &mut [u8]) {
    let mut room = Room(room);
    room.fill(&[UPDATES]);
    fill_all(updates, &mut room);
    debug_assert!(room.0.is_empty(), "the room is as long as the record");
}

/// Appends a record of kind 1.
pub fn encode_updates(updates: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    out.push(UPDATES);
    put_updates(updates, out);
}

fn put_updates(updates: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    let start = out.len();
    let bytes: usize = updates.iter().map(update_len).sum();
    out.resize(start + varint_len(updates.len() as u64) + bytes, 0);
    fill_all(updates, &mut Room(&mut out[start..]));
}

fn fill_all(updates: &[LoggedUpdate<'_>], room: &mut Room<'_>) {
    room.fill_varint(updates.len() as u64);
    for update in updates {
        room.fill_varint(u64::from(update.space.get()));
        room.fill_varint(u64::from(update.modifier.0));
        for bytes in [update.key, update.operand] {
            room.fill_varint(bytes.len() as u64);
            room.fill(bytes);
        }
    }
}

/// Appends a record of kind 2.
pub fn encode_change(
    change: &DirectoryChange,
    quarantined: &[LoggedUpdate<'_>],
    out: &mut Vec<u8>,
) {
    out.push(CHANGE);
    put_varint(out, change.moved.len() as u64);
    for (block, placement) in &change.moved {
        put_block_ref(*block, out);
        put_placement(placement, out);
    }
    put_varint(out, change.rebuilt.len() as u64);
    for group in &change.rebuilt {
        put_rebuilt(group, out);
    }
    put_updates(quarantined, out);
}

/// Appends the permanent identity of a block.
pub(super) fn put_block_ref(block: BlockRef, out: &mut Vec<u8>) {
    put_varint(out, u64::from(block.number));
    put_varint(out, block.birth.get());
}

/// Reads what [`put_block_ref`] wrote.
pub(super) fn read_block_ref(reader: &mut Reader<'_>) -> Result<BlockRef, Malformed> {
    Ok(BlockRef { number: reader.narrow()?, birth: reader.seq()? })
}

fn put_rebuilt(group: &Rebuilt, out: &mut Vec<u8>) {
    put_varint(out, u64::from(group.space.get()));
    put_varint(out, group.olds.len() as u64);
    group.olds.iter().for_each(|block| put_block_ref(*block, out));
    put_varint(out, group.news.len() as u64);
    for (key, placement) in &group.news {
        put_bytes(out, key);
        put_placement(placement, out);
    }
    put_varint(out, group.values.len() as u64);
    for (key, placement) in &group.values {
        put_bytes(out, key);
        out.push(u8::from(placement.is_some()));
        placement.iter().for_each(|placement| put_placement(placement, out));
    }
}

fn read_rebuilt(reader: &mut Reader<'_>) -> Result<Rebuilt, Malformed> {
    let mut group = Rebuilt { space: reader.space()?, ..Rebuilt::default() };
    for _ in 0..reader.count(2)? {
        group.olds.push(read_block_ref(reader)?);
    }
    for _ in 0..reader.count(6)? {
        group.news.push((reader.bytes()?.into(), read_placement(reader)?));
    }
    for _ in 0..reader.count(2)? {
        let key = reader.bytes()?.into();
        let placement = match reader.byte()? {
            0 => None,
            1 => Some(read_placement(reader)?),
            _ => return Err(Malformed("large value")),
        };
        group.values.push((key, placement));
    }
    Ok(group)
}

/// Appends a placement.
pub(super) fn put_placement(placement: &Placement, out: &mut Vec<u8>) {
    put_varint(out, placement.frontier.get());
    put_varint(out, placement.frontier.since(placement.image_seq));
    put_varint(out, u64::from(placement.image_space.get()));
    put_varint(out, u64::from(placement.records));
    put_extent(placement.extent, out);
}

/// Reads what [`put_placement`] wrote.
pub(super) fn read_placement(reader: &mut Reader<'_>) -> Result<Placement, Malformed> {
    let frontier = reader.seq()?;
    let image_seq = frontier.get().checked_sub(reader.varint()?);
    let image_seq = image_seq.map(Seq::new).ok_or(Malformed("image sequence"))?;
    let (image_space, records) = (reader.space()?, reader.narrow()?);
    let extent = read_extent(reader)?;
    Ok(Placement { frontier, image_seq, image_space, records, extent })
}

/// Appends an extent or its absence.
pub(super) fn put_extent(extent: Option<Extent>, out: &mut Vec<u8>) {
    let units = extent.map_or(0, |extent| u64::from(extent.bytes) / UNIT_BYTES);
    put_varint(out, units);
    if let Some(extent) = extent {
        put_varint(out, u64::from(extent.device.0));
        put_varint(out, extent.offset / UNIT_BYTES);
    }
}

/// Reads what [`put_extent`] wrote.
pub(super) fn read_extent(reader: &mut Reader<'_>) -> Result<Option<Extent>, Malformed> {
    let units = reader.varint()?;
    if units == 0 {
        return Ok(None);
    }
    let bytes = units.checked_mul(UNIT_BYTES).and_then(|bytes| u32::try_from(bytes).ok());
    let device = DeviceId(reader.narrow()?);
    let offset = reader.varint()?.checked_mul(UNIT_BYTES).filter(|at| *at < DEVICE_BYTES_MAX);
    let extent = bytes.zip(offset).map(|(bytes, offset)| Extent { device, offset, bytes });
    extent.filter(Extent::is_in_bounds).map(Some).ok_or(Malformed("extent"))
}

/// Appends a record of kind 3.
pub fn encode_create_space(space: &SpaceRecord, out: &mut Vec<u8>) {
    out.push(CREATE_SPACE);
    put_space(space, out);
}

/// Appends the description of a space.
pub(super) fn put_space(space: &SpaceRecord, out: &mut Vec<u8>) {
    put_varint(out, u64::from(space.space.get()));
    put_varint(out, u64::from(space.companion.get()));
    put_varint(out, u64::from(space.snapshot.get()));
    put_bytes(out, space.format.as_bytes());
    put_bytes(out, space.name.as_bytes());
}

/// Reads what [`put_space`] wrote.
pub(super) fn read_space(reader: &mut Reader<'_>) -> Result<SpaceRecord, Malformed> {
    Ok(SpaceRecord {
        space: reader.space()?,
        companion: reader.space()?,
        snapshot: reader.snapshot()?,
        format: reader.text()?.to_owned(),
        name: reader.text()?.to_owned(),
    })
}

/// Appends a record of kind 4.
pub fn encode_drop_space(space: SpaceId, out: &mut Vec<u8>) {
    out.push(DROP_SPACE);
    put_varint(out, u64::from(space.get()));
}

/// Appends a record of kind 5.
pub fn encode_modifier(modifier: &ModifierRecord, out: &mut Vec<u8>) {
    out.push(MODIFIER);
    put_modifier(modifier, out);
}

/// Appends the description of a modifier.
pub(super) fn put_modifier(modifier: &ModifierRecord, out: &mut Vec<u8>) {
    put_varint(out, u64::from(modifier.id.0));
    put_varint(out, u64::from(modifier.version));
    put_bytes(out, modifier.name.as_bytes());
}

/// Reads what [`put_modifier`] wrote.
pub(super) fn read_modifier(reader: &mut Reader<'_>) -> Result<ModifierRecord, Malformed> {
    Ok(ModifierRecord {
        id: ModifierId(reader.narrow()?),
        version: reader.narrow()?,
        name: reader.text()?.to_owned(),
    })
}

/// Appends a record of kind 6.
pub fn encode_clone(clone: &CloneRecord, out: &mut Vec<u8>) {
    out.push(CLONE);
    out.push(u8::from(clone.snapshot.is_some()));
    clone.snapshot.iter().for_each(|snapshot| put_snapshot(snapshot, out));
    put_varint(out, clone.pairs.len() as u64);
    for (source, space) in &clone.pairs {
        put_varint(out, u64::from(source.get()));
        put_space(space, out);
    }
}

fn read_clone(reader: &mut Reader<'_>) -> Result<CloneRecord, Malformed> {
    let snapshot = match reader.byte()? {
        0 => None,
        1 => Some(read_snapshot(reader)?),
        _ => return Err(Malformed("snapshot")),
    };
    let mut clone = CloneRecord { snapshot, pairs: Vec::new() };
    for _ in 0..reader.count(6)? {
        clone.pairs.push((reader.space()?, read_space(reader)?));
    }
    Ok(clone)
}

/// Appends the description of a snapshot.
pub(super) fn put_snapshot(snapshot: &SnapshotRecord, out: &mut Vec<u8>) {
    put_varint(out, u64::from(snapshot.number.get()));
    let has_identity = snapshot.identity != [0; 16];
    out.push(u8::from(snapshot.temporary) | u8::from(has_identity) << 1);
    if has_identity {
        out.extend_from_slice(&snapshot.identity);
    }
    put_bytes(out, snapshot.name.as_bytes());
}

/// Reads what [`put_snapshot`] wrote.
pub(super) fn read_snapshot(reader: &mut Reader<'_>) -> Result<SnapshotRecord, Malformed> {
    let number = reader.snapshot()?;
    let flags = reader.byte()?;
    if flags > 3 {
        return Err(Malformed("snapshot"));
    }
    let (temporary, has_identity) = (flags & 1 != 0, flags & 2 != 0);
    let identity = if has_identity { reader.array()? } else { [0; 16] };
    Ok(SnapshotRecord { number, temporary, identity, name: reader.text()?.to_owned() })
}

/// Appends a record of kind 7.
pub fn encode_release(portion: usize, out: &mut Vec<u8>) {
    out.push(RELEASE);
    put_varint(out, portion as u64);
}

/// Appends a record of kind 8.
pub fn encode_remove_range(range: &RangeRecord, out: &mut Vec<u8>) {
    out.push(REMOVE_RANGE);
    put_varint(out, u64::from(range.space.get()));
    put_bytes(out, &range.from);
    out.push(u8::from(range.to.is_some()));
    range.to.iter().for_each(|to| put_bytes(out, to));
}

fn read_range(reader: &mut Reader<'_>) -> Result<RangeRecord, Malformed> {
    let (space, from) = (reader.space()?, reader.bytes()?.to_vec());
    let to = match reader.byte()? {
        0 => None,
        1 => Some(reader.bytes()?.to_vec()),
        _ => return Err(Malformed("range")),
    };
    Ok(RangeRecord { space, from, to })
}

/// Appends a record of kind 9.
pub fn encode_deferred_counts(updates: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    out.push(DEFERRED_COUNTS);
    put_updates(updates, out);
}

/// Appends a record of kind 10.
pub fn encode_drop_snapshot(snapshot: SnapshotId, out: &mut Vec<u8>) {
    out.push(DROP_SNAPSHOT);
    put_varint(out, u64::from(snapshot.get()));
}

/// Appends a record of kind 11.
pub fn encode_adopt(space: SpaceId, source: SpaceId, out: &mut Vec<u8>) {
    out.push(ADOPT);
    put_varint(out, u64::from(space.get()));
    put_varint(out, u64::from(source.get()));
}

/// Appends a record of kind 12.
pub fn encode_spill<'a>(spilled: impl ExactSizeIterator<Item = &'a Spilled>, out: &mut Vec<u8>) {
    out.push(SPILL);
    put_varint(out, spilled.len() as u64);
    spilled.for_each(|spilled| put_spilled(spilled, out));
}

/// Appends a record of kind 13.
pub fn encode_reserve(space: SpaceId, extent: Extent, out: &mut Vec<u8>) {
    out.push(RESERVE);
    put_varint(out, u64::from(space.get()));
    put_extent(Some(extent), out);
}

/// Appends a record of kind 14.
pub fn encode_give_back(extent: Extent, out: &mut Vec<u8>) {
    out.push(GIVE_BACK);
    put_extent(Some(extent), out);
}

/// Reads an extent that has to be there.
pub(super) fn read_some_extent(reader: &mut Reader<'_>) -> Result<Extent, Malformed> {
    read_extent(reader)?.ok_or(Malformed("extent"))
}

/// Decodes any payload.
///
/// # Errors
/// [`Malformed`] when the bytes are not of any of the kinds above.
pub fn decode(payload: &[u8]) -> Result<Payload<'_>, Malformed> {
    let mut reader = Reader::new(payload);
    let decoded = match reader.byte()? {
        UPDATES => return Ok(Payload::Updates(read_updates(reader)?)),
        DEFERRED_COUNTS => return Ok(Payload::DeferredCounts(read_updates(reader)?)),
        CHANGE => {
            let mut change = DirectoryChange::default();
            for _ in 0..reader.count(7)? {
                change.moved.push((read_block_ref(&mut reader)?, read_placement(&mut reader)?));
            }
            for _ in 0..reader.count(4)? {
                change.rebuilt.push(read_rebuilt(&mut reader)?);
            }
            return Ok(Payload::Change(change, read_updates(reader)?));
        }
        CREATE_SPACE => Payload::CreateSpace(read_space(&mut reader)?),
        DROP_SPACE => Payload::DropSpace(reader.space()?),
        MODIFIER => Payload::Modifier(read_modifier(&mut reader)?),
        CLONE => Payload::Clone(read_clone(&mut reader)?),
        RELEASE => Payload::Release(reader.narrow()?),
        REMOVE_RANGE => Payload::RemoveRange(read_range(&mut reader)?),
        DROP_SNAPSHOT => Payload::DropSnapshot(reader.snapshot()?),
        ADOPT => Payload::Adopt(reader.space()?, reader.space()?),
        SPILL => {
            let mut spilled = Vec::new();
            for _ in 0..reader.count(11)? {
                spilled.push(read_spilled(&mut reader)?);
            }
            Payload::Spill(spilled)
        }
        RESERVE => Payload::Reserve(reader.space()?, read_some_extent(&mut reader)?),
        GIVE_BACK => Payload::GiveBack(read_some_extent(&mut reader)?),
        _ => return Err(Malformed("record kind")),
    };
    if reader.is_empty() { Ok(decoded) } else { Err(Malformed("record end")) }
}

fn read_updates(mut reader: Reader<'_>) -> Result<Updates<'_>, Malformed> {
    let left = reader.count(4)?;
    Ok(Updates { left, reader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::registry::PUT;

    fn updates() -> [LoggedUpdate<'static>; 2] {
        let first = LoggedUpdate {
            space: SpaceId::new(300),
            modifier: PUT,
            key: b"key",
            operand: b"operand",
        };
        [
            first,
            LoggedUpdate {
                space: SpaceId::new(1),
                modifier: ModifierId(700),
                key: b"",
                operand: b"",
            },
        ]
    }

    fn placement() -> Placement {
        let extent = Extent { device: DeviceId(1), offset: 8 * UNIT_BYTES, bytes: 8192 };
        Placement {
            frontier: Seq::new(90),
            image_seq: Seq::new(80),
            image_space: SpaceId::new(7),
            records: 6,
            extent: Some(extent),
        }
    }

    fn change() -> DirectoryChange {
        let (block, empty) =
            (BlockRef { number: 3, birth: Seq::new(1 << 63 | 5) }, Placement::default());
        let rebuilt = Rebuilt {
            space: SpaceId::new(9),
            olds: vec![block, BlockRef { number: 4, birth: Seq::new(2) }],
            news: vec![(Box::from(&b""[..]), placement()), (Box::from(&b"k"[..]), empty)],
            values: vec![(Box::from(&b"v"[..]), Some(placement())), (Box::from(&b"w"[..]), None)],
        };
        DirectoryChange { moved: vec![(block, placement())], rebuilt: vec![rebuilt] }
    }

    fn all(mut updates: Updates<'_>) -> Vec<LoggedUpdate<'_>> {
        let next = || updates.next_update().expect("as it was encoded");
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_record_of_updates_is_as_long_as_was_said_and_the_same_wherever_it_is_written() {
        let bytes: usize = updates().iter().map(update_len).sum();
        let mut room = vec![0xff; updates_len(2, bytes)];
        fill_updates(&updates(), &mut room);
        let mut out = Vec::new();
        encode_updates(&updates(), &mut out);
        assert_eq!(room, out);
        let Ok(Payload::Updates(found)) = decode(&out) else { panic!("updates") };
        assert_eq!(all(found), updates());
    }

    #[test]
    fn a_change_comes_back_with_what_it_sends_to_the_quarantine() {
        let mut out = Vec::new();
        encode_change(&change(), &updates(), &mut out);
        let Ok(Payload::Change(found, quarantined)) = decode(&out) else { panic!("a change") };
        assert_eq!(found, change());
        assert_eq!(all(quarantined), updates());
    }

    #[test]
    fn a_clone_comes_back_with_or_without_a_snapshot() {
        let space = SpaceRecord {
            space: SpaceId::new(1000),
            companion: SpaceId::new(1001),
            snapshot: SnapshotId::new(998),
            format: "table".to_owned(),
            name: "t".to_owned(),
        };
        let snapshot = |temporary, identity, name: &str| SnapshotRecord {
            number: SnapshotId::new(998),
            temporary,
            identity,
            name: name.to_owned(),
        };
        let snapshots =
            [None, Some(snapshot(true, [0; 16], "")), Some(snapshot(false, [7; 16], "monday"))];
        for snapshot in snapshots {
            let clone = CloneRecord { snapshot, pairs: vec![(SpaceId::new(5), space.clone())] };
            let mut out = Vec::new();
            encode_clone(&clone, &mut out);
            let Ok(Payload::Clone(found)) = decode(&out) else { panic!("a clone") };
            assert_eq!(found, clone);
        }
    }

    #[test]
    fn a_range_with_an_empty_end_is_not_one_without_an_end() {
        for to in [None, Some(Vec::new()), Some(b"m".to_vec())] {
            let range = RangeRecord { space: SpaceId::new(5), from: b"c".to_vec(), to };
            let mut out = Vec::new();
            encode_remove_range(&range, &mut out);
            let Ok(Payload::RemoveRange(found)) = decode(&out) else { panic!("a range") };
            assert_eq!(found, range);
        }
    }

    /// One record of each kind.
    fn records() -> Vec<Vec<u8>> {
        let space = SpaceRecord {
            space: SpaceId::new(1000),
            companion: SpaceId::new(0),
            snapshot: SnapshotId::new(0),
            format: "raw".to_owned(),
            name: "t".to_owned(),
        };
        let modifier = ModifierRecord { id: ModifierId(300), version: 2, name: "m".to_owned() };
        let clone = CloneRecord { snapshot: None, pairs: vec![(SpaceId::new(5), space.clone())] };
        let range = RangeRecord { space: SpaceId::new(5), from: b"c".to_vec(), to: None };
        let mut records = vec![Vec::new(); 11];
        encode_updates(&updates(), &mut records[0]);
        encode_change(&change(), &[], &mut records[1]);
        encode_create_space(&space, &mut records[2]);
        encode_drop_space(SpaceId::new(1000), &mut records[3]);
        encode_modifier(&modifier, &mut records[4]);
        encode_clone(&clone, &mut records[5]);
        encode_release(256, &mut records[6]);
        encode_remove_range(&range, &mut records[7]);
        encode_deferred_counts(&updates(), &mut records[8]);
        encode_drop_snapshot(SnapshotId::new(998), &mut records[9]);
        encode_adopt(SpaceId::new(1000), SpaceId::new(1002), &mut records[10]);
        records
    }

    /// Whether all of a payload can be read.
    fn is_whole(payload: &[u8]) -> bool {
        let left = match decode(payload) {
            Ok(
                Payload::Updates(left) | Payload::Change(_, left) | Payload::DeferredCounts(left),
            ) => Some(left),
            Ok(_) => None,
            Err(_) => return false,
        };
        let mut is_sound = true;
        if let Some(mut left) = left {
            while let Some(next) = left.next_update().transpose() {
                is_sound = next.is_ok();
                if !is_sound {
                    break;
                }
            }
        }
        is_sound
    }

    #[test]
    fn every_record_is_read_to_its_end_and_not_beyond() {
        for (kind, record) in records().into_iter().enumerate() {
            assert!(is_whole(&record), "record {kind}");
            for end in 0..record.len() {
                assert!(!is_whole(&record[..end]), "{end} bytes of record {kind}");
            }
            assert!(!is_whole(&[&record[..], &[0]].concat()), "one byte more than record {kind}");
        }
        assert!(!is_whole(&[99]), "no kind");
    }

    #[test]
    fn a_place_outside_of_all_devices_is_malformed() {
        let read = |extent| {
            let mut out = Vec::new();
            put_extent(Some(extent), &mut out);
            read_extent(&mut Reader::new(&out))
        };
        let extent = placement().extent.expect("it has one");
        assert_eq!(read(extent), Ok(Some(extent)));
        let beyond = Extent { offset: DEVICE_BYTES_MAX, ..extent };
        assert!(read(beyond).is_err());
        assert!(read(Extent { device: DeviceId(u16::MAX), ..extent }).is_err());
    }

    #[test]
    fn an_image_that_is_younger_than_its_frontier_is_malformed() {
        let mut out = Vec::new();
        put_varint(&mut out, 5);
        put_varint(&mut out, 6);
        assert!(read_placement(&mut Reader::new(&out)).is_err());
    }

    #[test]
    fn lost_updates_are_told_by_an_image_without_a_sequence() {
        assert!(!placement().has_lost_updates());
        assert!(Placement { image_seq: Seq::new(0), ..placement() }.has_lost_updates());
        assert!(!Placement::default().has_lost_updates(), "an empty block has lost nothing");
    }
}
