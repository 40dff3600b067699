//! What the device does without any engine, by fio past the page cache, on one file of the folder
//! that is measured.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::failure::Failure;
use crate::outcome::Reference;

/// Runs fio for about four times so many seconds, on a file of this size.
///
/// # Errors
/// [`Failure::Refused`] if fio is missing or fails.
pub(crate) fn measure(folder: &Path, file_bytes: u64, seconds: f64) -> Result<Reference, Failure> {
    let file = folder.join("fio");
    let runtime = format!("--runtime={}", seconds.ceil());
    let run = |arguments: &[&str]| fio(&file, file_bytes, arguments);
    run(&["--name=lay-out", "--rw=write", "--bs=1M"])?;
    let timed = ["--time_based", "--randrepeat=0", "--refill_buffers", runtime.as_str()];
    let measured = |arguments: &[&str]| run(&[arguments, &timed].concat());
    let write = measured(&["--name=write", "--rw=write", "--bs=1M", "--iodepth=8"])?;
    let read = measured(&["--name=read", "--rw=read", "--bs=1M", "--iodepth=8"])?;
    let pairs =
        measured(&["--name=pairs", "--rw=randrw", "--rwmixread=50", "--bs=4k", "--iodepth=32"])?;
    let sync = measured(&[
        "--name=sync",
        "--rw=write",
        "--bs=4k",
        "--iodepth=1",
        "--sync=dsync",
        "--lat_percentiles=1",
    ])?;
    std::fs::remove_file(&file).map_err(|error| Failure::file(&file, error))?;
    let number = |of: &Value, path: &str| of.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let percentile = |name: &str| number(&sync, &format!("/write/lat_ns/percentile/{name}")) / 1e3;
    Ok(Reference {
        read_bytes_per_second: number(&read, "/read/bw_bytes"),
        write_bytes_per_second: number(&write, "/write/bw_bytes"),
        pairs_per_second: number(&pairs, "/read/iops").min(number(&pairs, "/write/iops")),
        syncs_per_second: number(&sync, "/write/iops"),
        sync_p50_us: percentile("50.000000"),
        sync_p99_us: percentile("99.000000"),
    })
}

/// One job of fio; what it says of it.
fn fio(file: &Path, bytes: u64, arguments: &[&str]) -> Result<Value, Failure> {
    let engine = std::env::var("FIO_ENGINE").unwrap_or_else(|_| "io_uring".to_owned());
    let output = Command::new("fio")
        .args(arguments)
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={bytes}"))
        .arg(format!("--ioengine={engine}"))
        .args(["--direct=1", "--output-format=json"])
        .output()
        .map_err(|error| Failure::Refused(format!("fio cannot be run: {error}; install it")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Notes of fio may stand in front of the JSON.
    let start = text.find('{').unwrap_or(0);
    let parsed: Option<Value> = serde_json::from_str(&text[start..]).ok();
    parsed
        .and_then(|all| all.pointer("/jobs/0").cloned())
        .filter(|_| output.status.success())
        .ok_or_else(|| {
            Failure::Refused(format!("fio failed: {}", String::from_utf8_lossy(&output.stderr)))
        })
}
