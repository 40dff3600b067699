//! The layers below the tables: for structures of one's own, for tools and for tests.
//!
//! From the lowest to the highest: [`device`], [`log`], [`placement`], [`engine`], [`runtime`],
//! [`structures`]. Most applications need none of them; what they do need is at the root of the
//! crate. These change more often than that.

#[doc(inline)]
pub use crate::{device, engine, log, placement, runtime, structures};
