//! Profiles of devices: how they are measured, shown and used.

use super::common::{Run, World, refused, text, upsweep};

/// Runs `upsweep device` in the folder of a world.
fn device(world: &World, arguments: &[&str]) -> Run {
    let mut command = upsweep(&["device"]);
    command.args(arguments).current_dir(world.path(""));
    command.output().expect("the program runs").into()
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.path(name)).expect("readable")
}

#[test]
fn what_is_measured_is_written_shown_and_used() {
    let world = World::empty();
    let run = device(&world, &["profile", ".", "--short", "--svg", "disk.svg"]);
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    assert!(run.out.contains("  reads ") && run.out.contains("  durable writes "), "{}", run.out);
    let (shown, written) = run.out.trim_end().rsplit_once('\n').expect("lines");
    assert_eq!(written, "written to profile.toml");
    assert!(read(&world, "profile.toml").contains("\n[profile.writes]\n"));
    assert!(read(&world, "disk.svg").contains("In sequence, four in flight"));
    let left = std::fs::read_dir(world.path("")).expect("a folder").count();
    assert_eq!(left, 2, "nothing else is left");
    assert_eq!(device(&world, &["show", "profile.toml"]).out.trim_end(), shown);
    let json: serde_json::Value =
        serde_json::from_str(&device(&world, &["show", "profile.toml", "--json"]).out)
            .expect("JSON");
    assert!(json[0]["curve"].as_array().is_some_and(|curves| curves.len() == 5), "{json}");
    // A store may be told what its devices do.
    let edited = read(&world, "profile.toml").replace("small_us = ", "small_us = 777");
    let edited = world.file("edited.toml", &edited);
    assert_eq!(world.run("create", &["--log-size", "4MiB", "--profile", &edited]).status, Some(0));
    assert!(read(&world, "store/profile.toml").contains("small_us = 777"));
    assert!(read(&world, "store/store.json").contains("\"random_read_us\": 777"));
}

#[test]
fn content_is_overwritten_only_if_that_is_said() {
    let world = World::empty();
    let content = "x".repeat(4 << 20);
    let file = world.file("file", &content);
    let run = device(&world, &["profile", &file, "--short"]);
    refused(&run, "file has data, which measuring would overwrite; --read-only measures without");
    let run = device(&world, &["profile", &file, "--short", "--read-only", "--output", "r.toml"]);
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    assert!(run.out.contains("  writes            not measured\n"), "{}", run.out);
    assert_eq!(read(&world, "file"), content);
    let run = world.run("create", &["--profile", &text(&world.path("r.toml"))]);
    refused(&run, "profile: it has no writes; give one that was measured with writes");
    assert!(!world.store().exists());
    let run = device(&world, &["profile", &file, "--short", "--overwrite", "--output", "w.toml"]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert_ne!(std::fs::read(&file).expect("readable"), content.as_bytes());
}

#[test]
fn a_store_is_measured_beside_its_data() {
    let world = World::new();
    let record = world.file("updates", "put\tkey\tvalue\n");
    assert_eq!(world.run("apply", &[&record]).status, Some(0));
    let before = read(&world, "store/store.json");
    let run = world.run("device profile", &["--short"]);
    assert_eq!((run.status, run.errors.as_str()), (Some(0), ""));
    assert!(run.out.ends_with("store/profile.toml\n"), "{}", run.out);
    assert!(read(&world, "store/profile.toml").contains("devices = [1, 0]\n"));
    assert_eq!(read(&world, "store/store.json"), before);
    let run = world.run("device profile", &["--short", "--read-only"]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    let kept = read(&world, "store/profile.toml");
    assert!(kept.contains("[profile.writes]"), "what is known of writes is kept: {kept}");
    assert_eq!(world.run("get", &["key"]).out, "value\n");
    assert_eq!(world.run("verify", &[]).status, Some(0));
}

#[test]
fn tracks_are_searched_on_raw_devices_only() {
    let world = World::new();
    let why = "a search for tracks takes a raw device, because files need not be contiguous, and";
    world.file("file", &"x".repeat(2 << 20));
    for path in ["file", ".", "new"] {
        let run = device(&world, &["profile", path, "--short", "--tracks", "--overwrite"]);
        refused(&run, &format!("{path}: {why} it is none"));
    }
    let run = world.run("device profile", &["--short", "--tracks", "--read-only"]);
    refused(&run, &format!("{why} none of its data devices is one"));
    let help = upsweep(&["device", "profile", "--help"]).output().expect("the program runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("`profile.tracks`: if it is interrupted, the same command"), "{help}");
    assert!(!world.path("profile.toml").exists() && !world.path("profile.tracks").exists());
}

#[test]
fn what_was_not_found_is_said() {
    let world = World::empty();
    let run = device(&world, &["profile", ".", "--short"]);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    let tracks = |tracks: &str| {
        let profile = read(&world, "profile.toml");
        world.file("edited.toml", &format!("{profile}\n[profile.tracks]\n{tracks}"));
        device(&world, &["show", "edited.toml"]).out
    };
    let none = tracks("turn_ns = 0\nstretches = []\n");
    assert!(none.contains("  tracks            no boundary found: the times of reads"), "{none}");
    let some = "turn_ns = 6000000\n[profile.tracks.check]\nlooked_at = 160\nconfirmed = 158\n\
        [[profile.tracks.stretches]]\noffset = 0\ntrack_bytes = 100000\ntracks = 1234\n";
    let some = tracks(some);
    assert!(some.contains("  tracks            1,234, 98.1 % of them right by a second"), "{some}");
}

#[test]
fn what_cannot_be_measured_or_read_is_named() {
    let world = World::empty();
    refused(&device(&world, &["profile", "a/b"]), "a: no such folder; make it first");
    world.file("small", "data");
    let run = device(&world, &["profile", "small", "--read-only"]);
    refused(&run, "small: too small to be measured; it needs at least 1MiB");
    let run = device(&world, &["profile", ".", "--read-only"]);
    refused(&run, "there is nothing to read");
    world.file("profile.toml", "format = 1\nprofile = 3\n");
    let run = device(&world, &["profile", "new", "--short"]);
    refused(&run, "profile.toml is there already; name another file with --output");
    let run = device(&world, &["show", "profile.toml"]);
    assert_eq!(run.status, Some(2));
    assert!(run.errors.contains("profile.toml: TOML parse error at line 2"), "{}", run.errors);
}
