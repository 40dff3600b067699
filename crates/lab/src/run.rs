//! `upsweep-lab list` and `upsweep-lab run`.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::experiment::{Experiment, Scale};
use crate::experiments;
use crate::papers::Papers;
use crate::problem::Problem;
use crate::progress::{Progress, panicked};
use crate::record::Record;
use crate::text::text;

/// Experiments that are under way at a time, at most; only as many of their measurements run as
/// there are processors.
const TOGETHER: usize = 4;

/// Run experiments, and hold them against what is published
///
/// Prints each table beside the published one, and what becomes of each claim. Writes for each
/// experiment a folder with its tables and figures as CSV and SVG, the published rows as CSV, and
/// everything as result.toml, which `report` reads.
///
/// Results depend on the scale and the seed alone, not on the machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An experiment, as `list` names it, or all
    #[arg(value_name = "ID|all")]
    id: String,
    /// Less of everything: minutes instead of hours
    #[arg(long)]
    quick: bool,
    /// The folder for the results
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// The seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: u64,
}

/// Prints a line for each experiment.
pub(crate) fn list(output: &mut impl Write) -> Result<(), Problem> {
    let papers = Papers::load()?;
    let longest = experiments::ALL.iter().map(|one| one.id.len()).max().unwrap_or(0);
    for experiment in experiments::ALL {
        let Experiment { id, title, .. } = experiment;
        let sources = experiment.sources(&papers)?.join("; ");
        let written = writeln!(output, "{id:<longest$}  {title}  ({sources})");
        written.map_err(|error| Problem::Output(error.to_string()))?;
    }
    Ok(())
}

/// Runs experiments, prints to `output`, and writes their results.
pub(crate) fn run(arguments: &Arguments, output: &mut (impl Write + Send)) -> Result<(), Problem> {
    let Arguments { id, quick, out, seed } = arguments;
    let scale = Scale { is_quick: *quick, seed: *seed };
    run_all(&named(id)?, scale, out, output)
}

/// The experiments that an argument names.
fn named(id: &str) -> Result<Vec<&'static Experiment>, Problem> {
    let all = experiments::ALL.iter();
    let found: Vec<_> = all.filter(|one| id == "all" || one.id == id).collect();
    if found.is_empty() {
        let known = experiments::ALL.iter().map(|one| one.id).collect();
        return Err(Problem::Unknown { id: id.to_owned(), known });
    }
    Ok(found)
}

/// Runs these experiments, some of them at a time; one that fails does not stop the others.
fn run_all(
    chosen: &[&'static Experiment],
    scale: Scale,
    out: &Path,
    output: &mut (impl Write + Send),
) -> Result<(), Problem> {
    let papers = Papers::load()?;
    let progress = Progress::new();
    let waiting: Mutex<VecDeque<_>> = Mutex::new(chosen.iter().copied().collect());
    let printing = Mutex::new((output, Vec::new()));
    let work = || {
        // The lock is released before the experiment begins.
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some(experiment) = next() {
            let result = run_one(experiment, scale, out, &papers, &progress);
            let mut printing = printing.lock().unwrap_or_else(PoisonError::into_inner);
            let (output, failed) = &mut *printing;
            let text = result.unwrap_or_else(|problem| {
                failed.push(experiment.id);
                format!("\n{}: failed: {problem}\n", experiment.id)
            });
            if progress.suspend(|| output.write_all(text.as_bytes())).is_err() {
                failed.push(experiment.id);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..TOGETHER.min(chosen.len()) {
            scope.spawn(work);
        }
    });
    progress.end();
    let (output, failed) = printing.into_inner().unwrap_or_else(PoisonError::into_inner);
    output.flush().map_err(|error| Problem::Output(error.to_string()))?;
    if failed.is_empty() { Ok(()) } else { Err(Problem::Failed(failed)) }
}

/// Runs an experiment, writes its files, and gives its text.
fn run_one(
    experiment: &Experiment,
    scale: Scale,
    out: &Path,
    papers: &Papers,
    progress: &Progress,
) -> Result<String, Problem> {
    let run = AssertUnwindSafe(|| (experiment.run)(&scale, progress));
    let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(&*panic)))?;
    let record = Record::new(experiment, scale, outcome, papers)?;
    record.write(&out.join(experiment.id), papers)?;
    text(&record, papers)
}
