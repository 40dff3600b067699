//! The boundaries of a profile: those that hold are used, those that do not are not.

use upsweep::layers::device::drive::{Detail, Drive, DriveDescription, Layout};
use upsweep::layers::device::{
    Bank, Completion, DeviceDescription, DeviceId, Devices, Geometry, MemoryDevices, Parallelism,
    Performer, Profile, Request, Stripes, ThreadedDevices, Tracks, VirtualClock, Waiter, Waker,
};
use upsweep::layers::runtime::BoundariesStatus;
use upsweep::{CreateOptions, Status, Store};

const DATA: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;

/// A simulated drive for data and memory for the log, with what a profile says of the drive.
#[derive(Clone)]
struct Known {
    bank: ThreadedDevices<MemoryDevices>,
    edit: fn(&mut Profile),
    tracks: Option<Tracks>,
}

impl Devices for Known {
    fn count(&self) -> u16 {
        self.bank.count()
    }
    fn geometry(&self, device: DeviceId) -> Geometry {
        self.bank.geometry(device)
    }
    fn clock_of(&self, device: DeviceId) -> Option<VirtualClock> {
        self.bank.clock_of(device)
    }
    fn submit(&mut self, request: Request) {
        self.bank.submit(request);
    }
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.bank.reap(completions);
    }
    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.bank.wait(completions);
    }
}

impl Bank for Known {
    fn waiter(&self) -> Box<dyn Waiter> {
        self.bank.waiter()
    }
    fn waker(&self) -> Box<dyn Waker> {
        self.bank.waker()
    }
    fn performer(&self) -> Box<dyn Performer> {
        self.bank.performer()
    }
    fn description(&self, device: DeviceId) -> DeviceDescription {
        self.bank.description(device)
    }
    fn profile(&self, device: DeviceId) -> Option<Profile> {
        let mut profile = self.bank.profile(device)?;
        if device == DATA {
            profile.tracks.clone_from(&self.tracks);
            (self.edit)(&mut profile);
        }
        Some(profile)
    }
    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.bank.allocated_bytes(device)
    }
}

/// A drive with tracks of 600 sectors, or of another number.
fn description(sectors_per_track: u32) -> DriveDescription {
    let mut drive = DriveDescription::plain(200);
    let surfaces = drive.mechanics.surfaces;
    let zone = &mut drive.zones[0];
    zone.sectors_per_track = sectors_per_track;
    zone.lbns = zone.sectors(surfaces);
    drive.capacity.lbns = zone.lbns;
    drive.capacity.mapped_lbns = zone.lbns;
    assert_eq!(drive.check(), Ok(()));
    drive
}

fn drive() -> Drive {
    Drive::new(&description(600), Detail::Full)
}

/// Tracks as they are on a drive that is described so; the first ends so many bytes later.
fn tracks(description: &DriveDescription, later: u64, end: u64) -> Tracks {
    let layout = Layout::new(description);
    let mut at = later;
    let pieces = layout.pieces(0, layout.lbns());
    let ends = pieces.iter().map(|piece| {
        at += u64::from(piece.sectors) * 512;
        at
    });
    let inner: Vec<u64> = ends.take_while(|at| *at < end).collect();
    let turn_ns = (60e9 / description.mechanics.rpm) as u64;
    Tracks::between([0].into_iter().chain(inner).chain([end]), turn_ns)
}

fn geometry(size_bytes: u64, is_raw: bool) -> Geometry {
    Geometry {
        size_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        rotational: is_raw,
        growable: !is_raw,
    }
}

fn bank(data: Geometry, tracks: Option<Tracks>, edit: fn(&mut Profile)) -> Known {
    let rotates = data.rotational;
    let mut devices = MemoryDevices::new(vec![data, geometry(64 * MIB, false)], 1);
    if rotates {
        devices.set_drive(DATA, drive());
    }
    Known { bank: ThreadedDevices::new(devices), edit, tracks }
}

/// What a store on the drive says of these tracks, when it is made and when it is opened again.
fn said(tracks: Tracks, edit: fn(&mut Profile)) -> BoundariesStatus {
    status(tracks, edit).devices[0].boundaries.clone().expect("known")
}

/// Makes a store on these devices, with a swept table of 2000 records.
fn fill(bank: &Known) {
    let options = CreateOptions::default().log_bytes(8 * MIB).block_bytes(16 << 10);
    let store = Store::builder().create_on(bank.clone(), 1, &options).expect("made");
    let table = store.table("main").expect("a table");
    (0..2000_u64).for_each(|key| drop(table.put(&key.to_be_bytes(), &[7; 500]).expect("stored")));
    store.sweep().expect("swept");
    drop(table);
    store.close().expect("closed");
}

