//! Receiving: a volume from a stream, or changes of a volume that was received before.
//!
//! 1. The stream has to continue what the volume is, or to have everything, for a new volume.
//! 2. From then on the volume always shows that moment, so that nobody can write to it; a new one
//!    shows nothing. What arrives becomes later versions in the same branch, which nobody sees.
//! 3. Now and then what has arrived is flushed, and then it is recorded up to where that is.
//! 4. At the end one record makes what has arrived the present of the volume, and a snapshot.
//!
//! If a stream is interrupted, another one of the same moments goes on, from anywhere up to what
//! is recorded. A rollback gives up.
//!
//! Invariant: what a receiver is recorded to have is stable.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use upsweep::Durability;

use crate::address::{Branch, Stamp};
use crate::catalog::{Beginning, Catalog, Past, Properties, Writer, check_size};
use crate::error::Error;
use crate::rows::{Epoch, Key, RowChange, SnapshotRow, VolumeRow};
use crate::stream::{Decoder, Header, Record, ResumeToken, Totals};
use crate::volume::{Acknowledge, Volume};
use crate::volumes::Volumes;

/// After so many bytes of a stream it is recorded how far a volume has been received.
const PROGRESS_BYTES: u64 = 16 << 20;

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The snapshot that is what was sent.
    pub snapshot: String,
    /// The size of the volume in bytes.
    pub bytes: u64,
    /// Whether the stream had only what has changed.
    pub is_increment: bool,
    /// What the stream had.
    pub totals: Totals,
}

/// What a volume is receiving.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receiving {
    /// The snapshot that it will have.
    pub snapshot: String,
    /// The moment that the stream continues, as its sender calls it; `None`: it is a new volume.
    pub base: Option<String>,
    /// Where the sender goes on after an interruption.
    pub token: ResumeToken,
}

impl Receiving {
    pub(crate) fn of(header: &Header) -> Self {
        let base = header.base.as_ref().map(|base| base.name.clone());
        Self { snapshot: header.name.clone(), base, token: header.token() }
    }
}

impl Volumes {
    /// Receives a volume, which is made, or changes of one that is what the stream continues. At
    /// the end the volume is what was sent, and has a snapshot of it with the name that the sender
    /// gave. Until then it cannot be written and shows what it was; a new one cannot be used at
    /// all. A call that fails leaves that as it is, so that another stream of the same moments can
    /// go on: see [`VolumeInfo::receiving`](crate::VolumeInfo::receiving). Cost: the writes, a
    /// flush for each 16 MiB of the stream, and for changes a scan of the map of the volume.
    ///
    /// # Errors
    /// Before anything is changed: [`Error::BadName`]; [`Error::VolumeExists`];
    /// [`Error::NoVolume`], [`Error::NoBase`] or [`Error::ChangedSince`] if the volume is not what
    /// the stream continues; [`Error::ReadOnly`]; [`Error::KeepsHistory`];
    /// [`Error::SnapshotExists`]; [`Error::ReceivesOther`], [`Error::BeginsLater`] or
    /// [`Error::NotReceived`] if the stream cannot go on with what has been received;
    /// [`Error::ReceivedNow`].
    ///
    /// [`Error::BadStream`] or [`Error::Transfer`]: send it again from where it ended.
    /// [`Error::NotReceived`] or [`Error::Deleted`] if it was given up meanwhile; [`Error::Store`].
    pub fn receive(&self, name: &str, input: impl Read) -> Result<Received, Error> {
        let mut stream = Decoder::new(input)?;
        let mut receiver = self.receiver(name, stream.header())?;
        if let Err(error) = receiver.take_all(&mut stream) {
            // What has arrived need not come again; what went wrong first is what to tell.
            drop(receiver.note());
            return Err(error);
        }
        receiver.end()?;
        let (header, totals) = (stream.header(), stream.totals());
        let (snapshot, is_increment) = (header.name.clone(), header.base.is_some());
        Ok(Received { snapshot, bytes: header.bytes, is_increment, totals })
    }

