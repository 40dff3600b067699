//! The target size of blocks.

/// Part of its limit up to which the directory may fill when blocks are made smaller again.
const SHRINK_PART: f64 = 0.75;
/// Average fill of blocks that result from splits.
const BLOCK_FILL: f64 = 0.7;
/// Approximate memory of the directory per block, in bytes.
const ENTRY_BYTES: u64 = 170;

/// The range of block sizes: as small as the store's setting, which favours queries, unless the
/// directory, which has an entry for each block, would leave updates too little memory.
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
    /// The new target size of blocks, given the present one, `now`: the least, times a power of
    /// two. Making blocks smaller again requires more room than keeping their size, so that the
    /// answer does not oscillate.
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

    /// The target size at which this many bytes of full blocks take at most the memory allowed for
    /// the directory, if there is one.
    #[must_use]
    pub fn target_for(&self, image_bytes: u64) -> u32 {
        let blocks = |target: u32| image_bytes / u64::from(target.max(1));
        self.grown(self.least, |target| blocks(target) as f64 * ENTRY_BYTES as f64)
    }

    /// The first target from `now` up at which the directory, of `expected` bytes, is within its
    /// limit; the largest if none.
    fn grown(&self, now: u32, expected: impl Fn(u32) -> f64) -> u32 {
        let mut target = now.max(1);
        while expected(target) > self.directory_bytes as f64 && target <= self.most / 2 {
            target *= 2;
        }
        target
    }
}

/// The memory of the directory, and its content.
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
    /// Memory that it will take when all blocks have this target size.
    fn expected_bytes(&self, target: u32) -> f64 {
        let blocks = self.image_bytes as f64 / (BLOCK_FILL * f64::from(target));
        blocks * self.memory_bytes as f64 / self.blocks.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
