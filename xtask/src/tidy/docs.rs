//! Documents: links that resolve, a walk through functions that exist, a changelog that is kept,
//! decision records in their form.

use super::{Rule, Tree, Violation};

const CHANGELOG: &str = "CHANGELOG.md";
const DECISIONS: &str = "docs/decisions/";
/// Tables of functions in the order in which something passes them: a row begins with the functions
/// and the file that has them.
const WALK: &str = "docs/walk.md";
/// What the files of its rows are relative to.
const WALKED: &str = "crates/upsweep/src/";
/// The parts of a decision record; see `docs/decisions/README.md`.
const DECISION_PARTS: [&str; 3] = ["## Goal", "## Rejected", "## Choice"];

pub(crate) fn check(tree: &Tree, violations: &mut Vec<Violation>) {
    check_changelog(tree, violations);
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        check_links(tree, path, text, violations);
        if path == WALK {
            check_walk(tree, text, violations);
        }
        if path.starts_with(DECISIONS) && !path.ends_with("/README.md") {
            check_decision(path, text, violations);
        }
    }
}

fn check_changelog(tree: &Tree, violations: &mut Vec<Violation>) {
    let kept = tree.text(CHANGELOG).is_some_and(|text| {
        text.lines().any(|line| line.trim_end().eq_ignore_ascii_case("## [Unreleased]"))
    });
    if !kept {
        let advice = "needs a section `## [Unreleased]`; see https://keepachangelog.com";
        violations.push(Violation::new(CHANGELOG, 1, Rule::Changelog, advice));
    }
}

fn check_walk(tree: &Tree, text: &str, violations: &mut Vec<Violation>) {
    for (row, line) in text.lines().zip(1..).filter(|(row, _)| row.starts_with("| `")) {
        let mut cells = row.split('|').skip(1);
        let (Some(functions), Some(file)) = (cells.next(), cells.next()) else { continue };
        let file = file.trim().trim_matches('`');
        let code = tree.text(&format!("{WALKED}{file}")).unwrap_or_default();
        for function in functions.split('`').skip(1).step_by(2) {
            let name = function.rsplit("::").next().unwrap_or(function);
            if !["(", "<"].iter().any(|next| code.contains(&format!("fn {name}{next}"))) {
                let advice = format!("no function `{function}` in `{file}`: where is it now?");
                violations.push(Violation::new(WALK, line, Rule::Link, advice));
            }
        }
    }
}

fn check_decision(path: &str, text: &str, violations: &mut Vec<Violation>) {
    for part in DECISION_PARTS {
        if !text.lines().any(|line| line.starts_with(part)) {
            let advice = format!("no section `{part}`: see {DECISIONS}README.md for the form");
            violations.push(Violation::new(path, 1, Rule::DecisionRecord, advice));
        }
    }
}

fn check_links(tree: &Tree, path: &str, text: &str, violations: &mut Vec<Violation>) {
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if has_scheme(&target) || file.is_empty() {
                continue;
            }
            if resolve(path, file).is_none_or(|file| !tree.exists(&file)) {
                let advice = format!("no file `{target}`: links are relative to this document");
                violations.push(Violation::new(path, index + 1, Rule::Link, advice));
            }
        }
    }
}

/// The targets of the links of one line: `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    // Code spans are the odd pieces between backticks.
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("` `");
    let mut targets = Vec::new();
    for piece in prose.split("](").skip(1) {
        let inside = piece.split(')').next().unwrap_or_default();
        targets.extend(inside.split_whitespace().next().map(str::to_owned));
    }
    if let Some((name, target)) = prose.split_once("]: ")
        && name.starts_with('[')
        && !name.contains(']')
    {
        targets.extend(target.split_whitespace().next().map(str::to_owned));
    }
    targets
}

fn has_scheme(target: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// The path in the tree of `file`, seen from the document at `from`; `None` if it leaves the tree.
fn resolve(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
