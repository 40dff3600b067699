//! Zipfian ranks: rank `i` (from 0) is drawn with a probability proportional to `(i + 1)^-theta`.
//!
//! (J. Gray et al., "Quickly generating billion-record synthetic databases", section 3.2, which is
//! what YCSB uses; the sum over all ranks is approximated beyond the first 100,000.)

use super::random::Random;

/// The skew of YCSB.
pub(crate) const THETA: f64 = 0.99;
/// Ranks whose weights are added one by one.
const EXACT: u64 = 100_000;

/// Draws ranks below a number.
pub(crate) struct Zipf {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over so many ranks (1 or more).
    pub(crate) fn new(ranks: u64) -> Self {
        let zeta = zeta(ranks);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two() / zeta);
        Self { ranks, zeta, eta }
    }

    /// A rank, 0 most often.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta_of_two() {
            return 1.min(self.ranks - 1);
        }
        let place = (self.eta * fraction - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        ((self.ranks as f64 * place) as u64).min(self.ranks - 1)
    }
}

fn zeta_of_two() -> f64 {
    1.0 + 0.5f64.powf(THETA)
}

/// The sum of the weights of so many ranks.
fn zeta(ranks: u64) -> f64 {
    let exact: f64 = (1..=ranks.min(EXACT)).map(|rank| (rank as f64).powf(-THETA)).sum();
    let integral = |end: f64| end.powf(1.0 - THETA) / (1.0 - THETA);
    let rest = if ranks > EXACT {
        integral(ranks as f64 + 0.5) - integral(EXACT as f64 + 0.5)
    } else {
        0.0
    };
    exact + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_approximated_sum_is_near_the_exact_one() {
        let exact: f64 = (1..=1_000_000u64).map(|rank| (rank as f64).powf(-THETA)).sum();
        assert!((zeta(1_000_000) / exact - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_first_ranks_have_the_share_of_their_weights() {
        let (ranks, draws) = (10_000, 400_000);
        let (zipf, mut random) = (Zipf::new(ranks), Random::new(3, 0));
        let mut counts = vec![0u32; 10_000];
        for _ in 0..draws {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let share = |rank: u64| (rank as f64 + 1.0).powf(-THETA) / zeta(ranks);
        for rank in [0u64, 1] {
            let found = f64::from(counts[rank as usize]) / f64::from(draws);
            assert!((found / share(rank) - 1.0).abs() < 0.03, "rank {rank}: {found}");
        }
        let first_hundred = f64::from(counts[..100].iter().sum::<u32>()) / f64::from(draws);
        let expected: f64 = (0..100).map(share).sum();
        assert!((first_hundred / expected - 1.0).abs() < 0.05, "{first_hundred} {expected}");
    }

    #[test]
    fn one_rank_is_always_drawn() {
        let (zipf, mut random) = (Zipf::new(1), Random::new(3, 0));
        assert!((0..100).all(|_| zipf.draw(&mut random) == 0));
    }
}
