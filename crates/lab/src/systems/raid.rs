//! A bank whose device 0 is an array of drives, RAID 5 or, without parity, RAID 0; drives that are
//! not in the array are devices from 1 on.
//!
//! 1. A request to the array is divided by the strips that it touches. Each strip is on one drive;
//!    of each stripe of RAID 5 one strip is parity, in turn on each drive, and data begins on the
//!    drive after it. Neighbouring parts on a drive are one request.
//! 2. A write to RAID 5 first reads what it replaces of the data, and the parity of that, unless it
//!    covers all data of a stripe. Then it writes data and parity. So a short write takes two reads
//!    and two writes. The reads are under way together, and so are the writes, unless the array
//!    does one after another.
//! 3. The request completes when all of its parts have. The controller takes no time and keeps
//!    nothing; requests that share a stripe are not kept apart.
//!
//! The drives take the time. The content of the array is kept beside them: they get zeros.

use std::collections::{BTreeMap, VecDeque};

use upsweep::layers::device::{
    Buffer, Class, Completion, DeviceError, DeviceId, Devices, Geometry, Hint, MemoryDevices,
    Operation, Request, Simulated, Token, VirtualClock, WriteMode,
};

/// The array as a device.
const ARRAY: DeviceId = DeviceId(0);

/// How an array is made of drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Striping {
    /// Drives, at least 2; with parity at least 3.
    pub(crate) drives: u16,
    /// Whether one of them has the parity of a stripe.
    pub(crate) parity: bool,
    /// Bytes of a strip.
    pub(crate) strip_bytes: u64,
    /// Where the array begins on each of its drives, in bytes.
    pub(crate) drive_offset: u64,
    /// Bytes of the array that are used, from its beginning.
    pub(crate) used_bytes: u64,
    /// Whether the controller does one part of a write after another: else all reads together, and
    /// then all writes.
    pub(crate) one_by_one: bool,
}

/// A part of a request on one drive: the drive, the offset on it, and the length.
type Part = (u16, u64, u64);

impl Striping {
    fn data_strips(self) -> u64 {
        u64::from(self.drives) - u64::from(self.parity)
    }

    /// The drive with the parity of a stripe.
    fn parity_drive(self, stripe: u64) -> Option<u64> {
        self.parity.then(|| self.data_strips() - stripe % u64::from(self.drives))
    }

    /// The strips that a range touches: stripe, strip of its data, and range in the strip.
    fn strips(self, offset: u64, bytes: u64) -> Vec<(u64, u64, u64, u64)> {
        let (mut at, mut strips) = (offset, Vec::new());
        while at < offset + bytes {
            let (strip, within) = (at / self.strip_bytes, at % self.strip_bytes);
            let length = (self.strip_bytes - within).min(offset + bytes - at);
            strips.push((strip / self.data_strips(), strip % self.data_strips(), within, length));
            at += length;
        }
        strips
    }

    /// Where a strip of data is on its drive.
    fn data(self, (stripe, strip, within, length): (u64, u64, u64, u64)) -> Part {
        let first = self.parity_drive(stripe).map_or(0, |drive| drive + 1);
        let drive = (first + strip) % u64::from(self.drives);
        (drive as u16, self.drive_offset + stripe * self.strip_bytes + within, length)
    }

    fn read(self, offset: u64, bytes: u64) -> Vec<Part> {
        merged(self.strips(offset, bytes).into_iter().map(|strip| self.data(strip)).collect())
    }

