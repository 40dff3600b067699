//! Snapshots: making, listing and dropping them, reading them, and what changed between two.

use super::common::{World, refused};

/// A world with the snapshots `monday` and `tuesday`, and updates between them and after.
fn two_days() -> World {
    let world = World::new();
    world.ok("create-table", &["h", "--kind", "hash"]);
    world.ok("create-table", &["c", "--kind", "array:u8"]);
    let apply = |lines: &str, table: &str| {
        let run = world.apply(lines, &["--table", table]);
        assert_eq!(run.status, Some(0), "{}", run.errors);
    };
    apply("put\ta\t1\nadd\tgone\t5\nput\tsame\tx\nput\tz\t\\\\absent\n", "main");
    apply("put\tk\t1\n", "h");
    apply("put\t5\t1\n", "c");
    world.ok("sweep", &[]);
    world.ok("snapshot create", &["monday"]);
    apply("put\ta\t2\ndelete\tgone\nput\tnew\tx\nput\tz\t\n", "main");
    apply("put\tk\t2\nput\tl\t2\n", "h");
    apply("put\t5\t2\nput\t6\t2\n", "c");
    world.ok("snapshot create", &["tuesday"]);
    apply("put\ta\t3\n", "main");
    world
}

#[test]
fn a_snapshot_is_read_as_it_was() {
    let world = two_days();
    let monday = "a\t1\ngone\t5\nsame\tx\nz\t\\\\absent\n";
    for _ in 0..2 {
        let at = |day| ["--at", day];
        assert_eq!(world.ok("scan", &at("monday")), monday);
        assert_eq!(world.ok("scan", &at("tuesday")), "a\t2\nnew\tx\nsame\tx\nz\t\n");
        assert_eq!(world.ok("scan", &[]), "a\t3\nnew\tx\nsame\tx\nz\t\n");
        assert_eq!(world.ok("scan", &["--at", "monday", "--prefix", "s"]), "same\tx\n");
        assert_eq!(world.ok("get", &["a", "--at", "monday"]), "1\n");
        assert_eq!(world.ok("get", &["k", "--table", "h", "--at", "monday"]), "1\n");
        assert_eq!(world.ok("get", &["5", "--table", "c", "--at", "monday"]), "1\n");
        assert_eq!(world.ok("scan", &["--table", "h", "--at", "monday"]), "k\t1\n");
        assert_eq!(world.ok("scan", &["--table", "c", "--at", "monday"]), "5\t1\n");
        let dumped = "a\t1\ngone\t5\ti64\nsame\tx\nz\t\\\\absent\n";
        assert_eq!(world.ok("dump", &at("monday")), dumped);
        assert_eq!(world.ok("dump", &["--table", "h", "--at", "monday"]), "k\t1\n");
        world.ok("sweep", &[]);
    }
    let run = world.run("get", &["new", "--at", "monday"]);
    assert_eq!(run.status, Some(1));
    assert_eq!(run.errors, "upsweep: no key \"new\" in table \"main\" in snapshot \"monday\"\n");
    // A table that was dropped is still in it, and comes back as a clone.
    world.ok("drop-table", &["main"]);
    refused(&world.run("scan", &[]), "no table \"main\" in this store");
    assert_eq!(world.ok("scan", &["--at", "monday"]), monday);
    let said = world.ok("clone", &["main", "main", "--at", "monday"]);
    assert_eq!(said, "made \"main\", a clone of \"main\" in snapshot \"monday\"\n");
    assert_eq!(world.apply("delete\tgone\n", &[]).status, Some(0));
    assert_eq!(world.ok("scan", &[]), monday.replace("gone\t5\n", ""));
    assert_eq!(world.ok("scan", &["--at", "monday"]), monday);
    world.ok("clone", &["c", "c of monday", "--at", "monday"]);
    assert_eq!(world.ok("scan", &["--table", "c of monday"]), "5\t1\n");
    world.ok("verify", &[]);
}

