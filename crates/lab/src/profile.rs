//! `upsweep-lab profile`: what the product measures of simulated devices.

use std::path::PathBuf;
use std::time::Duration;

use upsweep::layers::device::drive::Layout;
use upsweep::layers::device::{
    self, Completion, DeviceId, Devices, Effort, Geometry, Measurement, Operation, Profile, Range,
    Request, Simulated, TrackSearch, Tracks, TracksError,
};
use upsweep::layers::runtime::profiles_to_toml;

use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;

/// How much of a solid-state device is written before, in per cent, at random.
const FILLED_PERCENT: u32 = 80;

/// Measure simulated devices in full, as `upsweep device profile` measures real ones, and write
/// their profiles
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Devices, by their identifiers [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Folder for the profiles: a file of TOML for each device
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Search rotating drives for their tracks, too: a minute of processor time for each
    #[arg(long)]
    tracks: bool,
    /// Seed of the devices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Measures the devices that the arguments name.
///
/// # Errors
/// [`Problem::Data`] if there is no such device; [`Problem::File`] if a file cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Problem> {
    let all = || banks::ids().chain(banks::solid_state_ids()).map(str::to_owned).collect();
    let ids = if arguments.ids.is_empty() { all() } else { arguments.ids.clone() };
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| Problem::file(&arguments.output, &error))?;
    Progress::new().each(&ids, |id| {
        let mut profile = measured(id, Effort::Full, arguments.seed)?;
        if arguments.tracks && profile.rotational {
            profile.tracks = Some(tracks(id, arguments.seed)?);
        }
        let file = arguments.output.join(format!("{id}.toml"));
        std::fs::write(&file, profiles_to_toml(&[profile]))
            .map_err(|error| Problem::file(&file, &error))
    })?;
    Ok(())
}

/// A bank that writes zeros, so that gigabytes of written content take no memory: how long a
/// simulated device takes does not depend on it.
struct Zeros(Box<dyn Simulated>);

impl Devices for Zeros {
    fn count(&self) -> u16 {
        self.0.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.0.geometry(device)
    }

    fn submit(&mut self, mut request: Request) {
        if let Operation::Write { buffer, .. } = &mut request.operation {
            buffer.fill(0);
        }
        self.0.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.0.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.0.wait(completions);
    }
}

/// The tracks of a simulated drive, as the product finds them.
fn tracks(id: &str, seed: u64) -> Result<Tracks, Problem> {
    let mut bank = banks::full_drives(id, 1, None, seed)?;
    let mut search = TrackSearch::new(&bank.geometry(DeviceId(0)));
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let wrong = |error: TracksError| Problem::Simulation(format!("the tracks of {id}: {error}"));
    search.run_on(&mut *bank, DeviceId(0), now, |_| Ok(())).map_err(wrong)
}

/// The profile of a simulated device.
///
/// # Errors
/// [`Problem::Data`] if there is no such device; [`Problem::Simulation`] if it cannot be measured.
pub(crate) fn measured(id: &str, effort: Effort, seed: u64) -> Result<Profile, Problem> {
    let rotates = banks::ids().any(|known| known == id);
    let bank = match rotates {
        true => banks::full_drives(id, 1, None, seed)?,
        false => banks::solid_state(id, 1, FILLED_PERCENT, u64::MAX, seed)?,
    };
    Ok(Profile { name: id.to_owned(), ..measured_of(bank, effort)? })
}

/// The profile of the first device of a bank.
///
/// # Errors
/// [`Problem::Simulation`] if it cannot be measured.
pub(crate) fn measured_of(bank: Box<dyn Simulated>, effort: Effort) -> Result<Profile, Problem> {
    let bytes = bank.geometry(DeviceId(0)).size_bytes;
    let range = Range { offset: 0, bytes: bytes - bytes % 4096 };
    let measurement = Measurement { effort, range, writes: true };
    let clock = bank.clock();
    let now = || Duration::from_micros(clock.now_us());
    let mut bank = Zeros(bank);
    let found = device::measure(&mut bank, DeviceId(0), &measurement, now, &mut |_| ());
    found.map_err(|error| Problem::Simulation(format!("a profile: {error}")))
}

/// The profile of a drive that is simulated in full, in short, with its tracks, as the search of
/// the product finds them: all of them.
///
/// # Errors
/// As [`measured`].
pub(crate) fn with_tracks(id: &str, seed: u64) -> Result<Profile, Problem> {
    let (description, mut at) = (banks::description(id)?, 0);
    let layout = Layout::new(&description);
    let sector_bytes = u64::from(description.capacity.sector_bytes);
    let ends = layout.pieces(0, layout.lbns()).into_iter().map(|piece| {
        at += u64::from(piece.sectors) * sector_bytes;
        at
    });
    let turn_ns = (60e9 / description.mechanics.rpm) as u64;
    let tracks = Tracks::between([0].into_iter().chain(ends), turn_ns);
    Ok(Profile { tracks: Some(tracks), ..measured(id, Effort::Short, seed)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_measurement_sees_that_a_drive_reads_ahead() {
        let found = measured("atlas10k3", Effort::Short, 1).expect("it is measured");
        assert_eq!(found.reads.streaming_request_bytes, 64 << 10);
    }
}
