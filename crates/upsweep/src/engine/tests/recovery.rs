//! Recovery: the choice of the superblock, damage, and what a store needs to open.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{World, format};
use crate::device::{
    Completion, DeviceId, Devices, Geometry, MemoryDevices, Operation, Request, Simulated,
};
use crate::engine::config::SUPERBLOCK_SLOTS;
use crate::engine::format::checkpoint_format::decode_superblock;
use crate::engine::format::record_format::ModifierRecord;
use crate::engine::held::Held;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueRef};
use crate::engine::registry::{ModifierId, PUT, Registry};
use crate::engine::{Access, Config, Core, create, open};
use crate::error::{Error, Location, RequestError};

fn data() -> DeviceId {
    DeviceId(0)
}

/// A store with some records, closed as after a kill.
fn killed() -> (MemoryDevices, Config) {
    let mut world = World::new();
    (0..500).for_each(|number| world.put(world.space, &format!("k{number:04}"), number));
    world.sweep();
    world.checkpoint();
    world.add("k0001", 1);
    world.until("it is durable", |core| core.durable() == core.last());
    world.until("it rests", |core| !core.is_active());
    let World { devices, config, .. } = world;
    (devices, config)
}

fn reopened(devices: &mut MemoryDevices, config: &Config) -> Result<Core, Error> {
    open(devices, config.clone(), &format::registry(), Access::ReadWrite)
}

fn slot(devices: &MemoryDevices, offset: u64) -> Vec<u8> {
    devices.peek(data(), offset, 4096)
}

#[test]
fn one_of_the_two_superblocks_is_enough_and_the_younger_one_counts() {
    let (mut devices, config) = killed();
    let generation = |devices: &MemoryDevices, offset| {
        let slot = slot(devices, offset);
        let found = decode_superblock(&slot);
        found.map_or(0, |superblock| superblock.generation)
    };
    let [first, second] = SUPERBLOCK_SLOTS.map(|offset| generation(&devices, offset));
    assert_eq!(first.abs_diff(second), 1, "{first} and {second}");
    let core = reopened(&mut devices, &config).expect("both are there");
    assert_eq!(core.checkpointer.superblock().generation, first.max(second) + 1);
    let (mut devices, config) = killed();
    let older = SUPERBLOCK_SLOTS[usize::from(first > second)];
    devices.poke(data(), older, &[0; 4096]);
    let core = reopened(&mut devices, &config).expect("the younger one is there");
    assert_eq!(core.checkpointer.superblock().generation, first.max(second) + 1);
    assert_eq!(generation(&devices, older), first.max(second) + 1, "in the slot of the other");
}

#[test]
fn a_store_without_a_superblock_is_damaged_and_one_of_another_store_is_not_opened() {
    let (mut devices, config) = killed();
    let other = Config { store: *b"some other store", ..config.clone() };
    let Err(Error::Damaged(damage)) = reopened(&mut devices, &other) else { panic!("not its own") };
    assert!(damage.reason.contains("another store"), "{damage:?}");
    for offset in SUPERBLOCK_SLOTS {
        devices.poke(data(), offset + 8, &[0xff; 8]);
    }
    let Err(Error::Damaged(damage)) = reopened(&mut devices, &config) else { panic!("both torn") };
    let at = Location { device: data(), offset: SUPERBLOCK_SLOTS[0] };
    assert_eq!((damage.location, &*damage.what), (Some(at), "both superblocks"));
}

#[test]
fn a_damaged_root_page_or_node_is_named_and_the_store_does_not_open() {
    let (mut devices, config) = killed();
    let found = reopened(&mut devices, &config).expect("a sound store");
    let root = found.checkpointer.superblock().root.expect("a checkpoint was made");
    let mut extents = vec![root];
    extents.extend(found.checkpointer.listed().images().map(|(_, image)| image.extent));
    assert!(extents.len() > 2, "a page and a node at least");
    for extent in extents {
        let (mut devices, config) = killed();
        devices.poke(extent.device, extent.offset + 8, &[0x55; 4]);
        let Err(Error::Damaged(damage)) = reopened(&mut devices, &config) else {
            panic!("{extent:?} is torn")
        };
        assert_eq!(damage.location, Some(extent.location()));
    }
}

#[test]
fn a_log_that_has_lost_what_was_stable_is_damaged() {
    let (mut devices, config) = killed();
    let region = config.log_regions[0];
    devices.poke(region.device, region.offset, &vec![0; region.bytes as usize]);
    let Err(Error::Damaged(damage)) = reopened(&mut devices, &config) else {
        panic!("it is empty")
    };
    let device = damage.location.map(|found| found.device);
    assert_eq!((device, &damage.what[..10]), (Some(region.device), "log record"));
}

#[test]
fn a_log_device_that_is_too_short_has_lost_its_end() {
    let (devices, config) = killed();
    let sizes = [0, 1].map(|number| devices.geometry(DeviceId(number)).size_bytes);
    let short = Geometry { size_bytes: 8192, ..devices.geometry(DeviceId(1)) };
    let mut cut = MemoryDevices::new(vec![devices.geometry(data()), short], 1);
    cut.poke(data(), 0, &devices.peek(data(), 0, sizes[0] as usize));
    let Err(Error::Damaged(damage)) = reopened(&mut cut, &config) else { panic!("it is cut") };
    assert_eq!(damage.what, "the log");
}

#[test]
fn who_only_reads_writes_nothing() {
    let (mut devices, config) = killed();
    let before = devices.digest();
    let core = open(&mut devices, config, &format::registry(), Access::ReadOnly);
    assert!(core.expect("a sound store").waiting_entries() > 0);
    assert_eq!(devices.digest(), before);
}

