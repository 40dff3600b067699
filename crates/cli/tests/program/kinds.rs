//! Hash tables and arrays: updates, queries, scans and dumps.

use super::common::{World, refused};

#[test]
fn a_hash_table_takes_every_operation() {
    let world = World::new();
    world.ok("create-table", &["h", "--kind", "hash"]);
    let table = ["--table", "h"];
    let lines = "add\tn\t5\nadd\tn\t-7\nmax\tm\t3\nmin\tm\t2\nput\tp\tnew\nappend\tp\t!\n\
                 put\td\t1\ndelete\td\n";
    assert_eq!(world.apply(lines, &table).status, Some(0));
    for _ in 0..2 {
        let scanned = world.ok("scan", &table);
        let mut sorted: Vec<&str> = scanned.lines().collect();
        sorted.sort_unstable();
        assert_eq!(sorted, ["m\t2", "n\t-2", "p\tnew!"]);
        assert_eq!(
            world.ok("get", &["n", "--table", "h", "--json"]),
            "{\"key\":\"n\",\"value\":-2}\n"
        );
        world.ok("sweep", &[]);
    }
    assert_eq!(world.ok("scan", &["--table", "h", "--limit", "2"]).lines().count(), 2);
    let run = world.run("get", &["d", "--table", "h"]);
    assert_eq!(
        (run.status, run.errors.as_str()),
        (Some(1), "upsweep: no key \"d\" in table \"h\"\n")
    );
    assert!(!world.ok("tables", &[]).contains("main"), "no table was made");
}

#[test]
fn a_hash_table_has_no_ranges() {
    let world = World::new();
    world.ok("create-table", &["h", "--kind", "hash"]);
    for flag in [&["--from", "a"][..], &["--to", "a"], &["--prefix", "a"], &["--reverse"]] {
        let run = world.run("scan", &[&["--table", "h"], flag].concat());
        let reason = "\"h\" is a hash table, which has no order of keys: leave ";
        refused(&run, &format!("{reason}{} out", flag[0]));
        assert_eq!(run.out, "");
    }
}

#[test]
fn a_hash_table_is_dumped_but_not_loaded() {
    let world = World::new();
    world.ok("create-table", &["h", "--kind", "hash"]);
    let lines: String = (0..1000).map(|key| format!("add\tk{key:04}\t{key}\n")).collect();
    assert_eq!(world.apply(&lines, &["--table", "h"]).status, Some(0));
    let dumped = world.ok("dump", &["--table", "h"]);
    let mut sorted: Vec<&str> = dumped.lines().collect();
    assert!(!sorted.is_sorted(), "the order is that of hashes");
    sorted.sort_unstable();
    let wanted: Vec<String> = (0..1000).map(|key| format!("k{key:04}\t{key}\ti64")).collect();
    assert_eq!(sorted, wanted);
    // In order, it fills a table.
    assert_eq!(world.feed("load", &sorted.join("\n"), &[]).status, Some(0));
    assert_eq!(world.ok("dump", &[]).lines().collect::<Vec<_>>(), wanted);
    world.ok("create-table", &["c", "--kind", "array:u8"]);
    for (table, kind) in [("h", "a hash table"), ("c", "an array of u8")] {
        let run = world.feed("load", "k\tv\n", &["--table", table]);
        refused(&run, &format!("\"{table}\" is {kind}; load fills ordered tables only; "));
    }
    let run = world.run("dump", &[&world.file("in", "")[..], "--table", "c"]);
    refused(&run, "\"c\" is an array, which has no records; `upsweep scan` prints its cells");
}

#[test]
fn an_array_takes_numbers_at_indexes() {
    let world = World::new();
    world.ok("create-table", &["c", "--kind", "array"]);
    let table = ["--table", "c"];
    let lines = "put\t7\t200\nadd\t9\t5\nadd\t9\t-2\nmax\t3\t4\nmax\t3\t2\nmin\t7\t150\n\
                 min\t4\t6\nput\t8\t1\ndelete\t8\nadd\t281474976710655\t18446744073709551615\n";
    assert_eq!(world.apply(lines, &table).status, Some(0));
    let scan = |arguments: &[&str]| world.ok("scan", &[&table, arguments].concat());
    for _ in 0..2 {
        let last = "281474976710655\t18446744073709551615\n";
        assert_eq!(scan(&[]), format!("3\t4\n7\t150\n9\t3\n{last}"));
        assert_eq!(scan(&["--reverse", "--limit", "2"]), format!("{last}9\t3\n"));
        assert_eq!(scan(&["--from", "4", "--to", "9"]), "7\t150\n");
        assert_eq!(scan(&["--from", "9", "--to", "4"]), "");
        assert_eq!(scan(&["--to", "4", "--json"]), "{\"index\":3,\"value\":4}\n");
        world.ok("sweep", &[]);
    }
    let get = |index: &str| world.ok("get", &[index, "--table", "c"]);
    assert_eq!((get("9"), get("8"), get("1000000")), ("3\n".into(), "0\n".into(), "0\n".into()));
    let json = world.ok("get", &["9", "--table", "c", "--json"]);
    assert_eq!(json, "{\"index\":9,\"value\":3}\n");
    // What scan prints can be applied again.
    let again: String = scan(&[]).lines().map(|line| format!("put\t{line}\n")).collect();
    world.ok("create-table", &["copy", "--kind", "array"]);
    assert_eq!(world.apply(&again, &["--table", "copy"]).status, Some(0));
    assert_eq!(world.ok("scan", &["--table", "copy"]), scan(&[]));
}

