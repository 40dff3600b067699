//! What the paper measures and reports: O. Rodeh, "B-trees, Shadowing, and Range-operations", IBM
//! research report, section 7; on one RAID 5 of disks with caches off.

use super::operations::Operation;

/// Operations of a workload, in per cent (Rodeh, table 4).
pub(super) type Mix = &'static [(Operation, u64)];

/// The names and mixes of the four workloads (Rodeh, table 4).
pub(super) const WORKLOADS: [(&str, Mix); 4] = [
    ("Search-100", &[(Operation::Lookup, 100)]),
    ("Search-80", &[(Operation::Lookup, 80), (Operation::Insert, 10), (Operation::Remove, 10)]),
    ("Modify", &[(Operation::Lookup, 20), (Operation::Insert, 40), (Operation::Remove, 40)]),
    ("Insert", &[(Operation::Insert, 100)]),
];

/// What latency is measured of (Rodeh, tables 2 and 3). The paper's insert reads the leaf, and so
/// knows whether the key is there; here one insert replaces what is there, and the other keeps it.
pub(super) const LATENCIES: [(&str, Mix); 7] = [
    ("lookup", &[(Operation::Lookup, 100)]),
    ("insert", &[(Operation::Insert, 100)]),
    ("insert if absent", &[(Operation::InsertIfAbsent, 100)]),
    ("remove", &[(Operation::Remove, 100)]),
    ("append", &[(Operation::Append, 100)]),
    ("lookup-range", &[(Operation::LookupRange, 100)]),
    ("remove-range", &[(Operation::RemoveRange, 100)]),
];

/// Keys of a range (Rodeh, section 7.1).
pub(super) const RANGE_KEYS: u64 = 100;
/// Bytes of the tree's nodes that are in memory, in per cent (Rodeh, section 7).
pub(super) const IN_MEMORY_PERCENT: u64 = 5;
/// Random insertions and removals before a run that updates (Rodeh, section 7).
pub(super) const AGING_OPERATIONS: u64 = 1000;
/// Bytes of a node (Rodeh, section 7).
pub(super) const NODE_BYTES: u32 = 4096;
/// How full the nodes of the base trees are, in per cent (Rodeh, section 7).
pub(super) const FILL_PERCENT: u32 = 50;
/// Tasks at one time in the runs for concurrency (Rodeh, table 5).
pub(super) const TASKS: usize = 10;

/// A base tree, and what was measured on it.
pub(super) struct Tree {
    /// Its name, with the most entries of a node.
    pub(super) name: &'static str,
    /// Keys: the even numbers from 0.
    pub(super) keys: u64,
    /// Bytes of a value. T150 stands for entries of 20 bytes.
    pub(super) value_bytes: usize,
    /// Leaves (Rodeh, section 7).
    pub(super) leaves: u64,
    /// Operations per second of [`WORKLOADS`] with one task (Rodeh, table 5).
    pub(super) with_one: [f64; 4],
    /// The same with ten tasks.
    pub(super) with_ten: [f64; 4],
    /// Milliseconds of [`LATENCIES`] (Rodeh, tables 2 and 3).
    pub(super) latency_ms: [f64; 7],
}

/// The two base trees.
pub(super) const TREES: [Tree; 2] = [
    Tree {
        name: "T235",
        keys: 7_520_000,
        value_bytes: 8,
        leaves: 64_273,
        with_one: [206.0, 100.0, 51.0, 44.0],
        with_ten: [1286.0, 724.0, 415.0, 367.0],
        latency_ms: [4.657, 22.080, 22.080, 22.046, 0.016, 8.686, 37.052],
    },
    Tree {
        name: "T150",
        keys: 4_800_000,
        value_bytes: 12,
        leaves: 63_999,
        with_one: [173.0, 80.0, 42.0, 36.0],
        with_ten: [1150.0, 617.0, 354.0, 311.0],
        latency_ms: [4.923, 23.728, 23.728, 23.711, 0.016, 11.761, 41.274],
    },
];
