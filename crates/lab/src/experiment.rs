//! An experiment: data, and one function that measures.
//!
//! **An experiment knows no expected number.** It sees a scale and a progress, and returns what it
//! measured. Which published tables and claims that is held against is data: the names in
//! [`Experiment::papers`] and [`Experiment::bindings`].
//!
//! To add one: write a module in `experiments/` with a constant of this type, and name it in
//! [`experiments::ALL`](crate::experiments::ALL). Give every quantity that a claim is about a named
//! value in the unit of the claim, and bind the text of the claim to it. Where a source leaves a
//! parameter open, say so in a caveat with the texts of the claims that may not hold because of it.

use crate::claims::Binding;
use crate::outcome::Outcome;
use crate::papers::Papers;
use crate::problem::Problem;
use crate::progress::Progress;

/// An experiment.
pub(crate) struct Experiment {
    /// What the command line calls it.
    pub(crate) id: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// What it does, in full sentences.
    pub(crate) method: &'static str,
    /// What is smaller or shorter in a quick run.
    pub(crate) scaling: &'static str,
    /// The published experiments that it repeats, and the goals that it shows.
    pub(crate) papers: &'static [&'static str],
    /// What it measures for their claims.
    pub(crate) bindings: &'static [Binding],
    /// Measures. The outcome depends on the scale alone.
    pub(crate) run: fn(&Scale, &Progress) -> Result<Outcome, Problem>,
}

impl Experiment {
    /// Where what it repeats is published.
    ///
    /// # Errors
    /// [`Problem::Data`] if it names an experiment that no paper has.
    pub(crate) fn sources(&self, papers: &Papers) -> Result<Vec<String>, Problem> {
        let mut sources = Vec::new();
        for id in self.papers {
            for source in &papers.published(id)?.source {
                if !sources.contains(source) {
                    sources.push(source.clone());
                }
            }
        }
        Ok(sources)
    }
}

/// How much an experiment does, and the seed of everything that is random in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Whether to be quick.
    pub(crate) is_quick: bool,
    /// The seed.
    pub(crate) seed: u64,
}

impl Scale {
    /// The one for a quick run, or the one for a full run.
    pub(crate) fn pick<T>(self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }
}
