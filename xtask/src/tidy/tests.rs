//! The repository obeys every rule, and every rule can fail.
//!
//! [`BROKEN`] holds, for each rule, small trees that break it in one place. A case passes only if
//! exactly that rule reports exactly that line.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Rule, Tree, check};

/// A file that breaks `rule` at `line`, and nothing else.
struct Broken {
    rule: Rule,
    path: &'static str,
    line: usize,
    text: &'static str,
}

const fn broken(rule: Rule, path: &'static str, line: usize, text: &'static str) -> Broken {
    Broken { rule, path, line, text }
}

const LIB: &str = "crates/upsweep/src/lib.rs";
const LOG: &str = "crates/upsweep/src/log.rs";
const DEVICE: &str = "crates/upsweep/src/device.rs";
const SWEEP: &str = "crates/upsweep/src/engine/sweep.rs";
const STRUCTURES: &str = "crates/upsweep/src/structures.rs";

/// What every tree of the tests holds unless a case replaces it.
const BASE: [(&str, &str); 12] = [
    ("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n"),
    ("crates/upsweep/Cargo.toml", "[package]\n"),
    (
        LIB,
        "//! Root.\nmod api;\nmod device;\nmod engine;\nmod error;\nmod log;\nmod structures;\n\
         pub use engine::{block_format::BlockFormat, sweep::Sweep};\npub use error::Error;\n",
    ),
    ("crates/upsweep/src/api.rs", "//! Api.\nuse crate::engine::sweep::Sweep;\n"),
    ("crates/upsweep/src/device.rs", "//! Device.\nuse crate::error::Error;\n"),
    ("crates/upsweep/src/error.rs", "//! Error.\nuse crate::device::DeviceError;\n"),
    (LOG, "//! Log.\nuse crate::{device::Devices, Error};\nuse super::device;\n"),
    (
        "crates/upsweep/src/engine/mod.rs",
        "//! Engine.\nmod modifier;\nmod sweep;\nmod format;\npub use accept::Accept;\n",
    ),
    ("crates/upsweep/src/engine/sweep.rs", "//! Sweep.\nuse super::super::log::Ring;\n"),
    ("crates/upsweep/src/engine/modifier.rs", "//! M.\nfn f() { 1u8.to_le_bytes(); }\n"),
    ("crates/upsweep/src/engine/format.rs", "//! F.\nfn f() { 1u8.to_le_bytes(); }\n"),
    (
        STRUCTURES,
        "//! Structures.\nuse crate::engine::{block_format::{ApplyInput, Piece}, modifier};\n\
         use crate::{BlockFormat, Error};\n",
    ),
];

