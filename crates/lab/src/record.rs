//! The result of an experiment as files: `DIR/ID/result.toml` with everything, and for people and
//! other programs each table, the published rows, and each figure as CSV, and each figure as SVG.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::claims::{Judged, judge_all};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Outcome};
use crate::papers::Papers;
use crate::plot;
use crate::problem::Problem;

/// The name of the file that holds everything.
pub(crate) const RESULT: &str = "result.toml";

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Record {
    /// As in [`Experiment::id`].
    pub(crate) id: String,
    /// As in [`Experiment::title`].
    pub(crate) title: String,
    /// As in [`Experiment::method`].
    pub(crate) method: String,
    /// As in [`Experiment::scaling`].
    pub(crate) scaling: String,
    /// Where what it repeats is published.
    pub(crate) sources: Vec<String>,
    /// As in [`Experiment::papers`].
    pub(crate) papers: Vec<String>,
    /// Whether it was a quick run.
    pub(crate) is_quick: bool,
    /// The seed.
    pub(crate) seed: u64,
    /// What was measured.
    pub(crate) outcome: Outcome,
    /// The claims of the papers, judged.
    pub(crate) claims: Vec<Judged>,
}

impl Record {
    /// The record of an outcome.
    ///
    /// # Errors
    /// [`Problem::Data`] if the experiment names something that no paper has.
    pub(crate) fn new(
        experiment: &Experiment,
        scale: Scale,
        outcome: Outcome,
        papers: &Papers,
    ) -> Result<Self, Problem> {
        let claims = judge_all(papers, experiment.papers, experiment.bindings, &outcome)?;
        Ok(Self {
            id: experiment.id.to_owned(),
            title: experiment.title.to_owned(),
            method: experiment.method.to_owned(),
            scaling: experiment.scaling.to_owned(),
            sources: experiment.sources(papers)?,
            papers: experiment.papers.iter().map(|id| (*id).to_owned()).collect(),
            is_quick: scale.is_quick,
            seed: scale.seed,
            outcome,
            claims,
        })
    }

    /// The command that makes it.
    pub(crate) fn command(&self) -> String {
        let quick = if self.is_quick { " --quick" } else { "" };
        format!("upsweep-lab run {}{quick} --seed {}", self.id, self.seed)
    }

    /// Reads the result in a folder.
    ///
    /// # Errors
    /// [`Problem::File`] if it cannot be read, or is not a result.
    pub(crate) fn read(folder: &Path) -> Result<Self, Problem> {
        let path = folder.join(RESULT);
        let text = fs::read_to_string(&path).map_err(|error| Problem::file(&path, error))?;
        toml::from_str(&text).map_err(|error| Problem::file(&path, error))
    }

    /// Writes all files into `folder`, and creates it.
    ///
    /// # Errors
    /// [`Problem::File`] if one cannot be written, [`Problem::Figure`] if one cannot be drawn.
    pub(crate) fn write(&self, folder: &Path, papers: &Papers) -> Result<(), Problem> {
        fs::create_dir_all(folder).map_err(|error| Problem::file(folder, error))?;
        let text = toml::to_string(self).map_err(|error| Problem::Data(error.to_string()))?;
        write(&folder.join(RESULT), &text)?;
        for table in &self.outcome.tables {
            let titles = table.columns.iter().map(|column| column.title.as_str()).collect();
            write_csv(&folder.join(format!("{}.csv", table.name)), titles, &table.rows)?;
        }
        for id in &self.papers {
            let published = papers.published(id)?;
            if !published.rows.is_empty() {
                let titles = published.columns.iter().map(String::as_str).collect();
                write_csv(&folder.join(format!("paper-{id}.csv")), titles, &published.rows)?;
            }
        }
        for figure in &self.outcome.figures {
            let svg = plot::draw(figure, papers)?;
            write(&folder.join(format!("{}.svg", figure.name)), &svg)?;
            let points = figure.curves.iter().flat_map(|curve| {
                let name = curve.name.as_str();
                curve.points.iter().map(|(x, y)| vec![name.into(), (*x).into(), (*y).into()])
            });
            let titles = vec!["curve", figure.across.title.as_str(), figure.up.title.as_str()];
            let path = folder.join(format!("figure-{}.csv", figure.name));
            write_csv(&path, titles, &points.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

/// Writes a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Problem> {
    fs::write(path, text).map_err(|error| Problem::file(path, error))
}

fn write_csv(path: &Path, titles: Vec<&str>, rows: &[Vec<Cell>]) -> Result<(), Problem> {
    let failed = |error: csv::Error| Problem::file(path, error);
    let mut file = csv::Writer::from_path(path).map_err(failed)?;
    file.write_record(titles).map_err(failed)?;
    for row in rows {
        // Numbers in full, unlike those for people.
        let cells = row.iter().map(|cell| match cell {
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => text.clone(),
        });
        file.write_record(cells).map_err(failed)?;
    }
    file.flush().map_err(|error| Problem::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Column, Table};

    fn record() -> Record {
        let experiment = &crate::experiments::ALL[0];
        let mut outcome = Outcome::default();
        outcome.setup("device", "a \"drive\", of <one> kind & no other");
        outcome.caveat(&[], "A caveat.");
        outcome.value("rate", 0.1, "ops/s");
        outcome.tables.push(Table {
            name: "table".into(),
            title: "Title".into(),
            paper: None,
            keys: 1,
            columns: vec![Column::own("a, b"), Column::own("rate [ops/s]")],
            rows: vec![vec!["one, \"two\"".into(), 0.1.into()], vec!["three".into(), 1e9.into()]],
        });
        let papers = Papers::load().expect("the files are right");
        let scale = Scale { is_quick: true, seed: 3 };
        Record::new(experiment, scale, outcome, &papers).expect("its names are right")
    }

    #[test]
    fn a_record_can_be_read_back_and_so_can_its_tables() {
        let (record, folder) = (record(), tempfile::tempdir().expect("a folder"));
        let papers = Papers::load().expect("the files are right");
        record.write(folder.path(), &papers).expect("it can be written");
        assert_eq!(Record::read(folder.path()), Ok(record.clone()));
        let rows = |name: &str| -> Vec<Vec<String>> {
            let reader =
                csv::ReaderBuilder::new().has_headers(false).from_path(folder.path().join(name));
            let records = reader.expect("it is there").into_records();
            records.map(|row| row.expect("it is CSV").iter().map(str::to_owned).collect()).collect()
        };
        let ours = [["a, b", "rate [ops/s]"], ["one, \"two\"", "0.1"], ["three", "1000000000"]];
        assert_eq!(rows("table.csv"), ours.map(|row| row.map(str::to_owned).to_vec()));
        let id = &record.papers[0];
        let paper = rows(&format!("paper-{id}.csv"));
        let published = papers.published(id).expect("it is there");
        assert_eq!((&paper[0], paper.len()), (&published.columns, 1 + published.rows.len()));
        assert_eq!(record.command(), format!("upsweep-lab run {} --quick --seed 3", record.id));
    }

    #[test]
    fn a_folder_without_a_result_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = Record::read(folder.path());
        assert!(matches!(&missing, Err(Problem::File { path, .. }) if path.ends_with(RESULT)));
        fs::write(folder.path().join(RESULT), "id = 3").expect("it can be written");
        assert!(matches!(Record::read(folder.path()), Err(Problem::File { .. })));
    }
}
