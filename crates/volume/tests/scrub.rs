//! Damage of payload and of the tables of volumes: scrub and verification find it, with all who see
//! it, and nothing else.

use upsweep::layers::device::{
    Buffer, Class, DeviceId, HostileDevices, MemoryDevices, ThreadedDevices, WriteMode,
};
use upsweep::layers::structures::modifiers::BIT_OR;
use upsweep::{CreateOptions, Location, OpenOptions, Store};
use upsweep_volume::{
    Acknowledge, BLOCK_BYTES, DamagedRange, Error, Fault, History, Past, ScrubPosition, SeenIn,
    Volumes,
};

const BLOCK: usize = BLOCK_BYTES as usize;
const MIB: u64 = 1 << 20;

fn block_of(content: u64) -> Vec<u8> {
    content.to_le_bytes().repeat(BLOCK / 8)
}

fn write(volumes: &Volumes, name: &str, block: u64, content: u64) {
    let volume = volumes.volume(name).expect("there");
    let (offset, data) = (block * BLOCK_BYTES, block_of(content));
    volume.write(offset, &data, Acknowledge::Written).expect("written");
}

fn open(store: &Store) -> Volumes {
    Volumes::open_with(store, 64).expect("opens")
}

/// Acts on every block of payload of a store whose volumes are not open: the place and the content.
fn for_each_block(store: &Store, mut act: impl FnMut(Location, &[u8]) -> Option<Vec<u8>>) {
    let homes = store.existing_table("volumes/homes").expect("there");
    for segment in store.blocks().extents(homes.space()).expect("readable") {
        let extent = segment.extent();
        for offset in (0..u64::from(extent.bytes)).step_by(BLOCK) {
            let read = segment.read(offset, Buffer::zeroed(BLOCK), Class::Upkeep);
            let place = Location { device: extent.device, offset: extent.offset + offset };
            let Some(changed) = read.ok().and_then(|found| act(place, &found)) else { continue };
            let buffer = Buffer::copy_of(&changed);
            segment.write(offset, buffer, WriteMode::Stable, Class::Upkeep).expect("written");
        }
    }
}

/// Flips a bit in the block with this content, and returns where it is.
fn damage(store: &Store, content: u64) -> Location {
    let mut found = Vec::new();
    for_each_block(store, |place, block| {
        (block == block_of(content)).then(|| {
            found.push(place);
            let mut changed = block.to_vec();
            changed[1000] ^= 1;
            changed
        })
    });
    assert_eq!(found.len(), 1, "content {content}");
    found[0]
}

/// Scrubs to the end in small steps; returns the bytes that were checked, and all damage.
fn scrub(volumes: &Volumes, volume: Option<&str>) -> (u64, Vec<DamagedRange>) {
    let (mut bytes, mut damage, mut next) = (0, Vec::new(), Some(ScrubPosition::default()));
    while let Some(from) = next {
        let step = volumes.scrub(volume, from, 64 << 10).expect("readable");
        bytes += step.bytes;
        damage.extend(step.damage);
        next = step.next;
    }
    (bytes, damage)
}

/// What is damaged: who sees it, block, blocks, place and fault.
type Expected<'a> = (&'a [SeenIn], u64, u64, Option<Location>, Fault);

