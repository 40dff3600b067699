//! Volumes that are sent as a stream and received in another store.

use std::io::{self, Read, Write};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use upsweep::layers::device::{FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions, Store};
use upsweep_volume::stream::{Decoder, Record, ResumeToken, Totals};
use upsweep_volume::{
    Acknowledge, BLOCK_BYTES, Error, History, Past, Receiving, Sending, Volume, Volumes,
};

const BLOCK: usize = BLOCK_BYTES as usize;
const MIB: u64 = 1 << 20;

fn opened() -> (Store, Volumes) {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open_with(&store, 64).expect("opens");
    (store, volumes)
}

fn write(volume: &Volume, block: u64, content: &[u8]) {
    let data: Vec<u8> = content.iter().flat_map(|byte| [*byte; BLOCK]).collect();
    volume.write(block * BLOCK_BYTES, &data, Acknowledge::Written).expect("written");
}

/// All of a small volume.
fn read(volume: &Volume) -> Vec<u8> {
    let mut found = vec![0xee; volume.bytes().expect("there") as usize];
    volume.read(0, &mut found).expect("readable");
    found
}

fn snapshot_of(volumes: &Volumes, name: &str, snapshot: &str) -> Vec<u8> {
    let view = volumes.view(name, Past::Snapshot(snapshot), "look").expect("made");
    let found = read(&view);
    volumes.delete("look").expect("deleted");
    found
}

fn sending(volumes: &Volumes, to: &str, from: Option<&str>) -> Sending {
    let from = from.map(Past::Snapshot);
    volumes.send("disk", Some(Past::Snapshot(to)), from).expect("there")
}

fn stream_of(sending: &Sending) -> (Vec<u8>, Totals) {
    let mut stream = Vec::new();
    let totals = sending.write_to(&mut stream).expect("written");
    (stream, totals)
}

fn stream(volumes: &Volumes, to: &str, from: Option<&str>) -> Vec<u8> {
    stream_of(&sending(volumes, to, from)).0
}

fn receiving(volumes: &Volumes, name: &str) -> Option<Receiving> {
    volumes.list().into_iter().find(|found| found.name == name)?.receiving
}

fn token(volumes: &Volumes, name: &str) -> ResumeToken {
    receiving(volumes, name).expect("it is receiving").token
}

fn work(store: &Store, volumes: &Volumes) {
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    while volumes.work().expect("no fault") {}
}

/// A store with a disk of 1 MiB, its snapshots `one` and `two`, and what they are.
fn source() -> (Store, Volumes, [Vec<u8>; 2]) {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    write(&disk, 1, &[1, 2, 3]);
    write(&disk, 40, &[4]);
    volumes.snapshot(&["disk"], "one").expect("taken");
    let one = read(&disk);
    write(&disk, 2, &[5]);
    disk.zero(3 * BLOCK_BYTES, BLOCK_BYTES, Acknowledge::Written).expect("zeroed");
    write(&disk, 100, &[6]);
    volumes.snapshot(&["disk"], "two").expect("taken");
    let two = read(&disk);
    write(&disk, 0, &[7]);
    (store, volumes, [one, two])
}

#[test]
fn only_what_is_written_is_sent() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 1 << 40).expect("made");
    write(&disk, 0, &[1]);
    // Zeros that were written, and zeros over what was written.
    write(&disk, 10, &[0, 2, 0]);
    write(&disk, 20, &[3]);
    disk.zero(20 * BLOCK_BYTES, 1 << 30, Acknowledge::Written).expect("zeroed");
    write(&disk, (1 << 28) - 1, &[4]);
    let sending = volumes.send("disk", None, None).expect("there");
    let (stream, totals) = stream_of(&sending);
    assert_eq!((totals.records, totals.data_bytes, totals.zero_bytes), (3, 3 * BLOCK_BYTES, 0));
    let (_other, target) = opened();
    let received = target.receive("copy", stream.as_slice()).expect("received");
    assert_eq!((received.bytes, received.is_increment, received.totals), (1 << 40, false, totals));
    assert_eq!(received.snapshot, sending.header().name);
    let copy = target.volume("copy").expect("there");
    for (block, byte) in [(0, 1), (10, 0), (11, 2), (12, 0), (20, 0), ((1 << 28) - 1, 4)] {
        let mut found = vec![0xee; BLOCK];
        copy.read(block * BLOCK_BYTES, &mut found).expect("readable");
        assert_eq!(found, [byte; BLOCK], "block {block}");
    }
    write(&copy, 0, &[9]);
}

