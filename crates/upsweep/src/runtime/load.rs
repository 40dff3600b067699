//! What a bulk load hands over, and what fits into a block.

use crate::engine::Config;
use crate::engine::format::image_format;

/// One block that a bulk load writes as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedBlock {
    /// Its block key. That of the first block is empty; each is above the one before.
    pub key: Vec<u8>,
    /// Its body, in the layout of the space's format.
    pub body: Vec<u8>,
    /// Records in the body.
    pub records: u32,
    /// Bodies of the large values to which the body refers, for the companion space, in the order
    /// of their record keys.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a bulk load has brought in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Records.
    pub records: u64,
    /// Blocks that hold them.
    pub blocks: u64,
    /// Large values, which live outside of these blocks.
    pub values: u64,
    /// Bytes of the bodies of blocks and large values together.
    pub bytes: u64,
}

impl LoadSummary {
    /// Counts a block that was brought in.
    pub fn add(&mut self, block: &LoadedBlock) {
        let large: usize = block.values.iter().map(|(_, body)| body.len()).sum();
        self.records += u64::from(block.records);
        self.blocks += 1;
        self.values += block.values.len() as u64;
        self.bytes += (block.body.len() + large) as u64;
    }
}

/// What fits into a block of a store: the limits that a format is given when it applies updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Target size of a block with its header and key, in bytes.
    pub block_bytes: usize,
    /// Values above this many bytes live outside of their block.
    pub inline_value_bytes_max: usize,
}

impl BlockLimits {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            block_bytes: config.block_bytes as usize,
            inline_value_bytes_max: config.inline_value_bytes_max(),
        }
    }

    /// Longest body of the block with this key, in bytes, unless it holds a single record.
    #[must_use]
    pub fn body_bytes_max(&self, block_key: &[u8]) -> usize {
        let header = image_format::image_bytes(block_key, &[]);
        self.block_bytes.saturating_sub(header).max(self.block_bytes / 2)
    }
}
