//! Making, dropping and cloning tables, and removing ranges of them.

use super::common::{Run, World, refused, text, upsweep};

/// Names and kinds of all tables.
fn kinds(world: &World) -> Vec<(String, String)> {
    let tables = world.ok("tables", &["--json"]);
    let of = |line: &str| {
        let found: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let field = |name: &str| found[name].as_str().expect("text").to_owned();
        (field("table"), field("kind"))
    };
    tables.lines().map(of).collect()
}

#[test]
fn every_kind_is_made_and_listed() {
    let world = World::new();
    let made = [
        ("plain", None, "ordered", "an ordered table"),
        ("o", Some("ordered"), "ordered", "an ordered table"),
        ("e", Some("expiring"), "expiring", "a table of expiring records"),
        ("h", Some("hash"), "hash", "a hash table"),
        ("a", Some("array"), "array:u64", "an array of u64"),
        ("a8", Some("array:u8"), "array:u8", "an array of u8"),
        ("a16", Some("array:u16"), "array:u16", "an array of u16"),
        ("a32", Some("array:u32"), "array:u32", "an array of u32"),
        ("a64", Some("array:u64"), "array:u64", "an array of u64"),
        ("i64", Some("array:i64"), "array:i64", "an array of i64"),
        ("f64", Some("array:f64"), "array:f64", "an array of f64"),
    ];
    for (name, kind, _, described) in made {
        let arguments: Vec<&str> =
            [Some(name), kind.map(|_| "--kind"), kind].into_iter().flatten().collect();
        let said = world.ok("create-table", &arguments);
        assert_eq!(said, format!("made \"{name}\", {described}\n"));
    }
    let wanted = made.map(|(name, _, kind, _)| (name.to_owned(), kind.to_owned()));
    assert_eq!(kinds(&world), wanted);
    let shown = world.ok("tables", &[]);
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(&shown)[..2], ["table", "kind"]);
    for (line, (name, _, kind, _)) in shown.lines().skip(1).zip(made) {
        assert_eq!(columns(line)[..2], [name, kind]);
    }
    // A name is taken, whatever by.
    for (name, _, _, described) in made {
        let run = world.run("create-table", &[name, "--kind", "hash"]);
        refused(&run, &format!("\"{name}\" is {described} already; drop it first"));
    }
    assert_eq!(kinds(&world), wanted);
}

#[test]
fn a_kind_that_there_is_not_is_refused() {
    let world = World::new();
    for (kind, reason) in [
        ("tree", "give ordered, expiring, hash, array, or array:TYPE"),
        ("hash:u8", "give ordered, expiring, hash, array, or array:TYPE"),
        ("", "give ordered, expiring, hash, array, or array:TYPE"),
        ("array:bytes8", "\"bytes8\" is not a cell type: give u8, u16, u32, u64, i64 or f64"),
        ("array:", "\"\" is not a cell type"),
    ] {
        let run = world.run("create-table", &["new", "--kind", kind]);
        assert_eq!((run.status, run.out.as_str()), (Some(2), ""), "{kind}");
        assert!(run.errors.contains(reason), "{kind}: {}", run.errors);
    }
    refused(&world.run("create-table", &[""]), "must have 1 to 255 bytes");
    let run = world.run("create-table", &["(quarantine)"]);
    refused(&run, "already; it belongs to the store itself; choose another name");
    assert_eq!(kinds(&world), []);
}

#[test]
fn a_dropped_table_is_gone_and_its_name_is_free() {
    let world = World::new();
    for kind in ["ordered", "hash", "array:u8"] {
        world.ok("create-table", &["t", "--kind", kind]);
        assert_eq!(world.apply("add\t5\t1\n", &["--table", "t"]).status, Some(0));
        assert_eq!(world.ok("get", &["5", "--table", "t"]), "1\n");
        assert!(world.ok("drop-table", &["t"]).starts_with("dropped \"t\", a"));
        for (command, arguments) in [
            ("get", &["5", "--table", "t"][..]),
            ("scan", &["--table", "t"]),
            ("dump", &["--table", "t"]),
            ("drop-table", &["t"]),
            ("clone", &["t", "u"]),
            ("remove-range", &["--table", "t", "--all"]),
            ("snapshot create", &["s", "--table", "t"]),
        ] {
            let advice = "no table \"t\" in this store; `upsweep tables` lists all tables";
            refused(&world.run(command, arguments), advice);
        }
    }
    assert_eq!(kinds(&world), []);
    assert_eq!(world.ok("snapshot list", &[]), "there are no snapshots\n");
    let run = world.run("drop-table", &["(quarantine)"]);
    refused(&run, "\"(quarantine)\" belongs to the store itself and cannot be dropped");
}

