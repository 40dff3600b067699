//! The labels of metrics, and the values that each may have.

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
            /// The value as it is shown.
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
    /// What an update has to wait for.
    WaitCause, "cause":
    /// Memory for waiting updates: a sweep or spills make room.
    Memory = "memory",
    /// Space in the log: a sweep, spills or a checkpoint make room.
    Log = "log",
    /// Room on the data devices: growth or a sweep make room.
    Device = "device",
    /// The log has as many batches on their way as it may.
    Pipeline = "pipeline",
}

label! {
    /// What a thread has the lock of the core for.
    LockCause, "cause":
    /// To have updates accepted, or to begin to wait for them.
    Update = "update",
    /// To ask for a block, or to hand over one that was read.
    Query = "query",
    /// To take in what devices have done, and what is due.
    Completion = "completion",
    /// To hand over the result of a job.
    Job = "job",
    /// Anything else: structures, snapshots, loads, status.
    Other = "other",
}

label! {
    /// Why the log did not take a record.
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
    /// A ring of the log, its zeros included.
    Log = "log",
}

label! {
    /// What memory is used for.
    Resource, "use":
    /// Updates that wait.
    Queues = "queues",
    /// The directory of blocks.
    Directory = "directory",
    /// Images that were read.
    Cache = "cache",
    /// Filters of spill segments.
    Filters = "filters",
    /// Buffers of runs and of the log, at most.
    Buffers = "buffers",
}

label! {
    /// Where updates wait.
    Place, "place":
    /// In queues.
    Memory = "memory",
    /// In spill segments on the data devices.
    Device = "device",
}

label! {
    /// Who has found damage.
    Finder, "finder":
    /// A run of the sweep.
    Sweep = "sweep",
    /// A query.
    Query = "query",
}
