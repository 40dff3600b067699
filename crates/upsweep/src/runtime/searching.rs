//! Searches raw devices for their tracks, which may take hours: the searches are kept in a file,
//! and whoever names the same file goes on with them.
//!
//! The file is replaced now and then, as a whole, so that a process may end at any time: what is
//! lost is what was searched since. It also has the searches of several devices that are over, and
//! is removed once their results are elsewhere.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::layout::{path_error, read_file, sync_file};
use crate::device::{DeviceId, Devices, Progress, TrackSearch, Tracks, TracksError};
use crate::error::Error;

/// The version of the form of the file.
const FORMAT: u32 = 1;
/// Least time between replacements of the file.
const KEPT_EVERY: Duration = Duration::from_secs(30);
/// They take at most this part of the time.
const KEEPING_PART: u32 = 20;

/// What a file has.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    format: u32,
    searches: Vec<DeviceSearch>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeviceSearch {
    device: PathBuf,
    search: TrackSearch,
}

/// Searches that are kept in a file.
#[derive(Debug)]
pub(super) struct KeptSearches {
    file: PathBuf,
    kept: Kept,
}

/// Why the rounds of a search end early.
enum Ended {
    Tracks(TracksError),
    Kept(Error),
}

impl From<TracksError> for Ended {
    fn from(error: TracksError) -> Self {
        Self::Tracks(error)
    }
}

impl KeptSearches {
    /// Those in a file; none if it is not there.
    pub(super) fn read(file: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| {
            path_error(file, format!("{reason}; without the file the search begins anew"))
        };
        let kept = match read_file(file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Kept { format: FORMAT, searches: Vec::new() }
            }
            Err(error) => return Err(path_error(file, error)),
        };
        match kept.format {
            FORMAT => Ok(Self { file: file.to_owned(), kept }),
            other => Err(wrong(format!("format {other}; this program knows {FORMAT}"))),
        }
    }

    /// The tracks of a device of a bank that nothing else uses; none if it does not turn. Goes on
    /// with the search that was kept under this path. `now` returns the time since any fixed
    /// moment; `progress` is called after each round.
    ///
    /// # Errors
    /// [`RequestError::Path`](crate::RequestError::Path) if reads fail or are disturbed, or the
    /// file cannot be written: what was found is kept.
    pub(super) fn search(
        &mut self,
        (path, devices, device): (&Path, &mut dyn Devices, DeviceId),
        now: impl Fn() -> Duration,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tracks, Error> {
        let index = self.index_of(path, &*devices, device)?;
        // It is taken out while it goes on, as the others are kept with it.
        let mut search = self.kept.searches[index].search.clone();
        let has_begun = search.has_seen_rotation();
        progress(come(&search));
        let mut next_at = now() + KEPT_EVERY;
        let outcome = search.run_on(devices, device, &now, |search| {
            progress(come(search));
            if now() >= next_at {
                let before = now();
                self.keep(index, search).map_err(Ended::Kept)?;
                let took = now().saturating_sub(before);
                next_at = now() + KEPT_EVERY.max(KEEPING_PART * took);
            }
            Ok(())
        });
        match outcome {
            Err(Ended::Kept(error)) => Err(error),
            Err(Ended::Tracks(TracksError::NoRotation)) if !has_begun => Ok(Tracks::default()),
            Err(Ended::Tracks(error)) => {
                self.keep(index, &search)?;
                let file = self.file.display();
                let advice = "the same command goes on, and without that file begins anew";
                Err(path_error(path, format!("{error}. The search is kept in {file}: {advice}")))
            }
            Ok(tracks) => {
                self.keep(index, &search)?;
                Ok(tracks)
            }
        }
    }

    /// Where the search of a device is among these; a new one if there is none.
    fn index_of(
        &mut self,
        path: &Path,
        devices: &dyn Devices,
        device: DeviceId,
    ) -> Result<usize, Error> {
        let geometry = devices.geometry(device);
        let searches = &mut self.kept.searches;
        if let Some(index) = searches.iter().position(|kept| kept.device == path) {
            if searches[index].search.is_of(&geometry) {
                return Ok(index);
            }
            let reason = format!(
                "has a search of {} with another size; without the file it begins anew",
                path.display()
            );
            return Err(path_error(&self.file, reason));
        }
        let search = TrackSearch::new(&geometry);
        searches.push(DeviceSearch { device: path.to_owned(), search });
        Ok(searches.len() - 1)
    }

    fn keep(&mut self, index: usize, search: &TrackSearch) -> Result<(), Error> {
        self.kept.searches[index].search.clone_from(search);
        let text = serde_json::to_string(&self.kept).expect("it is data");
        sync_file(&self.file, &text)
    }

    /// Forgets all searches: what they found is elsewhere.
    pub(super) fn remove(self) -> Result<(), Error> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(path_error(&self.file, error)),
            _ => Ok(()),
        }
    }
}

