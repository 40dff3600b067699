//! What others do while a request of a volume is held up on its way to the device.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use upsweep::layers::device::{
    Bank, Buffer, Class, Completion, DeviceDescription, DeviceId, Devices, FailureKind, Geometry,
    HostileDevices, MemoryDevices, Operation, Performer, Profile, Request, ThreadedDevices, Waiter,
    Waker,
};
use upsweep::{CreateOptions, Store};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Volumes};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A bank that holds requests which threads perform themselves, and says so.
struct Holding {
    bank: ThreadedDevices<MemoryDevices>,
    holder: Arc<Holder>,
}

type IsHeld = fn(&Request) -> bool;

struct Holder {
    /// Which requests are held, one after another.
    next: Mutex<VecDeque<IsHeld>>,
    /// The length of a request that is held, in bytes.
    held: Sender<usize>,
    go_on: Mutex<Receiver<()>>,
}

impl Holder {
    fn takes(&self, request: &Request) -> bool {
        self.next.lock().expect("no panic").pop_front_if(|is_held| is_held(request)).is_some()
    }
}

/// The other side of a [`Holder`].
struct Held {
    holder: Arc<Holder>,
    is_held: Receiver<usize>,
    let_go: Sender<()>,
}

impl Held {
    /// The requests to hold, one after another.
    fn hold(&self, requests: &[IsHeld]) {
        self.holder.next.lock().expect("no panic").extend(requests);
    }

    /// Waits until a request is held; returns its length.
    fn wait(&self) -> Option<usize> {
        self.is_held.recv_timeout(Duration::from_secs(1)).ok()
    }

    fn let_go(&self) {
        self.let_go.send(()).expect("the bank is there");
    }
}

/// Volumes of segments of 1 MiB on a bank that holds requests.
fn on_holding(memory: MemoryDevices) -> (Store, Volumes, Held) {
    let (held, is_held) = channel();
    let (let_go, go_on) = channel();
    let holder = Arc::new(Holder { next: Mutex::default(), held, go_on: Mutex::new(go_on) });
    let bank = Holding { bank: ThreadedDevices::new(memory), holder: Arc::clone(&holder) };
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().create_on(bank, 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    (store, volumes, Held { holder, is_held, let_go })
}

struct HoldingPerformer {
    performer: Box<dyn Performer>,
    holder: Arc<Holder>,
}

impl Performer for HoldingPerformer {
    fn perform(&self, request: Request) -> Completion {
        if self.holder.takes(&request) {
            let length = match &request.operation {
                Operation::Write { buffer, .. } => buffer.len(),
                _ => 0,
            };
            self.holder.held.send(length).expect("somebody waits");
            self.holder.go_on.lock().expect("no panic").recv().expect("it is let go");
        }
        self.performer.perform(request)
    }
}

impl Devices for Holding {
    fn count(&self) -> u16 {
        self.bank.count()
    }
    fn geometry(&self, device: DeviceId) -> Geometry {
        self.bank.geometry(device)
    }
    fn submit(&mut self, request: Request) {
        self.bank.submit(request);
    }
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.bank.reap(completions);
    }
    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.bank.wait(completions);
    }
}

impl Bank for Holding {
    fn waiter(&self) -> Box<dyn Waiter> {
        self.bank.waiter()
    }
    fn waker(&self) -> Box<dyn Waker> {
        self.bank.waker()
    }
    fn performer(&self) -> Box<dyn Performer> {
        let (performer, holder) = (self.bank.performer(), Arc::clone(&self.holder));
        Box::new(HoldingPerformer { performer, holder })
    }
    fn description(&self, device: DeviceId) -> DeviceDescription {
        self.bank.description(device)
    }
    fn profile(&self, device: DeviceId) -> Option<Profile> {
        self.bank.profile(device)
    }
    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.bank.allocated_bytes(device)
    }
}

/// Whether a request writes zeros behind something else.
fn ends_with_zeros(request: &Request) -> bool {
    let Operation::Write { buffer, .. } = &request.operation else { return false };
    buffer.len() > BLOCK && buffer.ends_with(&[0; BLOCK])
}

/// Blocks, each of which has its own content.
fn data(first: u8, blocks: u8) -> Vec<u8> {
    (first..first + blocks).flat_map(|block| [block; BLOCK]).collect()
}

