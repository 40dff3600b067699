//! `upsweep-lab report`: one page of HTML from the results in a folder. It needs no other file:
//! style and figures are in it.

use std::fs;
use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::beside::grid;
use crate::claims::{
    ABOUT_WITHIN, DIFFERENT_BEYOND, EQUAL_WITHIN, EXCEEDED_BEYOND, Judged, Verdict,
};
use crate::experiments;
use crate::numbers::short;
use crate::outcome::{Figure, Outcome, Table};
use crate::papers::Papers;
use crate::plot;
use crate::problem::Problem;
use crate::record::{RESULT, Record, write};
use crate::text::{measured, stated};

const STYLE: &str = include_str!("report.css");
const VERDICTS: [Verdict; 5] = [
    Verdict::Reproduced,
    Verdict::Exceeded,
    Verdict::NotReproduced,
    Verdict::NoDifference,
    Verdict::NotMeasured,
];

/// Make one page of HTML from the results in a folder
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder that `run` wrote its results into; the page is report.html in it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the page.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Problem> {
    let papers = Papers::load()?;
    let records = records(&arguments.folder)?;
    let page = page(&records, &papers)?.into_string();
    write(&arguments.folder.join("report.html"), &page)
}

/// The results in a folder, in the order of `list`; those that it does not have come last.
fn records(folder: &Path) -> Result<Vec<Record>, Problem> {
    let failed = |error: std::io::Error| Problem::file(folder, error);
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join(RESULT).is_file() {
            records.push(Record::read(&path)?);
        }
    }
    if records.is_empty() {
        return Err(Problem::file(folder, "holds no results: give a folder that `run` wrote"));
    }
    let place = |id: &str| experiments::ALL.iter().position(|one| one.id == id);
    records.sort_by_key(|record| {
        (place(&record.id).unwrap_or(experiments::ALL.len()), record.id.clone())
    });
    Ok(records)
}

fn page(records: &[Record], papers: &Papers) -> Result<Markup, Problem> {
    let sections = records.iter().map(|record| section(record, papers));
    let sections = sections.collect::<Result<Vec<Markup>, Problem>>()?;
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Upsweep: experiments on simulated drives" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (summary(records))
                    @for section in sections { (section) }
                }
            }
        }
    })
}

