//! Backups and restores through the public interface: consistent, incremental, and never half.

#![expect(clippy::disallowed_methods, reason = "backups are files, and others write meanwhile")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upsweep::layers::structures::modifiers::{PUT, value_operand};
use upsweep::{
    BackupOptions, Cell, CopyProgress, CreateOptions, Durability, Error, Kind, RequestError,
    RestoreOptions, Snapshot, Store, Table, Value, ValueKind,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A cell that is no number.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Place([u8; 5]);

impl Cell for Place {}

/// What each structure holds, cells of arrays as text.
type Content = BTreeMap<(String, String), BTreeMap<Vec<u8>, Value>>;

fn content(snapshot: &Snapshot) -> Content {
    fn cells<T: Cell>(snapshot: &Snapshot, name: &str) -> BTreeMap<Vec<u8>, Value> {
        let array = snapshot.array::<T>(name).expect("an array");
        let cells = array.iter(..).map(|cell| cell.expect("readable"));
        cells
            .map(|(index, cell)| {
                let value = Value { kind: ValueKind::Bytes, bytes: cell.encode() };
                (index.to_be_bytes().to_vec(), value)
            })
            .collect()
    }
    let of = |(name, kind): (String, Kind)| {
        let records = match kind.format() {
            "table" => {
                let table = snapshot.table(&name).expect("a table");
                table.iter().map(|record| record.expect("readable")).collect()
            }
            "hash" => {
                let table = snapshot.hash_table(&name).expect("a hash table");
                table.iter().map(|record| record.expect("readable")).collect()
            }
            "array:u8" => cells::<u8>(snapshot, &name),
            "array:i64" => cells::<i64>(snapshot, &name),
            "array:f64" => cells::<f64>(snapshot, &name),
            "array:bytes5" => cells::<Place>(snapshot, &name),
            other => panic!("no such structure in these tests: {other}"),
        };
        ((name, kind.to_string()), records)
    };
    let all = snapshot.structures().into_iter();
    all.filter(|(_, kind)| kind.is_registered()).map(of).collect()
}

fn now(store: &Store) -> Content {
    content(&store.snapshot().expect("made"))
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn value(&mut self) -> Value {
        let kinds = [ValueKind::Bytes, ValueKind::I64, ValueKind::U64, ValueKind::F64];
        let kind = kinds[self.below(4) as usize];
        let length = match (kind, self.below(300)) {
            (ValueKind::Bytes, 0) => 30_000,
            (ValueKind::Bytes, length) => length % 40,
            _ => 8,
        };
        let bytes = (0..length).map(|_| self.below(250) as u8).collect();
        Value { kind, bytes }
    }

    fn key(&mut self, keys: u64) -> Vec<u8> {
        format!("key {}", self.below(keys)).into_bytes()
    }
}

/// A folder with a store in it.
struct World {
    folder: tempfile::TempDir,
    store: Store,
}

fn options(log_bytes: u64) -> CreateOptions {
    CreateOptions::default().log_bytes(log_bytes).block_bytes(4096)
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let builder = Store::builder().memory_bytes(64 << 20);
        let store = builder.create(folder.path().join("store"), &options(16 << 20));
        Self { store: store.expect("a store"), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Random updates of structures of all kinds.
    fn change(&self, numbers: &mut Numbers, count: u64, keys: u64) {
        let later = Durability::Relaxed;
        let words = self.store.table("words").expect("a table").with_durability(later);
        let hashed = self.store.hash_table("hashed").expect("a table").with_durability(later);
        let small = self.store.array::<u8>("small").expect("an array").with_durability(later);
        let sums = self.store.array::<i64>("sums").expect("an array").with_durability(later);
        let floats = self.store.array::<f64>("floats").expect("an array").with_durability(later);
        let places = self.store.array::<Place>("places").expect("an array").with_durability(later);
        for _ in 0..count {
            let key = numbers.key(keys);
            let index = numbers.below(keys) * 7_000;
            let value = numbers.value();
            let operand = value_operand(value.kind, &value.bytes);
            let byte = numbers.below(256) as u8;
            let done = match numbers.below(8) {
                0 => words.delete(&key),
                1 | 2 => words.update(&key, PUT, &operand),
                3 => hashed.update(&key, PUT, &operand),
                4 => hashed.delete(&key),
                5 => small.set(index, byte),
                6 => floats.set(index, -f64::from(byte) / 3.0).and(sums.add(index, -5)),
                _ => places.set(index, Place([byte; 5])),
            };
            done.expect("accepted");
        }
        self.store.flush().expect("durable");
    }

    /// Restores a backup and compares; the restored store stands every check.
    fn check(&self, backup: &Path, wanted: &Content) {
        let place = self.path("restored");
        let summary = Store::restore(backup, &place).expect("restored");
        let records: usize = wanted.values().map(BTreeMap::len).sum();
        assert_eq!(summary.records, records as u64);
        let store = Store::open(&place).expect("opens");
        assert!(now(&store) == *wanted, "{}: not what was backed up", backup.display());
        assert_eq!((store.status().block_bytes, store.status().quarantined), (4096, 0));
        store.sweep().expect("swept");
        assert!(now(&store) == *wanted, "{}: another after the sweep", backup.display());
        store.close().expect("closed");
        let report = Store::builder().verify(&place).expect("verified");
        assert_eq!(report.damage, []);
        std::fs::remove_dir_all(&place).expect("removed");
    }
}

fn put(table: &Table, key: &[u8], value: &Value) {
    let operand = value_operand(value.kind, &value.bytes);
    table.update(key, PUT, &operand).expect("durable");
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result.expect_err("a refusal") {
        Error::Request(error) => error.to_string(),
        other => panic!("another kind of error: {other}"),
    }
}

#[test]
fn a_backup_shows_one_moment_while_others_write() {
    let world = World::new();
    let mut numbers = Numbers(1);
    world.change(&mut numbers, 6_000, 2_000);
    world.store.sweep().expect("swept");
    world.change(&mut numbers, 2_000, 2_000);
    let large: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(97) >> 3) as u8).collect();
    let large = Value { kind: ValueKind::Bytes, bytes: large };
    put(&world.store.table("large").expect("a table"), b"", &large);
    let operand = value_operand(large.kind, &large.bytes);
    let hashed = world.store.hash_table("hashed").expect("a hash table");
    hashed.update(b"large", PUT, &operand).expect("durable");
    let _empty = world.store.table("empty").expect("a table");
    world.store.blocks().create_space("images", "raw", false).expect("a space");
    let (stop, told) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(2);
            while !stop.load(Ordering::Relaxed) {
                world.change(&mut numbers, 100, 2_000);
            }
        });
        for name in ["one", "two"] {
            let tell = |progress: CopyProgress| {
                assert!(progress.bytes_total.is_none());
                told.fetch_add(1, Ordering::Relaxed);
            };
            let options = BackupOptions::default().snapshot(name).progress(&tell);
            let summary = world.store.backup(world.path(name), &options).expect("backed up");
            assert_eq!((summary.structures, &*summary.left_out), (8, &["images".to_owned()][..]));
            assert_eq!((summary.deletions, summary.dropped_snapshot), (0, None));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(told.load(Ordering::Relaxed) > 16);
    for name in ["one", "two"] {
        let snapshot = world.store.existing_snapshot(name).expect("kept");
        world.check(&world.path(name), &content(&snapshot));
    }
}

