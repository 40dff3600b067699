//! Removal of a part of a table, each from a new clone of the same table.
//!
//! The range begins at random. The engine counts the nodes of the directory that it changes: those
//! that the removal itself changes in the two trees of the clone, for records and for large values,
//! of which there are none; and all that changed during the call, which includes the paths to the
//! blocks at the edges, and what may have been going on beside it.

use serde::Serialize;

use super::{Bench, COUNTER_BYTES, cell, head, key, load, microseconds, note, row, timed};
use crate::bench::{Random, Spread};
use crate::failure::Failure;
use crate::text;

/// Parts of the table that are removed, in per cent.
const PERCENT: [u64; 3] = [1, 10, 90];

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    records: u64,
    blocks: u64,
    /// Levels of the table's tree.
    depth: u64,
    /// Nodes that a removal may change at most (Rodeh, section 5.8): `4 x depth`, and 4 in the tree
    /// of a single node for large values.
    nodes_changed_bound: u64,
    removals: u32,
    parts: Vec<RemovedPart>,
}

/// Of one part.
#[derive(Serialize)]
struct RemovedPart {
    percent: u64,
    us: Spread,
    /// Nodes that the removal itself has changed.
    nodes_changed: Spread,
    /// All nodes changed during the call.
    nodes_changed_in_all: Spread,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Outcome, Failure> {
    let records = bench.records();
    note(&format!("ranges of a table of {} records", text::count(records)));
    bench.in_store(|store| {
        let (_, loaded) = load(store, "table", records, COUNTER_BYTES)?;
        let depth = store.status().tree.depth_max;
        let mut random = Random::new(bench.args.seed);
        let mut parts = Vec::new();
        for percent in PERCENT {
            let length = (records * percent / 100).max(1);
            let [mut seconds, mut nodes, mut all] = [const { vec![] }; 3];
            for _ in 0..bench.args.clones {
                let clone = store.clone_table("table", "clone")?;
                let first = random.below(records - length + 1);
                let before = store.status().tree;
                let (from, to) = (key(first), key(first + length));
                seconds.push(timed(|| clone.remove_range(&from, Some(&to)))?.1);
                let after = store.status().tree;
                nodes.push((after.range_nodes_changed - before.range_nodes_changed) as f64);
                all.push((after.nodes_changed - before.nodes_changed) as f64);
                store.drop_table("clone")?;
                store.reclaim()?;
            }
            parts.push(RemovedPart {
                percent,
                us: microseconds(&seconds),
                nodes_changed: Spread::of(nodes),
                nodes_changed_in_all: Spread::of(all),
            });
        }
        Ok(Outcome {
            records,
            blocks: loaded.blocks,
            depth,
            nodes_changed_bound: 4 * depth + 4,
            removals: bench.args.clones,
            parts,
        })
    })
}

impl Outcome {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "\nremoval of a range, {} of each part, from clones of a table of {} records in {} \
                 blocks",
                self.removals,
                text::count(self.records),
                text::count(self.blocks)
            ),
            format!(
                "  trees of depth {}: at most 4 x depth + 4 = {} nodes may change",
                self.depth, self.nodes_changed_bound
            ),
            head("part", ["microseconds", "nodes changed", "with edges"]),
        ];
        lines.extend(self.parts.iter().map(|part| {
            let cells = [
                cell(&part.us, 0),
                cell(&part.nodes_changed, 0),
                cell(&part.nodes_changed_in_all, 0),
            ];
            row(&format!("{} %", part.percent), &cells)
        }));
        lines
    }
}