#[test]
fn an_increment_has_what_has_changed() {
    let (_store, volumes, [one, two]) = source();
    let (_other, target) = opened();
    let received = target.receive("disk", stream(&volumes, "one", None).as_slice());
    assert_eq!(received.expect("received").totals.data_bytes, 4 * BLOCK_BYTES);
    let (increment, totals) = stream_of(&sending(&volumes, "two", Some("one")));
    assert_eq!((totals.data_bytes, totals.zero_bytes), (2 * BLOCK_BYTES, BLOCK_BYTES));
    let received = target.receive("disk", increment.as_slice()).expect("received");
    assert!(received.is_increment);
    assert_eq!(read(&target.volume("disk").expect("there")), two);
    assert_eq!(snapshot_of(&target, "disk", "one"), one);
    assert_eq!(snapshot_of(&target, "disk", "two"), two);
    // And on to a third store, which then takes increments from the first one.
    let (_third, last) = opened();
    last.receive("disk", stream(&target, "two", None).as_slice()).expect("received");
    volumes.snapshot(&["disk"], "three").expect("taken");
    last.receive("disk", stream(&volumes, "three", Some("two")).as_slice()).expect("received");
    let disk = volumes.volume("disk").expect("there");
    assert_eq!(read(&last.volume("disk").expect("there")), read(&disk));
}

#[test]
fn the_last_block_of_a_volume_of_sectors_is_sent_too() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB + 1024).expect("made");
    disk.write(MIB, &[1; 1024], Acknowledge::Written).expect("written");
    volumes.snapshot(&["disk"], "one").expect("taken");
    volumes.resize("disk", MIB + 512).expect("resized");
    disk.write(MIB, &[2; 512], Acknowledge::Written).expect("written");
    volumes.snapshot(&["disk"], "two").expect("taken");
    volumes.resize("disk", MIB + 8192).expect("resized");
    volumes.snapshot(&["disk"], "three").expect("taken");
    let (_other, target) = opened();
    for (to, from) in [("one", None), ("two", Some("one")), ("three", Some("two"))] {
        target.receive("copy", stream(&volumes, to, from).as_slice()).expect("received");
        assert_eq!(snapshot_of(&target, "copy", to), snapshot_of(&volumes, "disk", to));
    }
    assert_eq!(read(&target.volume("copy").expect("there")), read(&disk));
}

#[test]
fn a_volume_that_has_another_size_is_received_with_it() {
    let (_store, volumes, _) = source();
    let (_other, target) = opened();
    target.receive("disk", stream(&volumes, "one", None).as_slice()).expect("received");
    let mut last = "one";
    for (name, bytes) in [("small", 2 * BLOCK_BYTES), ("large", 2 * MIB)] {
        volumes.resize("disk", bytes).expect("resized");
        volumes.snapshot(&["disk"], name).expect("taken");
        target.receive("disk", stream(&volumes, name, Some(last)).as_slice()).expect("received");
        let expected = read(&volumes.volume("disk").expect("there"));
        assert_eq!(expected.len() as u64, bytes);
        assert!(read(&target.volume("disk").expect("there")) == expected, "{name}");
        last = name;
    }
    // It is not only hidden.
    target.resize("disk", 4096).expect("resized");
    target.resize("disk", MIB).expect("resized");
    assert_eq!(read(&target.volume("disk").expect("there"))[BLOCK..], [0; MIB as usize - BLOCK]);
}

