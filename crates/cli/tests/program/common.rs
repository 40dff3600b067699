//! Runs the program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a small store in it.
pub struct World {
    folder: tempfile::TempDir,
}

/// What a run of the program has left.
pub struct Run {
    pub status: Option<i32>,
    pub out: String,
    pub errors: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).expect("the output is text"),
            errors: String::from_utf8(output.stderr).expect("errors are text"),
        }
    }
}

/// The program with these arguments.
pub fn upsweep(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_upsweep"));
    command.args(arguments);
    command
}

/// The run was refused with one line that contains `message`.
pub fn refused(run: &Run, message: &str) {
    assert_eq!(run.status, Some(2), "{} {}", run.out, run.errors);
    assert_eq!(run.errors.lines().count(), 1, "{}", run.errors);
    assert!(run.errors.contains(message), "{:?} not in {:?}", message, run.errors);
}

impl World {
    /// A folder without a store.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// An empty store with small blocks and a small log.
    pub fn new() -> Self {
        let world = Self::empty();
        let size = ["--log-size", "4MiB", "--block-size", "4KiB"];
        let made = world.run("create", &size);
        assert_eq!(made.status, Some(0), "{}", made.errors);
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// A command on the store.
    pub fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let mut full: Vec<&str> = command.split(' ').collect();
        let store = self.store();
        full.push(store.to_str().expect("the path is text"));
        full.extend_from_slice(arguments);
        upsweep(&full)
    }

    /// Runs a command on the store.
    pub fn run(&self, command: &str, arguments: &[&str]) -> Run {
        self.command(command, arguments).output().expect("the program runs").into()
    }

    /// Runs a command on the store, which must end well; returns what it printed.
    pub fn ok(&self, command: &str, arguments: &[&str]) -> String {
        let run = self.run(command, arguments);
        assert_eq!(run.status, Some(0), "{command} {arguments:?}: {}", run.errors);
        run.out
    }

    /// Applies lines from standard input.
    pub fn apply(&self, lines: &str, arguments: &[&str]) -> Run {
        self.feed("apply", lines, arguments)
    }

    /// Runs a command on the store that reads lines from standard input.
    pub fn feed(&self, command: &str, lines: &str, arguments: &[&str]) -> Run {
        let mut process = self
            .command(command, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut input = process.stdin.take().expect("standard input is a pipe");
        // A program that refuses a line need not read the rest.
        drop(input.write_all(lines.as_bytes()));
        drop(input);
        process.wait_with_output().expect("the program ends").into()
    }

    /// Writes a file of the world.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the file is written");
        text(&path)
    }
}

/// A path as text.
pub fn text(path: &Path) -> String {
    path.to_str().expect("the path is text").to_owned()
}
