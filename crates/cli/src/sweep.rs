//! `upsweep sweep`: commits all that waits to the data devices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use upsweep::Store;

use crate::args::ShowArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, text};

pub(crate) fn run(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let store = context.open_for_upkeep(&args.open)?;
    let before = store.status().metrics;
    let started = Instant::now();
    sweep_with_progress(context, &store)?;
    let seconds = started.elapsed().as_secs_f64();
    let status = store.status();
    let (metrics, held) = (status.metrics, status.held_blocks);
    // A server has swept before.
    let read_bytes = metrics.sweep_read_bytes_total - before.sweep_read_bytes_total;
    let written_bytes = metrics.sweep_written_bytes_total - before.sweep_written_bytes_total;
    let entries = metrics.swept_entries_total - before.swept_entries_total;
    let blocks = metrics.swept_blocks_total - before.swept_blocks_total;
    if args.json {
        return context.json(&json!({
            "seconds": seconds,
            "read_bytes": read_bytes,
            "written_bytes": written_bytes,
            "batching_degree": entries as f64 / blocks.max(1) as f64,
            "held_blocks": held,
        }));
    }
    context.line(&format!(
        "swept in {seconds:.2} s: {} read, {} written",
        text::size(read_bytes),
        text::size(written_bytes)
    ))?;
    if held > 0 {
        context.line(&format!(
            "not swept: {}, with waiting updates of unregistered modifiers",
            text::counted(held, "block")
        ))?;
    }
    Ok(())
}

/// Sweeps, with a bar on a terminal.
fn sweep_with_progress(context: &Context, store: &Store) -> Result<(), Failure> {
    let Some(bar) = context.progress(Some(1000), "sweep [{bar:40}] {percent}% {elapsed}") else {
        return Ok(store.sweep()?);
    };
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let progress = store.status().sweep.progress.unwrap_or(0.0);
                bar.set_position((progress * 1000.0) as u64);
                std::thread::park_timeout(output::PROGRESS_EVERY);
            }
        });
        let result = store.sweep();
        done.store(true, Ordering::Relaxed);
        result
    });
    bar.finish_and_clear();
    Ok(result?)
}