#[test]
fn every_moment_of_a_history_can_be_sent() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    let history = History { bytes: Some(1 << 30), ..History::OFF };
    volumes.set_history("disk", history).expect("changed");
    write(&disk, 0, &[1]);
    let first = volumes.moment();
    write(&disk, 1, &[2]);
    volumes.mark("disk", "mark").expect("marked");
    write(&disk, 1, &[3]);
    let (_other, target) = opened();
    let send = |at, from| {
        let (stream, totals) = stream_of(&volumes.send("disk", Some(at), from).expect("there"));
        let received = target.receive("disk", stream.as_slice()).expect("received");
        (received.snapshot, totals.data_bytes / BLOCK_BYTES)
    };
    assert_eq!(send(Past::At(first), None), (first.to_string(), 1));
    assert_eq!(send(Past::Mark("mark"), Some(Past::At(first))), ("mark".to_owned(), 1));
    let found = read(&target.volume("disk").expect("there"));
    assert_eq!([found[0], found[BLOCK], found[2 * BLOCK]], [1, 2, 0]);
    let refused = volumes.send("disk", Some(Past::Mark("none")), None).err();
    assert!(matches!(refused, Some(Error::NoMark { .. })), "{refused:?}");
}

/// Where the records of a stream begin, the header first, and its end.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let mut places = vec![16];
    while places[places.len() - 1] < stream.len() {
        let at = places[places.len() - 1];
        let length: [u8; 4] = stream[at + 1..at + 5].try_into().expect("four bytes");
        places.push(at + 9 + u32::from_le_bytes(length) as usize);
    }
    assert_eq!(places.last(), Some(&stream.len()));
    places
}

#[test]
fn a_stream_that_is_cut_anywhere_is_refused_and_can_be_resumed() {
    let (_store, volumes, [one, two]) = source();
    let (_other, target) = opened();
    for (name, from, expected) in [("one", None, one), ("two", Some("one"), two)] {
        let whole = stream(&volumes, name, from);
        let header_end = boundaries(&whole)[1];
        for length in 0..whole.len() {
            // All of the small places, and some in the middle of content.
            let is_near = boundaries(&whole).iter().any(|place| place.abs_diff(length) < 20);
            if !is_near && length % 511 != 0 {
                continue;
            }
            let refused = target.receive("disk", &whole[..length]).expect_err("it is cut");
            let at = length as u64;
            match length {
                0..12 => assert!(matches!(refused, Error::BadStream { at: 0, .. }), "{refused}"),
                _ => {
                    let reason = "it ends before its end".to_owned();
                    assert_eq!(refused, Error::BadStream { at, reason });
                }
            }
            assert_eq!(receiving(&target, "disk").is_some(), length >= header_end, "{length}");
        }
        // Everything but the end has arrived.
        let rest = sending(&volumes, name, from).resume(token(&target, "disk")).expect("fits");
        let (rest, totals) = stream_of(&rest);
        assert_eq!(totals, Totals::default());
        target.receive("disk", rest.as_slice()).expect("received");
        assert_eq!(read(&target.volume("disk").expect("there")), expected);
        assert_eq!(receiving(&target, "disk"), None);
    }
}

#[test]
fn a_stream_that_is_damaged_anywhere_is_refused() {
    let (_store, volumes, [one, _]) = source();
    let (_other, target) = opened();
    let whole = stream(&volumes, "one", None);
    let places = boundaries(&whole);
    for at in 0..whole.len() {
        if at % 97 != 0 && places.iter().all(|place| place.abs_diff(at) > 20) {
            continue;
        }
        for bit in [1, 128] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            let refused = target.receive("disk", damaged.as_slice()).expect_err("damaged");
            let record = places.iter().rev().find(|place| **place <= at).copied().unwrap_or(0);
            match refused {
                // A length that is wrong may let the stream end too early.
                Error::BadStream { at: place, .. } => assert!(place as usize >= record, "{at}"),
                error => panic!("byte {at}: {error}"),
            }
        }
    }
    target.receive("disk", whole.as_slice()).expect("received");
    assert_eq!(read(&target.volume("disk").expect("there")), one);
}

