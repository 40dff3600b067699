//! The layers of the engine library and what each may do.
//!
//! - Dependencies point down only: see [`LAYERS`].
//! - Structures use the public block API and nothing else: so others can build theirs.
//! - Only `device` may hold `unsafe`. Only `device/host` may know which operating system it is, and
//!   call it other than through `std`.
//! - Only `format` modules know byte offsets.
//!
//! The rules read paths such as `crate::log::ring` and `super::super::log`, also inside macros and
//! groups of `use`. A name that `lib.rs` re-exports counts as the module that it comes from. Test
//! modules obey the direction too: a test that needs a higher layer belongs to that layer.

use std::collections::BTreeMap;

use super::source::{Kind, Word};
use super::{Rule, Source, Violation};

/// Where the layers lie.
pub(super) const ENGINE: &str = "crates/upsweep/src/";

/// The layers from the lowest to the highest.
const LAYERS: [&str; 6] = ["device", "log", "placement", "engine", "runtime", "structures"];

/// Modules beside the layers that every layer may use. They may use `device` and each other.
/// Any other module at the root, such as the public interface, lies above all layers.
const SHARED: [(&str, &str); 4] = [
    ("broken", "a fault of any layer that a test has chosen"),
    ("error", "one error type for the library"),
    ("events", "events for those who trace the store"),
    ("metrics", "one table of what is counted and timed"),
];

/// The modules of `engine` that are the public block API, beside all of `runtime`.
const BLOCK_API: [&str; 5] = ["block_format", "config", "ids", "modifier", "registry"];

/// Where one operating system may be told from another.
const HOST: &str = "device/host/";
/// Crates that call the operating system.
const SYSTEM_CRATES: [&str; 5] = ["io_uring", "libc", "nix", "rustix", "windows_sys"];
/// What `cfg` may not ask.
const SYSTEM_FLAGS: [&str; 6] =
    ["unix", "windows", "target_os", "target_family", "target_vendor", "target_env"];
/// Folders that one operating system has.
const SYSTEM_FOLDERS: [&str; 3] = ["/dev/", "/proc/", "/sys/"];

/// Path prefixes outside `format` modules that may turn numbers into bytes, and why.
const BYTE_EXCEPTIONS: [(&str, &str); 10] = [
    ("crates/upsweep/src/engine/tree/node.rs", "key prefixes are compared as integers, in memory"),
    ("crates/upsweep/src/engine/queue/cells.rs", "numbers of cells within cells, in memory only"),
    (
        "crates/upsweep/src/engine/queue/tails.rs",
        "ends of keys are compared as integers, in memory",
    ),
    ("crates/upsweep/src/runtime/description.rs", "the store's identity as hexadecimal digits"),
    ("crates/upsweep/src/structures/modifiers", "the eight bytes of a number are the operand"),
    ("crates/upsweep/src/structures/table/handle", "the eight bytes of a number are the operand"),
    ("crates/upsweep/src/structures/table/order.rs", "keys are compared as integers, in memory"),
    ("crates/upsweep/src/engine/modifier", "the eight bytes of a number are the value itself"),
    (
        "crates/upsweep/src/device/sim/pages.rs",
        "a digest over memory reads words, at no known offset",
    ),
    ("crates/upsweep/src/device/random.rs", "random words fill a buffer, at no known offset"),
];

/// Who else may hold `unsafe`: a peer in the benchmarks whose file is mapped into memory, and a
/// test that counts copies in a `memcpy` of its own.
const UNSAFE_ELSEWHERE: [&str; 2] =
    ["crates/bench-peers/src/engines/lmdb.rs", "crates/upsweep/tests/copies.rs"];

/// What the rules need to know about the whole engine library.
pub(crate) struct Layers {
    /// Names that `lib.rs` re-exports, with the path that each comes from.
    exports: BTreeMap<String, Vec<String>>,
}

