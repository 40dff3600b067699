//! Length of files, lines and functions.
//!
//! Long files and functions hide their structure; the limits make people split them by purpose.

use super::source::Kind;
use super::{Rule, Source, Violation};

/// Lines of code of a file: comments, blank lines and test modules are not counted.
const FILE_LINES_MAX: usize = 500;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line.
const LINE_COLUMNS_MAX: usize = 100;

pub(crate) fn check(source: &Source<'_>, violations: &mut Vec<Violation>) {
    check_file(source, violations);
    check_lines(source, violations);
    check_functions(source, violations);
}

fn check_file(source: &Source<'_>, violations: &mut Vec<Violation>) {
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = source.text.lines().zip(1..);
    let production =
        lines.filter(|(text, line)| is_code(text) && !source.is_test_line(*line)).count();
    if production > FILE_LINES_MAX {
        let advice = format!(
            "{production} lines of code without tests, at most {FILE_LINES_MAX}: \
             split it by purpose"
        );
        violations.push(Violation::new(source.path, 1, Rule::FileLength, advice));
    }
}

/// A line with a link may be long, for a link cannot be broken.
fn check_lines(source: &Source<'_>, violations: &mut Vec<Violation>) {
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !line.contains("https://") {
            let advice =
                format!("{columns} columns, at most {LINE_COLUMNS_MAX}: run cargo fmt or wrap it");
            violations.push(Violation::new(source.path, index + 1, Rule::LineLength, advice));
        }
    }
}

fn check_functions(source: &Source<'_>, violations: &mut Vec<Violation>) {
    for (start, word) in source.words.iter().enumerate() {
        let named = source.words.get(start + 1).is_some_and(|next| next.kind == Kind::Ident);
        if !(source.is(start, "fn") && named) {
            continue;
        }
        let Some(end) = function_end(source, start) else { continue };
        let lines = source.words[end].line - word.line + 1;
        if lines > FUNCTION_LINES_MAX {
            let name = &source.words[start + 1].text;
            let advice = format!(
                "`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}: \
                 move a step of it into a function with a name"
            );
            violations.push(Violation::new(source.path, word.line, Rule::FunctionLength, advice));
        }
    }
}

/// The closing brace of the function at `start`; `None` for a declaration without a body.
fn function_end(source: &Source<'_>, start: usize) -> Option<usize> {
    let mut index = start;
    while let Some(word) = source.words.get(index) {
        match (word.kind, word.text.as_str()) {
            (Kind::Open, "{") => return Some(word.close),
            (Kind::Open, _) => index = word.close,
            (Kind::Punct, ";") | (Kind::Close, _) => return None,
            _ => {}
        }
        index += 1;
    }
    None
}
