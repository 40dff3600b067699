//! `upsweep device`: profiles of devices.

mod plot;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};

use upsweep::layers::device::{
    Effort, Parallelism, Profile, Progress, Reads, Stripes, Tracks, TracksError, Writes,
};
use upsweep::layers::runtime::{
    Measurable, MeasureOptions, measurable, measure_path, measure_store, profiles_to_toml,
    read_profiles,
};

use crate::args::{DeviceCommand, ProfileArgs, ProfileForm, ShowProfileArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Where the profile of something that is no store is written, if nothing else is said.
const OUTPUT: &str = "profile.toml";
/// Extension of the file beside a profile in which searches for tracks are kept.
const SEARCHES: &str = "tracks";

pub(crate) fn run(context: &Context, command: &DeviceCommand) -> Result<(), Failure> {
    match command {
        DeviceCommand::Profile(args) => profile(context, args),
        DeviceCommand::Show(args) => show(context, args),
    }
}

fn show(context: &Context, args: &ShowProfileArgs) -> Result<(), Failure> {
    print(context, &read_profiles(&args.file)?, &args.form, None)
}

fn profile(context: &Context, args: &ProfileArgs) -> Result<(), Failure> {
    let found = measurable(&args.path)?;
    let output = match found {
        Measurable::Store => args.path.join(OUTPUT),
        _ => output_file(args)?,
    };
    let wanted = MeasureOptions {
        effort: if args.short { Effort::Short } else { Effort::Full },
        writes: !args.read_only,
        tracks: args.tracks.then(|| output.with_extension(SEARCHES)),
    };
    if found == Measurable::Store {
        let profiles = with_bar(context, |progress| measure_store(&args.path, &wanted, progress))?;
        if let Some(copy) = &args.output {
            write(copy, &profiles_to_toml(&profiles))?;
        }
        return print(context, &profiles, &args.form, Some(&output));
    }
    if let Measurable::Content(what) = &found
        && wanted.writes
        && !args.overwrite
    {
        confirm(context, &args.path, what)?;
    }
    let keep = |profile: &Profile| write(&output, &profiles_to_toml(std::slice::from_ref(profile)));
    let measured = with_bar(context, |progress| measure_path(&args.path, &wanted, progress, keep))?;
    print(context, &[measured], &args.form, Some(&output))
}

/// The file to write, which is checked before a measurement of minutes, not after it.
fn output_file(args: &ProfileArgs) -> Result<PathBuf, Failure> {
    match &args.output {
        Some(given) => Ok(given.clone()),
        None if Path::new(OUTPUT).exists() => {
            let advice = "name another file with --output, or the same to replace it";
            Err(Failure::Refused(format!("{OUTPUT} is there already; {advice}")))
        }
        None => Ok(PathBuf::from(OUTPUT)),
    }
}

/// Asks whether what is at the path may be overwritten.
fn confirm(context: &Context, path: &Path, what: &str) -> Result<(), Failure> {
    let path = path.display();
    let advice = "--read-only measures without writing, --overwrite does not ask";
    if !context.input().is_terminal() {
        return Err(Failure::Refused(format!(
            "{path} has {what}, which measuring would overwrite; {advice}"
        )));
    }
    let question = format!("{path} has {what}. Measuring overwrites it. Go on? [y/N] ");
    context.errors().write_all(question.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(context.input()).read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Refused(format!("nothing was written; {advice}"))),
    }
}

/// Measures with a progress bar.
fn with_bar<T, E: Into<Failure>>(
    context: &Context,
    measure: impl FnOnce(&mut dyn FnMut(Progress)) -> Result<T, E>,
) -> Result<T, Failure> {
    let bar = context.progress(Some(1), "[{bar:30}] {percent:>3}%  {msg}  {elapsed}, {eta} left");
    let mut before = "";
    let measured = measure(&mut |progress: Progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.of as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.what);
            if before != progress.what {
                // What takes how long is another matter now, and a search may be far already.
                bar.reset_eta();
                before = progress.what;
            }
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    measured.map_err(Into::into)
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|error| Failure::file(path, &error))
}

