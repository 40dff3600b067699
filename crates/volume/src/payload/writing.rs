//! Writes of payload to the devices: past the buffer, and out of it.

use std::ops::Deref;
use std::sync::Arc;

use upsweep::layers::device::{Buffer, Class, WriteMode};

use super::{Allocation, Payload, Piece, Place, State};
use crate::address::{BLOCK_BYTES, Physical};
use crate::buffer::Stretch;
use crate::error::Error;

/// Content of a write: lent, or in memory that can go to a device.
pub enum Data<'a> {
    Lent(&'a [u8]),
    Own(Buffer),
}

impl Deref for Data<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(data) => data,
            Self::Own(data) => data,
        }
    }
}

impl Payload {
    /// Writes what has been allocated for `data`, unless that is in the buffer, and what is due of
    /// the buffer.
    pub fn write(&self, allocation: &Allocation, data: Data<'_>) -> Result<(), Error> {
        self.write_due(&allocation.due)?;
        if allocation.is_buffered {
            return Ok(());
        }
        let pieces = &allocation.pieces;
        let written = self.write_all(pieces, data);
        let mut state = self.state.lock();
        for piece in pieces {
            state.in_flight.remove(&piece.first);
            state.note_unflushed(&piece.place.segment);
        }
        drop(state);
        self.written.notify_all();
        written
    }

    /// Writes stretches of the buffer, which are in memory until then.
    pub(super) fn write_due(&self, due: &[Arc<Stretch>]) -> Result<(), Error> {
        let mut all = Ok(());
        for stretch in due {
            all = all.and(self.write_stretch(stretch));
        }
        all
    }

    /// Writes a stretch of the buffer.
    fn write_stretch(&self, stretch: &Stretch) -> Result<(), Error> {
        let Place { segment, offset, .. } = &stretch.place;
        let buffer = Buffer::copy_of(&stretch.data);
        self.await_zeros(stretch.first, stretch.slots());
        let written = segment.write(*offset, buffer, WriteMode::Cached, Class::ForegroundWrite);
        self.end_stretch(stretch, 0, WriteMode::Cached);
        written.map(drop).map_err(Error::from)
    }

    /// Takes in that a stretch of the buffer has been written, and so many slots of zeros.
    fn end_stretch(&self, stretch: &Stretch, zeros: u16, mode: WriteMode) {
        let mut state = self.state.lock();
        state.buffer.end(stretch);
        if zeros > 0 {
            state.ahead.end();
        }
        if mode == WriteMode::Cached {
            state.note_unflushed(&stretch.place.segment);
        }
        drop(state);
        self.written.notify_all();
    }

    /// Waits until no zeros are being written to slots.
    fn await_zeros(&self, first: Physical, slots: u16) {
        let mut state = self.state.lock();
        while state.ahead.is_writing_to(first, slots) {
            self.written.wait(&mut state);
        }
    }

    fn write_all(&self, pieces: &[Piece], data: Data<'_>) -> Result<(), Error> {
        let follows = |left: &Piece, right: &Piece| {
            Arc::ptr_eq(&left.place.segment, &right.place.segment)
                && left.first.plus(left.slots) == right.first
        };
        let runs: Vec<&[Piece]> = pieces.chunk_by(follows).collect();
        let data = match (data, &runs[..]) {
            (Data::Own(buffer), [run]) => return self.write_run(run, buffer),
            (data, _) => data,
        };
        let mut rest = &data[..];
        for run in runs {
            let slots: u64 = run.iter().map(|piece| u64::from(piece.slots)).sum();
            let (now, later) = rest.split_at((slots * BLOCK_BYTES) as usize);
            self.write_run(run, Buffer::copy_of(now))?;
            rest = later;
        }
        Ok(())
    }

    /// Writes to pieces that lie one after another.
    fn write_run(&self, run: &[Piece], data: Buffer) -> Result<(), Error> {
        let Piece { first, place: Place { segment, offset, .. }, .. } = &run[0];
        self.await_zeros(*first, (data.len() as u64 / BLOCK_BYTES) as u16);
        segment.write(*offset, data, WriteMode::Cached, Class::ForegroundWrite)?;
        Ok(())
    }

    /// Makes everything stable that was written before the call, and the log, at the same time.
    /// What small writes have left in the buffer goes to stable media at once, if the devices need
    /// no flush for anything else. There is one call at a time: a later one would miss what an
    /// earlier one is flushing.
    pub fn flush_with_log(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let others = state.being_written();
        let due = state.buffer.seal();
        let is_alone = others.is_empty() && state.unflushed.is_empty();
        let zeros = due.as_ref().map_or(0, |stretch| self.zeros_behind(stretch, &mut state));
        drop(state);
        let mode = if is_alone { WriteMode::Stable } else { WriteMode::Cached };
        match due {
            Some(stretch) => self.write_with_log(&stretch, zeros, mode)?,
            None => self.blocks().flush()?,
        }
        let mut state = self.state.lock();
        while state.are_any_being_written(&others) {
            self.written.wait(&mut state);
        }
        let unflushed = std::mem::take(&mut state.unflushed);
        drop(state);
        unflushed.into_values().try_for_each(|segment| Ok(segment.flush()?))
    }

    /// Flushes the log, and writes a stretch of the buffer with so many slots of zeros behind it.
    fn write_with_log(&self, stretch: &Stretch, zeros: u16, mode: WriteMode) -> Result<(), Error> {
        let zero_bytes = usize::from(zeros) * BLOCK_BYTES as usize;
        let mut buffer = Buffer::recycled(stretch.data.len() + zero_bytes);
        let (data, behind) = buffer.split_at_mut(stretch.data.len());
        data.copy_from_slice(&stretch.data);
        behind.fill(0);
        self.await_zeros(stretch.first, stretch.slots());
        let Place { segment, offset, .. } = &stretch.place;
        let written = segment.write_and_flush_log(*offset, buffer, mode, Class::ForegroundWrite);
        self.end_stretch(stretch, zeros, mode);
        written.map(drop).map_err(Error::from)
    }

    /// How many slots of zeros a flush writes behind a stretch: none where slots behind it are
    /// taken, and none on devices all of which have content.
    fn zeros_behind(&self, stretch: &Stretch, state: &mut State) -> u16 {
        let Physical { home, slot } = stretch.end();
        let zeros = state.ahead.note(stretch, self.slots_per_home);
        let is_last = state.open == Some((home, slot));
        if zeros == 0 || !is_last || self.blocks().reservable_bytes().is_some() {
            return 0;
        }
        state.ahead.begin(zeros);
        zeros
    }
}
