//! A caller that waits for room because the log is held up.

#![expect(clippy::disallowed_methods, reason = "a thread that waits")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use upsweep::layers::device::Class;
use upsweep::{Durability, Store};

use crate::gate::gated;

/// Opens the gate at its end, also if that is a panic: the caller would wait for ever.
struct Opens(Arc<AtomicBool>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Has a caller wait until the pipeline of the log has room, for 0.3 s at least, and
/// calls `look` then, while it waits. Returns the store once all is durable.
pub(crate) fn stalled(look: impl FnOnce(&Store)) -> Store {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    is_shut.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..600u32 {
                table.put(&number.to_be_bytes(), &[1; 16 << 10]).expect("accepted");
            }
        });
        let _opens = Opens(is_shut);
        while store.metrics().admission_waiting["pipeline"] == 0.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        look(&store);
    });
    store.flush().expect("durable");
    store
}
