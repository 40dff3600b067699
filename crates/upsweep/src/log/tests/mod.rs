//! Tests of the log: each rule individually, then random histories.

mod property;
mod reading;
mod rules;
mod train;
mod world;
