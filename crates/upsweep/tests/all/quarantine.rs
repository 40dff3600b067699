//! What is refused is kept, whatever its length: the quarantine through the public API, on files.
use std::path::Path;

use upsweep::layers::structures::modifiers::VALUE_BYTES_MAX;
use upsweep::{CreateOptions, Durability, Modifier, Outcome, Refusal, Store, ValueRef};

/// A log in which an update with the longest value fits.
fn roomy() -> CreateOptions {
    CreateOptions::default().log_bytes(16 << 20)
}

fn create(folder: &Path) -> Store {
    let builder = Store::builder().memory_bytes(32 << 20).modifier(Talker);
    builder.create(folder, &roomy()).expect("a new store")
}

/// Refuses everything with a text as long as its operand says.
struct Talker;

impl Modifier for Talker {
    fn name(&self) -> &'static str {
        "talker"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let length = <[u8; 8]>::try_from(operand).map(u64::from_le_bytes).unwrap_or_default();
        Err(Refusal("no, ".repeat(length as usize / 4)))
    }
}

#[test]
fn an_update_of_any_length_that_is_refused_is_in_the_quarantine() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("main").expect("a table");
    table.put(b"k", b"abc").expect("durable");
    let longest = vec![7; VALUE_BYTES_MAX];
    // From about 1,048,510 bytes on an entry is longer than any value of the application.
    for length in [VALUE_BYTES_MAX - 2, VALUE_BYTES_MAX - 1, VALUE_BYTES_MAX] {
        table.append(b"k", &longest[..length]).expect("durable");
    }
    let key = [b'k'; 4096];
    table.put(&key, b"abc").expect("durable");
    table.append(&key, &longest).expect("durable");
    store.sweep().expect("swept");
    let check = |store: &Store| {
        let table = store.existing_table("main").expect("the table");
        for key in [&b"k"[..], &key] {
            assert_eq!(*table.get(key).expect("readable").expect("there"), *b"abc");
        }
        let quarantined = store.quarantined().expect("listed");
        let mut lengths: Vec<usize> = quarantined.iter().map(|entry| entry.operand.len()).collect();
        lengths.sort_unstable();
        let most = VALUE_BYTES_MAX;
        assert_eq!(lengths, [most - 2, most - 1, most, most]);
        assert!(quarantined.iter().all(|entry| entry.operand.iter().all(|byte| *byte == 7)));
    };
    check(&store);
    // Into the blocks of the quarantine itself.
    store.sweep().expect("swept");
    check(&store);
    drop(table);
    store.close().expect("closed");
    let store = Store::builder().modifier(Talker).open(&path).expect("opens again");
    check(&store);
    let id = store.quarantined().expect("listed")[0].id.clone();
    store.retry_quarantined(&id).expect("declared anew");
    store.sweep().expect("swept");
    check(&store);
    drop(store);
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
}

#[test]
fn a_refusal_of_any_length_costs_one_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    let lengths = [0u64, 8, 256, 260, 3_000_000];
    for (key, length) in (0u8..).zip(lengths) {
        let operand = length.to_le_bytes();
        table.modify(&[key], &Talker, &operand).expect("accepted").wait().expect("durable");
    }
    let check = |store: &Store| {
        let mut quarantined = store.quarantined().expect("listed");
        quarantined.sort_by(|left, right| left.key.cmp(&right.key));
        assert_eq!(quarantined.len(), lengths.len());
        for (entry, length) in quarantined.iter().zip(lengths) {
            let reason = &entry.reason;
            assert_eq!(reason.len(), length.min(256) as usize, "{reason}");
            assert!(length == 0 || reason.starts_with("no, no"), "{reason}");
            let is_cut = reason.ends_with(&format!("... ({length} bytes in all)"));
            assert_eq!(is_cut, length > 256, "{reason}");
        }
    };
    store.sweep().expect("swept");
    check(&store);
    drop(table);
    store.close().expect("closed");
    let store = Store::builder().modifier(Talker).open(&path).expect("opens again");
    check(&store);
}
