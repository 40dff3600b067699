//! Volumes as their users see them.

use std::num::NonZeroU64;

use upsweep::Store;
use upsweep_volume::{
    Acknowledge, BLOCK_BYTES, BlockSize, Error, Extent, ExtentKind, History, MomentKind, Past,
    Usage, Volume, VolumeSettings, Volumes,
};

const MIB: u64 = 1 << 20;

fn opened() -> (Store, Volumes) {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open_with(&store, 64).expect("opens");
    (store, volumes)
}

fn write(volume: &Volume, offset: u64, data: &[u8]) {
    volume.write(offset, data, Acknowledge::Written).expect("written");
}

fn read(volume: &Volume, offset: u64, bytes: usize) -> Vec<u8> {
    let mut found = vec![0xee; bytes];
    volume.read(offset, &mut found).expect("readable");
    found
}

#[test]
fn parts_of_blocks_are_written_and_read() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    write(&disk, 0, &[1; 3 * 4096]);
    write(&disk, 4000, &[2; 200]);
    assert_eq!(read(&disk, 3999, 202), [&[1][..], &[2; 200], &[1]].concat());
    disk.zero(4090, 10, Acknowledge::Written).expect("zeroed");
    disk.zero(8000, 4288, Acknowledge::Durable).expect("zeroed");
    let found = read(&disk, 0, 3 * 4096);
    assert_eq!(found[4089..4101], [&[2][..], &[0; 10], &[2]].concat());
    assert_eq!((found[7999], &found[8000..]), (1, &[0; 4288][..]));
    assert_eq!(read(&disk, MIB - 3, 3), [0; 3]);
}

#[test]
fn several_ranges_are_read_together_and_fail_alone() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    let data: Vec<u8> = (0..MIB / 2).map(|at| (at / 1000) as u8).collect();
    write(&disk, 0, &data);
    let clone = volumes.clone_volume("disk", None, "clone").expect("made");
    write(&clone, 8192, &[7; 4096]);
    let expected = [&data[..8192], &[7; 4096], &data[12288..], &vec![0; data.len()]].concat();
    let whole = [(4096, 8192), (8192, 4096), (65536, 131_072), (MIB - 4096, 4096), (0, 4096)];
    let odd = [(4096, 4096), (100, 50), (0, 0), (MIB - 1, 1)];
    let beyond = [(0, 4096), (MIB, 4096), (u64::MAX, 4096), (MIB - 4096, 8192), (4096, 4096)];
    for ranges in [&whole[..], &odd, &beyond, &[]] {
        let mut parts: Vec<_> =
            ranges.iter().map(|(offset, bytes)| (*offset, vec![0xee; *bytes as usize])).collect();
        let mut reads: Vec<_> =
            parts.iter_mut().map(|(offset, part)| (*offset, &mut part[..])).collect();
        let found = clone.read_all(&mut reads);
        assert_eq!(found.len(), ranges.len());
        for ((offset, part), found) in parts.iter().zip(found) {
            let end = offset.checked_add(part.len() as u64).filter(|end| *end <= MIB);
            match end {
                Some(end) => assert!(*part == expected[*offset as usize..end as usize]),
                None => assert!(matches!(found, Err(Error::OutOfRange { .. }))),
            }
            assert_eq!(found.is_ok(), end.is_some(), "at {offset}");
        }
    }
    volumes.delete("clone").expect("deleted");
    let gone = clone.read_all(&mut [(0, &mut [0; 4096])]);
    assert_eq!(gone, [Err(Error::Deleted)]);
}

#[test]
fn what_is_on_the_devices_and_what_is_in_memory_are_read_together() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    // Consecutive slots, of which the last two are not written yet.
    write(&disk, 0, &[1; 4096]);
    write(&disk, 4096, &[2; 4096]);
    volumes.flush().expect("flushed");
    write(&disk, 8192, &[3; 4096]);
    write(&disk, 12288, &[4; 4096]);
    let found = read(&disk, 0, 16384);
    assert_eq!([0, 4096, 8192, 12288].map(|at| found[at]), [1, 2, 3, 4]);
}