    /// Begins to receive, or goes on.
    fn receiver(&self, name: &str, header: &Header) -> Result<Receiver, Error> {
        let inner = &self.inner;
        let unchanged = self.unchanged(name, header)?;
        inner.between(|now| {
            let mut catalog = inner.catalog.write();
            let mut receivers = inner.receivers.lock();
            // Also one that has been given up: it must not find that it may go on.
            if catalog.number(name).is_ok_and(|number| receivers.contains(&number)) {
                return Err(Error::ReceivedNow(name.to_owned()));
            }
            let number = catalog.begin_receiving(name, header, unchanged, now)?;
            receivers.insert(number);
            let (inner, writer) = (Arc::clone(inner), Writer::Receiver);
            let header = catalog.rows.receiving[&number].clone();
            let volume = Volume { inner, number, writer, snapshot: None };
            Ok(Receiver { volume, header, noted_at: 0 })
        })
    }

    /// Until when a volume is known to be what a stream that begins continues; `None` if that does
    /// not matter, or is for [`Catalog::begin_receiving`] to find out.
    fn unchanged(&self, name: &str, header: &Header) -> Result<Option<Unchanged>, Error> {
        let inner = &self.inner;
        let catalog = inner.catalog.read();
        let (Some(base), Ok(number)) = (&header.base, catalog.number(name)) else {
            return Ok(None);
        };
        if catalog.rows.receiving.contains_key(&number) {
            return Ok(None);
        }
        let missing = || Error::NoBase { volume: name.to_owned(), base: base.name.clone() };
        let snapshot = catalog.snapshot_with(number, base.identity).ok_or_else(missing)?;
        let epoch = *catalog.rows.volumes[&number].now();
        let bytes = catalog.past(name, Past::Snapshot(&snapshot), Stamp::NOW)?.bytes;
        drop(catalog);
        let mut changes = self.changes(name, Past::Snapshot(&snapshot), None)?;
        let until = changes.until();
        match changes.next().transpose()? {
            None if bytes == epoch.bytes => Ok(Some(Unchanged { epoch, until })),
            _ => Err(Error::ChangedSince { volume: name.to_owned(), snapshot }),
        }
    }
}

/// A volume is what a stream continues, as long as nothing is written to it after a moment.
struct Unchanged {
    /// What the volume looks at.
    epoch: Epoch,
    /// The moment.
    until: Stamp,
}

/// Writes what arrives to a volume.
struct Receiver {
    volume: Volume,
    /// The header of the stream that would go on: it starts where all has arrived before.
    header: Header,
    /// The position in the stream at which that was last recorded.
    noted_at: u64,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.volume.inner.receivers.lock().remove(&self.volume.number);
    }
}

impl Receiver {
    fn take_all(&mut self, stream: &mut Decoder<impl Read>) -> Result<(), Error> {
        while let Some(record) = stream.next_record()? {
            self.take(record)?;
            let position = stream.position();
            if position - self.noted_at >= PROGRESS_BYTES {
                self.note()?;
                self.noted_at = position;
            }
        }
        Ok(())
    }

    /// Writes what a record has, as far as it has not arrived before.
    fn take(&mut self, record: Record<'_>) -> Result<(), Error> {
        let (offset, bytes) = record.range();
        let known = self.header.start.saturating_sub(offset).min(bytes);
        let (from, left) = (offset + known, bytes - known);
        if left == 0 {
            return Ok(());
        }
        match record {
            Record::Data { data, .. } => {
                self.volume.write(from, &data[known as usize..], Acknowledge::Written)?;
            }
            Record::Zeros { .. } => self.volume.zero(from, left, Acknowledge::Written)?,
        }
        self.header.start = from + left;
        Ok(())
    }

    /// Records how far it has come.
    fn note(&self) -> Result<(), Error> {
        let Volume { inner, number, .. } = &self.volume;
        inner.flush()?;
        let mut catalog = inner.catalog.write();
        catalog.written(*number, Writer::Receiver)?;
        let changes = vec![Key::Receiving(*number).put(&self.header)];
        catalog.change_with(inner.store.batch(), changes, Durability::Relaxed).map(drop)
    }

