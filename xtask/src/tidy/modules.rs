//! Dead files: every Rust file must be reached from a crate root by `mod` declarations.
//!
//! Roots are what Cargo finds by itself (`src/lib.rs`, `tests/*.rs` and so on) and every `path` in
//! a package's `Cargo.toml`. The walk also learns which files are test code: those that hang under
//! a `#[cfg(test)]` declaration.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Kind;
use super::{Rule, Source, Tree, Violation};

pub(crate) fn check(tree: &Tree, sources: &mut [Source<'_>], violations: &mut Vec<Violation>) {
    let (reached, tests) = walk(tree, sources);
    for source in sources {
        source.is_test |= tests.contains(source.path);
        if !reached.contains(source.path) {
            let advice =
                "no `mod` declaration and no Cargo.toml leads here: declare it or delete it";
            violations.push(Violation::new(source.path, 1, Rule::DeadFile, advice));
        }
    }
}

/// All files that a root reaches, and those of them that only tests reach.
fn walk(tree: &Tree, sources: &[Source<'_>]) -> (BTreeSet<String>, BTreeSet<String>) {
    let by_path: BTreeMap<&str, &Source<'_>> =
        sources.iter().map(|source| (source.path, source)).collect();
    let mut reached = BTreeSet::new();
    let mut tests = BTreeSet::new();
    let roots = roots(tree);
    let mut open: Vec<(String, bool)> = roots.iter().map(|path| (path.clone(), false)).collect();
    while let Some((path, test)) = open.pop() {
        let Some(source) = by_path.get(path.as_str()) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        if test {
            tests.insert(path);
        }
        for child in children(source, roots.contains(source.path)) {
            let child_test = test || source.is_test || source.is_test_line(child.line);
            open.push((child.path, child_test));
        }
    }
    (reached, tests)
}

/// The crate roots of every package in the tree.
fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    let manifests = tree.files().filter(|(path, text)| {
        (*path == "Cargo.toml" || path.ends_with("/Cargo.toml")) && text.contains("[package]")
    });
    for (manifest, text) in manifests {
        let package = manifest.trim_end_matches("Cargo.toml");
        for line in text.lines().map(str::trim) {
            if let Some(path) = line.strip_prefix("path = ") {
                roots.insert(format!("{package}{}", path.trim_matches('"')));
            }
        }
        for (path, _) in tree.rust_files() {
            if path.strip_prefix(package).is_some_and(is_found_by_cargo) {
                roots.insert(path.to_owned());
            }
        }
    }
    roots
}

/// Whether Cargo takes this path, relative to a package, for a crate root.
fn is_found_by_cargo(path: &str) -> bool {
    if matches!(path, "src/lib.rs" | "src/main.rs" | "build.rs") {
        return true;
    }
    ["src/bin/", "tests/", "benches/", "examples/"].iter().any(|folder| {
        path.strip_prefix(folder).is_some_and(|rest| match rest.split_once('/') {
            None => true,
            Some((_, inner)) => inner == "main.rs",
        })
    })
}

struct Child {
    path: String,
    line: usize,
}

/// The files that the `mod name;` declarations of a source lead to.
fn children(source: &Source<'_>, is_root: bool) -> Vec<Child> {
    let (folder, name) = source.path.rsplit_once('/').unwrap_or(("", source.path));
    let own_folder = if is_root || name == "mod.rs" {
        folder.to_owned()
    } else {
        format!("{folder}/{}", name.trim_end_matches(".rs"))
    };
    let mut children = Vec::new();
    let mut inline: Vec<(&str, usize)> = Vec::new();
    for (index, word) in source.words.iter().enumerate() {
        inline.retain(|(_, close)| index < *close);
        let Some(next) = source.words.get(index + 1) else { break };
        if !(source.is(index, "mod") && next.kind == Kind::Ident) {
            continue;
        }
        if source.is(index + 2, "{") {
            inline.push((&next.text, source.words[index + 2].close));
        } else if source.is(index + 2, ";") {
            let mut base = own_folder.clone();
            for (name, _) in &inline {
                base = format!("{base}/{name}");
            }
            let candidates = match path_attribute(source, index) {
                Some(path) => vec![format!("{folder}/{path}")],
                None => {
                    vec![format!("{base}/{}.rs", next.text), format!("{base}/{}/mod.rs", next.text)]
                }
            };
            children.extend(candidates.into_iter().map(|path| Child { path, line: word.line }));
        }
    }
    children
}

/// The value of a `#[path = "..."]` among the attributes right before the `mod` at `index`.
fn path_attribute(source: &Source<'_>, index: usize) -> Option<String> {
    let mut at = index;
    while at > 0 {
        at -= 1;
        let word = &source.words[at];
        let ends_item = matches!(word.text.as_str(), ";" | "}") && word.kind != Kind::Literal;
        if ends_item {
            return None;
        }
        if source.is(at, "[") && source.is(at + 1, "path") && source.is(at + 2, "=") {
            return Some(source.words[at + 3].text.trim_matches('"').to_owned());
        }
    }
    None
}