#[test]
fn records_in_another_order_are_refused_where_that_begins() {
    let (_store, volumes, _) = source();
    let (_other, target) = opened();
    let whole = stream(&volumes, "two", None);
    let places = boundaries(&whole);
    let record = |nth: usize| &whole[places[nth]..places[nth + 1]];
    let last = places.len() - 2;
    assert!(last > 3, "there are some records");
    let head = &whole[..places[1]];
    let swapped = [head, record(2), record(1)].concat();
    let left_out = [head, record(2)].concat();
    let twice = [head, record(1), record(1)].concat();
    let at_once = [head, record(last)].concat();
    for (wrong, nth) in [(swapped, 1), (left_out, 1), (twice, 2), (at_once, 1)] {
        match target.receive("disk", wrong.as_slice()) {
            Err(Error::BadStream { at, .. }) => {
                let offset = places[1] + if nth == 2 { record(1).len() } else { 0 };
                assert_eq!(at as usize, offset);
            }
            other => panic!("{other:?}"),
        }
    }
    let refused = target.receive("disk", &b"something else, of some length"[..]).err();
    let reason = "this is no stream of `upsweep volume send`".to_owned();
    assert_eq!(refused, Some(Error::BadStream { at: 0, reason }));
    let mut later = whole.clone();
    later[12] = 9;
    let reason = "it is of version 9, and this program knows 1".to_owned();
    let refused = target.receive("disk", later.as_slice()).err();
    assert_eq!(refused, Some(Error::BadStream { at: 0, reason }));
}

#[test]
fn a_stream_continues_only_what_it_belongs_to() {
    let (_store, volumes, [_, two]) = source();
    let (_other, target) = opened();
    let (full, increment) = (stream(&volumes, "one", None), stream(&volumes, "two", Some("one")));
    let receive = |name: &str, stream: &[u8]| target.receive(name, stream).err();
    let disk = || "disk".to_owned();
    assert_eq!(receive("disk", &increment), Some(Error::NoVolume(disk())));
    target.create("other", MIB).expect("made");
    let (volume, base) = ("other".to_owned(), "one".to_owned());
    assert_eq!(receive("other", &increment), Some(Error::NoBase { volume, base }));
    assert_eq!(receive("other", &full), Some(Error::VolumeExists("other".to_owned())));
    assert_eq!(receive("a/b", &full), Some(Error::BadName("a/b".to_owned())));
    assert_eq!(receive("disk", &full), None);
    assert_eq!(receive("disk", &full), Some(Error::VolumeExists(disk())));
    let changed = || Some(Error::ChangedSince { volume: disk(), snapshot: "one".to_owned() });
    let copy = target.volume("disk").expect("there");
    write(&copy, 200, &[9]);
    assert_eq!(receive("disk", &increment), changed());
    target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    target.resize("disk", 2 * MIB).expect("resized");
    assert_eq!(receive("disk", &increment), changed());
    target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    target.set_history("disk", History { bytes: Some(MIB), ..History::OFF }).expect("changed");
    assert_eq!(receive("disk", &increment), Some(Error::KeepsHistory(disk())));
    target.set_history("disk", History::OFF).expect("changed");
    target.snapshot(&["disk"], "two").expect("taken");
    let (volume, snapshot) = (disk(), "two".to_owned());
    assert_eq!(receive("disk", &increment), Some(Error::SnapshotExists { volume, snapshot }));
    target.delete_snapshot("disk", "two").expect("deleted");
    target.view("disk", Past::Snapshot("one"), "view").expect("made");
    assert!(matches!(receive("view", &increment), Some(Error::NoBase { .. })));
    assert_eq!(receive("disk", &increment), None);
    assert_eq!(read(&copy), two);
    // A snapshot of the same name is not the same snapshot.
    target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    target.delete_snapshot("disk", "one").expect("deleted");
    target.delete_snapshot("disk", "two").expect("deleted");
    target.snapshot(&["disk"], "one").expect("taken");
    assert!(matches!(receive("disk", &increment), Some(Error::NoBase { .. })));
}

#[test]
fn a_change_may_go_back_to_where_the_first_one_came_from() {
    let (_store, volumes, [one, _]) = source();
    let (_other, target) = opened();
    target.receive("disk", stream(&volumes, "one", None).as_slice()).expect("received");
    let copy = target.volume("disk").expect("there");
    write(&copy, 7, &[8]);
    target.snapshot(&["disk"], "back").expect("taken");
    volumes.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    let back = stream(&target, "back", Some("one"));
    volumes.receive("disk", back.as_slice()).expect("received");
    let found = read(&volumes.volume("disk").expect("there"));
    assert!(found == read(&copy) && found != one);
}

