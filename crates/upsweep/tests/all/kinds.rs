//! Structures of a kind that is ordered, has large values and ranges, and that not every program
//! knows. Sets of another crate, with exact routing, are in `crates/bitmap`.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use upsweep::layers::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing,
};
use upsweep::layers::structures::modifiers::{PUT, value_operand};
use upsweep::layers::structures::table::TableFormat;
use upsweep::{
    CreateOptions, Durability, Error, Kind, OpenSpace, RequestError, Store, StoreBuilder,
    StructureKind, ValueKind, ValueRef,
};

const NAME: &str = "ordered_elsewhere";
const LARGE_BYTES: usize = 100 << 10;

/// The format of tables, under another name.
struct Renamed;

impl BlockFormat for Renamed {
    fn name(&self) -> &'static str {
        NAME
    }
    fn routing(&self) -> Routing {
        TableFormat::default().routing()
    }
    fn keeps_key_order(&self) -> bool {
        true
    }
    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        TableFormat::default().apply(input)
    }
    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        TableFormat::default().for_each(low, body, visit)
    }
    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        TableFormat::default().merge(left, right, body_bytes_max)
    }
    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        TableFormat::default().check(body, low, high)
    }
}

struct Elsewhere;

impl StructureKind for Elsewhere {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(Renamed)
    }
    fn describe(&self, _parameters: &str) -> String {
        "a table of elsewhere".to_owned()
    }
    fn has_large_values(&self) -> bool {
        true
    }
}

fn without_kind() -> StoreBuilder {
    Store::builder().memory_bytes(32 << 20)
}

fn builder() -> StoreBuilder {
    without_kind().kind(Elsewhere)
}

fn create(path: &Path) -> (Store, OpenSpace) {
    let small = CreateOptions::default().block_bytes(4096).log_bytes(8 << 20);
    let store = builder().create(path, &small).expect("a new store");
    let space = store.space("there", &Kind::new(Elsewhere, "")).expect("new");
    (store, space)
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    (folder, path)
}

/// The value of a record: that of every hundredth is large.
fn value(number: u32) -> Vec<u8> {
    let bytes = if number.is_multiple_of(100) { LARGE_BYTES } else { 100 };
    format!("{number:010}").bytes().cycle().take(bytes).collect()
}

fn put(space: &OpenSpace, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let operand = value_operand(ValueKind::Bytes, &value(number));
        let key = number.to_be_bytes();
        let _ticket = space.update(&key, PUT, &operand, Durability::Relaxed).expect("accepted");
    }
}

/// The small values, and which keys have a large one.
fn content(space: &OpenSpace) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for block in space.scan(&[]) {
        let block = block.expect("readable");
        let mut visit = |key: &[u8], value: ValueRef<'_>| {
            found.insert(key.to_vec(), value.bytes.to_vec());
        };
        Renamed.for_each(&block.view.low, &block.body, &mut visit).expect("sound");
    }
    found
}

/// Whether a space has the records of these numbers, and no others that are small.
fn check(store: &Store, name: &str, numbers: &[std::ops::Range<u32>]) {
    let space = store.existing_space(name, &Kind::new(Elsewhere, "")).expect("there");
    store.sweep().expect("swept");
    let all = || numbers.iter().flat_map(Clone::clone);
    let small = all().filter(|number| !number.is_multiple_of(100));
    let wanted: BTreeMap<_, _> =
        small.map(|number| (number.to_be_bytes().to_vec(), value(number))).collect();
    assert!(content(&space) == wanted, "{name}: not what was put");
    for number in all().filter(|number| number.is_multiple_of(100)) {
        let key = number.to_be_bytes();
        let large = store.blocks().read(space.record().companion, &key).expect("readable");
        assert!(large.ends_with(&value(number)), "{name}: large value {number}");
    }
}

fn unknown() -> Option<Error> {
    Some(RequestError::UnknownFormat(NAME.to_owned()).into())
}

