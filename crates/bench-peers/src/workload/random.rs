//! Random numbers, the same for the same seed (SplitMix64).

/// A sequence of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence number `stream` of this seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(scramble(seed ^ scramble(stream.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// A number from 0 to below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A time with mean 1 between events that do not know of each other.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.fraction()).ln()
    }
}

/// A permutation of all 64-bit numbers that leaves no order behind.
pub(crate) fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences_and_others_do_not() {
        let take = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }

    #[test]
    fn numbers_spread_evenly_and_stay_in_range() {
        let mut random = Random::new(7, 0);
        let mut places = [0u32; 10];
        for _ in 0..100_000 {
            places[random.below(10) as usize] += 1;
        }
        assert!(places.iter().all(|count| (9_500..10_500).contains(count)), "{places:?}");
    }

    #[test]
    fn times_between_events_have_mean_one() {
        let mut random = Random::new(7, 0);
        let sum: f64 = (0..100_000).map(|_| random.exponential()).sum();
        assert!((sum / 100_000.0 - 1.0).abs() < 0.02, "{sum}");
    }
}
