//! Zeros that flushes write behind them, and writes that come meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use upsweep::layers::device::{
    Bank, Completion, DeviceDescription, DeviceId, Devices, Geometry, MemoryDevices, Operation,
    Performer, Profile, Request, ThreadedDevices, Waiter, Waker,
};
use upsweep::{CreateOptions, Store};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Volumes};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A bank that holds the next write with zeros at its end, and says so.
struct Holding {
    bank: ThreadedDevices<MemoryDevices>,
    holder: Arc<Holder>,
}

struct Holder {
    is_armed: AtomicBool,
    /// The length of a write that is held, in bytes.
    held: Sender<usize>,
    go_on: Mutex<Receiver<()>>,
}

struct HoldingPerformer {
    performer: Box<dyn Performer>,
    holder: Arc<Holder>,
}

impl Performer for HoldingPerformer {
    fn perform(&self, request: Request) -> Completion {
        if let Operation::Write { buffer, .. } = &request.operation
            && buffer.len() > BLOCK
            && buffer.ends_with(&[0; BLOCK])
            && self.holder.is_armed.swap(false, Ordering::AcqRel)
        {
            self.holder.held.send(buffer.len()).expect("somebody waits");
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

/// The length of the write with zeros, if one is made by a few small durable writes on devices of
/// these; while it is held, others are written behind it.
fn write_beside_zeros(memory: MemoryDevices) -> Option<usize> {
    let (held, is_held) = channel();
    let (let_go, go_on) = channel();
    let holder = Arc::new(Holder { is_armed: false.into(), held, go_on: Mutex::new(go_on) });
    let bank = Holding { bank: ThreadedDevices::new(memory), holder: Arc::clone(&holder) };
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().create_on(bank, 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    let volume = volumes.create("disk", 200 * BLOCK_BYTES).expect("made");
    let data = |first: u8, blocks: u8| -> Vec<u8> {
        (first..first + blocks).flat_map(|block| [block; BLOCK]).collect()
    };
    let write = |first: u8, blocks: u8, acknowledge| {
        let offset = u64::from(first) * BLOCK_BYTES;
        volume.write(offset, &data(first, blocks), acknowledge).expect("written");
    };
    write(1, 1, Acknowledge::Durable);
    holder.is_armed.store(true, Ordering::Release);
    let length = std::thread::scope(|scope| {
        scope.spawn(|| write(2, 1, Acknowledge::Durable));
        let length = is_held.recv_timeout(Duration::from_secs(1)).ok();
        // Through the buffer, and past it.
        scope.spawn(|| write(3, 4, Acknowledge::Durable));
        scope.spawn(|| write(7, 50, Acknowledge::Written));
        std::thread::sleep(Duration::from_millis(50));
        let_go.send(()).expect("the bank is there");
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