    /// Makes what has arrived the present of the volume.
    fn end(&self) -> Result<(), Error> {
        let Volume { inner, number, .. } = &self.volume;
        // Nothing is left beyond the end of a volume that has become smaller.
        let bytes = inner.catalog.read().written(*number, Writer::Receiver)?.bytes;
        let kept = self.header.whole_bytes();
        if kept < bytes {
            self.volume.zero(kept, bytes - kept, Acknowledge::Written)?;
        }
        inner.flush()?;
        // A part of a block must not be put together from both sides.
        let activity = inner.activity(*number)?;
        let _no_parts = activity.partial.write();
        inner.between(|now| inner.catalog.write().end_receiving(*number, now))?;
        inner.publish_needs(None);
        Ok(())
    }
}

impl Catalog {
    /// Lets a volume, which may be new, receive a stream, or go on with it. Returns its number.
    fn begin_receiving(
        &mut self,
        name: &str,
        header: &Header,
        unchanged: Option<Unchanged>,
        now: Stamp,
    ) -> Result<u32, Error> {
        let volume = || name.to_owned();
        let Ok(number) = self.number(name) else {
            return match &header.base {
                Some(_) => Err(Error::NoVolume(volume())),
                None if header.start > 0 => Err(Error::NotReceived(volume())),
                None => {
                    let block_size = header.block_size;
                    let properties = Properties { block_size, ..Properties::default() };
                    self.add_volume(name, properties, Beginning::Received { header, since: now })
                }
            };
        };
        if let Some(known) = self.rows.receiving.get(&number) {
            check_continues(name, known, header)?;
            return Ok(number);
        }
        if header.start > 0 {
            return Err(Error::NotReceived(volume()));
        }
        let base = header.base.as_ref().ok_or_else(|| Error::VolumeExists(volume()))?;
        let (_, mut row) = self.writable(name)?;
        if row.history.is_on() {
            return Err(Error::KeepsHistory(volume()));
        }
        check_size(header.bytes, row.block_size)?;
        self.check_snapshot_is_free(number, &header.name)?;
        let last = Stamp(self.activities[&number].last.load(Ordering::Relaxed));
        let is_unchanged = |of: Unchanged| of.epoch == *row.now() && last <= of.until;
        if !unchanged.is_some_and(is_unchanged) {
            return Err(Error::ChangedSince { volume: volume(), snapshot: base.name.clone() });
        }
        row.fixed_at = Some(now.0);
        self.change(vec![Key::Volume(number).put(&row), Key::Receiving(number).put(header)])?;
        Ok(number)
    }

    fn check_snapshot_is_free(&self, volume: u32, snapshot: &str) -> Result<(), Error> {
        if !self.rows.snapshots.contains_key(&(volume, snapshot.to_owned())) {
            return Ok(());
        }
        let volume = self.row(volume)?.name.clone();
        Err(Error::SnapshotExists { volume, snapshot: snapshot.to_owned() })
    }

    /// Lets a volume show what it has received, and takes a snapshot of it.
    fn end_receiving(&mut self, number: u32, now: Stamp) -> Result<(), Error> {
        let branch = self.written(number, Writer::Receiver)?.branch.0;
        let Header { target, name, bytes, .. } = self.rows.receiving[&number].clone();
        self.check_snapshot_is_free(number, &name)?;
        let mut row = VolumeRow { fixed_at: None, ..self.row(number)?.clone() };
        let mut changes: Vec<RowChange> =
            row.begin(Epoch { since: now.0, branch, bytes }).into_iter().collect();
        let snapshot = SnapshotRow { branch, stamp: now.0, bytes };
        changes.extend([
            Key::Volume(number).put(&row),
            Key::Snapshot(number, name.clone()).put(&snapshot),
            Key::Origin(number, name).put(&target),
            Key::Receiving(number).remove(),
            // What was shown until now is kept for nobody any more.
            Key::Walk(Branch(branch)).put(&0_u64),
        ]);
        self.change(changes)
    }
}

/// Checks that a stream goes on with what has been received.
fn check_continues(volume: &str, known: &Header, header: &Header) -> Result<(), Error> {
    let (volume, received) = (volume.to_owned(), known.start);
    if *known != (Header { start: received, ..header.clone() }) {
        return Err(Error::ReceivesOther { volume, snapshot: known.name.clone() });
    }
    match header.start <= received {
        true => Ok(()),
        false => Err(Error::BeginsLater { volume, start: header.start, received }),
    }
}
