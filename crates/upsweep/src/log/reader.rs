//! Reading a recovered log: forward for replay, backward per stream, and on to appending.

use super::format::{self, BATCH_HEADER_BYTES, BatchHeader, RecordRef};
use super::media::{Media, Tip};
use super::recover::recover;
use super::writer::{Link, Log};
use super::{LogConfig, Seq, StreamId};
use crate::device::{self, Buffer, Devices};
use crate::error::{ClosedError, Damage, Error, Location, RequestError};

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

/// The records of one batch, in sequence order.
#[derive(Debug)]
pub struct BatchRecords<'a> {
    /// Where the batch is.
    pub location: Location,
    /// Its records from the first sequence to replay on.
    pub records: Vec<RecordRef<'a>>,
}

/// What recovery has found.
#[derive(Debug)]
pub(super) struct Found {
    /// The batch to start in; `None`: before batch 1.
    pub(super) first: Option<BatchHeader>,
    /// The end of the log.
    pub(super) end: Tip,
    /// Per device and segment, the youngest record for which it is needed, from the first batch on.
    pub(super) last_seqs: Vec<Vec<Seq>>,
    /// The youngest batches: those that no later one attests as durable.
    pub(super) unattested: Vec<BatchHeader>,
    /// Batches beyond a gap after the end, which a later recovery must not start from.
    pub(super) beyond_gap: Vec<BatchHeader>,
    /// The highest epoch found anywhere.
    pub(super) epoch_seen: u64,
}

/// A recovered log: yields the records from `replay_from` to the end, as often as wanted, and makes
/// the running [`Log`]. Memory: [`LogConfig::kept_bytes`], besides 2 MiB for each log device, and a
/// segment where a record is longer than 1 MiB.
#[derive(Debug)]
pub struct LogReader {
    media: Media,
    replay_from: Seq,
    found: Found,
    /// The batch that was read last.
    position: Option<BatchHeader>,
}

impl LogReader {
    pub(super) fn new(mut media: Media, replay_from: Seq, found: Found) -> Self {
        let is_in_chain = |device: usize, segment: u64| {
            let last = found.last_seqs[device].get(segment as usize);
            last.is_some_and(|last| *last > Seq::NONE)
        };
        media.windows.retain(&media.config, is_in_chain);
        let mut reader = Self { media, replay_from, found, position: None };
        reader.rewind();
        reader
    }

    /// Returns to the position before the first record, for another pass.
    pub fn rewind(&mut self) {
        self.position = None;
        self.media.windows.rewind();
    }

    /// Gives back memory, so that no more than these bytes of [`LogConfig::kept_bytes`] are used
    /// from now on: first that of what this pass has yielded.
    pub fn keep_at_most(&mut self, bytes: usize) {
        self.media.windows.keep_at_most(bytes as u64);
    }

