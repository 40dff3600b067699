//! A table of ours and the published one it repeats, as one grid of text: for each quantity that
//! both have, ours, the paper's, and ours over the paper's.

use crate::numbers::{cell, short};
use crate::outcome::{Cell, Table};
use crate::papers::{Papers, Published};
use crate::problem::Problem;

/// Text in rows and columns.
#[derive(Debug, PartialEq)]
pub(crate) struct Grid {
    /// The titles.
    pub(crate) columns: Vec<String>,
    /// As long as the titles.
    pub(crate) rows: Vec<Vec<String>>,
    /// How many of the first columns say which row it is.
    pub(crate) keys: usize,
}

/// The grid of a table. Rows that only the paper has come last.
///
/// # Errors
/// [`Problem::Data`] if the published table is not there, or lacks a column that the table names.
pub(crate) fn grid(table: &Table, papers: &Papers) -> Result<Grid, Problem> {
    let Some(id) = &table.paper else {
        return Ok(Grid {
            columns: table.columns.iter().map(|column| column.title.clone()).collect(),
            rows: table.rows.iter().map(|row| row.iter().map(cell).collect()).collect(),
            keys: table.keys,
        });
    };
    let published = papers.published(id)?;
    let mut columns = Vec::new();
    // For each of our columns, the paper's.
    let mut theirs = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        columns.push(column.title.clone());
        let Some(title) = &column.paper else {
            theirs.push(None);
            continue;
        };
        theirs.push(Some(column_of(published, title)?));
        if place >= table.keys {
            columns.push(format!("{}: {title}", published.system));
            columns.push("ours / theirs".to_owned());
        }
    }
    let keys = theirs.iter().take(table.keys);
    let keys: Vec<(usize, usize)> =
        keys.enumerate().filter_map(|(own, their)| their.map(|their| (own, their))).collect();
    let is_same = |row: &[Cell], paper: &[Cell]| {
        !keys.is_empty() && keys.iter().all(|(own, their)| row[*own] == paper[*their])
    };
    let mut rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| {
            let paper = published.rows.iter().find(|paper| is_same(row, paper));
            line(Some(row), paper.map(Vec::as_slice), table, &theirs)
        })
        .collect();
    for paper in &published.rows {
        if !table.rows.iter().any(|row| is_same(row, paper)) {
            rows.push(line(None, Some(paper), table, &theirs));
        }
    }
    Ok(Grid { columns, rows, keys: table.keys })
}

/// The place of a column of a published table.
pub(crate) fn column_of(published: &Published, title: &str) -> Result<usize, Problem> {
    let found = published.columns.iter().position(|column| column == title);
    found.ok_or_else(|| Problem::Data(format!("{} has no column {title}", published.id)))
}

/// A row of ours, of the paper, or of both.
fn line(
    row: Option<&[Cell]>,
    paper: Option<&[Cell]>,
    table: &Table,
    theirs: &[Option<usize>],
) -> Vec<String> {
    let mut line = Vec::new();
    for (place, their) in theirs.iter().enumerate() {
        let own = row.map(|row| &row[place]);
        let theirs = their.and_then(|their| paper.map(|paper| &paper[their]));
        if place < table.keys {
            line.push(own.or(theirs).map(cell).unwrap_or_default());
            continue;
        }
        line.push(own.map(cell).unwrap_or_default());
        if their.is_some() {
            line.push(theirs.map(cell).unwrap_or_default());
            line.push(match (own, theirs) {
                (Some(Cell::Number(own)), Some(Cell::Number(theirs))) => short(own / theirs),
                _ => String::new(),
            });
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Column;

    #[test]
    fn rows_of_both_stand_side_by_side_and_none_is_lost() {
        let papers = Papers::load().expect("the files are right");
        let table = Table {
            name: "t".into(),
            title: "T".into(),
            paper: Some("beluga-table-6.6".into()),
            keys: 1,
            columns: vec![
                Column::published("disks"),
                Column::published("latency [us]"),
                Column::own("turns"),
            ],
            rows: vec![
                vec![2.0.into(), 467.0.into(), 1.0.into()],
                vec![4.0.into(), "none".into(), 2.0.into()],
            ],
        };
        let found = grid(&table, &papers).expect("it has these columns");
        let titles = ["disks", "latency [us]", "Beluga: latency [us]", "ours / theirs", "turns"];
        assert_eq!((found.columns.as_slice(), found.keys), (&titles.map(str::to_owned)[..], 1));
        let rows = [
            ["2", "467", "934", "0.5", "1"],
            ["4", "none", "", "", "2"],
            ["1", "", "938", "", ""],
            ["3", "", "950", "", ""],
        ];
        assert_eq!(found.rows, rows.map(|row| row.map(str::to_owned).to_vec()));
        let mut wrong = table;
        wrong.columns[1] = Column::published("latency [ms]");
        assert!(matches!(grid(&wrong, &papers), Err(Problem::Data(_))));
    }
}
