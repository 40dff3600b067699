//! Where a command runs: its streams, the store that it opens, and what interrupts it.
//!
//! A command uses these instead of those of the process, so that it can run for another process.

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use upsweep::{Error, RequestError, Store};
use upsweep_volume::Volumes;

use crate::args::OpenArgs;
use crate::failure::Failure;
use crate::open_store::OpenStore;

/// Bytes that a stream takes without waiting once it takes any, as pipes do.
const READY_BYTES: usize = 4096;

/// Where a command runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    streams: Streams,
    /// Its other end is closed or shut down when the command is interrupted.
    interrupts: OnceLock<UnixStream>,
    /// For a command that a server runs.
    caller: Option<Caller>,
}

/// What a command of another process works on.
struct Caller {
    /// Working directory of the process.
    folder: PathBuf,
    served: Arc<OpenStore>,
}

/// Standard input, output and error.
pub(crate) struct Streams {
    pub(crate) input: File,
    pub(crate) output: File,
    pub(crate) errors: File,
}

impl Streams {
    /// Those of this process.
    fn of_process() -> io::Result<Self> {
        let own = |stream: &dyn AsFd| stream.as_fd().try_clone_to_owned().map(File::from);
        let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
        Ok(Self { input: own(&input)?, output: own(&output)?, errors: own(&errors)? })
    }
}

/// The command was interrupted while it waited for a stream.
#[derive(Debug)]
struct Interrupted;

impl Display for Interrupted {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl StdError for Interrupted {}

/// Whether a command was interrupted while it waited for a stream.
pub(crate) fn is_interruption(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn StdError + Send + Sync>::is::<Interrupted>)
}

impl Context {
    /// The streams of this process. An interrupt ends the process, as by default.
    pub(crate) fn of_process() -> io::Result<Self> {
        let streams = Streams::of_process()?;
        let inner = Inner { streams, interrupts: OnceLock::new(), caller: None };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The streams and the working directory of another process, and the store of this one, which
    /// is a server. The command is interrupted once `interrupts` is closed on the other side.
    pub(crate) fn of_caller(
        streams: Streams,
        folder: PathBuf,
        interrupts: UnixStream,
        served: Arc<OpenStore>,
    ) -> Self {
        let caller = Some(Caller { folder, served });
        Self { inner: Arc::new(Inner { streams, interrupts: interrupts.into(), caller }) }
    }

    /// Makes an interrupt of this process one of the command, which then says how far it has come;
    /// a second one ends the process. To be called before there are other threads.
    pub(crate) fn catch_interrupts(&self) -> Result<(), Failure> {
        if self.inner.interrupts.get().is_some() {
            return Ok(());
        }
        let failed =
            |error: io::Error| Failure::Refused(format!("interrupts cannot be caught: {error}"));
        let (ours, other) = UnixStream::pair().map_err(failed)?;
        let signals = SigSet::from(Signal::SIGINT);
        signals.thread_block().map_err(|error| failed(error.into()))?;
        std::thread::spawn(move || {
            // If it cannot wait, the next interrupt ends the process, as by default.
            let _first = signals.wait();
            drop(other);
            let _second_ends = signals.thread_unblock();
        });
        self.inner.interrupts.get_or_init(|| ours);
        Ok(())
    }

    /// Refuses to go on once the command is interrupted.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(interrupts) = self.inner.interrupts.get() else { return Ok(()) };
        let mut polled = [PollFd::new(interrupts, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(1..) => Err(Failure::Interrupted),
            _ => Ok(()),
        }
    }

    /// Waits until a socket can be read, or the command is interrupted, which is an error.
    pub(crate) fn wait_for_socket(&self, socket: &UnixStream) -> io::Result<()> {
        self.wait(socket, PollFlags::IN, true)
    }

    /// Waits until a stream is ready, or the command is interrupted, which then ends it: if it
    /// `goes_on` only where the stream is not ready.
    fn wait(&self, stream: impl AsFd, ready: PollFlags, goes_on: bool) -> io::Result<()> {
        let Some(interrupts) = self.inner.interrupts.get() else { return Ok(()) };
        let mut polled = [PollFd::new(&stream, ready), PollFd::new(interrupts, PollFlags::IN)];
        loop {
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => {
                    let [is_ready, is_interrupted] =
                        [0, 1].map(|nth: usize| !polled[nth].revents().is_empty());
                    let ends = is_interrupted && !(is_ready && goes_on);
                    return if ends { Err(io::Error::other(Interrupted)) } else { Ok(()) };
                }
            }
        }
    }

    /// Reads what is there of a stream, and waits for it.
    pub(crate) fn read(&self, mut stream: &File, into: &mut [u8]) -> io::Result<usize> {
        self.wait(stream, PollFlags::IN, false)?;
        stream.read(into)
    }

    /// Writes to a stream, and waits for its reader.
    fn write(&self, mut stream: &File, bytes: &[u8], goes_on: bool) -> io::Result<usize> {
        self.wait(stream, PollFlags::OUT, goes_on)?;
        let may_wait = self.inner.interrupts.get().is_some() && !is_regular(stream);
        let bytes = if may_wait { &bytes[..bytes.len().min(READY_BYTES)] } else { bytes };
        stream.write(bytes)
    }

