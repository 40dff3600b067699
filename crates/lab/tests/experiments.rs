//! The program as people use it: experiments run quickly, their files are what they should be,
//! and equal seeds give equal results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(arguments: &[&str], folder: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_upsweep-lab"));
    command.args(arguments).args(folder).output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

fn ids() -> Vec<String> {
    let listed = lab(&["list"], None);
    let first = |line: &str| line.split_whitespace().next().expect("it names one").to_owned();
    text(&listed.stdout).lines().map(first).collect()
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|of| of == end)).collect();
    found.sort();
    found
}

/// Closes the elements that HTML leaves open, so that the page can be read as XML.
fn xml(page: &str) -> String {
    let mut xml = String::new();
    for (place, part) in page.split("<meta ").enumerate() {
        if place > 0 {
            let (attributes, rest) = part.split_once('>').expect("the element ends");
            xml.push_str(&format!("<meta {attributes}/>{rest}"));
        } else {
            xml.push_str(part);
        }
    }
    xml.replacen("<!DOCTYPE html>", "", 1)
}

/// The experiments to run: all of them if this variable is set, which takes minutes, else two.
fn chosen() -> Vec<String> {
    match std::env::var_os("UPSWEEP_LAB_ALL") {
        Some(_) => ids(),
        None => ["beluga-table-6.1", "bosc-table-1"].map(str::to_owned).into(),
    }
}

#[test]
fn experiments_run_quickly_and_make_a_report() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let chosen = chosen();
    for folder in &folders {
        for id in &chosen {
            let run = lab(&["run", id, "--quick", "--out"], Some(folder.path()));
            assert!(run.status.success(), "{}", text(&run.stderr));
            assert!(text(&run.stdout).contains(&format!("\n{id}: ")), "{id}");
        }
    }
    let [one, other] = folders.each_ref().map(tempfile::TempDir::path);
    for id in &chosen {
        let (folder, again) = (one.join(id), other.join(id));
        assert!(!files(&folder, "csv").is_empty(), "{id}");
        for end in ["csv", "svg", "toml"] {
            for path in files(&folder, end) {
                let same = again.join(path.file_name().expect("it has a name"));
                let content = fs::read_to_string(&path).expect("it can be read");
                assert_eq!(content, fs::read_to_string(&same).expect("it is there"), "{path:?}");
                if end == "svg" {
                    assert!(roxmltree::Document::parse(&content).is_ok(), "{path:?}");
                }
                if end == "csv" {
                    let mut rows = csv::Reader::from_path(&path).expect("it can be read");
                    assert!(rows.records().all(|row| row.is_ok()), "{path:?}");
                }
            }
        }
    }
    let report = lab(&["report"], Some(one));
    assert!(report.status.success(), "{}", text(&report.stderr));
    let page = fs::read_to_string(one.join("report.html")).expect("it was written");
    let page = xml(&page);
    let parsed = roxmltree::Document::parse(&page).expect("it is well-formed");
    let sections: Vec<_> = parsed.descendants().filter_map(|node| node.attribute("id")).collect();
    for id in &chosen {
        assert!(sections.contains(&id.as_str()), "{id} in {sections:?}");
    }
    let links = parsed.descendants().filter_map(|node| node.attribute("href"));
    assert!(links.clone().count() > 0 && links.clone().all(|link| link.starts_with('#')));
}

#[test]
fn another_seed_gives_another_result() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let results = folders.each_ref().map(|folder| folder.path().to_owned());
    for (seed, folder) in ["1", "2"].iter().zip(&results) {
        let arguments = ["run", "bosc-table-1", "--quick", "--seed", seed, "--out"];
        assert!(lab(&arguments, Some(folder)).status.success());
    }
    let [one, other] = results.map(|folder| {
        fs::read_to_string(folder.join("bosc-table-1/table.csv")).expect("it was written")
    });
    assert_ne!(one, other);
}

#[test]
fn an_unknown_experiment_and_an_empty_folder_are_named() {
    let unknown = lab(&["run", "bosc-fig-99", "--quick"], None);
    let problem = text(&unknown.stderr);
    assert!(!unknown.status.success() && problem.contains("bosc-fig-99"), "{problem}");
    for id in ids() {
        assert!(problem.contains(&id), "{id} in {problem}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let empty = lab(&["report"], Some(folder.path()));
    let problem = text(&empty.stderr);
    assert!(!empty.status.success() && problem.contains("holds no results"), "{problem}");
}

#[test]
fn no_experiment_can_see_what_is_published() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiments");
    let sources = files(&folder, "rs");
    assert!(sources.len() > 3);
    for path in sources {
        let source = fs::read_to_string(&path).expect("it can be read");
        for word in ["crate::papers", "Papers", "judge", "Claim", "include_str"] {
            assert!(!source.contains(word), "{path:?} has {word}");
        }
    }
}