#[test]
fn cells_are_of_every_type() {
    let world = World::new();
    let cases = [
        ("u8", "255", "255"),
        ("u16", "65535", "65535"),
        ("u32", "4294967295", "4294967295"),
        ("u64", "18446744073709551615", "18446744073709551615"),
        ("i64", "-9223372036854775808", "-9223372036854775808"),
        ("f64", "-0.1", "-0.1"),
    ];
    for (cells, given, shown) in cases {
        world.ok("create-table", &[cells, "--kind", &format!("array:{cells}")]);
        let table = ["--table", cells];
        let lines = format!("put\t5\t{given}\nadd\t6\t{given}\nmin\t5\t{given}\n");
        assert_eq!(world.apply(&lines, &table).status, Some(0), "{cells}");
        world.ok("sweep", &[]);
        assert_eq!(world.ok("scan", &table), format!("5\t{shown}\n6\t{shown}\n"), "{cells}");
    }
    let run = world.apply("put\t3\t1e309\n", &["--table", "f64"]);
    refused(&run, "\"1e309\" is no number from -1.79e308 to 1.79e308, nor inf or -inf");
    assert_eq!(world.apply("put\t3\tinf\n", &["--table", "f64"]).status, Some(0));
    assert_eq!(world.ok("quarantine list", &[]), "nothing is in quarantine\n");
    // A sum that fits no cell is settled by the sweep.
    assert_eq!(world.apply("add\t5\t1\n", &["--table", "u8"]).status, Some(0));
    world.ok("sweep", &[]);
    assert_eq!(world.ok("get", &["5", "--table", "u8"]), "255\n");
    assert!(world.ok("quarantine list", &[]).contains("\tu8\tadd_u64\t5\t1\t"));
    // What was taken away is shown as such.
    assert_eq!(world.apply("add\t7\t-1\n", &["--table", "u8"]).status, Some(0));
    world.ok("sweep", &[]);
    let list = world.ok("quarantine list", &[]);
    assert!(list.contains("\tu8\tadd_u64\t7\t-1\t"), "{list}");
    assert!(
        list.contains(" (-1, if something was taken away) does not fit a cell of u8\n"),
        "{list}"
    );
}

#[test]
fn an_update_that_no_cell_can_take_is_named() {
    let world = World::new();
    world.ok("create-table", &["c", "--kind", "array:u8"]);
    let cases = [
        ("append\t5\tx", "append is for texts, and the cells of an array are numbers, for put"),
        ("add\tx\t1", "\"x\" is not an index; indexes are 0 to 281474976710655"),
        ("add\t-1\t1", "\"-1\" is not an index"),
        ("add\t\t1", "\"\" is not an index"),
        ("add\t281474976710656\t1", "\"281474976710656\" is not an index"),
        ("put\t5\t256", "\"256\" is no number from 0 to 255, as cells of u8 take"),
        ("put\t5\ttext", "\"text\" is no number from 0 to 255"),
        ("put\t5\t", "\"\" is no number from 0 to 255"),
        ("max\t5\t-1", "\"-1\" is no number from 0 to 255"),
        ("add\t5\t-256", "\"-256\" is no number from -255 to 255"),
        ("add\t5", "add needs a tab and a number after the key"),
        ("put\t5", "put needs a tab and a number after the key"),
        ("delete\t5\t1", "delete takes nothing after the key"),
        ("ad\t5\t1", "unknown operation \"ad\"; known are put, delete, add, max, min"),
    ];
    for (line, reason) in cases {
        let run = world.apply(&format!("add\t1\t1\n{line}\nadd\t1\t1\n"), &["--table", "c"]);
        refused(&run, &format!("standard input:2: {reason}"));
    }
    let applied = format!("1\t{}\n", cases.len());
    assert_eq!(world.ok("scan", &["--table", "c"]), applied);
    let table = ["--table", "c"];
    refused(&world.run("get", &["x", "--table", "c"]), "\"c\" is an array: \"x\" is not an index");
    let scan = |arguments: &[&str]| world.run("scan", &[&table, arguments].concat());
    refused(&scan(&["--prefix", "1"]), "\"c\" is an array, which has indexes: leave --prefix out");
    refused(&scan(&["--from", "x"]), "--from: \"x\" is not an index");
    refused(&scan(&["--to", "-1"]), "--to: \"-1\" is not an index");
}

#[test]
fn an_array_without_numbers_is_for_its_application() {
    let world = World::new();
    let store = upsweep::Store::open(world.store()).expect("opens");
    let made = store.blocks().create_space("raw", "array:bytes3", false);
    made.expect("made");
    drop(store);
    for (command, arguments) in [
        ("get", &["5", "--table", "raw"][..]),
        ("scan", &["--table", "raw"]),
        ("apply", &["--table", "raw"]),
    ] {
        let reason = "\"raw\" is an array of bytes3, which are not numbers; only the application";
        refused(&world.run(command, arguments), reason);
    }
    assert!(world.ok("tables", &[]).contains("array:bytes3"));
    world.ok("clone", &["raw", "copy"]);
    world.ok("drop-table", &["raw"]);
}
