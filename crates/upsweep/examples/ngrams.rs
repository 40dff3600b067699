//! Counts every sequence of three words in real text, is killed in the middle, and goes on.
//!
//!     cargo run --release --example ngrams -- --help
//!
//! The text is that of the Rust toolchain and of the Cargo registry on this machine, or of the
//! given folders. Words are the maximal runs of letters and digits, in lower case, of at most 64
//! bytes; tags of HTML do not count.
//!
//! A *parent* makes a store in a temporary folder (in `--dir` if given) and starts this program
//! again as a *child* that counts. In the middle of the text the parent kills the child with
//! SIGKILL; a second child opens the store, which recovers it, and goes on to the end. Then the
//! parent checks: the store verifies clean, the counts add up to the number of sequences in the
//! text, and a random thousand of them are what a count without the store gives.
//!
//! Each sequence is counted exactly once, whenever the kill comes: the increments of a stretch of
//! text and the position behind it are one batch, so after a crash both are there or neither.

#![expect(
    clippy::disallowed_methods,
    reason = "an example is a program: it reads files, tells the time and starts a child"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use clap::Parser;
use upsweep::{CreateOptions, Durability, Store, Table, Ticket};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Increments of one batch.
const BATCH: usize = 1000;
/// Longer words are left out.
const WORD_BYTES_MAX: usize = 64;
/// Sequences whose counts are checked one by one.
const SAMPLE: usize = 1000;
/// Most frequent sequences that are shown.
const TOP: usize = 20;
/// What counts as text.
const EXTENSIONS: [&str; 8] = ["rs", "md", "html", "txt", "toml", "c", "h", "py"];
/// The key under which the position in the text is kept.
const POSITION: &[u8] = b"position";

fn main() -> Outcome<()> {
    let options = Options::parse();
    match &options.child {
        Some(work) => count(work, options.memory_bytes()),
        None => demonstrate(&options),
    }
}

fn say(text: impl Display) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Counts every sequence of three words in real text, is killed in the middle, and goes on
#[derive(Parser)]
struct Options {
    /// Text files of at most so many bytes together, such as 20MiB
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
    /// Memory of the store: a small part of what the table takes
    #[arg(long, value_name = "SIZE", default_value = "24MiB")]
    memory: ByteSize,
    /// Where the temporary store goes
    #[arg(long, value_name = "FOLDER", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Count in this folder, as the parent's child
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
    /// Folders with text; none: those of the Rust toolchain and of Cargo's registry
    #[arg(value_name = "FOLDER")]
    folders: Vec<PathBuf>,
}

impl Options {
    fn memory_bytes(&self) -> usize {
        usize::try_from(self.memory.as_u64()).unwrap_or(usize::MAX)
    }
}

/// The toolchain's folder and the registry's.
fn default_folders() -> Vec<PathBuf> {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = rustc.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let sysroot = sysroot.map(|path| PathBuf::from(path.trim()));
    sysroot.into_iter().chain(cargo.map(|cargo| cargo.join("registry"))).collect()
}

// The text.

/// All text files in `folders`, in the order of their paths, up to so many bytes.
fn find_files(folders: &[PathBuf], limit_bytes: u64) -> (Vec<PathBuf>, u64) {
    let mut found = Vec::new();
    let mut folders = folders.to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let is_text = path
                .extension()
                .and_then(|extension| extension.to_str())
                .is_some_and(|extension| EXTENSIONS.contains(&extension));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && is_text && path.to_str().is_some() {
                found.push((path, entry.metadata().map_or(0, |metadata| metadata.len())));
            }
        }
    }
    found.sort();
    let mut bytes = 0;
    found.retain(|(_, length)| {
        let fits = bytes + length <= limit_bytes;
        bytes += if fits { *length } else { 0 };
        fits
    });
    (found.into_iter().map(|(path, _)| path).collect(), bytes)
}

/// Calls `each` with every sequence of three words of a file, in order; returns its length.
fn sequences(path: &Path, mut each: impl FnMut(&str) -> Outcome<()>) -> Outcome<u64> {
    let bytes = std::fs::read(path)?;
    let length = bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    let is_html = path.extension().is_some_and(|extension| extension == "html");
    let mut in_tag = false;
    let mut words = text
        .split(|letter: char| {
            in_tag = is_html && (letter == '<' || (in_tag && letter != '>'));
            in_tag || !letter.is_alphanumeric()
        })
        .filter(|word| !word.is_empty() && word.len() <= WORD_BYTES_MAX);
    let (Some(mut first), Some(mut second)) = (words.next(), words.next()) else {
        return Ok(length);
    };
    let mut key = String::new();
    for third in words {
        key.clear();
        for part in [first, " ", second, " ", third] {
            key.push_str(part);
        }
        each(&key)?;
        (first, second) = (second, third);
    }
    Ok(length)
}

// The child: counts.

/// Where the count is: files done, and sequences done of the next one.
#[derive(Clone, Copy, Default)]
struct Position {
    file: u64,
    sequence: u64,
}

