//! Claims, and what becomes of them: one function judges all, from the operator, the stated value
//! and the measured one.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Value};
use crate::papers::{Claim, Op, Papers, Stated};
use crate::problem::Problem;

/// How far what is measured may be from a stated value (`=`), as a share of it.
pub(crate) const EQUAL_WITHIN: f64 = 0.10;
/// How far it may be from an approximate one (`~`).
pub(crate) const ABOUT_WITHIN: f64 = 0.25;
/// How far beyond a bound it has to be to exceed what is claimed, as a share of the bound.
pub(crate) const EXCEEDED_BEYOND: f64 = 0.10;

/// How much one of two has to be more than the other before a claim that says only which of them is
/// more is judged, as a share: what is closer cannot be told apart.
pub(crate) const DIFFERENT_BEYOND: f64 = 0.02;

/// The unit of how many times one is the other.
const TIMES: &str = "x";

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// It holds for what was measured.
    Reproduced,
    /// What was measured is better: than a stated value or range, by more than it may be off; or
    /// than a bound, by more than [`EXCEEDED_BEYOND`].
    Exceeded,
    /// It does not hold.
    NotReproduced,
    /// It says which of two is more, and what was measured of both differs by no more than
    /// [`DIFFERENT_BEYOND`].
    NoDifference,
    /// Nothing was measured that it could be compared with.
    NotMeasured,
}

impl Verdict {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Exceeded => "exceeded",
            Self::NotReproduced => "not reproduced",
            Self::NoDifference => "no difference seen",
            Self::NotMeasured => "not measured",
        }
    }
}

/// Which way of a claimed value is better. A comparator is to be like the published one, neither
/// better nor worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// More than claimed.
    More,
    /// Less than claimed.
    Less,
    /// Neither.
    Neither,
}

/// What a claim is compared with, in terms of the named values of an outcome.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// One of them.
    Value(&'static str),
    /// One over another: times.
    Ratio(&'static str, &'static str),
    /// Several of them, for a claim that is a tuple.
    Tuple(&'static [&'static str]),
}

impl Measure {
    /// Its values, all of one unit; `None` if the outcome lacks a value that it needs.
    fn of(&self, outcome: &Outcome) -> Option<Vec<Value>> {
        let value = |name: &&str| outcome.values.get(*name).cloned();
        match self {
            Self::Value(name) => Some(vec![value(name)?]),
            Self::Ratio(above, below) => {
                let number = value(above)?.number / value(below)?.number;
                Some(vec![Value { number, unit: TIMES.to_owned() }])
            }
            Self::Tuple(names) => names.iter().map(value).collect(),
        }
    }
}

/// Which claim an experiment measures, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The published experiment.
    paper: &'static str,
    /// The text of the claim.
    claim: &'static str,
    /// What it is compared with.
    measure: Measure,
    /// Which way is better.
    better: Better,
}

impl Binding {
    /// Compares a claim of a published experiment, by its text, with a named value.
    pub(crate) const fn value(
        paper: &'static str,
        claim: &'static str,
        value: &'static str,
        better: Better,
    ) -> Self {
        Self { paper, claim, measure: Measure::Value(value), better }
    }

    /// Compares it with how many times the second of two named values the first one is.
    pub(crate) const fn ratio(
        paper: &'static str,
        claim: &'static str,
        (above, below): (&'static str, &'static str),
        better: Better,
    ) -> Self {
        Self { paper, claim, measure: Measure::Ratio(above, below), better }
    }

