//! The data of the papers, and our goals, as `papers/README.md` describes them.
//!
//! Only what prints results and judges claims reads them, never an experiment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::outcome::Cell;
use crate::problem::Problem;

/// The files, by name.
const FILES: [(&str, &str); 5] = [
    ("bosc.toml", include_str!("../papers/bosc.toml")),
    ("beluga.toml", include_str!("../papers/beluga.toml")),
    ("shadowed-btree.toml", include_str!("../papers/shadowed-btree.toml")),
    ("lachesis.toml", include_str!("../papers/lachesis.toml")),
    ("goals.toml", include_str!("../papers/goals.toml")),
];

/// One file.
#[derive(Debug, Deserialize)]
struct Paper {
    system: String,
    experiment: Vec<Published>,
    #[serde(default)]
    disagreement: Vec<Disagreement>,
}

/// A published experiment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Published {
    /// Unique among all files.
    pub(crate) id: String,
    /// Title of the document, and the place in it.
    pub(crate) source: Vec<String>,
    /// Titles, with units in brackets.
    pub(crate) columns: Vec<String>,
    /// As long as `columns`.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// What is said of it.
    pub(crate) claims: Vec<Claim>,
    /// What a reader of its numbers should know.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The system that it is about; not in the file.
    #[serde(skip)]
    pub(crate) system: String,
}

/// What a source says that can be compared with what is measured.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Claim {
    /// What the number is.
    pub(crate) text: String,
    /// How it relates to what is measured.
    pub(crate) op: Op,
    /// The number.
    pub(crate) value: Stated,
    /// Its unit.
    pub(crate) unit: String,
}

/// How a stated value relates to what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Op {
    /// The value.
    #[serde(rename = "=")]
    Equal,
    /// About the value.
    #[serde(rename = "~")]
    About,
    /// Less.
    #[serde(rename = "<")]
    Below,
    /// Less or equal.
    #[serde(rename = "<=")]
    AtMost,
    /// More.
    #[serde(rename = ">")]
    Above,
    /// More or equal.
    #[serde(rename = ">=")]
    AtLeast,
    /// From the first value to the second.
    #[serde(rename = "range")]
    Range,
}

impl Op {
    /// As the files write it.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::About => "~",
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Range => "range",
        }
    }
}

/// The value of a claim.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Stated {
    /// One number.
    One(f64),
    /// The ends of a range, or a tuple.
    Several(Vec<f64>),
}

impl Stated {
    /// Its numbers.
    pub(crate) fn numbers(&self) -> &[f64] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Several(numbers) => numbers,
        }
    }
}

/// Where a document contradicts itself or another.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Disagreement {
    /// The published experiments that it concerns.
    experiments: Vec<String>,
    /// The statements.
    pub(crate) between: Vec<String>,
    /// What to make of them.
    pub(crate) note: String,
}

/// All files.
#[derive(Debug)]
pub(crate) struct Papers {
    published: BTreeMap<String, Published>,
    disagreements: Vec<Disagreement>,
}

impl Papers {
    /// Reads them.
    ///
    /// # Errors
    /// [`Problem::Data`] if a file does not have the shape that it should.
    pub(crate) fn load() -> Result<Self, Problem> {
        let mut papers = Self { published: BTreeMap::new(), disagreements: Vec::new() };
        for (name, text) in FILES {
            let paper: Paper =
                toml::from_str(text).map_err(|error| Problem::Data(format!("{name}: {error}")))?;
            for mut published in paper.experiment {
                published.system.clone_from(&paper.system);
                check(&published).map_err(|bad| Problem::Data(format!("{name}: {bad}")))?;
                papers.published.insert(published.id.clone(), published);
            }
            papers.disagreements.extend(paper.disagreement);
        }
        Ok(papers)
    }

    /// A published experiment.
    ///
    /// # Errors
    /// [`Problem::Data`] if there is none with this identifier.
    pub(crate) fn published(&self, id: &str) -> Result<&Published, Problem> {
        let found = self.published.get(id);
        found.ok_or_else(|| Problem::Data(format!("no paper has an experiment {id}")))
    }

    /// The contradictions that concern a published experiment.
    pub(crate) fn disagreements(&self, id: &str) -> impl Iterator<Item = &Disagreement> {
        self.disagreements.iter().filter(move |of| of.experiments.iter().any(|one| one == id))
    }
}

fn check(published: &Published) -> Result<(), String> {
    let Published { id, columns, rows, claims, .. } = published;
    if let Some(row) = rows.iter().find(|row| row.len() != columns.len()) {
        return Err(format!("{id}: a row has {} cells, of {}", row.len(), columns.len()));
    }
    for Claim { text, op, value, .. } in claims {
        let numbers = value.numbers();
        let fits = match op {
            Op::Equal => !numbers.is_empty(),
            Op::Range => numbers.len() == 2 && numbers[0] <= numbers[1],
            _ => numbers.len() == 1,
        };
        if !fits || numbers.iter().any(|number| !number.is_finite()) {
            return Err(format!("{id}: {text}: {} cannot have {numbers:?}", op.sign()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_read() {
        let papers = Papers::load().expect("the files are right");
        assert_eq!(papers.published.len(), 20 + 15 + 10 + 12 + 19);
        let published = papers.published("beluga-table-6.1").expect("it is there");
        assert_eq!(published.system, "Beluga");
        assert_eq!(published.columns[2], "latency [ms]");
        let row = ["file".into(), 1.0.into(), 14.149.into(), 25.3.into()];
        assert_eq!(published.rows[0], row);
        assert_eq!(published.claims[2].op, Op::Below);
        assert_eq!(papers.disagreements("beluga-table-6.1").count(), 1);
        assert_eq!(papers.disagreements("bosc-table-1").count(), 0);
        assert!(matches!(papers.published("beluga"), Err(Problem::Data(_))));
    }

    #[test]
    fn rows_and_claims_of_the_wrong_shape_are_refused() {
        let text = |rows: &str, claims: &str| {
            format!(
                "id = 'x'\nsource = []\ncolumns = ['a', 'b']\nrows = {rows}\n\
                 claims = [{claims}]"
            )
        };
        let check = |rows: &str, claims: &str| {
            check(&toml::from_str(&text(rows, claims)).expect("it can be read"))
        };
        let claim = |op: &str, value: &str| {
            check("[]", &format!("{{ text = 't', op = '{op}', value = {value}, unit = 'x' }}"))
        };
        assert_eq!(check("[[1, 'n/s'], [2.5, 3]]", ""), Ok(()));
        assert!(check("[[1]]", "").is_err());
        assert_eq!(claim("=", "[1, 4]"), Ok(()));
        assert_eq!(claim("range", "[1, 4]"), Ok(()));
        for (op, value) in [("range", "[4, 1]"), ("range", "1"), ("<", "[1, 4]"), ("=", "nan")] {
            assert!(claim(op, value).is_err(), "{op} {value}");
        }
    }
}
