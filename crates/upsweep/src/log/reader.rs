//! Reading a recovered log: forward for replay, backward per stream, and on to appending.

use super::format::{
    self, BATCH_HEADER_BYTES, BatchHeader, PAGE_BYTES, RECORD_HEADER_BYTES, RecordRef,
};
use super::media::{Media, Tip};
use super::recover::recover;
use super::writer::{Link, Log};
use super::{LogConfig, Seq, StreamId};
use crate::device::{self, Buffer, Devices};
use crate::error::{ClosedError, Error, RequestError};

/// One record, copied out of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Sequence number.
    pub seq: Seq,
    /// Stream it was appended to.
    pub stream: StreamId,
    /// What was appended.
    pub payload: Vec<u8>,
}

/// A recovered log: yields the records from `replay_from` to the end, as often as wanted, then
/// becomes the running [`Log`]. Memory: one window of 1 MiB, or a segment where a record is longer,
/// per log device.
#[derive(Debug)]
pub struct LogReader {
    media: Media,
    /// The batch to start in; `None`: before batch 1.
    first: Option<BatchHeader>,
    replay_from: Seq,
    /// The end of the log.
    end: Tip,
    /// Per device and segment, the last sequence from the first batch on.
    last_seqs: Vec<Vec<Seq>>,
    /// The youngest batches: those of which no later one says that they are durable.
    unattested: Vec<BatchHeader>,
    epoch_seen: u64,
    /// The batch being read and the bytes of it that were read.
    position: Option<(BatchHeader, usize)>,
}

impl LogReader {
    pub(super) fn new(
        media: Media,
        first: Option<BatchHeader>,
        replay_from: Seq,
        end: Tip,
        last_seqs: Vec<Vec<Seq>>,
        unattested: Vec<BatchHeader>,
        epoch_seen: u64,
    ) -> Self {
        let position = None;
        let mut reader =
            Self { media, first, replay_from, end, last_seqs, unattested, epoch_seen, position };
        reader.rewind();
        reader
    }

    /// Goes back to before the first record, for another pass.
    pub fn rewind(&mut self) {
        self.position = self.first.map(|header| (header, BATCH_HEADER_BYTES));
    }

