//! `dump` and `load`: equal tables, and all or nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use upsweep::layers::structures::modifiers::{PUT, value_operand};
use upsweep::{Store, Value, ValueKind};

use super::common::{Run, World, refused, text, upsweep};

type Content = BTreeMap<Vec<u8>, Value>;

/// Awkward bytes, every kind, a value of the largest length, and many small ones.
fn content() -> Content {
    let bytes = |bytes: &[u8]| Value { kind: ValueKind::Bytes, bytes: bytes.to_vec() };
    let number = |kind, bytes: [u8; 8]| Value { kind, bytes: bytes.to_vec() };
    let all: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> =
        (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let texts =
        [&b""[..], b"\t", b"\n\r", b"\\x41", b"\"{}\"", "ü\u{2028}".as_bytes(), b"\xff", &all];
    let floats = [-0.0, 0.1, 1e300, 5e-324, f64::MIN, f64::INFINITY, f64::NEG_INFINITY];
    let floats = floats.map(|float| number(ValueKind::F64, float.to_le_bytes()));
    let signed = [0, -1, i64::MIN, i64::MAX].map(|n| number(ValueKind::I64, n.to_le_bytes()));
    let unsigned = [0, u64::MAX].map(|n| number(ValueKind::U64, n.to_le_bytes()));
    let awkward = floats.into_iter().chain(signed).chain(unsigned).chain(texts.map(bytes));
    let named = |(n, value)| (format!("awkward {n}").into_bytes(), value);
    let many = (0..3000).map(|n| (format!("many {n}").into_bytes(), bytes(&all[..n % 50])));
    let mut content: Content = awkward.enumerate().map(named).chain(many).collect();
    content.extend(texts.map(|text| (text.to_vec(), bytes(text))));
    content.insert(b"eight".to_vec(), bytes(b"8 bytes!"));
    content.insert(b"large".to_vec(), bytes(&large));
    content
}

/// The records of a table, by way of the library.
fn records(store: &Store, table: &str) -> Content {
    let table = store.existing_table(table).expect("the table");
    table.iter().map(|record| record.expect("readable")).collect()
}

#[test]
fn a_dump_loads_as_an_equal_table() {
    let world = World::empty();
    // With a log that takes the largest values.
    world.ok("create", &["--log-size", "16MiB", "--block-size", "4KiB"]);
    let content = content();
    let store = Store::open(world.store()).expect("opens");
    let table = store.table("main").expect("a table");
    for (key, value) in &content {
        let operand = value_operand(value.kind, &value.bytes);
        table.update(key, PUT, &operand).expect("durable").wait().expect("durable");
    }
    drop((table, store));
    let count = content.len();
    for format in ["tsv", "jsonl"] {
        let file = text(&world.path(format));
        let said = world.ok("dump", &[&file, "--format", format]);
        assert_eq!(said, format!("dumped 3,0{} records to {file}\n", count - 3000));
        world.ok("load", &[&file, "--format", format, "--table", format, "--fill", "50"]);
        // By way of standard output and input too.
        let dumped = world.ok("dump", &["--format", format]);
        assert!(dumped.as_bytes() == std::fs::read(&file).expect("readable"));
        let run = world.feed("load", &dumped, &["--format", format, "--table", "piped"]);
        assert_eq!(run.status, Some(0), "{}", run.errors);
        let store = Store::open(world.store()).expect("opens");
        for table in [format, "piped"] {
            assert!(records(&store, table) == content, "{table}: not what was dumped");
        }
        store.drop_table("piped").expect("dropped");
    }
    world.ok("verify", &[]);
}

#[test]
fn a_refused_line_is_named_and_nothing_is_left() {
    let world = World::new();
    let many: String = (0..5000).map(|n| format!("k{n:05}\tv\n")).collect();
    let cases = [
        ("k01\tv\n", "the key is below the one before it; keys must ascend; nothing was loaded"),
        ("k04999\tv\n", "the key is equal to the one before it"),
        ("l\n", "expected KEY, a tab, VALUE"),
        ("l\tone\ti64\n", "\"one\" is no i64"),
        ("\n", "expected KEY, a tab, VALUE"),
    ];
    for (last, reason) in cases {
        let file = world.file("in.tsv", &format!("{many}{last}z\tz\n"));
        let run = world.run("load", &[&file, "--table", "new"]);
        refused(&run, &format!("{file}:5001: {reason}"));
        assert_eq!(run.out, "");
        assert!(!world.ok("tables", &[]).contains("new"));
        // A table that was there before stays, and stays empty.
        assert_eq!(world.apply("", &["--table", "old"]).status, Some(0));
        refused(&world.run("load", &[&file, "--table", "old"]), reason);
        assert_eq!(world.ok("dump", &["--table", "old"]), "");
    }
    let run = world.feed("load", "{\"key\":\"k\",\"value\":1}\n", &["--format", "jsonl"]);
    refused(&run, "standard input:1: expected {\"key\":\"KEY\",\"value\":\"VALUE\"}: ");
    let long = format!("a\t1\nb\t{}\n", "v".repeat((1 << 20) + 1));
    refused(&world.feed("load", &long, &[]), "standard input:2: a value of 1048577 bytes is above");
    let endless = format!("a\t1\nb\t{}\n", "v".repeat(9 << 20));
    refused(
        &world.feed("load", &endless, &[]),
        "standard input:2: the line is longer than 8 MiB; nothing",
    );
    refused(&world.run("load", &["no-such-file"]), "no-such-file");
    assert!(!world.ok("tables", &[]).contains("main"));
}

#[test]
fn only_an_empty_table_is_loaded() {
    let world = World::new();
    assert_eq!(world.apply("add\tk\t1\n", &[]).status, Some(0));
    let run = world.feed("load", "l\t1\n", &[]);
    refused(&run, "table \"main\" has records; a load needs a table that is new or empty");
    assert_eq!(world.ok("dump", &[]), "k\t1\ti64\n");
    assert_eq!(world.apply("delete\tk\n", &[]).status, Some(0));
    // The last line needs no end.
    let run = world.feed("load", "l\t1\nm\t2", &["--json"]);
    let summary: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&summary["loaded"], &summary["blocks"]), (&2.into(), &1.into()));
    assert_eq!(world.ok("scan", &[]), "l\t1\nm\t2\n");
    let run = world.feed("load", "", &["--table", "none"]);
    assert!(run.out.starts_with("loaded 0 records"), "{}", run.out);
    assert_eq!(world.ok("dump", &["--table", "none"]), "");
    world.ok("remove-range", &["--all"]);
    let run = world.feed("load", "n\t3\n", &[]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert_eq!(world.ok("dump", &[]), "n\t3\n");
    for fill in ["49", "101", "full"] {
        let run = world.run("load", &["in.tsv", "--fill", fill]);
        assert_eq!(run.status, Some(2), "{fill}");
    }
}

