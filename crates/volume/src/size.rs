//! The size of a volume, and what is beyond its end.
//!
//! Whole blocks beyond the end are zero in the map. A volume may also end within a block, the rest
//! of which may have any content: it is cleared before the volume becomes larger.

use crate::address::{BLOCK_BYTES, LEVEL_MAX, spans};
use crate::catalog::{Writer, blocks_of};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::payload::Data;
use crate::volume::Volume;
use crate::volumes::Volumes;

impl Volumes {
    /// Gives a volume another size, in bytes. What is beyond the end of a smaller one is gone,
    /// unless a snapshot or the history keeps it; what a larger one gains is zero. Cost: a log
    /// record.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::BadSize`]; [`Error::ReadOnly`]; [`Error::Store`].
    pub fn resize(&self, volume: &str, bytes: u64) -> Result<(), Error> {
        let inner = &self.inner;
        let before = Volume { writer: Writer::Resize, ..self.volume(volume)? };
        // So that nobody writes what another one has cleared.
        let activity = inner.activity(before.number)?;
        let _no_parts = activity.partial.write();
        inner.catalog.read().writable(volume)?;
        if bytes > before.bytes()? {
            before.clear_rest()?;
        }
        inner.between(|stamp| {
            let mut catalog = inner.catalog.write();
            catalog.check_number(volume, before.number)?;
            let shown = catalog.shown(catalog.number(volume)?)?;
            let cut = blocks_of(0, bytes).end..blocks_of(0, shown.bytes).end;
            let entry = |span| Entry { span, stamp, content: Content::Zero };
            let zeros: Vec<Entry> = spans(cut, LEVEL_MAX).map(entry).collect();
            let mut batch = inner.store.batch();
            for Entry { span, content, .. } in &zeros {
                batch.put(
                    &inner.map,
                    &entry::key(shown.branch, *span, stamp),
                    &entry::value(content),
                );
            }
            let ticket = catalog.resize(volume, bytes, stamp, batch)?;
            inner.note(&ticket);
            inner.add_long_zeros(shown.branch, &zeros);
            Ok::<(), Error>(())
        })?;
        inner.publish_needs(None);
        Ok(())
    }
}

impl Volume {
    /// Makes the rest of the last block zero, which a larger volume shows. The caller holds the
    /// lock of partial writes.
    fn clear_rest(&self) -> Result<(), Error> {
        let bytes = self.bytes()?;
        let used = bytes % BLOCK_BYTES;
        if used == 0 {
            return Ok(());
        }
        let mut whole = self.read_around(bytes - used, used)?;
        let rest = &mut whole[used as usize..];
        if rest.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        rest.fill(0);
        let block = blocks_of(bytes - used, used);
        // Before the size is, which is recorded durably.
        self.write_blocks(block, Data::Lent(&whole), &mut || ())?;
        self.inner.flush()
    }
}