#[test]
fn what_is_half_received_is_not_seen() {
    let (_store, volumes, [one, two]) = source();
    let (other, target) = opened();
    let full = stream(&volumes, "one", None);
    target.receive("disk", &full[..full.len() - 9]).expect_err("cut");
    let incomplete = Some(Error::Incomplete("disk".to_owned()));
    assert_eq!(target.volume("disk").err(), incomplete);
    assert_eq!(target.clone_volume("disk", None, "new").err(), incomplete);
    assert_eq!(target.snapshot(&["disk"], "new").err(), incomplete);
    assert_eq!(target.resize("disk", MIB).err(), incomplete);
    assert_eq!(target.send("disk", None, None).err(), incomplete);
    assert!(target.roll_back("disk", Past::Snapshot("one")).is_err());
    let usage = target.usage().expect("readable");
    assert_eq!(usage.volumes[0].own_bytes, 4 * BLOCK_BYTES);
    target.rename("disk", "renamed").expect("renamed");
    target.delete("renamed").expect("deleted");
    work(&other, &target);
    assert_eq!(target.usage().expect("readable").payload_bytes, 0);

    target.receive("disk", full.as_slice()).expect("received");
    let copy = target.volume("disk").expect("there");
    let increment = stream(&volumes, "two", Some("one"));
    target.receive("disk", &increment[..increment.len() - 9]).expect_err("cut");
    work(&other, &target);
    let found = receiving(&target, "disk").expect("it is receiving");
    assert_eq!((found.snapshot.as_str(), found.base.as_deref()), ("two", Some("one")));
    assert!(read(&copy) == one, "it shows what it was");
    let refused = copy.write(0, b"no", Acknowledge::Written);
    assert_eq!(refused, Err(Error::ReadOnly("disk".to_owned())));
    target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    assert_eq!((receiving(&target, "disk"), read(&copy) == one), (None, true));
    write(&copy, 0, &[9]);
    target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    target.receive("disk", increment.as_slice()).expect("received");
    work(&other, &target);
    assert!(read(&copy) == two);
    assert_eq!(target.usage().expect("readable").payload_bytes, 6 * BLOCK_BYTES);
}

#[test]
fn a_stream_is_resumed_only_where_it_fits() {
    let (_store, volumes, [_, two]) = source();
    let (_other, target) = opened();
    let disk = || "disk".to_owned();
    let full = stream(&volumes, "two", None);
    let places = boundaries(&full);
    target.receive("disk", &full[..places[2]]).expect_err("cut");
    let token = token(&target, "disk");
    assert_eq!(token.to_string().parse(), Ok(token));
    for wrong in ["", "1-2-3", "1-2-3-4095", "1-2-3-4096-5", "g-2-3-4096"] {
        assert!(wrong.parse::<ResumeToken>().is_err(), "{wrong}");
    }
    let other = sending(&volumes, "one", None).resume(token).err();
    assert_eq!(other, Some(Error::OtherMoment(disk())));
    let later = ResumeToken { start: token.start + BLOCK_BYTES, ..token };
    let (later, _) = stream_of(&sending(&volumes, "two", None).resume(later).expect("fits"));
    let refused = target.receive("disk", later.as_slice()).err();
    let (start, received) = (token.start + BLOCK_BYTES, token.start);
    assert_eq!(refused, Some(Error::BeginsLater { volume: disk(), start, received }));
    let one = stream(&volumes, "one", None);
    let refused = target.receive("disk", one.as_slice()).err();
    let other = Error::ReceivesOther { volume: disk(), snapshot: "two".to_owned() };
    assert_eq!(refused, Some(other));
    let (rest, totals) = stream_of(&sending(&volumes, "two", None).resume(token).expect("fits"));
    assert!(totals.data_bytes > 0 && rest.len() < full.len());
    let missing = target.receive("new", rest.as_slice()).err();
    assert_eq!(missing, Some(Error::NotReceived("new".to_owned())));
    target.receive("disk", rest.as_slice()).expect("received");
    assert!(read(&target.volume("disk").expect("there")) == two);
    let over = target.receive("disk", rest.as_slice()).err();
    assert_eq!(over, Some(Error::NotReceived(disk())));
}

/// A reader that does something whenever it is asked for more.
struct Watched<'a, F> {
    stream: &'a [u8],
    act: F,
}

impl<F: FnMut(usize) -> io::Result<()>> Read for Watched<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (self.act)(self.stream.len())?;
        self.stream.read(into)
    }
}

