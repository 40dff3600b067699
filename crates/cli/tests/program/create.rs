//! What `create` makes, what it refuses, and that nothing is left behind then.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::common::{Run, World, refused, text, upsweep};

/// The names of all that is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.expect("readable"))).collect()
}

/// A `create` that must be refused with `message` and leave nothing behind.
fn refuses(world: &World, arguments: &[&str], message: &str) {
    let before = names(&world.path(""));
    refused(&world.run("create", arguments), message);
    assert_eq!(names(&world.path("")), before);
}

#[test]
fn paths_must_be_text() {
    let world = World::empty();
    let folder = world.path("").join(OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&folder).expect("made");
    for flag in ["--data", "--log"] {
        for (place, given) in [(world.path(""), &b"x\xfe"[..]), (folder.clone(), b"x")] {
            let mut command = upsweep(&["create", "store", flag]);
            command.arg(OsStr::from_bytes(given)).current_dir(&place);
            let run: Run = command.output().expect("the program runs").into();
            refused(&run, "not UTF-8");
            assert!(run.errors.contains("/x"), "{}", run.errors);
            assert_eq!(names(&folder), [""; 0]);
            assert_eq!(names(&world.path("")).len(), 1);
        }
    }
    // A store inside such a folder names no path.
    let mut command = upsweep(&["create", "store", "--log-size", "1MiB"]);
    let run: Run = command.current_dir(&folder).output().expect("the program runs").into();
    assert_eq!(run.status, Some(0), "{}", run.errors);
}

#[test]
fn only_the_last_folder_is_made() {
    let world = World::empty();
    let run: Run = upsweep(&["create", &text(&world.path("p/q/r"))]).output().expect("runs").into();
    refused(&run, "p/q: no such folder; make it first");
    let data = text(&world.path("p/data"));
    refuses(&world, &["--data", &data], "p: no such folder; make it first");
    assert_eq!(names(&world.path("")), [""; 0]);
    let file = world.file("file", "");
    let run: Run = upsweep(&["create", &format!("{file}/store")]).output().expect("runs").into();
    refused(&run, "file: not a folder; name one");
}

#[test]
fn every_device_has_a_path_of_its_own() {
    let world = World::empty();
    let (x, same) = (text(&world.path("x")), text(&world.path("./y/../x")));
    std::fs::create_dir(world.path("y")).expect("made");
    refuses(&world, &["--data", &x, "--data", &x], "x: given twice");
    refuses(&world, &["--log", &x, "--log", &same], "x: given twice");
    refuses(&world, &["--data", &x, "--log", &x], "x: given twice");
    let inside = text(&world.store().join("data-0"));
    refuses(&world, &["--log", &inside], "data-0: given twice");
    let file = world.file("file", "precious");
    refuses(&world, &["--data", &file], "name a new file, or a raw block device");
    refuses(&world, &["--log", &file], "file exists already; nothing was changed");
    let folder = text(&world.path("y"));
    refuses(&world, &["--data", &folder], "neither a file nor a block device");
    assert_eq!(std::fs::read(&file).expect("readable"), b"precious");
}

#[test]
fn numbers_out_of_range_are_refused_with_their_range() {
    let world = World::empty();
    refuses(&world, &["--log-size", "16EiB"], "--log-size: 18446744073709551615 bytes; ");
    refuses(&world, &["--log-size", "16TiB"], "give 1MiB to below 16TiB");
    refuses(&world, &["--log-size", "1"], "give 1MiB to below 16TiB");
    let block = ["--log-size", "1MiB", "--block-size", "4097"];
    refuses(&world, &block, "--block-size: 4097 bytes; give 4KiB to 1MiB");
    let paths: Vec<String> = (0..9).map(|n| text(&world.path(&format!("log{n}")))).collect();
    let logs: Vec<&str> = paths.iter().flat_map(|path| ["--log", path.as_str()]).collect();
    refuses(&world, &logs, "--log: 9 devices; give 1 to 8");
}

#[test]
fn what_a_killed_creation_leaves_is_no_riddle() {
    let world = World::empty();
    std::fs::create_dir(world.store()).expect("made");
    std::fs::write(world.store().join("log-0"), "").expect("written");
    refused(&world.run("stat", &[]), "no store at");
    let words = "store is not empty and has no store.json: left by a creation that was \
                 interrupted, or something else; look at it, remove it, then try again";
    refuses(&world, &[], words);
}

#[test]
fn a_new_store_takes_little_space() {
    const MIB: u64 = 1 << 20;
    let world = World::empty();
    let made = world.ok("create", &[]);
    assert!(made.ends_with("a log of 64.0 MiB that may become 512.0 MiB\n"), "{made}");
    let files = std::fs::read_dir(world.store()).expect("a folder");
    let blocks = |file: std::fs::DirEntry| file.metadata().expect("a file").blocks();
    let bytes: u64 = files.map(|file| 512 * blocks(file.expect("readable"))).sum();
    assert!(bytes < 96 * MIB, "{bytes} bytes; it took 529 MB");
}