#[test]
fn a_snapshot_that_there_is_not_is_named() {
    let world = two_days();
    let advice = "; `upsweep snapshot list` lists all snapshots";
    for (command, arguments) in [
        ("scan", &["--at", "wednesday"][..]),
        ("get", &["a", "--at", "wednesday"]),
        ("dump", &["--at", "wednesday"]),
        ("clone", &["main", "new", "--at", "wednesday"]),
        ("changes", &["monday", "wednesday"]),
        ("changes", &["wednesday", "tuesday"]),
        ("snapshot drop", &["wednesday"]),
    ] {
        let run = world.run(command, arguments);
        refused(&run, "\"wednesday\"");
        refused(&run, advice);
    }
    world.ok("snapshot create", &["part", "--table", "h", "--table", "c", "--table", "h"]);
    let missing =
        "no table \"main\" in snapshot \"part\"; `upsweep snapshot list` shows what it has";
    refused(&world.run("scan", &["--at", "part"]), missing);
    refused(&world.run("clone", &["main", "new", "--at", "part"]), missing);
    let names = world.ok("tables", &[]);
    assert!(!names.contains("new"), "{names}");
}

#[test]
fn snapshots_are_listed_and_dropped() {
    let world = World::new();
    assert_eq!(world.ok("snapshot list", &[]), "there are no snapshots\n");
    assert_eq!(world.ok("snapshot list", &["--json"]), "");
    let said = world.ok("snapshot create", &["none"]);
    assert_eq!(said, "made snapshot \"none\" of nothing, for the store is empty\n");
    world.ok("snapshot drop", &["none"]);
    let world = two_days();
    let said = world.ok("snapshot create", &["part", "--table", "c"]);
    assert_eq!(said, "made snapshot \"part\" of \"c\"\n");
    let listed = world.ok("snapshot list", &[]);
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["snapshot", "sequence", "tables"]);
    assert_eq!(lines[1][0], "monday");
    assert_eq!(lines[1][2..], ["h,", "c,", "main"]);
    assert_eq!((lines[3][0], lines[3][2]), ("part", "c"));
    let json = world.ok("snapshot list", &["--json"]);
    let found: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<_> = found.iter().map(|found| &found["snapshot"]).collect();
    assert_eq!(names, ["monday", "tuesday", "part"]);
    assert!(found[0]["sequence"].as_u64() < found[1]["sequence"].as_u64());
    let part = serde_json::json!([{"table": "c", "kind": "array:u8"}]);
    assert_eq!(found[2]["tables"], part);
    let taken = " already: drop it first or choose another name";
    refused(&world.run("snapshot create", &["monday"]), taken);
    refused(&world.run("snapshot create", &[""]), "give 1 to 255 bytes");
    assert!(world.ok("snapshot drop", &["monday"]).starts_with("dropped snapshot \"monday\"\n"));
    refused(
        &world.run("scan", &["--at", "monday"]),
        "; `upsweep snapshot list` lists all snapshots",
    );
    world.ok("snapshot create", &["monday"]);
    world.ok("verify", &[]);
}

#[test]
fn changes_show_both_values() {
    let world = two_days();
    for _ in 0..2 {
        let changes = world.ok("changes", &["monday", "tuesday"]);
        let wanted = "a\t1\t2\ngone\t5\t\\absent\nnew\t\\absent\tx\nz\t\\\\absent\t\n";
        assert_eq!(changes, wanted);
        assert_eq!(world.ok("changes", &["monday", "monday"]), "");
        world.ok("sweep", &[]);
    }
    let json = world.ok("changes", &["monday", "tuesday", "--json"]);
    let second: serde_json::Value =
        serde_json::from_str(json.lines().nth(1).expect("a line")).expect("JSON");
    assert_eq!(second, serde_json::json!({"key": "gone", "before": 5, "after": null}));
    let hex = world.ok("changes", &["monday", "tuesday", "--as", "hex"]);
    assert!(hex.starts_with("a\t31\t32\n"), "{hex}");
    refused(&world.run("changes", &["monday", "tuesday", "--as", "i64"]), "the value of \"a\": ");
    // A table that only one has.
    assert_eq!(world.apply("put\tk\tv\n", &["--table", "late"]).status, Some(0));
    world.ok("snapshot create", &["wednesday"]);
    let changes = world.ok("changes", &["tuesday", "wednesday", "--table", "late"]);
    assert_eq!(changes, "k\t\\absent\tv\n");
    let run = world.run("changes", &["tuesday", "monday"]);
    refused(&run, "snapshot \"tuesday\" is later than \"monday\"; name the earlier one first");
    let run = world.run("changes", &["monday", "tuesday", "--table", "late"]);
    refused(&run, "no table \"late\" in snapshot \"monday\"");
    for (table, kind) in [("h", "a hash table"), ("c", "an array of u8")] {
        let run = world.run("changes", &["monday", "tuesday", "--table", table]);
        refused(&run, &format!("\"{table}\" is {kind}; only ordered tables can be compared"));
    }
}
