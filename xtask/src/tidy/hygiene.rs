//! Headers, leftovers, ignored tests and names.

use super::source::Kind;
use super::{Rule, Source, Tree, Violation};

/// Words that promise work without a date; in two parts so that this file does not match itself.
const MARKERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Macros that panic in place of code.
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];

pub(crate) fn check_rust(source: &Source<'_>, violations: &mut Vec<Violation>) {
    check_header(source, violations);
    check_markers(source.path, source.text, violations);
    check_unfinished(source, violations);
    check_ignored(source, violations);
    check_names(source, violations);
}

/// Markers in build files and scripts. Prose may name them.
pub(crate) fn check_other_files(tree: &Tree, violations: &mut Vec<Violation>) {
    for (path, text) in tree.files() {
        if !path.ends_with(".rs") && !path.ends_with(".md") {
            check_markers(path, text, violations);
        }
    }
}

fn check_header(source: &Source<'_>, violations: &mut Vec<Violation>) {
    if !source.text.starts_with("//! ") {
        let advice = "begin the file with `//! ` and the purpose of the module, then its \
                      invariants and steps";
        violations.push(Violation::new(source.path, 1, Rule::ModuleHeader, advice));
    }
}

fn check_markers(path: &str, text: &str, violations: &mut Vec<Violation>) {
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split(|letter: char| !letter.is_alphanumeric());
        if let Some(marker) = words.find(|word| MARKERS.contains(word)) {
            let advice =
                format!("{marker} left in the tree: do it now, or write an issue and remove it");
            violations.push(Violation::new(path, index + 1, Rule::Marker, advice));
        }
    }
}

fn check_unfinished(source: &Source<'_>, violations: &mut Vec<Violation>) {
    for (index, word) in source.words.iter().enumerate() {
        let unfinished = word.kind == Kind::Ident
            && UNFINISHED_MACROS.contains(&word.text.as_str())
            && source.is(index + 1, "!");
        if unfinished {
            let advice = format!("`{}!` is no code: write it, or leave the item out", word.text);
            violations.push(Violation::new(source.path, word.line, Rule::Marker, advice));
        }
    }
}

/// `#[ignore]` on a test, also within `cfg_attr`, and doc tests that are not run.
fn check_ignored(source: &Source<'_>, violations: &mut Vec<Violation>) {
    let advice = "an ignored test tests nothing: make it fast, move it to the long tests, or \
                  delete it";
    let mut report = |line| {
        violations.push(Violation::new(source.path, line, Rule::IgnoredTest, advice));
    };
    for index in 0..source.words.len() {
        if source.is(index, "#") && source.is(index + 1, "[") {
            let inside = index + 2..source.words[index + 1].close;
            let attribute = source.is(index + 2, "ignore") || source.is(index + 2, "cfg_attr");
            if let Some(at) = inside.into_iter().find(|at| attribute && source.is(*at, "ignore")) {
                report(source.words[at].line);
            }
        }
    }
    for (index, line) in source.text.lines().enumerate() {
        let comment = line.trim_start();
        let fence = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
        let language = fence.and_then(|text| text.trim_start().strip_prefix("```"));
        if language.is_some_and(|list| list.split(',').any(|word| word.trim() == "ignore")) {
            report(index + 1);
        }
    }
}

/// Names such as `codec_v2`: the old one should have been changed or removed.
fn check_names(source: &Source<'_>, violations: &mut Vec<Violation>) {
    let advice = |name: &str| {
        format!("`{name}` carries a version: replace the old one, or say how the new one differs")
    };
    let stem = source.path.rsplit('/').next().unwrap_or(source.path).trim_end_matches(".rs");
    if has_version(stem) {
        violations.push(Violation::new(source.path, 1, Rule::VersionedName, advice(stem)));
    }
    for (name, line) in source.idents() {
        if has_version(name) {
            violations.push(Violation::new(source.path, line, Rule::VersionedName, advice(name)));
        }
    }
}

/// Whether a name ends in `_v` or, after a small letter, `V` and digits.
fn has_version(name: &str) -> bool {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    if stem.len() == name.len() {
        return false;
    }
    let mut letters = stem.chars().rev();
    match (letters.next(), letters.next()) {
        (Some('v' | 'V'), Some('_')) => true,
        (Some('V'), Some(before)) => before.is_lowercase(),
        _ => false,
    }
}