    /// The sequence of the last record of the log; `replay_from - 1` if there is none to replay.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.found.end.last_seq
    }

    /// The highest epoch found anywhere in this log, cut-off tails included.
    #[must_use]
    pub fn epoch_seen(&self) -> u64 {
        self.found.epoch_seen
    }

    /// The records of the next batch, in sequence order over all streams and devices; `None` after
    /// the last.
    ///
    /// Cost: reads what an earlier pass has not kept, with up to 2 MiB per device at a time;
    /// payloads are copied only where a batch is in two windows. Memory: 32 bytes for each record
    /// of a batch.
    ///
    /// # Errors
    /// [`Error::Damaged`] if what recovery found cannot be read again.
    pub fn next_batch(
        &mut self,
        devices: &mut dyn Devices,
    ) -> Result<Option<BatchRecords<'_>>, Error> {
        let Some(header) = self.step(devices)? else { return Ok(None) };
        let location = self.media.config.location_of(&header);
        let batch = self.media.batch(devices, &header)?;
        let (seed, end) = (format::record_seed(&header.store, header.epoch), header.records_end());
        let (mut records, mut at) = (Vec::new(), BATCH_HEADER_BYTES);
        while at < end {
            let record = format::decode_record(&batch[at..end], seed);
            let record = record
                .map_err(|invalid| damage(Some(location), header.number, invalid.reason()))?;
            at += record.bytes();
            if record.valid && record.seq >= self.replay_from {
                records.push(record);
            }
        }
        Ok(Some(BatchRecords { location, records }))
    }

    /// Moves to the next batch; `None` at the end of the log.
    fn step(&mut self, devices: &mut dyn Devices) -> Result<Option<BatchHeader>, Error> {
        let next = match (self.position, self.found.first) {
            (None, Some(first)) => first,
            (position, _) => {
                let tip = position.as_ref().map_or(Tip::GENESIS, Tip::of);
                if tip.number >= self.found.end.number {
                    return Ok(None);
                }
                let next = self.media.known_child(devices, &tip)?;
                next.ok_or_else(|| self.damage(tip.number + 1, "was whole in the previous read"))?
            }
        };
        self.position = Some(next);
        Ok(Some(next))
    }

    /// Damage of the batch with this number, at or after the position.
    fn damage(&self, number: u64, reason: &str) -> Error {
        let location = self.position.map(|header| self.media.config.location_of(&header));
        damage(location, number, reason)
    }

    /// The youngest `count` records of `stream`, newest first, by the back pointers from batch to
    /// batch. Ends early where the ring has been overwritten, and at damage below `replay_from`.
    /// Does not move the position of [`LogReader::next_batch`].
    ///
    /// # Errors
    /// [`Error::Damaged`] if a batch from `replay_from` on is invalid.
    pub fn read_back(
        &mut self,
        devices: &mut dyn Devices,
        stream: StreamId,
        count: usize,
    ) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut link = self.found.end.link;
        let mut number = self.found.end.number;
        while number > 0 && records.len() < count {
            let offset = self.media.offset_of(link.page);
            let header = self.media.peek(devices, usize::from(link.device), offset)?;
            let header =
                header.filter(|header| (header.number, header.epoch) == (number, link.epoch));
            let found = match header {
                Some(header) if self.media.is_whole(devices, &header)? => header,
                _ if self.found.first.is_some_and(|first| number < first.number) => break,
                _ => return Err(self.damage(number, "was whole in the previous read")),
            };
            let seed = format::record_seed(&found.store, found.epoch);
            let batch = &self.media.batch(devices, &found)?[..found.records_end()];
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

    /// The running log, ready to append after the last record. Segments from `replay_from` on count
    /// as used. Makes what was found stable: rewrites the youngest batches in place, those that may
    /// not be stable (at most `8 * devices * depth`; usually one or two). Also wipes the header of
    /// a torn batch at the place of the next one, if there is one: at most two pages per device;
    /// and those beyond a gap that a recovery could start from, at most `8 * devices * depth`.
    /// What the reader yields stays in place until the log releases it.
    /// # Errors
    /// [`RequestError::BadConfig`] if `config` belongs to a different log, if its epoch is not
    /// higher than every epoch seen, or if the blocks of a device are larger than the pages of the
    /// log; [`ClosedError::WriteFailed`] if writing fails; [`Error::Damaged`] if reading does.
    pub fn to_log(&mut self, devices: &mut dyn Devices, config: LogConfig) -> Result<Log, Error> {
        self.check_config(&config)?;
        config.check_devices(devices)?;
        for header in std::mem::take(&mut self.found.unattested) {
            let bytes = Buffer::copy_of(self.media.batch(devices, &header)?);
            write_in_place(devices, &config, &header, bytes)?;
        }
        let torn = self.media.children(devices, &self.found.end)?;
        for torn in torn.into_iter().chain(std::mem::take(&mut self.found.beyond_gap)) {
            write_in_place(devices, &config, &torn, Buffer::zeroed(config.page_bytes as usize))?;
        }
        Ok(self.resume(config))
    }

    /// The log for reading only: nothing is wiped, so nothing must be appended.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] as for [`LogReader::to_log`].
    pub fn to_log_read_only(&self, config: LogConfig) -> Result<Log, Error> {
        self.check_config(&config)?;
        Ok(self.resume(config))
    }

    fn check_config(&self, config: &LogConfig) -> Result<(), Error> {
        config.check()?;
        let known = &self.media.config;
        let sizes = |config: &LogConfig| (config.segment_bytes, config.page_bytes);
        let same = known.store == config.store
            && sizes(known) == sizes(config)
            && known.regions == config.regions;
        if !same {
            let reason = "another store, sizes or regions than were recovered".to_owned();
            return Err(RequestError::BadConfig { setting: "log", reason }.into());
        }
        if config.epoch <= self.found.epoch_seen {
            let reason = format!("{}; must be above {}", config.epoch, self.found.epoch_seen);
            return Err(RequestError::BadConfig { setting: "epoch", reason }.into());
        }
        Ok(())
    }

    fn resume(&self, config: LogConfig) -> Log {
        let Tip { number, last_seq, link, cursors, .. } = self.found.end;
        let mut log = Log::new(config, number, link, last_seq);
        for (device, last_seqs) in self.found.last_seqs.iter().enumerate() {
            let lap_start = self.media.lap_start(device);
            log.resume_ring(device, cursors[device], last_seqs, lap_start);
        }
        log.release(self.replay_from);
        log
    }
}

fn damage(location: Option<Location>, number: u64, reason: &str) -> Error {
    let (what, reason) = (format!("log batch {number}"), reason.to_owned());
    Damage { location, what, reason }.into()
}

fn write_in_place(
    devices: &mut dyn Devices,
    config: &LogConfig,
    header: &BatchHeader,
    bytes: Buffer,
) -> Result<(), ClosedError> {
    let Location { device, offset } = config.location_of(header);
    device::write_alone(devices, device, offset, bytes).map_err(|error| ClosedError::WriteFailed {
        device,
        offset: Some(offset),
        error,
    })
}

/// The youngest `count` records of `stream`, newest first; see [`LogReader::read_back`]. For users
/// that read a log by itself, also while a [`Log`] is open on it, as long as none of its writes is
/// on its way: nothing is written. `replay_from` as for [`recover`], whose cost it has; of an open
/// log, [`Log::kept_from`] or later.
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