/// The length of the write with zeros, if one is made by a few small durable writes on devices of
/// these; while it is held, others are written behind it.
fn write_beside_zeros(memory: MemoryDevices) -> Option<usize> {
    let (_store, volumes, held) = on_holding(memory);
    let volume = volumes.create("disk", 200 * BLOCK_BYTES).expect("made");
    let write = |first: u8, blocks: u8, acknowledge| {
        let offset = u64::from(first) * BLOCK_BYTES;
        volume.write(offset, &data(first, blocks), acknowledge).expect("written");
    };
    write(1, 1, Acknowledge::Durable);
    held.hold(&[ends_with_zeros]);
    let length = std::thread::scope(|scope| {
        scope.spawn(|| write(2, 1, Acknowledge::Durable));
        let length = held.wait();
        // Through the buffer, and past it.
        scope.spawn(|| write(3, 4, Acknowledge::Durable));
        scope.spawn(|| write(7, 50, Acknowledge::Written));
        std::thread::sleep(Duration::from_millis(50));
        held.let_go();
        length
    });
    let mut found = vec![0; 56 * BLOCK];
    volume.read(BLOCK_BYTES, &mut found).expect("readable");
    assert!(found == data(1, 56));
    length
}

#[test]
fn what_is_written_behind_a_flush_is_not_lost_to_its_zeros() {
    let length = write_beside_zeros(MemoryDevices::with_sizes(&[0, 0], 1));
    // The first two slots are taken, and a part has 64.
    assert_eq!(length, Some(63 * BLOCK));
}

#[test]
fn devices_that_cannot_grow_get_no_zeros() {
    let sizes = [64 << 20, 64 << 20];
    assert_eq!(write_beside_zeros(MemoryDevices::with_fixed_sizes(&sizes, 1)), None);
}

#[test]
fn a_flush_waits_for_what_cleaning_has_begun_to_flush() {
    let (store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = volumes.create("disk", 2000 * BLOCK_BYTES).expect("made");
    (0..8).for_each(|part| {
        let offset = part * 100 * BLOCK_BYTES;
        volume.write(offset, &data(100, 100), Acknowledge::Written).expect("written");
    });
    for block in (0..800).step_by(2) {
        volume.zero(block * BLOCK_BYTES, BLOCK_BYTES, Acknowledge::Written).expect("zeroed");
    }
    volume.flush().expect("flushed");
    store.sweep().expect("swept");
    // Half of the slots are dead, so this cleans.
    let is_copy: IsHeld = |request| request.hint.class == Class::SweepWrite;
    let is_flush: IsHeld = |request| matches!(request.operation, Operation::Flush);
    held.hold(&[is_copy, is_flush]);
    let (flushed, is_flushed) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| while volumes.work().expect("no fault") {});
        assert!(held.wait().is_some(), "nothing is copied");
        let offset = 1000 * BLOCK_BYTES;
        volume.write(offset, &data(100, 100), Acknowledge::Written).expect("written");
        held.let_go();
        assert_eq!(held.wait(), Some(0), "nothing is flushed");
        scope.spawn(|| flushed.send(volume.flush()).expect("somebody waits"));
        let early = is_flushed.recv_timeout(Duration::from_millis(50));
        held.let_go();
        assert!(early.is_err(), "what was written is not stable yet");
        is_flushed.recv().expect("it ends").expect("flushed");
    });
}

#[test]
fn a_part_of_a_block_is_written_while_another_one_becomes_durable() {
    let (_store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = volumes.create("disk", 2 * BLOCK_BYTES).expect("made");
    let is_stable: IsHeld = |request| {
        let class = request.hint.class;
        matches!(request.operation, Operation::Write { .. }) && class == Class::ForegroundWrite
    };
    held.hold(&[is_stable]);
    let (written, is_written) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| volume.write(1, b"durable", Acknowledge::Durable).expect("written"));
        assert_eq!(held.wait(), Some(BLOCK), "nothing is written");
        scope.spawn(|| written.send(volume.write(BLOCK_BYTES + 1, b"other", Acknowledge::Written)));
        let early = is_written.recv_timeout(Duration::from_secs(1));
        held.let_go();
        early.expect("it need not wait").expect("written");
    });
}

