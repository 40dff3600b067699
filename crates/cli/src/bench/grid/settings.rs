//! The settings of a point of the grid.

use serde::Serialize;
use upsweep::OpenOptions;

use super::Goal;
use crate::args::GridArgs;
use crate::text;

/// Settings by hand; what is not set is as the store chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Settings {
    /// Blocks of a run.
    pub(super) run_blocks: Option<usize>,
    /// Bytes of a batch of the log.
    pub(super) log_batch_bytes: Option<u32>,
    /// Bytes of a request of a scan.
    pub(super) scan_request_bytes: Option<u32>,
    /// Requests of a scan in flight.
    pub(super) scan_requests: Option<usize>,
}

impl Settings {
    /// What the store chooses.
    pub(super) const CHOSEN: Self = Self {
        run_blocks: None,
        log_batch_bytes: None,
        scan_request_bytes: None,
        scan_requests: None,
    };

    /// What these settings may change.
    pub(super) fn goals(&self) -> &'static [Goal] {
        if *self == Self::CHOSEN {
            &Goal::ALL
        } else if self.run_blocks.is_some() {
            const { &[Goal::Updates, Goal::ScanBesideUpdates] }
        } else {
            const { &[Goal::ScanBesideUpdates, Goal::QueriesBesideScan] }
        }
    }

    /// The options of a store with these settings.
    pub(super) fn apply(&self, mut options: OpenOptions) -> OpenOptions {
        options.run_blocks_max = self.run_blocks;
        options.log_batch_bytes = self.log_batch_bytes;
        options.scan_request_bytes = self.scan_request_bytes;
        options.scan_requests_in_flight = self.scan_requests;
        options
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        let size = |bytes: u32| text::size(u64::from(bytes));
        let parts = [
            self.run_blocks.map(|blocks| format!("runs of {blocks} blocks")),
            self.log_batch_bytes.map(|bytes| format!("batches of {}", size(bytes))),
            self.scan_request_bytes.map(|bytes| format!("scan requests of {}", size(bytes))),
            self.scan_requests.map(|requests| format!("{requests} at a time")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "as chosen".to_owned() } else { parts.join(", ") }
    }
}

/// The choice of the store, and the points of both planes.
pub(super) fn grid(args: &GridArgs) -> Vec<Settings> {
    // What is too long for its type is refused as what is too long.
    let bytes = |size: &text::Size| Some(u32::try_from(size.0).unwrap_or(u32::MAX));
    let of_updates = args.runs.iter().flat_map(|blocks| {
        args.batches.iter().map(move |batch| Settings {
            run_blocks: Some(*blocks),
            log_batch_bytes: bytes(batch),
            ..Settings::CHOSEN
        })
    });
    let of_scans = args.request_sizes.iter().flat_map(|size| {
        args.requests.iter().map(move |requests| Settings {
            scan_request_bytes: bytes(size),
            scan_requests: Some(*requests),
            ..Settings::CHOSEN
        })
    });
    std::iter::once(Settings::CHOSEN).chain(of_updates).chain(of_scans).collect()
}