    /// The sequence of the last record of the log; `replay_from - 1` if there is none to replay.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.end.last_seq
    }

    /// The highest epoch in anything of this log that was seen, cut-off tails included.
    #[must_use]
    pub fn epoch_seen(&self) -> u64 {
        self.epoch_seen
    }

    /// The next record in sequence order over all streams and devices; `None` after the last.
    ///
    /// Cost: reads ahead by 1 MiB per device; no copy.
    ///
    /// # Errors
    /// [`Error::Damaged`] if what recovery found cannot be read again.
    pub fn next(&mut self, devices: &mut dyn Devices) -> Result<Option<RecordRef<'_>>, Error> {
        loop {
            let inside = |position: &(BatchHeader, usize)| {
                position.1 < BATCH_HEADER_BYTES + position.0.record_bytes as usize
            };
            let Some((header, at)) = self.position.filter(inside) else {
                if self.step(devices)? {
                    continue;
                }
                return Ok(None);
            };
            let seed = format::record_seed(&header.store, header.epoch);
            let batch = self.media.batch(devices, &header)?;
            let record = match format::decode_record(&batch[at..], seed) {
                Ok(record) => record,
                Err(invalid) => return Err(self.damage(header.number, invalid.reason())),
            };
            let (seq, stream, end) = (record.seq, record.stream, at + record.bytes());
            let wanted = record.valid && seq >= self.replay_from;
            self.position = Some((header, end));
            if wanted {
                // Read again, from the window: a borrow cannot leave a loop that goes on.
                let payload = &self.media.batch(devices, &header)?[at + RECORD_HEADER_BYTES..end];
                return Ok(Some(RecordRef { seq, stream, payload, valid: true }));
            }
        }
    }

    /// Moves to the start of the next batch; false at the end of the log.
    fn step(&mut self, devices: &mut dyn Devices) -> Result<bool, Error> {
        let tip = self.position.map_or(Tip::GENESIS, |(header, _)| Tip::of(&header));
        if tip.number >= self.end.number {
            return Ok(false);
        }
        let next = self.media.child(devices, &tip)?;
        let next = next.ok_or_else(|| self.damage(tip.number + 1, "was whole a moment ago"))?;
        self.position = Some((next, BATCH_HEADER_BYTES));
        Ok(true)
    }

    fn damage(&self, number: u64, reason: &str) -> Error {
        let (device, page) = match self.position {
            Some((header, _)) => (usize::from(header.device), header.page),
            None => (0, 0),
        };
        let offset = u64::from(page) * PAGE_BYTES;
        self.media.damage(device, offset, &format!("log batch {number}"), reason)
    }

    /// The youngest `count` records of `stream`, newest first, by the back pointers from batch to
    /// batch. Ends early where the ring has been overwritten, and at damage to what is below
    /// `replay_from`. Does not move the position of [`LogReader::next`].
    ///
    /// # Errors
    /// [`Error::Damaged`] if a batch from `replay_from` on is bad.
    pub fn read_back(
        &mut self,
        devices: &mut dyn Devices,
        stream: StreamId,
        count: usize,
    ) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut link = self.end.link;
        let mut number = self.end.number;
        while number > 0 && records.len() < count {
            let offset = u64::from(link.page) * PAGE_BYTES;
            let header = self.media.peek(devices, usize::from(link.device), offset)?;
            let header =
                header.filter(|header| (header.number, header.epoch) == (number, link.epoch));
            let found = match header {
                Some(header) if self.media.is_whole(devices, &header)? => header,
                _ if self.first.is_some_and(|first| number < first.number) => break,
                _ => return Err(self.damage(number, "was whole a moment ago")),
            };
            let seed = format::record_seed(&found.store, found.epoch);
            let end = BATCH_HEADER_BYTES + found.record_bytes as usize;
            let batch = &self.media.batch(devices, &found)?[..end];
            let from = records.len();
            let mut at = BATCH_HEADER_BYTES;
            while let Ok(record) = format::decode_record(&batch[at..], seed) {
                at += record.bytes();
                if record.valid && record.stream == stream {
                    let payload = record.payload.to_vec();
                    records.push(Record { seq: record.seq, stream, payload });
                }
            }
            records[from..].reverse();
            number -= 1;
            let (device, page) = (found.previous_device, found.previous_page);
            link = Link { device, page, epoch: found.previous_epoch };
        }
        records.truncate(count);
        Ok(records)
    }

    /// The running log, ready to append behind the last record. Segments from `replay_from` on
    /// count as used. Makes what was found certain: writes the youngest batches again where they
    /// are, those that may not be stable (at most `8 * devices * depth`; one or two as a rule). And
    /// wipes the header of a torn batch where the next one would go, if there is one: at most two
    /// pages per device.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] if `config` is not of this log, or its epoch is not higher than
    /// every epoch seen; [`ClosedError::WriteFailed`] if writing fails; [`Error::Damaged`] if
    /// reading does.
    pub fn into_log(mut self, devices: &mut dyn Devices, config: LogConfig) -> Result<Log, Error> {
        self.check_config(&config)?;
        for header in std::mem::take(&mut self.unattested) {
            let bytes = Buffer::copy_of(self.media.batch(devices, &header)?);
            write_in_place(devices, &config, &header, bytes)?;
        }
        for torn in self.media.children(devices, &self.end)? {
            write_in_place(devices, &config, &torn, Buffer::zeroed(PAGE_BYTES as usize))?;
        }
        Ok(self.resume(config))
    }

    /// The log for looking at: nothing is wiped, so nothing must be appended.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] as for [`LogReader::into_log`].
    pub fn into_log_read_only(self, config: LogConfig) -> Result<Log, Error> {
        self.check_config(&config)?;
        Ok(self.resume(config))
    }

    fn check_config(&self, config: &LogConfig) -> Result<(), Error> {
        config.check()?;
        let known = &self.media.config;
        let same = (known.store, known.segment_bytes) == (config.store, config.segment_bytes)
            && known.regions == config.regions;
        if !same {
            let reason = "another store, segment size or regions than were recovered".to_owned();
            return Err(RequestError::BadConfig { setting: "log", reason }.into());
        }
        if config.epoch <= self.epoch_seen {
            let reason = format!("{}; must be above {}", config.epoch, self.epoch_seen);
            return Err(RequestError::BadConfig { setting: "epoch", reason }.into());
        }
        Ok(())
    }

    fn resume(self, config: LogConfig) -> Log {
        let Tip { number, last_seq, link, cursors } = self.end;
        let mut log = Log::new(config, number, link, last_seq);
        for (device, last_seqs) in self.last_seqs.iter().enumerate() {
            log.resume_ring(device, cursors[device], last_seqs);
        }
        log.release(self.replay_from);
        log
    }
}

fn write_in_place(
    devices: &mut dyn Devices,
    config: &LogConfig,
    header: &BatchHeader,
    bytes: Buffer,
) -> Result<(), ClosedError> {
    let region = config.regions[usize::from(header.device)];
    let (device, offset) = (region.device, region.offset + u64::from(header.page) * PAGE_BYTES);
    device::write_alone(devices, device, offset, bytes).map_err(|error| ClosedError::WriteFailed {
        device,
        offset,
        error,
    })
}

/// The youngest `count` records of `stream`, newest first; see [`LogReader::read_back`]. For users
/// that read a log by itself; `replay_from` as for [`recover`], whose cost it has.
///
/// # Errors
/// As [`recover`] and [`LogReader::read_back`].
pub fn read_back(
    devices: &mut dyn Devices,
    config: &LogConfig,
    replay_from: Seq,
    stream: StreamId,
    count: usize,
) -> Result<Vec<Record>, Error> {
    recover(devices, config, replay_from)?.read_back(devices, stream, count)
}