#[test]
fn a_volume_of_any_size_takes_nothing_until_it_is_written() {
    let (store, volumes) = opened();
    let large = volumes.create("large", 16 << 50).expect("made");
    write(&large, (16 << 50) - 4096, &[7; 4096]);
    assert_eq!(read(&large, (16 << 50) - 8192, 8192), [[0; 4096], [7; 4096]].concat());
    large.zero(0, 16 << 50, Acknowledge::Durable).expect("zeroed");
    assert_eq!(read(&large, (16 << 50) - 4096, 4096), [0; 4096]);
    // One segment for it, and one to spare.
    assert_eq!(store.status().reserved_bytes, 2 * 64 * BLOCK_BYTES);
    for (block_size, sizes) in [
        (BlockSize::Bytes512, [0, 511, (16 << 50) + 512]),
        (BlockSize::Bytes4096, [0, 4608, (16 << 50) + 4096]),
    ] {
        for bytes in sizes {
            let expected = Error::BadSize { bytes, block_bytes: block_size.bytes() };
            assert_eq!(volumes.create_with("none", bytes, block_size).err(), Some(expected));
        }
    }
}

#[test]
fn clones_and_snapshots_stay_what_they_were() {
    let (_store, volumes) = opened();
    let first = volumes.create("first", MIB).expect("made");
    write(&first, 0, &[1; 8192]);
    volumes.snapshot(&["first"], "one").expect("taken");
    write(&first, 0, &[2; 4096]);
    let second = volumes.clone_volume("first", None, "second").expect("made");
    let third = volumes.clone_volume("first", Some(Past::Snapshot("one")), "third").expect("made");
    write(&first, 0, &[3; 4096]);
    write(&second, 4096, &[4; 4096]);
    let fourth = volumes.clone_volume("second", None, "fourth").expect("made");
    write(&second, 4096, &[5; 4096]);
    let both = |volume| {
        let found = read(volume, 0, 8192);
        (found[0], found[8191])
    };
    assert_eq!([&first, &second, &third, &fourth].map(both), [(3, 1), (2, 5), (1, 1), (2, 4)]);
    volumes.delete("first").expect("deleted");
    volumes.delete("second").expect("deleted");
    volumes.flush().expect("flushed");
    while volumes.work().expect("no fault") {}
    assert_eq!([&third, &fourth].map(both), [(1, 1), (2, 4)]);
    assert_eq!(first.read(0, &mut [0]), Err(Error::Deleted));
}

#[test]
fn a_snapshot_of_several_volumes_is_of_one_moment() {
    let (_store, volumes) = opened();
    for name in ["a", "b"] {
        volumes.create(name, MIB).expect("made");
    }
    volumes.snapshot(&["a", "b"], "both").expect("taken");
    let stamps: Vec<u64> = volumes.list().iter().map(|volume| volume.snapshots[0].1).collect();
    assert_eq!(stamps[0], stamps[1]);
    let refused = volumes.snapshot(&["a", "c"], "again").expect_err("there is no c");
    assert_eq!(refused, Error::NoVolume("c".to_owned()));
    assert!(volumes.list().iter().all(|volume| volume.snapshots.len() == 1), "nothing is changed");
}