#[test]
fn what_is_swept_is_kept_cloned_and_dropped_without_its_kind() {
    let (_folder, path) = place();
    let (store, space) = create(&path);
    put(&space, 0..2000);
    store.sweep().expect("swept");
    store.close().expect("closed");
    drop(space);
    let store = without_kind().open(&path).expect("nothing waits");
    store.clone_structure("there", "copy").expect("cloned");
    store.create_snapshot("kept").expect("made");
    let other = store.table("other").expect("new").with_durability(Durability::Relaxed);
    for number in 0..2000u32 {
        let _ticket = other.put(&number.to_be_bytes(), &[7; 200]).expect("accepted");
    }
    store.sweep().expect("swept");
    store.drop_structure("there").expect("dropped");
    store.reclaim().expect("given back");
    store.close().expect("closed");
    for builder in [builder(), without_kind()] {
        let report = builder.verify(&path).expect("verified");
        assert!(report.damage.is_empty() && report.records > 4000, "{report:?}");
    }
    let store = builder().open(&path).expect("opens");
    check(&store, "copy", std::slice::from_ref(&(0..2000)));
    store.drop_snapshot("kept").expect("dropped");
    store.drop_structure("copy").expect("dropped");
    store.reclaim().expect("given back");
    store.close().expect("closed");
    let report = builder().verify(&path).expect("verified");
    assert!(report.damage.is_empty() && report.records < 3000, "{report:?}");
}

#[test]
fn puts_and_removed_ranges_wait_for_their_kind() {
    let (_folder, path) = place();
    let (store, space) = create(&path);
    put(&space, 0..1000);
    store.sweep().expect("swept");
    put(&space, 1000..1500);
    let [from, to] = [250u32, 750].map(u32::to_be_bytes);
    store.blocks().remove_range(space.number(), &from, Some(&to)).expect("removed");
    store.close().expect("closed");
    drop(space);
    assert_eq!(without_kind().open(&path).err(), unknown());
    for _ in 0..2 {
        let store = without_kind().open_for_upkeep(&path).expect("for upkeep");
        assert!(store.status().held_blocks > 0);
        store.sweep().expect("swept");
        if store.kind("copy").is_none() {
            store.clone_structure("there", "copy").expect("cloned");
        }
        store.close().expect("closed");
        assert_eq!(without_kind().verify(&path).expect("verified").damage, []);
    }
    let store = builder().open(&path).expect("opens");
    for name in ["there", "copy"] {
        check(&store, name, &[0..250, 750..1500]);
    }
    store.close().expect("closed");
    assert_eq!(builder().verify(&path).expect("verified").damage, []);
}

#[test]
fn spilled_updates_wait_for_their_kind() {
    let (_folder, path) = place();
    let (store, space) = create(&path);
    // What is spilled is new: if any of it is lost, records are missing.
    let tens = || (0..20_000).step_by(20);
    tens().for_each(|first| put(&space, first..first + 10));
    store.sweep().expect("swept");
    let mut rounds = 0;
    while store.status().spill.spill_segments == 0 {
        tens().for_each(|first| put(&space, first + 10..first + 20));
        rounds += 1;
        assert!(rounds < 40, "nothing is spilled: {:?}", store.status().spill);
    }
    store.close().expect("closed");
    drop(space);
    assert_eq!(without_kind().open(&path).err(), unknown());
    assert_eq!(without_kind().verify(&path).expect("verified").damage, []);
    let store = without_kind().open_for_upkeep(&path).expect("for upkeep");
    store.sweep().expect("swept");
    store.close().expect("closed");
    let store = builder().open(&path).expect("opens");
    check(&store, "there", std::slice::from_ref(&(0..20_000)));
}

#[test]
fn verification_without_the_kind_reads_every_block() {
    let (_folder, path) = place();
    let (store, space) = create(&path);
    put(&space, 0..300);
    store.sweep().expect("swept");
    store.close().expect("closed");
    drop(space);
    let file = path.join("data-0");
    let mut bytes = std::fs::read(&file).expect("the data file");
    let needle = value(77);
    let at = bytes.windows(needle.len()).position(|window| window == needle).expect("an image");
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).expect("damaged");
    let report = without_kind().verify(&path).expect("verified");
    assert!(report.damage.len() == 1, "{report:?}");
}
