//! What was chosen for the devices of a store, and why, for people.

use std::cmp::Ordering;

use serde::Serialize;

use super::description::Described;
use crate::device::Effort;
use crate::engine::Config;
use crate::engine::policy;

/// A setting that follows from what the devices do.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// What is chosen.
    pub name: &'static str,
    /// The setting, in bytes.
    pub bytes: u64,
    /// Why.
    pub reason: String,
}

/// A size, and the one that suits the devices.
struct Size {
    bytes: u64,
    suited_bytes: u64,
    /// What is true of that one and longer ones.
    measured: &'static str,
    /// Whether the devices have profiles.
    is_known: bool,
    /// Why it may be less than suits the devices.
    if_less: &'static str,
}

impl Size {
    fn reason(&self) -> String {
        let &Self { bytes, suited_bytes, measured, is_known, if_less } = self;
        let mut reason = match is_known {
            true => format!("{measured} with {} KiB or more, by the profile", suited_bytes >> 10),
            false => "there is no profile of the devices".to_owned(),
        };
        match bytes.cmp(&suited_bytes) {
            Ordering::Less => reason += &format!("; {if_less}, or less is set"),
            Ordering::Equal => {}
            Ordering::Greater => reason += "; there is memory for longer ones, or more is set",
        }
        reason
    }
}

/// What was chosen for an open store.
pub(super) fn choices(described: &Described, config: &Config) -> Vec<Choice> {
    let shape = described.shape();
    let suited = shape.suited;
    let is_known = |device| described.profile(device).is_some();
    let (data_is_known, log_is_known) =
        (described.data().any(is_known), described.log().any(is_known));
    let runs = Size {
        bytes: config.run_span_bytes(),
        suited_bytes: suited.run_bytes,
        measured: "reads stream beside writes",
        is_known: data_is_known,
        if_less: "there is no memory for those",
    };
    let batches = Size {
        bytes: u64::from(config.log_batch_bytes),
        suited_bytes: suited.log_batch_bytes,
        measured: "durable writes are the fastest",
        is_known: log_is_known,
        if_less: "segments of the log are short",
    };
    let scans = Size {
        bytes: u64::from(config.scan_request_bytes),
        suited_bytes: suited.scan_request_bytes,
        measured: "several reads at a time stream",
        is_known: data_is_known,
        if_less: "there is no memory for those",
    };
    let is_whole = [1.0, policy::SCAN_TRACKS].into_iter().any(|units| {
        let whole = policy::scan_units_bytes(shape.rotates, &config.boundaries, units);
        whole == Some(config.scan_request_bytes)
    });
    let scan_reason = if is_whole {
        "whole tracks or stripe units have at most so many, by the profile".to_owned()
    } else {
        scans.reason()
    };
    let (in_flight, beside) = (config.scan_requests_in_flight, config.scan_requests_beside_queries);
    let mut scan_reason = format!("{scan_reason}; {in_flight} in flight");
    let beside_bytes = config.scan_request_bytes_beside_queries;
    if beside_bytes != config.scan_request_bytes {
        scan_reason += &format!(", {beside} of {} KiB beside queries", beside_bytes >> 10);
    } else if beside != in_flight {
        scan_reason += &format!(", {beside} beside queries");
    }
    if let Some(following) = config.scan_request_bytes_following {
        scan_reason += &format!(", of {} KiB where the head is", following >> 10);
    }
    let bulk = Size {
        bytes: u64::from(config.bulk.request_bytes),
        suited_bytes: suited.bulk_request_bytes,
        measured: "reads and writes alone stream",
        is_known: data_is_known || log_is_known,
        if_less: "there is no memory for those",
    };
    let choice = |name, bytes, reason| Choice { name, bytes, reason };
    vec![
        choice("runs", runs.bytes, runs.reason()),
        choice("batches of the log", batches.bytes, batches.reason()),
        choice("requests of scans", scans.bytes, scan_reason),
        choice("recovery and loads", bulk.bytes, bulk.reason()),
    ]
}

/// How the profiles of a store were made, for people.
pub(super) fn profile_reason(described: &Described) -> String {
    let all = described.data().chain(described.log());
    let efforts: Vec<Option<Effort>> =
        all.map(|device| described.profile(device).map(|profile| profile.effort)).collect();
    if efforts.iter().all(|effort| *effort == Some(Effort::Full)) {
        "measured in full".to_owned()
    } else if efforts.iter().all(Option::is_none) {
        "none: measure the devices with `upsweep device profile`".to_owned()
    } else {
        "measured in short: `upsweep device profile` measures in full".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_what_was_measured_and_what_limits_it() {
        let reason = |bytes, is_known| {
            let measured = "reads stream";
            let if_less = "there is no memory for those";
            Size { bytes, suited_bytes: 512 << 10, measured, is_known, if_less }.reason()
        };
        let known = "reads stream with 512 KiB or more, by the profile";
        assert_eq!(reason(512 << 10, true), known);
        let less = "; there is no memory for those, or less is set";
        assert_eq!(reason(256 << 10, true), known.to_owned() + less);
        let more = "; there is memory for longer ones, or more is set";
        assert_eq!(reason(1 << 20, true), known.to_owned() + more);
        assert_eq!(reason(512 << 10, false), "there is no profile of the devices");
    }
}
