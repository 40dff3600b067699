//! Callers that were refused, and the notification that there may be room for them.
//!
//! Invariant: from a refusal to the next notification there is a shortage, and everything that can
//! relieve it works at full speed. So nothing rests while a caller waits.

use super::policy::Shortage;
use crate::broken::{self, Fault};

/// The callers that wait outside.
#[derive(Default)]
pub(super) struct Waiters {
    /// What the last refused update was refused for, until callers are notified that there may be
    /// room.
    refused: Option<Shortage>,
    /// An update had to wait for the pipeline of the log.
    for_pipeline: bool,
    /// An update was refused because of the fill of the log.
    for_log_fill: bool,
    /// The last notification has not been passed on yet.
    has_news: bool,
}

impl Waiters {
    /// A caller waits, whatever the fill: a long record may not fit although the thresholds at
    /// which sweeps, spills and checkpoints start by themselves are far away.
    pub(super) fn refuse(&mut self, shortage: Shortage) {
        self.refused = Some(shortage);
    }

    /// It was for the fill of the log that a caller was refused: whenever that is low enough, there
    /// is room.
    pub(super) fn refuse_for_log_fill(&mut self) {
        self.for_log_fill = true;
    }

    /// A caller waits until the next log batch is on its way, which needs no help.
    pub(super) fn refuse_for_pipeline(&mut self) {
        self.for_pipeline = true;
    }

    /// There may be room, or a reason for permanent refusal: waiting callers should retry.
    pub(super) fn tell(&mut self) {
        self.refused = None;
        self.for_log_fill = false;
        self.has_news = true;
    }

    /// Whether callers were refused because of the fill of the log, and not notified since.
    pub(super) fn wait_for_log_fill(&self) -> bool {
        self.for_log_fill
    }

    /// The pipeline of the log has moved.
    pub(super) fn pipeline_moved(&mut self) {
        if std::mem::take(&mut self.for_pipeline) {
            self.tell();
        }
    }

    /// What the callers wait for that were refused and not yet notified.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        self.refused.filter(|_| !broken::is(Fault::RestWhileOneWaits))
    }

    /// Returns once whether there is a notification to pass on.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_shortage_from_a_refusal_to_the_next_news() {
        let mut waiters = Waiters::default();
        assert_eq!(waiters.shortage(), None);
        waiters.refuse(Shortage::Log);
        waiters.refuse(Shortage::Memory);
        assert_eq!(waiters.shortage(), Some(Shortage::Memory));
        assert!(!waiters.take_news(), "nothing has happened");
        waiters.tell();
        assert_eq!(waiters.shortage(), None);
        assert!(waiters.take_news());
        assert!(!waiters.take_news(), "it was passed on");
    }

    #[test]
    fn callers_wait_for_the_fill_of_the_log_if_that_refused_them_and_until_the_next_news() {
        let mut waiters = Waiters::default();
        waiters.refuse(Shortage::Log);
        assert!(!waiters.wait_for_log_fill(), "its record has no room even so");
        waiters.refuse_for_log_fill();
        assert!(waiters.wait_for_log_fill());
        waiters.tell();
        assert!(!waiters.wait_for_log_fill());
    }

    #[test]
    fn a_batch_on_its_way_is_news_for_those_alone_who_wait_for_the_pipeline() {
        let mut waiters = Waiters::default();
        waiters.pipeline_moved();
        assert!(!waiters.take_news());
        waiters.refuse_for_pipeline();
        assert_eq!(waiters.shortage(), None, "the batch needs no help");
        waiters.pipeline_moved();
        assert!(waiters.take_news());
        waiters.pipeline_moved();
        assert!(!waiters.take_news());
    }
}
