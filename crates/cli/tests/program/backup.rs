//! `backup` and `restore`: equal stores, increments, and what users are told.

use super::common::{Run, World, refused, text, upsweep};

/// Restores a backup of the world, which must end well.
fn restore(world: &World, backup: &str, store: &str, more: &[&str]) -> Run {
    let (backup, store) = (text(&world.path(backup)), text(&world.path(store)));
    let mut arguments = vec!["restore", &*backup, &*store];
    arguments.extend_from_slice(more);
    upsweep(&arguments).output().expect("the program runs").into()
}

fn dump(world: &World, store: &str, table: &str) -> String {
    let run: Run = upsweep(&["dump", &text(&world.path(store)), "--table", table])
        .output()
        .expect("the program runs")
        .into();
    assert_eq!(run.status, Some(0), "{}", run.errors);
    run.out
}

#[test]
fn increments_are_restored_to_equal_stores() {
    let world = World::new();
    let lines: String = (0..3000).map(|n| format!("add\tkey{n:04}\t{n}\n")).collect();
    world.apply(&lines, &[]);
    world.apply("put\tk\tline\\none\n", &["--table", "other"]);
    let [monday, tuesday] = ["monday", "tuesday"].map(|name| text(&world.path(name)));
    let said = world.ok("backup", &[&monday, "--snapshot", "monday"]);
    let begin = format!("backed up 2 structures with 3,001 records to {monday}: wrote all of them");
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with("kept snapshot \"monday\" for increments on this backup\n"), "{said}");
    world.apply("delete\tkey0001\nadd\tkey0002\t5\nput\tnew\tvalue\n", &[]);
    let increment = ["--since", &*monday, "--snapshot", "tuesday", "--json"];
    let said = world.ok("backup", &[&[&*tuesday], &increment[..]].concat());
    let summary: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&summary["puts"], &summary["deletions"]), (&2.into(), &1.into()));
    assert_eq!((&summary["records"], &summary["left_out"]), (&3001.into(), &serde_json::json!([])));
    assert_eq!(summary["dropped_snapshot"], "monday");
    let run = restore(&world, "tuesday", "copy", &[]);
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    assert!(run.out.starts_with("restored 2 structures with 3,001 records to "), "{}", run.out);
    assert!(run.out.contains(" of 2 backups in "), "{}", run.out);
    for table in ["main", "other"] {
        assert_eq!(dump(&world, "copy", table), dump(&world, "store", table));
    }
    let run = restore(&world, "monday", "earlier", &["--json"]);
    let summary: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&summary["records"], &summary["backups"]), (&3001.into(), &1.into()));
    assert!(dump(&world, "earlier", "main").contains("key0001\t1\ti64\n"));
}

#[test]
fn what_cannot_be_done_is_said_and_leaves_nothing() {
    let world = World::new();
    world.apply("add\tk\t1\n", &[]);
    let [backup, next] = ["backup", "next"].map(|name| text(&world.path(name)));
    world.ok("backup", &[&backup]);
    refused(&world.run("backup", &[&backup]), "backup exists already; nothing was changed; name a");
    refused(&world.run("backup", &[&next, "--since", &backup]), "no snapshot was kept for it");
    refused(&world.run("backup", &[&next, "--since", &next]), "next: there is no such folder");
    let inside = text(&world.store().join("b"));
    refused(&world.run("backup", &[&inside]), "store/b lies inside the store; name a folder");
    let store = text(&world.store());
    refused(&world.run("backup", &[&store]), "store lies inside the store; name a folder");
    let nowhere = text(&world.path("nodir/b"));
    refused(&world.run("backup", &[&nowhere]), "nodir: no such folder; make it first");
    refused(&world.run("backup", &[&next, "--snapshot", ""]), "cannot name a snapshot");
    assert!(!world.path("next").exists());
    refused(&restore(&world, "backup", "store", &[]), "store exists already");
    refused(&restore(&world, "next", "copy", &[]), "next: there is no such folder");
    refused(&restore(&world, "backup", "nodir/copy", &[]), "nodir: no such folder; make it first");
    refused(&restore(&world, "store", "copy", &[]), "store: there is no whole backup");
    let file = world.path("backup").join("0001.frames");
    let mut bytes = std::fs::read(&file).expect("readable");
    *bytes.last_mut().expect("a byte") ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let run = restore(&world, "backup", "copy", &[]);
    assert_eq!(run.status, Some(1), "{}", run.errors);
    let reason = "0001.frames at offset 0: checksum mismatch; use another copy of the backup\n";
    assert!(run.errors.starts_with("upsweep: damaged: "), "{}", run.errors);
    assert!(run.errors.ends_with(reason), "{}", run.errors);
    assert!(!world.path("copy").exists() && !world.path("copy.restoring").exists());
}

#[test]
fn what_a_killed_backup_leaves_is_named_at_once() {
    let world = World::new();
    world.apply("add\tk\t1\n", &[]);
    let folder = text(&world.path("left"));
    std::fs::create_dir(&folder).expect("made");
    let left = "left has no manifest: if a backup that was interrupted has left it, remove it";
    refused(&world.run("backup", &[&folder]), left);
    world.ok("snapshot create", &["kb"]);
    let run = world.run("backup", &[&folder, "--snapshot", "kb"]);
    refused(&run, left);
    let drop = format!("`upsweep snapshot drop {} kb`", text(&world.store()));
    refused(&run, &format!("; there is a snapshot \"kb\" already: {drop} drops it"));
    let file = world.file("left/notes", "precious");
    refused(&world.run("backup", &[&folder]), "left exists already; nothing was changed; name a");
    std::fs::remove_file(file).expect("removed");
    std::fs::remove_dir(&folder).expect("removed");
    refused(&world.run("backup", &[&folder, "--snapshot", "kb"]), &drop);
    world.ok("snapshot drop", &["kb"]);
    world.ok("backup", &[&folder, "--snapshot", "kb"]);
    let [next, third] = ["next", "third"].map(|name| text(&world.path(name)));
    world.ok("backup", &[&next, "--since", &folder, "--snapshot", "kc"]);
    let run = world.run("backup", &[&third, "--since", &folder]);
    refused(
        &run,
        "is no longer in the store: make a full backup, or one since the backup that took",
    );
}
