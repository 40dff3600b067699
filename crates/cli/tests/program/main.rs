//! Tests of the program as users meet it: commands, output, errors, exit statuses.

mod backup;
mod bench;
mod bitmaps;
mod commands;
mod common;
mod create;
mod device;
mod exports;
mod foreign;
mod kinds;
mod load;
mod memory;
mod past;
mod quarantine;
mod scrub;
mod secure;
mod serve;
mod snapshots;
mod tables;
mod tools;
mod transfer;
mod trouble;
mod volumes;
