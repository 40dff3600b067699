//! Crashes, damage, a store in use, and readers that go away.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use super::common::{World, refused};

#[test]
fn a_killed_apply_leaves_a_first_part_of_the_input() {
    let world = World::new();
    let lines: String =
        (1..=300_000).map(|n| format!("max\tline\t{n}\nadd\tsum{}\t{n}\n", n % 100)).collect();
    let file = world.file("in.tsv", &lines);
    let mut process = world
        .command("apply", &[&file, "--ack-every", "1000", "--memory", "8MiB"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("readable");
    std::thread::sleep(Duration::from_millis(100));
    process.kill().expect("killed");
    output.read_to_string(&mut line).expect("readable");
    process.wait().expect("ended");
    let mut durable = line.lines().filter_map(|line| line.strip_prefix("durable "));
    let durable: i64 = durable.next_back().expect("a count").parse().expect("a number");
    world.ok("verify", &[]);
    let last: i64 = world.ok("get", &["line"]).trim().parse().expect("a number");
    let sums = world.ok("scan", &["--prefix", "sum"]);
    let value = |line: &str| line.split('\t').nth(1).expect("a value").parse::<i64>();
    let sum: i64 = sums.lines().map(|line| value(line).expect("a number")).sum();
    let whole = last * (last + 1) / 2;
    // The last pair may be there in half.
    assert!(sum == whole || sum == whole - last, "{sum} at {last}");
    let there = if sum == whole { 2 * last } else { 2 * last - 1 };
    assert!(there >= durable, "{there} lines are there, {durable} were durable");
}

/// An `apply` that has added 1 to `k` and waits for more; its input, its output, and what it said.
fn waiting_apply(world: &World) -> (Child, ChildStdin, BufReader<ChildStdout>, String) {
    let mut process = world
        .command("apply", &["--ack-every", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = process.stdin.take().expect("a pipe");
    input.write_all(b"add\tk\t1\n").expect("written");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut said = String::new();
    output.read_line(&mut said).expect("readable");
    (process, input, output, said)
}

#[test]
fn a_store_in_use_says_by_whom() {
    let world = World::new();
    let (mut process, input, _output, _) = waiting_apply(&world);
    let run = world.run("get", &["k"]);
    assert_eq!(run.status, Some(2));
    let by_whom = format!("is in use by process {}", process.id());
    assert!(run.errors.contains(&by_whom), "{}", run.errors);
    drop(input);
    assert_eq!(process.wait().expect("ends").code(), Some(0));
    assert_eq!(world.ok("get", &["k"]), "1\n");
}

#[test]
fn an_interrupted_apply_says_how_far_it_has_come() {
    let world = World::new();
    let (mut process, input, mut output, mut said) = waiting_apply(&world);
    let number = process.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &number]).status();
    assert!(killed.expect("kill runs").success());
    output.read_to_string(&mut said).expect("readable");
    assert_eq!(process.wait().expect("ends").code(), Some(130));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("durable 1"));
    let summary = lines.next().expect("a summary");
    let is_whole =
        summary.starts_with("applied 1 update in") && summary.ends_with("all are durable");
    assert!(is_whole, "{summary}");
    drop(input);
    assert_eq!(world.ok("get", &["k"]), "1\n");
}

#[test]
fn damage_is_found_and_named() {
    let world = World::new();
    let lines: String = (0..5000).map(|n| format!("put\tkey{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    world.ok("sweep", &[]);
    world.ok("verify", &[]);
    let path = world.store().join("data-0");
    let content = std::fs::read(&path).expect("readable");
    let at = content.windows(8).position(|bytes| bytes == b"value123").expect("there");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("writable");
    file.write_all_at(b"VALUE", at as u64).expect("written");
    let run = world.run("verify", &[]);
    assert_eq!(run.status, Some(1), "{}", run.errors);
    let damage = run.out.lines().next().expect("a line");
    for part in ["damage: block \"", "of space ", " at offset "] {
        assert!(damage.contains(part), "{part:?} not in {damage:?}");
    }
    let json = world.run("verify", &["--json"]);
    let found: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(found["damage"].as_array().expect("a list").len(), 1);
    let read = world.run("get", &["key00123"]);
    assert_eq!(read.status, Some(1));
    assert!(read.errors.contains("damaged: "), "{}", read.errors);
    assert!(world.ok("get", &["key04999"]).contains("value4999"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let lines: String = (0..50_000).map(|n| format!("put\tkey{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    let mut process = world
        .command("scan", &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("readable");
    drop(output);
    let run = process.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&run.stderr), "");
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(line, "key00000\tvalue0\n");
}

#[test]
fn a_description_that_is_no_file_is_refused() {
    let world = World::new();
    let description = world.store().join("store.json");
    std::fs::remove_file(&description).expect("removed");
    // A pipe that nobody writes to: reading it would never end.
    let made = std::process::Command::new("mkfifo").arg(&description).status().expect("runs");
    assert!(made.success());
    for command in ["verify", "stat"] {
        let mut process = world.command(command, &[]).stderr(Stdio::piped()).spawn().expect("runs");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while process.try_wait().expect("observable").is_none() {
            if std::time::Instant::now() > deadline {
                process.kill().expect("killed");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let run = process.wait_with_output().expect("ended").into();
        refused(&run, "store.json: not a regular file");
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_not_called_absent() {
    let world = World::empty();
    // As with a missing permission, which tests that root runs cannot meet: the system refuses to
    // say what is there.
    std::os::unix::fs::symlink("store", world.store()).expect("made");
    let run = world.run("stat", &[]);
    refused(&run, "store.json: Too many levels of symbolic links");
}

#[test]
fn a_damaged_description_is_restored_from_a_label() {
    let world = World::new();
    assert_eq!(world.apply("put\tk\tv\n", &[]).status, Some(0));
    let said = world.ok("repair", &[]);
    assert_eq!(said, "store.json matches the label of the device\n");
    let description = world.store().join("store.json");
    let whole = std::fs::read(&description).expect("readable");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&description, bytes).expect("written");
    };
    // Somewhere in a number, and where it is no JSON any more.
    let number = whole.windows(4).position(|bytes| bytes == b"4096").expect("the block size");
    for at in [0, number] {
        flipped(at);
        let run = world.run("get", &["k"]);
        assert!(run.errors.contains("a repair restores"), "{}", run.errors);
        assert!(world.ok("repair", &[]).starts_with("restored store.json"));
        assert_eq!(world.ok("get", &["k"]), "v\n");
    }
    std::fs::remove_file(&description).expect("removed");
    world.ok("repair", &["--device", &world.store().join("log-0").display().to_string()]);
    assert_eq!(world.ok("get", &["k"]), "v\n");
    refused(&world.run("repair", &["--device", "/dev/null"]), "name another device of the store");
}

#[test]
fn a_copy_of_a_folder_is_noticed() {
    let world = World::new();
    assert_eq!(world.apply("put\tk\tv\n", &[]).status, Some(0));
    let notice = "a copy, or moved here";
    assert!(!world.ok("stat", &[]).contains(notice));
    let original = world.path("original");
    std::fs::rename(world.store(), &original).expect("renamed");
    std::fs::create_dir(world.store()).expect("made");
    for entry in std::fs::read_dir(&original).expect("readable") {
        let from = entry.expect("readable").path();
        let to = world.store().join(from.file_name().expect("a name"));
        std::fs::copy(from, to).expect("copied");
    }
    assert!(world.ok("stat", &[]).contains(notice));
    // It has a history of its own from here on.
    assert_eq!(world.apply("put\tk\tw\n", &[]).status, Some(0));
    assert!(!world.ok("stat", &[]).contains(notice));
    assert_eq!(world.ok("get", &["k"]), "w\n");
}
