//! Numbers of several runs: their middle and their ends.

/// Numbers of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    /// Of one number or more; of none, all are 0.
    pub(crate) fn of(mut found: Vec<f64>) -> Self {
        found.sort_by(f64::total_cmp);
        let (Some(lowest), Some(highest)) = (found.first(), found.last()) else {
            return Self { median: 0.0, lowest: 0.0, highest: 0.0 };
        };
        let (low, high) = ((found.len() - 1) / 2, found.len() / 2);
        let median = f64::midpoint(found[low], found[high]);
        Self { median, lowest: *lowest, highest: *highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let of = |found: &[f64]| {
            let Spread { median, lowest, highest } = Spread::of(found.to_vec());
            (median, lowest, highest)
        };
        assert_eq!(of(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert_eq!(of(&[]), (0.0, 0.0, 0.0));
    }
}
