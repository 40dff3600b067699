//! Callers who were refused, and the news that there may be room for them.
//!
//! Invariant: from a refusal to the next news there is a shortage, and whatever can help works at
//! full speed. So nobody rests while somebody waits.

use super::policy::Shortage;

/// Who waits outside.
#[derive(Default)]
pub(super) struct Waiters {
    /// What the last refused update was refused for, until somebody is told that there may be room.
    refused: Option<Shortage>,
    /// An update had to wait for the pipeline of the log.
    for_pipeline: bool,
    /// How often there was news.
    events: u64,
}

impl Waiters {
    /// Somebody waits, whatever the fill: a long record may not fit though the thresholds at which
    /// sweeps, spills and checkpoints start by themselves are far.
    pub(super) fn refuse(&mut self, shortage: Shortage) {
        self.refused = Some(shortage);
    }

    /// Somebody waits until a batch of the log has ended, which it will by itself.
    pub(super) fn refuse_for_pipeline(&mut self) {
        self.for_pipeline = true;
    }

    /// There may be room, or a reason to refuse for good: whoever waits is to ask again.
    pub(super) fn tell(&mut self) {
        self.refused = None;
        self.events += 1;
    }

    /// The pipeline of the log has moved.
    pub(super) fn pipeline_moved(&mut self) {
        if std::mem::take(&mut self.for_pipeline) {
            self.tell();
        }
    }

    /// What somebody waits for who was refused and not told since that there may be room.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        self.refused.filter(|_| !cfg!(feature = "broken-rest"))
    }

    /// Changes with every news.
    pub(super) fn events(&self) -> u64 {
        self.events
    }
}
