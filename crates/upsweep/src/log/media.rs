//! Reading batches back from the rings.
//!
//! Batches that follow one another are read through windows, see `windows.rs`; several devices
//! together if the next batches of all of them begin beyond their windows. Where headers are looked
//! for, whole parts of rings are read, on all devices at once, and only the headers are kept.
//! Nothing is in flight between two calls.

use std::collections::BTreeMap;

use super::format::{self, BATCH_HEADER_BYTES, BatchHeader, DEVICES_MAX};
use super::windows::{Window, Windows};
use super::writer::Link;
use super::{LogConfig, Seq, UNIT_BYTES};
use crate::broken::{self, Fault};
use crate::device::{self, Buffer, DeviceError, DeviceId, Devices, READ_AHEAD_BYTES_MAX};
use crate::error::{Damage, Error, Location};

/// The chain up to one batch, and what must follow it: the batch and its checked header, or the
/// beginning of an empty log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) number: u64,
    pub(super) last_seq: Seq,
    pub(super) link: Link,
    pub(super) cursors: [u32; DEVICES_MAX],
}

impl Tip {
    /// Before batch 1.
    pub(super) const GENESIS: Self =
        Self { number: 0, last_seq: Seq::NONE, link: Link::NONE, cursors: [0; DEVICES_MAX] };

    pub(super) fn of(header: &BatchHeader) -> Self {
        Self {
            number: header.number,
            last_seq: header.last_seq(),
            link: Link { device: header.device, page: header.page, epoch: header.epoch },
            cursors: header.cursors,
        }
    }

