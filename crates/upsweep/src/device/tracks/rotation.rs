//! The time of a turn, from times at which the same blocks were read.

use std::time::Duration;

use super::TracksError;
use crate::device::DeviceError;
use crate::device::random::SplitMix64;

/// Rounds of reads.
const ROUNDS: usize = 12;
/// Of four reads so many are done: without this, every round of an exact drive takes as many turns.
const READS_OF_FOUR: u64 = 3;
/// Turns of rotating drives take at least this long, in nanoseconds: 20,000 a minute.
const TURN_NS_MIN: f64 = 3e6;
/// And at most this long: 3,000 a minute.
const TURN_NS_MAX: f64 = 20e6;
/// Turns between steps over which the first estimate is exact enough.
const FEW_TURNS: f64 = 8.0;
/// Differences that a turn must explain, at least.
const DIFFERENCES_MIN: usize = 32;
/// A difference is a whole number of turns if it is off by at most this.
const OFF_MAX: f64 = 0.05;
/// So many differences of a hundred must be whole numbers of turns.
const WHOLE_PERCENT_MIN: usize = 90;

/// How a drive turns; unknown by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    turn_ns: f64,
}

impl Rotation {
    /// One that takes so long for a turn.
    pub(super) fn of_turn(turn_ns: u64) -> Self {
        Self { turn_ns: turn_ns.max(1) as f64 }
    }

    /// The time of a turn, to the nanosecond.
    pub(super) fn turn_ns(&self) -> u64 {
        self.turn_ns.round() as u64
    }

    pub(super) fn is_known(&self) -> bool {
        self.turn_ns > 0.0
    }

    /// The part of a turn at which something happens, from 0 to 1.
    pub(super) fn phase(&self, at: Duration) -> f64 {
        (at.as_nanos() as f64 / self.turn_ns).fract()
    }

    /// Reads these blocks again and again, in random selections.
    pub(super) fn measure(
        blocks: &[u64],
        random: &mut SplitMix64,
        read: &mut impl FnMut(u64) -> Result<Duration, DeviceError>,
    ) -> Result<Self, TracksError> {
        let mut times = vec![Vec::new(); blocks.len()];
        for _ in 0..ROUNDS {
            for (block, times) in blocks.iter().zip(&mut times) {
                if random.below(4) < READS_OF_FOUR {
                    times.push(read(*block)?.as_nanos() as f64);
                }
            }
        }
        let turn_ns = turn_ns(&times).ok_or(TracksError::NoRotation)?;
        Ok(Self { turn_ns })
    }
}

/// The turn that explains when each block was read; `None` if there is none.
fn turn_ns(times: &[Vec<f64>]) -> Option<f64> {
    let steps = times.iter().flat_map(|times| times.windows(2).map(|pair| pair[1] - pair[0]));
    let mut steps: Vec<f64> = steps.collect();
    steps.sort_by(f64::total_cmp);
    // Steps are whole numbers of turns. Sorted, many neighbours are one turn apart.
    let gaps = steps.windows(2).map(|pair| pair[1] - pair[0]);
    let mut gaps: Vec<f64> = gaps.filter(|gap| (TURN_NS_MIN..TURN_NS_MAX).contains(gap)).collect();
    gaps.sort_by(f64::total_cmp);
    let rough = *gaps.get(gaps.len() / 4)?;
    let spans = |from: &[f64], rough: f64| {
        let turns: f64 = from.iter().map(|span| (span / rough).round()).sum();
        from.iter().sum::<f64>() / turns.max(1.0)
    };
    // First over a few turns, then over those of a step: the error must stay below half a turn.
    let middle = *steps.get(steps.len() / 2)?;
    let few = steps.iter().map(|step| (step - middle).abs());
    let few: Vec<f64> = few.filter(|span| *span < FEW_TURNS * rough).collect();
    let better = spans(&steps, spans(&few, rough));
    let is_whole = |step: &&f64| ((*step / better).round() - *step / better).abs() <= OFF_MAX;
    let whole = steps.iter().filter(is_whole).count();
    if steps.len() < DIFFERENCES_MIN || whole * 100 < steps.len() * WHOLE_PERCENT_MIN {
        return None;
    }
    let long = times.iter().filter_map(|times| Some(times.last()? - times.first()?));
    Some(spans(&long.collect::<Vec<_>>(), better))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of reads of so many blocks on a drive with this turn, with some noise.
    fn times(turn_ns: f64, noise_ns: u64) -> Vec<Vec<f64>> {
        let mut random = SplitMix64::new(7);
        let of_block = |phase: f64, random: &mut SplitMix64| {
            let mut turns = 0.0;
            let mut at = |_| {
                turns += 30.0 + random.below(12) as f64;
                (turns + phase) * turn_ns + random.below(noise_ns + 1) as f64
            };
            (0..8).map(&mut at).collect()
        };
        (0..64).map(|block| of_block(f64::from(block) / 64.0, &mut random)).collect()
    }

    #[test]
    fn the_turn_is_what_all_steps_are_multiples_of() {
        for turn_ns in [4e6, 6e6, 60e9 / 7200.0] {
            let found = turn_ns_of(turn_ns, 20_000).expect("it turns");
            assert!((found - turn_ns).abs() < 300.0, "{found} of {turn_ns}");
        }
    }

    fn turn_ns_of(turn: f64, noise_ns: u64) -> Option<f64> {
        turn_ns(&times(turn, noise_ns))
    }

    #[test]
    fn without_a_common_multiple_nothing_turns() {
        assert_eq!(turn_ns_of(6e6, 6_000_000), None);
        assert_eq!(turn_ns(&[]), None);
        let even: Vec<Vec<f64>> = (0..64)
            .map(|block| (0..8).map(|n| f64::from(block + 64 * n) * 1e5).collect())
            .collect();
        assert_eq!(turn_ns(&even), None);
    }
}
