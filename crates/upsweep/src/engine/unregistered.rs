//! Stand-in for a block format that is not registered in this process.
//!
//! A space of such a format exists, with its name and its format, and can be listed, cloned, kept
//! in snapshots, verified as far as checksums go, and dropped. None of that looks into a block. Any
//! operation that would is refused with the name of the format: see `index/unregistered.rs`.

use std::borrow::Cow;

use super::block_format::{Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing};
use super::modifier::ValueRef;

/// Stand-in for a block format that is not registered. Registered formats always have a name.
pub(super) struct Unregistered;

impl Unregistered {
    fn unknown<T>() -> Result<T, String> {
        Err("its block format is not registered".to_owned())
    }
}

impl BlockFormat for Unregistered {
    fn name(&self) -> &'static str {
        ""
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(key)
    }

    fn apply<'a>(&self, _: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        Self::unknown().map_err(ApplyError::Corrupt)
    }

    fn for_each(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        Self::unknown()
    }

    fn check(&self, _: &[u8], _: &[u8], _: Option<&[u8]>) -> Result<Checked, String> {
        Self::unknown()
    }
}
