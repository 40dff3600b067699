//! A store that is opened to be read: nothing in its folder changes, whatever is asked of it.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use upsweep::{ClosedError, CreateOptions, Durability, Error, RetryError, Store};

const KEYS: u32 = 3000;

fn create(folder: &Path) -> Store {
    let small = CreateOptions::default().log_bytes(8 << 20);
    Store::builder().memory_bytes(32 << 20).create(folder, &small).expect("a new store")
}

/// A store with images, and updates that wait for them in the log alone.
fn fill(store: &Store) {
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for round in 0..2 {
        for number in 0..KEYS {
            let _later = table.add(&number.to_be_bytes(), 1).expect("accepted");
        }
        if round == 0 {
            store.sweep().expect("swept");
            store.create_snapshot("half").expect("a snapshot");
        }
    }
    store.flush().expect("durable");
}

/// Bytes and times of all files of a folder, and the time of the folder.
fn content(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let modified = |path: &Path| fs::metadata(path).expect("there").modified().expect("a time");
    let files = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("one").path());
    let mut content: BTreeMap<_, _> = files
        .map(|path| {
            let bytes = fs::read(&path).expect("readable");
            let modified = modified(&path);
            (path, (bytes, modified))
        })
        .collect();
    content.insert(folder.to_owned(), (Vec::new(), modified(folder)));
    content
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let path = entry.expect("one").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("copied");
    }
}

/// Asks for everything that reads, and for some of what would write.
fn use_all(store: &Store) {
    let table = store.existing_table("main").expect("the table");
    for number in (0..KEYS).step_by(7) {
        let value = table.get(&number.to_be_bytes()).expect("readable").expect("there");
        assert_eq!(value.as_i64(), Some(2), "key {number}");
    }
    assert_eq!(table.iter().count(), KEYS as usize);
    let half = store.existing_snapshot("half").expect("the snapshot");
    let then = half.table("main").expect("the table");
    assert_eq!(then.get(&[0; 4]).expect("readable").and_then(|value| value.as_i64()), Some(1));
    assert_eq!(store.status().held_blocks, 0);
    let read_only = Error::Closed(ClosedError::ReadOnly);
    assert_eq!(table.add(b"key", 1).map(drop), Err(read_only.clone()));
    assert_eq!(table.fetch_add(&[0; 4], 1).map(drop), Err(read_only.clone()));
    assert_eq!(table.remove_range(b"a", None), Err(read_only.clone()));
    assert_eq!(store.table("new").map(drop), Err(read_only.clone()));
    assert_eq!(store.snapshot().map(drop), Err(read_only.clone()));
    assert_eq!(store.drop_structure("main"), Err(read_only.clone()));
    assert_eq!(store.sweep(), Err(read_only.clone()));
    assert_eq!(store.reclaim(), Err(read_only));
}

#[test]
fn nothing_in_the_folder_changes_not_even_the_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    fill(&store);
    store.close().expect("closed");
    let before = content(&path);
    let one = Store::open_read_only(&path).expect("opens");
    let other = Store::open_read_only(&path).expect("any number may look at once");
    use_all(&one);
    use_all(&other);
    let written = Store::open(&path).map(drop).expect_err("somebody looks");
    assert!(matches!(written, Error::Retry(_)), "{written}");
    drop(one);
    other.close().expect("closed");
    assert!(content(&path) == before, "something was written");
    drop(Store::open(&path).expect("nobody looks any more"));
    // Without a lock file there was no writer, and none is made.
    fs::remove_file(path.join("lock")).expect("removed");
    let before = content(&path);
    drop(Store::open_read_only(&path).expect("opens"));
    assert!(content(&path) == before, "something was written");
}

#[test]
fn a_copy_of_the_folder_is_read_beside_the_writer_of_the_original() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copied) = (folder.path().join("store"), folder.path().join("copy"));
    let store = create(&path);
    fill(&store);
    // As a snapshot of the file system would be: nothing is in flight, and nobody has closed it.
    copy(&path, &copied);
    let before = content(&copied);
    let read = Store::open_read_only(&copied).expect("opens");
    let table = store.existing_table("main").expect("the table");
    table.put(b"later", b"than the copy").expect("durable");
    use_all(&read);
    assert!(!read.existing_table("main").expect("there").contains(b"later").expect("readable"));
    let in_use = Store::open_read_only(&path).map(drop).expect_err("its writer is here");
    assert_eq!(in_use, RetryError::OpenHere(path.clone()).into());
    drop(read);
    assert!(content(&copied) == before, "something was written");
    store.close().expect("closed");
}
