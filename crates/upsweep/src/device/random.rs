//! A small seeded pseudo-random generator for simulated banks and measurements (SplitMix64, Steele,
//! Lea and Flood 2014).
//!
//! Invariant: the sequence depends on the seed alone, on every platform and in every version;
//! recorded simulation seeds rely on it.

/// A seeded pseudo-random generator. Not for cryptography.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator with this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `limit`, or 0 if `limit` is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // Multiply and shift: the bias, at most limit / 2^64, does not matter in a simulation.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True with a probability of `per_million` in a million. Draws nothing if that is 0, so that a
    /// fault that is off does not change the sequence of the others.
    pub(super) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// True with a probability of one half.
    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Fills `bytes` from the sequence.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A bijection of 64-bit words in which every input bit reaches every output bit.
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
