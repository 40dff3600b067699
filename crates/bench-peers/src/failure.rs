//! What can go wrong, named for what the reader does about it.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

/// Why a measurement or a report could not be made.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request or the machine has to change first; the text says how.
    Refused(String),
    /// A file or folder could not be used.
    File(PathBuf, std::io::Error),
    /// An engine reported an error.
    Engine(String),
    /// A result is wrong: updates are lost or counted twice.
    Wrong(String),
}

impl Failure {
    /// The failure of using the file or folder `path`.
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File(path.to_owned(), error)
    }

    /// The failure of an engine.
    pub(crate) fn engine(error: impl Display) -> Self {
        Self::Engine(error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => formatter.write_str(text),
            Self::File(path, error) => write!(formatter, "{}: {error}", path.display()),
            Self::Engine(text) => write!(formatter, "the engine reports: {text}"),
            Self::Wrong(text) => write!(formatter, "WRONG RESULT: {text}"),
        }
    }
}

impl std::error::Error for Failure {}