#[test]
fn a_chain_of_increments_gives_every_moment_again() {
    let world = World::new();
    let store = &world.store;
    let mut numbers = Numbers(3);
    world.change(&mut numbers, 4_000, 1_000);
    let gone = store.table("gone").expect("a table");
    let other = store.table("other").expect("a table");
    let ranges = store.table("ranges").expect("a table").with_durability(Durability::Relaxed);
    for number in 0..5_000u32 {
        ranges.add(&number.to_be_bytes(), 1).expect("accepted");
    }
    put(&gone, b"key", &numbers.value());
    put(&other, b"key", &numbers.value());
    store.sweep().expect("swept");
    let (one, two, three) = (world.path("one"), world.path("two"), world.path("three"));
    let mut moments = vec![now(store)];
    let kept = BackupOptions::default().snapshot("one");
    let full = store.backup(&one, &kept).expect("backed up");

    world.change(&mut numbers, 300, 1_000);
    ranges.remove_range(&1_000u32.to_be_bytes(), Some(&4_000u32.to_be_bytes())).expect("removed");
    ranges.add(&2_000u32.to_be_bytes(), 1).expect("accepted");
    store.drop_table("gone").expect("dropped");
    store.drop_table("other").expect("dropped");
    let _table = store.hash_table("other").expect("a hash table");
    put(&store.table("new").expect("a table"), b"key", &numbers.value());
    moments.push(now(store));
    let options = BackupOptions::default().since(&one).snapshot("two");
    let second = store.backup(&two, &options).expect("backed up");
    assert_eq!(second.dropped_snapshot.as_deref(), Some("one"));
    assert!(second.deletions >= 2_999 && second.puts < full.puts, "{second:?}");

    put(&store.table("gone").expect("a table"), b"again", &numbers.value());
    world.change(&mut numbers, 300, 1_000);
    store.sweep().expect("swept");
    moments.push(now(store));
    let options = BackupOptions::default().since(&two);
    let third = store.backup(&three, &options).expect("backed up");
    assert_eq!((third.snapshot, third.dropped_snapshot), (None, None));
    for (path, moment) in [&one, &two, &three].into_iter().zip(&moments) {
        world.check(path, moment);
    }
    refuse_to_stand_on(&world);
    move_about(&world, &moments[2]);
}