    /// What a write reads, and what it writes then.
    fn write(self, offset: u64, bytes: u64) -> (Vec<Part>, Vec<Part>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for of_stripe in self.strips(offset, bytes).chunk_by(|one, other| one.0 == other.0) {
            let data: Vec<Part> = of_stripe.iter().map(|strip| self.data(*strip)).collect();
            let begin = of_stripe.iter().map(|strip| strip.2).min().unwrap_or_default();
            let end = of_stripe.iter().map(|strip| strip.2 + strip.3).max().unwrap_or_default();
            let stripe = of_stripe[0].0;
            let offset = self.drive_offset + stripe * self.strip_bytes + begin;
            let on_drive = |drive| (drive as u16, offset, end - begin);
            let parity = self.parity_drive(stripe).map(on_drive);
            let written: u64 = of_stripe.iter().map(|strip| strip.3).sum();
            if parity.is_some() && written < self.data_strips() * self.strip_bytes {
                reads.extend(data.iter().copied().chain(parity));
            }
            writes.extend(data.into_iter().chain(parity));
        }
        (merged(reads), merged(writes))
    }

    /// The parts of a write that are under way together, one group after another, and whether they
    /// are read.
    fn steps_of_write(self, offset: u64, bytes: u64) -> VecDeque<(Vec<Part>, bool)> {
        let (reads, writes) = self.write(offset, bytes);
        let groups = [(reads, true), (writes, false)];
        if self.one_by_one {
            let of = |(parts, is_read): (Vec<Part>, bool)| {
                parts.into_iter().map(move |part| (vec![part], is_read))
            };
            return groups.into_iter().flat_map(of).collect();
        }
        groups.into_iter().filter(|(parts, _)| !parts.is_empty()).collect()
    }
}

/// The same with those that continue another on the same drive made one.
fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable();
    let mut found: Vec<Part> = Vec::with_capacity(parts.len());
    for (drive, offset, length) in parts {
        match found.last_mut() {
            Some(last) if last.0 == drive && last.1 + last.2 == offset => last.2 += length,
            _ => found.push((drive, offset, length)),
        }
    }
    found
}

/// A request to the array that has not completed.
struct UnderWay {
    request: Request,
    /// Parts under way.
    left: usize,
    /// What follows when these have completed: parts that are under way together, and whether they
    /// are read.
    then: VecDeque<(Vec<Part>, bool)>,
}

/// Whose part a request to a drive is.
enum Owner {
    /// A request to the array, by its number.
    Array(u64),
    /// A request to a drive of its own: its device and token.
    Drive(DeviceId, Token),
}

/// The bank.
pub(crate) struct Raid {
    striping: Striping,
    drives: Box<dyn Simulated>,
    /// What the array holds.
    content: MemoryDevices,
    numbers: u64,
    under_way: BTreeMap<u64, UnderWay>,
    owners: BTreeMap<Token, Owner>,
    /// Requests to the array that complete at once.
    done: VecDeque<(Request, Result<(), DeviceError>)>,
}

impl Raid {
    /// An array of the first drives of a bank at rest; it is zero.
    ///
    /// # Panics
    /// If the drives are too few or too small.
    pub(crate) fn new(drives: Box<dyn Simulated>, striping: Striping) -> Self {
        let Striping { drives: members, parity, used_bytes, strip_bytes, .. } = striping;
        let least = if parity { 3 } else { 2 };
        assert!((least..=drives.count()).contains(&members), "{members} of {}", drives.count());
        let of_drive = drives.geometry(DeviceId(0));
        let stripes = used_bytes.div_ceil(striping.data_strips() * strip_bytes);
        let on_drive = striping.drive_offset + stripes * strip_bytes;
        assert!(on_drive <= of_drive.size_bytes, "{on_drive} bytes on {of_drive:?}");
        let content = MemoryDevices::new(vec![Geometry { size_bytes: used_bytes, ..of_drive }], 0);
        Self {
            striping,
            drives,
            content,
            numbers: 0,
            under_way: BTreeMap::new(),
            owners: BTreeMap::new(),
            done: VecDeque::new(),
        }
    }

    /// The drive of its own that a device is.
    fn drive(&self, device: DeviceId) -> DeviceId {
        DeviceId(device.0 + self.striping.drives - 1)
    }

