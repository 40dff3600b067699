//! The parts of the engine: who may know whom.
//!
//! The engine is a core that conducts parts, and each part owns its state. So that this stays so:
//! - A module of the engine uses only modules that come before it in [`PARTS`], or share its line.
//!   So there is no circle, and the largest thing that has to be understood at once is one part.
//! - The methods of a type are in the module that defines it: elsewhere they could reach up without
//!   a path that the first rule sees. There are two exceptions. The core, which is above all parts,
//!   is built and inspected by modules above it. Of the configuration, which is figures alone,
//!   policy says what follows from them.

use std::collections::BTreeMap;

use super::layers::{ENGINE, Reference, exports_of, module_path, references};
use super::{Rule, Source, Violation};

/// The modules of the engine from the lowest to the highest. Those that share a line may use each
/// other: they are the words in which blocks, updates and records are spoken of.
const PARTS: [&[&str]; 43] = [
    // Values: they know of no store.
    &["ids"],
    &["key"],
    &["measure"],
    &["block_format", "config", "format", "modifier", "queue", "registry", "unregistered"],
    &["policy"],
    &["flow", "foreground"],
    &["visitor"],
    &["tree"],
    &["versions"],
    &["blocks"],
    &["pending"],
    &["catalog"],
    &["directory"],
    &["cache"],
    &["spill_segments"],
    &["reserved"],
    &["event"],
    // The base: what all parts stand on.
    &["io"],
    &["jobs"],
    &["flush"],
    &["gate"],
    &["waiters"],
    &["journal"],
    &["index"],
    &["quarantine"],
    &["held"],
    &["base"],
    // Parts with state of their own.
    &["growth"],
    &["log_growth"],
    &["reclaim"],
    &["checkpoint"],
    &["pipeline"],
    &["spiller"],
    &["sweep"],
    &["view"],
    &["accept"],
    // The conductor, and what builds and inspects it.
    &["core"],
    &["conditional"],
    &["drive"],
    &["replay"],
    &["recovery"],
    &["verify"],
    &["tests"],
];

/// Types whose methods may be in these modules too: of the core in any.
fn may_have_methods(of: &str, module: &str) -> bool {
    of == "Core" || (of, module) == ("Config", "policy")
}

/// What the rules need to know about the engine.
pub(crate) struct Parts {
    /// Names that the engine re-exports, with the path that each comes from within the engine.
    exports: BTreeMap<String, Vec<String>>,
}

impl Parts {
    /// Reads the re-exports of the engine.
    pub(crate) fn of(sources: &[Source<'_>]) -> Self {
        let root = format!("{ENGINE}engine/mod.rs");
        let exports = sources.iter().filter(|source| source.path == root).map(exports_of);
        Self { exports: exports.flatten().collect() }
    }

    /// Checks one file of any crate.
    pub(crate) fn check(&self, source: &Source<'_>, violations: &mut Vec<Violation>) {
        let Some(inner) = source.path.strip_prefix(ENGINE) else { return };
        let module = module_path(inner);
        let [layer, own, ..] = module.as_slice() else { return };
        if layer != "engine" {
            return;
        }
        let mut report = |line, advice| {
            violations.push(Violation::new(source.path, line, Rule::PartDirection, advice));
        };
        let Some(own_rank) = rank(own) else {
            let advice = format!(
                "`{own}` has no place among the parts of the engine: name it in PARTS in \
                 xtask/src/tidy/parts.rs, above what it uses"
            );
            return report(1, advice);
        };
        let mut foreign = BTreeMap::new();
        for Reference { path, line } in references(&source.words, &module) {
            let Some((part, name)) = self.part_of(&path) else { continue };
            if part == own {
                continue;
            }
            if rank(part).is_none_or(|other| other > own_rank) {
                let advice = format!(
                    "`{own}` lies below `{part}`: pass the value in, let the core mediate, or \
                     move the code up"
                );
                report(line, advice);
            }
            foreign.insert(name.to_owned(), part.to_owned());
        }
        for (name, line) in inherent_impls(source) {
            if let Some(part) = foreign.get(&name).filter(|_| !may_have_methods(&name, own)) {
                let advice = format!(
                    "`{name}` is defined in `{part}`: its methods belong there, or make this a \
                     function"
                );
                report(line, advice);
            }
        }
    }

    /// The module of the engine that a path leads to, and the last name of the path.
    fn part_of<'a>(&'a self, path: &'a [String]) -> Option<(&'a str, &'a str)> {
        let (layer, within) = path.split_first()?;
        if layer != "engine" {
            return None;
        }
        let head = within.first()?;
        let part = self.exports.get(head).and_then(|path| path.first()).unwrap_or(head);
        Some((part, within.last()?))
    }
}

fn rank(module: &str) -> Option<usize> {
    PARTS.iter().position(|line| line.contains(&module))
}

/// The types that a file has `impl Type {` of, without a trait, and where.
fn inherent_impls(source: &Source<'_>) -> Vec<(String, usize)> {
    let starts = (0..source.words.len()).filter(|index| source.is(*index, "impl"));
    let named = starts.filter_map(|index| {
        let name = &source.words[index + 1..].first()?.text;
        let opens = source.is(index + 2, "{") || source.is(index + 2, "<");
        opens.then(|| (name.clone(), source.words[index].line))
    });
    named.collect()
}