#[test]
fn wrong_names_and_ranges_are_refused() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    for name in ["", "a/b", "a@b", "a\nb", &"x".repeat(129)] {
        assert_eq!(volumes.create(name, MIB).err(), Some(Error::BadName(name.to_owned())));
        assert_eq!(volumes.rename("disk", name).err(), Some(Error::BadName(name.to_owned())));
    }
    assert_eq!(volumes.create("disk", MIB).err(), Some(Error::VolumeExists("disk".to_owned())));
    for (offset, bytes) in [(MIB, 1), (MIB - 1, 2), (u64::MAX, 1)] {
        let refused = disk.write(offset, &vec![0; bytes], Acknowledge::Written);
        let bytes = bytes as u64;
        let expected = Error::OutOfRange { offset, bytes, volume_bytes: MIB };
        assert_eq!(refused, Err(expected.clone()));
        assert_eq!(disk.zero(offset, bytes, Acknowledge::Written), Err(expected));
    }
    let missing = volumes.clone_volume("disk", Some(Past::Snapshot("none")), "new").err();
    let (volume, snapshot) = ("disk".to_owned(), "none".to_owned());
    assert_eq!(missing, Some(Error::NoSnapshot { volume, snapshot }));
    volumes.rename("disk", "other").expect("renamed");
    write(&disk, 0, b"still the same");
    assert_eq!(volumes.volume("disk").err(), Some(Error::NoVolume("disk".to_owned())));
    assert_eq!(read(&volumes.volume("other").expect("there"), 0, 5), b"still");
}

#[test]
fn overwriting_again_and_again_needs_little_space() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", 4 * MIB).expect("made");
    let mut most = 0;
    for round in 0..40_u64 {
        // Scattered blocks, so that no segment dies as a whole.
        for nth in 0..1024_u64 {
            let block = nth * 389 % 1024;
            if round == 0 || (block * 7 + round) % 3 == 0 {
                write(&disk, block * BLOCK_BYTES, &[round as u8; 4096]);
            }
        }
        volumes.flush().expect("flushed");
        store.sweep().expect("swept");
        while volumes.work().expect("no fault") {}
        most = most.max(store.status().reserved_bytes);
    }
    // What was overwritten is seen by the next sweep, so a third of the volume is dead meanwhile.
    assert!(most <= 8 * MIB, "{most} bytes for a volume of 4 MiB");
    for block in 0..1024_u64 {
        let last = (0..40).rev().find(|round| (block * 7 + round) % 3 == 0).expect("one of three");
        assert_eq!(read(&disk, block * BLOCK_BYTES, 4096), [last as u8; 4096], "block {block}");
    }
}

#[test]
fn usage_is_what_would_be_free() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", 4 * MIB).expect("made");
    write(&disk, 0, &vec![1; MIB as usize]);
    volumes.snapshot(&["disk"], "one").expect("taken");
    write(&disk, 0, &vec![2; 256 << 10]);
    let clone = volumes.clone_volume("disk", None, "clone").expect("made");
    write(&clone, MIB, &vec![3; 512 << 10]);
    write(&disk, 2 * MIB, &vec![4; 128 << 10]);
    let kib = |usage: &Usage, name| {
        let found = usage.volumes.iter().find(|volume| volume.name == name).expect("listed");
        [found.own_bytes, found.history_bytes, found.shared_bytes].map(|bytes| bytes >> 10)
    };
    let usage = volumes.usage().expect("readable");
    // Of the disk's own, 256 KiB are in the snapshot only.
    assert_eq!(kib(&usage, "disk"), [128 + 256, 256, 1024]);
    assert_eq!(kib(&usage, "clone"), [512, 0, 1024]);
    assert_eq!(usage.payload_bytes >> 10, 1024 + 256 + 512 + 128);
    let reserved_bytes = store.status().reserved_bytes;
    assert_eq!(usage.payload_bytes + usage.reclaimable_bytes, reserved_bytes);
    volumes.delete("disk").expect("deleted");
    let usage = volumes.usage().expect("readable");
    assert_eq!(kib(&usage, "clone"), [1024 + 512, 0, 0]);
    assert_eq!(usage.payload_bytes >> 10, 1024 + 512);
}

