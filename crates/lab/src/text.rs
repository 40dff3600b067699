//! A result as text for a terminal.

use crate::beside::{Grid, grid};
use crate::claims::Judged;
use crate::numbers::short;
use crate::papers::{Op, Papers, Stated};
use crate::problem::Problem;
use crate::record::Record;

/// Bytes that a line of prose has at most, unless a word is longer.
const WIDTH: usize = 100;

/// The result: tables beside the paper's, claims with their verdicts, caveats.
///
/// # Errors
/// [`Problem::Data`] if a table names something that no paper has.
pub(crate) fn text(record: &Record, papers: &Papers) -> Result<String, Problem> {
    let mut text = format!("\n{}: {}\n", record.id, record.title);
    for (what, how_much) in &record.outcome.setup {
        line(&mut text, "  ", &format!("{what}: {how_much}"));
    }
    for table in &record.outcome.tables {
        text.push_str(&format!("\n{}\n", table.title));
        text.push_str(&columns(&grid(table, papers)?));
    }
    if !record.outcome.findings.is_empty() {
        text.push_str("\nFindings\n");
    }
    for finding in &record.outcome.findings {
        line(&mut text, "  ", finding);
    }
    if !record.claims.is_empty() {
        text.push_str("\nClaims\n");
    }
    for judged in &record.claims {
        line(&mut text, "  ", &claim(judged));
        for reason in &judged.reasons {
            line(&mut text, "    ", reason);
        }
    }
    if !record.outcome.caveats.is_empty() {
        text.push_str("\nCaveats\n");
    }
    for caveat in &record.outcome.caveats {
        line(&mut text, "  ", &caveat.text);
    }
    Ok(text)
}

/// What a claim says, in its unit.
pub(crate) fn stated(judged: &Judged) -> String {
    let claim = &judged.claim;
    let (sign, between) = match claim.op {
        Op::Range => ("", " to "),
        op => (op.sign(), ", "),
    };
    format!("{sign} {} {}", joined(&claim.value, between), claim.unit).trim_start().to_owned()
}

/// What was measured for it; nothing if that is nothing.
pub(crate) fn measured(judged: &Judged) -> String {
    judged.measured.as_ref().map(|numbers| joined(numbers, ", ")).unwrap_or_default()
}

fn joined(numbers: &Stated, between: &str) -> String {
    let numbers: Vec<String> = numbers.numbers().iter().map(|one| short(*one)).collect();
    numbers.join(between)
}

fn claim(judged: &Judged) -> String {
    let mut line = format!("{}: {}, {}", judged.verdict.name(), judged.claim.text, stated(judged));
    if judged.measured.is_some() {
        line.push_str(&format!("; measured {} {}", measured(judged), judged.claim.unit));
    }
    if let Some(ratio) = judged.ratio {
        line.push_str(&format!(", ratio {}", short(ratio)));
    }
    line
}

/// A grid in columns, keys to the left and the others to the right.
fn columns(grid: &Grid) -> String {
    let all = || std::iter::once(&grid.columns).chain(&grid.rows);
    let length = |place: usize| all().map(|row| row[place].chars().count()).max().unwrap_or(0);
    let lengths: Vec<usize> = (0..grid.columns.len()).map(length).collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (place, (cell, length)) in row.iter().zip(&lengths).enumerate() {
            line.push_str(&match place < grid.keys {
                true => format!("  {cell:<length$}"),
                false => format!("  {cell:>length$}"),
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Adds prose, broken into lines that begin with `indent`.
fn line(text: &mut String, indent: &str, prose: &str) {
    let mut line = indent.to_owned();
    for word in prose.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH && line.len() > indent.len() {
            text.push_str(&line);
            text.push('\n');
            line = format!("{indent}  ");
        }
        if !line.ends_with(' ') && line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