/// A bank that counts how often each page of the log is read.
struct Counted<'a> {
    devices: &'a mut MemoryDevices,
    pages: BTreeMap<u64, u32>,
}

impl Devices for Counted<'_> {
    fn count(&self) -> u16 {
        self.devices.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.devices.geometry(device)
    }

    fn submit(&mut self, request: Request) {
        if let Operation::Read { offset, buffer } = &request.operation
            && request.device == DeviceId(1)
        {
            for page in offset / 4096..(offset + buffer.len() as u64) / 4096 {
                *self.pages.entry(page).or_default() += 1;
            }
        }
        self.devices.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.devices.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.devices.wait(completions);
    }
}

#[test]
fn a_log_that_fits_into_memory_is_read_once_in_all_passes() {
    let mut world = World::new();
    (0..50).for_each(|number| world.put(world.space, &format!("k{number:04}"), number));
    world.sweep();
    world.checkpoint();
    for number in 0..60 {
        world.add(&format!("k{:04}", number % 50), number);
        world.until("it is durable", |core| core.durable() == core.last());
    }
    world.until("it rests", |core| !core.is_active());
    let end = world.core.durable();
    let World { mut devices, config, .. } = world;
    let mut counted = Counted { devices: &mut devices, pages: BTreeMap::new() };
    let core = open(&mut counted, config.clone(), &format::registry(), Access::ReadWrite);
    let core = core.expect("a sound store");
    assert_eq!((core.durable(), core.waiting_entries() > 0), (end, true));
    let segment_pages = u64::from(config.log_segment_bytes) / 4096;
    let begin = config.log_regions[0].offset / 4096;
    // The first page of each segment is read before everything else.
    let is_first = |page: u64| (page - begin).is_multiple_of(segment_pages);
    let others = counted.pages.keys().filter(|page| !is_first(**page));
    assert!(others.count() > 20, "{:?}", counted.pages);
    for (page, times) in counted.pages {
        assert!(times <= 1 + u32::from(is_first(page)), "page {page} was read {times} times");
    }
}

#[test]
fn a_new_store_is_empty_and_opens_again_and_again() {
    let (mut devices, config) = killed();
    create(&mut devices, &config).expect("made anew");
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let core = reopened(&mut devices, &config).expect("an empty store");
        assert_eq!((core.waiting_entries(), core.last()), (0, Seq::NONE));
        epochs.push(core.checkpointer.superblock().epoch);
    }
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
    let bad = Config { log_depth: 0, ..config };
    assert!(create(&mut devices, &bad).is_err(), "settings are checked first");
}

#[test]
fn a_store_needs_the_formats_of_its_own_spaces_and_says_which() {
    let (mut devices, config) = killed();
    for missing in ["table", "raw", "array"] {
        let mut registry = format::registry();
        registry.formats.remove(missing);
        let refused = open(&mut devices, config.clone(), &registry, Access::ReadWrite);
        let Err(Error::Request(RequestError::UnknownFormat(named))) = refused else {
            panic!("{missing} is missing")
        };
        assert!(named.starts_with(missing), "{named}");
    }
}

/// A modifier of an application.
struct Mine;

impl Modifier for Mine {
    fn name(&self) -> &str {
        "mine"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, _: &[u8]) -> Result<Outcome, Refusal> {
        Ok(Outcome::Keep)
    }
}

#[test]
fn a_modifier_for_which_an_update_waits_has_to_be_there_and_is_not_needed_to_look() {
    let mut registry: Registry = format::registry();
    registry.modifiers.push(Arc::new(Mine));
    let (mut devices, config) = killed();
    let core = open(&mut devices, config.clone(), &registry, Access::ReadWrite);
    let mut world = World { core: core.expect("a sound store"), ..World::new() };
    world.devices = devices;
    let id = world.core.modifiers().id_of("mine", 1).expect("it got its number");
    world.space = world.core.space_named("t").map_or(SpaceId::new(0), |record| record.space);
    world.accept(world.space, id, b"k0001", b"");
    world.until("it is durable", |core| core.durable() == core.last());
    let World { mut devices, .. } = world;
    let Err(Error::Request(RequestError::UnknownModifier { name, version })) =
        reopened(&mut devices, &config)
    else {
        panic!("its modifier is missing")
    };
    assert_eq!((&*name, version), ("mine", 1));
    for access in [Access::ReadOnly, Access::Upkeep] {
        let core = open(&mut devices, config.clone(), &format::registry(), access);
        let core = core.expect("it may be looked at");
        assert_eq!(core.held_blocks(), u64::from(access == Access::Upkeep));
    }
    let core = open(&mut devices, config, &registry, Access::ReadWrite);
    assert_eq!(core.expect("all is there").modifiers().id_of("mine", 1), Some(id));
}

#[test]
fn in_upkeep_updates_of_the_application_are_refused_while_something_is_missing() {
    let mut world = World::new();
    world.add("k", 1);
    assert!(world.core.base.missing_modifier().is_none());
    let record = ModifierRecord { id: ModifierId(300), version: 1, name: "gone".to_owned() };
    world.core.base.index.bindings.bind(record);
    world.core.base.held = Some(Held::default());
    let refused = world.offer(world.space, PUT, b"k", b"v");
    assert!(
        matches!(&refused, Err(Error::Request(RequestError::UnknownModifier { name, .. }))
            if name == "gone"),
        "{refused:?}"
    );
}
