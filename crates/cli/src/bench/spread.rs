//! Numbers of several runs: their middle and their ends.

use serde::Serialize;

/// Numbers of several runs.
#[derive(Serialize)]
pub(in crate::bench) struct Spread {
    pub(in crate::bench) median: f64,
    pub(in crate::bench) lowest: f64,
    pub(in crate::bench) highest: f64,
}

impl Spread {
    /// Of one number or more.
    pub(in crate::bench) fn of(mut found: Vec<f64>) -> Self {
        found.sort_by(f64::total_cmp);
        let (low, high) = ((found.len() - 1) / 2, found.len() / 2);
        let median = f64::midpoint(found[low], found[high]);
        Self { median, lowest: found[0], highest: found[found.len() - 1] }
    }

    /// Half the way from the lowest to the highest, in per cent of the median.
    pub(in crate::bench) fn percent(&self) -> f64 {
        50.0 * (self.highest - self.lowest) / self.median.max(1e-12)
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
        assert_eq!(of(&[7.0]), (7.0, 7.0, 7.0));
        assert!((Spread::of(vec![9.0, 10.0, 11.0]).percent() - 10.0).abs() < 1e-9);
    }
}
