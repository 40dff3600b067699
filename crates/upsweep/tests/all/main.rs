//! The tests of a store through its public interface, as one program: it is built once.
//!
//! Apart are those that need a process, an environment or features of their own.

mod array;
mod backup;
mod boundaries;
mod commits;
mod documents;
mod expiring;
mod extents;
mod faults;
mod futures;
mod gate;
mod hash_table;
mod kinds;
mod load;
mod metrics;
mod quarantine;
mod read_only;
mod requests;
mod returning;
mod scans;
mod snapshots;
mod stall;
mod store;
mod support;
mod typed;
mod upkeep;
mod without_threads;
