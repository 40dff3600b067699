//! Reading batches back from the rings.

use super::format::{self, BATCH_HEADER_BYTES, BatchHeader, DEVICES_MAX, SKIP_BYTES_MAX};
use super::windows::Windows;
use super::writer::Link;
use super::{LogConfig, Seq};
use crate::broken::{self, Fault};
use crate::device::{self, Buffer, DeviceError, DeviceId, Devices};
use crate::error::{Damage, Error, Location};

/// The chain up to one batch, and what must follow it: the batch and its checked header, or the
/// beginning of an empty log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) number: u64,
    pub(super) last_seq: Seq,
    pub(super) link: Link,
    pub(super) cursors: [u32; DEVICES_MAX],
    /// Whether the next batch may begin behind its cursor.
    skips: bool,
}

impl Tip {
    /// Before batch 1.
    pub(super) const GENESIS: Self = Self {
        number: 0,
        last_seq: Seq::NONE,
        link: Link::NONE,
        cursors: [0; DEVICES_MAX],
        skips: false,
    };

    pub(super) fn of(header: &BatchHeader) -> Self {
        Self {
            number: header.number,
            last_seq: header.last_seq(),
            link: Link { device: header.device, page: header.page, epoch: header.epoch },
            cursors: header.cursors,
            skips: header.skips,
        }
    }

    /// Whether `header` names this batch as its predecessor: this one by number, place and epoch,
    /// not another that may have had its number.
    pub(super) fn precedes(&self, header: &BatchHeader, config: &LogConfig) -> bool {
        let Link { device, page, epoch } = self.link;
        let (page_bytes, start) = (u64::from(config.page_bytes), u64::from(header.page));
        let end = start + header.bytes(config.page_bytes) / page_bytes;
        let segment_pages = u64::from(config.segment_bytes) / page_bytes;
        let segment_end = (start / segment_pages + 1) * segment_pages;
        let own = usize::from(header.device);
        let others_stay = (0..DEVICES_MAX)
            .all(|device| device == own || header.cursors[device] == self.cursors[device]);
        header.number == self.number + 1
            && (header.previous_device, header.previous_page) == (device, page)
            && header.previous_epoch == epoch
            && header.first_seq == self.last_seq.next()
            && others_stay
            && ((end..=segment_end).contains(&u64::from(header.cursors[own]))
                || header.cursors[own] == 0)
    }
}

/// What the first page of a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Zeros: never written.
    Blank,
    /// Anything else that is not a batch header of this place.
    Unreadable,
    /// A batch header of this store and place. The records are not checked.
    Batch(Box<BatchHeader>),
}

/// The rings of a log, for reading.
#[derive(Debug)]
pub(super) struct Media {
    pub(super) config: LogConfig,
    pub(super) windows: Windows,
    /// What was read by itself last, because its window could not be read.
    alone: Buffer,
    /// Per log device and segment; read once.
    pub(super) heads: Vec<Vec<Head>>,
}

impl Media {
    /// Reads the first page of every segment. `config` is checked.
    pub(super) fn open(devices: &mut dyn Devices, config: &LogConfig) -> Result<Self, Error> {
        let (windows, alone) = (Windows::new(config), Buffer::zeroed(0));
        let mut media = Self { config: config.clone(), windows, alone, heads: Vec::new() };
        media.heads = media.read_heads(devices)?;
        Ok(media)
    }

    fn read_heads(&self, devices: &mut dyn Devices) -> Result<Vec<Vec<Head>>, Error> {
        let segments = |device| (0..self.segments(device)).map(move |segment| (device, segment));
        let places: Vec<_> = (0..self.config.regions.len()).flat_map(segments).collect();
        let range = |(device, segment): &(usize, u64)| {
            self.range(devices, *device, segment * self.segment_bytes(), self.page_bytes())
        };
        let ranges: Vec<_> = places.iter().map(range).collect();
        let blank = |device| (0..self.segments(device)).map(|_| Head::Blank).collect();
        let mut heads: Vec<Vec<Head>> = (0..self.config.regions.len()).map(blank).collect();
        let bulk = &self.config.bulk;
        device::read_all(devices, &ranges, bulk, |index, read| -> Result<(), Error> {
            let (device, segment) = places[index];
            let offset = segment * self.segment_bytes();
            let block = read.map_err(|error| unreadable(&self.config, device, offset, &error))?;
            // A segment begins with a block of the device.
            let page = &block[..self.page_bytes() as usize];
            heads[device][segment as usize] = match self.header_in(page, device, offset) {
                Some(header) => Head::Batch(Box::new(header)),
                None if page.iter().all(|byte| *byte == 0) => Head::Blank,
                None => Head::Unreadable,
            };
            Ok(())
        })?;
        Ok(heads)
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        u64::from(self.config.segment_bytes)
    }

