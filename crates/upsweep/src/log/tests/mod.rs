//! Tests of the log: each rule individually, then random histories.

mod property;
mod rules;
mod world;
