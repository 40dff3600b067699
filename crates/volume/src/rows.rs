//! The rows of the catalog, and their form in its table.
//!
//! Keys begin with the kind of the row; numbers in them are big endian. Values are in the format of
//! `postcard`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::address::{BLOCK_BYTES, Branch, Physical, Stamp};
use crate::error::Error;

/// How much of its past a volume keeps, beside its snapshots. With both limits the nearer one
/// counts; with neither it keeps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// For how long.
    pub window: Option<Duration>,
    /// How many bytes of writes: as soon as more have followed, a moment may be forgotten.
    pub bytes: Option<u64>,
}

impl History {
    /// Nothing is kept.
    pub const OFF: Self = Self { window: None, bytes: None };

    /// Whether anything is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self != Self::OFF
    }
}

/// The logical block size of a volume: its size is a multiple, and clients are told to keep their
/// requests to multiples. The library itself takes any requests, whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockSize {
    /// 512 bytes, which every client can keep to.
    #[default]
    Bytes512,
    /// 4,096 bytes, of which no request needs a read before it writes.
    Bytes4096,
}

impl BlockSize {
    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }
}

/// Settings of a volume, for whoever serves it. The library keeps them, and heeds `read_only` and
/// `quota_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VolumeSettings {
    /// Whether it refuses to be written. It can be rolled back and resized all the same.
    pub read_only: bool,
    /// Most requests that are performed in a second.
    pub requests_per_second: Option<NonZeroU64>,
    /// Most bytes that are read and written in a second.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Most bytes of payload that was written to the volume and is kept: by what it shows, its
    /// snapshots, its history, or what was cloned from it ([`Volumes::used_bytes`]). It is counted
    /// in whole blocks of 4 KiB. Clones have quotas of their own.
    ///
    /// [`Volumes::used_bytes`]: crate::Volumes::used_bytes
    pub quota_bytes: Option<NonZeroU64>,
    /// Which clients may use it, as the server writes it; all may if this is empty.
    pub clients: Vec<String>,
}

impl VolumeSettings {
    /// The quota in blocks.
    pub(crate) fn quota_blocks(&self) -> Option<u64> {
        self.quota_bytes.map(|bytes| bytes.get() / BLOCK_BYTES)
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Its name.
    pub name: String,
    /// Its logical block size, which nothing changes.
    pub block_size: BlockSize,
    /// Its settings.
    pub settings: VolumeSettings,
    /// What it looks at now, last, and what it looked at in its history.
    pub epochs: Vec<Epoch>,
    /// The moment that it shows; `None`: the present, which can be written.
    pub fixed_at: Option<u64>,
    /// What it keeps.
    pub history: History,
    /// The first moment that is kept, if any is.
    pub horizon: u64,
}

/// What a volume looks at, from some moment on: a rollback changes the branch, and a resize the
/// size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its first moment.
    pub since: u64,
    /// The branch.
    pub branch: u32,
    /// The size of the volume in bytes.
    pub bytes: u64,
}

impl VolumeRow {
    /// What it looks at now.
    pub fn now(&self) -> &Epoch {
        self.epochs.last().expect("a volume has one")
    }

    /// Begins an epoch. Without a history it takes the place of the last one; then the branch of
    /// that has to be walked if it is another, which is what this returns.
    pub fn begin(&mut self, epoch: Epoch) -> Option<RowChange> {
        if self.history.is_on() {
            self.epochs.push(epoch);
            return None;
        }
        let last = std::mem::replace(&mut self.epochs, vec![epoch]).pop()?;
        (last.branch != epoch.branch).then(|| Key::Walk(Branch(last.branch)).put(&0_u64))
    }

    /// What it looked at in a moment of its history; `None` if that is not kept.
    pub fn then(&self, at: Stamp) -> Option<&Epoch> {
        let is_kept = self.history.is_on() && self.horizon <= at.0;
        let after = self.epochs.partition_point(|epoch| epoch.since <= at.0);
        after.checked_sub(1).filter(|_| is_kept).map(|last| &self.epochs[last])
    }

