//! The solid-state devices in `drives/solid-state/`: each is complete, and the model meets what is
//! published of it.

mod support;

use std::path::{Path, PathBuf};

use upsweep::layers::device::solid_state::{
    Demand, FillOrder, SolidState, SolidStateDescription, Start,
};

use support::lab;

const IDS: [&str; 4] = ["d7-p5500-8tb", "dc-p4500-2tb", "dc-s3700-200gb", "jmf612-slc-64gb"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drives/solid-state")
}

fn text(id: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{id}.toml"))).expect("it exists")
}

fn device(id: &str) -> SolidStateDescription {
    toml::from_str(&text(id)).expect("it is a description")
}

/// The keys of the values that must have a source.
fn values(id: &str) -> Vec<String> {
    let file: toml::Table = toml::from_str(&text(id)).expect("it is a table");
    let mut keys = Vec::new();
    for (section, value) in file.iter().filter(|(section, _)| *section != "source") {
        let inner = value.as_table().into_iter().flat_map(toml::Table::keys);
        keys.extend(inner.map(|key| format!("{section}.{key}")));
    }
    keys
}

#[test]
fn every_device_is_complete_and_says_where_its_values_come_from() {
    let files = std::fs::read_dir(folder()).expect("the folder exists");
    let names = files.map(|file| file.expect("it can be listed").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut ids: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
    ids.sort();
    assert_eq!(ids, IDS);
    for id in IDS {
        let device = device(id);
        assert_eq!((device.check(), device.id.as_str()), (Ok(()), id));
        for value in values(id) {
            let is_covered = |key: &str| {
                value.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            assert!(device.source.keys().any(|key| is_covered(key)), "{id}: {value}");
        }
        for (key, source) in &device.source {
            let is_own = ["derived:", "estimated"].iter().any(|word| source.from.starts_with(word));
            assert_eq!(source.sourced, !is_own, "{id}: {key}");
        }
    }
}

/// Serves commands, `depth` at a time; returns the mean time of one, in microseconds, when the
/// first `warm_up` are not counted.
fn interval_us(
    device: &mut SolidState,
    depth: usize,
    warm_up: usize,
    demands: impl Iterator<Item = Demand>,
) -> f64 {
    let mut demands = demands;
    let (mut now_ns, mut completed) = (0, Vec::new());
    let (mut arrivals, mut in_progress, mut done) = (depth, 0, 0);
    let mut begin = (0, 0);
    loop {
        for demand in demands.by_ref().take(arrivals) {
            device.arrive(0, demand, now_ns);
            in_progress += 1;
        }
        // The end, when fewer and fewer are in progress, is not counted.
        if in_progress < depth {
            return (now_ns - begin.1) as f64 / f64::from(done - begin.0) / 1e3;
        }
        completed.clear();
        while completed.is_empty() {
            now_ns = device.next_ns().expect("a command is in progress");
            device.advance(now_ns, &mut completed);
        }
        arrivals = completed.len();
        in_progress -= arrivals;
        done += arrivals as u32;
        if done as usize <= warm_up {
            begin = (done, now_ns);
        }
    }
}

/// Offsets in the capacity, pseudo-random multiples of `bytes`.
fn random(bytes: u64, capacity: u64) -> impl Iterator<Item = u64> {
    let numbers = std::iter::successors(Some(1_u64), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    });
    // The high bits are the random ones.
    numbers.map(move |number| (number >> 24) % (capacity / bytes) * bytes)
}

/// What the model gives for a published figure.
fn measure(description: &SolidStateDescription, key: &str) -> f64 {
    let mut description = description.clone();
    let full = |order| Start { filled_percent: 100, order };
    let begins_full = key.contains("read") || key.contains("steady");
    if begins_full {
        let is_steady = key.contains("steady");
        let order = if is_steady { FillOrder::Random } else { FillOrder::Sequential };
        description.start = full(order);
    }
    let mut device = SolidState::new(&description);
    // What a device that begins full holds.
    let capacity = description.capacity.bytes / 100 * 99;
    let read = |bytes| move |offset| Demand::Read { offset, bytes };
    let write = |bytes, stable| move |offset| Demand::Write { offset, bytes, stable };
    let in_sequence = |bytes: u64| (0..).map(move |number| number * bytes);
    let large = 131_072;
    match key {
        "random_read_latency_us" => {
            let reads = random(4096, capacity).map(read(4096)).take(2_000);
            interval_us(&mut device, 1, 10, reads)
        }
        "random_write_latency_us" => {
            let writes = random(4096, capacity).map(write(4096, false)).take(2_000);
            interval_us(&mut device, 1, 10, writes)
        }
        "random_read_iops_depth_32" | "random_read_iops_depth_256" => {
            let depth = if key.ends_with("256") { 256 } else { 32 };
            let reads = random(4096, capacity).map(read(4096)).take(40_000);
            1e6 / interval_us(&mut device, depth, 1000, reads)
        }
        "random_write_iops_steady_depth_32" | "random_write_iops_steady_depth_256" => {
            let depth = if key.ends_with("256") { 256 } else { 32 };
            let writes = random(4096, capacity).map(write(4096, false)).take(200_000);
            1e6 / interval_us(&mut device, depth, 50_000, writes)
        }
        "sequential_read_mb_s" => {
            let reads = in_sequence(large).map(read(large)).take(4_000);
            large as f64 / interval_us(&mut device, 32, 100, reads)
        }
        "sequential_write_mb_s" => {
            let writes = in_sequence(large).map(write(large, false)).take(8_000);
            large as f64 / interval_us(&mut device, 32, 1000, writes)
        }
        _ => {
            let bytes = key.strip_prefix("stable_write_").and_then(|key| key.strip_suffix("_us"));
            let bytes = bytes.and_then(|bytes| bytes.parse().ok()).expect("a figure of this test");
            let writes = in_sequence(bytes).map(write(bytes, true)).take(2_000);
            interval_us(&mut device, 1, 10, writes)
        }
    }
}

#[test]
fn the_model_meets_what_is_published() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for id in IDS {
        let device = device(id);
        for (key, published) in &device.datasheet {
            let model = measure(&device, key);
            compared += 1;
            if !(0.95..=1.05).contains(&(model / published)) {
                wrong.push(format!("{id}, {key}: {model}, published {published}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(compared, 18);
}

#[test]
fn the_program_serves_a_trace() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let trace = temporary.path().join("trace.csv");
    let lines = "arrival_us,op,lbn,sectors\n500,write,8,8\n0,read,0,8\n2000,read,8,8\n";
    std::fs::write(&trace, lines).expect("it can be written");
    let device = folder().join("dc-s3700-200gb.toml").display().to_string();
    let trace = trace.display().to_string();
    // The controller, the interface and the rest of the overheads; nothing needs flash.
    let (succeeded, printed, problem) = lab(&["solid-state", &device, &trace]);
    assert!(succeeded, "{problem}");
    let one = "index,arrival_us,completion_us\n0,500.000,526.411\n1,0.000,26.411\n";
    assert_eq!(printed, format!("{one}2,2000.000,2026.411\n"));
    // One after another, and both at once.
    let (_, printed, _) = lab(&["solid-state", &device, &trace, "--closed-loop"]);
    assert!(printed.ends_with("1,26.411,52.822\n2,52.822,79.233\n"), "{printed}");
    let (_, printed, _) = lab(&["solid-state", &device, &trace, "--closed-loop", "--queue", "2"]);
    assert!(printed.ends_with("1,0.000,39.711\n2,26.411,53.011\n"), "{printed}");
    let (succeeded, _, problem) = lab(&["solid-state", "none.toml", &trace]);
    assert!(!succeeded && problem.contains("none.toml"), "{problem}");
}
