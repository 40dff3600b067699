//! Placement: which extents of the data devices are used, and where new images go.

mod boundaries;
mod device_space;
mod ranges;
mod space_map;

pub use boundaries::Boundaries;
pub use space_map::{DEVICE_BYTES_MAX, DEVICES_MAX, Extent, Overlap, SpaceMap, UNIT_BYTES};
