//! Devices that are not there: memory in virtual time, the faults that devices have, and any such
//! bank for threads.

mod holes;
mod hostile;
mod memory;
mod pages;
mod threaded;
mod volatile;

pub use hostile::{FailureKind, FaultRange, Faults, HostileDevices};
pub use memory::{LatencyModel, MemoryDevices, Simulated, VirtualClock};
pub use threaded::ThreadedDevices;
pub use volatile::PowerCut;
