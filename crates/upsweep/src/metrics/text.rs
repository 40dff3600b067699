//! The metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use super::catalogue::Metrics;
use super::cells::{Kind, Sample, Value};

/// Ends the name of a metric that has its unit behind.
const SECONDS: &str = "_seconds";

impl Metrics {
    /// All metrics in the text format of Prometheus (version 0.0.4), to be served as
    /// `text/plain; version=0.0.4`. Beside each histogram `upsweep_NAME_seconds` there is a gauge
    /// `upsweep_NAME_longest_seconds`. Cost: about 50 KiB of text; nothing waits for it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (descriptor, samples) in self.samples() {
            let (name, help) = (descriptor.name, descriptor.help);
            let label = descriptor.label.map(|(label, _)| label);
            let kind = match descriptor.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            head(&mut text, name, kind, help);
            for sample in &samples {
                write_sample(&mut text, name, label, sample);
            }
            if descriptor.kind == Kind::Histogram {
                let name = format!("{}_longest{SECONDS}", name.trim_end_matches(SECONDS));
                head(&mut text, &name, "gauge", &format!("The longest of: {help}"));
                for Sample { label: value, value: found } in &samples {
                    if let Value::Times(histogram) = found {
                        let longest = histogram.longest().as_secs_f64();
                        line(&mut text, &name, &labels(label, *value, None), longest);
                    }
                }
            }
        }
        text
    }
}

/// The lines before the samples. No help has a backslash or a line break.
fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let written = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    written.expect("a string takes everything");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    writeln!(text, "{name}{labels} {value}").expect("a string takes everything");
}

/// The labels of a sample in braces; nothing if there are none.
fn labels(label: Option<&str>, value: Option<&str>, bound: Option<&str>) -> String {
    let own = label.zip(value).map(|(label, value)| format!("{label}=\"{value}\""));
    let bound = bound.map(|bound| format!("le=\"{bound}\""));
    let all: Vec<String> = own.into_iter().chain(bound).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn write_sample(text: &mut String, name: &str, label: Option<&str>, sample: &Sample<'_>) {
    let own = labels(label, sample.label, None);
    match sample.value {
        Value::Count(count) => line(text, name, &own, count),
        Value::Level(level) => line(text, name, &own, level),
        Value::Times(histogram) => {
            let bucket = format!("{name}_bucket");
            let (powers, total) = histogram.by_powers();
            for (bound_us, count) in powers {
                let bound = (bound_us as f64 / 1e6).to_string();
                line(text, &bucket, &labels(label, sample.label, Some(&bound)), count);
            }
            line(text, &bucket, &labels(label, sample.label, Some("+Inf")), total);
            line(text, &format!("{name}_sum"), &own, histogram.sum().as_secs_f64());
            line(text, &format!("{name}_count"), &own, total);
        }
    }
}