    pub(super) fn segments(&self, device: usize) -> u64 {
        self.config.regions[device].bytes / self.segment_bytes()
    }

    pub(super) fn page_bytes(&self) -> u64 {
        u64::from(self.config.page_bytes)
    }

    /// The offset of this page in its ring, in bytes.
    pub(super) fn offset_of(&self, page: u32) -> u64 {
        u64::from(page) * self.page_bytes()
    }

    /// What to read for at least these bytes of a segment: whole blocks of the device, which divide
    /// a segment, as it is a multiple of 4096 bytes.
    fn range(
        &self,
        devices: &dyn Devices,
        device: usize,
        offset: u64,
        bytes: u64,
    ) -> (DeviceId, u64, usize) {
        let region = self.config.regions[device];
        let block = u64::from(devices.geometry(region.device).logical_block_bytes);
        let start = offset - offset % block;
        let end = (offset + bytes).next_multiple_of(block);
        (region.device, region.offset + start, (end - start) as usize)
    }

    pub(super) fn damage(&self, device: usize, offset: u64, what: &str, reason: &str) -> Error {
        damage(&self.config, device, offset, what, reason)
    }

    /// The `bytes` at `offset` of a ring, within one segment.
    pub(super) fn get(
        &mut self,
        devices: &mut dyn Devices,
        device: usize,
        offset: u64,
        bytes: u64,
    ) -> Result<&[u8], Error> {
        let (id, start, length) = self.range(devices, device, offset, bytes);
        let Self { config, windows, alone, .. } = self;
        if let Some(part) = windows.get(devices, config, device, offset, bytes) {
            return Ok(part);
        }
        let read = device::read_alone(devices, id, start, length);
        *alone = read.map_err(|error| unreadable(config, device, offset, &error))?;
        let at = (config.regions[device].offset + offset - start) as usize;
        Ok(&alone[at..at + bytes as usize])
    }

    /// The header in `page` if it is one of this log and names this place.
    fn header_in(&self, page: &[u8], device: usize, offset: u64) -> Option<BatchHeader> {
        let header = BatchHeader::decode(page).ok()?;
        let left = self.segment_bytes() - offset % self.segment_bytes();
        let ours = header.store == self.config.store
            && usize::from(header.devices) == self.config.regions.len()
            && usize::from(header.device) == device
            && self.offset_of(header.page) == offset
            && header.bytes(self.config.page_bytes) <= left
            && self.places_exist(&header);
        ours.then_some(header)
    }

    /// Whether every place that the header names is one of this log.
    fn places_exist(&self, header: &BatchHeader) -> bool {
        let pages = |device: usize| match self.config.regions.get(device) {
            Some(_) => self.segments(device) * self.segment_bytes() / self.page_bytes(),
            None => 0,
        };
        let exists = |device: usize, page: u32| page == 0 || u64::from(page) < pages(device);
        let previous = usize::from(header.previous_device);
        header.cursors.iter().enumerate().all(|(device, page)| exists(device, *page))
            && exists(previous, header.previous_page)
            && (previous < self.config.regions.len()) == (header.number > 1)
    }

    /// For the ring: a sequence at its start. Whether anything came before it is known only if
    /// nothing did.
    pub(super) fn lap_start(&self, device: usize) -> Option<Seq> {
        match &self.heads[device][0] {
            Head::Batch(header) if header.number == 1 => Some(Seq::NONE),
            _ if self.heads[device].iter().all(|head| *head == Head::Blank) => None,
            _ => Some(Seq::MAX),
        }
    }

    /// The header at a place, if there is one that names it.
    pub(super) fn peek(
        &mut self,
        devices: &mut dyn Devices,
        device: usize,
        offset: u64,
    ) -> Result<Option<BatchHeader>, Error> {
        let mut header = [0; BATCH_HEADER_BYTES];
        let page = self.get(devices, device, offset, self.page_bytes())?;
        header.copy_from_slice(&page[..BATCH_HEADER_BYTES]);
        Ok(self.header_in(&header, device, offset))
    }

