//! How large blocks are made.

/// Part of what the directory may have up to which it is filled by making blocks smaller again.
const SHRINK_PART: f64 = 0.75;
/// How full blocks are on average that come from splits.
const BLOCK_FILL: f64 = 0.7;
/// Memory of the directory for a block, in bytes, about.
const ENTRY_BYTES: u64 = 170;

/// How large blocks are made: as small as the store says, which queries like, unless the directory,
/// which has an entry for each, would leave updates too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Least target size of a block, in bytes.
    pub least: u32,
    /// Largest target size.
    pub most: u32,
    /// Memory that the directory may have before blocks are made larger, in bytes.
    pub directory_bytes: u64,
}

impl BlockSizes {
    /// The target size of blocks where it was `now`: the least, times a power of two. To make
    /// blocks smaller again takes more room than to leave them as they are, so that the answer
    /// does not change to and fro.
    pub(in crate::engine) fn target(&self, directory: &DirectorySize, now: u32) -> u32 {
        let expected = |target| directory.expected_bytes(target);
        let mut target = now;
        if directory.memory_bytes > self.directory_bytes {
            target = self.grown(now, expected);
        }
        let room = SHRINK_PART * self.directory_bytes as f64;
        while target > self.least && expected(target / 2) <= room {
            target /= 2;
        }
        target
    }

    /// The target size of blocks with which so many bytes of full ones take what the directory may
    /// have at most, if a target does.
    #[must_use]
    pub fn target_for(&self, image_bytes: u64) -> u32 {
        let blocks = |target: u32| image_bytes / u64::from(target.max(1));
        self.grown(self.least, |target| blocks(target) as f64 * ENTRY_BYTES as f64)
    }

    /// The first target from `now` up with which the directory, whose bytes are `expected` of it,
    /// has what it may have; the largest if none.
    fn grown(&self, now: u32, expected: impl Fn(u32) -> f64) -> u32 {
        let mut target = now.max(1);
        while expected(target) > self.directory_bytes as f64 && target <= self.most / 2 {
            target *= 2;
        }
        target
    }
}

/// What the directory takes, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct DirectorySize {
    /// Number of blocks.
    pub(in crate::engine) blocks: u64,
    /// Bytes of their images.
    pub(in crate::engine) image_bytes: u64,
    /// Memory of the directory.
    pub(in crate::engine) memory_bytes: u64,
}

impl DirectorySize {
    /// Memory that it will take when all blocks have come to this target size.
    fn expected_bytes(&self, target: u32) -> f64 {
        let blocks = self.image_bytes as f64 / (BLOCK_FILL * f64::from(target));
        blocks * self.memory_bytes as f64 / self.blocks.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
