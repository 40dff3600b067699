//! Volumes as their users see them.

use upsweep::Store;
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, Volume, Volumes};

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
fn a_volume_of_any_size_takes_nothing_until_it_is_written() {
    let (store, volumes) = opened();
    let large = volumes.create("large", 16 << 50).expect("made");
    write(&large, (16 << 50) - 4096, &[7; 4096]);
    assert_eq!(read(&large, (16 << 50) - 8192, 8192), [[0; 4096], [7; 4096]].concat());
    large.zero(0, 16 << 50, Acknowledge::Durable).expect("zeroed");
    assert_eq!(read(&large, (16 << 50) - 4096, 4096), [0; 4096]);
    assert_eq!(store.status().reserved_bytes, 64 * BLOCK_BYTES);
    for bytes in [0, 4095, (16 << 50) + 4096] {
        assert_eq!(volumes.create("none", bytes).err(), Some(Error::BadSize(bytes)));
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
    let third = volumes.clone_volume("first", Some("one"), "third").expect("made");
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
    let gone = first.read(0, &mut [0]).expect_err("deleted");
    assert!(matches!(gone, Error::NoVolume(_)), "{gone}");
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
    let missing = volumes.clone_volume("disk", Some("none"), "new").err();
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
