//! A store with its volumes, which are opened when they are needed.

use std::sync::{Mutex, PoisonError};

use upsweep::Store;
use upsweep_volume::{Error, Volumes};

/// A table that a store has once it has had a volume, one of [`upsweep_volume::TABLES`].
const TABLE: &str = "volumes/catalog";

/// A store that is open, in a server or for one command.
pub(crate) struct OpenStore {
    store: Store,
    volumes: Mutex<Option<Volumes>>,
}

impl OpenStore {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, volumes: Mutex::default() }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The volumes, which are the same for all who ask.
    pub(crate) fn volumes(&self) -> Result<Volumes, Error> {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(volumes) = &*volumes {
            return Ok(volumes.clone());
        }
        let opened = Volumes::open(&self.store)?;
        Ok(volumes.insert(opened).clone())
    }

    /// The volumes, unless the store has never had one: it does not become a store of volumes
    /// because somebody asks.
    pub(crate) fn existing_volumes(&self) -> Result<Option<Volumes>, Error> {
        if self.store.kind(TABLE).is_none() { Ok(None) } else { self.volumes().map(Some) }
    }
}
