//! The input of `apply` and `load` as whole lines, as soon as they are there.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::failure::Failure;

/// Bytes that one read asks for.
const READ_BYTES: usize = 256 << 10;
/// Longest line in bytes: key and value of the longest lengths, with every byte escaped, fit.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A file or standard input.
pub(crate) struct Input {
    context: Context,
    source: File,
    path: PathBuf,
    name: String,
    length: Option<u64>,
    buffer: Vec<u8>,
    /// What was given out last time.
    given: usize,
    /// End of what was read.
    filled: usize,
    ended: bool,
}

impl Input {
    /// Opens `path`; `-` is standard input.
    pub(crate) fn open(context: &Context, path: &Path) -> Result<Self, Failure> {
        let is_standard = path.as_os_str() == "-";
        let (source, name, length) = if is_standard {
            let name = "standard input";
            let source = context.input().try_clone();
            let source = source.map_err(|error| Failure::file(Path::new(name), &error))?;
            (source, name.to_owned(), None)
        } else {
            let file =
                File::open(context.path(path)).map_err(|error| Failure::file(path, &error))?;
            let found = file.metadata().map_err(|error| Failure::file(path, &error))?;
            if found.is_dir() {
                let message = format!("{}: a folder; name a file", path.display());
                return Err(Failure::Refused(message));
            }
            let length = found.is_file().then_some(found.len());
            (file, path.display().to_string(), length)
        };
        let buffer = vec![0; READ_BYTES];
        let path = PathBuf::from(&name);
        let context = context.clone();
        Ok(Self { context, source, path, name, length, buffer, given: 0, filled: 0, ended: false })
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its length in bytes, if that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next whole lines; a last line without line feed counts. Waits for one line, no more.
    /// `number` is that of the first of them, for messages.
    pub(crate) fn next(&mut self, number: u64) -> Result<Option<&[u8]>, Failure> {
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.given = 0;
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memrchr(b'\n', &self.buffer[searched..self.filled]) {
                self.given = searched + at + 1;
            } else if self.ended {
                self.given = self.filled;
            }
            if self.given > 0 {
                return Ok(Some(&self.buffer[..self.given]));
            }
            if self.ended {
                return Ok(None);
            }
            searched = self.filled;
            self.read(number)?;
        }
    }

    /// Reads what is there, at least one byte unless the input has ended.
    fn read(&mut self, number: u64) -> Result<(), Failure> {
        if self.filled == self.buffer.len() {
            if self.filled >= LINE_BYTES_MAX {
                let (name, limit) = (&self.name, LINE_BYTES_MAX >> 20);
                let problem = format!("the line is longer than {limit} MiB");
                return Err(Failure::Refused(format!("{name}:{number}: {problem}")));
            }
            self.buffer.resize(2 * self.filled, 0);
        }
        loop {
            match self.context.read(&self.source, &mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::file(&self.path, &error)),
            }
            return Ok(());
        }
    }
}