#[test]
fn a_clone_goes_its_own_way() {
    let world = World::new();
    world.ok("create-table", &["counts", "--kind", "array:u16"]);
    world.ok("create-table", &["hashed", "--kind", "hash"]);
    for table in ["main", "counts", "hashed"] {
        assert_eq!(world.apply("add\t1\t1\nadd\t2\t2\n", &["--table", table]).status, Some(0));
        let clone = format!("{table} 2");
        let said = world.ok("clone", &[table, &clone]);
        assert_eq!(said, format!("made \"{clone}\", a clone of \"{table}\"\n"));
        assert_eq!(world.apply("add\t1\t10\n", &["--table", table]).status, Some(0));
        assert_eq!(world.apply("delete\t2\n", &["--table", &clone]).status, Some(0));
        world.ok("sweep", &[]);
        let value = |table: &str, key: &str| world.run("get", &[key, "--table", table]).out;
        assert_eq!((value(table, "1"), value(table, "2")), ("11\n".into(), "2\n".into()));
        assert_eq!(value(&clone, "1"), "1\n");
        assert_eq!(world.ok("scan", &["--table", &clone]), "1\t1\n");
        let run = world.run("clone", &[table, &clone]);
        refused(&run, &format!("\"{clone}\" is a"));
        refused(&run, "already; drop it first (`upsweep drop-table`) or choose another name");
    }
    let names: Vec<String> = kinds(&world).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(names, ["array:u16", "hash", "ordered", "ordered", "array:u16", "hash"]);
    refused(
        &world.run("clone", &["main", "new", "--at", "monday"]),
        "; `upsweep snapshot list` lists all snapshots",
    );
    world.ok("verify", &[]);
}

