//! `upsweep volume set`: the settings of a volume for those who serve it.

use serde_json::{Value, json};
use upsweep_volume::VolumeSettings;

use super::volumes_with;
use crate::args::{Allowed, Limited, VolumeSetArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

pub(super) fn set(context: &Context, args: &VolumeSetArgs) -> Result<(), Failure> {
    let VolumeSetArgs { volume, iops, bytes_per_second, quota, allow, read_only, .. } = args;
    let volumes = volumes_with(context, &args.open, volume)?;
    let settings = volumes.change_settings(volume, |settings| {
        let rate = |Limited(rate): &Limited| rate.map(|rate| rate.0);
        if let Some(iops) = iops {
            settings.requests_per_second = rate(iops);
        }
        if let Some(bytes) = bytes_per_second {
            settings.bytes_per_second = rate(bytes);
        }
        if let Some(quota) = quota {
            settings.quota_bytes = rate(quota);
        }
        if !allow.is_empty() {
            // Whoever is allowed beside all is one of them.
            let are_all = allow.iter().any(|Allowed(clients)| clients.is_empty());
            let clients = allow.iter().filter(|_| !are_all).flat_map(|Allowed(of)| of.clone());
            settings.clients = clients.collect();
        }
        settings.read_only = read_only.unwrap_or(settings.read_only);
    })?;
    let shown = match shown(&settings) {
        none if none.is_empty() && settings.read_only => "read-only".to_owned(),
        none if none.is_empty() => "no limits, for all clients".to_owned(),
        some if settings.read_only => format!("{some}, read-only"),
        some => some,
    };
    context.line(&format!("volume {volume:?}: {shown}"))
}

/// Limits and clients for people; empty if there are none.
pub(super) fn shown(settings: &VolumeSettings) -> String {
    let requests =
        settings.requests_per_second.map(|rate| format!("{}/s", text::count(rate.get())));
    let bytes = settings.bytes_per_second.map(|rate| format!("{}/s", text::size(rate.get())));
    let quota = settings.quota_bytes.map(|bytes| format!("quota {}", text::size(bytes.get())));
    let clients = settings.clients.join(",");
    let clients = (!clients.is_empty()).then(|| format!("for {clients}"));
    requests.into_iter().chain(bytes).chain(quota).chain(clients).collect::<Vec<_>>().join(", ")
}

pub(super) fn to_json(settings: &VolumeSettings) -> Value {
    json!({
        "iops": settings.requests_per_second,
        "bytes_per_second": settings.bytes_per_second,
        "quota_bytes": settings.quota_bytes,
        // Null: all.
        "allow": (!settings.clients.is_empty()).then_some(&settings.clients),
        "read_only": settings.read_only,
    })
}