    /// Whether `header` names this batch as its predecessor: this one by number, place and epoch,
    /// not another that may have had its number. Pages have `page_bytes`.
    fn precedes(&self, header: &BatchHeader, page_bytes: u32) -> bool {
        let Link { device, page, epoch } = self.link;
        let end = u64::from(header.page) + header.bytes(page_bytes) / u64::from(page_bytes);
        let own = usize::from(header.device);
        let others_stay = (0..DEVICES_MAX)
            .all(|device| device == own || header.cursors[device] == self.cursors[device]);
        header.number == self.number + 1
            && (header.previous_device, header.previous_page) == (device, page)
            && header.previous_epoch == epoch
            && header.first_seq == self.last_seq.next()
            && others_stay
            && (u64::from(header.cursors[own]) == end || header.cursors[own] == 0)
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

/// A part of the ring of a device, within one segment: from an offset in bytes to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) device: usize,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The rings of a log, for reading.
#[derive(Debug)]
pub(super) struct Media {
    pub(super) config: LogConfig,
    pub(super) windows: Windows,
    /// Per log device and segment; read once.
    pub(super) heads: Vec<Vec<Head>>,
    /// The headers at all pages of the segments that were searched, by device and segment.
    searched: BTreeMap<(usize, u64), Vec<BatchHeader>>,
    /// Once the end of the log is known: where each device goes on after it.
    end: Option<[u32; DEVICES_MAX]>,
}

impl Media {
    /// Reads the first page of every segment. `config` is checked.
    pub(super) fn open(devices: &mut dyn Devices, config: &LogConfig) -> Result<Self, Error> {
        let windows = Windows::new(config.regions.len(), config.kept_bytes as u64);
        let (heads, searched, end) = (Vec::new(), BTreeMap::new(), None);
        let mut media = Self { config: config.clone(), windows, heads, searched, end };
        media.heads = media.read_heads(devices)?;
        Ok(media)
    }

    /// The end of the log is found: nothing beyond it is read any more.
    pub(super) fn end_at(&mut self, tip: &Tip) {
        self.end = Some(tip.cursors);
    }

    fn read_heads(&self, devices: &mut dyn Devices) -> Result<Vec<Vec<Head>>, Error> {
        let segments = |device: &usize| self.segments(*device);
        let all = 0..self.config.regions.len();
        let mut pages = Vec::new();
        for segment in 0..all.clone().map(|device| self.segments(device)).max().unwrap_or(0) {
            let start = segment * self.segment_bytes();
            let present = all.clone().filter(|device| segment < segments(device));
            let end = start + self.page_bytes();
            pages.extend(present.map(|device| Part { device, start, end }));
        }
        let mut heads = vec![Vec::new(); all.len()];
        self.read_parts(devices, &pages, |part, page| {
            heads[part.device].push(match self.header_in(page, part.device, part.start) {
                Some(header) => Head::Batch(Box::new(header)),
                None if page.iter().all(|byte| *byte == 0) => Head::Blank,
                None => Head::Unreadable,
            });
        })?;
        Ok(heads)
    }

    /// Reads parts of rings, several at a time; calls `take` with each and its content, in their
    /// order.
    fn read_parts(
        &self,
        devices: &mut dyn Devices,
        parts: &[Part],
        mut take: impl FnMut(&Part, &[u8]),
    ) -> Result<(), Error> {
        let range = |part: &Part| self.range(devices, part.device, part.start, part.end);
        let ranges: Vec<_> = parts.iter().map(range).collect();
        device::read_in_order(devices, &ranges, |index, read| {
            let part = &parts[index];
            let read = read.map_err(|error| self.unreadable(part.device, part.start, &error))?;
            let begun_at = ranges[index].1 - self.config.regions[part.device].offset;
            let from = (part.start - begun_at) as usize;
            take(part, &read[from..from + (part.end - part.start) as usize]);
            Ok(())
        })
    }

    /// The headers that begin a page in these parts of rings, in the order of their places where
    /// these are in one part. All devices read at the same time. The records are not checked.
    pub(super) fn headers_in(
        &self,
        devices: &mut dyn Devices,
        parts: &[Part],
    ) -> Result<Vec<BatchHeader>, Error> {
        let mut found = Vec::new();
        let mut left = Vec::new();
        for part in parts {
            let segment = part.start / self.segment_bytes();
            match self.searched.get(&(part.device, segment)) {
                Some(headers) => {
                    let inside = |header: &&BatchHeader| {
                        (part.start..part.end).contains(&self.offset_of(header.page))
                    };
                    found.extend(headers.iter().filter(inside));
                }
                None => left.push(*part),
            }
        }
        found.extend(self.scan(devices, &left, |_, _| {})?);
        Ok(found)
    }

    /// Reads parts of rings for the headers in them; also calls `also` with each piece.
    fn scan(
        &self,
        devices: &mut dyn Devices,
        parts: &[Part],
        mut also: impl FnMut(&Part, &[u8]),
    ) -> Result<Vec<BatchHeader>, Error> {
        let (mut found, page_bytes) = (Vec::new(), self.page_bytes() as usize);
        self.read_parts(devices, &self.pieces(parts), |piece, bytes| {
            let pages = (piece.start..).step_by(page_bytes).zip(bytes.chunks(page_bytes));
            found.extend(pages.filter_map(|(at, page)| self.header_in(page, piece.device, at)));
            also(piece, bytes);
        })?;
        Ok(found)
    }

    /// Reads whole segments for the headers in them, and remembers these. What fits is kept: some
    /// of it is needed next.
    pub(super) fn search(
        &mut self,
        devices: &mut dyn Devices,
        segments: &[(usize, u64)],
    ) -> Result<(), Error> {
        let whole = |(device, segment): &(usize, u64)| {
            let start = segment * self.segment_bytes();
            Part { device: *device, start, end: start + self.segment_bytes() }
        };
        let parts: Vec<_> = segments.iter().map(whole).collect();
        let (mut windows, mut room_bytes) = (Vec::new(), self.windows.room_bytes());
        let headers = self.scan(devices, &parts, |piece, bytes| {
            if bytes.len() as u64 <= room_bytes {
                room_bytes -= bytes.len() as u64;
                let (start, buffer) = (piece.start, Buffer::copy_of(bytes));
                windows.push((piece.device, Window { start, buffer }));
            }
        })?;
        windows.into_iter().for_each(|(device, window)| self.windows.add(device, window));
        self.searched.extend(segments.iter().map(|place| (*place, Vec::new())));
        for header in headers {
            let segment = self.offset_of(header.page) / self.segment_bytes();
            self.searched.entry((usize::from(header.device), segment)).or_default().push(header);
        }
        Ok(())
    }

    /// The log is read from this batch on: gives back the memory of what is before it.
    pub(super) fn begin_at(&mut self, first: &BatchHeader) {
        for device in 0..self.config.regions.len() {
            let own = device == usize::from(first.device);
            let from = self.offset_of(if own { first.page } else { first.cursors[device] });
            let end = (from / self.segment_bytes() + 1) * self.segment_bytes();
            self.windows.retain(device, from..end);
        }
    }

    /// The headers of a segment that was searched, in the order of their places.
    pub(super) fn searched(&self, place: (usize, u64)) -> &[BatchHeader] {
        self.searched.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Cuts parts so that two pieces of each device can be under way, and puts pieces of different
    /// devices next to one another.
    fn pieces(&self, parts: &[Part]) -> Vec<Part> {
        let at_a_time = 2 * self.config.regions.len();
        let most = (READ_AHEAD_BYTES_MAX / at_a_time) as u64;
        let most = most - most % UNIT_BYTES;
        let mut of_devices = vec![Vec::new(); self.config.regions.len()];
        for part in parts {
            let starts = (part.start..part.end).step_by(most as usize);
            let piece = |start: u64| Part { start, end: (start + most).min(part.end), ..*part };
            of_devices[part.device].extend(starts.map(piece));
        }
        let most = of_devices.iter().map(Vec::len).max().unwrap_or(0);
        let turn = |turn: usize| of_devices.iter().filter_map(move |pieces| pieces.get(turn));
        (0..most).flat_map(turn).copied().collect()
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
        start: u64,
        end: u64,
    ) -> (DeviceId, u64, usize) {
        let region = self.config.regions[device];
        let block = u64::from(devices.geometry(region.device).logical_block_bytes);
        let (start, end) = (start - start % block, end.next_multiple_of(block));
        (region.device, region.offset + start, (end - start) as usize)
    }

    fn unreadable(&self, device: usize, offset: u64, error: &DeviceError) -> Error {
        self.damage(device, offset, "the log", &format!("read failed: {error}"))
    }

    pub(super) fn damage(&self, device: usize, offset: u64, what: &str, reason: &str) -> Error {
        let region = self.config.regions[device];
        let (what, reason) = (what.to_owned(), reason.to_owned());
        let location = Location { device: region.device, offset: region.offset + offset };
        Damage { location: Some(location), what, reason }.into()
    }

    /// The `bytes` at `offset` of a ring, within one segment, through the windows of the device.
    fn get(
        &mut self,
        devices: &mut dyn Devices,
        device: usize,
        offset: u64,
        bytes: u64,
    ) -> Result<&[u8], Error> {
        self.windows.pass(device, offset);
        if self.windows.part(device, offset, bytes).is_none() {
            // Beyond a batch that leads into a kept window nothing is needed.
            let leads = self.windows.one_begins_in(device, offset, bytes);
            let ahead = if leads { 0 } else { self.window_end(device, offset) };
            let end = ahead.max(offset + bytes);
            self.read_windows(devices, &[Part { device, start: offset, end }])?;
        }
        Ok(self.windows.part(device, offset, bytes).expect("it was just read"))
    }

    /// The end of the window to read at an offset: in its segment, and not beyond the end of the
    /// log.
    fn window_end(&self, device: usize, offset: u64) -> u64 {
        let segment_end = (offset / self.segment_bytes() + 1) * self.segment_bytes();
        let log_end = self.end.map(|cursors| self.offset_of(cursors[device]));
        let log_end = log_end.filter(|end| (offset + 1..segment_end).contains(end));
        let ahead = self.windows.ahead(device, offset, self.segment_bytes());
        (offset + ahead).min(log_end.unwrap_or(segment_end))
    }

    /// Reads windows at the same time.
    fn read_windows(&mut self, devices: &mut dyn Devices, parts: &[Part]) -> Result<(), Error> {
        let range = |part: &Part| self.range(devices, part.device, part.start, part.end);
        let ranges: Vec<_> = parts.iter().map(range).collect();
        let reads = device::read_together(devices, &ranges);
        let mut outcome = Ok(());
        for ((part, (_, at, _)), read) in parts.iter().zip(&ranges).zip(reads) {
            let start = at - self.config.regions[part.device].offset;
            match read {
                Ok(buffer) => self.windows.add(part.device, Window { start, buffer }),
                Err(error) => outcome = Err(self.unreadable(part.device, part.start, &error)),
            }
        }
        outcome
    }

    /// Whether the chain may go on at this offset, as far as first pages of segments tell.
    fn may_go_on(&self, device: usize, offset: u64, tip: &Tip) -> bool {
        let head = &self.heads[device][(offset / self.segment_bytes()) as usize];
        let is_later = matches!(head, Head::Batch(header) if header.number > tip.number);
        is_later || !offset.is_multiple_of(self.segment_bytes())
    }

    /// Reads the next windows of all devices that are at the ends of theirs, at the same time, if
    /// one of them has to: batches are spread over the devices.
    fn read_on(&mut self, devices: &mut dyn Devices, tip: &Tip) {
        let (mut parts, mut has_to) = (Vec::new(), false);
        for device in 0..self.config.regions.len() {
            let ring_bytes = self.segments(device) * self.segment_bytes();
            let start = self.offset_of(tip.cursors[device]) % ring_bytes;
            let ends_here = self.end.is_some_and(|end| end[device] == tip.cursors[device]);
            if ends_here || !self.may_go_on(device, start, tip) {
                continue;
            }
            let end = self.window_end(device, start);
            if !self.windows.have(device, start, (end - start) / 4) {
                parts.push(Part { device, start, end });
                let batch = u64::from(self.config.batch_bytes).min((end - start) / 4);
                has_to |= !self.windows.have(device, start, batch);
            }
        }
        if has_to {
            // What cannot be read is reported by whoever needs it.
            let _ = self.read_windows(devices, &parts);
        }
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
    /// batch is `tip` puts the next one. Whole or torn: the records are not checked.
    pub(super) fn children(
        &mut self,
        devices: &mut dyn Devices,
        tip: &Tip,
    ) -> Result<Vec<BatchHeader>, Error> {
        self.read_on(devices, tip);
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
        children.retain(|header| tip.precedes(header, self.config.page_bytes));
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