    fn send(&mut self, owner: Owner, device: DeviceId, hint: Hint, operation: Operation) {
        self.numbers += 1;
        let token = Token(self.numbers);
        self.owners.insert(token, owner);
        self.drives.submit(Request { device, token, hint, operation });
    }

    fn send_parts(&mut self, number: u64, parts: &[Part], class: Class, is_read: bool) {
        for (drive, offset, length) in parts {
            let (offset, buffer) = (*offset, Buffer::zeroed(*length as usize));
            let operation = if is_read {
                Operation::Read { offset, buffer }
            } else {
                Operation::Write { offset, buffer, mode: WriteMode::Stable }
            };
            self.send(Owner::Array(number), DeviceId(*drive), class.into(), operation);
        }
    }

    fn part_ended(&mut self, number: u64, completions: &mut Vec<Completion>) {
        let Some(request) = self.under_way.get_mut(&number) else { return };
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        if let Some((parts, is_read)) = request.then.pop_front() {
            request.left = parts.len();
            let class = request.request.hint.class;
            return self.send_parts(number, &parts, class, is_read);
        }
        let Some(UnderWay { mut request, .. }) = self.under_way.remove(&number) else { return };
        match &mut request.operation {
            Operation::Read { offset, buffer } => self.content.peek_into(ARRAY, *offset, buffer),
            Operation::Write { offset, buffer, .. } => self.content.poke(ARRAY, *offset, buffer),
            _ => {}
        }
        completions.push(request.end(Ok(())));
    }
}

impl Devices for Raid {
    fn count(&self) -> u16 {
        self.drives.count() - self.striping.drives + 1
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        match device {
            ARRAY => self.content.geometry(ARRAY),
            _ => self.drives.geometry(self.drive(device)),
        }
    }

    fn submit(&mut self, request: Request) {
        if request.device != ARRAY {
            let device = self.drive(request.device);
            let owner = Owner::Drive(request.device, request.token);
            return self.send(owner, device, request.hint, request.operation);
        }
        if let Err(error) = request.operation.check(&self.geometry(ARRAY)) {
            return self.done.push_back((request, Err(error)));
        }
        self.numbers += 1;
        let (number, class) = (self.numbers, request.hint.class);
        let mut then = match &request.operation {
            Operation::Read { offset, buffer } => {
                VecDeque::from([(self.striping.read(*offset, buffer.len() as u64), true)])
            }
            Operation::Write { offset, buffer, .. } => {
                self.striping.steps_of_write(*offset, buffer.len() as u64)
            }
            // Every write is stable when it completes.
            _ => return self.done.push_back((request, Ok(()))),
        };
        let (first, is_read) = then.pop_front().unwrap_or_default();
        self.under_way.insert(number, UnderWay { request, left: first.len(), then });
        self.send_parts(number, &first, class, is_read);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.extend(self.done.drain(..).map(|(request, result)| request.end(result)));
        let mut ended = Vec::new();
        self.drives.reap(&mut ended);
        for completion in ended {
            match self.owners.remove(&completion.token) {
                Some(Owner::Array(number)) => self.part_ended(number, completions),
                Some(Owner::Drive(device, token)) => {
                    completions.push(Completion { device, token, ..completion });
                }
                None => {}
            }
        }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.reap(completions);
        while completions.len() == before
            && let Some(us) = self.next_event_us()
        {
            self.advance_to(us);
            self.reap(completions);
        }
    }
}

impl Simulated for Raid {
    fn now_us(&self) -> u64 {
        self.drives.now_us()
    }

    fn clock(&self) -> VirtualClock {
        self.drives.clock()
    }

    fn next_event_us(&self) -> Option<u64> {
        if self.done.is_empty() { self.drives.next_event_us() } else { Some(self.now_us()) }
    }

    fn advance_to(&mut self, us: u64) {
        self.drives.advance_to(us);
    }

