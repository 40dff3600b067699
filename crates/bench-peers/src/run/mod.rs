//! The parent: prepares, runs the cells in turn, keeps what they reply.
//!
//! Steps: check that memory can be limited; describe the machine; measure the device with fio; then
//! load each data set and run every cell on it, engine after engine, in the same stores; write
//! results after each, and the report at the end. Where the stores of all engines have no room side
//! by side, one engine runs all its cells before the next is loaded.

mod cgroup;
mod child;
mod machine;
mod plan;
mod reference;

use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use cgroup::Cgroup;
use plan::Plan;

use crate::args::RunArgs;
use crate::cell::spec::{Reply, Spec, Step};
use crate::engines::Entry;
use crate::failure::Failure;
use crate::outcome::{CellName, DataSet, Load, NO_TEXT, Outcome, Results, Settings};
use crate::report;
use crate::spread::Spread;
use crate::text;
use crate::workload::{Class, Workload};

/// Where installed packages have their licences, which are text.
const TEXTS: &str = "/usr/share/doc";
/// Bytes of text below which no sequences of words are counted.
const TEXT_BYTES_MIN: u64 = 100_000;
/// Largest file that fio measures on.
const REFERENCE_BYTES_MAX: u64 = 2 << 30;

/// A loaded store.
struct Loaded {
    entry: &'static Entry,
    folder: PathBuf,
    /// The sum of all counters, if it is known.
    counters: Option<u64>,
    /// Runs so far.
    runs: u64,
}

/// What a step is about.
struct Orders {
    workload: Workload,
    class: Class,
    set: DataSet,
    /// Updates per second, open loop; none: closed loop.
    rate: Option<f64>,
    /// Whether the counters are added up at the end.
    has_check: bool,
}

struct Parent<'a> {
    args: &'a RunArgs,
    plan: Plan,
    /// Where stores are.
    work: PathBuf,
    text: Option<PathBuf>,
    results: Results,
}

/// Measures what the command line asks for.
///
/// # Errors
/// [`Failure`] if nothing can be measured at all; what goes wrong in a cell is in the results.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    if !args.dir.is_dir() {
        return Err(Failure::Refused(format!("{}: no such folder", args.dir.display())));
    }
    let limit = match args.no_limit {
        true => "NOTHING: memory was not limited, so the engines cannot be compared".to_owned(),
        false => Cgroup::create("bench-peers-trial", plan.memory_bytes)?.about(),
    };
    let is_begun = Results::exist(&args.out);
    if is_begun && !args.add {
        let text = format!(
            "{}: there are results already; name another folder, or add to them with --add",
            args.out.display()
        );
        return Err(Failure::Refused(text));
    }
    fs::create_dir_all(&args.out).map_err(|error| Failure::file(&args.out, error))?;
    let work = tempfile::Builder::new()
        .prefix("bench-peers-")
        .tempdir_in(&args.dir)
        .map_err(|error| Failure::file(&args.dir, error))?;
    let results = if is_begun { Results::read(&args.out)? } else { Results::default() };
    let mut parent = Parent { args, work: work.path().to_owned(), text: None, results, plan };
    let about_text = parent.prepare_text()?;
    let (settings, machine) = (parent.settings(limit, about_text), machine::describe(&args.dir));
    if is_begun {
        parent.results.admit(settings, &machine)?;
    } else {
        (parent.results.settings, parent.results.machine) = (settings, machine);
    }
    parent.measure_device();
    let measured = parent.run_all();
    let removed = work.close().map_err(|error| Failure::file(&args.dir, error));
    measured.and(removed)?;
    report::remake(&args.out)
}

