//! Sending: what a volume was at a moment, or what has changed until then, to a stream.
//!
//! Both moments are *held* as long as they are being sent: trimming leaves what they show, whatever
//! becomes of snapshots and histories; what comes after them is trimmed as ever. A hold is in
//! memory only, so none is left after a crash.
//!
//! Invariant: what a stream shows of a moment is stable, so after a crash of the sender the same
//! moment is still the same content.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{BLOCK_BYTES, Branch, Stamp};
use crate::catalog::{Catalog, Past, blocks_of};
use crate::changes::Changes;
use crate::error::Error;
use crate::looks::Look;
use crate::rows::Key;
use crate::stream::{Base, DATA_BYTES_MAX, Encoder, Header, Identity, Record, ResumeToken, Totals};
use crate::volumes::{Inner, Volumes};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Pause before it is asked again whether what is to be sent is stable.
const STABLE_WAIT: Duration = Duration::from_millis(1);

/// A moment of a volume that can be sent. As long as this is there, nothing of it is trimmed.
pub struct Sending {
    inner: Arc<Inner>,
    volume: String,
    from: Option<Look>,
    to: Look,
    header: Header,
}

impl Volumes {
    /// Prepares to send what a volume was at a moment, or is at present (`None`), in full, or what
    /// has changed since the moment `from`. Everything is flushed first. Cost: that of a flush.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`], [`Error::NoMark`], [`Error::NoMoment`] or
    /// [`Error::NoHistory`] if there is no such past; [`Error::Incomplete`]; [`Error::Store`].
    pub fn send(
        &self,
        volume: &str,
        at: Option<Past<'_>>,
        from: Option<Past<'_>>,
    ) -> Result<Sending, Error> {
        let inner = &self.inner;
        let sending = inner.between(|now| {
            let mut catalog = inner.catalog.write();
            let to = match at {
                Some(past) => catalog.past(volume, past, now)?,
                None => catalog.present(volume, now)?,
            };
            let base = from.map(|past| {
                let look = catalog.past(volume, past, now)?;
                let identity = catalog.identity(volume, Some(past), look)?;
                Ok::<_, Error>((look, Base { identity, name: name_of(Some(past), look) }))
            });
            let (from, base) = base.transpose()?.unzip();
            let (target, name) = (catalog.identity(volume, at, to)?, name_of(at, to));
            let (block_size, bytes) = (catalog.inherited(volume)?.block_size, to.bytes);
            let header = Header { target, name, block_size, bytes, base, start: 0 };
            [Some(to), from].into_iter().flatten().for_each(|look| catalog.hold(look));
            let (inner, volume) = (Arc::clone(inner), volume.to_owned());
            Ok::<_, Error>(Sending { inner, volume, from, to, header })
        })?;
        // What is shown may be being written, and must not be sent and then be lost.
        let looks = [Some(sending.to), sending.from].into_iter().flatten();
        let last = looks.map(|look| look.at).max().unwrap_or(Stamp(0));
        while !inner.is_stable(last)? {
            std::thread::sleep(STABLE_WAIT);
        }
        Ok(sending)
    }
}

/// What a receiver calls a moment: as it was given, or else its time.
fn name_of(past: Option<Past<'_>>, look: Look) -> String {
    match past {
        Some(Past::Snapshot(name) | Past::Mark(name)) => name.to_owned(),
        Some(Past::At(_)) | None => look.at.to_string(),
    }
}

impl Sending {
    /// What the stream will have.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Begins where an interrupted stream of the same two moments has to go on.
    ///
    /// # Errors
    /// [`Error::OtherMoment`] if the token is for another moment, or another volume.
    pub fn resume(mut self, token: ResumeToken) -> Result<Self, Error> {
        if token.target != self.header.target || token.start > self.header.whole_bytes() {
            return Err(Error::OtherMoment(self.volume.clone()));
        }
        self.header.start = token.start;
        Ok(self)
    }

    /// Writes the stream. Cost: as that of [`Volumes::changes`], and reads of what is sent; memory
    /// for 2 MiB.
    ///
    /// # Errors
    /// [`Error::Transfer`]; [`Error::Damaged`]; [`Error::Store`]. The stream is incomplete then,
    /// and can be resumed.
    pub fn write_to(&self, out: impl Write) -> Result<Totals, Error> {
        let Self { inner, volume, from, to, header } = self;
        let blocks = header.start / BLOCK_BYTES..blocks_of(0, to.bytes).end;
        let changes = Changes::new(inner, None, volume, *from, *to, blocks);
        let mut parts = Parts { encoder: Encoder::new(out, header)?, zeros: None };
        let mut buffer = vec![0; DATA_BYTES_MAX];
        for range in changes {
            let range = range?;
            let end = range.end.next_multiple_of(BLOCK_BYTES);
            for offset in (range.start..end).step_by(DATA_BYTES_MAX) {
                let bytes = (end - offset).min(DATA_BYTES_MAX as u64);
                let data = &mut buffer[..bytes as usize];
                inner.read_kept(*to, offset, data)?;
                // A volume that is received in full begins with zeros.
                parts.push(offset, data, from.is_some())?;
            }
        }
        parts.push_zeros()?;
        parts.encoder.end()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let looks = [Some(self.to), self.from].into_iter().flatten();
        let mut catalog = self.inner.catalog.write();
        // What could not be recorded to be trimmed is, once the sweep writes it again.
        looks.for_each(|look| drop(catalog.release(look)));
        drop(catalog);
        self.inner.publish_needs(None);
    }
}