/// What is on the page, and how claims are judged.
fn summary(records: &[Record]) -> Markup {
    let all = || records.iter().flat_map(|record| &record.claims);
    let count = |verdict| all().filter(|judged| judged.verdict == verdict).count();
    let percent = |share: f64| format!("{} %", short(share * 100.0));
    html! {
        h1 { "Experiments on simulated drives" }
        p.soft {
            "Measured in virtual time on models of drives, beside what is published. Equal seeds "
            "give equal results on every machine."
        }
        section {
            h2 { "Claims" }
            p {
                @for verdict in VERDICTS {
                    (badge(verdict)) " " (count(verdict)) " \u{2003} "
                }
            }
            p.soft {
                "A stated value (=) is reproduced within " (percent(EQUAL_WITHIN)) " of it, an "
                "approximate one (~) within " (percent(ABOUT_WITHIN)) ", and a bound or range if "
                "what was measured satisfies it. Exceeded: better than that, and than a bound by "
                "more than " (percent(EXCEEDED_BEYOND)) "; never said of a comparator. A claim "
                "that only says which of two is more is judged if they differ by more than "
                (percent(DIFFERENT_BEYOND)) "; else no difference is seen. The ratio is what was "
                "measured over what is claimed."
            }
            div.wide {
                table {
                    thead {
                        tr {
                            th { "experiment" }
                            th { "scale" }
                            @for verdict in VERDICTS { th.number { (verdict.name()) } }
                        }
                    }
                    tbody {
                        @for record in records {
                            tr {
                                td { a href={ "#" (record.id) } { (record.title) } }
                                td { (if record.is_quick { "quick" } else { "full" }) }
                                @for verdict in VERDICTS {
                                    td.number { (count_in(record, verdict)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn count_in(record: &Record, verdict: Verdict) -> usize {
    record.claims.iter().filter(|judged| judged.verdict == verdict).count()
}

fn badge(verdict: Verdict) -> Markup {
    let class = verdict.name().replace(' ', "-");
    html! { span class={ "verdict " (class) } { (verdict.name()) } }
}

/// One experiment.
fn section(record: &Record, papers: &Papers) -> Result<Markup, Problem> {
    let Outcome { setup, findings, tables, figures, caveats, .. } = &record.outcome;
    let tables = tables.iter().map(|table| table_of(table, papers));
    let tables = tables.collect::<Result<Vec<Markup>, Problem>>()?;
    let figures = figures.iter().map(|figure| figure_of(figure, papers));
    let figures = figures.collect::<Result<Vec<Markup>, Problem>>()?;
    Ok(html! {
        section id=(record.id) {
            h2 { (record.title) }
            p.soft { (record.sources.join("; ")) }
            h3 { "Method" }
            p { (record.method) }
            p.soft {
                (if record.is_quick { "A quick run. " } else { "A full run. " }) (record.scaling)
            }
            @if !setup.is_empty() {
                table {
                    tbody {
                        @for (what, how_much) in setup {
                            tr { th { (what) } td { (how_much) } }
                        }
                    }
                }
            }
            @if !findings.is_empty() {
                h3 { "Findings" }
                ul { @for finding in findings { li { (finding) } } }
            }
            @for table in tables { (table) }
            @for figure in figures { (figure) }
            (claims(&record.claims))
            @if !caveats.is_empty() {
                h3 { "Caveats" }
                ul { @for caveat in caveats { li { (caveat.text) } } }
            }
            (publication(record, papers)?)
            p.soft { "Made by " code { (record.command()) } }
        }
    })
}

fn table_of(table: &Table, papers: &Papers) -> Result<Markup, Problem> {
    let grid = grid(table, papers)?;
    let class = |place: usize| (place >= grid.keys).then_some("number");
    Ok(html! {
        h3 { (table.title) }
        div.wide {
            table {
                thead {
                    tr {
                        @for (place, title) in grid.columns.iter().enumerate() {
                            th class=[class(place)] { (title) }
                        }
                    }
                }
                tbody {
                    @for row in &grid.rows {
                        tr {
                            @for (place, cell) in row.iter().enumerate() {
                                td class=[class(place)] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    })
}

fn figure_of(figure: &Figure, papers: &Papers) -> Result<Markup, Problem> {
    let svg = plot::draw(figure, papers)?;
    Ok(html! { div.wide { (PreEscaped(svg)) } })
}

fn claims(claims: &[Judged]) -> Markup {
    if claims.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Claims" }
        div.wide {
            table {
                thead {
                    tr {
                        th { "claim" }
                        th { "stated" }
                        th.number { "measured" }
                        th.number { "ratio" }
                        th { "verdict" }
                    }
                }
                tbody {
                    @for judged in claims {
                        tr {
                            td {
                                (judged.claim.text)
                                @for reason in &judged.reasons { div.soft { (reason) } }
                            }
                            td { (stated(judged)) }
                            td.number { (measured(judged)) }
                            td.number { (judged.ratio.map(short).unwrap_or_default()) }
                            td { (badge(judged.verdict)) }
                        }
                    }
                }
            }
        }
    }
}

/// What a reader of the published numbers should know.
fn publication(record: &Record, papers: &Papers) -> Result<Markup, Problem> {
    let mut notes = Vec::new();
    for id in &record.papers {
        notes.extend(papers.published(id)?.notes.iter().cloned());
        for disagreement in papers.disagreements(id) {
            let between = disagreement.between.join(" / ");
            notes.push(format!("Published values disagree: {between}. {}", disagreement.note));
        }
    }
    Ok(html! {
        @if !notes.is_empty() {
            h3 { "On the published numbers" }
            ul { @for note in notes { li { (note) } } }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;

    #[test]
    fn text_is_escaped_and_a_claim_that_does_not_hold_says_why() {
        let papers = Papers::load().expect("the files are right");
        let experiment = experiments::ALL.iter().find(|one| one.id == "beluga-table-6.1");
        let experiment = experiment.expect("it is there");
        let rate = "file-based logging throughput, text bound";
        let mut outcome = Outcome::default();
        outcome.value("appends in a second, file, 8 callers", 60.0, "ops/s");
        outcome.setup("<drive>", "\"a\" & 'b'");
        outcome.caveat(&[rate], "It is <faster> & that is why.");
        let scale = Scale { is_quick: true, seed: 1 };
        let record = Record::new(experiment, scale, outcome, &papers).expect("its names are right");
        let page = page(&[record], &papers).expect("its names are right").into_string();
        // The elements without an end, and what is before the first one, are not XML.
        let body = page.find("<body>").expect("it has a body");
        let xml = page[body..].trim_end_matches("</html>");
        let parsed = roxmltree::Document::parse(xml).expect("it is well-formed");
        let texts: Vec<&str> = parsed
            .descendants()
            .filter(roxmltree::Node::is_text)
            .filter_map(|node| node.text())
            .collect();
        for text in ["<drive>", "\"a\" & 'b'", "not reproduced"] {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
        // As the reason, and as a caveat.
        let why = |text: &&&str| **text == "It is <faster> & that is why.";
        assert_eq!(texts.iter().filter(why).count(), 2);
    }
}
