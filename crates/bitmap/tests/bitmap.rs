//! A store supports a structure of another crate like its own: in batches, snapshots, clones,
//! backups and verification. Also covers stores that are opened without its kind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use upsweep::{
    BackupOptions, ClosedError, CreateOptions, Durability, Error, Kind, RequestError,
    RestoreOptions, Snapshot, Store, StoreBuilder, Value, ValueKind,
};
use upsweep_bitmap::{BITS_DEFAULT, BITS_MIN, Bitmap, BitmapKind};

fn without_kind() -> StoreBuilder {
    Store::builder().memory_bytes(32 << 20)
}

fn builder() -> StoreBuilder {
    without_kind().kind(BitmapKind)
}

fn small() -> CreateOptions {
    CreateOptions::default().block_bytes(4096).log_bytes(8 << 20)
}

/// A folder, and the path of a store in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    (folder, path)
}

/// Copies a store that is open, as a crash at this moment would leave it.
fn crash(path: &Path) -> PathBuf {
    let to = path.with_extension("crashed");
    std::fs::create_dir(&to).expect("a folder");
    for file in std::fs::read_dir(path).expect("a folder") {
        let file = file.expect("a file").path();
        std::fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("copied");
    }
    to
}

fn all(bitmap: &Bitmap) -> BTreeSet<u64> {
    bitmap.iter(..).map(|member| member.expect("readable")).collect()
}

fn at(snapshot: &Snapshot) -> BTreeSet<u64> {
    all(&Bitmap::at(snapshot, "seen").expect("kept"))
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    /// Changes a set, and what it should be.
    fn change(&mut self, bitmap: &Bitmap, model: &mut BTreeSet<u64>, count: u64) {
        let bitmap = bitmap.with_durability(Durability::Relaxed);
        for _ in 0..count {
            let spread = [1, 1000, 1 << 40][self.below(3) as usize];
            let member = self.below(3000) * spread;
            let _ticket = if self.below(3) == 0 {
                model.remove(&member);
                bitmap.remove(member).expect("accepted")
            } else {
                model.insert(member);
                bitmap.insert(member).expect("accepted")
            };
        }
    }
}

/// Checks that a set agrees with the model, for several ranges and members.
fn compare(bitmap: &Bitmap, model: &BTreeSet<u64>) {
    assert!(all(bitmap) == *model);
    for (from, to) in [(0, 70), (63, 64), (1 << 40, 1 << 50), (999_999, 1_500_000), (5, 4)] {
        let wanted = model.iter().filter(|member| (from..to).contains(*member)).count() as u64;
        assert_eq!(bitmap.count(from..to).expect("readable"), wanted, "{from}..{to}");
    }
    for member in (0..300).chain(model.iter().copied().take(300)) {
        assert_eq!(bitmap.contains(member).expect("readable"), model.contains(&member));
    }
}

/// Compares changes, sweeps and snapshots with a set of the standard library.
fn trial(store: &Store, kind: &Kind) {
    let bitmap = Bitmap::new(store.space("seen", kind).expect("new")).expect("registered");
    let (mut numbers, mut model) = (Numbers(7), BTreeSet::new());
    let mut moments = Vec::new();
    for round in 0..4 {
        numbers.change(&bitmap, &mut model, 5_000);
        compare(&bitmap, &model);
        if round % 2 == 0 {
            store.sweep().expect("swept");
            compare(&bitmap, &model);
        }
        moments.push((store.snapshot().expect("made"), model.clone()));
    }
    bitmap.insert(u64::MAX).expect("durable");
    assert!(bitmap.contains(u64::MAX).expect("readable"));
    assert_eq!(bitmap.count(u64::MAX..).expect("readable"), 1);
    for (snapshot, model) in &moments {
        assert!(at(snapshot) == *model, "a snapshot shows its moment");
    }
    let seen = Bitmap::at(&moments[0].0, "seen").expect("kept");
    let refused = Error::Request(RequestError::ReadOnly("seen".to_owned()));
    assert_eq!(seen.insert(1).err(), Some(refused));

    store.clone_structure("seen", "copy").expect("cloned");
    let copy = Bitmap::open(store, "copy").expect("of its kind");
    copy.remove(u64::MAX).expect("durable");
    compare(&copy, &model);
    model.insert(u64::MAX);
    compare(&bitmap, &model);
}