    /// The moments that someone may look at through it, from the first to the last of each range.
    pub fn kept(&self) -> impl Iterator<Item = (Branch, Stamp, Stamp)> + '_ {
        let shown = self.fixed_at.map_or(Stamp::NOW, Stamp);
        let now = (Branch(self.now().branch), shown, shown);
        let ends = self.epochs[1..].iter().map(|next| Stamp(next.since - 1)).chain([Stamp::NOW]);
        let past = self.epochs.iter().zip(ends).filter(|_| self.history.is_on());
        let past = past
            .map(|(epoch, end)| (Branch(epoch.branch), Stamp(epoch.since.max(self.horizon)), end));
        past.filter(|(_, from, to)| from <= to).chain([now])
    }
}

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchRow {
    /// The number of the volume that was made for, which may be gone.
    pub volume: u32,
    /// What it continues: a branch, and the last moment of it that is part of this one.
    pub parent: Option<(u32, u64)>,
}

/// A snapshot of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRow {
    /// The branch and the moment that it looks at.
    pub branch: u32,
    /// The moment.
    pub stamp: u64,
    /// The size of the volume then, in bytes.
    pub bytes: u64,
}

/// A moment in the history of a volume that is worth a return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentRow {
    /// Bytes that had been written to the volume.
    pub written: u64,
    /// What it is.
    pub kind: MomentKind,
}

/// Why it is worth a return to a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MomentKind {
    /// The user gave it this name.
    Mark(String),
    /// Nothing was written for a while after it.
    Quiet,
    /// Everything before it was flushed.
    Flush,
}

/// What is stable, as of some time ago: recovery looks at the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledRow {
    /// Changes up to this stamp are on stable media.
    pub stamp: u64,
    /// The records of all others have higher sequences of the store.
    pub seq: u64,
    /// The payload of all others is from this slot on.
    pub home: u64,
    /// The slot in that home.
    pub slot: u16,
}

impl SettledRow {
    /// Its first slot.
    pub fn first(&self) -> Physical {
        Physical { home: self.home, slot: self.slot }
    }
}

/// What the tables of volumes were made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRow {
    /// Of the format.
    pub version: u32,
    /// Slots of a home.
    pub slots_per_home: u16,
}

/// A walk begins again when it has come to the end.
pub const WALK_AGAIN: u64 = 1 << 63;

/// The key of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Format,
    Settled,
    /// How far the scrub has come.
    Scrub,
    Volume(u32),
    Branch(Branch),
    /// A branch that is walked; the row is the next chunk, and perhaps [`WALK_AGAIN`].
    Walk(Branch),
    Snapshot(u32, String),
    Moment(u32, Stamp),
    /// A volume that is being received; the row is the header of the stream that would go on.
    Receiving(u32),
    /// What a snapshot of a volume was received as: an identity.
    Origin(u32, String),
    /// How many blocks of payload a volume uses: 8 bytes, little endian.
    Used(u32),
}

impl Key {
    /// Its bytes in the table.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Format => b"format".to_vec(),
            Self::Settled => b"settled".to_vec(),
            Self::Scrub => b"scrub".to_vec(),
            Self::Volume(number) => [&b"volume/"[..], &number.to_be_bytes()].concat(),
            Self::Branch(branch) => [&b"branch/"[..], &branch.0.to_be_bytes()].concat(),
            Self::Walk(branch) => [&b"walk/"[..], &branch.0.to_be_bytes()].concat(),
            Self::Snapshot(volume, name) => {
                [&b"snapshot/"[..], &volume.to_be_bytes(), name.as_bytes()].concat()
            }
            Self::Moment(volume, stamp) => {
                [&b"moment/"[..], &volume.to_be_bytes(), &stamp.0.to_be_bytes()].concat()
            }
            Self::Receiving(number) => [&b"receiving/"[..], &number.to_be_bytes()].concat(),
            Self::Origin(volume, snapshot) => {
                [&b"origin/"[..], &volume.to_be_bytes(), snapshot.as_bytes()].concat()
            }
            Self::Used(number) => [&b"used/"[..], &number.to_be_bytes()].concat(),
        }
    }

    /// The key that these bytes are.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
        let branch = |bytes: &[u8]| Some(Branch(number(bytes)?));
        let named = |bytes: &[u8]| {
            let (volume, name) = bytes.split_at_checked(4)?;
            Some((number(volume)?, String::from_utf8(name.to_vec()).ok()?))
        };
        let kind = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
        let Some(rest) = bytes.get(kind + 1..) else {
            return match bytes {
                b"format" => Some(Self::Format),
                b"settled" => Some(Self::Settled),
                b"scrub" => Some(Self::Scrub),
                _ => None,
            };
        };
        match &bytes[..kind] {
            b"volume" => Some(Self::Volume(number(rest)?)),
            b"branch" => Some(Self::Branch(branch(rest)?)),
            b"walk" => Some(Self::Walk(branch(rest)?)),
            b"snapshot" => named(rest).map(|(volume, name)| Self::Snapshot(volume, name)),
            b"receiving" => Some(Self::Receiving(number(rest)?)),
            b"used" => Some(Self::Used(number(rest)?)),
            b"origin" => named(rest).map(|(volume, name)| Self::Origin(volume, name)),
            b"moment" => {
                let (volume, stamp) = rest.split_at_checked(4)?;
                let stamp = u64::from_be_bytes(stamp.try_into().ok()?);
                Some(Self::Moment(number(volume)?, Stamp(stamp)))
            }
            _ => None,
        }
    }
}

