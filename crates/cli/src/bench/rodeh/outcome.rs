//! What was measured, and how it is shown beside the paper's numbers.

use serde::Serialize;

use crate::bench::Spread;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Everything.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) scale: f64,
    pub(super) operations: u64,
    pub(super) runs: u32,
    pub(super) seed: u64,
    pub(super) devices: Vec<String>,
    pub(super) trees: Vec<TreeOutcome>,
}

/// A tree, and what was measured on it.
#[derive(Serialize)]
pub(super) struct TreeOutcome {
    pub(super) name: &'static str,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) paper_leaves: u64,
    pub(super) load_seconds: f64,
    pub(super) memory_bytes: u64,
    pub(super) cache_and_queues_bytes: u64,
    /// The same in per cent of the tree.
    pub(super) cache_and_queues_percent: f64,
    pub(super) throughput: Vec<Throughput>,
    pub(super) latency: Vec<Latency>,
}

/// Operations per second of a workload.
#[derive(Serialize)]
pub(super) struct Throughput {
    workload: String,
    with_one: Spread,
    with_ten: Spread,
    gain: f64,
    paper_with_one: f64,
    paper_with_ten: f64,
    paper_gain: f64,
}

/// Time of an operation.
#[derive(Serialize)]
pub(super) struct Latency {
    pub(super) operation: String,
    pub(super) ms: Spread,
    pub(super) paper_ms: f64,
}

impl Throughput {
    /// Of a workload with one caller and with ten; `paper` likewise.
    pub(super) fn new(
        workload: String,
        with_one: Spread,
        with_ten: Spread,
        (paper_with_one, paper_with_ten): (f64, f64),
    ) -> Self {
        Self {
            workload,
            gain: with_ten.median / with_one.median.max(1e-12),
            with_one,
            with_ten,
            paper_with_one,
            paper_with_ten,
            paper_gain: paper_with_ten / paper_with_one,
        }
    }

    fn line(&self) -> String {
        let rate = |spread: &Spread, paper: f64| {
            let (found, paper) = (text::rate(spread.median), text::rate(paper));
            format!("{found:>10} ±{:>3.0} % {paper:>7}", spread.percent())
        };
        format!(
            "  {:32}{}  {}  {:>6.1} {:>5.1}",
            self.workload,
            rate(&self.with_one, self.paper_with_one),
            rate(&self.with_ten, self.paper_with_ten),
            self.gain,
            self.paper_gain
        )
    }
}

impl Latency {
    fn line(&self) -> String {
        let Self { operation, ms, paper_ms } = self;
        format!("  {operation:32}{:>10.4} ±{:>3.0} % {paper_ms:>7.3}", ms.median, ms.percent())
    }
}

impl TreeOutcome {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "\n{}: {} keys with values of {} bytes in {} blocks, {} (paper: {} leaves)",
                self.name,
                text::count(self.keys),
                self.value_bytes,
                text::count(self.blocks),
                text::size(self.bytes),
                text::count(self.paper_leaves)
            ),
            format!(
                "loaded in {:.1} s; then memory of {}: cache and queues {}, {:.1} % of the tree",
                self.load_seconds,
                text::size(self.memory_bytes),
                text::size(self.cache_and_queues_bytes),
                self.cache_and_queues_percent
            ),
            format!("\n  {:32}{:>25}  {:>25}  {:>12}", "", "one caller", "ten callers", "gain"),
            format!(
                "  {:32}{:>17} {:>7}  {:>17} {:>7}  {:>6} {:>5}",
                "operations per second", "here", "paper", "here", "paper", "here", "paper"
            ),
        ];
        lines.extend(self.throughput.iter().map(Throughput::line));
        lines.push(format!("\n  {:32}{:>17} {:>7}", "milliseconds, one caller", "here", "paper"));
        lines.extend(self.latency.iter().map(Latency::line));
        lines
    }
}

impl Outcome {
    /// Prints it for people.
    pub(super) fn show(&self, context: &Context) -> Result<(), Failure> {
        let mut lines = self.devices.clone();
        lines.push(format!(
            "medians of {} runs of {} operations; ± is half the way from the lowest to the highest",
            self.runs,
            text::count(self.operations)
        ));
        if self.scale < 1.0 {
            lines.push(format!("trees of {} times the paper's size", self.scale));
        }
        lines.extend(self.trees.iter().flat_map(TreeOutcome::lines));
        context.line(&lines.join("\n"))
    }
}