/// The status of that store.
fn status(tracks: Tracks, edit: fn(&mut Profile)) -> Status {
    let bank = bank(geometry(drive().bytes(), true), Some(tracks), edit);
    fill(&bank);
    let before_us = bank.clock_of(DATA).expect("virtual").now_us();
    let store = Store::builder().open_on(bank.clone()).expect("opens");
    let took_us = bank.clock_of(DATA).expect("virtual").now_us() - before_us;
    assert_eq!(store.existing_table("main").expect("a table").iter().count(), 2000);
    let status = store.status();
    assert_eq!(status.devices[1].boundaries, None);
    let said = status.devices[0].boundaries.as_ref().expect("known");
    // Up to 800 pairs of reads, if it is not clear before that there are no units, 22 ms each.
    let most_us = if said.of == "tracks" { 3_000_000 } else { 800 * 30_000 };
    assert!(took_us < most_us, "the open took {took_us} us");
    // A track has no whole number of pages, so that its end shows in what is lost there.
    assert_eq!(status.remainder_bytes > 0, said.is_used, "{said:?}");
    status
}

fn nothing(_: &mut Profile) {}

#[test]
fn the_tracks_of_the_device_are_used() {
    let right = tracks(&description(600), 0, drive().bytes());
    let said = said(right.clone(), nothing);
    assert_eq!((said.of, said.count, said.is_used), ("tracks", right.count(), true), "{said:?}");
    assert!(said.reason.contains(" of 40 that were looked at are where"), "{said:?}");
}

#[test]
fn a_range_on_a_drive_that_rotates_is_read_ahead_at_once() {
    let bank = bank(geometry(drive().bytes(), true), None, nothing);
    fill(&bank);
    let store = Store::builder().open_on(bank).expect("opens");
    let table = store.existing_table("main").expect("a table");
    let reads = || {
        let found = store.metrics();
        (found.query_reads_total, found.scan_read_bytes_total >> 10)
    };
    // It is not known how many of these are wanted.
    assert_eq!(table.iter().take(10).count(), 10);
    let (before, ahead) = reads();
    assert_eq!((before, ahead), (1, 0));
    // Seven blocks of 16 KiB that are full, up to 14 that are half full because they were swept
    // before the table had all records: the first is read alone, and the others at once.
    assert_eq!(table.scan(500_u64.to_be_bytes()..700_u64.to_be_bytes()).count(), 200);
    let (reads, ahead) = reads();
    assert_eq!(reads - before, 1);
    assert!((64..=13 * 16).contains(&ahead), "{ahead} KiB");
}

#[test]
fn tracks_that_are_off_by_a_sector_are_not_used() {
    let said = said(tracks(&description(600), 512, drive().bytes()), nothing);
    assert!(!said.is_used && said.reason.starts_with("0 of 40 that were looked"), "{said:?}");
}

#[test]
fn tracks_of_another_drive_are_not_used() {
    for sectors in [500, 599, 640] {
        let said = said(tracks(&description(sectors), 0, drive().bytes()), nothing);
        assert!(!said.is_used && said.reason.contains(" of 40 that were looked"), "{said:?}");
    }
    let longer = tracks(&description(600), 0, drive().bytes() + 4096);
    let said = said(longer, nothing);
    assert!(!said.is_used && said.reason.starts_with("0 of 40 that"), "{said:?}");
}

#[test]
fn tracks_of_a_device_that_does_not_rotate_are_not_used() {
    let right = tracks(&description(600), 0, drive().bytes());
    let said = said(right, |profile| profile.rotational = false);
    assert!(!said.is_used, "{said:?}");
    assert_eq!(said.reason, "by the profile the device does not rotate");
}

#[test]
fn stripe_units_are_used_only_if_they_are_certain_and_show() {
    let of = |edit| {
        let status = status(Tracks::default(), edit);
        // As many as of a single drive.
        let scans = status.choices.iter().find(|choice| choice.name == "requests of scans");
        let reason = &scans.expect("chosen").reason;
        assert!(reason.ends_with("; 2 in flight, 1 beside queries"), "{reason}");
        status.devices[0].boundaries.clone().expect("known")
    };
    fn striped(profile: &mut Profile, confidence: f64) {
        let stripes = Some(Stripes { unit_bytes: 256 << 10, ways: 4, confidence });
        profile.parallelism = Some(Parallelism { stripes, ..Parallelism::default() });
    }
    let said = of(|profile| striped(profile, 0.5));
    assert_eq!((said.of, said.is_used, said.confidence), ("stripe units", false, 0.5));
    assert_eq!(said.reason, "the profile is certain to 0.5, not to 0.99");
    let said = of(|profile| striped(profile, 0.999));
    assert!(!said.is_used && said.reason.ends_with("these take no longer"), "{said:?}");
}

#[test]
fn boundaries_of_a_file_are_not_used() {
    let tracks = tracks(&description(600), 0, drive().bytes());
    let bank = bank(geometry(64 * MIB, false), Some(tracks), nothing);
    let options = CreateOptions::default().log_bytes(8 * MIB);
    let store = Store::builder().create_on(bank, 1, &options).expect("made");
    let said = store.status().devices[0].boundaries.clone().expect("known");
    assert!(!said.is_used, "{said:?}");
    assert_eq!(said.reason, "where a file lies on its device is not known");
}
