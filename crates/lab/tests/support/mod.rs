//! Running the program.

use std::process::Command;

/// Runs the program; returns whether it succeeded, and what it printed.
pub(crate) fn lab(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_upsweep-lab")).args(arguments).output();
    let output = output.expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}