#[test]
fn extents_say_what_is_written_and_in_which_volume() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 1 << 40).expect("made");
    write(&disk, 4096, &[1; 8192]);
    let clone = volumes.clone_volume("disk", None, "clone").expect("made");
    write(&clone, 8192, &[2; 8192]);
    let zero = |bytes| Extent { bytes, kind: ExtentKind::Zero };
    let data = |bytes, depth| Extent { bytes, kind: ExtentKind::Data { depth } };
    let found = clone.status(100, 1 << 20).expect("inside");
    let rest = (1 << 20) + 100 - 16384;
    assert_eq!(found, [zero(3996), data(4096, 1), data(8192, 0), zero(rest)]);
    assert_eq!(disk.status(0, 1 << 40).expect("inside").last(), Some(&zero((1 << 30) - 12288)));
    volumes.snapshot(&["clone"], "now").expect("taken");
    clone.zero(0, 12288, Acknowledge::Written).expect("zeroed");
    let changes = volumes.changes("clone", Past::Snapshot("now"), None).expect("there");
    let changed: Vec<_> = changes.map(|range| range.expect("readable")).collect();
    assert_eq!(changed, vec![4096..12288]);
}

#[test]
fn volumes_change_their_size_and_go_back() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    write(&disk, 0, &vec![1; MIB as usize]);
    volumes.snapshot(&["disk"], "large").expect("taken");
    volumes.resize("disk", 8192).expect("smaller");
    assert!(matches!(disk.read(8192, &mut [0]), Err(Error::OutOfRange { .. })));
    volumes.resize("disk", 2 * MIB).expect("larger");
    assert_eq!(read(&disk, 8190, 4), [1, 1, 0, 0]);
    assert_eq!(read(&disk, MIB - 1, 2), [0, 0]);
    volumes.roll_back("disk", Past::Snapshot("large")).expect("rolled back");
    assert_eq!((disk.bytes(), read(&disk, MIB - 1, 1)), (Ok(MIB), vec![1]));
    let view = volumes.view("disk", Past::Snapshot("large"), "view").expect("made");
    let refused = Err(Error::ReadOnly("view".to_owned()));
    assert_eq!(view.write(0, b"no", Acknowledge::Written), refused);
    assert_eq!(volumes.resize("view", MIB), refused);
    assert_eq!(
        volumes.roll_back("view", Past::Snapshot("large")).err(),
        Some(Error::NoSnapshot { volume: "view".to_owned(), snapshot: "large".to_owned() })
    );
    assert_eq!((disk.is_read_only(), view.is_read_only()), (Ok(false), Ok(true)));
}

#[test]
fn snapshots_are_read_without_a_clone() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    write(&disk, 4096, &[1; 8192]);
    volumes.snapshot(&["disk"], "one").expect("taken");
    let one = volumes.at_snapshot("disk", "one").expect("there");
    assert_eq!((one.name().as_deref(), one.snapshot()), (Ok("disk"), Some("one")));
    assert_eq!((one.bytes(), one.is_read_only(), disk.snapshot()), (Ok(MIB), Ok(true), None));
    write(&disk, 4096, &[2; 4096]);
    volumes.resize("disk", 8192).expect("smaller");
    let zero = |bytes| Extent { bytes, kind: ExtentKind::Zero };
    let data = |bytes, depth| Extent { bytes, kind: ExtentKind::Data { depth } };
    let extents = [zero(4096), data(8192, 0), zero(MIB - 12288)];
    let is_as_it_was = || {
        assert_eq!(read(&one, 4095, 8193), [&[0][..], &[1; 8192]].concat());
        assert_eq!((one.bytes(), one.status(0, MIB)), (Ok(MIB), Ok(extents.to_vec())));
    };
    is_as_it_was();
    // A volume that was rolled back has another branch.
    volumes.roll_back("disk", Past::Snapshot("one")).expect("rolled back");
    write(&disk, 4096, &[3; 8192]);
    volumes.rename("disk", "other").expect("renamed");
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    while volumes.work().expect("no fault") {}
    is_as_it_was();
    let refused = Err(Error::ReadOnly("other@one".to_owned()));
    assert_eq!(one.write(0, b"no", Acknowledge::Written), refused);
    assert_eq!(one.zero(0, MIB, Acknowledge::Written), refused);
    assert!(matches!(one.read(MIB, &mut [0]), Err(Error::OutOfRange { .. })));
    let no = |volume: &str, snapshot: &str| Error::NoSnapshot {
        volume: volume.to_owned(),
        snapshot: snapshot.to_owned(),
    };
    assert_eq!(volumes.at_snapshot("other", "two").err(), Some(no("other", "two")));
    assert!(matches!(volumes.at_snapshot("disk", "one").err(), Some(Error::NoVolume(_))));
    // Another one of the same name is another one.
    volumes.delete_snapshot("other", "one").expect("deleted");
    volumes.snapshot(&["other"], "one").expect("taken");
    assert_eq!(one.read(0, &mut [0]), Err(no("other", "one")));
    assert_eq!(one.status(0, 4096), Err(no("other", "one")));
    assert_eq!(
        (one.bytes(), one.is_read_only()),
        (Err(no("other", "one")), Err(no("other", "one")))
    );
    let again = volumes.at_snapshot("other", "one").expect("there");
    assert_eq!(read(&again, 4096, 1), [3]);
    volumes.delete("other").expect("deleted");
    assert_eq!(again.read(0, &mut [0]), Err(Error::Deleted));
    assert_eq!(again.status(0, 1), Err(Error::Deleted));
}