#[test]
fn a_dump_overwrites_nothing() {
    let world = World::new();
    let file = world.file("precious", "precious");
    refused(&world.run("dump", &["new"]), "no table \"main\"");
    assert!(!world.path("new").exists());
    assert_eq!(world.apply("put\tk\tv\n", &[]).status, Some(0));
    refused(&world.run("dump", &[&file]), "precious exists already; name a new file");
    assert_eq!(std::fs::read(&file).expect("readable"), b"precious");
    let elsewhere = text(&world.path("no-such-folder/dump"));
    refused(&world.run("dump", &[&elsewhere]), "no-such-folder/dump: No such file");
    let run: Run = upsweep(&["dump", "no-such-store"]).output().expect("runs").into();
    refused(&run, "no store at");
}

#[test]
fn a_dump_whose_reader_goes_away_ends_well() {
    let world = World::new();
    let lines: String = (0..50_000).map(|n| format!("key{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.feed("load", &lines, &[]).status, Some(0));
    let mut process = world
        .command("dump", &["--format", "jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("readable");
    drop(output);
    let run = process.wait_with_output().expect("ends");
    assert_eq!((run.status.code(), String::from_utf8_lossy(&run.stderr).as_ref()), (Some(0), ""));
    assert_eq!(line, "{\"key\":\"key00000\",\"value\":\"value0\"}\n");
}

#[test]
fn a_killed_dump_leaves_nothing_that_loads() {
    let world = World::new();
    let lines: String = (0..50_000).map(|n| format!("key{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.feed("load", &lines, &[]).status, Some(0));
    let [file, part] = ["cut.tsv", "cut.tsv.dumping"].map(|name| world.path(name));
    let mut process = world.command("dump", &[&text(&file)]).spawn().expect("the program runs");
    while !file.exists() && !part.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    process.kill().expect("killed");
    process.wait().expect("ended");
    if file.exists() {
        // It was faster than the signal.
        assert_eq!(std::fs::read(&file).expect("readable"), lines.as_bytes());
        std::fs::remove_file(&file).expect("removed");
        std::fs::write(&part, "").expect("written");
    }
    let run = world.run("dump", &[&text(&file)]);
    refused(&run, "cut.tsv.dumping exists already: left by a dump that was interrupted");
    std::fs::remove_file(&part).expect("removed");
    world.ok("dump", &[&text(&file)]);
    assert_eq!(std::fs::read(&file).expect("readable"), lines.as_bytes());
    assert!(!part.exists());
}

#[test]
fn numbers_and_objects_are_what_they_seem() {
    let world = World::new();
    for digits in ["1e999", "-1e999"] {
        let run = world.feed("load", &format!("d\t{digits}\tf64\n"), &[]);
        refused(&run, &format!("standard input:1: \"{digits}\" is no f64; finite ones reach"));
    }
    let run = world.feed("load", "[\"k\",\"v\"]\n", &["--format", "jsonl"]);
    refused(&run, "standard input:1: expected {\"key\":\"KEY\",\"value\":\"VALUE\"}: no object");
    let run = world.feed("load", "a\t1\ti64\r\n", &[]);
    refused(&run, "; the line ends in CR LF: convert it to LF; nothing was loaded");
    let run = world.feed("load", "inf\tinf\tf64\n", &[]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert_eq!(world.ok("dump", &[]), "inf\tinf\tf64\n");
    refused(&world.run("load", &[&text(&world.path(""))]), "a folder; name a file\n");
}

#[test]
fn the_lines_of_a_dump_are_applied_where_they_cannot_be_loaded() {
    let world = World::new();
    world.ok("create-table", &["h", "--kind", "hash"]);
    let lines = "put\ta\\tb\t1\nput\tab\tx\\ny\nadd\ta b\t-5\nput\t\\xff\t\n";
    assert_eq!(world.apply(lines, &["--table", "h"]).status, Some(0));
    let dumped = world.ok("dump", &["--table", "h"]);
    let again = |line: &str| match line.strip_suffix("\ti64") {
        Some(number) => format!("add\t{number}\n"),
        None => format!("put\t{line}\n"),
    };
    let again: String = dumped.lines().map(again).collect();
    assert_eq!(world.apply(&again, &[]).status, Some(0));
    let wanted = "a\\tb\t1\na b\t-5\ti64\nab\tx\\ny\n\\xff\t\n";
    assert_eq!(world.ok("dump", &[]), wanted);
}
