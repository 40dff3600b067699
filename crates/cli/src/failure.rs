//! Why a command failed, as one line for people and an exit status for programs.

use std::io::ErrorKind;
use std::path::Path;

use upsweep::{Error, RequestError, RetryError};

use crate::context::{Context, is_interruption};
use crate::when;

/// The failure of a command.
pub(crate) enum Failure {
    /// The key does not exist.
    Absent(String),
    /// Damage was found; `None` if it was already reported.
    Damage(Option<String>),
    /// Bad input, bad usage, or a store that cannot be used now.
    Refused(String),
    /// The command was interrupted.
    Interrupted,
    /// The reader of the output has closed it, which is not a failure.
    OutputClosed,
}

/// Exit status of a command that was interrupted, as shells expect it.
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// A file that could not be read or written.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        if is_interruption(error) {
            return Self::Interrupted;
        }
        Self::Refused(format!("{}: {error}", path.display()))
    }

    /// Prints it to standard error and returns the exit status.
    pub(crate) fn report(&self, context: &Context) -> u8 {
        let (status, message) = match self {
            Self::Absent(message) => (1, Some(message)),
            Self::Damage(message) => (1, message.as_ref()),
            Self::Refused(message) => (2, Some(message)),
            Self::Interrupted => (INTERRUPTED, None),
            Self::OutputClosed => (0, None),
        };
        if let Some(message) = message {
            context.note(&format!("upsweep: {message}"));
        }
        status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let advice = match &error {
            Error::Damaged(_) => {
                let advice = "`upsweep verify` lists all damage; restore the store from a copy";
                return Self::Damage(Some(format!("{error}; {advice}")));
            }
            Error::Request(RequestError::BadConfig { setting, reason }) => {
                return Self::Refused(format!("{}: {reason}", flag(setting)));
            }
            Error::Request(RequestError::NoTable(_)) => "; `upsweep tables` lists all tables",
            Error::Request(RequestError::NoSnapshot(_)) => {
                "; `upsweep snapshot list` lists all snapshots"
            }
            Error::Request(RequestError::NotEmpty(_)) => "; give another --table",
            Error::Request(RequestError::NoQuarantined(_)) => {
                "; `upsweep quarantine list` lists all"
            }
            Error::Retry(RetryError::InUse { .. }) => ": wait for it to end, then try again",
            _ => "",
        };
        Self::Refused(format!("{error}{advice}"))
    }
}

impl From<upsweep_volume::Error> for Failure {
    fn from(error: upsweep_volume::Error) -> Self {
        match error {
            upsweep_volume::Error::Store(error) => error.into(),
            upsweep_volume::Error::Damaged { .. } => Self::Damage(Some(error.to_string())),
            error @ upsweep_volume::Error::NoSnapshot { .. } => {
                Self::Refused(format!("{error}; `upsweep volume list` lists all snapshots"))
            }
            upsweep_volume::Error::NoMoment { volume, stamp, first, last } => {
                let [stamp, first, last] = [stamp, first, last].map(when::time);
                Self::Refused(format!(
                    "{stamp} is not in the history of volume {volume:?}, which is from {first} to \
                     {last}"
                ))
            }
            error @ upsweep_volume::Error::NoMark { .. } => {
                Self::Refused(format!("{error}; `upsweep volume history` lists all marks"))
            }
            error => Self::Refused(error.to_string()),
        }
    }
}

/// The flag that gives a setting of the library; the others keep their name.
fn flag(setting: &'static str) -> &'static str {
    match setting {
        "block size" => "--block-size",
        "data devices" => "--data",
        "fill" => "--fill",
        "log devices" => "--log",
        "log size" => "--log-size",
        "memory" => "--memory",
        other => other,
    }
}

/// For writes to standard output; files have [`Failure::file`].
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::OutputClosed,
            _ if is_interruption(&error) => Self::Interrupted,
            _ => Self::Refused(format!("standard output: {error}")),
        }
    }
}