#[test]
fn a_volume_may_end_within_a_block() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 8192 + 512).expect("made");
    let size = 8192 + 512;
    write(&disk, 0, &vec![1; size]);
    assert_eq!(read(&disk, 0, size), vec![1; size]);
    assert_eq!(
        disk.status(8192, 512),
        Ok(vec![Extent { bytes: 512, kind: ExtentKind::Data { depth: 0 } }])
    );
    for (offset, bytes) in [(8192, 4096), (size as u64, 1)] {
        let refused = Err(Error::OutOfRange { offset, bytes, volume_bytes: size as u64 });
        assert_eq!(disk.read(offset, &mut vec![0; bytes as usize]), refused);
        assert_eq!(disk.write(offset, &vec![0; bytes as usize], Acknowledge::Written), refused);
        assert_eq!(disk.zero(offset, bytes, Acknowledge::Written), refused);
    }
    volumes.snapshot(&["disk"], "full").expect("taken");
    let usage = volumes.usage().expect("readable").volumes[0].clone();
    assert_eq!((usage.bytes, usage.own_bytes), (size as u64, 3 * BLOCK_BYTES));
    // What a smaller one has lost, a larger one does not show.
    volumes.resize("disk", 4096 + 1024).expect("smaller");
    assert!(matches!(disk.read(4096 + 1024, &mut [0]), Err(Error::OutOfRange { .. })));
    volumes.resize("disk", 2048).expect("smaller");
    volumes.resize("disk", 16384).expect("larger");
    assert_eq!(read(&disk, 0, 16384), [vec![1; 2048], vec![0; 16384 - 2048]].concat());
    let clone = volumes.clone_volume("disk", Some(Past::Snapshot("full")), "clone").expect("made");
    assert_eq!(read(&clone, 0, size), vec![1; size]);
    let all = |changes| -> Vec<_> {
        Iterator::map(changes, |range: Result<_, Error>| range.expect("readable")).collect()
    };
    let changes = volumes.changes("disk", Past::Snapshot("full"), None).expect("there");
    assert_eq!(all(changes), vec![0..12288]);
    volumes.roll_back("disk", Past::Snapshot("full")).expect("rolled back");
    write(&disk, 8192, &[2; 512]);
    let changes = volumes.changes("disk", Past::Snapshot("full"), None).expect("there");
    assert_eq!(all(changes), vec![8192..8704]);
    // A view is not written to, whatever its size.
    let view = volumes.view("disk", Past::Snapshot("full"), "view").expect("made");
    assert_eq!(volumes.resize("view", MIB), Err(Error::ReadOnly("view".to_owned())));
    assert_eq!(read(&view, 0, size), vec![1; size]);
}