/// How far a search has come.
fn come(search: &TrackSearch) -> Progress {
    const STEPS: usize = 10_000;
    let done = (search.progress() * STEPS as f64) as usize;
    let what = if search.has_seen_rotation() { "tracks" } else { "the time of a turn" };
    Progress { done, of: STEPS, what }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;
    use crate::device::drive::{Detail, Drive, DriveDescription, Layout};
    use crate::device::{FailureKind, Geometry, HostileDevices, MemoryDevices, Simulated};

    const PATH: &str = "/dev/drive";

    fn description() -> DriveDescription {
        DriveDescription::plain(1500)
    }

    fn drive() -> MemoryDevices {
        let drive = Drive::new(&description(), Detail::Full);
        let geometry = Geometry {
            size_bytes: drive.bytes(),
            logical_block_bytes: drive.sector_bytes(),
            physical_block_bytes: drive.sector_bytes(),
            rotational: true,
            growable: false,
        };
        let mut devices = MemoryDevices::new(vec![geometry], 1);
        devices.set_drive(DeviceId(0), drive);
        devices
    }

    /// The first byte of each track.
    fn starts() -> Vec<u64> {
        let layout = Layout::new(&description());
        let mut next = 0;
        let start = |sectors: u32| {
            next += u64::from(sectors);
            (next - u64::from(sectors)) * 512
        };
        layout.pieces(0, layout.lbns()).iter().map(|piece| piece.sectors).map(start).collect()
    }

    /// Searches as a new process would; `each` is called after each round.
    fn search(
        file: &Path,
        devices: &mut dyn Devices,
        each: &mut dyn FnMut(Progress),
    ) -> Result<Tracks, Error> {
        let mut searches = KeptSearches::read(file)?;
        let clock = devices.clock_of(DeviceId(0)).expect("virtual");
        let now = || Duration::from_micros(clock.now_us());
        searches.search((Path::new(PATH), devices, DeviceId(0)), now, each)
    }

    fn kept(file: &Path) -> Option<TrackSearch> {
        let searches = KeptSearches::read(file).expect("whole").kept.searches;
        searches.into_iter().next().map(|kept| kept.search)
    }

    #[test]
    fn a_search_that_is_killed_goes_on_where_it_was_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("profile.tracks");
        let mut devices = drive();
        let (mut rounds, mut reads) = (0, 0);
        for kill_after in [1, 7, 40, 3, 60, 0] {
            let mut left = kill_after;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                search(&file, &mut devices, &mut |_| {
                    rounds += 1;
                    left -= 1;
                    if left == 0 {
                        resume_unwind(Box::new("killed"));
                    }
                })
            }));
            devices.advance_to(devices.now_us() + 12_345_678);
            let before = std::mem::replace(&mut reads, kept(&file).map_or(0, |kept| kept.reads()));
            assert!(reads >= before, "{reads} after {before}");
            let Ok(outcome) = outcome else { continue };
            assert_eq!(kill_after, 0, "the others were killed");
            let tracks = outcome.expect("found");
            assert_eq!(tracks.starts().collect::<Vec<_>>(), starts());
            assert!(tracks.check.confidence() > 0.9, "{:?}", tracks.check);
        }
        assert!(rounds > 111 && reads > 0, "{rounds} rounds");
        // What is over is there at once, and can be forgotten.
        let begin_us = devices.now_us();
        let mut steps = Vec::new();
        search(&file, &mut devices, &mut |progress| steps.push(progress.done)).expect("found");
        assert_eq!(steps, [10_000], "nothing is left to be searched");
        assert!(devices.now_us() - begin_us < 60_000_000);
        KeptSearches::read(&file).expect("whole").remove().expect("removed");
        assert!(!file.exists());
        KeptSearches::read(&file).expect("none").remove().expect("nothing to remove");
    }

    #[test]
    fn a_search_that_fails_says_where_it_is_kept_and_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk.tracks");
        let mut devices = HostileDevices::new(drive(), 1);
        devices.fail_after(3000, FailureKind::Reads);
        let failed = search(&file, &mut devices, &mut |_| ()).expect_err("reads fail");
        let shown = failed.to_string();
        assert!(shown.starts_with("/dev/drive: a read failed: "), "{shown}");
        assert!(shown.contains("disk.tracks: the same command goes on"), "{shown}");
        let reads = kept(&file).expect("kept").reads();
        assert!(reads >= 3000, "{reads}");
        devices.stop_failing();
        let tracks = search(&file, &mut devices, &mut |_| ()).expect("found");
        assert_eq!(tracks.starts().collect::<Vec<_>>(), starts());
    }

    #[test]
    fn a_device_that_does_not_turn_has_no_tracks_and_nothing_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("profile.tracks");
        let mut devices = MemoryDevices::with_sizes(&[64 << 20], 1);
        let found = search(&file, &mut devices, &mut |_| ()).expect("that is an answer");
        assert_eq!(found, Tracks::default());
        assert!(!file.exists());
    }

    #[test]
    fn a_file_that_is_of_something_else_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("profile.tracks");
        let refused = |devices: &mut MemoryDevices| {
            search(&file, devices, &mut |_| ()).expect_err("wrong").to_string()
        };
        fs::write(&file, "{}").expect("written");
        let shown = refused(&mut drive());
        assert!(shown.ends_with("; without the file the search begins anew"), "{shown}");
        fs::write(&file, r#"{"format": 2, "searches": []}"#).expect("written");
        let shown = refused(&mut drive());
        assert!(shown.contains("format 2; this program knows 1"), "{shown}");
        fs::remove_file(&file).expect("removed");
        search(&file, &mut drive(), &mut |_| ()).expect("found");
        let shown = refused(&mut MemoryDevices::with_sizes(&[64 << 20], 1));
        assert!(shown.contains("has a search of /dev/drive with another size"), "{shown}");
    }
}