    fn peek_into(&self, device: DeviceId, offset: u64, into: &mut [u8]) {
        match device {
            ARRAY => self.content.peek_into(ARRAY, offset, into),
            _ => self.drives.peek_into(self.drive(device), offset, into),
        }
    }

    fn poke(&mut self, device: DeviceId, offset: u64, bytes: &[u8]) {
        match device {
            ARRAY => self.content.poke(ARRAY, offset, bytes),
            _ => self.drives.poke(self.drive(device), offset, bytes),
        }
    }

    fn allocate_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        match device {
            ARRAY => self.content.allocate_now(ARRAY, offset, bytes),
            _ => self.drives.allocate_now(self.drive(device), offset, bytes),
        }
    }

    fn punch_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        match device {
            ARRAY => self.content.punch_now(ARRAY, offset, bytes),
            _ => self.drives.punch_now(self.drive(device), offset, bytes),
        }
    }

    fn unallocated_bytes(&self, device: DeviceId, offset: u64, bytes: u64) -> u64 {
        match device {
            ARRAY => self.content.unallocated_bytes(ARRAY, offset, bytes),
            _ => self.drives.unallocated_bytes(self.drive(device), offset, bytes),
        }
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
        self.owners.clear();
        self.done.clear();
        self.drives.forget_requests();
    }

    fn digest(&self) -> u64 {
        self.content.digest() ^ self.drives.digest().rotate_left(1)
    }
}

#[cfg(test)]
mod tests {
    use upsweep_sim::random::Random;

    use super::super::banks;
    use super::*;

    const STRIPING: Striping = Striping {
        drives: 5,
        parity: true,
        strip_bytes: 64 << 10,
        drive_offset: 0,
        used_bytes: 1 << 30,
        one_by_one: false,
    };

    fn bank(drives: u16, striping: Striping) -> Raid {
        Raid::new(banks::drives("st39133lwv", drives, None, 1).expect("drives"), striping)
    }

    fn perform(bank: &mut Raid, device: DeviceId, operation: Operation) -> Completion {
        let (token, hint) = (Token(7), Class::Upkeep.into());
        bank.submit(Request { device, token, hint, operation });
        let mut completions = Vec::new();
        bank.wait(&mut completions);
        assert_eq!(completions.len(), 1);
        completions.remove(0)
    }

    fn write(bank: &mut Raid, device: u16, offset: u64, bytes: &[u8]) {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        let operation = Operation::Write { offset, buffer, mode: WriteMode::Stable };
        assert_eq!(perform(bank, DeviceId(device), operation).result, Ok(()));
    }

    fn read(bank: &mut Raid, device: u16, offset: u64, bytes: usize) -> Vec<u8> {
        let operation = Operation::Read { offset, buffer: Buffer::zeroed(bytes) };
        let completion = perform(bank, DeviceId(device), operation);
        assert_eq!((completion.token, completion.device.0), (Token(7), device));
        completion.buffer.expect("a read has a buffer").to_vec()
    }

    #[test]
    fn array_and_drives_of_their_own_hold_what_is_written() {
        holds_what_is_written(STRIPING);
        holds_what_is_written(Striping { parity: false, ..STRIPING });
    }

    fn holds_what_is_written(striping: Striping) {
        let (mut bank, mut random) = (bank(6, striping), Random::new(1, "raid"));
        assert_eq!(bank.count(), 2);
        let mut oracle = vec![0; 4 << 20];
        for _ in 0..200 {
            let offset = random.below(2048) as usize * 512;
            let length = 512 * (1 + random.below(1024) as usize);
            let bytes = random.bytes(length);
            oracle[offset..offset + bytes.len()].copy_from_slice(&bytes);
            write(&mut bank, 0, offset as u64, &bytes);
            let offset = random.below(2048) as usize * 512;
            let bytes = 512 * (1 + random.below(1024) as usize);
            let found = read(&mut bank, 0, offset as u64, bytes);
            assert_eq!(found, oracle[offset..offset + bytes]);
        }
        write(&mut bank, 1, 0, &[7; 512]);
        assert_eq!(read(&mut bank, 1, 0, 512), [7; 512]);
        assert_eq!(read(&mut bank, 0, 0, 512), oracle[..512]);
        assert_eq!(perform(&mut bank, ARRAY, Operation::Flush).result, Ok(()));
        let outside = Operation::Read { offset: 1 << 30, buffer: Buffer::zeroed(512) };
        assert_eq!(perform(&mut bank, ARRAY, outside).result, Err(DeviceError::InvalidRange));
    }

