//! The bytes of a block of an array, and the keys that name cells and blocks.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | kind of the cells: 0 bytes, 1 `u8`, 2 `u16`, 3 `u32`, 4 `u64`, 5 `i64`, 6 `f64` |
//! | 1 | 0 |
//! | 2..4 | bytes of a cell |
//! | 4..8 | number of cells that are not zero, at least 1 |
//! | 8.. | a bit per cell, low bits first: set if it is not zero; then zeros to a whole byte |
//! | then | the cells that are not zero, in the order of their indices |
//!
//! All integers are little-endian. A block whose cells are all zero has an empty body. So equal
//! cells give equal bytes.
//!
//! The key of a record is the index of its cell, the key of a block its number, both as 8 bytes,
//! big-endian, so that blocks are in the order of their cells. A block has as many cells as fit
//! into an image of 16 KiB when none of them is zero. A power of two would waste a unit of 4 KiB,
//! because header and bits would push a full block just over its bound. Larger blocks would cost
//! more to read for one cell, smaller ones more memory in the directory.
//!
//! A body grows by no more than one cell for each cell that is set, and the first cell needs one
//! unit. This is what the engine reserves at acceptance, so a sweep never lacks room for numbers.
//!
//! Invariants: readers return an error, or wrong content, but never panic, on any bytes.

use super::cell_format::CellKind;

/// Bits of an index.
pub const INDEX_BITS: u32 = 48;
/// Largest index of a cell.
pub const INDEX_MAX: u64 = (1 << INDEX_BITS) - 1;

/// Maximum number of bytes of the image of a full block.
const IMAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of an image besides its body: the envelope, and the block key.
const ENVELOPE_BYTES: usize = 48 + 8;
const HEADER_BYTES: usize = 8;

/// The block for updates whose key is not an index; it never has a body.
const NO_BLOCK: u64 = u64::MAX;

/// The key of a cell: its index.
#[must_use]
pub fn key_of(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

/// The index of this key, if it is one, at most [`INDEX_MAX`].
#[must_use]
pub fn index_of(key: &[u8]) -> Option<u64> {
    let index = u64::from_be_bytes(key.try_into().ok()?);
    (index <= INDEX_MAX).then_some(index)
}

/// The block key for a block number.
#[must_use]
pub fn block_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The position of a block in an array: its number, and the cells that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Its number.
    pub number: u64,
    /// Index of its first cell.
    pub first: u64,
    /// Number of its cells; less than usual in the last block.
    pub cells: usize,
}

impl CellKind {
    /// Cells of a block.
    #[must_use]
    pub const fn cells_per_block(self) -> usize {
        // A cell takes its bytes and a bit. Its bytes are whole, so that the bits fit too when
        // they are rounded up to a byte.
        (IMAGE_BYTES_MAX - ENVELOPE_BYTES - HEADER_BYTES) * 8 / (self.cell_bytes() * 8 + 1)
    }

    /// Number of the block that holds a cell.
    #[must_use]
    pub const fn block_of(self, index: u64) -> u64 {
        index / self.cells_per_block() as u64
    }

    /// Block key for the key of a record. Keys that are not an index have a separate block, which
    /// refuses them.
    #[must_use]
    pub fn position_of(self, key: &[u8]) -> [u8; 8] {
        block_key(index_of(key).map_or(NO_BLOCK, |index| self.block_of(index)))
    }

    /// The position of the block with this block key; `None` if it has no cells.
    #[must_use]
    pub fn place_of(self, block_key: &[u8]) -> Option<BlockPlace> {
        let number = u64::from_be_bytes(block_key.try_into().ok()?);
        let cells = self.cells_per_block() as u64;
        let first = number.checked_mul(cells).filter(|first| *first <= INDEX_MAX)?;
        Some(BlockPlace { number, first, cells: cells.min(INDEX_MAX - first + 1) as usize })
    }

    const fn bitmap_bytes(self) -> usize {
        self.cells_per_block().div_ceil(8)
    }
}

/// The body of a block, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    kind: CellKind,
    /// Empty if the body is.
    bitmap: &'a [u8],
    /// The nonzero cells.
    cells: &'a [u8],
}