/// A change of one row; `None` removes it.
pub struct RowChange {
    pub key: Key,
    pub value: Option<Vec<u8>>,
}

impl Key {
    /// A change of this row to another one.
    pub fn put(self, row: &impl Serialize) -> RowChange {
        let value = postcard::to_allocvec(row).expect("it is encoded to memory");
        RowChange { key: self, value: Some(value) }
    }

    /// The removal of this row.
    pub fn remove(self) -> RowChange {
        RowChange { key: self, value: None }
    }
}

/// The row that is the value of a key.
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(value) {
        Ok((row, [])) => Ok(row),
        _ => Err(malformed(key)),
    }
}

/// A row that is none of this version.
pub fn malformed(key: &[u8]) -> Error {
    Error::Tables(format!("{:?} in the catalog", String::from_utf8_lossy(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_rows_are_read_back() {
        let keys = [
            Key::Format,
            Key::Settled,
            Key::Scrub,
            Key::Volume(0x2f00_2f00),
            Key::Branch(Branch(u32::MAX)),
            Key::Walk(Branch(7)),
            Key::Snapshot(0x2f2f_2f2f, "a name".to_owned()),
            Key::Moment(1, Stamp(0x2f2f_2f2f_2f2f)),
            Key::Receiving(3),
            Key::Origin(0x2f2f_2f2f, "a name".to_owned()),
            Key::Used(0x2f00_2f00),
        ];
        for key in keys {
            assert_eq!(Key::of(&key.bytes()), Some(key));
        }
        for wrong in [&b""[..], b"volume", b"volume/123", b"format/", b"other/1234", b"snapshot/1"]
        {
            assert_eq!(Key::of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn history_keeps_the_epochs_from_its_horizon_on() {
        let epoch = |since, branch, bytes| Epoch { since, branch, bytes };
        let mut row = VolumeRow {
            name: "disk".to_owned(),
            block_size: BlockSize::default(),
            settings: VolumeSettings::default(),
            epochs: vec![epoch(10, 1, 4096), epoch(20, 1, 8192), epoch(30, 2, 8192)],
            fixed_at: None,
            history: History { bytes: Some(1), ..History::OFF },
            horizon: 15,
        };
        let kept: Vec<(u32, u64, u64)> =
            row.kept().map(|(branch, from, to)| (branch.0, from.0, to.0)).collect();
        let now = u64::MAX;
        assert_eq!(kept, [(1, 15, 19), (1, 20, 29), (2, 30, now), (2, now, now)]);
        let then =
            |row: &VolumeRow, at| row.then(Stamp(at)).map(|epoch| (epoch.branch, epoch.bytes));
        assert_eq!((then(&row, 14), then(&row, 15)), (None, Some((1, 4096))));
        assert_eq!((then(&row, 29), then(&row, 30)), (Some((1, 8192)), Some((2, 8192))));
        row.history = History::OFF;
        assert_eq!((then(&row, 29), row.kept().count()), (None, 1));
    }
}