const BROKEN: [Broken; 50] = [
    broken(Rule::Parse, LOG, 2, "//! Log.\nfn open( {\n"),
    broken(Rule::ModuleHeader, LOG, 1, "fn open() {}\n"),
    broken(Rule::ModuleHeader, LOG, 1, "#![no_main]\n//! Late.\n"),
    broken(Rule::Marker, LOG, 2, concat!("//! Log.\n// TO", "DO: later\n")),
    broken(Rule::Marker, LOG, 2, concat!("//! Log.\n/// FIX", "ME\nfn open() {}\n")),
    broken(Rule::Marker, LOG, 2, concat!("//! Log.\n// XX", "X\n")),
    broken(Rule::Marker, LOG, 2, "//! Log.\nfn open() { todo!() }\n"),
    broken(Rule::Marker, LOG, 3, "//! Log.\nfn open() {\n    unimplemented!(\"later\")\n}\n"),
    broken(Rule::Marker, "scripts/run", 2, concat!("#!/bin/bash\n# TO", "DO\n")),
    broken(Rule::IgnoredTest, LOG, 3, "//! Log.\n#[test]\n#[ignore]\nfn open() {}\n"),
    broken(Rule::IgnoredTest, LOG, 3, "//! Log.\n#[test]\n#[ignore = \"slow\"]\nfn open() {}\n"),
    broken(Rule::IgnoredTest, LOG, 2, "//! Log.\n#[cfg_attr(miri, ignore)]\nfn open() {}\n"),
    broken(Rule::IgnoredTest, LOG, 2, "//! Log.\n/// ```ignore\n/// ```\nfn open() {}\n"),
    broken(Rule::VersionedName, LOG, 2, "//! Log.\nfn open_v2() {}\n"),
    broken(Rule::VersionedName, LOG, 2, "//! Log.\nstruct HeaderV2;\n"),
    broken(Rule::DeadFile, "crates/upsweep/src/forgotten.rs", 1, "//! Nobody declares me.\n"),
    broken(Rule::DeadFile, "crates/upsweep/src/log/lost.rs", 1, "//! Nor me.\n"),
    broken(Rule::LayerDirection, LOG, 2, "//! Log.\nuse crate::engine::sweep::Sweep;\n"),
    broken(Rule::LayerDirection, LOG, 3, "//! Log.\nuse crate::{device::Devices,\nengine};\n"),
    broken(Rule::LayerDirection, LOG, 2, "//! Log.\nfn f() { vec![super::runtime::X] }\n"),
    broken(Rule::LayerDirection, LOG, 2, "//! Log.\nmod a { use super::super::engine::X; }\n"),
    broken(Rule::LayerDirection, LOG, 2, "//! Log.\nuse crate::Sweep;\n"),
    broken(Rule::LayerDirection, LOG, 2, "//! Log.\nuse crate::api::Store;\n"),
    broken(Rule::PartDirection, SWEEP, 2, "//! Sweep.\nuse super::core::Core;\n"),
    broken(Rule::PartDirection, SWEEP, 3, "//! Sweep.\nuse super::{index::Index,\nview};\n"),
    broken(Rule::PartDirection, SWEEP, 2, "//! Sweep.\nfn f() { crate::engine::verify::f() }\n"),
    broken(Rule::PartDirection, SWEEP, 2, "//! Sweep.\nuse crate::engine::Accept;\n"),
    broken(Rule::PartDirection, SWEEP, 3, "//! S.\nuse super::index::Index;\nimpl Index {}\n"),
    broken(
        Rule::PartDirection,
        "crates/upsweep/src/engine/modifier.rs",
        2,
        "//! M.\nuse crate::engine::sweep::Sweep;\n",
    ),
    broken(Rule::LayerDirection, "crates/upsweep/src/error.rs", 2, "//! E.\nuse crate::log::X;\n"),
    broken(Rule::BlockApi, STRUCTURES, 2, "//! S.\nuse crate::engine::sweep::Sweep;\n"),
    broken(Rule::BlockApi, STRUCTURES, 2, "//! S.\nuse crate::engine::{modifier, sweep};\n"),
    broken(Rule::BlockApi, STRUCTURES, 2, "//! S.\nuse crate::device::Devices;\n"),
    broken(Rule::UnsafeCode, LOG, 2, "//! Log.\nfn open() { unsafe { core() } }\n"),
    broken(Rule::UnsafeCode, LOG, 2, "//! Log.\nmacro_rules! m { () => { unsafe {} } }\n"),
    broken(Rule::OneSystem, LOG, 2, "//! Log.\nuse rustix::fs::open;\n"),
    broken(Rule::OneSystem, LOG, 2, "//! Log.\nuse std::os::unix::fs::FileExt;\n"),
    broken(Rule::OneSystem, LOG, 2, "//! Log.\n#[cfg(target_os = \"linux\")]\nfn f() {}\n"),
    broken(Rule::OneSystem, LOG, 2, "//! Log.\nfn f() { cfg!(any(test, windows)); }\n"),
    broken(Rule::OneSystem, LOG, 2, "//! Log.\nconst A: &str = \"/proc/self/stat\";\n"),
    broken(Rule::OneSystem, DEVICE, 2, "//! D.\n#[cfg_attr(unix, inline)]\nfn f() {}\n"),
    broken(Rule::ByteOffsets, LOG, 2, "//! Log.\nfn f() { u8::from_le_bytes([1]); }\n"),
    broken(Rule::Link, "docs/walk.md", 2, "# Walk\n| `M::gone` | `engine/modifier.rs` | it |\n"),
    broken(Rule::Link, "docs/walk.md", 1, "| `f` | `engine/gone.rs` | it |\n"),
    broken(Rule::Link, "README.md", 3, "# Read\n\n[here](docs/missing.md#part)\n"),
    broken(Rule::Link, "docs/a.md", 1, "[up](../../outside.md)\n"),
    broken(Rule::Link, "docs/a.md", 2, "See [it].\n[it]: gone.md\n"),
    broken(Rule::Changelog, "CHANGELOG.md", 1, "# Changelog\n\n## [0.1.0]\n"),
    broken(Rule::DecisionRecord, "docs/decisions/0001-a.md", 1, "## Goal\n## Choice\n"),
    broken(Rule::LayerDirection, "crates/upsweep/src/device.rs", 2, "//! D.\nuse crate::log;\n"),
];

/// The reports on the base tree with one file replaced or added: path, line and rule of each.
fn reports(path: &str, text: &str) -> Vec<(String, usize, Rule)> {
    let mut files: Vec<_> = BASE.into_iter().filter(|(other, _)| *other != path).collect();
    files.push((path, text));
    let found = check(&Tree::from_files(&files));
    found.into_iter().map(|violation| (violation.path, violation.line, violation.rule)).collect()
}

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("inside the workspace");
    let tree = Tree::load(root).expect("the tree can be read");
    assert!(tree.exists("xtask/src/tidy/tests.rs"), "the walk finds this file");
    let violations: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "house rules broken:\n{}", violations.join("\n"));
}

#[test]
fn the_base_tree_is_tidy() {
    assert_eq!(check(&Tree::from_files(&BASE)), []);
}