#[test]
fn a_volume_is_received_by_one_call_at_a_time_and_may_be_given_up_meanwhile() {
    let (_store, volumes, [one, _]) = source();
    let (_other, target) = opened();
    let full = stream(&volumes, "one", None);
    let mut others = Vec::new();
    let act = |left: usize| {
        if left < full.len() / 2 && target.list().len() == 1 {
            others.extend(target.receive("disk", full.as_slice()).err());
            target.delete("disk").expect("deleted");
        }
        Ok(())
    };
    // In small pieces, so that it is asked again.
    let watched = io::BufReader::with_capacity(100, Watched { stream: &full, act });
    let given_up = target.receive("disk", watched.take(u64::MAX)).expect_err("deleted");
    assert_eq!(given_up, Error::Deleted);
    assert_eq!(others, [Error::ReceivedNow("disk".to_owned())]);
    target.receive("disk", full.as_slice()).expect("received");
    assert!(read(&target.volume("disk").expect("there")) == one);
}

#[test]
fn a_stream_that_was_given_up_by_a_rollback_does_not_go_on() {
    let (_store, volumes, [one, two]) = source();
    let (_other, target) = opened();
    target.receive("disk", stream(&volumes, "one", None).as_slice()).expect("received");
    let increment = stream(&volumes, "two", Some("one"));
    let mut others = Vec::new();
    let act = |left: usize| {
        if left < increment.len() / 2 && others.is_empty() {
            target.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
            others.extend(target.receive("disk", increment.as_slice()).err());
            assert_eq!(receiving(&target, "disk"), None, "nothing of it is recorded");
        }
        Ok(())
    };
    let watched = io::BufReader::with_capacity(100, Watched { stream: &increment, act });
    let given_up = target.receive("disk", watched.take(u64::MAX)).expect_err("rolled back");
    assert_eq!(given_up, Error::NotReceived("disk".to_owned()));
    assert_eq!(others, [Error::ReceivedNow("disk".to_owned())]);
    let disk = target.volume("disk").expect("there");
    assert!(read(&disk) == one);
    target.receive("disk", increment.as_slice()).expect("received");
    assert!(read(&disk) == two);
}

#[test]
fn errors_of_input_and_output_are_told_with_their_place() {
    let (_store, volumes, _) = source();
    let (_other, target) = opened();
    let full = stream(&volumes, "one", None);
    let act = |left: usize| match left {
        0 => Err(io::Error::other("gone")),
        _ => Ok(()),
    };
    let watched = Watched { stream: &full[..full.len() - 5], act };
    let (at, reason) = (full.len() as u64 - 5, "gone".to_owned());
    let expected = Error::Transfer { at, kind: io::ErrorKind::Other, reason };
    assert_eq!(target.receive("disk", watched).err(), Some(expected));
    let mut small = [0; 100];
    let refused = sending(&volumes, "one", None).write_to(&mut small[..]).expect_err("full");
    assert!(matches!(refused, Error::Transfer { .. }), "{refused}");
}

/// A writer that does something after so many bytes.
struct Acting<F> {
    stream: Vec<u8>,
    after: usize,
    act: Option<F>,
}

impl<F: FnOnce()> Write for Acting<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.extend_from_slice(bytes);
        if self.stream.len() >= self.after
            && let Some(act) = self.act.take()
        {
            act();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_being_sent_stays_and_what_was_sent_is_given_back() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", 4 * MIB).expect("made");
    // In reverse order, so that neighbours are in different segments.
    for block in (0..1024).rev() {
        write(&disk, block, &[block as u8 | 1]);
    }
    volumes.snapshot(&["disk"], "one").expect("taken");
    let one = read(&disk);
    let sending = sending(&volumes, "one", None);
    let forget = || {
        volumes.delete("disk").expect("deleted");
        let others = volumes.create("others", 4 * MIB).expect("made");
        for block in 0..1024 {
            write(&others, block, &[0xff]);
        }
        work(&store, &volumes);
    };
    let mut out = Acting { stream: Vec::new(), after: 100_000, act: Some(forget) };
    sending.write_to(&mut out).expect("written");
    assert!(out.act.is_none(), "it was deleted in the middle");
    drop(sending);
    work(&store, &volumes);
    let usage = volumes.usage().expect("readable");
    assert_eq!(usage.payload_bytes, 4 * MIB);
    let (_other, target) = opened();
    target.receive("disk", out.stream.as_slice()).expect("received");
    assert!(read(&target.volume("disk").expect("there")) == one);
}