/// A path in code, resolved from the root of its crate.
pub(super) struct Reference {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

impl Layers {
    /// Reads the re-exports of the library.
    pub(crate) fn of(sources: &[Source<'_>]) -> Self {
        let root = format!("{ENGINE}lib.rs");
        let exports = sources.iter().filter(|source| source.path == root).map(exports_of);
        let exports = exports.flatten().collect();
        Self { exports }
    }

    /// Checks one file of any crate.
    pub(crate) fn check(&self, source: &Source<'_>, violations: &mut Vec<Violation>) {
        check_unsafe(source, violations);
        let Some(inner) = source.path.strip_prefix(ENGINE) else { return };
        if !inner.starts_with(HOST) {
            check_system(source, violations);
        }
        check_bytes(source, violations);
        let module = module_path(inner);
        let Some(own) = module.first().filter(|own| may_use_little(own)) else { return };
        for reference in references(&source.words, &module) {
            let path = self.origin(&reference.path);
            if let Some((rule, advice)) = forbidden(own, path) {
                let advice = format!("`crate::{}`: {advice}", reference.path.join("::"));
                violations.push(Violation::new(source.path, reference.line, rule, advice));
            }
        }
    }

    /// Follows a re-export at the root to its module.
    fn origin<'a>(&'a self, path: &'a [String]) -> &'a [String] {
        path.first().and_then(|head| self.exports.get(head)).map_or(path, Vec::as_slice)
    }
}

/// Names that the root of a module re-exports, with the path that each comes from.
pub(super) fn exports_of(source: &Source<'_>) -> BTreeMap<String, Vec<String>> {
    let mut exports = BTreeMap::new();
    for index in 0..source.words.len() {
        if source.is(index, "pub") && source.is(index + 1, "use") {
            let start = if source.is(index + 2, "crate") { index + 4 } else { index + 2 };
            let mut found = Vec::new();
            read_path(&source.words, start, &[], &mut found);
            for path in found.into_iter().map(|reference| reference.path) {
                if let Some(name) = path.last() {
                    exports.insert(name.clone(), path.clone());
                }
            }
        }
    }
    exports
}

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

fn is_shared(module: &str) -> bool {
    SHARED.iter().any(|(name, _)| *name == module)
}

/// Whether a module at the root is a layer or shared; the others lie on top and may use anything.
fn may_use_little(module: &str) -> bool {
    rank(module).is_some() || is_shared(module)
}

/// Why the root module `own` must not refer to `path`, if it must not.
fn forbidden(own: &str, path: &[String]) -> Option<(Rule, String)> {
    let head = path.first()?.as_str();
    if head == own || is_shared(head) {
        return None;
    }
    if own == "structures" {
        let part = path.get(1).map_or("*", String::as_str);
        let public = head == "runtime" || (head == "engine" && BLOCK_API.contains(&part));
        let advice = format!(
            "structures use the block API only, by module (engine::{}): extend that API if \
             another structure would need it too",
            BLOCK_API.join(", engine::")
        );
        return (!public).then_some((Rule::BlockApi, advice));
    }
    // A shared module sits beside the lowest layer.
    let own_rank = rank(own).unwrap_or(0);
    match rank(head) {
        Some(other) if other <= own_rank => None,
        Some(_) => Some((
            Rule::LayerDirection,
            format!("`{own}` lies below `{head}`: pass the value in, or move the code up"),
        )),
        None => Some((
            Rule::LayerDirection,
            format!(
                "`{head}` is neither a layer nor shared, so it lies above `{own}`: name the module \
                 of a layer, or list it in SHARED in xtask/src/tidy/layers.rs with a reason"
            ),
        )),
    }
}

/// The module path of a file below the source folder: `log/ring.rs` is `[log, ring]`.
pub(super) fn module_path(inner: &str) -> Vec<String> {
    let stem = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    match stem {
        "lib" | "main" => Vec::new(),
        stem => stem.split('/').map(str::to_owned).collect(),
    }
}

/// All paths that begin with `crate`, `self` or `super`, resolved from the crate root.
pub(super) fn references(words: &[Word], module: &[String]) -> Vec<Reference> {
    let is = |index: usize, text: &str| {
        words.get(index).is_some_and(|word| word.kind != Kind::Literal && word.text == text)
    };
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    for index in 0..words.len() {
        inline.retain(|(_, close)| index < *close);
        if is(index, "mod") && is(index + 2, "{") {
            inline.push((words[index + 1].text.clone(), words[index + 2].close));
        }
        let starts = ["crate", "self", "super"].iter().any(|name| is(index, name));
        let inside = index > 0 && is(index - 1, "::");
        if !starts || inside || !is(index + 1, "::") {
            continue;
        }
        let mut base = Vec::new();
        if !is(index, "crate") {
            base.extend_from_slice(module);
            base.extend(inline.iter().map(|(name, _)| name.clone()));
        }
        let mut at = index;
        while is(at + 1, "::") && (at == index || is(at, "super")) {
            if is(at, "super") {
                base.pop();
            }
            at += 2;
        }
        read_path(words, at, &base, &mut found);
    }
    found
}

/// Reads `a::b`, `a::{b, c::d}` or `a::*` from `at` on and appends every full path.
fn read_path(words: &[Word], mut at: usize, base: &[String], found: &mut Vec<Reference>) {
    let mut path = base.to_vec();
    let line = words.get(at).map_or(0, |word| word.line);
    while let Some(word) = words.get(at) {
        match (word.kind, word.text.as_str()) {
            (Kind::Ident, "self") => {}
            (Kind::Ident, name) => path.push(name.to_owned()),
            (Kind::Open, "{") => {
                let mut start = at + 1;
                while start < word.close {
                    read_path(words, start, &path, found);
                    start = next_in_group(words, start, word.close);
                }
                return;
            }
            _ => break,
        }
        if words.get(at + 1).is_none_or(|next| next.text != "::") {
            break;
        }
        at += 2;
    }
    found.push(Reference { path, line });
}

/// The position behind the next comma of a group.
fn next_in_group(words: &[Word], mut at: usize, close: usize) -> usize {
    while at < close && words[at].text != "," {
        at = words[at].close + 1;
    }
    at + 1
}

fn check_unsafe(source: &Source<'_>, violations: &mut Vec<Violation>) {
    let is_device = source.path.starts_with(&format!("{ENGINE}device/"));
    if is_device || UNSAFE_ELSEWHERE.contains(&source.path) {
        return;
    }
    for (_, line) in source.idents().filter(|(name, _)| *name == "unsafe") {
        let advice = "only crates/upsweep/src/device may hold `unsafe`: move it there, behind a \
                      safe function";
        violations.push(Violation::new(source.path, line, Rule::UnsafeCode, advice));
    }
}

/// What is of one operating system: its crates, its part of `std`, its folders, and questions which
/// one it is.
fn check_system(source: &Source<'_>, violations: &mut Vec<Violation>) {
    for (index, word) in source.words.iter().enumerate() {
        let text = word.text.as_str();
        let is_path = source.is(index + 1, "::");
        let found = match word.kind {
            Kind::Ident if SYSTEM_CRATES.contains(&text) => Some(text.to_owned()),
            Kind::Ident if text == "std" && is_path && source.is(index + 2, "os") => {
                Some("std::os".to_owned())
            }
            Kind::Ident if ["cfg", "cfg_attr", "cfg_select"].contains(&text) => {
                asked_of_system(source, index)
            }
            Kind::Literal => {
                let folder =
                    SYSTEM_FOLDERS.iter().find(|folder| text.contains(&format!("\"{folder}")));
                folder.map(|folder| (*folder).to_owned())
            }
            _ => None,
        };
        if let Some(found) = found.filter(|_| !source.is_test_line(word.line)) {
            let advice = format!(
                "`{found}` is of one operating system: put it behind `device/host/os`, which has a \
                 file for each"
            );
            violations.push(Violation::new(source.path, word.line, Rule::OneSystem, advice));
        }
    }
}

/// What the `cfg` at this place asks of the operating system, if anything.
fn asked_of_system(source: &Source<'_>, cfg: usize) -> Option<String> {
    let open = if source.is(cfg + 1, "!") { cfg + 2 } else { cfg + 1 };
    let group = source.words.get(open).filter(|word| word.kind == Kind::Open)?;
    let inside = &source.words[open..group.close];
    let flag = inside
        .iter()
        .find(|word| word.kind == Kind::Ident && SYSTEM_FLAGS.contains(&word.text.as_str()))?;
    Some(format!("{}({})", source.words[cfg].text, flag.text))
}

fn check_bytes(source: &Source<'_>, violations: &mut Vec<Violation>) {
    let is_format = source.path.rsplit('/').take(2).any(|part| part.contains("format"));
    if is_format || BYTE_EXCEPTIONS.iter().any(|(prefix, _)| source.path.starts_with(prefix)) {
        return;
    }
    let converts = |name: &str| {
        let inner = name.strip_prefix("from_").or_else(|| name.strip_prefix("to_"));
        inner.is_some_and(|inner| matches!(inner, "le_bytes" | "be_bytes" | "ne_bytes"))
    };
    for (name, line) in source.idents() {
        if converts(name) && !source.is_test_line(line) {
            let advice = format!(
                "`{name}` outside a `format` module: move the encoding into the layer's format \
                 module, or list the file in BYTE_EXCEPTIONS in xtask/src/tidy/layers.rs with a \
                 reason"
            );
            violations.push(Violation::new(source.path, line, Rule::ByteOffsets, advice));
        }
    }
}
