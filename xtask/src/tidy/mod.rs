//! The house rules as a test.
//!
//! A [`Tree`] holds the files of the repository; each group of rules has a module that reads the
//! tree and returns [`Violation`]s. Rules look at tokens, never at raw text, where a comment or a
//! string could mislead them. To add a rule: add it to [`Rule`], check it in one of the modules,
//! and add the snippet that breaks it to `tests.rs`.
//!
//! | module | rules |
//! |---|---|
//! | `size` | length of files, lines and functions |
//! | `layers` | dependency direction, the block API, `unsafe`, one system, byte offsets |
//! | `parts` | dependency direction between the parts of the engine |
//! | `hygiene` | headers, markers, ignored tests, names |
//! | `modules` | files that no `mod` declaration reaches |
//! | `docs` | links, the walk through the code, the changelog, decision records |

mod docs;
mod hygiene;
mod layers;
mod modules;
mod parts;
mod size;
mod source;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt::{self, Display, Formatter};

use source::Source;
pub(crate) use tree::Tree;

/// One house rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Parse,
    FileLength,
    LineLength,
    FunctionLength,
    ModuleHeader,
    Marker,
    IgnoredTest,
    VersionedName,
    DeadFile,
    LayerDirection,
    PartDirection,
    BlockApi,
    UnsafeCode,
    OneSystem,
    ByteOffsets,
    Link,
    Changelog,
    DecisionRecord,
}

impl Rule {
    /// Every rule; the tests prove of each that it can fail.
    #[cfg(test)]
    const ALL: [Self; 18] = [
        Self::Parse,
        Self::FileLength,
        Self::LineLength,
        Self::FunctionLength,
        Self::ModuleHeader,
        Self::Marker,
        Self::IgnoredTest,
        Self::VersionedName,
        Self::DeadFile,
        Self::LayerDirection,
        Self::PartDirection,
        Self::BlockApi,
        Self::UnsafeCode,
        Self::OneSystem,
        Self::ByteOffsets,
        Self::Link,
        Self::Changelog,
        Self::DecisionRecord,
    ];

    /// The name that a report shows.
    fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::FileLength => "file-length",
            Self::LineLength => "line-length",
            Self::FunctionLength => "function-length",
            Self::ModuleHeader => "module-header",
            Self::Marker => "marker",
            Self::IgnoredTest => "ignored-test",
            Self::VersionedName => "versioned-name",
            Self::DeadFile => "dead-file",
            Self::LayerDirection => "layer-direction",
            Self::PartDirection => "part-direction",
            Self::BlockApi => "block-api",
            Self::UnsafeCode => "unsafe-code",
            Self::OneSystem => "one-system",
            Self::ByteOffsets => "byte-offsets",
            Self::Link => "link",
            Self::Changelog => "changelog",
            Self::DecisionRecord => "decision-record",
        }
    }
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: Rule,
    /// What is wrong, and what to do.
    advice: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: Rule, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.path, self.line, self.rule.name(), self.advice)
    }
}

/// Checks every rule on every file; the result is sorted by path and line.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut sources = Vec::new();
    for (path, text) in tree.rust_files() {
        match Source::parse(path, text) {
            Ok(source) => sources.push(source),
            Err(violation) => violations.push(violation),
        }
    }
    modules::check(tree, &mut sources, &mut violations);
    let layers = layers::Layers::of(&sources);
    let parts = parts::Parts::of(&sources);
    for source in &sources {
        size::check(source, &mut violations);
        hygiene::check_rust(source, &mut violations);
        layers.check(source, &mut violations);
        parts.check(source, &mut violations);
    }
    hygiene::check_other_files(tree, &mut violations);
    docs::check(tree, &mut violations);
    violations.sort();
    violations.dedup();
    violations
}