fn assert_damage(found: &[DamagedRange], expected: &[Expected<'_>]) {
    let found: Vec<Expected<'_>> = found
        .iter()
        .map(|range| {
            let (block, blocks) = (range.offset / BLOCK_BYTES, range.bytes / BLOCK_BYTES);
            (&*range.seen_in, block, blocks, range.location, range.fault.clone())
        })
        .collect();
    assert_eq!(found, expected);
}

fn volume(name: &str) -> SeenIn {
    SeenIn::Volume(name.to_owned())
}

#[test]
fn damage_is_found_with_all_who_see_it_and_nothing_else() {
    let store = Store::in_memory().expect("made");
    let volumes = open(&store);
    for name in ["disk", "other"] {
        volumes.create(name, MIB).expect("made");
    }
    (0..200).for_each(|block| write(&volumes, "disk", block, 1000 + block));
    (0..20).for_each(|block| write(&volumes, "other", block, 2000 + block));
    volumes.snapshot(&["disk"], "monday").expect("taken");
    write(&volumes, "disk", 3, 3003);
    volumes.clone_volume("disk", None, "clone").expect("made");
    write(&volumes, "disk", 9, 3009);
    // Superseded, and in no snapshot.
    write(&volumes, "other", 7, 3007);
    volumes.flush().expect("flushed");
    let (bytes, found) = scrub(&volumes, None);
    assert_eq!((bytes, found), ((200 + 20 + 3) * BLOCK_BYTES, Vec::new()));
    drop(volumes);
    let contents = [1003, 1005, 1007, 1008, 2007, 3009];
    let places = contents.map(|content| damage(&store, content));
    let monday = SeenIn::Snapshot { volume: "disk".to_owned(), snapshot: "monday".to_owned() };
    let all = [volume("disk"), monday.clone(), volume("clone")];
    let [was, five, seven, _, _, nine] = places.map(Some);
    let expected: &[Expected<'_>] = &[
        (&all[1..2], 3, 1, was, Fault::Checksum),
        (&all, 5, 1, five, Fault::Checksum),
        (&all, 7, 2, seven, Fault::Checksum),
        (&all[..1], 9, 1, nine, Fault::Checksum),
    ];
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    assert_damage(&report.damage, expected);
    assert_eq!((report.faults, report.volumes), (Vec::new(), 3));
    let volumes = open(&store);
    assert_damage(&scrub(&volumes, None).1, expected);
    assert_damage(&scrub(&volumes, Some("disk")).1, expected);
    assert_damage(&scrub(&volumes, Some("clone")).1, &expected[1..3]);
    assert_damage(&scrub(&volumes, Some("other")).1, &[]);
    let missing = volumes.scrub(Some("none"), ScrubPosition::default(), 1).expect_err("no volume");
    assert_eq!(missing, Error::NoVolume("none".to_owned()));
    let shown = scrub(&volumes, Some("clone")).1[0].to_string();
    let seen_in = r#"volume "disk", snapshot "monday" of volume "disk", volume "clone""#;
    let place = places[1];
    assert_eq!(shown, format!("bytes 20480 to 24575 of {seen_in} on {place}: checksum mismatch"));
    let disk = volumes.volume("disk").expect("there");
    for block in 0..200 {
        let read = disk.read(block * BLOCK_BYTES, &mut [0; BLOCK]);
        let is_damaged = [5, 7, 8, 9].contains(&block);
        assert_eq!(matches!(read, Err(Error::Damaged { .. })), is_damaged, "block {block}");
        assert_eq!(read.is_ok(), !is_damaged, "block {block}");
    }
    let mut blocks = vec![[0; BLOCK]; 200];
    let parts = blocks.iter_mut().zip(0..).map(|(part, nth)| (nth * BLOCK_BYTES, &mut part[..]));
    let read = disk.read_all(&mut parts.collect::<Vec<_>>());
    let failed: Vec<usize> = (0..200).filter(|nth| read[*nth].is_err()).collect();
    assert_eq!(failed, [5, 7, 8, 9], "each fails alone");
}

#[test]
fn damage_in_the_history_alone_is_found() {
    let store = Store::in_memory().expect("made");
    let volumes = open(&store);
    volumes.create("disk", MIB).expect("made");
    volumes.set_history("disk", History { bytes: Some(MIB), ..History::OFF }).expect("changed");
    let empty = volumes.moment();
    (1..=3).for_each(|content| write(&volumes, "disk", 0, content));
    volumes.roll_back("disk", Past::At(empty)).expect("rolled back");
    volumes.flush().expect("flushed");
    drop(volumes);
    let places = [1, 2, 3].map(|content| damage(&store, content));
    let volumes = open(&store);
    let history = [SeenIn::History("disk".to_owned())];
    let expected = places.map(|place| (&history[..], 0, 1, Some(place), Fault::Checksum));
    assert_damage(&scrub(&volumes, Some("disk")).1, &expected);
}

#[test]
fn blocks_that_a_device_cannot_read_are_found_one_by_one() {
    let memory = MemoryDevices::with_sizes(&[0, 0], 1);
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, 1));
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().options(options).create_on(bank.clone(), 1, &sizes);
    let store = store.expect("made");
    let volumes = open(&store);
    volumes.create("disk", MIB).expect("made");
    (0..100).for_each(|block| write(&volumes, "disk", block, 1000 + block));
    volumes.flush().expect("flushed");
    drop(volumes);
    let mut place = None;
    for_each_block(&store, |at, found| {
        place = place.or((found == block_of(1040)).then_some(at));
        None
    });
    let place = place.expect("there");
    bank.with(|devices| devices.make_unreadable(DeviceId(0), place.offset, 2 * BLOCK_BYTES));
    let (_, found) = scrub(&open(&store), None);
    let [DamagedRange { offset, bytes, location, fault: Fault::Unreadable(_), .. }] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((*offset, *bytes), (40 * BLOCK_BYTES, 2 * BLOCK_BYTES));
    assert_eq!(*location, Some(place));
}