#[test]
fn a_set_in_memory_agrees_with_a_model() {
    trial(&builder().in_memory().expect("a store"), &BitmapKind::with_bits(BITS_DEFAULT));
}

#[test]
fn a_set_on_files_agrees_with_a_model_and_is_sound() {
    let (_folder, path) = place();
    let store = builder().create(&path, &small()).expect("a store");
    let kind = BitmapKind::with_bits(BITS_MIN);
    trial(&store, &kind);
    let before = all(&Bitmap::open(&store, "seen").expect("of its kind"));
    let crashed = crash(&path);
    store.close().expect("closed");
    for path in [path, crashed] {
        let report = builder().verify(&path).expect("verified");
        assert_eq!(report.damage, []);
        let store = builder().open(&path).expect("opens again");
        assert_eq!(store.kind("seen"), Some(kind.clone()));
        let seen = Bitmap::open(&store, "seen").expect("of its kind");
        assert!(all(&seen) == before, "what was durable is there");
        store.sweep().expect("swept");
        assert!(all(&seen) == before);
        store.close().expect("closed");
        let report = builder().verify(&path).expect("verified");
        assert!(report.damage.is_empty() && report.records > 0, "{report:?}");
    }
}

#[test]
fn a_batch_changes_a_table_and_a_set_together_or_neither() {
    let (_folder, path) = place();
    let store = builder().create(&path, &small()).expect("a store");
    let (names, seen) =
        (store.table("names").expect("new"), Bitmap::open(&store, "seen").expect("new"));
    seen.insert(1).expect("durable");
    let mut batch = store.batch();
    batch.put(&names, b"two", b"2");
    seen.insert_in(&mut batch, 2);
    seen.remove_in(&mut batch, 1);
    let _ticket = batch.commit(Durability::Wait).expect("durable");

    let other = builder().in_memory().expect("another store");
    let foreign = Bitmap::open(&other, "seen").expect("new");
    let mut refused = store.batch();
    refused.put(&names, b"three", b"3");
    foreign.insert_in(&mut refused, 3);
    let wrong = Error::Request(RequestError::WrongStore { table: "seen".to_owned() });
    assert_eq!(refused.commit(Durability::Wait).err(), Some(wrong));
    let mut refused = store.batch();
    refused.put(&names, b"three", b"3").update(
        &seen,
        &3,
        upsweep::layers::engine::registry::PUT,
        &[0, 1],
    );
    let error = refused.commit(Durability::Wait).expect_err("a set has no puts").to_string();
    assert!(error.contains("insertions and removals only"), "{error}");

    let crashed = crash(&path);
    store.sweep().expect("swept");
    let again = builder().open(&crashed).expect("opens");
    for store in [&store, &again] {
        let names = store.existing_table("names").expect("there");
        assert_eq!(names.iter().count(), 1);
        assert_eq!(all(&Bitmap::open(store, "seen").expect("there")), BTreeSet::from([2]));
    }
}

#[test]
fn visitors_see_the_members_of_swept_blocks() {
    let store = builder().in_memory().expect("a store");
    let seen = Bitmap::open(&store, "seen").expect("new");
    let (sender, visits) = mpsc::channel();
    seen.set_visitor(move |members| drop(sender.send(members))).expect("set");
    for member in [3, 1, 2, 1 << 60] {
        seen.insert(member).expect("durable");
    }
    store.sweep().expect("swept");
    let mut found: Vec<Vec<u64>> = visits.try_iter().collect();
    found.sort();
    assert_eq!(found, [vec![1, 2, 3], vec![1 << 60]]);
}

#[test]
fn backups_copy_a_set_and_give_it_back() {
    let (folder, path) = place();
    let store = builder().create(&path, &small()).expect("a store");
    let seen = Bitmap::open(&store, "seen").expect("new");
    let names = store.table("names").expect("new");
    let (mut numbers, mut model) = (Numbers(3), BTreeSet::new());
    let mut since: Option<PathBuf> = None;
    for round in ["one", "two"] {
        numbers.change(&seen, &mut model, 8_000);
        names.put(round.as_bytes(), b"").expect("durable");
        let backup = folder.path().join(round);
        let mut options = BackupOptions::default().snapshot(round);
        if let Some(earlier) = &since {
            options = options.since(earlier);
        }
        let summary = store.backup(&backup, &options).expect("backed up");
        assert_eq!((summary.structures, summary.left_out), (2, vec![]));
        let restored = folder.path().join("restored");
        let unknown = Store::restore(&backup, &restored).expect_err("the kind is not registered");
        let kind = BitmapKind::with_bits(BITS_DEFAULT);
        assert_eq!(unknown, RequestError::UnknownFormat(kind.format().to_owned()).into());
        assert!(!restored.exists(), "nothing is made");
        builder().restore(&backup, &restored, &RestoreOptions::default()).expect("restored");
        let again = builder().open(&restored).expect("opens");
        assert_eq!(again.kind("seen"), Some(kind));
        compare(&Bitmap::open(&again, "seen").expect("there"), &model);
        again.close().expect("closed");
        std::fs::remove_dir_all(&restored).expect("removed");
        since = Some(backup);
    }
}

