//! Placement: which extents of the data devices are used, and where new images go.

mod space_map;

pub use space_map::{Extent, Overlap, SpaceMap, UNIT_BYTES};
