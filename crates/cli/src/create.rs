//! `upsweep create`: the only command that makes a store.

use serde_json::json;
use upsweep::layers::runtime::read_profiles;
use upsweep::{CreateOptions, Error, RequestError, Store};

use crate::args::CreateArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What `--data` and `--log` take.
const FREE_DEVICE: &str = "a new file, or a raw block device";

pub(crate) fn run(context: &Context, args: CreateArgs) -> Result<(), Failure> {
    let block_bytes = args.block_size.map(|size| u32::try_from(size.0)).transpose();
    let block_bytes = block_bytes.map_err(|_| {
        Failure::Refused("--block-size: a block has at most 1MiB; give less".to_owned())
    })?;
    let mut options = CreateOptions::default().data(args.data).log(args.log);
    options.block_bytes = block_bytes;
    options.log_bytes = args.log_size.map(|size| size.0);
    if let Some(profile) = &args.profile {
        options.profiles = read_profiles(profile)?;
    }
    let store = Store::builder().create(&args.store, &options).map_err(|error| match &error {
        Error::Request(RequestError::AlreadyExists(path))
            if path.is_dir() && !path.join("store.json").exists() =>
        {
            Failure::Refused(format!(
                "{} is not empty and has no store.json: left by a creation that was interrupted, \
                 or something else; look at it, remove it, then try again",
                path.display()
            ))
        }
        Error::Request(RequestError::AlreadyExists(path)) => {
            let is_store = *path == args.store;
            let new = if is_store { "a new or an empty folder" } else { FREE_DEVICE };
            Failure::Refused(format!("{error}; name {new}"))
        }
        _ => error.into(),
    })?;
    let status = store.status();
    let path = args.store.display();
    if args.json {
        return context.json(&json!({
            "store": status.store,
            "path": path.to_string(),
            "block_bytes": status.block_bytes,
            "log_bytes": status.log.capacity_bytes,
            "log_bytes_max": status.log.capacity_bytes_max,
            "devices": status.devices,
        }));
    }
    let (log, most) = (status.log.capacity_bytes, status.log.capacity_bytes_max);
    let most = match log < most {
        true => format!(" that may become {}", text::size(most)),
        false => String::new(),
    };
    context.line(&format!(
        "made {path}: blocks of {}, a log of {}{most}",
        text::size(u64::from(status.block_bytes)),
        text::size(log)
    ))
}
