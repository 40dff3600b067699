//! Visitors: application code that sees each block while the sweep has it in memory anyway.
//!
//! A garbage collector that looks for counts of zero, or an application that keeps a summary of
//! every block, needs no extra reads. (Sungem thesis, section 3.3.2: the collector scans the
//! entries of a chunk when the chunk is brought in.)
//!
//! Invariants: visits to one block are sequential, in the order of its images; nothing a visitor
//! does, including a panic, affects the blocks.

use super::ids::SpaceId;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// A block as the sweep is about to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitedBlock<'a> {
    /// Number of its space.
    pub space: SpaceId,
    /// Its block key.
    pub key: &'a [u8],
    /// The new body, in the layout of the space's format; empty if the block holds nothing.
    pub body: &'a [u8],
}

/// Sees the blocks of one space during the sweep.
pub trait BlockVisitor: Send + Sync {
    /// Called for every block of a run after its updates were applied, on a worker thread.
    ///
    /// - It delays its run, so it should take microseconds, and must never wait for the store.
    /// - The block is not durable yet, and may never be: after a crash, or when there is no room
    ///   for it, its updates are applied again and the block is visited again. So visits must be
    ///   idempotent.
    /// - Different blocks may be visited concurrently, the same block never.
    fn visit(&self, block: &VisitedBlock<'_>);
}

/// A visitor, and the message of the panic that stopped its visits.
struct Registered {
    visitor: Arc<dyn BlockVisitor>,
    panic: OnceLock<String>,
}

/// The visitors of one open store, by space number.
#[derive(Clone, Default)]
pub(super) struct Visitors {
    by_space: BTreeMap<SpaceId, Arc<Registered>>,
}

impl Visitors {
    /// Registers the visitor of a space in place of the previous one, or removes that.
    pub(super) fn set(&mut self, space: SpaceId, visitor: Option<Arc<dyn BlockVisitor>>) {
        match visitor {
            Some(visitor) => {
                let registered = Registered { visitor, panic: OnceLock::new() };
                self.by_space.insert(space, Arc::new(registered));
            }
            None => drop(self.by_space.remove(&space)),
        }
    }

    /// The message of the panic that stopped the visits to a space, if any.
    pub(super) fn panic(&self, space: SpaceId) -> Option<&str> {
        self.by_space.get(&space)?.panic.get().map(String::as_str)
    }

    /// Shows a block to the visitor of its space.
    pub(super) fn visit(&self, block: &VisitedBlock<'_>) {
        let Some(registered) = self.by_space.get(&block.space) else { return };
        if registered.panic.get().is_some() {
            return;
        }
        let visited = catch_unwind(AssertUnwindSafe(|| registered.visitor.visit(block)));
        if let Err(payload) = visited {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            registered.panic.get_or_init(|| text.unwrap_or("no message").to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts its visits, and panics at one of them.
    #[derive(Default)]
    struct Counting {
        visits: AtomicUsize,
        panics_at: Option<usize>,
    }

    impl BlockVisitor for Counting {
        fn visit(&self, _: &VisitedBlock<'_>) {
            let visit = self.visits.fetch_add(1, Ordering::Relaxed);
            assert!(self.panics_at != Some(visit), "visit {visit} fails");
        }
    }

    fn block(space: u32) -> VisitedBlock<'static> {
        VisitedBlock { space: SpaceId::new(space), key: b"k", body: b"body" }
    }

    #[test]
    fn a_visitor_sees_the_blocks_of_its_space_until_it_is_taken_away() {
        let (mut visitors, counting) = (Visitors::default(), Arc::new(Counting::default()));
        visitors.visit(&block(7));
        visitors.set(SpaceId::new(7), Some(counting.clone()));
        visitors.visit(&block(7));
        visitors.visit(&block(8));
        assert_eq!(counting.visits.load(Ordering::Relaxed), 1);
        visitors.set(SpaceId::new(7), None);
        visitors.visit(&block(7));
        assert_eq!(counting.visits.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_visitor_that_panics_harms_nobody_and_is_called_no_more() {
        let mut visitors = Visitors::default();
        let failing = Arc::new(Counting { panics_at: Some(1), ..Counting::default() });
        visitors.set(SpaceId::new(7), Some(failing.clone()));
        let copy = visitors.clone();
        (0..4).for_each(|_| visitors.visit(&block(7)));
        assert_eq!(failing.visits.load(Ordering::Relaxed), 2);
        assert_eq!(visitors.panic(SpaceId::new(7)), Some("visit 1 fails"));
        copy.visit(&block(7));
        assert_eq!(failing.visits.load(Ordering::Relaxed), 2, "nor by the jobs under way");
        visitors.set(SpaceId::new(7), Some(Arc::new(Counting::default())));
        assert_eq!(visitors.panic(SpaceId::new(7)), None, "another one begins anew");
        assert_eq!(visitors.panic(SpaceId::new(8)), None);
    }
}
