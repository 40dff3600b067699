//! Volumes as they were: histories, marks, views, rollbacks, differences, space.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use upsweep_volume::{Acknowledge, Error};

use super::common::{World, refused};
use super::volumes::{content, with_volumes, write};

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// A world with a volume that has had two contents, and the moment between them.
fn with_past(history: &str) -> (World, u64) {
    let world = World::new();
    world.ok("volume create", &["disk", "1GiB", "--history", history]);
    let between = with_volumes(&world, |volumes| {
        write(volumes, "disk", "before");
        let between = volumes.moment();
        write(volumes, "disk", "after ");
        between
    });
    (world, between)
}

/// The time that a line ends with, in microseconds since 1970.
fn time_at_end(line: &str) -> u64 {
    let time = line.trim_end().rsplit(' ').next().expect("a word");
    let time: jiff::Timestamp = time.parse().expect("a time");
    u64::try_from(time.as_microsecond()).expect("after 1970")
}

#[test]
fn any_moment_of_a_history_can_be_looked_at() {
    let (world, between) = with_past("1h");
    let given = between.to_string();
    let said = world.ok("volume at", &["disk", &given, "view"]);
    assert!(said.starts_with("made volume \"view\", a view of \"disk\" at 20"), "{said}");
    assert_eq!(time_at_end(&said), between);
    // What was printed can be given.
    let time = said.trim_end().rsplit(' ').next().expect("a time");
    let said = world.ok("volume at", &["disk", time, "copy", "--writable"]);
    assert_eq!(said, format!("made volume \"copy\", a clone of \"disk\" at {time}\n"));
    world.ok("volume clone", &["disk", "other", "--at", time.trim_end_matches('Z')]);
    with_volumes(&world, |volumes| {
        for name in ["view", "copy", "other"] {
            assert_eq!(content(volumes, name), "before", "{name}");
        }
        assert_eq!(content(volumes, "disk"), "after ");
        let refused = volumes.volume("view").expect("there").write(0, b"x", Acknowledge::Written);
        assert_eq!(refused, Err(Error::ReadOnly("view".to_owned())));
        write(volumes, "copy", "copied");
    });
    let list = world.ok("volume list", &["--json"]);
    let view = list.lines().map(json).find(|found| found["volume"] == "view").expect("listed");
    assert_eq!(view["shows_time_us"], between);
}

#[test]
fn moments_may_be_given_from_now_backwards() {
    let (world, _) = with_past("1h");
    std::thread::sleep(Duration::from_millis(1200));
    for (nth, ago) in ["-1s", "1 second ago", "-PT1S"].iter().enumerate() {
        let from = now_us() - 1_000_000;
        let said = world.ok("volume at", &["disk", ago, &format!("was-{nth}")]);
        let found = time_at_end(&said);
        assert!((from..=now_us() - 1_000_000).contains(&found), "{ago}: {said}");
    }
    with_volumes(&world, |volumes| assert_eq!(content(volumes, "was-2"), "after "));
}

#[test]
fn a_volume_is_rolled_back_and_forth() {
    let (world, between) = with_past("1h");
    world.ok("volume snapshot", &["disk", "after"]);
    let before_it = with_volumes(&world, upsweep_volume::Volumes::moment);
    let said = world.ok("volume rollback", &["disk", &between.to_string()]);
    assert!(said.starts_with("volume \"disk\" is again what it was at 20"), "{said}");
    let is = |expected: &str| {
        with_volumes(&world, |volumes| assert_eq!(content(volumes, "disk"), expected));
    };
    is("before");
    world.ok("volume rollback", &["disk", &before_it.to_string()]);
    is("after ");
    world.ok("volume mark", &["disk", "here"]);
    world.ok("volume rollback", &["disk", &between.to_string()]);
    is("before");
    let said = world.ok("volume rollback", &["disk", "@after"]);
    assert_eq!(said, "volume \"disk\" is again what it was in snapshot \"after\"\n");
    is("after ");
    with_volumes(&world, |volumes| write(volumes, "disk", "later "));
    let said = world.ok("volume rollback", &["disk", "mark:here"]);
    assert_eq!(said, "volume \"disk\" is again what it was at mark \"here\"\n");
    is("after ");
    world.ok("verify", &[]);
}