    /// Its streams.
    pub(crate) fn streams(&self) -> &Streams {
        &self.inner.streams
    }

    /// Standard input.
    pub(crate) fn input(&self) -> &File {
        &self.inner.streams.input
    }

    /// Standard output, for what is printed also when the command is interrupted.
    pub(crate) fn output(&self) -> Output<'_> {
        Output { context: self, stream: &self.inner.streams.output, goes_on: true }
    }

    /// Standard error.
    pub(crate) fn errors(&self) -> Output<'_> {
        Output { context: self, stream: &self.inner.streams.errors, goes_on: true }
    }

    /// Whether a server runs the command, so that work in the background goes on after it.
    pub(crate) fn is_in_server(&self) -> bool {
        self.inner.caller.is_some()
    }

    /// A path that the command was given, from here.
    pub(crate) fn path(&self, given: &Path) -> PathBuf {
        match &self.inner.caller {
            Some(caller) => caller.folder.join(given),
            None => given.to_owned(),
        }
    }

    /// The store that a server has open.
    fn served(&self, args: &OpenArgs) -> Option<&Arc<OpenStore>> {
        let served = &self.inner.caller.as_ref()?.served;
        if args.memory.is_some() {
            self.note(
                "--memory has no effect: a server has the store open, with memory of its own",
            );
        }
        Some(served)
    }

    /// Opens a store that is there to update it.
    pub(crate) fn open(&self, args: &OpenArgs) -> Result<Store, Failure> {
        if let Some(served) = self.served(args) {
            return Ok(served.store().clone());
        }
        Ok(Store::builder().memory_bytes(args.memory_bytes()).open(&args.store)?)
    }

    /// Opens a store that is there and its volumes, to change them.
    pub(crate) fn volumes(&self, args: &OpenArgs) -> Result<Volumes, Failure> {
        Ok(self.with_volumes(args)?.volumes()?)
    }

    /// Opens a store that is there and its volumes, if it has ever had one.
    pub(crate) fn existing_volumes(&self, args: &OpenArgs) -> Result<Option<Volumes>, Failure> {
        Ok(self.with_volumes(args)?.existing_volumes()?)
    }

    fn with_volumes(&self, args: &OpenArgs) -> Result<Arc<OpenStore>, Failure> {
        if let Some(served) = self.served(args) {
            return Ok(Arc::clone(served));
        }
        Ok(Arc::new(OpenStore::new(self.open(args)?)))
    }

    /// Opens a store that is there to work on it as a whole: without the modifiers of its
    /// application if it needs any, and then a note says so.
    pub(crate) fn open_for_upkeep(&self, args: &OpenArgs) -> Result<Store, Failure> {
        if let Some(served) = self.served(args) {
            return Ok(served.store().clone());
        }
        let builder = || Store::builder().memory_bytes(args.memory_bytes());
        builder().open(&args.store).or_else(|error| {
            if !needs_application(&error) {
                return Err(error.into());
            }
            let store = builder().open_for_upkeep(&args.store)?;
            self.note(&format!("opened for upkeep only: {error}"));
            Ok(store)
        })
    }

    /// Opens a store that is there to look at it: for reading only where it cannot be written to,
    /// or needs modifiers or kinds of an application, and then a note says so.
    pub(crate) fn open_to_read(&self, args: &OpenArgs) -> Result<Store, Failure> {
        if let Some(served) = self.served(args) {
            return Ok(served.store().clone());
        }
        let builder = || Store::builder().memory_bytes(args.memory_bytes());
        builder().open(&args.store).or_else(|error| {
            let is_path = matches!(&error, Error::Request(RequestError::Path { .. }));
            let may_be_read = is_path || needs_application(&error);
            let read_only = may_be_read.then(|| builder().open_read_only(&args.store).ok());
            let Some(store) = read_only.flatten() else { return Err(error.into()) };
            self.note(&format!("opened for reading only: {error}"));
            Ok(store)
        })
    }
}

/// Whether a store needs what only its application can register.
fn needs_application(error: &Error) -> bool {
    let Error::Request(error) = error else { return false };
    matches!(error, RequestError::UnknownModifier { .. } | RequestError::UnknownFormat(_))
}

/// Whether a stream is a file on a disk, which takes any number of bytes at once.
fn is_regular(stream: &File) -> bool {
    stream.metadata().is_ok_and(|found| found.is_file())
}

/// A stream to write to, without a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    context: &'a Context,
    stream: &'a File,
    /// Whether it is written also when the command is interrupted.
    goes_on: bool,
}

impl Output<'_> {
    /// The stream, for what an interrupt ends.
    pub(crate) fn until_interrupted(self) -> Self {
        Self { goes_on: false, ..self }
    }

    pub(crate) fn is_terminal(self) -> bool {
        self.stream.is_terminal()
    }

    /// The stream, to hand it on.
    pub(crate) fn file(self) -> io::Result<File> {
        self.stream.try_clone()
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.context.write(self.stream, bytes, self.goes_on)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
