//! The memory of the program beside its budget.

use std::fmt::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::common::World;

/// The most memory that a process had resident until it ended, in MiB, as last seen every
/// millisecond. The system keeps the peak, so that no rise before that is missed.
fn peak_mib(process: &mut Child) -> u64 {
    let path = format!("/proc/{}/status", process.id());
    let mut peak = 0;
    while process.try_wait().expect("a child").is_none() {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) / 1024);
        std::thread::sleep(Duration::from_millis(1));
    }
    peak
}

/// Applies `lines` with this budget in MiB, then sweeps, and returns the peak of each in MiB.
fn peaks_mib(world: &World, lines: &str, budget: u64) -> (u64, u64) {
    let file = world.file("in.tsv", lines);
    let budget = format!("{budget}MiB");
    let run = |command: &str, arguments: &[&str]| {
        let mut command = world.command(command, arguments);
        let mut process = command.stdout(Stdio::null()).spawn().expect("the program runs");
        let peak = peak_mib(&mut process);
        assert!(process.wait().expect("a child").success());
        peak
    };
    let applied = run("apply", &[&file, "--memory", &budget]);
    (applied, run("sweep", &["--memory", &budget]))
}

#[test]
fn large_values_stay_near_the_budget() {
    // With 48 MiB, much waits for the only block of a new table.
    for (budget, count, bytes) in [(16, 1000, 100_000), (16, 100, 1_040_000), (48, 300, 1_040_000)]
    {
        let world = World::empty();
        let made = world.run("create", &["--log-size", "64MiB"]);
        assert_eq!(made.status, Some(0), "{}", made.errors);
        let value = "v".repeat(bytes);
        let mut puts = String::new();
        let mut appends = String::new();
        for key in 0..count {
            writeln!(puts, "put\tkey{key:06}\t{value}").expect("a string takes all");
            writeln!(appends, "append\tkey{key:06}\tmore").expect("a string takes all");
        }
        let (putting, swept) = peaks_mib(&world, &puts, budget);
        let (appending, swept_again) = peaks_mib(&world, &appends, budget);
        for peak in [putting, swept, appending, swept_again] {
            let most = budget + 20;
            assert!(peak <= most, "{peak} of {most} MiB with {count} of {bytes} bytes");
        }
        assert_eq!(world.ok("get", &["key000042"]).trim(), format!("{value}more"));
        world.ok("verify", &[]);
    }
}