#[test]
fn ranges_of_keys_are_removed() {
    let world = World::new();
    let lines: String = (0..2000).map(|key| format!("add\tk{key:04}\t{key}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    world.ok("sweep", &[]);
    let count = || world.ok("scan", &[]).lines().count();
    // How much room comes back depends on where blocks begin.
    let first_line = |said: String| said.lines().next().map(str::to_owned).expect("a line");
    let remove = |arguments: &[&str]| first_line(world.ok("remove-range", arguments));
    let said = remove(&["--from", "k0100", "--to", "k0200"]);
    assert_eq!(said, "removed the keys from \"k0100\" to below \"k0200\" of table \"main\"");
    assert_eq!(count(), 1900);
    assert_eq!(world.ok("scan", &["--from", "k0099", "--limit", "2"]), "k0099\t99\nk0200\t200\n");
    assert_eq!(remove(&["--to", "k0010"]), "removed the keys below \"k0010\" of table \"main\"");
    assert_eq!(
        remove(&["--from", "k1990"]),
        "removed the keys from \"k1990\" on of table \"main\""
    );
    assert_eq!(count(), 1880);
    world.ok("sweep", &[]);
    assert_eq!(count(), 1880);
    // What comes later is there.
    assert_eq!(world.apply("add\tk0150\t1\n", &[]).status, Some(0));
    assert_eq!(world.ok("get", &["k0150"]), "1\n");
    assert_eq!(remove(&["--all"]), "removed all records of table \"main\"");
    assert_eq!(count(), 0);
    world.ok("verify", &[]);
}

#[test]
fn a_range_needs_bounds_and_the_order_of_keys() {
    let world = World::new();
    assert_eq!(world.apply("add\tk\t1\n", &[]).status, Some(0));
    for arguments in [&[][..], &["--table", "main"], &["--all", "--from", "a"]] {
        let run = world.run("remove-range", arguments);
        assert_eq!((run.status, run.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(run.errors.contains("--all"), "{}", run.errors);
    }
    for to in ["a", "b"] {
        let run = world.run("remove-range", &["--from", "b", "--to", to]);
        refused(&run, &format!("--from \"b\" is not below --to \"{to}\", so no key lies between"));
    }
    for (kind, described) in [("hash", "a hash table"), ("array", "an array of u64")] {
        world.ok("create-table", &[kind, "--kind", kind]);
        let run = world.run("remove-range", &["--table", kind, "--all"]);
        refused(&run, &format!("\"{kind}\" is {described}, which has no ranges of keys; "));
    }
    assert_eq!(world.ok("scan", &[]), "k\t1\n");
}

#[test]
fn a_store_in_another_place_stays_as_it_is() {
    let world = World::new();
    let other = World::empty();
    let store = text(&other.store());
    let run: Run = upsweep(&["create-table", &store, "t"]).output().expect("runs").into();
    refused(&run, "no store at");
    assert!(!other.store().exists());
    assert_eq!(kinds(&world), []);
}

/// Why blocks are left by `compact`.
const LEFT: &str = "in order already, shared with a clone or snapshot, or in use";

#[test]
fn compact_puts_a_table_in_order_and_changes_nothing_else() {
    let world = World::new();
    let lines = |step: u32| -> String {
        let numbers = (0..30_000u32).map(|n| n * 7919 % 30_000).filter(|n| n % step == 0);
        numbers.map(|n| format!("add\tkey {n:05}\t1\n")).collect()
    };
    for step in [3, 2, 1] {
        assert_eq!(world.apply(&lines(step), &[]).status, Some(0));
        world.ok("sweep", &[]);
    }
    let before = world.ok("scan", &[]);
    let said = world.ok("compact", &["--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let [blocks, moved, left] =
        ["blocks", "moved", "left"].map(|name| said[name].as_u64().expect("a number"));
    assert!(blocks > 10 && moved + left == blocks, "{said}");
    assert_eq!(world.ok("scan", &[]), before);
    world.ok("verify", &[]);
    refused(&world.run("compact", &["--table", "none"]), "none");
    // Shared blocks are left where they are, and a hash table has no order of keys.
    world.ok("snapshot create", &["now"]);
    let said = world.ok("compact", &[]);
    let begin = format!("looked at {blocks} blocks of \"main\", moved 0 into key order and ");
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with(&format!(" left {blocks}: {LEFT}\n")), "{said}");
    for (kind, order) in [("hash", "the order of hashes"), ("array", "the order of indexes")] {
        world.ok("create-table", &[kind, "--kind", kind]);
        let said = world.ok("compact", &["--table", kind]);
        assert!(said.contains(&format!(" into {order} ")), "{said}");
    }
}

#[test]
fn room_is_back_when_the_command_ends() {
    let world = World::new();
    let lines: String = (0..20_000).map(|n| format!("k{n:05}\tvalue of {n}\n")).collect();
    let used = || {
        let stat = world.ok("stat", &["--json"]);
        let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
        stat["data_bytes"].as_u64().expect("a number")
    };
    let back = |command: &str, arguments: &[&str], words: &str| {
        let before = used();
        let said = world.ok(command, arguments);
        assert!(said.ends_with(words), "{said}");
        assert!(used() + 100_000 < before, "{} of {before} are still used", used());
    };
    let load = |table: &str| world.feed("load", &lines, &["--table", table]).status;
    let words = " of the data devices freed\n";
    assert_eq!(load("dropped"), Some(0));
    back("drop-table", &["dropped"], words);
    assert_eq!(load("main"), Some(0));
    back("remove-range", &["--to", "k15000"], words);
    world.ok("snapshot create", &["kept"]);
    // The snapshot still has all of it.
    assert!(!world.ok("drop-table", &["main"]).contains(words));
    back("snapshot drop", &["kept"], words);
}

#[test]
fn space_is_back_in_the_file_system_when_the_command_ends() {
    const MIB: u64 = 1 << 20;
    let world = World::new();
    let value = "v".repeat(100_000);
    let lines: String = (0..1500).map(|n| format!("k{n:05}\t{value}\n")).collect();
    let device = || {
        let stat = world.ok("stat", &["--json"]);
        let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
        let device = &stat["devices"][0];
        assert_eq!(device["allocated_bytes"], stat["data_capacity_bytes"]);
        ["allocated_bytes", "size_bytes"].map(|name| device[name].as_u64().expect("a number"))
    };
    let load = || assert_eq!(world.feed("load", &lines, &[]).status, Some(0));
    load();
    let [full, size] = device();
    assert!(full > 140 * MIB, "{full}");
    world.ok("remove-range", &["--from", "k00100"]);
    let [left, size_left] = device();
    assert!(left < 100 * MIB && size_left == size, "{left} of {size_left}");
    assert!(world.ok("stat", &[]).contains(" allocated), "));
    // What went back is allocated again.
    world.ok("drop-table", &["main"]);
    load();
    world.ok("compact", &[]);
    world.ok("verify", &[]);
    assert!(device()[0] > 140 * MIB);
}

#[test]
fn expiring_records_are_shown_until_their_time() {
    let world = World::new();
    world.ok("create-table", &["sessions", "--kind", "expiring"]);
    let store = upsweep::Store::open(world.store()).expect("opens");
    let numbers: upsweep::TableDefinition<str, u64> = upsweep::TableDefinition::new("sessions");
    let sessions = store.existing_typed_expiring_table(numbers).expect("a table");
    let now = std::time::SystemTime::now();
    let later = now + std::time::Duration::from_secs(3600);
    for (key, number, expires_at) in [("a", 1, later), ("b", 2, now), ("c", 3, later)] {
        sessions.put(key, number, expires_at).expect("durable");
    }
    drop(sessions);
    store.close().expect("durable");
    let of = ["--table", "sessions"];
    let of_key = |key| [key, "--table", "sessions"];
    assert_eq!(world.ok("get", &of_key("a")), "1\n");
    refused_absent(&world.run("get", &of_key("b")));
    assert_eq!(world.ok("scan", &of), "a\t1\nc\t3\n");
    assert_eq!(world.ok("scan", &["--table", "sessions", "--prefix", "c", "--reverse"]), "c\t3\n");
    assert_eq!(world.ok("dump", &["--table", "sessions", "-"]), "a\t1\tu64\nc\t3\tu64\n");
    world.ok("snapshot create", &["then"]);
    let run = world.apply("put\ta\tx\n", &of);
    refused(&run, "\"sessions\" is a table of expiring records, and the lines have no times");
    world.ok("remove-range", &["--table", "sessions", "--to", "b"]);
    assert_eq!(world.ok("scan", &of), "c\t3\n");
    assert_eq!(world.ok("scan", &["--table", "sessions", "--at", "then"]), "a\t1\nc\t3\n");
    world.ok("verify", &[]);
}

/// The key is not there.
fn refused_absent(run: &Run) {
    assert_eq!((run.status, run.out.as_str()), (Some(1), ""), "{}", run.errors);
}
