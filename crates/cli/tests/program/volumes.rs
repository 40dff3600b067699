//! Volumes, with and without a server.

use upsweep::Store;
use upsweep_volume::{Acknowledge, Volumes};

use super::common::{Run, World, refused};
use super::serve::Server;

/// Opens the volumes of a store that nobody has open.
pub fn with_volumes<T>(world: &World, act: impl FnOnce(&Volumes) -> T) -> T {
    let store = Store::open(world.store()).expect("opens");
    let volumes = Volumes::open(&store).expect("volumes");
    let result = act(&volumes);
    drop(volumes);
    store.close().expect("closes");
    result
}

/// What [`write`] has written.
pub fn content(volumes: &Volumes, name: &str) -> String {
    let mut found = vec![0; 6];
    volumes.volume(name).expect("there").read(8192, &mut found).expect("readable");
    String::from_utf8(found).expect("text")
}

/// Writes 6 bytes of text.
pub fn write(volumes: &Volumes, name: &str, text: &str) {
    let volume = volumes.volume(name).expect("there");
    volume.write(8192, text.as_bytes(), Acknowledge::Durable).expect("written");
}

#[test]
fn a_backup_says_that_it_lacks_the_content_of_volumes() {
    let world = World::new();
    world.ok("volume create", &["disk", "1MiB"]);
    with_volumes(&world, |volumes| write(volumes, "disk", "before"));
    let backup = world.path("backup");
    let run = world.run("backup", &[backup.to_str().expect("text")]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert!(run.errors.starts_with("warning: the content of volumes ("), "{}", run.errors);
}

#[test]
fn commands_for_tables_do_not_change_those_of_volumes() {
    let world = World::new();
    world.ok("volume create", &["disk", "1MiB"]);
    with_volumes(&world, |volumes| write(volumes, "disk", "before"));
    let lines = world.file("lines", "put\tk\tv\n");
    for table in ["volumes/map", "volumes/catalog", "volumes/homes", "volumes/new"] {
        for (command, arguments, verb) in [
            ("apply", &["--table", table, &lines][..], "upsweep serve"),
            ("load", &["--table", table, &lines], "upsweep serve"),
            ("create-table", &[table], "upsweep volume create"),
            ("drop-table", &[table], "upsweep volume delete"),
            ("remove-range", &["--all", "--table", table], "upsweep volume delete"),
            ("clone", &["volumes/map", table], "upsweep volume clone"),
        ] {
            let run = world.run(command, arguments);
            let is_table = format!("{table:?} is a table of the volumes of a store");
            refused(&run, &is_table);
            refused(&run, &format!("`{verb}`"));
            refused(&run, "nothing was changed");
        }
    }
    assert!(world.ok("scan", &["--table", "volumes/catalog"]).contains("volume/"));
    world.ok("compact", &["--table", "volumes/map"]);
    assert!(!world.ok("tables", &[]).contains("volumes/new"));
    with_volumes(&world, |volumes| assert_eq!(content(volumes, "disk"), "before"));
}

#[test]
fn volumes_are_made_cloned_renamed_and_deleted() {
    let world = World::new();
    assert_eq!(world.ok("volume list", &[]), "there are no volumes\n");
    assert!(!world.ok("tables", &[]).contains("volumes/"), "asking makes nothing");
    let made = world.ok("volume create", &["disk", "10GiB"]);
    assert_eq!(made, "made volume \"disk\" of 10.0 GiB\n");
    with_volumes(&world, |volumes| write(volumes, "disk", "before"));
    let taken = world.ok("volume snapshot", &["disk", "monday"]);
    assert_eq!(taken, "made snapshot \"monday\" of volume \"disk\"\n");
    with_volumes(&world, |volumes| write(volumes, "disk", "after "));
    let cloned = world.ok("volume clone", &["disk@monday", "was"]);
    assert_eq!(cloned, "made volume \"was\", a clone of \"disk\" in snapshot \"monday\"\n");
    world.ok("volume clone", &["disk", "is"]);
    let renamed = world.ok("volume rename", &["is", "copy"]);
    assert_eq!(renamed, "renamed volume \"is\" to \"copy\"\n");
    with_volumes(&world, |volumes| {
        assert_eq!(content(volumes, "was"), "before");
        assert_eq!(content(volumes, "copy"), "after ");
        assert_eq!(content(volumes, "disk"), "after ");
    });
    let expected = "volume          size  block  access     history  snapshots\n\
                    copy        10.0 GiB    512  writable   off\n\
                    disk        10.0 GiB    512  writable   off      monday\n\
                    was         10.0 GiB    512  writable   off\n";
    assert_eq!(world.ok("volume list", &[]), expected);
    let json = world.ok("volume list", &["--json"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[1]["volume"], &lines[1]["bytes"]), (&"disk".into(), &(10u64 << 30).into()));
    assert_eq!(lines[1]["snapshots"][0]["snapshot"], "monday");
    assert_eq!(lines[1]["block_bytes"], 512);
    assert!(lines[1]["snapshots"][0]["time_us"].as_u64().expect("a time") > 1 << 50);
    assert!(lines[1]["shows_time_us"].is_null() && lines[1]["history"].is_null());
    let deleted = world.ok("volume delete", &["disk@monday"]);
    assert_eq!(deleted, "deleted snapshot \"monday\" of volume \"disk\"\n");
    assert_eq!(world.ok("volume delete", &["disk"]), "deleted volume \"disk\"\n");
    assert_eq!(world.ok("volume list", &[]).lines().count(), 3);
    with_volumes(&world, |volumes| assert_eq!(content(volumes, "was"), "before"));
    world.ok("verify", &[]);
}

#[test]
fn a_deleted_volume_gives_its_space_back() {
    let world = World::new();
    world.ok("volume create", &["disk", "1GiB"]);
    with_volumes(&world, |volumes| {
        let disk = volumes.volume("disk").expect("there");
        disk.write(0, &vec![7; 16 << 20], Acknowledge::Durable).expect("written");
    });
    let reserved = || {
        let status = world.ok("stat", &["--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["reserved_bytes"].as_u64().expect("a number")
    };
    assert!(reserved() >= 16 << 20);
    world.ok("volume delete", &["disk"]);
    assert!(reserved() < 8 << 20, "{}", reserved());
}

#[test]
fn a_server_gives_space_back_in_the_background() {
    let world = World::new();
    world.ok("volume create", &["disk", "1GiB"]);
    with_volumes(&world, |volumes| {
        let disk = volumes.volume("disk").expect("there");
        disk.write(0, &vec![7; 16 << 20], Acknowledge::Durable).expect("written");
    });
    let server = Server::start(&world);
    world.ok("volume delete", &["disk"]);
    let began = std::time::Instant::now();
    loop {
        let status = world.ok("stat", &["--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let reserved = status["reserved_bytes"].as_u64().expect("a number");
        if reserved < 8 << 20 {
            break;
        }
        assert!(began.elapsed().as_secs() < 20, "{reserved} bytes are reserved");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.stop();
}

#[test]
fn commands_on_volumes_are_the_same_with_a_server() {
    let steps: &[(&str, &[&str])] = &[
        ("volume list", &[]),
        ("volume delete", &["none"]),
        ("volume create", &["disk", "1GiB"]),
        ("volume create", &["disk", "2GiB"]),
        ("volume create", &["odd", "4097"]),
        ("volume create", &["a@b", "1GiB"]),
        ("volume create", &["large", "4608", "--block-size", "4KiB"]),
        ("volume create", &["large", "1MiB", "--block-size", "4KiB"]),
        ("volume create", &["journal", "64MiB"]),
        ("volume snapshot", &["disk", "monday", "--with", "journal"]),
        ("volume snapshot", &["disk", "monday"]),
        ("volume snapshot", &["disk", "tuesday", "--with", "none"]),
        ("volume clone", &["disk@monday", "trial"]),
        ("volume clone", &["disk@sunday", "other"]),
        ("volume clone", &["disk", "trial"]),
        ("volume create", &["kept", "1MiB", "--history", "1h"]),
        ("volume mark", &["kept", "here"]),
        ("volume mark", &["kept", "here"]),
        ("volume mark", &["disk", "here"]),
        ("volume at", &["kept", "mark:here", "view"]),
        ("volume at", &["kept", "mark:none", "other"]),
        ("volume at", &["kept", "now", "other"]),
        ("volume at", &["disk", "@monday", "copy", "--writable"]),
        ("volume clone", &["kept", "other", "--at", "mark:here"]),
        ("volume resize", &["kept", "2MiB"]),
        ("volume resize", &["view", "2MiB"]),
        ("volume diff", &["kept", "mark:here"]),
        ("volume rollback", &["kept", "mark:here"]),
        ("volume rollback", &["disk", "@monday"]),
        ("volume rollback", &["disk", "-1s"]),
        ("volume history", &["copy"]),
        ("volume history", &["kept", "--keep", "off"]),
        ("volume df", &["--json"]),
        ("volume set", &["disk", "--iops", "5", "--allow", "uid:1,10.0.0.0/8"]),
        ("volume set", &["none", "--iops", "5"]),
        ("volume set", &["disk"]),
        ("volume scrub", &[]),
        ("volume scrub", &["kept", "--json"]),
        ("volume scrub", &["none"]),
        ("volume rename", &["trial", "disk"]),
        ("volume rename", &["trial", "final"]),
        ("volume list", &[]),
        ("volume delete", &["journal@monday"]),
        ("volume delete", &["journal@monday"]),
        ("volume delete", &["disk"]),
        ("volume list", &[]),
    ];
    let (with, without) = (World::new(), World::new());
    let server = Server::start(&with);
    for (command, arguments) in steps {
        let of = |run: Run| (run.status, run.out, run.errors);
        let [found, expected] = [&with, &without].map(|world| of(world.run(command, arguments)));
        assert_eq!(found, expected, "{command} {arguments:?}");
    }
    server.stop();
    assert_eq!(with.ok("volume list", &[]), without.ok("volume list", &[]));
}

#[test]
fn a_snapshot_of_several_volumes_is_of_all_or_none() {
    let world = World::new();
    for name in ["database", "journal"] {
        world.ok("volume create", &[name, "1GiB"]);
    }
    let run = world.run("volume snapshot", &["database", "monday", "--with", "none"]);
    refused(&run, "no volume \"none\"; `upsweep volume list` shows what there is");
    assert!(!world.ok("volume list", &[]).contains("monday"));
    let taken = world
        .ok("volume snapshot", &["database", "monday", "--with", "journal", "--with", "journal"]);
    assert_eq!(taken, "made snapshot \"monday\" of 2 volumes\n");
    let json = world.ok("volume list", &["--json"]);
    let times: Vec<u64> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|volume| volume["snapshots"][0]["time_us"].as_u64().expect("a time"))
        .collect();
    assert_eq!(times[0], times[1]);
}

#[test]
fn settings_are_set_and_shown() {
    let world = World::new();
    for name in ["disk", "other"] {
        world.ok("volume create", &[name, "1GiB"]);
    }
    world.ok("volume snapshot", &["disk", "monday"]);
    assert!(!world.ok("volume list", &[]).contains("settings"));
    let said = world.ok("volume set", &["disk", "--iops", "1500", "--bytes-per-second", "1MiB"]);
    assert_eq!(said, "volume \"disk\": 1,500/s, 1.0 MiB/s\n");
    let said = world.ok("volume set", &["other", "--quota", "1.5GiB"]);
    assert_eq!(said, "volume \"other\": quota 1.5 GiB\n");
    let said = world.ok("volume set", &["disk", "--allow", "uid:1", "--allow", "10.0.0.0/8"]);
    assert_eq!(said, "volume \"disk\": 1,500/s, 1.0 MiB/s, for uid:1,10.0.0.0/8\n");
    let said =
        world.ok("volume set", &["disk", "--bytes-per-second", "none", "--read-only", "yes"]);
    assert_eq!(said, "volume \"disk\": 1,500/s, for uid:1,10.0.0.0/8, read-only\n");
    let expected = "volume          size  block  access     history  \
         settings                       snapshots\n\
         disk         1.0 GiB    512  read-only  off      1,500/s, for uid:1,10.0.0.0/8  monday\n\
         other        1.0 GiB    512  writable   off      quota 1.5 GiB\n";
    assert_eq!(world.ok("volume list", &[]), expected);
    let json = world.ok("volume list", &["--json"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let settings = serde_json::json!({
        "iops": 1500, "bytes_per_second": null, "quota_bytes": null,
        "allow": ["uid:1", "10.0.0.0/8"], "read_only": true,
    });
    assert_eq!(lines[0]["settings"], settings);
    assert!(lines[1]["settings"]["allow"].is_null());
    assert_eq!(lines[1]["settings"]["quota_bytes"], 3_u64 << 29);
    assert_eq!(
        world.ok("volume set", &["other", "--quota", "none"]),
        "volume \"other\": no limits, for all clients\n"
    );
    let none =
        ["disk", "--iops", "none", "--allow", "uid:1", "--allow", "all", "--read-only", "no"];
    let said = world.ok("volume set", &none);
    assert_eq!(said, "volume \"disk\": no limits, for all clients\n");
    for (arguments, message) in [
        (&["disk", "--iops", "0"][..], "such as 100MiB, or none"),
        (&["disk", "--quota", "much"], "such as 100MiB, or none"),
        (&["disk", "--allow", "uid:1,somebody"], "\"somebody\" is none of an address"),
        (&["disk", "--read-only", "maybe"], "give yes or no"),
        (&["disk"], "required"),
    ] {
        let run = world.run("volume set", arguments);
        assert!(run.status == Some(2) && run.errors.contains(message), "{}", run.errors);
    }
}

#[test]
fn wrong_names_and_sizes_are_refused() {
    let world = World::new();
    refused(
        &world.run("volume create", &["disk", "4097"]),
        "blocks of 512 bytes is a multiple of that",
    );
    let large = ["disk", "4608", "--block-size", "4096"];
    refused(&world.run("volume create", &large), "blocks of 4096 bytes is a multiple of that");
    let run = world.run("volume create", &["disk", "1MiB", "--block-size", "1024"]);
    assert!(run.errors.contains("give 512 or 4096"), "{}", run.errors);
    refused(&world.run("volume create", &["a/b", "1GiB"]), "neither '/' nor '@'");
    world.ok("volume create", &["disk", "1GiB"]);
    let run = world.run("volume delete", &["disk@monday"]);
    let advice = "`upsweep volume list` lists all snapshots";
    refused(&run, &format!("volume \"disk\" has no snapshot \"monday\"; {advice}"));
    refused(&world.run("volume create", &["disk", "1GiB"]), "exists already");
    let run = world.run("volume clone", &["disk@", "copy"]);
    assert!(run.errors.contains("give VOLUME or VOLUME@SNAPSHOT"), "{}", run.errors);
}