/// A store with a set and a table that was closed.
fn closed_store(path: &Path, is_swept: bool) -> BTreeSet<u64> {
    let store = builder().create(path, &small()).expect("a store");
    let seen = Bitmap::open(&store, "seen").expect("new");
    let mut model = BTreeSet::new();
    Numbers(5).change(&seen, &mut model, 3_000);
    store.table("names").expect("new").put(b"key", b"value").expect("durable");
    if is_swept {
        store.sweep().expect("swept");
    }
    store.close().expect("closed");
    model
}

#[test]
fn a_store_without_the_kind_lists_verifies_keeps_and_drops_a_set() {
    let (folder, path) = place();
    let model = closed_store(&path, true);
    assert_eq!(without_kind().verify(&path).expect("verified").damage, []);
    let store = without_kind().open(&path).expect("nothing waits for the set");
    let kind = store.kind("seen").expect("listed");
    assert_eq!((kind.format(), kind.name(), kind.parameters()), ("bitmap:15", "bitmap", "15"));
    assert_eq!(kind.to_string(), "a structure of the kind \"bitmap:15\"");
    let listed = store.structures();
    let (_, _, size) = listed.iter().find(|(name, ..)| name == "seen").expect("listed");
    assert!(size.records > 1_000 && size.blocks > 50, "{size:?}");

    // Calls that need the format say which one is missing.
    let unknown = Error::Request(RequestError::UnknownFormat("bitmap:15".to_owned()));
    let bitmap = BitmapKind::with_bits(BITS_DEFAULT);
    assert_eq!(store.existing_space("seen", &bitmap).err(), Some(unknown.clone()));
    assert_eq!(store.space("new", &bitmap).err(), Some(unknown.clone()));
    assert_eq!(store.kind("new"), None, "nothing is made");
    let found = "a structure of the kind \"bitmap:15\"".to_owned();
    let (table, wanted) = ("seen".to_owned(), "a table".to_owned());
    let mismatch = RequestError::TableMismatch { table, found, wanted };
    assert_eq!(store.table("seen").err(), Some(mismatch.into()));
    let number = store.blocks().space("seen").expect("there").space;
    let put = store.blocks().write(number, b"key", b"value", Durability::Wait);
    assert_eq!(put.map(drop).err(), Some(unknown.clone()));
    assert_eq!(store.blocks().read(number, b"key").err(), Some(unknown.clone()));
    assert_eq!(store.blocks().remove_range(number, b"", None).err(), Some(unknown));

    // Calls that do not look into blocks work, as do sweeps of everything else.
    store.clone_structure("seen", "copy").expect("cloned");
    store.create_snapshot("kept").expect("made");
    let names = store.existing_table("names").expect("there");
    for number in 0..3_000u32 {
        names.put(&number.to_be_bytes(), b"value").expect("durable");
    }
    let moved = store.compact("seen", |_| {}).expect("looked at");
    assert_eq!(moved.moved, 0);
    store.sweep().expect("swept");
    let backup = folder.path().join("backup");
    let summary = store.backup(&backup, &BackupOptions::default()).expect("backed up");
    assert_eq!((summary.structures, summary.left_out), (1, vec!["seen".into(), "copy".into()]));
    store.drop_structure("seen").expect("dropped");
    store.reclaim().expect("given back");
    store.close().expect("closed");
    assert_eq!(without_kind().verify(&path).expect("verified").damage, []);
    assert_eq!(builder().verify(&path).expect("verified").damage, []);

    let store = builder().open(&path).expect("opens");
    compare(&Bitmap::open(&store, "copy").expect("cloned"), &model);
    assert!(at(&store.existing_snapshot("kept").expect("kept")) == model);
    assert_eq!(store.kind("seen"), None);
}

