//! What an experiment measured: tables, figures, named values, and what to know about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an experiment measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Outcome {
    /// Sizes and durations at the scale that it ran at: what, and how much.
    pub(crate) setup: Vec<(String, String)>,
    /// What is measured, in full sentences.
    pub(crate) findings: Vec<String>,
    /// What to know about the numbers.
    pub(crate) caveats: Vec<Caveat>,
    /// What claims are compared with, by name.
    pub(crate) values: BTreeMap<String, Value>,
    /// The tables.
    pub(crate) tables: Vec<Table>,
    /// The figures.
    pub(crate) figures: Vec<Figure>,
}

impl Outcome {
    /// Adds a named value.
    pub(crate) fn value(&mut self, name: impl Into<String>, number: f64, unit: &str) {
        self.values.insert(name.into(), Value { number, unit: unit.to_owned() });
    }

    /// Adds a part of the setup.
    pub(crate) fn setup(&mut self, what: &str, how_much: impl Into<String>) {
        self.setup.push((what.to_owned(), how_much.into()));
    }

    /// Adds a sentence that says what was measured.
    pub(crate) fn finding(&mut self, text: impl Into<String>) {
        self.findings.push(text.into());
    }

    /// Adds a caveat. It is the reason for the claims with these texts, should they not hold.
    pub(crate) fn caveat(&mut self, claims: &[&str], text: &str) {
        let claims = claims.iter().map(|claim| (*claim).to_owned()).collect();
        self.caveats.push(Caveat { text: text.to_owned(), claims });
    }
}

/// What to know about the numbers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Caveat {
    /// Full sentences.
    pub(crate) text: String,
    /// The texts of the claims that may not hold because of it.
    pub(crate) claims: Vec<String>,
}

/// A measured number with its unit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Value {
    /// The number.
    pub(crate) number: f64,
    /// As claims write it.
    pub(crate) unit: String,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Table {
    /// Part of the names of files: lower case, without spaces.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// The published experiment whose rows stand beside ours, if any.
    pub(crate) paper: Option<String>,
    /// How many of the first columns say which row it is.
    pub(crate) keys: usize,
    /// The columns.
    pub(crate) columns: Vec<Column>,
    /// As long as `columns`.
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    /// A number in the unit of its column.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Column {
    /// With the unit in brackets.
    pub(crate) title: String,
    /// The column of the published experiment that is the same quantity, by its title.
    pub(crate) paper: Option<String>,
}

impl Column {
    /// A column that has the same title in the paper.
    pub(crate) fn published(title: &str) -> Self {
        Self { title: title.to_owned(), paper: Some(title.to_owned()) }
    }

    /// A column that the paper does not have.
    pub(crate) fn own(title: &str) -> Self {
        Self { title: title.to_owned(), paper: None }
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Figure {
    /// Part of the names of files: lower case, without spaces.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) across: Axis,
    /// The vertical axis.
    pub(crate) up: Axis,
    /// Measured points.
    pub(crate) curves: Vec<Curve>,
    /// Published points.
    pub(crate) papers: Vec<PaperPoints>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Axis {
    /// With the unit in brackets.
    pub(crate) title: String,
    /// Whether it is logarithmic: then only points above 0 are drawn.
    pub(crate) logarithmic: bool,
}

impl Axis {
    /// A linear axis.
    pub(crate) fn linear(title: &str) -> Self {
        Self { title: title.to_owned(), logarithmic: false }
    }

    /// A logarithmic axis.
    pub(crate) fn logarithmic(title: &str) -> Self {
        Self { title: title.to_owned(), logarithmic: true }
    }
}

/// Points of a figure that belong together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Curve {
    /// What the legend calls it.
    pub(crate) name: String,
    /// Across, and up.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Which cells of a published table are points of a figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct PaperPoints {
    /// What the legend calls them.
    pub(crate) name: String,
    /// The published experiment.
    pub(crate) paper: String,
    /// The title of its column for the horizontal axis.
    pub(crate) across: String,
    /// The title of its column for the vertical axis.
    pub(crate) up: String,
    /// Only rows that have this text in the column of this title; all, if there is none.
    pub(crate) only: Option<(String, String)>,
}