impl<'a> Body<'a> {
    /// Checks header, lengths and bits. Cost: a pass over the bits.
    ///
    /// # Errors
    /// A description of the damage to the body: report it as damage.
    pub fn parse(kind: CellKind, body: &'a [u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self { kind, bitmap: &[], cells: &[] });
        }
        let length = body.len();
        let short = || format!("array block of {length} bytes is shorter than its header and bits");
        let (header, rest) = body.split_at_checked(HEADER_BYTES).ok_or_else(short)?;
        let (bitmap, cells) = rest.split_at_checked(kind.bitmap_bytes()).ok_or_else(short)?;
        let count = count_bits(bitmap);
        if *header != header_bytes(kind, count) || count == 0 {
            return Err(format!("header {header:?} for {count} cells of {kind}"));
        }
        if cells.len() != count * kind.cell_bytes() {
            let found = cells.len();
            return Err(format!("{found} bytes of cells, for {count} cells of {kind}"));
        }
        if (kind.cells_per_block()..bitmap.len() * 8).any(|offset| has_bit(bitmap, offset)) {
            return Err("bits are set behind the last cell".to_owned());
        }
        Ok(Self { kind, bitmap, cells })
    }

    /// Number of nonzero cells.
    #[must_use]
    pub fn count(&self) -> usize {
        self.cells.len() / self.kind.cell_bytes()
    }

    /// The cell at `offset` in the block; `None` if it is zero. Cost: a pass over the bits.
    #[must_use]
    pub fn get(&self, offset: usize) -> Option<&'a [u8]> {
        self.find(offset).1
    }

    /// Number of nonzero cells below `offset`, and the cell at `offset` unless it is zero.
    fn find(&self, offset: usize) -> (usize, Option<&'a [u8]>) {
        let (whole, rest) = self.bitmap.split_at(self.bitmap.len().min(offset / 8));
        let below = rest.first().map_or(0, |byte| byte & ((1 << (offset % 8)) - 1));
        let rank = count_bits(whole) + below.count_ones() as usize;
        let is_set = has_bit(self.bitmap, offset);
        let cell = self.cells.chunks_exact(self.kind.cell_bytes()).nth(rank);
        (rank, cell.filter(|_| is_set))
    }

    /// Offsets and bytes of the nonzero cells, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let bits = |(at, byte): (usize, &'a u8)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        };
        self.bitmap.iter().enumerate().flat_map(bits).zip(self.packed())
    }

    /// Whether the cell at `offset` is not zero.
    pub(super) fn is_set(&self, offset: usize) -> bool {
        has_bit(self.bitmap, offset)
    }

    /// The bytes of the nonzero cells.
    pub(super) fn packed(&self) -> std::slice::ChunksExact<'a, u8> {
        self.cells.chunks_exact(self.kind.cell_bytes())
    }
}

fn has_bit(bitmap: &[u8], offset: usize) -> bool {
    bitmap.get(offset / 8).is_some_and(|byte| byte >> (offset % 8) & 1 == 1)
}

fn count_bits(bitmap: &[u8]) -> usize {
    bitmap.iter().map(|byte| byte.count_ones() as usize).sum()
}

fn header_bytes(kind: CellKind, count: usize) -> [u8; HEADER_BYTES] {
    let [low, high] = (kind.cell_bytes() as u16).to_le_bytes();
    let count = (count as u32).to_le_bytes();
    [kind.number(), 0, low, high, count[0], count[1], count[2], count[3]]
}

/// Makes a new body from an old one: cells are set in offset order, and the stretches between them
/// copied.
#[derive(Debug)]
pub struct BodyEditor<'a> {
    old: Body<'a>,
    /// Number of old cells already handled.
    done: usize,
    bitmap: Vec<u8>,
    cells: Vec<u8>,
}

impl<'a> BodyEditor<'a> {
    /// An editor for `old`, with room for `more` additional cells.
    #[must_use]
    pub fn new(old: Body<'a>, more: usize) -> Self {
        let mut bitmap = vec![0; old.kind.bitmap_bytes()];
        bitmap[..old.bitmap.len()].copy_from_slice(old.bitmap);
        let room = old.cells.len() + more * old.kind.cell_bytes();
        Self { old, done: 0, bitmap, cells: Vec::with_capacity(room) }
    }

    /// Sets the cell at `offset` to these bytes. Offsets ascend from call to call.
    pub fn set(&mut self, offset: usize, cell: &[u8]) {
        debug_assert_eq!(cell.len(), self.old.kind.cell_bytes(), "a cell has its size");
        let (rank, old) = self.old.find(offset);
        self.copy(rank);
        self.done = rank + usize::from(old.is_some());
        let (byte, bit) = (&mut self.bitmap[offset / 8], 1 << (offset % 8));
        if cell.iter().all(|byte| *byte == 0) {
            *byte &= !bit;
        } else {
            *byte |= bit;
            self.cells.extend_from_slice(cell);
        }
    }

    /// Copies old cells up to the one with this rank.
    fn copy(&mut self, rank: usize) {
        let bytes = self.old.kind.cell_bytes();
        let stretch = self.old.cells.get(self.done * bytes..rank * bytes);
        self.cells.extend_from_slice(stretch.unwrap_or_default());
    }

    /// The new body, and the number of its nonzero cells.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, usize) {
        self.copy(self.old.count());
        let count = self.cells.len() / self.old.kind.cell_bytes();
        if count == 0 {
            return (Vec::new(), 0);
        }
        let header = header_bytes(self.old.kind, count);
        ([&header[..], &self.bitmap, &self.cells].concat(), count)
    }
}
