//! Computes the new value of a key from its value and the updates that wait for it.
//!
//! The rule, which sweeps and queries share:
//! - Updates apply in order; one that refuses or panics leaves the value unchanged.
//! - A blind update that succeeds supersedes those that wait before it: they are not evaluated, so
//!   their refusals are not reported. Their effect would be overwritten.
//! - A blind update that refuses supersedes nothing. [`admit`] keeps such updates out of the log,
//!   because a queue that drops superseded updates cannot bring them back.
//!
//! So values never depend on how updates were spread over sweeps or folded. Refusals depend on
//! which updates wait together, not on whether they were folded (but a folded update is refused as
//! one).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::operand_format::split_stored;
use super::{KEY_BYTES_MAX, PUT, check_value};
use crate::engine::block_format::UpdateRef;
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
use crate::engine::registry::{ModifierId, Modifiers};

/// The effect of the updates of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'a> {
    /// The value, or its absence, is the same as before.
    Unchanged,
    /// The key has this value; borrowed from an operand where possible.
    Put(ValueKind, Cow<'a, [u8]>),
    /// The key is gone; it may have been absent before.
    Delete,
}

impl Resolved<'_> {
    /// The value as a modifier sees it, with `current` as the value before.
    fn value<'b>(&'b self, current: Option<ValueRef<'b>>) -> Option<ValueRef<'b>> {
        match self {
            Self::Unchanged => current,
            Self::Put(kind, bytes) => Some(ValueRef { kind: *kind, bytes }),
            Self::Delete => None,
        }
    }
}

/// Applies `updates`, all for `key` and in order, to its `current` value.
///
/// `on_refused` gets the position in `updates` and the reason of each update that was refused,
/// that panicked, or whose modifier is unknown. The process must unwind on panic.
///
/// Cost: one call of the modifier per update after the last blind one.
pub fn resolve<'a>(
    modifiers: &Modifiers,
    key: &[u8],
    current: Option<ValueRef<'_>>,
    updates: &[UpdateRef<'a>],
    on_refused: &mut dyn FnMut(usize, String),
) -> Resolved<'a> {
    let (start, mut state) = match last_decisive(modifiers, key, updates) {
        Some((position, resolved)) => (position + 1, resolved),
        None => (0, Resolved::Unchanged),
    };
    for (position, update) in updates.iter().enumerate().skip(start) {
        match call(modifiers, key, state.value(current), update) {
            Ok(Resolved::Unchanged) => {}
            Ok(changed) => state = changed,
            Err(refusal) => on_refused(position, refusal.into_reason()),
        }
    }
    state
}

/// Whether `updates`, all for `key` and in order, determine its value regardless of the one before.
#[must_use]
pub fn is_decided(modifiers: &Modifiers, key: &[u8], updates: &[UpdateRef<'_>]) -> bool {
    last_decisive(modifiers, key, updates).is_some()
}

/// The last blind update that succeeds, and its effect.
fn last_decisive<'a>(
    modifiers: &Modifiers,
    key: &[u8],
    updates: &[UpdateRef<'a>],
) -> Option<(usize, Resolved<'a>)> {
    updates.iter().enumerate().rev().find_map(|(position, update)| {
        modifiers.get(update.modifier).filter(|modifier| is_blind(*modifier))?;
        let resolved = call(modifiers, key, None, update).ok()?;
        (resolved != Resolved::Unchanged).then_some((position, resolved))
    })
}

fn is_blind(modifier: &dyn Modifier) -> bool {
    guarded(|| Ok(modifier.blind())).unwrap_or(false)
}

fn find(modifiers: &Modifiers, id: ModifierId) -> Result<&dyn Modifier, Refusal> {
    let unknown = || Refusal(format!("modifier number {} is not registered", id.0));
    modifiers.get(id).ok_or_else(unknown)
}

fn check_key(key: &[u8]) -> Result<(), Refusal> {
    if key.len() > KEY_BYTES_MAX {
        let length = key.len();
        return Err(Refusal(format!("key of {length} bytes; the limit is {KEY_BYTES_MAX}")));
    }
    Ok(())
}

/// One update; the modifier's panics become refusals and its outcome is checked.
fn call<'a>(
    modifiers: &Modifiers,
    key: &[u8],
    current: Option<ValueRef<'_>>,
    update: &UpdateRef<'a>,
) -> Result<Resolved<'a>, Refusal> {
    check_key(key)?;
    if update.modifier == PUT {
        // The most frequent modifier, handled without the copy that the trait's outcome costs.
        let (kind, bytes) = split_stored(update.operand)?;
        return Ok(Resolved::Put(kind, Cow::Borrowed(bytes)));
    }
    let modifier = find(modifiers, update.modifier)?;
    match guarded(|| modifier.apply(key, current, update.operand))? {
        Outcome::Keep => Ok(Resolved::Unchanged),
        Outcome::Delete => Ok(Resolved::Delete),
        Outcome::Put(kind, bytes) => {
            check_value(kind, &bytes)?;
            Ok(Resolved::Put(kind, Cow::Owned(bytes)))
        }
    }
}

/// Runs a modifier's code. It is pure, so that nothing is left half-done by a panic.
fn guarded<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Err(Refusal(format!("the modifier panicked: {}", text.unwrap_or("no message"))))
    })
}
