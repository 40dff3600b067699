//! Opening and making stores, with what the application registers.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::Store;
use crate::device::{Bank, MemoryDevices, ThreadedDevices};
use crate::engine::block_format::BlockFormat;
use crate::engine::modifier::{Modifier, check_name};
use crate::engine::{Registry, Report};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, CreateOptions, OpenOptions, WallClock};
use crate::structures::kind::{Kinds, StructureKind};
use crate::structures::registry;

/// Maximum log size of a store in memory, in bytes.
const MEMORY_LOG_BYTES: u64 = 64 << 20;

/// How to open a store: memory, pipeline, and what the application registers.
#[derive(Clone, Default)]
pub struct StoreBuilder {
    options: OpenOptions,
    modifiers: Vec<Arc<dyn Modifier>>,
    formats: Vec<Arc<dyn BlockFormat>>,
    kinds: Vec<Arc<dyn StructureKind>>,
}

impl StoreBuilder {
    /// Memory for queues, directory, cache and buffers together, in bytes; default 256 MiB. More
    /// memory means more updates applied per visit of a block. If this is too little, opening fails
    /// with an error that names the minimum.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.options.memory_bytes = bytes;
        self
    }

    /// The clock that decides what has expired: see [`ExpiringTable`](crate::ExpiringTable). The
    /// default is that of the system; a test can supply one that it sets. It is read from any
    /// thread, and must not call the store.
    #[must_use]
    pub fn wall_clock(mut self, read: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.options.wall_clock = WallClock::new(read);
        self
    }

    /// All settings at once.
    #[must_use]
    pub fn options(mut self, options: OpenOptions) -> Self {
        self.options = options;
        self
    }

    /// Registers a modifier of the application. A store that needs it cannot be opened without it.
    #[must_use]
    pub fn modifier(mut self, modifier: impl Modifier + 'static) -> Self {
        self.modifiers.push(Arc::new(modifier));
        self
    }

    /// Registers a kind of structure from another crate, with its block format and modifiers.
    ///
    /// A store can be opened without a kind of which it has structures, unless updates are pending
    /// for one or the store was not closed: see [`RequestError::UnknownFormat`]. The structures can
    /// then be listed, cloned and dropped.
    #[must_use]
    pub fn kind(mut self, kind: impl StructureKind + 'static) -> Self {
        self.kinds.push(Arc::new(kind));
        self
    }

    /// Registers a block format of the application, for the block API. Spaces of it are not
    /// structures: they are listed and can be dropped, but backups omit them.
    #[must_use]
    pub fn format(mut self, format: impl BlockFormat + 'static) -> Self {
        self.formats.push(Arc::new(format));
        self
    }

    /// The built-in kinds and those of other crates.
    pub(super) fn kinds(&self) -> Arc<Kinds> {
        let mut kinds = Kinds::default();
        let all = Kinds::builtin().into_iter().chain(self.kinds.iter().cloned());
        all.for_each(|kind| kinds.add(kind));
        Arc::new(kinds)
    }

    fn registry(&self) -> Result<Registry, Error> {
        let mut registry = registry();
        let of_kinds = self.kinds.iter().flat_map(|kind| kind.modifiers());
        for modifier in of_kinds.chain(self.modifiers.iter().cloned()) {
            let (name, version) = (modifier.name(), modifier.version());
            check_name(name)?;
            let twice = registry.builtins.id_of(name, version).is_some()
                || registry.modifiers.iter().any(|m| (m.name(), m.version()) == (name, version));
            if twice {
                return Err(RequestError::RegisteredTwice(name.to_owned()).into());
            }
            registry.modifiers.push(modifier);
        }
        let of_kinds = self.kinds.iter().map(|kind| kind.format());
        for format in of_kinds.chain(self.formats.iter().cloned()) {
            let name = format.name();
            if name.contains(':') || check_name(name).is_err() {
                let reason = "its name must have 1 to 64 bytes, no colon and no control characters";
                let (format, reason) = (name.to_owned(), reason.to_owned());
                return Err(RequestError::BadFormat { format, reason }.into());
            }
            if let Some(twice) = registry.formats.insert(name.to_owned(), Arc::clone(&format)) {
                return Err(RequestError::RegisteredTwice(twice.name().to_owned()).into());
            }
        }
        Ok(registry)
    }

    /// An open store with the registered kinds.
    fn opened(&self, blocks: BlockStore) -> Store {
        Store { blocks, kinds: self.kinds() }
    }

    /// Opens the store in `folder` and recovers it.
    ///
    /// # Errors
    /// [`RequestError::NoStore`]; [`RetryError::InUse`](crate::RetryError::InUse) while another
    /// process has it open; [`RequestError::UnknownModifier`]; [`RequestError::BadModifierName`];
    /// [`Error::Damaged`].
    pub fn open(self, folder: impl AsRef<Path>) -> Result<Store, Error> {
        let registry = self.registry()?;
        let blocks = BlockStore::open(folder.as_ref(), &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Opens the store in `folder` for reading: nothing is written, not even the lock, so it may be
    /// on read-only media, and every change is refused with
    /// [`ClosedError::ReadOnly`](crate::ClosedError). Any number of processes may do so at once,
    /// but none while one has it open for writing. To read while another process writes, open an
    /// atomic copy of the whole folder, such as a file system snapshot: it has everything
    /// acknowledged by then.
    ///
    /// Modifiers may be missing: a query that needs an update of one that is not registered fails
    /// with [`RequestError::UnknownModifier`]; all others are answered. Memory may exceed its
    /// budget, because nothing is swept.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`], but for unknown modifiers.
    pub fn open_read_only(self, folder: impl AsRef<Path>) -> Result<Store, Error> {
        let registry = self.registry()?;
        let blocks = BlockStore::open_read_only(folder.as_ref(), &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Opens the store in `folder` to sweep, compact or drop whatever needs no unregistered
    /// modifier, and to discard quarantined updates. Blocks with pending updates of missing
    /// modifiers are left unchanged ([`Status::held_blocks`](crate::Status)). While any modifier is
    /// missing, updates are refused with [`RequestError::UnknownModifier`], as are queries that
    /// need such an update. Memory may exceed its budget by the pending updates.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`], but for unknown modifiers.
    pub fn open_for_upkeep(self, folder: impl AsRef<Path>) -> Result<Store, Error> {
        let registry = self.registry()?;
        let blocks = BlockStore::open_for_upkeep(folder.as_ref(), &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Makes an empty store in `folder`, which must be empty or not exist, and opens it.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`]; another [`Error::Request`] that names the invalid path or
    /// setting; [`Error::Closed`] if a write failed. A store that could not be created or opened is
    /// removed.
    pub fn create(self, folder: impl AsRef<Path>, options: &CreateOptions) -> Result<Store, Error> {
        let (folder, registry) = (folder.as_ref(), self.registry()?);
        let blocks = BlockStore::create_and_open(folder, options, &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Opens the store in `folder`, or makes an empty one if the folder is empty or does not exist;
    /// `options` apply only then.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`] and [`StoreBuilder::create`]: a folder with other content is left
    /// unchanged.
    pub fn open_or_create(
        self,
        folder: impl AsRef<Path>,
        options: &CreateOptions,
    ) -> Result<Store, Error> {
        match self.clone().open(&folder) {
            Err(Error::Request(RequestError::NoStore(_))) => self.create(folder, options),
            opened => opened,
        }
    }

    /// Makes an empty store on `devices` and opens it. The first `data_devices` of them are for
    /// data, the others for the log; their content is lost. The store is entirely on them: no file
    /// is made. Paths in `options` are ignored.
    ///
    /// # Errors
    /// [`Error::Request`] that names the unusable device or setting; [`Error::Closed`] if a write
    /// failed.
    pub fn create_on(
        self,
        devices: impl Bank + 'static,
        data_devices: u16,
        options: &CreateOptions,
    ) -> Result<Store, Error> {
        let registry = self.registry()?;
        let mut devices: Box<dyn Bank> = Box::new(devices);
        BlockStore::create_on(&mut *devices, data_devices, options)?;
        let blocks = BlockStore::open_on(devices, &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Opens the store on `devices`, and recovers it. They are closed with the store.
    ///
    /// # Errors
    /// [`RequestError::Path`] with the name of the first device if it has no store label; as
    /// [`StoreBuilder::open`].
    pub fn open_on(self, devices: impl Bank + 'static) -> Result<Store, Error> {
        let registry = self.registry()?;
        let blocks = BlockStore::open_on(Box::new(devices), &self.options, &registry)?;
        Ok(self.opened(blocks))
    }

    /// Makes an empty store in memory, such as for an application's tests: no folder and no file.
    /// It is lost when it closes. An update counts as durable once it is in the memory of the
    /// process.
    ///
    /// # Errors
    /// [`Error::Request`] that names the unusable setting.
    pub fn in_memory(self) -> Result<Store, Error> {
        let devices = ThreadedDevices::new(MemoryDevices::with_sizes(&[0, 0], 0));
        let options =
            CreateOptions { log_bytes: Some(MEMORY_LOG_BYTES), ..CreateOptions::default() };
        self.create_on(devices, 1, &options)
    }

    /// Reads everything in the store in `folder` and checks every checksum and invariant. Nothing
    /// is written, and no modifier of the application is needed.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`], but for unknown modifiers; damage is in the report.
    pub fn verify(self, folder: impl AsRef<Path>) -> Result<Report, Error> {
        BlockStore::verify(folder.as_ref(), &self.registry()?)
    }

    /// Restores `store.json` in `folder`, which describes the store, from the copy in the label of
    /// `device`, by default the first data device. Returns whether it had to be restored; the old
    /// file is then `store.json.damaged`. Data is not checked.
    ///
    /// # Errors
    /// [`RequestError::Path`] for a device that cannot be read or has no intact label: name another
    /// one; [`RetryError::InUse`](crate::RetryError::InUse).
    pub fn repair(self, folder: impl AsRef<Path>, device: Option<&Path>) -> Result<bool, Error> {
        BlockStore::repair(folder.as_ref(), device)
    }
}
