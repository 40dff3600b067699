//! Accepting updates: admission, routing, the log record and the queues.
//!
//! Invariants: an update is in its queue, or pending for it, if and only if its record is in the
//! log; memory stays within the budget because an update that does not fit waits outside; updates
//! of one record are accepted together. (Bosc paper, section 4.2.)

use super::base::Base;
use super::catalog::REFERENCES_SPACE;
use super::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX, VALUE_BYTES_MAX};
use super::format::record_format::{LoggedUpdate, fill_updates, update_len, updates_len};
use super::growth::Growth;
use super::ids::SnapshotId;
use super::index::{Index, Separation};
use super::policy::{self, Budget, Gauge, Shortage};
use crate::error::{Error, RequestError, RetryError};
use crate::log::{AppendError, Seq, Urgency};

/// The answer to an offered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// It is in the queues, and durable once [`Core::durable`](super::Core::durable) reaches this
    /// sequence.
    Accepted(Seq),
    /// There is no room at present: offer it again after [`Actions::room`](super::Actions::room).
    Wait,
}

/// An offered record, whose updates were checked.
pub(super) struct Offer {
    /// Bytes of its updates.
    pub(super) bytes: usize,
    /// Space needed by the blocks that it makes separate.
    separation: Separation,
}

/// Decides whether there is room for updates.
pub(super) struct Admission {
    /// The fill of the log in per cent from which on updates are refused, as of the last pump.
    log_percent_refused: f64,
}

impl Admission {
    pub(super) fn new() -> Self {
        Self { log_percent_refused: 100.0 }
    }

    /// Whether updates are refused for the fill of the log.
    pub(super) fn refuses_for_log(&self, log: Gauge) -> bool {
        policy::is_log_refused(log, self.log_percent_refused)
    }

    /// Refuses updates from this fill of the log on, in per cent.
    pub(super) fn refuse_from(&mut self, log_percent: f64) {
        self.log_percent_refused = log_percent;
    }

    /// The resource that is short for an offer; `None` if it can be accepted.
    ///
    /// # Errors
    /// [`RequestError::BatchTooLong`]; [`RetryError::Memory`] when the directory has outgrown the
    /// budget; [`RetryError::Full`] if only a sweep could make room, and the devices are full.
    pub(super) fn shortage(
        &self,
        base: &Base,
        growth: &mut Growth,
        updates: &[LoggedUpdate<'_>],
        offer: &Offer,
    ) -> Result<Option<Shortage>, Error> {
        let shortage = self.shortage_for(base, offer)?;
        let growth_bytes = offer.bytes as u64 + offer.separation.growth_bytes;
        let image_bytes = offer.separation.image_bytes;
        let has_room = growth.has_room_for(base, updates, growth_bytes, image_bytes);
        Ok((!has_room).then_some(Shortage::Device).or(shortage))
    }

    /// The resource that is short for a record of `bytes`, ignoring room on the data devices.
    fn shortage_for(&self, base: &Base, offer: &Offer) -> Result<Option<Shortage>, Error> {
        let bytes = offer.bytes;
        let limit = base.fixed.record_bytes_max;
        if bytes > limit {
            return Err(RequestError::BatchTooLong { bytes, limit }.into());
        }
        let needed = policy::queue_bytes_of(bytes);
        let (budget_bytes, lasting_bytes) = (base.config.memory_bytes, base.lasting_bytes());
        let budget = Budget {
            bytes: budget_bytes,
            lasting_bytes,
            queue_bytes_min: base.config.queue_bytes_min(),
            queue_bytes_max: base.queues_gauge(lasting_bytes).limit as usize,
            needed_bytes: needed,
        };
        if let Some(needed_bytes) = policy::budget_lacking(&budget) {
            return Err(RetryError::Memory { budget_bytes, needed_bytes }.into());
        }
        let queues = base.queues_gauge(lasting_bytes + base.passing_bytes());
        // A sweep reduces what must be copied, so copies never make an offer permanently too large.
        let wanted = (needed + offer.separation.queue_bytes) as u64;
        let refused = self.log_percent_refused;
        let shortage = policy::shortage(wanted, queues, base.log_gauge(), refused);
        // On full devices no sweep makes room, neither in the queues nor in the log.
        if shortage.is_some() && base.index.is_full() {
            Err(base.index.full_error())
        } else {
            Ok(shortage)
        }
    }

    /// Appends an admitted record to the log and its updates to the queues; returns its sequence.
    ///
    /// # Errors
    /// [`AppendError`] if the log refuses the record; nothing is accepted then.
    pub(super) fn append(
        &self,
        base: &mut Base,
        updates: &[LoggedUpdate<'_>],
        offer: &Offer,
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        let Base { index, journal, .. } = base;
        let targets = index.route(updates);
        if updates.len() > 1 {
            index.touch_queues(&targets);
        }
        let record_bytes = updates_len(updates.len(), offer.bytes);
        let fill = |room: &mut [u8]| fill_updates(updates, room);
        let seq = journal.append_updates(record_bytes, fill, urgency, now_us)?;
        debug_assert!(index.accepted() < seq, "sequences grow");
        index.accept_through(seq);
        index.enqueue_at(seq, updates, targets, offer.separation.queue_bytes, journal);
        base.metrics.updates_total.add(updates.len() as u64);
        Ok(seq)
    }
}

/// Checks the updates of a record, and computes their size.
///
/// # Errors
/// The problem with the first invalid update: fix the call.
pub(super) fn check(index: &Index, updates: &[LoggedUpdate<'_>]) -> Result<Offer, Error> {
    let mut offer = Offer { bytes: 0, separation: Separation::default() };
    for update in updates {
        check_update(index, update)?;
        offer.bytes += update_len(update);
        offer.separation.add(&index.separation_of(update));
    }
    Ok(offer)
}

fn check_update(index: &Index, update: &LoggedUpdate<'_>) -> Result<(), Error> {
    let (bytes, limit) = (update.key.len(), KEY_BYTES_MAX);
    if bytes > limit {
        return Err(RequestError::KeyTooLong { bytes, limit }.into());
    }
    let bytes = update.operand.len();
    if bytes > OPERAND_BYTES_MAX {
        return Err(RequestError::ValueTooLong { bytes, limit: VALUE_BYTES_MAX }.into());
    }
    let Some(space) = index.directory().space(update.space) else {
        return Err(RequestError::NoTable(format!("number {}", update.space)).into());
    };
    if space.record.snapshot != SnapshotId::NONE || update.space == REFERENCES_SPACE {
        return Err(RequestError::ReadOnly(space.record.name.clone()).into());
    }
    space.check_format()?;
    index.bindings.modifiers().admit(update.modifier, update.key, update.operand).map_err(
        |refusal| {
            let found = index.bindings.modifiers().get(update.modifier);
            let number = || format!("number {}", update.modifier.0);
            let modifier = found.map_or_else(number, |found| found.name().to_owned());
            RequestError::BadOperand { modifier, reason: refusal.into_reason() }.into()
        },
    )
}
