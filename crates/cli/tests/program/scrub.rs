//! Damage of the content of volumes, found by `volume scrub`, by `verify` and by a server.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde_json::Value;
use upsweep_volume::Acknowledge;

use super::common::{World, refused};
use super::exports::answer;
use super::serve::Server;
use super::volumes::with_volumes;

/// A store with two volumes and a snapshot of one, of which a block is damaged; also its offset on
/// the device.
fn damaged() -> (World, u64) {
    let world = World::new();
    for name in ["disk", "other"] {
        world.ok("volume create", &[name, "1MiB"]);
    }
    with_volumes(&world, |volumes| {
        for (name, mark) in [("disk", *b"mark-one"), ("other", *b"mark-two")] {
            let volume = volumes.volume(name).expect("there");
            let data = [&[7; 20480][..], &mark.repeat(512), &[7; 40960]].concat();
            volume.write(0, &data, Acknowledge::Durable).expect("written");
        }
    });
    world.ok("volume snapshot", &["disk", "monday"]);
    let path = world.store().join("data-0");
    let content = std::fs::read(&path).expect("readable");
    let at = content.windows(16).position(|bytes| bytes == b"mark-onemark-one").expect("there");
    assert_eq!(world.ok("volume scrub", &[]), "128.0 KiB of volumes: no damage\n");
    assert!(world.ok("verify", &[]).ends_with("\n128.0 KiB of volumes: no damage\n"));
    let file = File::options().write(true).open(&path).expect("writable");
    file.write_all_at(b"M", at as u64 + 1000).expect("written");
    (world, at as u64)
}

/// The line about the damage.
fn line(at: u64) -> String {
    let seen_in = r#"volume "disk", snapshot "monday" of volume "disk""#;
    format!(
        "damage: bytes 20480 to 24575 of {seen_in} on device 0 at offset {at}: checksum mismatch"
    )
}

/// A text without offsets on a device: a server may have moved the block.
fn without_places(text: &str) -> String {
    let mut parts = text.split(" at offset ");
    let first = parts.next().expect("there is one").to_owned();
    let is_digit = |digit: char| digit.is_ascii_digit();
    parts.fold(first, |text, part| text + " somewhere" + part.trim_start_matches(is_digit))
}

#[test]
fn damage_of_a_volume_is_told_by_scrub_and_verify() {
    let (world, at) = damaged();
    let line = line(at);
    let run = world.run("verify", &[]);
    assert_eq!(run.status, Some(1), "{}", run.errors);
    assert!(run.out.contains(": no damage\n"), "{}", run.out);
    let end = format!("\n{line}\n128.0 KiB of volumes: 1 block damaged\n");
    assert!(run.out.ends_with(&end), "{}", run.out);
    let json = world.run("verify", &["--json"]);
    let found: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(found["damage"].as_array().expect("a list").len(), 0);
    let damage = &found["volumes"]["damage"][0];
    assert_eq!((&damage["offset"], &damage["bytes"]), (&20480.into(), &4096.into()));
    assert_eq!((&damage["device"], &damage["device_offset"]), (&0.into(), &at.into()));
    assert_eq!(damage["seen_in"][1]["snapshot"], "monday");
    let without = world.run("volume scrub", &[]);
    let server = Server::with(&world, &["--scrub", "off"]);
    let with = world.run("volume scrub", &[]);
    let expected = format!("{line}\n128.0 KiB of volumes: 1 block damaged\n");
    assert_eq!(without.out, expected);
    for run in [without, with] {
        assert_eq!(run.status, Some(1), "{}", run.errors);
        assert_eq!(without_places(&run.out), without_places(&expected));
        assert_eq!(run.errors, "");
    }
    let json = world.run("volume scrub", &["disk", "--json"]);
    assert_eq!(json.status, Some(1));
    let found: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(found["bytes"], 64 << 10);
    assert_eq!(found["damage"][0]["seen_in"], damage["seen_in"]);
    assert_eq!(world.ok("volume scrub", &["other"]), "64.0 KiB of volumes: no damage\n");
    refused(&world.run("volume scrub", &["none"]), "no volume \"none\"");
    server.stop();
}

#[test]
fn damaged_tables_of_volumes_are_told_by_verify() {
    let world = World::new();
    assert!(!world.ok("verify", &[]).contains("volumes"));
    assert_eq!(world.ok("volume scrub", &[]), "there are no volumes\n");
    world.ok("volume create", &["disk", "1MiB"]);
    let store = upsweep::Store::open(world.store()).expect("opens");
    store.table("volumes/homes").expect("there").put(b"key", b"value").expect("written");
    store.close().expect("closes");
    let run = world.run("verify", &[]);
    assert_eq!(run.status, Some(1), "{}", run.errors);
    assert!(run.out.contains("damage: volumes cannot be checked: the tables"), "{}", run.out);
}

#[test]
fn a_server_finds_damage_in_the_background_and_tells_once() {
    let (world, at) = damaged();
    let mut command = world.command("serve", &["--scrub", "1h", "--metrics", "127.0.0.1:0"]);
    command.stderr(File::create(world.path("errors")).expect("made"));
    let server = Server::of(command);
    let address = server.said.split("http://").nth(1).expect("an address");
    let address = address.split('/').next().expect("an address").to_owned();
    let began = Instant::now();
    let metrics = loop {
        let text = answer(&address, "GET /metrics HTTP/1.1\r\n\r\n");
        if !text.contains("upsweep_volume_scrub_pass_end_timestamp_seconds 0\n") {
            break text;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let bytes = 128 << 10;
    assert!(
        metrics.contains(&format!("\nupsweep_volume_scrub_bytes_total {bytes}\n")),
        "{metrics}"
    );
    assert!(metrics.contains("\nupsweep_volume_scrub_damaged_blocks 1\n"), "{metrics}");
    // Since this server was started; it cleans the segment, of which a small part is needed.
    let has = |name: &str, bytes: i32| {
        metrics.contains(&format!("\nupsweep_volume_{name}_bytes_total {bytes}\n"))
    };
    assert!(has("written", 0) && (has("copied", 0) || has("copied", bytes)), "{metrics}");
    std::thread::sleep(Duration::from_secs(2));
    server.stop();
    let errors = std::fs::read_to_string(world.path("errors")).expect("readable");
    let expected = format!("upsweep: {}\n", line(at));
    assert_eq!(without_places(&errors), without_places(&expected));
    let wrong = world.run("serve", &["--scrub", "0s"]);
    assert!(wrong.errors.contains("give a time such as 30d or 12h"), "{}", wrong.errors);
}