impl Parent<'_> {
    fn settings(&self, limit: String, text: String) -> Settings {
        let plan = &self.plan;
        let words: Vec<String> = std::env::args().skip(1).collect();
        Settings {
            command: format!("bench-peers {}", words.join(" ")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory_bytes: plan.memory_bytes,
            engines: plan.engines.iter().map(|entry| entry.name.to_owned()).collect(),
            configurations: plan
                .engines
                .iter()
                .map(|entry| (entry.name.to_owned(), entry.configuration.to_owned()))
                .collect(),
            seconds: plan.seconds,
            increments_seconds: Some(plan.increments_seconds),
            seed: self.args.seed,
            limit,
            text,
        }
    }

    /// Finds the text whose sequences of words are counted; says what it is.
    fn prepare_text(&mut self) -> Result<String, Failure> {
        if !self.plan.workloads.contains(&Workload::Ngrams) {
            return Ok(NO_TEXT.to_owned());
        }
        if let Some(path) = &self.args.text {
            let file = path.canonicalize().map_err(|error| Failure::file(path, error))?;
            let about = format!("the file {}", path.display());
            self.text = Some(file);
            return Ok(about);
        }
        let path = self.work.join("text");
        let (files, bytes) = gather_licences(&path).map_err(|error| Failure::file(&path, error))?;
        if bytes < TEXT_BYTES_MIN {
            self.plan.workloads.retain(|workload| *workload != Workload::Ngrams);
            let note = format!("ngrams skipped: {TEXTS} has no text; give one by --text");
            self.results.notes.push(note);
            return Ok(NO_TEXT.to_owned());
        }
        self.text = Some(path);
        let size = text::size(bytes as f64);
        Ok(format!(
            "the {files} files {TEXTS}/*/copyright of this machine, {size}, read again at the end"
        ))
    }

    fn measure_device(&mut self) {
        say("the device, by fio");
        let bytes = (self.plan.memory_bytes * 8).min(REFERENCE_BYTES_MAX);
        let measured = reference::measure(&self.work, bytes, self.plan.seconds.min(10.0));
        let results = &mut self.results;
        match (measured, results.reference) {
            (Ok(reference), None) => results.reference = Some(reference),
            // The bounds go by what was measured first; whether it still holds shows here.
            (Ok(again), Some(_)) => {
                results.notes.push(format!("the device then: {}", report::device(&again)));
            }
            (Err(failure), _) => results.notes.push(format!("no physical reference: {failure}")),
        }
    }

    fn run_all(&mut self) -> Result<(), Failure> {
        for set in self.plan.sets.clone() {
            let ratio = set.ratio;
            let free_bytes = machine::free_bytes(&self.work);
            let (groups, skipped) = self.plan.groups(ratio, free_bytes);
            for name in skipped {
                let free = text::size(free_bytes as f64);
                let note = format!("{name} skipped at ratio {ratio}: {free} free is too little");
                self.results.notes.push(note);
            }
            if groups.len() > 1 {
                self.results.notes.push(format!(
                    "at ratio {ratio} each engine ran all its cells before the next: their stores \
                     have no room side by side"
                ));
            }
            for group in groups {
                self.run_group(&group, set)?;
            }
        }
        Ok(())
    }

    /// All cells of some engines on a data set, in turn.
    fn run_group(&mut self, group: &[&'static Entry], set: DataSet) -> Result<(), Failure> {
        let mut stores = Vec::new();
        for entry in group {
            stores.extend(self.load(entry, set)?);
        }
        for (workload, class, has_check) in self.plan.cells(set) {
            let repeats = self.plan.repeats;
            for repeat in 0..repeats {
                for store in &mut stores {
                    let engine = store.entry.name.to_owned();
                    let name = CellName { set, workload, class, engine };
                    self.run_cell(store, name, has_check && repeat + 1 == repeats)?;
                }
            }
        }
        for store in stores {
            fs::remove_dir_all(&store.folder)
                .map_err(|error| Failure::file(&store.folder, error))?;
        }
        Ok(())
    }

    /// Makes and loads a store; none if that fails, which is in the results then.
    fn load(&mut self, entry: &'static Entry, set: DataSet) -> Result<Option<Loaded>, Failure> {
        let DataSet { ratio, key_bytes } = set;
        let folder = self.work.join(format!("{}-{ratio}-{key_bytes}", entry.name));
        fs::create_dir(&folder).map_err(|error| Failure::file(&folder, error))?;
        let mut store = Loaded { entry, folder, counters: Some(0), runs: 0 };
        say(&format!("{} at ratio {ratio}, keys of {key_bytes}: loading", entry.name));
        // Opened as relaxed, because a load is made durable as a whole.
        let (workload, class) = (Workload::Increments, Class::Relaxed);
        let orders = Orders { workload, class, set, rate: None, has_check: false };
        let reply = self.step(&mut store, Step::Load, &orders)?;
        let is_loaded = reply.outcome.is_ok();
        if let Err(error) = &reply.outcome {
            say(&format!("  {error}"));
            // Its room is for the others.
            fs::remove_dir_all(&store.folder)
                .map_err(|error| Failure::file(&store.folder, error))?;
        }
        let engine = entry.name.to_owned();
        self.results.loads.push(Load { engine, set, outcome: reply.outcome });
        self.results.write(&self.args.out)?;
        Ok(is_loaded.then_some(store))
    }

    /// One run of one cell.
    fn run_cell(
        &mut self,
        store: &mut Loaded,
        name: CellName,
        has_check: bool,
    ) -> Result<(), Failure> {
        let CellName { set, workload, class, .. } = name;
        let increments = CellName { workload: Workload::Increments, ..name.clone() };
        let rates: Vec<f64> =
            self.results.outcomes(&increments).map(Outcome::lasting_rate).collect();
        let reached = (!rates.is_empty()).then(|| Spread::of(rates).median);
        let rate = workload.load().zip(reached).map(|(load, reached)| load * reached);
        let DataSet { ratio, key_bytes } = set;
        let about = format!("{} {}, ratio {ratio}, keys of", workload.name(), class.name());
        say(&format!("{} {about} {key_bytes}", store.entry.name));
        let orders = Orders { workload, class, set, rate, has_check };
        let outcome = if workload.load().is_some() && rate.is_none() {
            Err("increments have not reached any rate".to_owned())
        } else if workload == Workload::Recovery {
            self.step(store, Step::RunUntilKilled, &orders)?;
            self.step(store, Step::Recover, &orders)?.outcome
        } else {
            self.step(store, Step::Run, &orders)?.outcome
        };
        match &outcome {
            Ok(outcome) => say(&format!("  {}", report::in_a_line(outcome))),
            Err(error) => say(&format!("  {error}")),
        }
        self.results.add(name, outcome);
        self.results.write(&self.args.out)
    }

    /// One step in a child process.
    fn step(&self, store: &mut Loaded, step: Step, orders: &Orders) -> Result<Reply, Failure> {
        let plan = &self.plan;
        let Orders { workload, class, set, rate, has_check } = *orders;
        let (seconds, seconds_max) = plan.seconds(workload);
        let mut spec = Spec {
            step,
            engine: store.entry.name.to_owned(),
            workload,
            class,
            folder: store.folder.clone(),
            cgroup: None,
            memory_bytes: plan.memory_bytes,
            records: plan.records(set),
            key_bytes: set.key_bytes,
            seconds,
            seconds_max,
            warm_up_seconds: plan.warm_up_seconds(workload),
            rate,
            seed: self.args.seed,
            run: store.runs,
            counters: store.counters,
            has_check,
            text: self.text.clone(),
            acknowledged: self.work.join("acknowledged"),
            reply: self.work.join("reply"),
        };
        store.runs += 1;
        let reply = child::perform(&mut spec, !self.args.no_limit)?;
        store.counters = reply.counters;
        Ok(reply)
    }
}

/// Writes the licences of all installed packages into one file; how many they are, and their bytes.
fn gather_licences(path: &Path) -> std::io::Result<(u64, u64)> {
    let mut all = fs::File::create(path)?;
    let (mut files, mut bytes) = (0, 0);
    let Ok(packages) = fs::read_dir(TEXTS) else { return Ok((0, 0)) };
    let mut folders: Vec<PathBuf> = packages.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        let Ok(mut file) = fs::File::open(folder.join("copyright")) else { continue };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        text.push(b'\n');
        all.write_all(&text)?;
        files += 1;
        bytes += text.len() as u64;
    }
    Ok((files, bytes))
}

/// Says on standard error how far the run is.
fn say(step: &str) {
    let mut errors = std::io::stderr();
    // Nobody misses it if standard error is gone.
    drop(writeln!(errors, "{step}"));
    if errors.is_terminal() {
        drop(errors.flush());
    }
}