#[test]
fn what_waits_for_a_set_waits_for_its_kind() {
    let (_folder, path) = place();
    let model = closed_store(&path, false);
    let unknown = Error::Request(RequestError::UnknownFormat("bitmap:15".to_owned()));
    assert_eq!(without_kind().open(&path).err(), Some(unknown.clone()));
    assert_eq!(without_kind().verify(&path).expect("verified").damage, []);
    let store = without_kind().open_read_only(&path).expect("to look at");
    assert_eq!(store.structures().len(), 2);
    assert_eq!(store.existing_table("names").expect("there").iter().count(), 1);
    drop(store);

    let store = without_kind().open_for_upkeep(&path).expect("for upkeep");
    assert!(store.status().held_blocks > 0);
    let names = store.existing_table("names").expect("there");
    assert_eq!(names.put(b"key", b"other").err(), Some(unknown));
    store.sweep().expect("swept");
    store.clone_structure("seen", "copy").expect("cloned");
    store.drop_table("names").expect("dropped");
    store.reclaim().expect("given back");
    store.close().expect("closed");

    let store = builder().open(&path).expect("opens");
    for name in ["seen", "copy"] {
        compare(&Bitmap::open(&store, name).expect("there"), &model);
    }
    store.sweep().expect("swept");
    compare(&Bitmap::open(&store, "copy").expect("there"), &model);
    store.close().expect("closed");
    assert_eq!(builder().verify(&path).expect("verified").damage, []);
}

#[test]
fn a_store_that_was_not_closed_may_need_the_kind_to_be_recovered() {
    let (_folder, path) = place();
    let store = builder().create(&path, &small()).expect("a store");
    let seen = Bitmap::open(&store, "seen").expect("new");
    seen.insert(1).expect("durable");
    let crashed = crash(&path);
    let unknown = Error::Request(RequestError::UnknownFormat("bitmap:15".to_owned()));
    assert_eq!(without_kind().open(&crashed).err(), Some(unknown.clone()));
    assert_eq!(without_kind().open_for_upkeep(&crashed).err(), Some(unknown.clone()));
    assert_eq!(without_kind().open_read_only(&crashed).err(), Some(unknown));
    let again = builder().open(&crashed).expect("opens");
    assert_eq!(all(&Bitmap::open(&again, "seen").expect("there")), BTreeSet::from([1]));
    again.close().expect("closed");
    let waits = without_kind().open_read_only(&crashed).expect("it was closed");
    let closed = Error::Closed(ClosedError::ReadOnly);
    assert_eq!(waits.drop_structure("seen").err(), Some(closed));
}

#[test]
fn names_and_parameters_are_checked() {
    let store = builder().in_memory().expect("a store");
    let refusal = |kind: &Kind| match store.space("seen", kind) {
        Err(Error::Request(RequestError::BadFormat { format, reason })) => {
            assert_eq!(format, kind.format());
            reason
        }
        other => panic!("not refused: {other:?}"),
    };
    for bits in [8, 17] {
        assert!(refusal(&BitmapKind::with_bits(bits)).contains("9 to 16"));
    }
    assert!(refusal(&Kind::new(BitmapKind, "012")).contains("9 to 16"));
    store.table("table").expect("new");
    let found = RequestError::TableMismatch {
        table: "table".to_owned(),
        found: "a table".to_owned(),
        wanted: "a bitmap with 2^15 integers in a block".to_owned(),
    };
    assert_eq!(Bitmap::open(&store, "table").err(), Some(found.into()));
    let twice = builder().kind(BitmapKind).in_memory().err();
    assert!(matches!(twice, Some(Error::Request(RequestError::RegisteredTwice(_)))), "{twice:?}");
}

#[test]
fn a_record_that_is_no_word_is_not_restored() {
    use upsweep::StructureKind;
    let check = |key: &[u8], kind, bytes: &[u8]| {
        let value = Value { kind, bytes: bytes.to_vec() };
        BitmapKind.check_record("15", key, &value)
    };
    let one = 1u64.to_le_bytes();
    assert_eq!(check(&[0; 8], ValueKind::U64, &one), Ok(()));
    assert!(check(&[0; 7], ValueKind::U64, &one).is_err());
    assert!(check(&[255; 8], ValueKind::U64, &one).is_err());
    assert!(check(&[0; 8], ValueKind::I64, &one).is_err());
    assert!(check(&[0; 8], ValueKind::U64, &[0; 8]).is_err());
}
