//! The files of a repository, in memory, so that rules run the same on disk and in tests.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Every file below a root: its path from there, with `/`, and its text.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

/// Files whose text the rules read. The others count only as targets of links.
const TEXT_EXTENSIONS: [&str; 7] = ["rs", "md", "toml", "sh", "py", "yml", "yaml"];
/// As above, for files without an extension.
const TEXT_FOLDERS: [&str; 2] = ["scripts/", ".ci/"];
/// Hidden folders that belong to the project; any other is skipped.
const HIDDEN_FOLDERS: [&str; 2] = [".ci", ".github"];
/// What the fuzzer leaves behind.
const SKIPPED_FOLDERS: [&str; 3] = ["fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

impl Tree {
    /// Reads the tree below `root`. Build output is skipped: any folder with a `CACHEDIR.TAG`.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.load_folder(root, "")?;
        Ok(tree)
    }

    fn load_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let hidden = name.starts_with('.') && !HIDDEN_FOLDERS.contains(&name.as_str());
                let built = entry.path().join("CACHEDIR.TAG").exists() || name == "target";
                if !hidden && !built && !SKIPPED_FOLDERS.contains(&path.as_str()) {
                    self.load_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file() {
                let text = if is_text(&path) {
                    String::from_utf8_lossy(&fs::read(entry.path())?).into_owned()
                } else {
                    String::new()
                };
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    /// A tree made of (path, text) pairs.
    #[cfg(test)]
    pub(crate) fn from_files(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(owned).collect() }
    }

    /// Number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether a file or a folder has this path; the empty path is the root.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let inside = || self.files.range(folder.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || inside().is_some_and(|(found, _)| found.starts_with(&folder))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Every file, in path order.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every Rust file, in path order.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }
}

fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, extension)) => TEXT_EXTENSIONS.contains(&extension),
        None => name == "Makefile" || TEXT_FOLDERS.iter().any(|folder| path.starts_with(folder)),
    }
}
