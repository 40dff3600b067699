//! Streams of operations for experiments, from the specifications of benchmarks.

pub(crate) mod tpcc;
