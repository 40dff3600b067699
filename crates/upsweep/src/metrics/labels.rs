//! The labels of metrics and their values.

/// A label with a fixed set of values.
pub trait Label: Copy + 'static {
    /// Its name.
    const NAME: &'static str;
    /// All values, in the order of [`Label::index`].
    const VALUES: &'static [&'static str];

    /// The position of this value.
    fn index(self) -> usize;
}

macro_rules! label {
    ($(#[$doc:meta])* $label:ident, $name:literal:
        $($(#[$value_doc:meta])* $value:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label {
            $($(#[$value_doc])* $value,)*
        }

        impl $label {
            /// The value as text.
            #[must_use]
            pub fn name(self) -> &'static str {
                Self::VALUES[self.index()]
            }
        }

        impl Label for $label {
            const NAME: &'static str = $name;
            const VALUES: &'static [&'static str] = &[$($text),*];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// What an update waits for.
    WaitCause, "cause":
    /// Memory for waiting updates: the sweep or spills make room.
    Memory = "memory",
    /// Space in the log: the sweep, spills or a checkpoint make room.
    Log = "log",
    /// Space on the data devices: growth or the sweep make room.
    Device = "device",
    /// The maximum number of log batches is in flight.
    Pipeline = "pipeline",
}

label! {
    /// The purpose for which a thread holds the lock of the core.
    LockCause, "cause":
    /// To offer updates, or to start waiting for them.
    Update = "update",
    /// To request a block, or to deliver one that was read.
    Query = "query",
    /// To request the next blocks of a scan.
    Scan = "scan",
    /// To handle device completions and work that is due.
    Completion = "completion",
    /// To deliver the result of a job.
    Job = "job",
    /// Anything else: structures, snapshots, loads, status.
    Other = "other",
}

label! {
    /// Why the log refused a record.
    LogRefusal, "cause":
    /// Its rings had no space.
    Full = "full",
    /// The queue of batches that wait for a device was full.
    Busy = "busy",
}

label! {
    /// What grows.
    GrowthOf, "of":
    /// A data file, at its end or into its holes.
    Data = "data",
    /// A log ring, including writing its zeros.
    Log = "log",
}

label! {
    /// What memory is used for.
    Resource, "use":
    /// Waiting updates.
    Queues = "queues",
    /// The directory of blocks.
    Directory = "directory",
    /// Cached block images.
    Cache = "cache",
    /// Filters of spill segments.
    Filters = "filters",
    /// Buffers of runs, of scans and of the log: the most they may use.
    Buffers = "buffers",
}

label! {
    /// Where updates wait.
    Place, "place":
    /// In queues in memory.
    Memory = "memory",
    /// In spill segments on the data devices.
    Device = "device",
}

label! {
    /// What found the damage.
    Finder, "finder":
    /// A run of the sweep.
    Sweep = "sweep",
    /// A query.
    Query = "query",
}
