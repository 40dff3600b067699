//! `store.json` from its copy: the label at the start of every device has one, with a checksum.
//!
//! Steps: lock the folder; read the label of a device; write the description that it has. What was
//! there stays as `store.json.damaged`.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::description::{Description, LABEL_BYTES, described};
use super::layout::{DESCRIPTION, Folder, path_error, sync_file};
use crate::error::{Error, RequestError};

/// Name of what was there.
const DAMAGED: &str = "store.json.damaged";
/// The device that a store has inside of its folder unless others were named.
const DEVICE: &str = "data-0";

/// Restores the description of the store in `folder` from the label of `device`; of the first data
/// device, if none is given. Returns whether anything was wrong with it.
///
/// # Errors
/// [`RequestError::Path`] for a device that cannot be read or has no intact label: name another
/// one; [`RetryError::InUse`](crate::RetryError::InUse).
pub(super) fn repair(folder: &Path, device: Option<&Path>) -> Result<bool, Error> {
    if !folder.is_dir() {
        return Err(RequestError::NoStore(folder.to_owned()).into());
    }
    let _lock = Folder::lock(folder)?;
    let file = folder.join(DESCRIPTION);
    let there = fs::read(&file).ok();
    let found: Option<Description> =
        there.as_ref().and_then(|text| serde_json::from_slice(text).ok());
    let first = found.and_then(|found| found.data.into_iter().next());
    let default = || folder.join(first.unwrap_or_else(|| PathBuf::from(DEVICE)));
    let device = device.map_or_else(default, Path::to_owned);
    let text = label(&device).map_err(|reason| {
        path_error(&device, format!("{reason}; name another device of the store"))
    })?;
    if there.as_deref() == Some(text.as_bytes()) {
        return Ok(false);
    }
    if there.is_some() {
        let kept = folder.join(DAMAGED);
        fs::rename(&file, &kept).map_err(|error| path_error(&kept, error))?;
    }
    sync_file(&file, &text)?;
    Ok(true)
}

/// The text of the description in the label of a device, or why there is none.
fn label(device: &Path) -> Result<String, String> {
    let mut bytes = vec![0; LABEL_BYTES];
    let read = File::open(device).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| error.to_string())?;
    let body = described(&bytes)?;
    Description::parse(body).map_err(|error| format!("label: {error}"))?;
    String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
}