#[test]
fn clones_and_views_have_the_block_size_of_their_source() {
    let (_store, volumes) = opened();
    volumes.create("small", MIB).expect("made");
    volumes.create_with("large", MIB, BlockSize::Bytes4096).expect("made");
    volumes.snapshot(&["small", "large"], "one").expect("taken");
    for of in ["small", "large"] {
        volumes.clone_volume(of, None, &format!("{of}, cloned")).expect("made");
        volumes.view(of, Past::Snapshot("one"), &format!("{of}, viewed")).expect("made");
    }
    for volume in volumes.list() {
        let bytes = if volume.name.starts_with("small") { 512 } else { 4096 };
        assert_eq!(volume.block_size.bytes(), bytes, "{}", volume.name);
    }
    let refused = Error::BadSize { bytes: 512, block_bytes: 4096 };
    assert_eq!(volumes.resize("large, cloned", 512), Err(refused));
    volumes.resize("small, cloned", 512).expect("smaller");
}

#[test]
fn what_a_smaller_size_cut_off_is_zero_once_there_is_more_again() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 8 * MIB).expect("made");
    write(&disk, 0, &vec![1; 8 * MIB as usize]);
    volumes.snapshot(&["disk"], "before").expect("taken");
    // The cut has spans of blocks, of chunks, and longer ones.
    volumes.resize("disk", MIB + 4096).expect("smaller");
    let small = volumes.clone_volume("disk", None, "small").expect("made");
    volumes.resize("disk", 8 * MIB).expect("larger");
    volumes.resize("small", 8 * MIB).expect("larger");
    let before = volumes.view("disk", Past::Snapshot("before"), "before").expect("made");
    let cut = MIB as usize + 4096;
    for (volume, tail) in [(&disk, 0), (&small, 0), (&before, 1)] {
        let found = read(volume, 0, 8 * MIB as usize);
        assert!(found[..cut].iter().all(|byte| *byte == 1));
        let wrong = found[cut..].iter().position(|byte| *byte != tail);
        assert_eq!(wrong, None, "behind the cut of {:?}", volume.name());
    }
}

#[test]
fn what_waits_to_be_written_is_not_cleaned_away() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", 4 * MIB).expect("made");
    let block = |number: u64| number * BLOCK_BYTES;
    // 56 of the 64 slots of a home, 16 of which are dead.
    write(&disk, 0, &vec![1; 40 * 4096]);
    write(&disk, 0, &vec![2; 16 * 4096]);
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    while volumes.work().expect("no fault") {}
    // The next one stays in memory, and the one after it is in another home.
    write(&disk, block(100), &[3; 4096]);
    write(&disk, block(200), &vec![4; 40 * 4096]);
    while volumes.work().expect("no fault") {}
    assert_eq!(read(&disk, block(100), 4096), [3; 4096]);
    volumes.flush().expect("flushed");
    while volumes.work().expect("no fault") {}
    assert_eq!(read(&disk, block(100), 4096), [3; 4096]);
    assert_eq!(read(&disk, 0, 4096), [2; 4096]);
    assert_eq!(read(&disk, block(16), 4096), [1; 4096]);
}