#[test]
fn a_pass_goes_on_after_the_store_was_closed() {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open(&store).expect("opens");
    let disk = volumes.create("disk", 1 << 30).expect("made");
    (0..100).for_each(|mib| {
        disk.write(mib * MIB, &vec![7; MIB as usize], Acknowledge::Written).expect("written");
    });
    volumes.flush().expect("flushed");
    for _ in 0..70 {
        volumes.continue_scrub(MIB).expect("readable");
    }
    let before = volumes.scrub_pass();
    assert_eq!(before.bytes, 70 * MIB);
    assert!(before.position.is_some() && before.ended_at.is_none(), "{before:?}");
    drop((volumes, disk));
    let volumes = Volumes::open(&store).expect("opens");
    let after = volumes.scrub_pass();
    assert_eq!((after.bytes, after.began_at), (64 * MIB, before.began_at));
    let mut steps = 0;
    while volumes.scrub_pass().position.is_some() {
        volumes.continue_scrub(MIB).expect("readable");
        steps += 1;
    }
    assert_eq!((steps, volumes.scrub_pass().bytes), (36, 100 * MIB));
    let ended = volumes.scrub_pass().ended_at.expect("it has ended");
    assert!(ended >= after.began_at);
    drop(volumes);
    let mut is_first = true;
    for_each_block(&store, |_, found| {
        let is_it = found.iter().all(|byte| *byte == 7) && std::mem::take(&mut is_first);
        is_it.then(|| vec![8; BLOCK])
    });
    let volumes = Volumes::open(&store).expect("opens");
    assert_eq!(volumes.scrub_pass().ended_at, Some(ended));
    for before in [0, 1] {
        let mut found = 0;
        loop {
            found += volumes.continue_scrub(1 << 30).expect("readable").damage.len();
            if volumes.scrub_pass().position.is_none() {
                break;
            }
        }
        let pass = volumes.scrub_pass();
        assert_eq!((found, pass.damaged_blocks, pass.damaged_blocks_before), (1, 1, before));
    }
}

/// A store with a volume of two homes, whose volumes are not open.
fn with_two_homes() -> Store {
    let store = Store::in_memory().expect("made");
    let volumes = open(&store);
    volumes.create("disk", MIB).expect("made");
    (0..70).for_each(|block| write(&volumes, "disk", block, 1000 + block));
    volumes.flush().expect("flushed");
    drop(volumes);
    store
}

/// The numbers of these homes.
fn homes_of(store: &Store) -> [u64; 2] {
    let homes = store.existing_table("volumes/homes").expect("there");
    let keys = homes.iter().map(|record| record.expect("readable").0.to_vec());
    let places = keys.filter(|key| key[8] == b'p');
    let numbers = places.map(|key| u64::from_be_bytes(*key.first_chunk().expect("a number")));
    numbers.collect::<Vec<u64>>().try_into().expect("two homes")
}

/// The key of a row of a home.
fn key(home: u64, kind: u8) -> Vec<u8> {
    [&home.to_be_bytes()[..], &[kind]].concat()
}

#[test]
fn a_living_slot_that_is_noted_as_dead_is_damage() {
    let store = with_two_homes();
    assert_eq!(Volumes::verify(&Store::in_memory().expect("made")), Ok(None));
    let homes = store.existing_table("volumes/homes").expect("there");
    let [first, _] = homes_of(&store);
    homes.update(&key(first, b'd'), BIT_OR, &[0, 0b110, 0, 0, 0, 0, 0, 0]).expect("changed");
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    let disk = [volume("disk")];
    let expected = [(&disk[..], 9, 2, None, Fault::Dead)];
    assert_damage(&report.damage, &expected);
    assert_eq!(report.bytes, 68 * BLOCK_BYTES);
    assert_damage(&scrub(&open(&store), None).1, &expected);
}

#[test]
fn homes_that_are_missing_or_overlap_are_damage() {
    let store = with_two_homes();
    let homes = store.existing_table("volumes/homes").expect("there");
    let [first, second] = homes_of(&store);
    let row = homes.get(&key(first, b'p')).expect("readable").expect("there").to_vec();
    homes.put(&key(second, b'p'), &row).expect("changed");
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    let nowhere = |home| format!("64 slots of home {home} are not in one place each");
    let overlaps = format!("home {second} is where another one is");
    assert_eq!(report.faults, [overlaps, nowhere(second)]);
    // Blocks 64 to 69 read as blocks 0 to 5 now.
    assert_eq!(report.damage.iter().map(|range| range.bytes).sum::<u64>(), 6 * BLOCK_BYTES);
    homes.delete(&key(second, b'p')).expect("changed");
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    let disk = [volume("disk")];
    assert_damage(&report.damage, &[(&disk[..], 64, 6, None, Fault::Missing)]);
    let counted = "70 blocks are counted of volume \"disk\", which uses 64";
    assert_eq!(report.faults, [counted]);
    let space = homes.space();
    for segment in store.blocks().extents(space).expect("readable") {
        store.blocks().give_extent_back(segment).expect("given back");
    }
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    let missing = format!("a segment of home {first} is missing");
    assert_eq!(report.faults, [missing, nowhere(first), counted.to_owned()]);
    assert_damage(&report.damage, &[(&disk[..], 0, 70, None, Fault::Missing)]);
    homes.put(b"x", b"y").expect("changed");
    assert!(matches!(Volumes::verify(&store), Err(Error::Tables(_))));
}

#[test]
fn two_blocks_in_one_slot_are_damage() {
    let store = with_two_homes();
    let map = store.existing_table("volumes/map").expect("there");
    let mut records = map.iter().map(|record| record.expect("readable"));
    let (first, second) = (records.next().expect("there"), records.next().expect("there"));
    map.put(&second.0, &first.1).expect("changed");
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    let [home, _] = homes_of(&store);
    assert_eq!(report.faults, [format!("slot 0 of home {home} has two blocks")]);
}
