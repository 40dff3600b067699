//! What was chosen for the devices of a store, and why, for people.

use serde::Serialize;

use super::description::Described;
use crate::device::Effort;
use crate::engine::Config;

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

/// What was chosen for an open store.
pub(super) fn choices(described: &Described, config: &Config) -> Vec<Choice> {
    let suited = described.shape().suited;
    let knows = |mut devices: Box<dyn Iterator<Item = _>>| {
        devices.any(|device| described.profile(device).is_some())
    };
    let because = |knows: bool, measured: &str, bytes: u64| match knows {
        true => format!("{measured} with {} KiB or more, by the profile", bytes >> 10),
        false => "there is no profile of the devices".to_owned(),
    };
    let run = config.run_span_bytes();
    let beyond = match run {
        run if run > suited.run_bytes => "; there is memory for longer ones",
        run if run < suited.run_bytes => "; there is no memory for those, or another length is set",
        _ => "",
    };
    let measured = "reads stream beside writes";
    let of_run = because(knows(Box::new(described.data())), measured, suited.run_bytes) + beyond;
    let batch = u64::from(config.log_batch_bytes);
    let beyond =
        if batch < suited.log_batch_bytes { "; segments of the log are short" } else { "" };
    let measured = "durable writes are the fastest";
    let of_log =
        because(knows(Box::new(described.log())), measured, suited.log_batch_bytes) + beyond;
    vec![
        Choice { name: "runs", bytes: run, reason: of_run },
        Choice { name: "batches of the log", bytes: batch, reason: of_log },
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
