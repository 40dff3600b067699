//! Records of volumes that nobody has written so: the volumes are refused, or can be used.
//! `UPSWEEP_VOLUME_RECORDS=CASES` tries more of them than the default.

mod hostile;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use upsweep::Store;
use upsweep_volume::{Acknowledge, Error, Volumes};

#[test]
fn whatever_the_tables_are_nothing_panics() {
    let cases = std::env::var("UPSWEEP_VOLUME_RECORDS");
    let cases = cases.map_or(64, |cases| cases.parse().expect("a number"));
    let changes = prop::collection::vec(any::<u8>(), 4..=12);
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let run = runner.run(&changes, |changes| {
        hostile::use_after(&changes);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

/// What is said of volumes in which a record of a table has been replaced.
fn refusal(table: &str, key: &[u8], value: &[u8]) -> Option<String> {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open_with(&store, 32).expect("opens");
    let disk = volumes.create("disk", 1 << 20).expect("made");
    disk.write(0, &[1; 4096], Acknowledge::Durable).expect("written");
    drop((disk, volumes));
    store.existing_table(table).expect("there").put(key, value).expect("put");
    match Volumes::open(&store) {
        Ok(_) => None,
        Err(Error::Tables(reason)) => Some(reason),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_record_that_does_not_fit_is_refused_by_name() {
    let key_of = |branch: u32, part: u8, place: [u8; 7], stamp: u64| {
        [&branch.to_be_bytes()[..], &[part], &place, &(!stamp).to_be_bytes()].concat()
    };
    let block = |place: [u8; 7]| key_of(1, 0, place, 7);
    let payload = |slot: u16, blocks: usize| {
        [&1_u64.to_le_bytes()[..], &slot.to_le_bytes(), &[0; 4].repeat(blocks)].concat()
    };
    let whole = [0, 0, 0, 0, 0, 1, 16];
    let entries = [
        (block(whole), payload(0, 17), "length of the value of the map"),
        (block(whole), payload(17, 16), "slot 17 of home 1 in the map"),
        (block([0, 0, 0, 0, 0, 1, 3]), payload(32, 1), "slot 32 of home 1 in the map"),
        (block([0, 0, 0, 0, 0, 1, 17]), payload(0, 1), "place in the key of the map"),
        (block([255; 7]), Vec::new(), "place in the key of the map"),
        (block([0, 0x40, 0, 0, 0, 0, 16]), Vec::new(), "span in the key of the map"),
        (key_of(1, 1, [10, 0, 0, 0, 0, 0, 4], 7), Vec::new(), "span in the key of the map"),
        (key_of(1, 1, [11, 0, 0, 0, 0, 0, 0], 7), Vec::new(), "span in the key of the map"),
        (key_of(1, 0, whole, u64::MAX), Vec::new(), "moment in the key of the map"),
        (b"short".to_vec(), Vec::new(), "length of the key of the map"),
    ];
    for (key, value, expected) in entries {
        assert_eq!(refusal("volumes/map", &key, &value), Some(expected.to_owned()));
    }
    for (key, value) in [
        (&b"volume/\0\0\0\x01"[..], &b"\0"[..]),
        (b"volume/\0\0\0\x02", b"\x05other\0\0\0\0\0"),
        (b"branch/\0\0\0\x01", b"\x01\x01\0"),
        (b"branch/\0\0\0\x02", b"\x01\x03\0"),
        (b"walk/\0\0\0\x01", b"\xff\xff\xff\xff\xff\xff\xff\x7f"),
        (b"snapshot/\0\0\0\x07name", b"\x01\x01\x80\x20"),
        (b"settled", b"\0\0\0"),
        (b"used/\0\0\0\x01", b"\0\0\0\0\0\0\x10\0"),
        (b"other", b""),
    ] {
        let reason = refusal("volumes/catalog", key, value).expect("refused");
        let name = String::from_utf8_lossy(key);
        assert_eq!(reason, format!("{name:?} in the catalog"));
    }
    let home = |kind: &[u8]| [&[0; 7][..], &[1], kind].concat();
    let (place, dead) = (home(b"p"), home(b"d"));
    for (key, value) in [
        (&place, &[1, 0, 0, 1, 0][..]),
        (&place, &[1, 0, 0, 0, 1, 2, 0, 0]),
        (&dead, &[0; 5]),
        (&home(b"x"), &[]),
        (&home(b""), &[]),
    ] {
        let reason = refusal("volumes/homes", key, value).expect("refused");
        assert!(reason.starts_with("home [00, "), "{reason}");
    }
    let missing = refusal("volumes/homes", &place, &[1, 0, 0x80, 0x20, 0, 0]).expect("refused");
    assert_eq!(missing, "a segment of home 1 is missing");
}