#[test]
fn every_broken_snippet_is_reported_once_and_alone() {
    for case in &BROKEN {
        let mut found = reports(case.path, case.text);
        if case.rule == Rule::Parse {
            // What a broken file would have declared or re-exported is unknown.
            found.retain(|(_, _, rule)| *rule == Rule::Parse);
        }
        let expected = [(case.path.to_owned(), case.line, case.rule)];
        assert_eq!(found, expected, "for {:?}", case.text);
    }
}

#[test]
fn every_rule_can_fail() {
    let mut shown: BTreeSet<Rule> = BROKEN.iter().map(|case| case.rule).collect();
    shown.extend([Rule::FileLength, Rule::LineLength, Rule::FunctionLength]);
    assert_eq!(shown, BTreeSet::from(Rule::ALL), "a rule without a snippet that breaks it");
}

#[test]
fn a_report_names_place_rule_and_remedy() {
    let tree = Tree::from_files(&[("CHANGELOG.md", "")]);
    let shown: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 1);
    assert!(shown[0].starts_with("CHANGELOG.md:1: changelog: needs a section"), "{}", shown[0]);
}

#[test]
fn a_file_may_have_500_lines_and_tests_do_not_count() {
    let lines = |count: usize| "const A: u8 = 1;\n".repeat(count);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(300));
    assert_eq!(reports(LOG, &format!("//! Log.\n{}", lines(500))), []);
    assert_eq!(reports(LOG, &format!("//! Log.\n{}{tests}", lines(500))), []);
    let found = reports(LOG, &format!("//! Log.\n{}{tests}{}", lines(400), lines(101)));
    assert_eq!(found, [(LOG.to_owned(), 1, Rule::FileLength)]);
}

#[test]
fn a_file_that_only_tests_declare_is_test_code() {
    let long = format!("//! Helpers.\n{}", "const A: u8 = 1;\n".repeat(600));
    let helpers = "crates/upsweep/src/log/helpers.rs";
    let with = |log: &str| {
        let mut files: Vec<_> = BASE.into_iter().filter(|(path, _)| *path != LOG).collect();
        files.extend([(LOG, log), (helpers, long.as_str())]);
        check(&Tree::from_files(&files)).len()
    };
    assert_eq!(with("//! Log.\n#[cfg(test)]\nmod helpers;\n"), 0);
    assert_eq!(with("//! Log.\n#[cfg(not(test))]\nmod helpers;\n"), 1);
    assert_eq!(with("//! Log.\n#[cfg(any(test, feature = \"a\"))]\nmod helpers;\n"), 1);
}

#[test]
fn a_line_may_have_100_columns_unless_it_holds_a_link() {
    let line = |columns: usize| format!("//! Log.\n//{}\n", "ü".repeat(columns - 2));
    assert_eq!(reports(LOG, &line(100)), []);
    assert_eq!(reports(LOG, &line(101)), [(LOG.to_owned(), 2, Rule::LineLength)]);
    assert_eq!(reports(LOG, &format!("//! Log.\n// https://{}\n", "a".repeat(100))), []);
}

#[test]
fn a_function_may_have_70_lines() {
    let function = |lines: usize| {
        let body = "    call(\"}\");\n".repeat(lines - 2);
        format!("//! Log.\n#[inline]\nfn long(a: [u8; {{ 4 }}]) {{\n{body}}}\nfn next() {{}}\n")
    };
    assert_eq!(reports(LOG, &function(70)), []);
    assert_eq!(reports(LOG, &function(71)), [(LOG.to_owned(), 3, Rule::FunctionLength)]);
}

#[test]
fn the_host_part_of_the_device_layer_knows_the_system() {
    let host = "//! H.\n#[cfg(unix)]\nuse std::os::unix::fs::FileExt;\nuse rustix::fs;\n\
        const A: &str = \"/sys/block\";\n";
    let mut files: Vec<_> = BASE.into_iter().filter(|(path, _)| *path != DEVICE).collect();
    files.extend([
        (DEVICE, "//! D.\nmod host;\n#[cfg(test)]\nfn f() { use std::os::fd::AsFd; }\n"),
        ("crates/upsweep/src/device/host/mod.rs", host),
    ]);
    assert_eq!(check(&Tree::from_files(&files)), []);
}

#[test]
fn what_only_looks_like_a_violation_is_none() {
    let text = "//! Log. Not `unsafe`, not crate::engine, not rustix, not from_le_bytes.\n\
        use std::fmt::{self};\n\
        /// ```text\n/// unsafe\n/// ```\n\
        fn ignore(todo: &str, ipv4: u8) { call(\"unsafe crate::engine::X #[ignore]\", 'a'); }\n\
        fn windows(std: u8) { all(\"a/dev/b\").windows(2); std.os; }\n\
        #![forbid(unsafe_code)]\n\
        type Pointer = fn(u8);\n\
        #[cfg(test)]\nfn check() { 1u8.to_le_bytes(); }\n";
    assert_eq!(reports(LOG, text), []);
    let links = "[a](#b) [b](https://example.org) `[c](d.md)` [e](crates) [f](README.md#x)\n\
        ```\n[g](h.md)\n```\n";
    assert_eq!(reports("README.md", links), []);
}