/// What no increment can stand on.
fn refuse_to_stand_on(world: &World) {
    let (one, two, three) = (world.path("one"), world.path("two"), world.path("three"));
    let since = |path| {
        let options = BackupOptions::default().since(path);
        refusal(world.store.backup(world.path("four"), &options))
    };
    assert!(since(&one).contains("its snapshot \"one\" is no longer in the store"));
    assert!(since(&three).contains("no snapshot was kept for it"));
    assert!(since(&world.path("store")).contains("there is no whole backup"));
    let stranger = World::new();
    let options = BackupOptions::default().since(&two);
    let refused = refusal(stranger.store.backup(world.path("four"), &options));
    assert!(refused.contains("it is a backup of another store"), "{refused}");
    assert!(!world.path("four").exists());
}

/// Together the backups of a chain can move; one without the other is of no use.
fn move_about(world: &World, newest: &Content) {
    let (one, archive) = (world.path("one"), world.path("archive"));
    std::fs::create_dir(&archive).expect("made");
    for name in ["one", "two", "three"] {
        std::fs::rename(world.path(name), archive.join(name)).expect("moved");
    }
    world.check(&archive.join("three"), newest);
    std::fs::rename(archive.join("one"), &one).expect("moved");
    let restore = || refusal(Store::restore(archive.join("three"), world.path("restored")));
    let refused = restore();
    assert!(
        refused.contains("there is no such folder")
            && refused.contains("two is an increment on it")
    );
    world.store.backup(archive.join("one"), &BackupOptions::default()).expect("backed up");
    assert!(restore().contains("it is not the backup on which"), "{}", restore());
    assert!(!world.path("restored").exists());
}