#[test]
fn what_is_being_written_to_a_volume_that_is_deleted_goes_with_it() {
    let (store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = volumes.create("disk", 200 * BLOCK_BYTES).expect("made");
    held.hold(&[is_write_of::<100>]);
    let work = || while volumes.work().expect("no fault") {};
    std::thread::scope(|scope| {
        scope.spawn(|| volume.write(0, &data(100, 100), Acknowledge::Written).expect("written"));
        assert!(held.wait().is_some(), "nothing is written");
        volumes.delete("disk").expect("deleted");
        scope.spawn(work);
        std::thread::sleep(Duration::from_millis(50));
        held.let_go();
    });
    work();
    let map = store.existing_table("volumes/map").expect("there");
    assert_eq!(map.iter().count(), 0, "entries that nobody will ever delete");
}

/// Whether a request writes so many blocks.
fn is_write_of<const BLOCKS: usize>(request: &Request) -> bool {
    matches!(&request.operation, Operation::Write { buffer, .. } if buffer.len() == BLOCKS * BLOCK)
}

#[test]
fn reads_and_flushes_wait_for_a_write_that_is_accepted_before_the_devices_have_it() {
    let (_store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = &volumes.create("disk", 200 * BLOCK_BYTES).expect("made");
    volume.write(100 * BLOCK_BYTES, &data(1, 100), Acknowledge::Durable).expect("written");
    held.hold(&[is_write_of::<100>]);
    let (over, are_over) = channel();
    std::thread::scope(|scope| {
        let (accepted, is_accepted) = channel();
        scope.spawn(move || {
            let mut accepted = || accepted.send(()).expect("somebody waits");
            let written = Buffer::copy_of(&data(100, 100));
            volume.write_behind(0, written, &mut accepted).expect("written");
        });
        is_accepted.recv_timeout(Duration::from_secs(1)).expect("it is accepted");
        assert!(held.wait().is_some(), "nothing is written");
        let mut found = vec![0; BLOCK];
        volume.read(150 * BLOCK_BYTES, &mut found).expect("it need not wait");
        assert_eq!(found[0], 51);
        let over = &over;
        scope.spawn(move || {
            volume.read(50 * BLOCK_BYTES, &mut found).expect("readable");
            over.send(found[0]).expect("somebody waits");
        });
        scope.spawn(move || {
            volume.flush().expect("flushed");
            over.send(0).expect("somebody waits");
        });
        let early = are_over.recv_timeout(Duration::from_millis(50));
        held.let_go();
        assert!(early.is_err(), "the devices do not have it");
    });
    let mut over: Vec<u8> = are_over.try_iter().collect();
    over.sort_unstable();
    assert_eq!(over, [0, 150]);
}

#[test]
fn writes_are_accepted_early_as_long_as_they_take_no_more_than_16_mib() {
    let (_store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = &volumes.create("disk", 17 * 256 * BLOCK_BYTES).expect("made");
    let is_mib: IsHeld = is_write_of::<256>;
    held.hold(&[is_mib; 17]);
    let (accepted, are_accepted) = channel();
    std::thread::scope(|scope| {
        for nth in 0..17 {
            let accepted = accepted.clone();
            scope.spawn(move || {
                let mut accepted = || accepted.send(()).expect("somebody waits");
                let data = Buffer::zeroed(256 * BLOCK);
                let offset = nth * 256 * BLOCK_BYTES;
                volume.write_behind(offset, data, &mut accepted).expect("written");
            });
        }
        let is_accepted = || are_accepted.recv_timeout(Duration::from_secs(1)).is_ok();
        let early = (0..16).filter(|_| is_accepted()).count();
        let is_another = are_accepted.recv_timeout(Duration::from_millis(50)).is_ok();
        (0..17).for_each(|_| held.let_go());
        assert_eq!((early, is_another), (16, false));
    });
}

#[test]
fn after_an_accepted_write_has_failed_so_does_a_flush() {
    let memory = HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], 1), 1);
    let bank = ThreadedDevices::new(memory);
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().create_on(bank.clone(), 1, &sizes).expect("made");
    let volumes = Volumes::open(&store).expect("opens");
    let volume = volumes.create("disk", 100 * BLOCK_BYTES).expect("made");
    let mut fail = || bank.with(|devices| devices.fail_after(0, FailureKind::All));
    let written = volume.write_behind(0, Buffer::copy_of(&data(100, 100)), &mut fail);
    assert!(written.is_err() && volume.flush().is_err());
    drop((volume, volumes, store));
    bank.with(|devices| {
        devices.power_cut();
        devices.stop_failing();
    });
    let store = Store::builder().open_on(bank).expect("opens");
    let volume = Volumes::open(&store).expect("recovers").volume("disk").expect("there");
    let mut found = vec![1; 100 * BLOCK];
    volume.read(0, &mut found).expect("readable");
    assert!(found == vec![0; 100 * BLOCK]);
}

#[test]
fn a_write_of_a_part_does_not_undo_one_of_the_whole_block() {
    let (_store, volumes, held) = on_holding(MemoryDevices::with_sizes(&[0, 0], 1));
    let volume = volumes.create("disk", BLOCK_BYTES).expect("made");
    volume.write(0, &data(1, 1), Acknowledge::Durable).expect("written");
    held.hold(&[|request| request.hint.class == Class::ForegroundRead]);
    std::thread::scope(|scope| {
        scope.spawn(|| volume.write(1, b"part", Acknowledge::Written).expect("written"));
        assert!(held.wait().is_some(), "nothing is read");
        scope.spawn(|| volume.write(0, &data(2, 1), Acknowledge::Written).expect("written"));
        std::thread::sleep(Duration::from_millis(50));
        held.let_go();
    });
    let mut found = vec![0; BLOCK];
    volume.read(0, &mut found).expect("readable");
    assert_eq!((found[0], found[100]), (2, 2), "what only the second one has written");
}
