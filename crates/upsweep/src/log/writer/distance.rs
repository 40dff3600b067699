//! How far behind a batch that is being written the next one goes.
//!
//! Most drives take the next command while they write, and go on without a gap: some even join
//! both writes, and would hold back one that they cannot join. So a batch goes right behind the one
//! before, and one that misses its place came too late: the look-ahead is too short. But if most of
//! them do, the drive begins with the next command only when the write has completed, whatever the
//! look-ahead. Then a batch keeps a distance, which is found as `least.rs` says.

use super::least::Least;

/// Batches right behind others, after which it is decided whether most of them miss their place.
const TRIES: u32 = 16;

/// The distance on one device, as the time in which it passes the head.
#[derive(Clone, Debug)]
pub(super) enum Distance {
    /// None. So many were tried since the look-ahead was that, and so many of them missed.
    None { tries: u32, misses: u32, ahead_us: u64 },
    /// In microseconds.
    Apart(Least),
}

impl Distance {
    /// None, at this look-ahead.
    pub(super) fn none(ahead_us: &Least) -> Self {
        Self::None { tries: 0, misses: 0, ahead_us: ahead_us.value() }
    }

    pub(super) fn us(&self) -> u64 {
        match self {
            Self::None { .. } => 0,
            Self::Apart(us) => us.value(),
        }
    }

    /// A batch was put at this distance. Returns whether it missed its place although nothing can
    /// be any longer.
    pub(super) fn tried(&mut self, is_miss: bool, ahead_us: &mut Least) -> bool {
        let (tries, misses, before_us) = match self {
            Self::Apart(us) => return us.fails(is_miss),
            Self::None { tries, misses, ahead_us } => (tries, misses, *ahead_us),
        };
        *tries += 1;
        *misses += u32::from(is_miss);
        let (is_over, most_miss) = (*tries == TRIES, 2 * *misses > TRIES);
        let fails = ahead_us.fails(is_miss);
        if is_over && most_miss {
            ahead_us.set(before_us);
            *self = Self::Apart(ahead_us.clone());
        } else if is_over {
            *self = Self::none(ahead_us);
        }
        fails && !is_over
    }
}
