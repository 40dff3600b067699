//! The metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use super::catalogue::{Metrics, Readings};
use super::cells::{Descriptor, Kind, Sample, SampleValue};

/// Prefix of the names of all metrics.
const PREFIX: &str = "upsweep_";
/// Prefix of the names of the metrics of the last session.
const LAST_SESSION: &str = "upsweep_last_session_";
/// Suffix of the names of times.
const SECONDS: &str = "_seconds";

impl Metrics {
    /// All metrics in the text format of Prometheus (version 0.0.4); serve them as
    /// `text/plain; version=0.0.4`. For each histogram `upsweep_NAME_seconds` there is also a gauge
    /// `upsweep_NAME_longest_seconds`. Cost: about 50 KiB of text. Blocks nothing.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (descriptor, samples) in self.samples() {
            let kind = match descriptor.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            family(&mut text, descriptor.name, kind, descriptor, &samples);
        }
        text
    }
}

impl Readings {
    /// The metrics of the previous session, in the text format of Prometheus. Names begin with
    /// `upsweep_last_session_`. Because that session has ended, its counters are gauges here,
    /// without `_total`, and its histograms are summaries. Its gauges are left out.
    #[must_use]
    pub fn text_of_last_session(&self) -> String {
        let mut text = String::new();
        let is_of_session = |descriptor: &Descriptor| descriptor.kind != Kind::Gauge;
        for (descriptor, samples) in self.samples().filter(|(found, _)| is_of_session(found)) {
            let kind = if descriptor.kind == Kind::Histogram { "summary" } else { "gauge" };
            let name = descriptor.name.replacen(PREFIX, LAST_SESSION, 1);
            family(&mut text, name.trim_end_matches("_total"), kind, descriptor, &samples);
        }
        text
    }
}

/// A metric with all its series; for a histogram, also the gauge of the longest time.
fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    descriptor: &Descriptor,
    samples: &[Sample<'_>],
) {
    let label = descriptor.label.map(|(label, _)| label);
    head(text, name, kind, descriptor.help);
    samples.iter().for_each(|sample| series(text, name, label, sample));
    if descriptor.kind != Kind::Histogram {
        return;
    }
    let name = format!("{}_longest{SECONDS}", name.trim_end_matches(SECONDS));
    head(text, &name, "gauge", &format!("The longest of: {}", descriptor.help));
    for sample in samples {
        let longest = match &sample.value {
            SampleValue::Times(histogram) => histogram.longest().as_secs_f64(),
            SampleValue::Summary(found) => found.longest,
            SampleValue::Count(_) | SampleValue::Level(_) => continue,
        };
        line(text, &name, &labels(label, sample.label, None), longest);
    }
}

/// The lines before the samples. Help texts have no backslashes or line breaks to escape.
fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let written = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    written.expect("a string takes everything");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    writeln!(text, "{name}{labels} {value}").expect("a string takes everything");
}

/// The labels of a line in braces, including `more`; empty if there are none.
fn labels(label: Option<&str>, value: Option<&str>, more: Option<(&str, &str)>) -> String {
    let all = label.zip(value).into_iter().chain(more);
    let all: Vec<String> = all.map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

/// The lines of one series.
fn series(text: &mut String, name: &str, label: Option<&str>, sample: &Sample<'_>) {
    let own = labels(label, sample.label, None);
    let with = |more: &str, value: &str| labels(label, sample.label, Some((more, value)));
    let (sum, count) = match &sample.value {
        SampleValue::Count(count) => return line(text, name, &own, count),
        SampleValue::Level(level) => return line(text, name, &own, level),
        SampleValue::Times(histogram) => {
            let bucket = format!("{name}_bucket");
            let (powers, total) = histogram.by_powers();
            for (bound_us, count) in powers {
                let bound = (bound_us as f64 / 1e6).to_string();
                line(text, &bucket, &with("le", &bound), count);
            }
            line(text, &bucket, &with("le", "+Inf"), total);
            (histogram.sum().as_secs_f64(), total)
        }
        SampleValue::Summary(found) => {
            for (part, time) in [("0.5", found.p50), ("0.99", found.p99), ("0.999", found.p999)] {
                line(text, name, &with("quantile", part), time);
            }
            (found.sum, found.count)
        }
    };
    line(text, &format!("{name}_sum"), &own, sum);
    line(text, &format!("{name}_count"), &own, count);
}