#[test]
fn settings_are_kept() {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open(&store).expect("opens");
    let disk = volumes.create("disk", MIB).expect("made");
    assert_eq!(disk.settings(), Ok(VolumeSettings::default()));
    let changed = volumes.change_settings("disk", |settings| {
        settings.requests_per_second = NonZeroU64::new(5);
        settings.clients = vec!["a".to_owned(), "b".to_owned()];
        settings.read_only = true;
    });
    let mut expected = VolumeSettings::default();
    expected.requests_per_second = NonZeroU64::new(5);
    expected.clients = vec!["a".to_owned(), "b".to_owned()];
    expected.read_only = true;
    assert_eq!((changed, disk.settings()), (Ok(expected.clone()), Ok(expected.clone())));
    assert_eq!(volumes.settings_changes(), 1);
    assert_eq!(volumes.change_settings("none", |_| {}), Err(Error::NoVolume("none".to_owned())));
    assert_eq!(volumes.settings_changes(), 1);
    // Who can see a volume can see its clones, and nobody else.
    volumes.snapshot(&["disk"], "now").expect("taken");
    let clone = volumes.clone_volume("disk", None, "clone").expect("made");
    let view = volumes.view("disk", Past::Snapshot("now"), "view").expect("made");
    for volume in [&clone, &view] {
        let settings = volume.settings().expect("there");
        assert_eq!(settings.clients, expected.clients);
        assert_eq!((settings.requests_per_second, settings.read_only), (None, false));
    }
    write(&clone, 0, b"clone");
    let refused = Err(Error::ReadOnly("disk".to_owned()));
    assert_eq!(disk.write(0, b"no", Acknowledge::Written), refused);
    assert_eq!(disk.zero(0, 4096, Acknowledge::Written), refused);
    assert_eq!((disk.is_read_only(), volumes.resize("disk", 2 * MIB)), (Ok(true), Ok(())));
    volumes.roll_back("disk", Past::Snapshot("now")).expect("rolled back");
    volumes.rename("disk", "other").expect("renamed");
    assert_eq!(volumes.list()[1].settings, expected);
    drop((disk, clone, view, volumes));
    let volumes = Volumes::open(&store).expect("opens again");
    let other = volumes.volume("other").expect("there");
    assert_eq!(other.settings(), Ok(expected));
    volumes.change_settings("other", |settings| settings.read_only = false).expect("changed");
    write(&other, 0, b"yes");
}

#[test]
fn a_volume_that_ends_within_a_block_grows_although_it_is_read_only_and_at_its_quota() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", 8192).expect("made");
    disk.write(0, &[0xff; 8192], Acknowledge::Written).expect("written");
    let change = |settings: &mut VolumeSettings| {
        (settings.read_only, settings.quota_bytes) = (true, NonZeroU64::new(8192));
    };
    volumes.change_settings("disk", change).expect("changed");
    for (bytes, data) in [(4608, 4608), (512, 512), (1024, 512), (8192, 512)] {
        volumes.resize("disk", bytes).expect("another size");
        let mut expected = vec![0xff; data];
        expected.resize(bytes as usize, 0);
        assert!(read(&disk, 0, bytes as usize) == expected, "{bytes}");
    }
}

#[test]
fn without_a_history_there_are_no_moments() {
    let (_store, volumes) = opened();
    let disk = volumes.create("disk", MIB).expect("made");
    let none = Some(Error::NoHistory("disk".to_owned()));
    let at = Past::At(volumes.moment());
    assert_eq!(volumes.clone_volume("disk", Some(at), "new").err(), none);
    assert_eq!(
        (volumes.mark("disk", "m").err(), volumes.moments("disk").err()),
        (none.clone(), none)
    );
    let history = History { bytes: Some(1 << 30), ..History::OFF };
    volumes.set_history("disk", history).expect("changed");
    let before = volumes.moment();
    write(&disk, 0, b"first");
    volumes.mark("disk", "first").expect("marked");
    write(&disk, 0, b"later");
    assert!(matches!(volumes.mark("disk", "first"), Err(Error::MarkExists { .. })));
    let marked = volumes.view("disk", Past::Mark("first"), "marked").expect("made");
    let empty = volumes.clone_volume("disk", Some(Past::At(before)), "empty").expect("made");
    assert_eq!((read(&marked, 0, 5), read(&empty, 0, 5)), (b"first".to_vec(), vec![0; 5]));
    let future = volumes.view("disk", Past::At(volumes.moment() + 1_000_000_000), "future").err();
    assert!(matches!(future, Some(Error::NoMoment { .. })), "{future:?}");
    let kinds: Vec<MomentKind> =
        volumes.moments("disk").expect("kept").into_iter().map(|moment| moment.kind).collect();
    assert_eq!(kinds, [MomentKind::Mark("first".to_owned())]);
}
