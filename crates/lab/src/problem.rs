//! What can go wrong, for people.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// Why a command, or one experiment, did not succeed.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// There is no such experiment.
    Unknown {
        /// What was asked for.
        id: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// A file or folder cannot be read or written, or does not hold what it should.
    File {
        /// Its name.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// A description of a drive or the data of a paper, as built into the program, is wrong.
    Data(String),
    /// A figure cannot be drawn.
    Figure(String),
    /// What was simulated did not do what it should.
    Simulation(String),
    /// Some of the experiments failed.
    Failed(Vec<&'static str>),
    /// The results cannot be printed.
    Output(String),
}

impl Problem {
    /// Of a file.
    pub(crate) fn file(path: &Path, reason: impl Display) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl Display for Problem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { id, known } => {
                let known = known.join(", ");
                write!(formatter, "there is no experiment {id}: give all, or one of {known}")
            }
            Self::File { path, reason } => write!(formatter, "{}: {reason}", path.display()),
            Self::Data(reason) => write!(formatter, "the laboratory's data is wrong: {reason}"),
            Self::Figure(reason) => write!(formatter, "a figure cannot be drawn: {reason}"),
            Self::Simulation(reason) => write!(formatter, "the simulation failed: {reason}"),
            Self::Failed(ids) => write!(formatter, "failed: {}", ids.join(", ")),
            Self::Output(reason) => write!(formatter, "cannot write the results: {reason}"),
        }
    }
}
