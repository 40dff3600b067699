//! Starts child processes, waits for them, kills them where that is the workload.
//!
//! Steps: make a cgroup; drop the store's pages from the page cache, so that every run starts cold
//! and none lives on memory that others were charged for; write the orders; start; wait; read the
//! reply.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::cgroup::Cgroup;
use crate::cell::acknowledged;
use crate::cell::spec::{Reply, Spec, Step};
use crate::failure::Failure;

/// Longest life of a child beyond the length of its run: loads, warm-up, recovery, deferred work.
/// What takes longer is no measurement any more; 16 GiB are loaded at 5 MB/s within it.
const REST_MAX: Duration = Duration::from_secs(3600);
/// Time between two looks at a child.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs one step in a child process with a limit of memory, if there is one.
///
/// # Errors
/// [`Failure`] if no child can be started; what goes wrong in the child is in the reply.
pub(crate) fn perform(spec: &mut Spec, is_limited: bool) -> Result<Reply, Failure> {
    let cgroup = if is_limited {
        let name = format!("bench-peers-{}", std::process::id());
        Some(Cgroup::create(&name, spec.memory_bytes)?)
    } else {
        None
    };
    spec.cgroup = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
    forget_pages(&spec.folder);
    let orders = spec.reply.with_extension("orders");
    let text = serde_json::to_string(spec).map_err(|error| Failure::Refused(error.to_string()))?;
    fs::write(&orders, text).map_err(|error| Failure::file(&orders, error))?;
    drop(fs::remove_file(&spec.reply));
    let program = std::env::current_exe().map_err(|error| Failure::Refused(error.to_string()))?;
    let mut child = Command::new(&program)
        .arg("child")
        .arg(&orders)
        // Heaps of their own for many threads would take several times what the engines account
        // for.
        .env("MALLOC_ARENA_MAX", "2")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| Failure::file(&program, error))?;
    if spec.step == Step::RunUntilKilled {
        kill_in_mid_run(&mut child, spec);
    }
    let ended = wait(&mut child, Duration::from_secs_f64(spec.seconds_max) + REST_MAX)?;
    let mut reply = read_reply(&spec.reply, &ended);
    if let (Ok(outcome), Some(cgroup)) = (&mut reply.outcome, &cgroup) {
        outcome.cgroup_bytes_peak = cgroup.bytes_peak();
    }
    Ok(reply)
}

/// Waits until the run has lasted its time, and kills it.
fn kill_in_mid_run(child: &mut Child, spec: &Spec) {
    let mut first = None;
    while !matches!(child.try_wait(), Ok(Some(_))) {
        if first.is_none() && acknowledged::read(&spec.acknowledged).is_some() {
            first = Some(Instant::now());
        }
        if first.is_some_and(|first| first.elapsed().as_secs_f64() >= spec.seconds) {
            // It may have ended by itself just now.
            drop(child.kill());
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// How a child ended.
struct Ended {
    status: ExitStatus,
    /// It was killed after so long.
    killed_after: Option<Duration>,
}

fn wait(child: &mut Child, life_max: Duration) -> Result<Ended, Failure> {
    let (started, mut killed_after) = (Instant::now(), None);
    loop {
        let lost = |error| Failure::Refused(format!("the child is lost: {error}"));
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Ended { status, killed_after });
        }
        if started.elapsed() > life_max && killed_after.is_none() {
            killed_after = Some(life_max);
            drop(child.kill());
        }
        thread::sleep(PAUSE);
    }
}

fn read_reply(reply: &Path, ended: &Ended) -> Reply {
    let text = fs::read_to_string(reply).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|_| {
        let outcome = match ended.killed_after {
            Some(life) => format!("killed, for it was not done after {} s", life.as_secs()),
            None => format!(
                "the process ended with {} (SIGKILL: more memory than the limit, as a rule)",
                ended.status
            ),
        };
        Reply { outcome: Err(outcome), counters: None }
    })
}

/// Writes what is dirty under a folder, and drops its pages.
fn forget_pages(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            forget_pages(&path);
        } else if let Ok(file) = File::open(&path) {
            // Both are a favour; a run on warm pages shows in the bytes that it reads.
            drop(file.sync_data());
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_takes_too_long_is_killed_and_the_reply_says_so() {
        let start = |program: &str, argument: &str| {
            Command::new(program).arg(argument).spawn().expect("it starts")
        };
        let folder = tempfile::tempdir().expect("a folder");
        let reply = folder.path().join("reply");
        let ended = wait(&mut start("sleep", "1000"), Duration::from_millis(20)).expect("it ends");
        let killed = read_reply(&reply, &ended).outcome.expect_err("there is no reply");
        assert_eq!(killed, "killed, for it was not done after 0 s");
        let ended = wait(&mut start("true", ""), Duration::from_secs(1000)).expect("it ends");
        let silent = read_reply(&reply, &ended).outcome.expect_err("there is no reply");
        assert!(silent.starts_with("the process ended with exit status: 0"), "{silent}");
    }
}
