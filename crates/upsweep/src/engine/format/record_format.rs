//! Payloads of log records.
//!
//! A payload starts with one byte that tells its kind:
//!
//! | kind | content |
//! |---|---|
//! | 1 updates | count, then per update: space, modifier, key, operand |
//! | 2 change | removed blocks (space, key), placed blocks, then updates as in kind 1 |
//! | 3 create space | space, companion space (0: none), format, name |
//! | 4 drop space | space |
//! | 5 modifier | number, version, name |
//!
//! A placed block is space, key, frontier, distance from the image's sequence up to the frontier,
//! records, and its extent: length in units (0: no image),
//! then device and offset in units. Integers are varints, keys and operands byte strings.
//! The updates of a change are quarantined ones, put into the quarantine table at the sequence of
//! the change itself, so that they are published with the sweep that refused them or not at all.

use super::codec_format::{Malformed, Reader, put_bytes, put_varint, varint_len};
use crate::device::DeviceId;
use crate::engine::registry::ModifierId;
use crate::placement::{Extent, UNIT_BYTES};

/// One update of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedUpdate<'a> {
    /// The space.
    pub space: u32,
    /// The modifier.
    pub modifier: ModifierId,
    /// Key of the record that it targets.
    pub key: &'a [u8],
    /// The modifier's operand.
    pub operand: &'a [u8],
}

/// One block at its new place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The space.
    pub space: u32,
    /// The block key.
    pub key: Box<[u8]>,
    /// Updates through this sequence are inside the image, or in the quarantine.
    pub frontier: u64,
    /// The frontier when the image was written.
    pub image_seq: u64,
    /// Records in the image.
    pub records: u32,
    /// Where the image is; `None` if the block is empty.
    pub extent: Option<Extent>,
}

/// A change of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Blocks that are no more: space and key.
    pub removed: Vec<(u32, Box<[u8]>)>,
    /// Blocks that are new or have moved.
    pub placed: Vec<Placed>,
}

/// A space comes into being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its number; never used again after it is dropped.
    pub space: u32,
    /// Number of the space that holds its large values, or 0.
    pub companion: u32,
    /// Name of its block format.
    pub format: String,
    /// Its name.
    pub name: String,
}

/// A modifier gets its number.
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
    Change(Change, Updates<'a>),
    /// A new space.
    CreateSpace(SpaceRecord),
    /// The end of a space.
    DropSpace(u32),
    /// A new modifier.
    Modifier(ModifierRecord),
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
        let space = self.reader.narrow()?;
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

/// Encoded length of one update in a record.
#[must_use]
pub fn update_len(update: &LoggedUpdate<'_>) -> usize {
    varint_len(u64::from(update.space))
        + varint_len(u64::from(update.modifier.0))
        + varint_len(update.key.len() as u64)
        + update.key.len()
        + varint_len(update.operand.len() as u64)
        + update.operand.len()
}

/// Appends a record of kind 1.
pub fn encode_updates(updates: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    out.push(UPDATES);
    put_updates(updates, out);
}

fn put_updates(updates: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    put_varint(out, updates.len() as u64);
    for update in updates {
        put_varint(out, u64::from(update.space));
        put_varint(out, u64::from(update.modifier.0));
        put_bytes(out, update.key);
        put_bytes(out, update.operand);
    }
}

/// Appends a record of kind 2.
pub fn encode_change(change: &Change, quarantined: &[LoggedUpdate<'_>], out: &mut Vec<u8>) {
    out.push(CHANGE);
    put_varint(out, change.removed.len() as u64);
    for (space, key) in &change.removed {
        put_varint(out, u64::from(*space));
        put_bytes(out, key);
    }
    put_varint(out, change.placed.len() as u64);
    for placed in &change.placed {
        put_varint(out, u64::from(placed.space));
        put_placed(placed, out);
    }
    put_updates(quarantined, out);
}

/// Appends a placed block without its space.
pub(super) fn put_placed(placed: &Placed, out: &mut Vec<u8>) {
    put_bytes(out, &placed.key);
    put_varint(out, placed.frontier);
    put_varint(out, placed.frontier - placed.image_seq);
    put_varint(out, u64::from(placed.records));
    put_extent(placed.extent, out);
}

/// Reads what [`put_placed`] wrote.
pub(super) fn read_placed(reader: &mut Reader<'_>, space: u32) -> Result<Placed, Malformed> {
    let key = reader.bytes()?.into();
    let frontier = reader.varint()?;
    let image_seq = frontier.checked_sub(reader.varint()?).ok_or(Malformed("image sequence"))?;
    let (records, extent) = (reader.narrow()?, read_extent(reader)?);
    Ok(Placed { space, key, frontier, image_seq, records, extent })
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
    let offset = reader.varint()?.checked_mul(UNIT_BYTES).filter(|offset| *offset < 1 << 62);
    match (bytes, offset) {
        (Some(bytes), Some(offset)) => Ok(Some(Extent { device, offset, bytes })),
        _ => Err(Malformed("extent")),
    }
}

/// Appends a record of kind 3.
pub fn encode_create_space(space: &SpaceRecord, out: &mut Vec<u8>) {
    out.push(CREATE_SPACE);
    put_space(space, out);
}

/// Appends the description of a space.
pub(super) fn put_space(space: &SpaceRecord, out: &mut Vec<u8>) {
    put_varint(out, u64::from(space.space));
    put_varint(out, u64::from(space.companion));
    put_bytes(out, space.format.as_bytes());
    put_bytes(out, space.name.as_bytes());
}

/// Reads what [`put_space`] wrote.
pub(super) fn read_space(reader: &mut Reader<'_>) -> Result<SpaceRecord, Malformed> {
    Ok(SpaceRecord {
        space: reader.narrow()?,
        companion: reader.narrow()?,
        format: reader.text()?.to_owned(),
        name: reader.text()?.to_owned(),
    })
}

/// Appends a record of kind 4.
pub fn encode_drop_space(space: u32, out: &mut Vec<u8>) {
    out.push(DROP_SPACE);
    put_varint(out, u64::from(space));
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

/// Decodes any payload.
///
/// # Errors
/// [`Malformed`] when the bytes are none of the kinds above.
pub fn decode(payload: &[u8]) -> Result<Payload<'_>, Malformed> {
    let mut reader = Reader::new(payload);
    let decoded = match reader.byte()? {
        UPDATES => return Ok(Payload::Updates(read_updates(reader)?)),
        CHANGE => {
            let mut change = Change::default();
            for _ in 0..reader.count(2)? {
                change.removed.push((reader.narrow()?, reader.bytes()?.into()));
            }
            for _ in 0..reader.count(5)? {
                let space = reader.narrow()?;
                change.placed.push(read_placed(&mut reader, space)?);
            }
            return Ok(Payload::Change(change, read_updates(reader)?));
        }
        CREATE_SPACE => Payload::CreateSpace(read_space(&mut reader)?),
        DROP_SPACE => Payload::DropSpace(reader.narrow()?),
        MODIFIER => Payload::Modifier(read_modifier(&mut reader)?),
        _ => return Err(Malformed("record kind")),
    };
    if reader.is_empty() { Ok(decoded) } else { Err(Malformed("record end")) }
}

fn read_updates(mut reader: Reader<'_>) -> Result<Updates<'_>, Malformed> {
    let left = reader.count(4)?;
    Ok(Updates { left, reader })
}