impl Position {
    fn load(progress: &Table) -> Outcome<Self> {
        let Some(value) = progress.get(POSITION)? else { return Ok(Self::default()) };
        let text = String::from_utf8(value.bytes)?;
        let (file, sequence) = text.split_once(' ').ok_or("the position is malformed")?;
        Ok(Self { file: file.parse()?, sequence: sequence.parse()? })
    }
}

/// Increments on their way into the store, together with the position behind them.
struct Counter {
    store: Store,
    counts: Table,
    progress: Table,
    batch: upsweep::Batch,
    position: Position,
    increments: u64,
    last: Option<Ticket>,
}

impl Counter {
    fn count(&mut self, sequence: &str) -> Outcome<()> {
        self.batch.add(&self.counts, sequence.as_bytes(), 1);
        self.position.sequence += 1;
        self.increments += 1;
        if self.batch.len() >= BATCH { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Outcome<()> {
        let Position { file, sequence } = self.position;
        self.batch.put(&self.progress, POSITION, format!("{file} {sequence}").as_bytes());
        let batch = std::mem::replace(&mut self.batch, self.store.batch());
        // A ticket: the batches follow each other without pause, and become durable in order.
        self.last = Some(batch.commit(Durability::Ticket)?);
        Ok(())
    }

    fn report(&self, bytes: u64, started: Instant) -> Outcome<()> {
        let seconds = started.elapsed().as_secs_f64();
        let status = self.store.status();
        say(serde_json::json!({
            "bytes": bytes,
            "increments": self.increments,
            "seconds": seconds,
            "batching_degree": status.sweep.batching_degree,
            "written_bytes_per_update": status.sweep.written_bytes_per_update,
            "bound_per_second": status.bound.steady,
            "bound_by": status.bound.binds,
        }))
    }
}

/// Counts the files listed in `work`, from where the store says.
fn count(work: &Path, memory_bytes: usize) -> Outcome<()> {
    let opening = Instant::now();
    let store = Store::builder().memory_bytes(memory_bytes).open(work.join("store"))?;
    let (counts, progress) = (store.table("counts")?, store.table("progress")?);
    let begin = Position::load(&progress)?;
    say(format_args!(
        "opened in {:.2} s; goes on at file {}, sequence {}",
        opening.elapsed().as_secs_f64(),
        begin.file,
        begin.sequence
    ))?;
    let list = std::fs::read_to_string(work.join("files"))?;
    let batch = store.batch();
    let mut counter =
        Counter { store, counts, progress, batch, position: begin, increments: 0, last: None };
    let started = Instant::now();
    let (mut bytes, mut reported) = (0, started);
    for (index, path) in list.lines().enumerate() {
        let index = index as u64;
        if index < begin.file {
            bytes += std::fs::metadata(path)?.len();
            continue;
        }
        let done = if index == begin.file { begin.sequence } else { 0 };
        counter.position = Position { file: index, sequence: done };
        let mut number = 0;
        bytes += sequences(Path::new(path), |sequence| {
            number += 1;
            if number > done { counter.count(sequence) } else { Ok(()) }
        })?;
        if reported.elapsed() > Duration::from_millis(500) {
            counter.report(bytes, started)?;
            reported = Instant::now();
        }
    }
    counter.commit()?;
    if let Some(last) = &counter.last {
        last.wait()?;
    }
    counter.report(bytes, started)
}

// The parent: starts, kills, checks, shows.

fn demonstrate(options: &Options) -> Outcome<()> {
    let given = &options.folders;
    let folders = if given.is_empty() { default_folders() } else { given.clone() };
    let limit_bytes = options.limit.map_or(u64::MAX, |limit| limit.as_u64());
    let (files, bytes) = find_files(&folders, limit_bytes);
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    if files.is_empty() {
        return Err(format!("no text in {}: name a folder with some", folders.join(", ")).into());
    }
    let mib = bytes as f64 / f64::from(1 << 20);
    say(format_args!("text: {mib:.0} MiB in {} files of {}", files.len(), folders.join(", ")))?;
    if bytes < 64 << 20 {
        say("this is little text: the table may fit into memory, which is not what this is for")?;
    }
    let work = tempfile::Builder::new().prefix("upsweep-ngrams-").tempdir_in(&options.dir)?;
    let list: String = files.iter().map(|path| format!("{}\n", path.display())).collect();
    std::fs::write(work.path().join("files"), list)?;
    let log = CreateOptions::default().log_bytes(256 << 20);
    drop(Store::builder().create(work.path().join("store"), &log)?);

    say(format_args!("\nfirst child, with {} of memory, to be killed", options.memory))?;
    run_child(work.path(), options.memory, bytes, Some(bytes / 2))?;
    say("\nsecond child, to go on")?;
    let last = run_child(work.path(), options.memory, bytes, None)?;
    let last = last.ok_or("the second child said nothing")?;
    check_and_show(options, work.path(), &files, &last)?;
    Ok(work.close()?)
}

fn start_child(work: &Path, memory: ByteSize) -> Outcome<Child> {
    let child = Command::new(std::env::current_exe()?)
        .arg("--child")
        .arg(work)
        .args(["--memory", &memory.as_u64().to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Runs a child to its end, or until it has come so far in the text; returns its last report.
fn run_child(
    work: &Path,
    memory: ByteSize,
    bytes: u64,
    kill_at: Option<u64>,
) -> Outcome<Option<serde_json::Value>> {
    let mut child = start_child(work, memory)?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let mut last: Option<serde_json::Value> = None;
    let mut shown = Instant::now();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let Ok(report) = serde_json::from_str::<serde_json::Value>(&line) else {
            say(format_args!("  {line}"))?;
            continue;
        };
        let at = report["bytes"].as_u64().unwrap_or(0);
        if shown.elapsed() > Duration::from_secs(5) {
            let (increments, seconds) = (&report["increments"], report["seconds"].as_f64());
            let (percent, seconds) = (100 * at / bytes.max(1), seconds.unwrap_or(0.0));
            say(format_args!("  {percent} %: {increments} increments in {seconds:.0} s"))?;
            shown = Instant::now();
        }
        last = Some(report);
        if kill_at.is_some_and(|kill_at| at >= kill_at) {
            child.kill()?;
            child.wait()?;
            let percent = 100 * at / bytes.max(1);
            say(format_args!("  killed with SIGKILL behind {percent} % of the text"))?;
            return Ok(last);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("the child ended with {status}").into());
    }
    if kill_at.is_some() {
        say("  the text was too short to kill it in the middle")?;
    }
    Ok(last)
}

/// The thousand sequences with the smallest hashes: a random choice among all that occur. A
/// sequence is in it from its first occurrence on, or never, so its count is exact.
#[derive(Default)]
struct Sample {
    counts: BTreeMap<(u64, String), i64>,
}

impl Sample {
    fn count(&mut self, sequence: &str) {
        // FNV-1a with a last mix: any function will do that has nothing to do with word frequency.
        let hash = sequence.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let is_full = self.counts.len() == SAMPLE;
        if is_full && self.counts.last_key_value().is_some_and(|((last, _), _)| hash > *last) {
            return;
        }
        *self.counts.entry((hash, sequence.to_owned())).or_default() += 1;
        if self.counts.len() > SAMPLE {
            self.counts.pop_last();
        }
    }
}

fn check_and_show(
    options: &Options,
    work: &Path,
    files: &[PathBuf],
    last: &serde_json::Value,
) -> Outcome<()> {
    say("\nchecking")?;
    let (mut sample, mut total) = (Sample::default(), 0i64);
    for path in files {
        sequences(path, |sequence| {
            total += 1;
            sample.count(sequence);
            Ok(())
        })?;
    }
    let path = work.join("store");
    let store = Store::builder().memory_bytes(options.memory_bytes()).open(&path)?;
    let counts = store.existing_table("counts")?;
    for ((_, sequence), wanted) in &sample.counts {
        let found = counts.get(sequence.as_bytes())?.and_then(|value| value.as_i64());
        if found != Some(*wanted) {
            return Err(
                format!("{sequence:?}: {found:?} in the store, {wanted} in the text").into()
            );
        }
    }
    say(format_args!("  {} random sequences have the right counts", sample.counts.len()))?;
    store.sweep()?;
    let (mut sum, mut distinct, mut top) = (0i64, 0u64, BinaryHeap::new());
    for record in counts.iter() {
        let (sequence, value) = record?;
        let count = value.as_i64().ok_or("a count is no number")?;
        sum += count;
        distinct += 1;
        top.push(Reverse((count, sequence)));
        if top.len() > TOP {
            top.pop();
        }
    }
    if sum != total {
        return Err(format!("the counts add up to {sum}; the text has {total} sequences").into());
    }
    say(format_args!("  all {distinct} counts add up to the {total} sequences of the text"))?;
    let table_mib = store.status().data_bytes >> 20;
    drop((counts, store));
    let report = Store::builder().verify(&path)?;
    if let Some(damage) = report.damage.first() {
        return Err(format!("verify found damage: {damage}").into());
    }
    say(format_args!("  {} blocks verified", report.blocks))?;
    show(options, last, table_mib)?;
    say(format_args!("\nthe {TOP} most frequent"))?;
    for Reverse((count, sequence)) in top.into_sorted_vec() {
        say(format_args!("  {count:>10}  {}", String::from_utf8_lossy(&sequence)))?;
    }
    Ok(())
}

/// What the second child measured.
fn show(options: &Options, last: &serde_json::Value, table_mib: u64) -> Outcome<()> {
    let number = |name: &str| last[name].as_f64().unwrap_or(0.0);
    let rate = number("increments") / number("seconds").max(1e-9);
    let memory = options.memory;
    say(format_args!("\nthe table takes {table_mib} MiB, the store had {memory} of memory"))?;
    say(format_args!("of the second child:"))?;
    say(format_args!("  throughput            {rate:.0} durable increments a second"))?;
    let bound = number("bound_per_second");
    say(format_args!("  bound                 {bound:.0} a second by {}", last["bound_by"]))?;
    let degree = number("batching_degree");
    say(format_args!("  batching degree       {degree:.1} updates per visit of a block"))?;
    let written = number("written_bytes_per_update");
    say(format_args!("  written               {written:.1} bytes to all devices per update"))
}
