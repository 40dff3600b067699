//! Tables of volumes that somebody has changed, and everything that may meet what is in them. The
//! fuzz target `volume_records` has it, too.

use std::time::Duration;

use upsweep::layers::device::{HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions, Store, StoreBuilder};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, History, Past, Volume, Volumes};

const MIB: u64 = 1 << 20;
const TABLES: [&str; 3] = ["volumes/map", "volumes/catalog", "volumes/homes"];

fn builder() -> StoreBuilder {
    Store::builder().options(OpenOptions::default().memory_bytes(64 << 20).without_threads())
}

/// Volumes with a record of each kind in each table.
fn fill(store: &Store, volumes: &Volumes) -> Result<(), Error> {
    let history = History { window: Some(Duration::from_secs(3600)), bytes: Some(64 * MIB) };
    let disk = volumes.create("disk", 4 * MIB)?;
    volumes.set_history("disk", history)?;
    disk.write(0, &[1; 40 * 4096], Acknowledge::Written)?;
    volumes.mark("disk", "mark")?;
    disk.write(4096, &[2; 4096], Acknowledge::Written)?;
    disk.zero(MIB, 2 * MIB, Acknowledge::Written)?;
    volumes.snapshot(&["disk"], "monday")?;
    volumes.clone_volume("disk", None, "clone")?.write(0, &[3; 4096], Acknowledge::Written)?;
    volumes.view("disk", Past::Mark("mark"), "was")?;
    volumes.create("gone", MIB)?.write(0, &[4; 20 * 4096], Acknowledge::Durable)?;
    volumes.delete("gone")?;
    store.sweep()?;
    while volumes.work()? {}
    volumes.resize("disk", 3 * MIB)?;
    volumes.roll_back("disk", Past::Snapshot("monday"))?;
    volumes.delete_snapshot("disk", "monday")?;
    volumes.snapshot(&["clone"], "tuesday")?;
    volumes.flush()?;
    // Recovery looks at this one.
    disk.write(8192, &[5; 20 * 4096], Acknowledge::Written)
}

/// Changes a record: four bytes say which, and how.
fn change(store: &Store, [what, which, at, bits]: [u8; 4]) {
    let table = store.existing_table(TABLES[usize::from(what) % 3]).expect("it is filled");
    let records: Vec<_> = table.iter().map(|record| record.expect("readable")).collect();
    let nth = |nth: u8| &records[usize::from(nth) % records.len()];
    let Some((key, value)) = (!records.is_empty()).then(|| nth(which)) else { return };
    let (mut key, mut value) = (key.to_vec(), value.to_vec());
    let place = |length: usize| usize::from(at) % length.max(1);
    match what / 3 % 6 {
        0 => {
            table.delete(&key).expect("deleted");
            return;
        }
        1 => {
            let place = place(key.len());
            key[place] ^= bits;
        }
        2 => value.truncate(place(value.len())),
        3 => value.push(bits),
        4 => value = nth(at).1.to_vec(),
        _ => {
            let place = place(value.len());
            value.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= bits);
        }
    }
    table.put(&key, &value).expect("put");
}

/// Does with a volume what can be done; it may refuse everything.
fn use_volume(volumes: &Volumes, name: &str, volume: &Volume) {
    let bytes = volume.bytes().unwrap_or(0);
    let mut found = vec![0; 64 << 10];
    for offset in (0..bytes.min(4 * MIB)).step_by(found.len()) {
        let length = (bytes - offset).min(found.len() as u64) as usize;
        drop(volume.read(offset, &mut found[..length]));
    }
    drop(volume.status(0, bytes));
    let since = volumes.list().into_iter().find_map(|info| info.history_since);
    if let Ok(changes) = volumes.changes(name, Past::At(since.unwrap_or(0)), None) {
        drop(changes.take(1000).collect::<Vec<_>>());
    }
    drop(volumes.moments(name));
    drop(volume.write(100, &[7; 10_000], Acknowledge::Durable));
    drop(volume.zero(0, bytes, Acknowledge::Written));
    drop(volumes.snapshot(&[name], "now"));
    drop(volumes.clone_volume(name, Some(Past::Snapshot("now")), "copy"));
    drop(volumes.resize(name, bytes + BLOCK_BYTES));
    drop(volumes.roll_back(name, Past::Snapshot("now")));
    drop(volumes.delete("copy"));
}

fn work(store: &Store, volumes: &Volumes) {
    drop(store.sweep());
    drop(volumes.flush());
    let steps = (0..1000).take_while(|_| matches!(volumes.work(), Ok(true)));
    assert!(steps.count() < 1000, "the work in the background does not end");
}

/// Changes tables of volumes as `data` says, four bytes for each change. The volumes cannot be
/// opened then, or can be used; in no case does anything panic.
pub fn use_after(data: &[u8]) {
    let memory = MemoryDevices::with_sizes(&[0, 0], 1);
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, 1));
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = builder().create_on(bank.clone(), 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 32).expect("opens");
    fill(&store, &volumes).expect("filled");
    drop(volumes);
    data.as_chunks().0.iter().take(8).for_each(|how| change(&store, *how));
    store.close().expect("closes");
    let store = builder().open_on(bank).expect("opens");
    let volumes = match Volumes::open(&store) {
        Ok(volumes) => volumes,
        Err(Error::Tables(reason)) => {
            assert!(!reason.is_empty());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    drop(volumes.usage());
    work(&store, &volumes);
    for info in volumes.list() {
        let volume = volumes.volume(&info.name).expect("listed");
        use_volume(&volumes, &info.name, &volume);
    }
    work(&store, &volumes);
    for info in volumes.list() {
        drop(volumes.delete(&info.name));
    }
    work(&store, &volumes);
}