#[test]
fn history_shows_what_can_be_returned_to() {
    let world = World::new();
    world.ok("volume create", &["disk", "1GiB"]);
    let none = "volume \"disk\" keeps no history but its snapshots\n";
    assert_eq!(world.ok("volume history", &["disk"]), none);
    let advice = "`upsweep volume history` lets it keep one from now on";
    refused(&world.run("volume mark", &["disk", "here"]), advice);
    refused(&world.run("volume at", &["disk", "-1s", "was"]), advice);
    world.ok("volume snapshot", &["disk", "monday"]);
    let before = now_us();
    let said = world.ok("volume history", &["disk", "--keep", "7d,100GiB"]);
    let (first, list) = said.split_once("\n\n").expect("a list");
    let told = "volume \"disk\" keeps a history of 168h,100.0GiB, since 20";
    assert!(first.starts_with(told), "{first}");
    assert!((before..=now_us()).contains(&time_at_end(first)), "{first}");
    assert!(list.trim_end().ends_with("  @monday"), "{list}");
    with_volumes(&world, |volumes| write(volumes, "disk", "before"));
    let said = world.ok("volume mark", &["disk", "a mark"]);
    assert_eq!(said, "marked volume \"disk\" as \"a mark\"\n");
    let shown = world.ok("volume history", &["disk"]);
    assert!(shown.trim_end().ends_with("  mark:a mark"), "{shown}");
    let found = json(&world.ok("volume history", &["disk", "--json"]));
    assert_eq!(
        (&found["volume"], &found["history"]["bytes"]),
        (&"disk".into(), &(100_u64 << 30).into())
    );
    assert_eq!(found["history"]["window_us"], 7 * 86_400_000_000_u64);
    let moments = found["moments"].as_array().expect("a list");
    let of = |kind: &str| moments.iter().find(|moment| moment["kind"] == kind).expect("listed");
    assert_eq!(
        (&of("snapshot")["name"], &of("mark")["name"]),
        (&"monday".into(), &"a mark".into())
    );
    assert!(of("snapshot")["written_bytes"].is_null());
    assert!(of("mark")["time_us"].as_u64() > of("snapshot")["time_us"].as_u64());
    let list = world.ok("volume list", &[]);
    assert!(list.contains("writable   168h,100.0GiB  monday\n"), "{list}");
    let said = world.ok("volume history", &["disk", "--keep", "off"]);
    assert!(said.starts_with(none) && said.ends_with("  @monday\n"), "{said}");
    let advice = "has no mark \"a mark\" in its history; `upsweep volume history` lists all marks";
    refused(&world.run("volume rollback", &["disk", "mark:a mark"]), advice);
}

#[test]
fn moments_that_are_not_kept_are_refused() {
    let (world, _) = with_past("1h");
    let run = world.run("volume at", &["disk", "2020-02-29T12:00:00+02:00", "was"]);
    let reason = "2020-02-29T10:00:00.000000Z is not in the history of volume \"disk\", which is \
                  from 20";
    refused(&run, reason);
    refused(&world.run("volume rollback", &["disk", "2 hours ago"]), "is not in the history of");
    refused(&world.run("volume diff", &["disk", "@none"]), "has no snapshot \"none\"");
    refused(
        &world.run("volume clone", &["disk@monday", "was", "--at", "-1s"]),
        "give one moment: disk@monday, or disk with --at",
    );
    let commands: [(&str, &[&str]); 4] = [
        ("volume at", &["disk", "yesterday", "was"]),
        ("volume rollback", &["disk", "10s"]),
        ("volume diff", &["disk", "-1s", "18:03"]),
        ("volume clone", &["disk", "was", "--at", "1 month ago"]),
    ];
    for (command, arguments) in commands {
        let run = world.run(command, arguments);
        assert_eq!(run.status, Some(2));
        assert!(run.errors.contains("give @SNAPSHOT, mark:NAME, a time such as"), "{}", run.errors);
    }
    let run = world.run("volume history", &["disk", "--keep", "some"]);
    assert!(run.errors.contains("give a time such as 24h or 7d"), "{}", run.errors);
}

