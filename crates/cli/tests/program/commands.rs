//! Every command, its output, its errors and its exit status.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use super::common::{Run, World, refused, text, upsweep};

#[test]
fn every_operation_does_what_it_says() {
    let world = World::new();
    let lines = "add\tn\t5\nadd\tn\t-7\nmax\tm\t3\nmax\tm\t2\nmin\tl\t3\nmin\tl\t2\n\
                 put\tp\told\nput\tp\tnew\nappend\ta\tx\nappend\ta\ty\nput\td\t1\ndelete\td\n";
    assert_eq!(world.apply(lines, &[]).status, Some(0));
    let all = "a\txy\nl\t2\nm\t3\nn\t-2\np\tnew\n";
    assert_eq!(world.ok("scan", &[]), all);
    world.ok("sweep", &[]);
    assert_eq!(world.ok("scan", &[]), all);
    assert_eq!(world.ok("get", &["n"]), "-2\n");
    assert_eq!(world.ok("get", &["n", "--as", "u64"]), format!("{}\n", u64::MAX - 1));
    assert_eq!(world.ok("get", &["p", "--as", "hex"]), "6e6577\n");
    assert_eq!(world.ok("get", &["n", "--json"]), "{\"key\":\"n\",\"value\":-2}\n");
    refused(&world.run("get", &["p", "--as", "i64"]), "a number has 8 bytes");
}

#[test]
fn keys_and_values_keep_every_byte() {
    let world = World::new();
    let lines = "put\ta\\tb\\n\\\\\\x00\\xff\tv\\x01\\tü\nput\t\tempty key\nput\tempty value\t\n";
    assert_eq!(world.apply(lines, &[]).status, Some(0));
    let all = "\tempty key\na\\tb\\n\\\\\\x00\\xff\tv\\x01\\tü\nempty value\t\n";
    assert_eq!(world.ok("scan", &[]), all);
    assert_eq!(world.ok("get", &["a\\tb\\n\\\\\\x00\\xff"]), "v\\x01\\tü\n");
    // What scan prints can be applied again.
    let again: String = all.lines().map(|line| format!("put\t{line}\n")).collect();
    assert_eq!(world.apply(&again, &["--table", "copy"]).status, Some(0));
    assert_eq!(world.ok("scan", &["--table", "copy"]), all);
}

