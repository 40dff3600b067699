//! The search for the smallest value of something that goes wrong below some threshold, which is
//! not known and may change: the value shrinks by a fifth after each round of tries without
//! misses, and grows by a quarter after one with several. A value that had misses is tried again
//! after a while.

/// Tries of a round.
pub(super) const ROUND: u32 = 128;
/// Misses after which a round ends: 1.6 % of its tries.
const MISSES: u32 = 2;
/// Rounds until a value that had misses is tried again.
pub(super) const RETRY_ROUNDS: u32 = 512;

/// A value that is to be as small as possible.
#[derive(Clone, Debug)]
pub(super) struct Least {
    value: u64,
    most: u64,
    unit: u64,
    /// A value that had misses, and the rounds since.
    missed: Option<(u64, u32)>,
    /// Tries of this round, and the misses among them.
    tries: u32,
    misses: u32,
}

impl Least {
    /// Begins with this value, which is also the largest; each is a multiple of `unit`.
    pub(super) fn new(most: u64, unit: u64) -> Self {
        Self { value: most, most, unit, missed: None, tries: 0, misses: 0 }
    }

    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// The value was tried. Returns whether that was a miss although no value is larger.
    pub(super) fn fails(&mut self, is_miss: bool) -> bool {
        let fails = is_miss && self.value == self.most;
        self.tried(is_miss);
        fails
    }

    /// Goes on with about this value.
    pub(super) fn set(&mut self, value: u64) {
        let value = value.next_multiple_of(self.unit);
        self.value = value.clamp(self.unit, self.most);
        (self.tries, self.misses) = (0, 0);
    }

    /// The value was tried. Returns the misses of the round that ended with that, if one did.
    pub(super) fn tried(&mut self, is_miss: bool) -> Option<u32> {
        self.tries += 1;
        self.misses += u32::from(is_miss);
        let misses = self.misses;
        if misses == MISSES {
            self.missed = Some((self.value, 0));
            self.set(self.value * 5 / 4);
        } else if self.tries == ROUND {
            self.try_smaller();
        } else {
            return None;
        }
        Some(misses)
    }

    fn try_smaller(&mut self) {
        self.missed = self.missed.filter(|(_, rounds)| *rounds < RETRY_ROUNDS);
        let smaller = self.value * 4 / 5 / self.unit * self.unit;
        match &mut self.missed {
            Some((missed, rounds)) if smaller <= *missed => {
                *rounds += 1;
                self.set(self.value);
            }
            _ => self.set(smaller),
        }
    }
}