#[test]
fn volumes_become_larger_and_smaller() {
    let world = World::new();
    world.ok("volume create", &["disk", "1MiB"]);
    with_volumes(&world, |volumes| write(volumes, "disk", "before"));
    world.ok("volume snapshot", &["disk", "large"]);
    assert_eq!(world.ok("volume resize", &["disk", "8KiB"]), "volume \"disk\" has 8.0 KiB now\n");
    assert_eq!(world.ok("volume resize", &["disk", "16KiB"]), "volume \"disk\" has 16.0 KiB now\n");
    world.ok("volume clone", &["disk@large", "copy"]);
    with_volumes(&world, |volumes| {
        assert_eq!(content(volumes, "disk"), "\0\0\0\0\0\0");
        assert_eq!(content(volumes, "copy"), "before");
        assert_eq!(volumes.volume("disk").expect("there").bytes(), Ok(16 << 10));
    });
    refused(
        &world.run("volume resize", &["disk", "1000"]),
        "blocks of 512 bytes is a multiple of that",
    );
    refused(&world.run("volume resize", &["none", "1MiB"]), "no volume \"none\"");
}

#[test]
fn differences_are_ranges_and_their_sum() {
    let world = World::new();
    world.ok("volume create", &["disk", "1MiB", "--history", "1GiB"]);
    world.ok("volume snapshot", &["disk", "empty"]);
    with_volumes(&world, |volumes| {
        write(volumes, "disk", "before");
        let disk = volumes.volume("disk").expect("there");
        disk.write(64 << 10, &[7; 16 << 10], Acknowledge::Durable).expect("written");
    });
    world.ok("volume mark", &["disk", "full"]);
    with_volumes(&world, |volumes| write(volumes, "disk", "after "));
    let lines = |arguments: &[&str]| {
        let said = world.ok("volume diff", arguments);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        said.lines().map(words).collect::<Vec<_>>()
    };
    let all = ["offset bytes", "8192 4096", "65536 16384", "20.0 KiB in 2 ranges"];
    assert_eq!(lines(&["disk", "@empty"]), all);
    assert_eq!(lines(&["disk", "@empty", "mark:full"]), all);
    let later = ["offset bytes", "8192 4096", "4.0 KiB in 1 range"];
    assert_eq!(lines(&["disk", "mark:full"]), later);
    assert_eq!(lines(&["disk", "mark:full", "mark:full"]), ["offset bytes", "0 B in 0 ranges"]);
    let found = world.ok("volume diff", &["disk", "@empty", "--json"]);
    let expected = "{\"bytes\":4096,\"offset\":8192}\n{\"bytes\":16384,\"offset\":65536}\n\
                    {\"changed_bytes\":20480,\"changed_ranges\":2}\n";
    assert_eq!(found, expected);
}

#[test]
fn space_is_own_or_shared_or_of_the_history() {
    let world = World::new();
    assert_eq!(world.ok("volume df", &[]), "there are no volumes\n");
    assert_eq!(json(&world.ok("volume df", &["--json"]))["payload_bytes"], 0);
    world.ok("volume create", &["disk", "1GiB"]);
    let fill = |bytes: usize, byte: u8| {
        with_volumes(&world, |volumes| {
            let disk = volumes.volume("disk").expect("there");
            disk.write(0, &vec![byte; bytes], Acknowledge::Durable).expect("written");
        });
    };
    fill(4 << 20, 1);
    world.ok("volume clone", &["disk", "copy"]);
    fill(3 << 20, 2);
    world.ok("volume snapshot", &["disk", "monday"]);
    fill(2 << 20, 3);
    let said = world.ok("volume df", &[]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = said.lines().map(words).collect();
    assert_eq!(lines[0], "volume size own history shared used quota");
    assert_eq!(lines[1], "copy 1.0 GiB 3.0 MiB 0 B 1.0 MiB 0 B none");
    assert_eq!(lines[2], "disk 1.0 GiB 5.0 MiB 2.0 MiB 1.0 MiB 9.0 MiB none");
    assert!(lines[3].starts_with("all volumes need 9.0 MiB; "), "{said}");
    let found = json(&world.ok("volume df", &["--json"]));
    assert_eq!(
        (&found["payload_bytes"], &found["volumes"][1]["own_bytes"]),
        (&(9 << 20).into(), &(5 << 20).into())
    );
    world.ok("volume delete", &["disk@monday"]);
    let found = json(&world.ok("volume df", &["--json"]));
    assert_eq!(
        (&found["payload_bytes"], &found["volumes"][1]["history_bytes"]),
        (&(7 << 20).into(), &0.into())
    );
}