    /// The bytes of the batch with this header.
    pub(super) fn batch(
        &mut self,
        devices: &mut dyn Devices,
        header: &BatchHeader,
    ) -> Result<&[u8], Error> {
        let (offset, bytes) = (self.offset_of(header.page), header.bytes(self.config.page_bytes));
        self.get(devices, usize::from(header.device), offset, bytes)
    }

    /// Whether every record of the batch checks.
    pub(super) fn is_whole(
        &mut self,
        devices: &mut dyn Devices,
        header: &BatchHeader,
    ) -> Result<bool, Error> {
        let batch = self.batch(devices, header)?;
        Ok(format::check_records(header, batch).is_ok() || broken::is(Fault::ReplayOfTornBatch))
    }

    /// The headers that name `tip` as their predecessor, at the places where a run whose youngest
    /// batch is `tip` puts the next one. Whole or torn: the records are not checked. If there are
    /// any at the cursors, there are no others: the first batch of a run is at a cursor, and what
    /// an earlier run has put behind one was wiped before.
    pub(super) fn children(
        &mut self,
        devices: &mut dyn Devices,
        tip: &Tip,
    ) -> Result<Vec<BatchHeader>, Error> {
        let mut children = Vec::new();
        let segment_bytes = self.segment_bytes();
        for device in 0..self.config.regions.len() {
            let cursor = self.offset_of(tip.cursors[device]);
            if !cursor.is_multiple_of(segment_bytes) {
                children.extend(self.peek(devices, device, cursor)?);
            }
            let next = cursor.div_ceil(segment_bytes) % self.segments(device);
            if let Head::Batch(header) = &self.heads[device][next as usize] {
                children.push(**header);
            }
        }
        children.retain(|header| tip.precedes(header, &self.config));
        if children.is_empty() && tip.skips && !broken::is(Fault::SkipsUnseen) {
            return self.children_behind(devices, tip);
        }
        Ok(children)
    }

    /// The headers that name `tip` as their predecessor and begin behind the cursor of a device.
    fn children_behind(
        &mut self,
        devices: &mut dyn Devices,
        tip: &Tip,
    ) -> Result<Vec<BatchHeader>, Error> {
        let mut children = Vec::new();
        for device in 0..self.config.regions.len() {
            let cursor = self.offset_of(tip.cursors[device]);
            let end = cursor.next_multiple_of(self.segment_bytes()).min(cursor + SKIP_BYTES_MAX);
            for offset in (cursor..end).step_by(self.page_bytes() as usize).skip(1) {
                let found = self.peek(devices, device, offset)?;
                // The first batch of a run is at a cursor.
                let is_of_run = |header: &BatchHeader| header.epoch == tip.link.epoch;
                let found = found.filter(is_of_run);
                children.extend(found.filter(|header| tip.precedes(header, &self.config)));
            }
        }
        Ok(children)
    }

    /// The batch that follows `tip`, which a search has found to exist: records are checked only
    /// where several batches claim to be it.
    pub(super) fn known_child(
        &mut self,
        devices: &mut dyn Devices,
        tip: &Tip,
    ) -> Result<Option<BatchHeader>, Error> {
        let children = self.children(devices, tip)?;
        match children[..] {
            [only] => Ok(Some(only)),
            _ => self.whole(devices, children),
        }
    }

    /// The valid batch that follows `tip`, if there is one.
    pub(super) fn child(
        &mut self,
        devices: &mut dyn Devices,
        tip: &Tip,
    ) -> Result<Option<BatchHeader>, Error> {
        let children = self.children(devices, tip)?;
        self.whole(devices, children)
    }

    /// The one of the highest epoch whose records check.
    fn whole(
        &mut self,
        devices: &mut dyn Devices,
        mut children: Vec<BatchHeader>,
    ) -> Result<Option<BatchHeader>, Error> {
        children.sort_by_key(|header| std::cmp::Reverse(header.epoch));
        for header in children {
            if self.is_whole(devices, &header)? {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }
}

fn unreadable(config: &LogConfig, device: usize, offset: u64, error: &DeviceError) -> Error {
    damage(config, device, offset, "the log", &format!("read failed: {error}"))
}

fn damage(config: &LogConfig, device: usize, offset: u64, what: &str, reason: &str) -> Error {
    let region = config.regions[device];
    let (what, reason) = (what.to_owned(), reason.to_owned());
    let location = Location { device: region.device, offset: region.offset + offset };
    Damage { location: Some(location), what, reason }.into()
}
