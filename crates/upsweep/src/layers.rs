//! The layers below the tables: for custom structures, for tools and for tests.
//!
//! From the lowest to the highest: [`device`], [`log`], [`placement`], [`engine`], [`runtime`],
//! [`structures`]. Most applications need only the root of the crate. These layers change more
//! often.

#[doc(inline)]
pub use crate::{device, engine, log, placement, runtime, structures};