/// Turns content into records.
struct Parts<W> {
    encoder: Encoder<W>,
    /// A range of zeros that may go on: offset and length.
    zeros: Option<(u64, u64)>,
}

impl<W: Write> Parts<W> {
    /// Adds content of whole blocks.
    fn push(&mut self, offset: u64, data: &[u8], has_zeros: bool) -> Result<(), Error> {
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let blocks: Vec<bool> = data.chunks(BLOCK).map(is_zero).collect();
        let mut at = 0;
        for run in blocks.chunk_by(|left, right| left == right) {
            let (offset, bytes) = (offset + at as u64, run.len() * BLOCK);
            let data = &data[at..at + bytes];
            at += bytes;
            if !run[0] {
                self.push_zeros()?;
                self.encoder.push(&Record::Data { offset, data })?;
            } else if has_zeros {
                self.add_zeros(offset, bytes as u64)?;
            }
        }
        Ok(())
    }

    fn add_zeros(&mut self, offset: u64, bytes: u64) -> Result<(), Error> {
        match &mut self.zeros {
            Some((start, length)) if *start + *length == offset => *length += bytes,
            _ => {
                self.push_zeros()?;
                self.zeros = Some((offset, bytes));
            }
        }
        Ok(())
    }

    /// Writes zeros that do not go on.
    fn push_zeros(&mut self) -> Result<(), Error> {
        match self.zeros.take() {
            Some((offset, bytes)) => self.encoder.push(&Record::Zeros { offset, bytes }),
            None => Ok(()),
        }
    }
}

impl Inner {
    /// Reads whole blocks of a moment that is kept.
    fn read_kept(&self, look: Look, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        // Zeros under which there is nothing any more go once nobody may know of something.
        let _looking = self.stamps.look();
        let blocks = offset / BLOCK_BYTES..(offset + into.len() as u64) / BLOCK_BYTES;
        let sight = self.see(&self.line(look), blocks.clone())?;
        if self.read_seen(look.branch, [(&sight, blocks.clone(), into)])? {
            return Ok(());
        }
        let (branch, reason) = (look.branch.0, "its payload is missing".to_owned());
        Err(Error::Damaged { branch, block: blocks.start, reason })
    }
}

impl Catalog {
    /// The identity of a moment of a volume: that with which it was received, or else its own.
    fn identity(
        &self,
        volume: &str,
        past: Option<Past<'_>>,
        look: Look,
    ) -> Result<Identity, Error> {
        let number = self.number(volume)?;
        Ok(match past {
            Some(Past::Snapshot(name)) => self.identity_of_snapshot(number, name, look),
            _ => self.own_identity(look.branch, look.at),
        })
    }

    fn own_identity(&self, branch: Branch, at: Stamp) -> Identity {
        Identity { store: self.store_id, branch: branch.0, stamp: at.0 }
    }

    fn identity_of_snapshot(&self, volume: u32, name: &str, look: Look) -> Identity {
        let origin = self.rows.origins.get(&(volume, name.to_owned()));
        origin.copied().unwrap_or_else(|| self.own_identity(look.branch, look.at))
    }

    /// The snapshot of a volume that has this identity.
    pub fn snapshot_with(&self, volume: u32, identity: Identity) -> Option<String> {
        let mut snapshots = self.rows.snapshots_of(volume);
        let found = snapshots
            .find(|(name, row)| self.identity_of_snapshot(volume, name, row.look()) == identity);
        found.map(|(name, _)| name.to_owned())
    }

    /// Keeps a moment, until it is released.
    fn hold(&mut self, look: Look) {
        *self.rows.holds.entry((look.branch, look.at)).or_default() += 1;
        self.changes += 1;
    }

    /// Ends a hold; if nobody else keeps the moment, its branch is walked.
    fn release(&mut self, look: Look) -> Result<(), Error> {
        let moment = (look.branch, look.at);
        if let Some(count) = self.rows.holds.get_mut(&moment) {
            *count -= 1;
            if *count == 0 {
                self.rows.holds.remove(&moment);
            }
        }
        self.changes += 1;
        let is_kept = self.rows.kept(look.branch).is_any_in(look.at, Some(Stamp(look.at.0 + 1)));
        if is_kept { Ok(()) } else { self.change(vec![Key::Walk(look.branch).put(&0_u64)]) }
    }
}