    /// Compares a claim that is a tuple with as many named values, in its order. None of several
    /// numbers is better than another.
    pub(crate) const fn tuple(
        paper: &'static str,
        claim: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self { paper, claim, measure: Measure::Tuple(values), better: Better::Neither }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Judged {
    /// The published experiment.
    pub(crate) paper: String,
    /// The claim.
    pub(crate) claim: Claim,
    /// What was measured, in the unit of the claim.
    pub(crate) measured: Option<Stated>,
    /// What becomes of it.
    pub(crate) verdict: Verdict,
    /// What was measured over what is claimed; of a range, over the end that is nearer. A tuple
    /// has none.
    pub(crate) ratio: Option<f64>,
    /// Why it does not hold, as far as the experiment knows.
    pub(crate) reasons: Vec<String>,
}

/// Judges what was measured by a claim, and gives what was measured over what is claimed.
///
/// A tuple (several values under `=`) holds if each of its numbers does. One that was measured as
/// fewer or more numbers is not measured.
///
/// A claim that one of two is more, or less, than the other has to hold by more than
/// [`DIFFERENT_BEYOND`], and fails by more than that. It is a bound at 1 on how many times.
pub(crate) fn judge(claim: &Claim, measured: &[f64], better: Better) -> (Verdict, Option<f64>) {
    let Claim { op, value, unit, .. } = claim;
    let op = *op;
    if measured.iter().any(|number| !number.is_finite()) {
        return (Verdict::NotMeasured, None);
    }
    let (low, high, measured) = match (op, value.numbers(), measured) {
        (Op::Range, [low, high], [measured]) => (*low, *high, *measured),
        (_, [number], [measured]) => (*number, *number, *measured),
        (Op::Equal, stated, measured) if stated.len() == measured.len() => {
            let mut both = stated.iter().zip(measured);
            let holds = both.all(|(stated, measured)| is_equal(*stated, *measured));
            let verdict = if holds { Verdict::Reproduced } else { Verdict::NotReproduced };
            return (verdict, None);
        }
        _ => return (Verdict::NotMeasured, None),
    };
    let holds = match op {
        Op::Equal => is_equal(low, measured),
        Op::About => is_within(ABOUT_WITHIN, low, measured),
        Op::Below => measured < low,
        Op::AtMost => measured <= low,
        Op::Above => measured > low,
        Op::AtLeast => measured >= low,
        Op::Range => (low..=high).contains(&measured),
    };
    let is_better = |by: f64| match better {
        Better::More => measured > high + by * high.abs(),
        Better::Less => measured < low - by * low.abs(),
        Better::Neither => false,
    };
    let is_bound = matches!(op, Op::Below | Op::AtMost | Op::Above | Op::AtLeast);
    let is_direction = is_bound && low == 1.0 && unit == TIMES;
    let is_exceeded =
        if is_bound { holds && is_better(EXCEEDED_BEYOND) } else { !holds && is_better(0.0) };
    let is_alike = is_direction && is_within(DIFFERENT_BEYOND, low, measured);
    let verdict = match (is_alike, holds, is_exceeded) {
        (true, ..) => Verdict::NoDifference,
        (_, _, true) => Verdict::Exceeded,
        (_, true, false) => Verdict::Reproduced,
        (_, false, false) => Verdict::NotReproduced,
    };
    let nearer = measured.clamp(low, high);
    let ratio = measured / nearer;
    (verdict, ratio.is_finite().then_some(ratio))
}

/// Whether a number is within a share of a stated one.
fn is_within(share: f64, stated: f64, measured: f64) -> bool {
    (measured - stated).abs() <= share * stated.abs()
}

fn is_equal(stated: f64, measured: f64) -> bool {
    is_within(EQUAL_WITHIN, stated, measured)
}

/// Judges all claims of the papers of an experiment by its outcome.
///
/// # Errors
/// [`Problem::Data`] if a binding names a claim that is not there, or measures another unit.
pub(crate) fn judge_all(
    papers: &Papers,
    ids: &[&str],
    bindings: &[Binding],
    outcome: &Outcome,
) -> Result<Vec<Judged>, Problem> {
    for Binding { paper, claim, .. } in bindings {
        let published = papers.published(paper)?;
        let is_there = published.claims.iter().any(|one| one.text == *claim);
        if !is_there || !ids.contains(paper) {
            let reason = format!("no claim of {paper} that is judged reads: {claim}");
            return Err(Problem::Data(reason));
        }
    }
    let mut all = Vec::new();
    for id in ids {
        for claim in &papers.published(id)?.claims {
            let of_it = |binding: &&Binding| binding.paper == *id && binding.claim == claim.text;
            all.push(judge_one(id, claim, bindings.iter().find(of_it), outcome)?);
        }
    }
    Ok(all)
}

fn judge_one(
    paper: &str,
    claim: &Claim,
    binding: Option<&Binding>,
    outcome: &Outcome,
) -> Result<Judged, Problem> {
    let measured = binding.and_then(|binding| binding.measure.of(outcome));
    let (verdict, ratio) = match (&measured, binding) {
        (Some(found), Some(binding)) => {
            if let Some(wrong) = found.iter().find(|value| value.unit != claim.unit) {
                let Claim { text, unit, .. } = claim;
                let reason = format!("{text}: claimed in {unit}, measured in {}", wrong.unit);
                return Err(Problem::Data(reason));
            }
            let numbers: Vec<f64> = found.iter().map(|value| value.number).collect();
            judge(claim, &numbers, binding.better)
        }
        _ => (Verdict::NotMeasured, None),
    };
    let caveats = outcome.caveats.iter();
    let about = caveats.filter(|caveat| caveat.claims.contains(&claim.text));
    let is_explained = !matches!(verdict, Verdict::Reproduced | Verdict::Exceeded);
    let reasons = if is_explained { about.map(|of| of.text.clone()).collect() } else { Vec::new() };
    Ok(Judged {
        paper: paper.to_owned(),
        claim: claim.clone(),
        measured: measured.map(|values| match values.as_slice() {
            [one] => Stated::One(one.number),
            all => Stated::Several(all.iter().map(|value| value.number).collect()),
        }),
        verdict,
        ratio,
        reasons,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(op: Op, value: &[f64], unit: &str) -> Claim {
        let value = match value {
            [one] => Stated::One(*one),
            several => Stated::Several(several.to_vec()),
        };
        Claim { text: "a claim".into(), op, value, unit: unit.into() }
    }

    fn verdict(op: Op, value: &[f64], measured: f64, better: Better) -> Verdict {
        judge(&claim(op, value, "ops/s"), &[measured], better).0
    }

    #[test]
    fn every_operator_holds_up_to_its_edge_and_not_beyond() {
        use Op::{About, Above, AtLeast, AtMost, Below, Equal, Range};
        use Verdict::{NotReproduced, Reproduced};
        let cases: [(Op, &[f64], f64, Verdict); 22] = [
            (Equal, &[100.0], 90.0, Reproduced),
            (Equal, &[100.0], 110.0, Reproduced),
            (Equal, &[100.0], 89.9, NotReproduced),
            (Equal, &[100.0], 110.1, NotReproduced),
            (Equal, &[0.0], 0.0, Reproduced),
            (Equal, &[0.0], 0.001, NotReproduced),
            (About, &[100.0], 75.0, Reproduced),
            (About, &[100.0], 125.0, Reproduced),
            (About, &[100.0], 74.9, NotReproduced),
            (About, &[100.0], 125.1, NotReproduced),
            (Below, &[1.0], 0.999, Reproduced),
            (Below, &[1.0], 1.0, NotReproduced),
            (AtMost, &[1.0], 1.0, Reproduced),
            (AtMost, &[1.0], 1.001, NotReproduced),
            (Above, &[1.0], 1.001, Reproduced),
            (Above, &[1.0], 1.0, NotReproduced),
            (AtLeast, &[1.0], 1.0, Reproduced),
            (AtLeast, &[1.0], 0.999, NotReproduced),
            (Range, &[10.0, 100.0], 10.0, Reproduced),
            (Range, &[10.0, 100.0], 100.0, Reproduced),
            (Range, &[10.0, 100.0], 9.99, NotReproduced),
            (Range, &[10.0, 100.0], 100.1, NotReproduced),
        ];
        for (op, value, measured, expected) in cases {
            let found = verdict(op, value, measured, Better::Neither);
            assert_eq!(found, expected, "{op:?} {value:?}, measured {measured}");
        }
    }

    #[test]
    fn better_than_claimed_is_exceeded_in_the_right_direction_only() {
        use Better::{Less, More};
        use Op::{About, Above, Below, Equal, Range};
        use Verdict::{Exceeded, NotReproduced, Reproduced};
        let cases: [(Op, &[f64], f64, Better, Verdict); 13] = [
            (Equal, &[20.0], 22.1, More, Exceeded),
            (Equal, &[20.0], 22.1, Less, NotReproduced),
            (Equal, &[20.0], 17.0, Less, Exceeded),
            (Equal, &[20.0], 17.0, More, NotReproduced),
            (About, &[20.0], 24.0, More, Reproduced),
            (About, &[20.0], 26.0, More, Exceeded),
            (Above, &[20.0], 21.9, More, Reproduced),
            (Above, &[20.0], 22.1, More, Exceeded),
            (Above, &[20.0], 19.0, Less, NotReproduced),
            (Below, &[1.0], 0.89, Less, Exceeded),
            (Below, &[1.0], 0.91, Less, Reproduced),
            (Range, &[10.0, 100.0], 101.0, More, Exceeded),
            (Range, &[10.0, 100.0], 9.0, More, NotReproduced),
        ];
        for (op, value, measured, better, expected) in cases {
            let found = verdict(op, value, measured, better);
            assert_eq!(found, expected, "{op:?} {value:?}, measured {measured}, {better:?}");
        }
    }

    #[test]
    fn the_ratio_is_to_the_nearer_end_and_absent_where_there_is_none() {
        let range = [10.0, 100.0];
        let ratio = |value: &[f64], op, measured| {
            judge(&claim(op, value, "ms"), &[measured], Better::Neither).1
        };
        assert_eq!(ratio(&[20.0], Op::Equal, 30.0), Some(1.5));
        assert_eq!(ratio(&range, Op::Range, 5.0), Some(0.5));
        assert_eq!(ratio(&range, Op::Range, 50.0), Some(1.0));
        assert_eq!(ratio(&range, Op::Range, 200.0), Some(2.0));
        assert_eq!(ratio(&[0.0], Op::Equal, 1.0), None);
        let nothing = judge(&claim(Op::Below, &[1.0], "ms"), &[f64::NAN], Better::Neither);
        assert_eq!(nothing, (Verdict::NotMeasured, None));
    }

    #[test]
    fn a_direction_wants_more_than_what_cannot_be_told_apart() {
        use Op::{About, Above, AtLeast, AtMost, Below};
        use Verdict::{Exceeded, NoDifference, NotReproduced, Reproduced};
        let cases = [
            (Above, 1.021, Reproduced),
            (Above, 1.019, NoDifference),
            (Above, 1.002, NoDifference),
            (Above, 0.981, NoDifference),
            (Above, 0.979, NotReproduced),
            (AtLeast, 1.0, NoDifference),
            (Below, 0.979, Reproduced),
            (Below, 0.99, NoDifference),
            (Below, 1.021, NotReproduced),
            (AtMost, 1.01, NoDifference),
            // That they are alike is not a direction.
            (About, 1.002, Reproduced),
        ];
        for (op, measured, expected) in cases {
            let found = judge(&claim(op, &[1.0], TIMES), &[measured], Better::Neither).0;
            assert_eq!(found, expected, "{op:?} 1, measured {measured}");
        }
        // Nor is a bound that is not 1, or not a number of times.
        let other = judge(&claim(Above, &[2.0], TIMES), &[2.01], Better::Neither).0;
        assert_eq!(other, Reproduced);
        let other = judge(&claim(Below, &[1.0], "ms"), &[0.99], Better::Neither).0;
        assert_eq!(other, Reproduced);
        let far = judge(&claim(Above, &[1.0], TIMES), &[1.2], Better::More).0;
        assert_eq!(far, Exceeded);
    }

    #[test]
    fn a_tuple_holds_if_each_of_its_numbers_does() {
        let tuple = claim(Op::Equal, &[1.0, 4.0], "disks");
        let verdict = |measured: &[f64]| judge(&tuple, measured, Better::Neither);
        assert_eq!(verdict(&[1.0, 4.0]), (Verdict::Reproduced, None));
        assert_eq!(verdict(&[1.0, 4.5]), (Verdict::NotReproduced, None));
        assert_eq!(verdict(&[4.0, 1.0]), (Verdict::NotReproduced, None));
        for other in [&[1.0][..], &[1.0, 4.0, 4.0], &[1.0, f64::NAN]] {
            assert_eq!(verdict(other), (Verdict::NotMeasured, None), "{other:?}");
        }
        let one = judge(&claim(Op::Equal, &[1.0], "disks"), &[1.0, 4.0], Better::Neither);
        assert_eq!(one, (Verdict::NotMeasured, None));
    }

    const PAPER: &str = "beluga-table-6.1";
    const CLAIM: &str = "file-based logging throughput, text bound";

    fn judged(measure: Measure, claim: &'static str, unit: &str) -> Result<Vec<Judged>, Problem> {
        let papers = Papers::load().expect("the files are right");
        let mut outcome = Outcome::default();
        outcome.value("rate", 60.0, unit);
        outcome.value("other", 2.0, unit);
        outcome.value("in ms", 2.0, "ms");
        outcome.caveat(&[CLAIM], "Because.");
        let binding = Binding { paper: PAPER, claim, measure, better: Better::Neither };
        judge_all(&papers, &[PAPER], &[binding], &outcome)
    }

    #[test]
    fn a_claim_that_does_not_hold_comes_with_its_reasons() {
        let all = judged(Measure::Value("rate"), CLAIM, "ops/s").expect("it can be judged");
        assert_eq!(all.len(), 4);
        let (first, bound) = (&all[0], &all[2]);
        assert_eq!((first.verdict, &first.measured), (Verdict::NotMeasured, &None));
        assert_eq!(bound.verdict, Verdict::NotReproduced);
        assert_eq!(bound.measured, Some(Stated::One(60.0)));
        assert_eq!((bound.ratio, bound.reasons.as_slice()), (Some(2.0), &["Because.".into()][..]));
        let nothing = judged(Measure::Value("none"), CLAIM, "ops/s").expect("it can be judged");
        assert_eq!(nothing[2].verdict, Verdict::NotMeasured);
    }

    #[test]
    fn a_wrong_binding_is_a_problem() {
        let wrong_unit = judged(Measure::Value("rate"), CLAIM, "ms");
        let times = judged(Measure::Ratio("rate", "other"), CLAIM, "ops/s");
        let mixed = judged(Measure::Tuple(&["other", "in ms"]), CLAIM, "ops/s");
        let wrong_text = judged(Measure::Value("rate"), "no such claim", "ops/s");
        for result in [wrong_unit, times, mixed, wrong_text] {
            assert!(matches!(&result, Err(Problem::Data(_))), "{result:?}");
        }
    }
}