#[test]
fn damage_anywhere_is_named_and_nothing_is_left() {
    let world = World::new();
    let mut numbers = Numbers(4);
    world.change(&mut numbers, 500, 100);
    let backups = [world.path("one"), world.path("two")];
    let kept = BackupOptions::default().snapshot("one");
    world.store.backup(&backups[0], &kept).expect("backed up");
    world.change(&mut numbers, 50, 100);
    let increment = BackupOptions::default().since(&backups[0]);
    world.store.backup(&backups[1], &increment).expect("backed up");
    let restored = world.path("restored");
    let restore = || {
        let options = RestoreOptions::default().create(options(1 << 20));
        Store::builder().restore(&backups[1], &restored, &options)
    };
    let used = |manifest: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(manifest).expect("readable")).expect("JSON")
    };
    let newest = used(&backups[1].join("manifest.json"));
    let full: Vec<String> = newest["backup"]["structures"]
        .as_array()
        .expect("structures")
        .iter()
        .filter(|part| part["content"] == "full")
        .map(|part| part["file"].as_str().expect("a name").to_owned())
        .collect();
    let mut files = 0;
    for (position, folder) in backups.iter().enumerate() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
            if position == 0 && full.contains(&name) {
                continue; // the newer one is what is restored
            }
            files += 1;
            let sound = std::fs::read(&path).expect("readable");
            let damaged = |bytes: &[u8]| {
                std::fs::write(&path, bytes).expect("written");
                let reason = refusal(restore());
                assert!(reason.contains(&name), "{reason} does not name {}", path.display());
                assert!(reason.contains("at offset"), "{reason}");
                assert!(!restored.exists() && !world.path("restored.restoring").exists());
            };
            for step in 0..6 {
                let mut bytes = sound.clone();
                let at = (bytes.len() - 1) * step / 5;
                bytes[at] ^= 1 << step;
                damaged(&bytes);
                damaged(&sound[..at]);
            }
            damaged(&[&sound[..], b"\n"].concat());
            if name != "manifest.json" {
                damaged(&[]);
                std::fs::remove_file(&path).expect("removed");
                assert!(refusal(restore()).contains("the file is missing"));
            }
            std::fs::write(&path, &sound).expect("written");
        }
    }
    assert!(files > 8, "{files} files");
    restore().expect("sound again");
}

#[test]
fn what_is_there_is_not_touched() {
    let world = World::new();
    world.change(&mut Numbers(5), 100, 50);
    let backup = world.path("backup");
    world.store.backup(&backup, &BackupOptions::default()).expect("backed up");
    let again = world.store.backup(&backup, &BackupOptions::default());
    assert_eq!(again, Err(RequestError::AlreadyExists(backup.clone()).into()));
    // A refused backup leaves no snapshot.
    let named = BackupOptions::default().snapshot("kept");
    assert!(world.store.backup(&backup, &named).is_err());
    assert_eq!(world.store.snapshots().len(), 0);
    let (empty, file, link) = (world.path("empty"), world.path("file"), world.path("link"));
    std::fs::create_dir(&empty).expect("made");
    std::fs::write(&file, "precious").expect("written");
    std::os::unix::fs::symlink("nowhere", &link).expect("made");
    for taken in [&empty, &file, &link, &world.path("store")] {
        let refused = Store::restore(&backup, taken);
        assert_eq!(refused, Err(RequestError::AlreadyExists(taken.clone()).into()));
    }
    assert_eq!(std::fs::read(&file).expect("there"), b"precious");
    let restored = world.path("restored");
    std::fs::create_dir(world.path("restored.restoring")).expect("made");
    let refused = refusal(Store::restore(&backup, &restored));
    assert!(refused.contains("left by a restore that was interrupted"), "{refused}");
    assert!(world.path("restored.restoring").exists());
    // Devices of the failed store go too, and those that were there stay.
    std::fs::remove_dir(world.path("restored.restoring")).expect("removed");
    let (new, elsewhere) = (world.path("new-data"), world.path("no-folder/log"));
    let create = options(1 << 20).data(vec![new.clone()]).log(vec![elsewhere]);
    let options = RestoreOptions::default().create(create);
    assert!(Store::builder().restore(&backup, &restored, &options).is_err());
    assert!(!new.exists() && !restored.exists());
}