#[test]
fn the_present_that_is_sent_is_of_one_moment_and_is_let_go() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    write(&disk, 0, &[1; 200]);
    let before = read(&disk);
    let sending = volumes.send("disk", None, None).expect("there");
    let overwrite = || {
        for round in 2..12 {
            write(&disk, 0, &[round; 200]);
            work(&store, &volumes);
        }
        // What nobody sees is given back meanwhile.
        let reclaimable = volumes.usage().expect("readable").reclaimable_bytes / BLOCK_BYTES;
        assert!(reclaimable < 300, "{reclaimable} blocks");
    };
    let mut out = Acting { stream: Vec::new(), after: 100, act: Some(overwrite) };
    sending.write_to(&mut out).expect("written");
    let (_other, target) = opened();
    target.receive("disk", out.stream.as_slice()).expect("received");
    assert!(read(&target.volume("disk").expect("there")) == before);
    assert_eq!(volumes.usage().expect("readable").payload_bytes, 400 * BLOCK_BYTES);
    drop(sending);
    // Without a sweep.
    while volumes.work().expect("no fault") {}
    assert_eq!(volumes.usage().expect("readable").payload_bytes, 200 * BLOCK_BYTES);
}

type Bank = ThreadedDevices<HostileDevices>;

fn hostile(seed: u64) -> (Bank, Store, Volumes) {
    let devices = HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], seed), seed);
    let bank = ThreadedDevices::in_virtual_time(devices);
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().options(options).create_on(bank.clone(), 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 64).expect("opens");
    (bank, store, volumes)
}

/// Cuts the power and opens the store again.
fn cut(bank: &Bank, store: Store, volumes: Volumes) -> (Store, Volumes) {
    bank.with(|devices| devices.fail_after(0, FailureKind::All));
    drop((volumes, store));
    bank.with(|devices| {
        devices.power_cut();
        devices.stop_failing();
    });
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let store = Store::builder().options(options).open_on(bank.clone()).expect("opens");
    let volumes = Volumes::open(&store).expect("opens");
    (store, volumes)
}

#[test]
fn what_was_sent_of_a_moment_survives_a_power_cut_of_the_sender() {
    for seed in 0..10 {
        let (bank, store, volumes) = hostile(seed);
        let disk = volumes.create("disk", MIB).expect("made");
        write(&disk, 0, &[1; 100]);
        // The snapshot is durable, and what it shows is not.
        volumes.snapshot(&["disk"], "one").expect("taken");
        let (_other, target) = opened();
        target.receive("disk", stream(&volumes, "one", None).as_slice()).expect("received");
        drop(disk);
        let (_store, volumes) = cut(&bank, store, volumes);
        let sent = snapshot_of(&target, "disk", "one");
        assert!(snapshot_of(&volumes, "disk", "one") == sent, "seed {seed}");
    }
}

#[test]
fn a_receiver_goes_on_after_a_power_cut() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 64 * MIB).expect("made");
    for block in 0..64 * MIB / BLOCK_BYTES {
        write(&disk, block, &[block as u8 | 1]);
    }
    volumes.snapshot(&["disk"], "one").expect("taken");
    let full = stream(&volumes, "one", None);
    for seed in 0..7_usize {
        let (bank, store, target) = hostile(seed as u64);
        let left_at_end = full.len() / 8 * (seed + 1);
        let mut is_failing = false;
        let act = |left: usize| {
            if left <= left_at_end && !is_failing {
                is_failing = true;
                bank.with(|devices| devices.fail_after(seed as u64, FailureKind::All));
            }
            Ok(())
        };
        target.receive("disk", Watched { stream: &full, act }).expect_err("the power is gone");
        let (_store, target) = cut(&bank, store, target);
        let token = token(&target, "disk");
        let arrived = (full.len() - left_at_end) as u64;
        assert!(token.start + 20 * MIB >= arrived, "at least what was recorded");
        let rest = sending(&volumes, "one", None).resume(token).expect("fits");
        target.receive("disk", stream_of(&rest).0.as_slice()).expect("received");
        assert!(snapshot_of(&target, "disk", "one") == read(&disk), "seed {seed}");
    }
}