#[test]
fn scans_have_bounds_in_both_directions() {
    let world = World::new();
    let lines: String = (0..2000).map(|key| format!("add\tk{key:04}\t{key}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    world.ok("sweep", &[]);
    let scan = |arguments: &[&str]| world.ok("scan", arguments);
    assert_eq!(scan(&["--limit", "2"]), "k0000\t0\nk0001\t1\n");
    assert_eq!(scan(&["--reverse", "--limit", "2"]), "k1999\t1999\nk1998\t1998\n");
    assert_eq!(scan(&["--from", "k0007", "--to", "k0009"]), "k0007\t7\nk0008\t8\n");
    assert_eq!(scan(&["--prefix", "k150", "--reverse"]).lines().count(), 10);
    assert_eq!(scan(&["--prefix", "k150", "--from", "k1508"]), "k1508\t1508\nk1509\t1509\n");
    assert_eq!(scan(&["--from", "k0009", "--to", "k0007"]), "");
    let json = scan(&["--prefix", "k0005", "--json"]);
    assert_eq!(json, "{\"key\":\"k0005\",\"value\":5}\n");
}

#[test]
fn nothing_is_made_by_accident() {
    let world = World::new();
    let elsewhere = text(&world.path("elsewhere"));
    let commands = [
        "get KEY",
        "scan",
        "scan --at monday",
        "apply",
        "dump",
        "load",
        "tables",
        "stat",
        "verify",
        "sweep",
        "create-table NAME",
        "drop-table NAME",
        "clone main NAME",
        "remove-range --all",
        "snapshot create NAME",
        "snapshot list",
        "snapshot drop NAME",
        "changes EARLIER LATER",
    ];
    for command in commands {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        let path = if arguments[0] == "snapshot" { 2 } else { 1 };
        arguments.insert(path, &elsewhere);
        let run: Run = upsweep(&arguments).output().expect("runs").into();
        refused(&run, "no store at");
    }
    assert!(!world.path("elsewhere").exists());
    refused(&world.run("get", &["key", "--table", "other"]), "no table \"other\"");
    refused(&world.run("apply", &["no-such-file", "--table", "other"]), "no-such-file");
    assert!(!world.ok("tables", &[]).contains("other"));
    refused(&world.run("create", &[]), "exists already");
}

#[test]
fn an_absent_key_has_its_own_status() {
    let world = World::new();
    assert_eq!(world.apply("add\tk\t1\n", &[]).status, Some(0));
    let run = world.run("get", &["other"]);
    assert_eq!((run.status, run.out.as_str()), (Some(1), ""));
    assert_eq!(run.errors, "upsweep: no key \"other\" in table \"main\"\n");
    let run = world.run("get", &["a\\tb"]);
    assert_eq!(run.errors, "upsweep: no key \"a\\tb\" in table \"main\"\n");
}

#[test]
fn a_malformed_line_is_named_and_those_before_it_count() {
    let world = World::new();
    let file = world.file("in.tsv", "add\tk\t1\nadd\tk\t2\nadd\tk\tthree\nadd\tk\t4\n");
    let run = world.run("apply", &[&file, "--json", "--ack-every", "1"]);
    refused(&run, &format!("{file}:3: \"three\" is no number"));
    assert!(run.out.starts_with("durable 1\ndurable 2\n{"), "{}", run.out);
    assert!(run.out.contains("\"applied\":2,\"durable\":2"), "{}", run.out);
    assert_eq!(world.ok("get", &["k"]), "3\n");
    let long = "k".repeat(5000);
    let run = world.apply(&format!("add\tk\t1\nadd\t{long}\t1\nadd\tk\t1\n"), &[]);
    refused(&run, "standard input:2: key of 5000 bytes; the limit is 4096");
    assert_eq!(world.ok("get", &["k"]), "4\n");
    let endless = "k".repeat(9 << 20);
    let file = world.file("long.tsv", &format!("add\tk\t1\nput\tk\t{endless}\n"));
    refused(&world.run("apply", &[&file]), &format!("{file}:2: the line is longer than 8 MiB"));
    assert_eq!(world.ok("get", &["k"]), "5\n");
}

#[test]
fn a_single_update_that_is_too_long_is_not_called_a_batch() {
    let world = World::new();
    let run = world.apply(&format!("put\tk\t{}\n", "v".repeat(1 << 20)), &[]);
    refused(&run, "standard input:1: the update takes 10485");
    refused(&run, "make a store with a larger log");
    assert!(!run.errors.contains("split"), "{}", run.errors);
    // The log that the help promises to be large enough.
    let store = text(&world.path("large"));
    let run: Run =
        upsweep(&["create", &store, "--log-size", "16MiB"]).output().expect("runs").into();
    assert_eq!(run.status, Some(0), "{}", run.errors);
    let line = format!("put\t{}\t{}\n", "k".repeat(4096), "v".repeat(1 << 20));
    let file = world.file("value.tsv", &line);
    let run: Run = upsweep(&["apply", &store, &file]).output().expect("runs").into();
    assert_eq!(run.status, Some(0), "{}", run.errors);
}

#[test]
fn counts_come_while_the_input_pauses() {
    let world = World::new();
    for durability in ["each", "group", "relaxed"] {
        let mut process = world
            .command("apply", &["--ack-every", "2", "--durability", durability])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut input = process.stdin.take().expect("a pipe");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        for count in [2, 4, 6] {
            std::io::Write::write_all(&mut input, b"add\tk\t1\nadd\tk\t1\n").expect("written");
            let mut line = String::new();
            output.read_line(&mut line).expect("readable");
            assert_eq!(line, format!("durable {count}\n"), "{durability}");
        }
        std::io::Write::write_all(&mut input, b"add\tk\t1").expect("written");
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("readable");
        assert!(rest.starts_with("applied 7 updates in"), "{rest}");
        assert_eq!(process.wait().expect("ends").code(), Some(0));
    }
    assert_eq!(world.ok("get", &["k"]), "21\n");
}

#[test]
fn tables_and_stat_tell_what_is_there() {
    let world = World::new();
    assert_eq!(world.apply("add\tk\t1\nadd\tl\t1\n", &["--table", "hits"]).status, Some(0));
    world.ok("sweep", &[]);
    let tables: serde_json::Value =
        serde_json::from_str(&world.ok("tables", &["--json"])).expect("JSON");
    assert_eq!((&tables["table"], &tables["records"]), (&"hits".into(), &2.into()));
    let stat: serde_json::Value =
        serde_json::from_str(&world.ok("stat", &["--json"])).expect("JSON");
    assert!(stat["bound"]["binds"].is_string());
    assert_eq!(stat["devices"][0]["role"], "data");
    let page = stat["log_page_bytes"].as_u64().expect("a number");
    assert!(page.is_power_of_two() && (512..=4096).contains(&page), "{page}");
    let reason = stat["log_page_reason"].as_str().expect("a text");
    assert!(reason.starts_with(&format!("{page} bytes: ")), "{reason}");
    let shown = world.ok("stat", &[]);
    for section in ["devices", "what bounds the speed", "memory", "log", "sweep"] {
        assert!(shown.lines().any(|line| line.starts_with(section)), "{section}: {shown}");
    }
}

#[test]
fn usage_errors_have_status_two() {
    let world = World::new();
    for arguments in [&["frobnicate"][..], &["create"], &["stat", "s", "--memory", "much"]] {
        let run: Run = upsweep(arguments).output().expect("runs").into();
        assert_eq!(run.status, Some(2), "{arguments:?}");
        assert!(!run.errors.is_empty());
    }
    refused(&world.run("stat", &["--memory", "1KiB"]), "--memory: 1024 bytes; this store needs");
}

#[test]
fn stat_tells_of_the_last_session_and_of_the_quarantine() {
    let world = World::new();
    let status = || {
        let run = world.run("stat", &["--json"]);
        serde_json::from_str::<serde_json::Value>(&run.out).expect("one JSON object")
    };
    assert_eq!(status()["last_session"], serde_json::Value::Null);
    assert_eq!(status()["bound"]["sweep"], serde_json::Value::Null, "nothing is there to sweep");
    assert_eq!(world.apply("put\tt\ttext\nadd\tt\t1\nadd\tn\t1\n", &[]).status, Some(0));
    assert_eq!(status()["last_session"]["metrics"]["updates_total"], 3);
    assert_eq!(status()["quarantined"], 0);
    assert_eq!(world.run("sweep", &[]).status, Some(0));
    let found = status();
    assert_eq!(found["last_session"]["metrics"]["quarantined_updates_total"], 1);
    assert_eq!(found["quarantined"], 1);
    assert!(found["bound"]["sweep"].is_f64());
    assert!(found["metrics"]["blocks"].as_f64() > Some(0.0), "gauges are those of the store now");
    assert!(world.run("stat", &[]).out.contains("sweep, in the last session"));
}

#[test]
fn stat_prints_metrics_for_prometheus() {
    let world = World::new();
    assert_eq!(world.apply("put\tt\ttext\nadd\tn\t1\n", &[]).status, Some(0));
    let run = world.run("stat", &["--metrics"]);
    assert_eq!((run.status, &*run.errors), (Some(0), ""));
    let value = |name: &str| {
        let line = run.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is missing: {}", run.out)).to_owned()
    };
    assert_eq!(value("upsweep_updates_total"), "0", "nothing in this session");
    assert_eq!(value("upsweep_last_session_updates"), "2");
    assert_eq!(value("upsweep_waiting_entries{place=\"memory\"}"), "2");
    assert_ne!(value("upsweep_last_session_log_write_longest_seconds"), "0");
    assert_eq!(world.run("stat", &["--metrics", "--json"]).status, Some(2));
}

#[test]
fn a_store_that_has_hardly_any_data_has_measured_nothing() {
    let world = World::new();
    let sweep = || {
        let shown = world.ok("stat", &[]);
        let row = shown.lines().find(|line| line.starts_with("  sweep "));
        row.expect("a row").to_owned()
    };
    assert_eq!(world.apply("add\tk\t1\n", &[]).status, Some(0));
    world.ok("sweep", &[]);
    assert!(sweep().contains(" nothing measured "), "{}", sweep());
    let lines: String = (0..15_000).map(|n| format!("add\tkey{n:05}\t1\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    world.ok("sweep", &[]);
    assert!(!sweep().contains("nothing measured"), "{}", sweep());
}

#[test]
fn verify_counts_what_waits_for_tables() {
    let world = World::new();
    let lines: String = (0..5000).map(|n| format!("put\tkey{n:05}\tvalue{n}\n")).collect();
    assert_eq!(world.apply(&lines, &[]).status, Some(0));
    world.ok("sweep", &[]);
    world.ok("clone", &["main", "copy"]);
    world.ok("drop-table", &["main"]);
    assert_eq!(world.apply("put\ta\t1\nput\tkey04000\t2\n", &["--table", "new"]).status, Some(0));
    let json = |command| {
        let said = world.ok(command, &["--json"]);
        let found = said.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        found.collect::<Vec<serde_json::Value>>()
    };
    let waiting = json("tables").iter().map(|table| table["waiting"].as_u64()).sum::<Option<u64>>();
    assert_eq!((waiting, json("verify")[0]["waiting"].as_u64()), (Some(2), Some(2)));
}

#[test]
fn a_table_is_made_for_updates_that_are_applied() {
    let world = World::new();
    refused(&world.apply("ad\tk\t1\n", &["--table", "new"]), "standard input:1: unknown operation");
    let long = format!("add\t{}\t1\n", "k".repeat(5000));
    refused(&world.apply(&long, &["--table", "new"]), "standard input:1: key of 5000 bytes");
    assert_eq!(world.ok("tables", &["--json"]), "");
    let run = world.apply("add\tk\t1\r\n", &["--table", "new"]);
    refused(&run, "is no number from -2^63 to 2^63-1; the line ends in CR LF: convert it to LF");
    assert_eq!(world.ok("tables", &["--json"]), "");
    refused(&world.apply("add\tk\t1\nad\n", &["--table", "new"]), "standard input:2: ");
    assert_eq!(world.ok("get", &["k", "--table", "new"]), "1\n");
}