#[test]
fn a_restore_that_fails_removes_its_own_devices_wherever_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let [store, copy, restored, device] =
        ["store", "copy", "restored", "device"].map(|name| folder.path().join(name));
    let source = Store::create(&store).expect("created");
    put(&source.table("hits").expect("a table"), b"key", &Numbers(1).value());
    source.backup(&copy, &BackupOptions::default()).expect("made");
    let frames =
        std::fs::read_dir(&copy).expect("a folder").map(|entry| entry.expect("a file").path());
    let frames = frames.filter(|path| path.extension().is_none_or(|end| end != "json"));
    for path in frames {
        let mut bytes = std::fs::read(&path).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("writable");
    }
    // A device that is named from where the process is.
    let here = std::env::current_dir().expect("a folder");
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(device.strip_prefix("/").expect("from the root"));
    let create = CreateOptions::default().data(vec![relative]);
    let options = RestoreOptions::default().create(create);
    let failed = Store::builder().restore(&copy, &restored, &options);
    assert!(
        matches!(failed, Err(Error::Request(RequestError::BackupDamaged { .. }))),
        "{failed:?}"
    );
    assert!(!device.exists() && !restored.exists());
}

#[test]
fn a_restore_on_its_way_is_no_store_yet() {
    let folder = tempfile::tempdir().expect("a folder");
    let [store, copy, restored, half] =
        ["store", "copy", "restored", "restored.restoring"].map(|name| folder.path().join(name));
    let source = Store::create(&store).expect("created");
    put(&source.table("hits").expect("a table"), b"key", &Numbers(1).value());
    source.backup(&copy, &BackupOptions::default()).expect("made");
    let opened = AtomicBool::new(true);
    let progress = |_| {
        let missing = Err(RequestError::NoStore(half.clone()).into());
        let verified = Store::builder().verify(&half).map(drop);
        opened.store(verified != missing, Ordering::Relaxed);
    };
    let options = RestoreOptions::default().progress(&progress);
    Store::builder().restore(&copy, &restored, &options).expect("restored");
    assert!(!opened.into_inner());
    Store::open(&restored).expect("it is whole");
}

#[test]
fn an_increment_does_not_stand_on_a_backup_of_another_copy_of_the_store() {
    let world = World::new();
    let words = world.store.table("words").expect("a table");
    words.put(b"word", b"of both").expect("durable");
    drop(words);
    world.store.clone().close().expect("closed");
    let copy = world.path("copy");
    std::fs::create_dir(&copy).expect("a folder");
    for file in ["store.json", "data-0", "log-0"] {
        std::fs::copy(world.path("store").join(file), copy.join(file)).expect("copied");
    }
    // The same updates and snapshots, so that names and sequences are equal.
    let backed_up = |folder: &Path, word: &[u8], backup: &Path| {
        let store = Store::open(folder).expect("opens");
        let words = store.existing_table("words").expect("the table");
        words.put(b"word", word).expect("durable");
        let options = BackupOptions::default().snapshot("kept");
        store.backup(backup, &options).expect("backed up")
    };
    let one = backed_up(&world.path("store"), b"of one", &world.path("of one"));
    let other = backed_up(&copy, b"of other", &world.path("of other"));
    assert_eq!(one.sequence, other.sequence);
    let increment = |folder: &Path, since: &str| {
        let store = Store::open(folder).expect("opens");
        let since = world.path(since);
        let options = BackupOptions::default().since(&since);
        store.backup(world.path("increment"), &options)
    };
    let refused = increment(&copy, "of one").expect_err("of another copy");
    assert!(refused.to_string().contains("in another copy of the store"), "{refused}");
    increment(&copy, "of other").expect("of this one");
}
