//! Events for the `tracing` crate, if the feature of that name is enabled; otherwise nothing, at no
//! cost.
//!
//! The target of all events is `upsweep`. Most are sent under the lock of the core, so a subscriber
//! that is slow makes the store slow, and one that calls the store is refused
//! ([`RequestError::FromWithin`](crate::RequestError::FromWithin)) or panics.

/// An event of this level: `event!(info, field = value, "message")`, as the macros of `tracing`.
macro_rules! event {
    ($level:ident, $($rest:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "upsweep", $($rest)+);
    };
}

pub(crate) use event;
