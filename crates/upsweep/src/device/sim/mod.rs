//! Simulated devices: memory, rotating drives and solid-state devices in virtual time, with
//! injected faults, and wrapped for use by several threads.

pub mod drive;
mod holes;
mod hostile;
mod memory;
mod pages;
pub mod solid_state;
mod threaded;
mod timing;
mod volatile;

pub use hostile::{FailureKind, FaultRange, Faults, HostileDevices};
pub use memory::{LatencyModel, MemoryDevices, Simulated, VirtualClock};
pub use threaded::ThreadedDevices;
pub use volatile::PowerCut;