struct Random(TestRng);

impl Random {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Some changes of a volume, and perhaps work in the background.
    fn change(&mut self, store: &Store, volumes: &Volumes) {
        let disk = volumes.volume("disk").expect("there");
        for _ in 0..self.below(12) {
            let blocks = disk.bytes().expect("there") / BLOCK_BYTES;
            let longest = self.pick(&[1, 1, 20, 300]);
            let first = self.below(blocks);
            let length = (1 + self.below(longest)).min(blocks - first);
            match self.below(10) {
                0 => {
                    let bytes = (1 + self.below(700)) * BLOCK_BYTES;
                    volumes.resize("disk", bytes).expect("resized");
                }
                1 | 2 => {
                    let (offset, bytes) = (first * BLOCK_BYTES, length * BLOCK_BYTES);
                    disk.zero(offset, bytes, Acknowledge::Written).expect("zeroed");
                }
                3 => work(store, volumes),
                _ => {
                    let content: Vec<u8> = (0..length).map(|_| self.pick(&[0, 1, 2, 3])).collect();
                    write(&disk, first, &content);
                }
            }
        }
    }

    /// Sends, perhaps with interruptions; a stream after one is resumed or sent again.
    fn replicate(&mut self, from: &Volumes, to: &Volumes, name: &str, base: Option<&str>) {
        loop {
            let mut sending = sending(from, name, base);
            if let Some(Receiving { token, .. }) = receiving(to, "disk")
                && self.below(2) == 0
            {
                sending = sending.resume(token).expect("fits");
            }
            let (whole, _) = stream_of(&sending);
            drop(sending);
            if self.below(2) == 0 {
                to.receive("disk", whole.as_slice()).expect("received");
                return;
            }
            let length = self.below(whole.len() as u64) as usize;
            to.receive("disk", &whole[..length]).expect_err("it is cut");
        }
    }
}

/// Whatever is written, a chain of streams makes another store have the same volume, with the same
/// snapshots, back and forth.
#[test]
fn chains_of_streams_make_the_same_volume() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut sides = [opened(), opened()];
        sides[0].1.create("disk", 600 * BLOCK_BYTES).expect("made");
        let mut snapshots: Vec<(String, Vec<u8>)> = Vec::new();
        for round in 0..8_u64 {
            let [(store, source), (other, target)] = &sides;
            random.change(store, source);
            let name = format!("s{round}");
            source.snapshot(&["disk"], &name).expect("taken");
            snapshots.push((name.clone(), read(&source.volume("disk").expect("there"))));
            let base = round.checked_sub(1).map(|base| format!("s{base}"));
            random.replicate(source, target, &name, base.as_deref());
            if random.below(2) == 0 {
                work(other, target);
            }
            assert!(read(&target.volume("disk").expect("there")) == snapshots[round as usize].1);
            // The other side may go on.
            if random.below(3) == 0 {
                sides.reverse();
            }
        }
        for (_, volumes) in &sides {
            for (name, expected) in &snapshots {
                assert!(snapshot_of(volumes, "disk", name) == *expected, "{name} of seed {seed}");
            }
        }
    }
}

#[test]
fn a_decoder_shows_what_a_stream_has() {
    let (_store, volumes, [one, two]) = source();
    let increment = stream(&volumes, "two", Some("one"));
    let mut decoder = Decoder::new(increment.as_slice()).expect("a stream");
    let header = decoder.header().clone();
    assert_eq!((header.name.as_str(), header.bytes, header.start), ("two", MIB, 0));
    assert_eq!(header.base.map(|base| base.name).as_deref(), Some("one"));
    let mut found = one;
    while let Some(record) = decoder.next_record().expect("whole") {
        let (offset, bytes) = record.range();
        let part = &mut found[offset as usize..][..bytes as usize];
        match record {
            Record::Data { data, .. } => part.copy_from_slice(data),
            Record::Zeros { .. } => part.fill(0),
        }
    }
    assert!(found == two);
    assert_eq!(decoder.position(), increment.len() as u64);
}
