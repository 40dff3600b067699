//! `upsweep volume scrub`.

use indicatif::ProgressBar;
use serde_json::{Value, json};
use upsweep_volume::{BLOCK_BYTES, DamagedRange, ScrubPosition, SeenIn};

use super::volumes_with;
use crate::args::VolumeScrubArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Bytes that are checked between two looks at the bar and at interrupts.
const STEP_BYTES: u64 = 4 << 20;

pub(super) fn run(context: &Context, args: &VolumeScrubArgs) -> Result<(), Failure> {
    let VolumeScrubArgs { show, volume } = args;
    let volumes = match volume {
        Some(name) => Some(volumes_with(context, &show.open, name)?),
        None => context.existing_volumes(&show.open)?,
    };
    let (mut bytes, mut damaged_bytes, mut damage) = (0, 0, Vec::new());
    if let Some(volumes) = &volumes {
        // How much there is of one volume is not known.
        let total = volume.is_none().then(|| volumes.payload_bytes());
        let template = match total {
            Some(_) => "[{bar:20}] {percent:>3}%  {bytes}  {decimal_bytes_per_sec}  {elapsed}",
            None => "{spinner} {bytes}  {decimal_bytes_per_sec}  {elapsed}",
        };
        let bar = context.progress(total, template);
        let mut next = Some(ScrubPosition::default());
        while let Some(from) = next {
            let step = context
                .check()
                .and_then(|()| Ok(volumes.scrub(volume.as_deref(), from, STEP_BYTES)?))
                .inspect_err(|_| clear(bar.as_ref()))?;
            bytes += step.bytes;
            bar.iter().for_each(|bar| bar.set_position(bytes.min(total.unwrap_or(u64::MAX))));
            for range in &step.damage {
                damaged_bytes += range.bytes;
                match show.json {
                    true => damage.push(to_json(range)),
                    false => tell(context, bar.as_ref(), range)?,
                }
            }
            next = step.next;
        }
        clear(bar.as_ref());
    }
    if show.json {
        context.json(&json!({"bytes": bytes, "damage": damage}))?;
    } else if volumes.is_none() {
        context.line("there are no volumes")?;
    } else {
        context.line(&summary(bytes, damaged_bytes))?;
    }
    if damaged_bytes == 0 { Ok(()) } else { Err(Failure::Damage(None)) }
}

fn clear(bar: Option<&ProgressBar>) {
    bar.iter().for_each(|bar| bar.finish_and_clear());
}

fn tell(context: &Context, bar: Option<&ProgressBar>, range: &DamagedRange) -> Result<(), Failure> {
    let line = || context.line(&format!("damage: {range}"));
    bar.map_or_else(line, |bar| bar.suspend(line))
}

/// What was found, in a line.
pub(crate) fn summary(bytes: u64, damaged_bytes: u64) -> String {
    let found = match damaged_bytes / BLOCK_BYTES {
        0 => "no damage".to_owned(),
        blocks => format!("{} damaged", text::counted(blocks, "block")),
    };
    format!("{} of volumes: {found}", text::size(bytes))
}

pub(crate) fn to_json(range: &DamagedRange) -> Value {
    let (device, device_offset) = range.location.map(|at| (at.device.0, at.offset)).unzip();
    let seen_in = |seen_in: &SeenIn| {
        let snapshot = match seen_in {
            SeenIn::Snapshot { snapshot, .. } => Some(snapshot),
            _ => None,
        };
        let is_past = matches!(seen_in, SeenIn::History(_));
        json!({"volume": seen_in.volume(), "snapshot": snapshot, "in_history_only": is_past})
    };
    json!({
        "seen_in": range.seen_in.iter().map(seen_in).collect::<Vec<_>>(),
        "offset": range.offset,
        "bytes": range.bytes,
        "device": device,
        "device_offset": device_offset,
        "reason": range.fault.to_string(),
    })
}