/// Prints profiles, and where they were written.
fn print(
    context: &Context,
    profiles: &[Profile],
    form: &ProfileForm,
    written: Option<&Path>,
) -> Result<(), Failure> {
    if let (Some(file), Some(first)) = (&form.svg, profiles.first()) {
        write(file, &plot::draw(first).map_err(Failure::Refused)?)?;
    }
    if form.json {
        return context.json(&profiles);
    }
    let mut out = context.out();
    for profile in profiles {
        show_profile(&mut out, profile)?;
    }
    if let Some(path) = written {
        writeln!(out, "written to {}", path.display())?;
    }
    Ok(out.flush()?)
}

fn show_profile(out: &mut impl Write, profile: &Profile) -> std::io::Result<()> {
    writeln!(out, "{}", profile.name)?;
    let mut row = |name: &str, value: String| writeln!(out, "  {name:18}{value}");
    row("kind", profile.reason.clone())?;
    let [logical, physical] = [profile.logical_block_bytes, profile.physical_block_bytes];
    row("blocks", format!("{logical} bytes, {physical} of the device"))?;
    for (name, value) in of_reads(&profile.reads) {
        row(name, value)?;
    }
    if let Some(found) = &profile.parallelism {
        row("parallel reads", in_parallel(found))?;
        row("stripe units", stripe_units(found))?;
    }
    if let Some(tracks) = &profile.tracks {
        row("tracks", found_tracks(tracks))?;
    }
    match &profile.writes {
        Some(writes) => {
            let is_full = profile.effort == Effort::Full;
            of_writes(writes, is_full).into_iter().try_for_each(|(name, value)| row(name, value))
        }
        None => row("writes", "not measured".to_owned()),
    }
}

/// How many reads are served in parallel.
fn in_parallel(found: &Parallelism) -> String {
    match found.reads {
        Some(reads) => format!("about {reads:.0}"),
        None => "not known: reads move a head".to_owned(),
    }
}

fn found_tracks(tracks: &Tracks) -> String {
    match tracks.count() {
        0 => TracksError::NoRotation.to_string(),
        count => format!(
            "{}, {:.1} % of them right by a second look",
            text::count(count),
            100.0 * tracks.check.confidence()
        ),
    }
}

fn stripe_units(found: &Parallelism) -> String {
    match found.stripes {
        Some(Stripes { unit_bytes, ways, confidence }) => format!(
            "{} in turn on {ways} drives, {:.1} % certain",
            text::size(unit_bytes),
            100.0 * confidence
        ),
        None => "no boundary found".to_owned(),
    }
}

fn in_sequence(bytes_per_second: u64, request_bytes: u64) -> String {
    let (rate, size) = (rate(bytes_per_second), text::size(request_bytes));
    format!("{rate} in sequence, with requests of {size} or more")
}

fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", text::size(bytes_per_second))
}

fn micros(us: u64) -> String {
    text::time(us as f64 / 1e6)
}

fn of_reads(reads: &Reads) -> [(&'static str, String); 2] {
    let streaming = in_sequence(reads.streaming_bytes_per_second, reads.streaming_request_bytes);
    let small = format!(
        "{} for 4 KiB at random, {} at most for 99 %; {} in flight are enough",
        micros(reads.small_us),
        micros(reads.small_p99_us),
        reads.requests_in_flight
    );
    [("reads", streaming), ("", small)]
}

fn of_writes(writes: &Writes, is_full: bool) -> Vec<(&'static str, String)> {
    let mut streaming =
        in_sequence(writes.streaming_bytes_per_second, writes.streaming_request_bytes);
    match writes.random_request_bytes {
        Some(bytes) => streaming += &format!("; at random with {}", text::size(bytes)),
        None if is_full => streaming += "; at random with no size that was tried",
        None => {}
    }
    let mixed = format!(
        "{} together, with requests of {} or more",
        rate(writes.mixed_bytes_per_second),
        text::size(writes.mixed_request_bytes)
    );
    let durable = format!(
        "{} for 4 KiB at random, {} at most for 99 %; {} beside a stream of writes",
        micros(writes.small_durable_us),
        micros(writes.small_durable_p99_us),
        micros(writes.durable_beside_stream_us)
    );
    let log = format!("batches of {} or more are the fastest", text::size(writes.log_batch_bytes));
    vec![
        ("writes", streaming),
        ("reads and writes", mixed),
        ("durable writes", durable),
        ("flushes", micros(writes.flush_us)),
        ("log", log),
    ]
}