    #[test]
    fn an_array_may_begin_anywhere_on_its_drives() {
        let striping = Striping { drive_offset: 7 << 20, ..STRIPING };
        let moved = |parts: Vec<Part>| {
            let part = |(drive, offset, length)| (drive, offset + (7 << 20), length);
            parts.into_iter().map(part).collect::<Vec<_>>()
        };
        let (offset, bytes) = (123 << 12, 1 << 20);
        assert_eq!(striping.read(offset, bytes), moved(STRIPING.read(offset, bytes)));
        let (reads, writes) = STRIPING.write(offset, bytes);
        assert_eq!(striping.write(offset, bytes), (moved(reads), moved(writes)));
        holds_what_is_written(striping);
    }

    #[test]
    fn parts_of_a_write_that_are_done_one_by_one_take_longer() {
        let took_us = [false, true].map(|one_by_one| {
            let mut bank = bank(5, Striping { one_by_one, ..STRIPING });
            for number in 0..20 {
                write(&mut bank, 0, number * 7_919 * 4096, &[1; 4096]);
            }
            assert_eq!(read(&mut bank, 0, 19 * 7_919 * 4096, 512), [1; 512]);
            bank.now_us()
        });
        assert!(took_us[1] > took_us[0] * 5 / 4, "{took_us:?}");
    }

    #[test]
    fn strips_go_round_the_drives_and_so_does_parity() {
        let strip = STRIPING.strip_bytes;
        let drives = |stripe: u64| {
            let parts = (0..4).map(|at| STRIPING.read((stripe * 4 + at) * strip, 512));
            parts.map(|parts| parts[0].0).collect::<Vec<_>>()
        };
        assert_eq!(drives(0), [0, 1, 2, 3]);
        assert_eq!(drives(1), [4, 0, 1, 2]);
        assert_eq!(drives(5), [0, 1, 2, 3]);
        let all = STRIPING.read(0, 20 * strip);
        assert_eq!(all.iter().map(|part| part.2).sum::<u64>(), 20 * strip);
        // Five stripes: each drive has four strips of data, with parity between two of them.
        assert_eq!(all.iter().filter(|part| part.0 == 1).count(), 2);
    }

    #[test]
    fn a_short_write_reads_and_writes_twice_and_a_whole_stripe_is_only_written() {
        let strip = STRIPING.strip_bytes;
        let (reads, writes) = STRIPING.write(strip + 4096, 4096);
        assert_eq!((&reads, reads.len()), (&writes, 2));
        assert_eq!(writes, [(1, 4096, 4096), (4, 4096, 4096)]);
        let (reads, writes) = STRIPING.write(4 * strip, 4 * strip);
        assert_eq!((reads.len(), writes.len()), (0, 5));
        let (reads, writes) = STRIPING.write(0, 5 * strip);
        assert_eq!((reads.len(), writes.iter().map(|part| part.2).sum::<u64>()), (2, 7 * strip));
        let without = Striping { parity: false, ..STRIPING };
        assert_eq!(
            without.write(4 * strip, 2 * strip),
            (vec![], without.read(4 * strip, 2 * strip))
        );
        assert_eq!(without.read(4 * strip, 2 * strip), [(0, strip, strip), (4, 0, strip)]);
    }
}
