//! Settings of volumes: what they are, and how they change.

use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::rows::VolumeSettings;
use crate::volume::Volume;
use crate::volumes::Volumes;

impl Volumes {
    /// Changes the settings of a volume; returns what they are then. Clones and views are for the
    /// same clients at first. Cost: a log record.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::Store`].
    pub fn change_settings(
        &self,
        volume: &str,
        change: impl FnOnce(&mut VolumeSettings),
    ) -> Result<VolumeSettings, Error> {
        let settings = self.inner.catalog.write().change_settings(volume, change)?;
        self.inner.settings_changes.fetch_add(1, Ordering::Release);
        Ok(settings)
    }

    /// How often settings of volumes have changed since the store was opened. It never blocks.
    #[must_use]
    pub fn settings_changes(&self) -> u64 {
        self.inner.settings_changes.load(Ordering::Acquire)
    }
}

impl Volume {
    /// The settings of the volume. [`Volumes::settings_changes`]
    /// says whether they may have changed.
    ///
    /// # Errors
    /// [`Error::Deleted`].
    pub fn settings(&self) -> Result<VolumeSettings, Error> {
        Ok(self.inner.catalog.read().row(self.number)?.settings.clone())
    }
}
