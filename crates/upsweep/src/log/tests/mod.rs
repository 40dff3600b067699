//! Tests of the log: each rule by itself, then random histories.

mod property;
mod rules;
mod world;
