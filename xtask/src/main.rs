//! Chores of the workspace. Run `cargo run -q -p xtask -- tidy` to check the house rules.
//!
//! `cargo test -p xtask` enforces the same rules, and proves of each rule that it can fail.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to people")]

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -q -p xtask -- tidy [ROOT]\n\n\
    tidy    check the house rules in every file below ROOT (default: this workspace)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => tidy_report(&workspace_root()),
        ["tidy", root] => tidy_report(Path::new(root)),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The folder that holds this workspace.
fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("xtask lies inside the workspace").to_path_buf()
}

fn tidy_report(root: &Path) -> ExitCode {
    let tree = match tidy::Tree::load(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("cannot read {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let violations = tidy::check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, no violations", tree.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} violations in {} files", violations.len(), tree.len());
        ExitCode::FAILURE
    }
}
