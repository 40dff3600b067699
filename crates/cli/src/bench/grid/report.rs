//! What is printed of the grid.

use super::{Goal, Outcome};
use crate::args::GridArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Prints the outcome.
///
/// # Errors
/// Those of standard output.
pub(super) fn print(context: &Context, args: &GridArgs, outcome: &Outcome) -> Result<(), Failure> {
    if args.json { context.json(outcome) } else { context.line(&lines(outcome).join("\n")) }
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines = outcome.devices.clone();
    lines.push("chosen:".to_owned());
    lines.extend(outcome.choices.iter().map(|choice| {
        format!("  {}: {}, as {}", choice.name, text::size(choice.bytes), choice.reason)
    }));
    lines.push(String::new());
    let mut columns = String::new();
    for goal in Goal::ALL {
        columns += &format!("  {:>32}", goal.name());
    }
    lines.push(format!("{:45}{columns}", "settings"));
    lines.extend(outcome.points.iter().map(|point| {
        let mut line = format!("{:45}", point.settings.name());
        for goal in Goal::ALL {
            let found = point.found.iter().find(|(of, _)| *of == goal);
            let cell = found.map_or_else(String::new, |(_, found)| {
                format!("{} ±{:.0} %", text::rate(found.median), found.percent())
            });
            line += &format!("  {cell:>32}");
        }
        line
    }));
    lines.push(String::new());
    for compared in &outcome.compared {
        let (goal, best) = (compared.goal.name(), compared.best.name());
        lines.push(match &compared.ratio {
            None => format!("{goal}: no point of the grid is better than what was chosen"),
            Some(ratio) => format!(
                "{goal}: best with {best}; the choice is {:.2} of that ({:.2} to {:.2}, {} pairs)",
                ratio.median, ratio.lowest, ratio.highest, outcome.pairs
            ),
        });
    }
    lines
}
