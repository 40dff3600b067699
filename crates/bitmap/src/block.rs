//! The block format of bitmaps, and how updates are applied to a block.
//!
//! | bytes | content |
//! |---|---|
//! | first | a bit for each word of the block, low bits first: set if the word has members |
//! | then | the words that have members, 8 bytes each, little-endian |
//!
//! A block without members has an empty body, so equal sets give equal bytes. The key of a record
//! is the number of its word, and the key of a block is the number of the block, both as 8 bytes,
//! big-endian, so that blocks are in the order of their integers. To modifiers a word is a value of
//! kind `U64`, absent if it has no members.
//!
//! A word adds 8 bytes to a body, fewer than any update takes in a queue, and the first word of a
//! block needs one unit of 4 KiB. So a sweep always has room for the updates that were accepted.
//!
//! Invariants: readers return an error, but never panic, on any bytes.

use std::borrow::Cow;
use std::sync::Arc;

use upsweep::layers::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Piece, Refused, Routing, UpdateRef,
};
use upsweep::layers::engine::registry::Modifiers;
use upsweep::layers::structures::modifiers::{Resolved, resolve};
use upsweep::{ValueKind, ValueRef};

/// Binary logarithm of the minimum number of integers in a block: 8 words.
pub const BITS_MIN: u32 = 9;
/// Binary logarithm of the maximum number of integers in a block: 1024 words, or 8 KiB.
pub const BITS_MAX: u32 = 16;
/// Binary logarithm of the default number of integers in a block: 512 words, or 4 KiB.
pub const BITS_DEFAULT: u32 = 15;

/// Binary logarithm of the number of integers in a word.
const WORD_BITS: u32 = 6;
const WORD_BYTES: usize = 8;
/// Number of words in the whole range of integers.
const WORDS: u64 = 1 << (u64::BITS - WORD_BITS);
/// The block for updates with an invalid key; it never has a body.
const NO_BLOCK: u64 = u64::MAX;

/// Blocks of a bitmap. Name: `bitmap`; its parameter is the binary logarithm of the number of
/// integers in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitmapFormat {
    bits: u32,
}

impl Default for BitmapFormat {
    fn default() -> Self {
        Self { bits: BITS_DEFAULT }
    }
}

/// The bit of a member in its word.
pub(crate) fn bit_of(member: u64) -> u64 {
    1 << (member % u64::from(u64::BITS))
}

/// The key of the word that contains this member.
pub(crate) fn key_of(member: u64) -> [u8; 8] {
    (member >> WORD_BITS).to_be_bytes()
}

/// The number of the word with this key; `None` if the key is invalid.
pub(crate) fn word_of_key(key: &[u8]) -> Option<u64> {
    let word = u64::from_be_bytes(key.try_into().ok()?);
    (word < WORDS).then_some(word)
}

/// Decodes a value as a word.
///
/// # Errors
/// Why the value is not a word.
pub(crate) fn word_of_value(value: ValueRef<'_>) -> Result<u64, String> {
    let word = <[u8; WORD_BYTES]>::try_from(value.bytes).map(u64::from_le_bytes);
    let word = word.ok().filter(|_| value.kind == ValueKind::U64);
    word.ok_or_else(|| format!("a value of kind {:?} is not a bitmap word", value.kind))
}

/// The members of a word, in order.
pub(crate) fn members(word: u64, bits: u64) -> impl Iterator<Item = u64> {
    let first = word << WORD_BITS;
    let set = (0..u64::from(u64::BITS)).filter(move |bit| bits >> bit & 1 == 1);
    set.map(move |bit| first + bit)
}

impl BitmapFormat {
    /// The format with these parameters.
    ///
    /// # Errors
    /// The valid parameters, as text, if these are not.
    pub(crate) fn with_parameters(parameters: &str) -> Result<Self, String> {
        let bits = parameters.parse().ok().filter(|bits| (BITS_MIN..=BITS_MAX).contains(bits));
        let bits = bits.filter(|bits: &u32| bits.to_string() == parameters);
        let bits = bits.ok_or_else(|| {
            format!("the binary logarithm of the integers in a block is {BITS_MIN} to {BITS_MAX}")
        })?;
        Ok(Self { bits })
    }

    fn words(self) -> usize {
        1 << (self.bits - WORD_BITS)
    }

    /// Number of the block that contains this member.
    pub(crate) fn block_of(self, member: u64) -> u64 {
        member >> self.bits
    }

    /// Key of the block that contains this record; that of [`NO_BLOCK`] for an invalid key.
    fn position_of(self, key: &[u8]) -> [u8; 8] {
        let block = word_of_key(key).map(|word| word >> (self.bits - WORD_BITS));
        block.unwrap_or(NO_BLOCK).to_be_bytes()
    }

    /// Number of the first word of the block with this key; `None` for an invalid key.
    fn first_word(self, block_key: &[u8]) -> Option<u64> {
        let block = u64::from_be_bytes(block_key.try_into().ok()?);
        let word = block.checked_mul(self.words() as u64)?;
        (word < WORDS).then_some(word)
    }

    /// The words of a body that have members, with their positions in the block.
    ///
    /// # Errors
    /// A description of the damage to the body.
    fn words_of(self, body: &[u8]) -> Result<Vec<(usize, u64)>, String> {
        if body.is_empty() {
            return Ok(Vec::new());
        }
        let malformed = || format!("{} bytes that are not a bitmap block", body.len());
        let (set, packed) = body.split_at_checked(self.words() / 8).ok_or_else(malformed)?;
        let is_set = |place: &usize| set[place / 8] >> (place % 8) & 1 == 1;
        let places: Vec<usize> = (0..self.words()).filter(is_set).collect();
        let (words, rest) = packed.as_chunks::<WORD_BYTES>();
        if places.is_empty() || places.len() != words.len() || !rest.is_empty() {
            return Err(malformed());
        }
        let words = words.iter().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(places.into_iter().zip(words).collect())
    }

    /// All words of a body.
    fn all_words(self, body: &[u8]) -> Result<Vec<u64>, String> {
        let mut all = vec![0; self.words()];
        for (place, word) in self.words_of(body)? {
            all[place] = word;
        }
        Ok(all)
    }

    /// The words of a block that have members, with their numbers.
    ///
    /// # Errors
    /// A description of the damage to the body.
    pub(crate) fn numbered(self, block_key: &[u8], body: &[u8]) -> Result<Vec<(u64, u64)>, String> {
        let Some(first) = self.first_word(block_key) else { return Ok(Vec::new()) };
        let words = self.words_of(body)?.into_iter();
        Ok(words.map(|(place, word)| (first + place as u64, word)).collect())
    }

    /// One word of a block with `updates` applied, which are all for this word and in order.
    /// Refused updates change nothing: the sweep will report them.
    ///
    /// # Errors
    /// A description of the damage to the body.
    pub(crate) fn word(
        self,
        body: Option<&[u8]>,
        modifiers: &Modifiers,
        key: &[u8],
        updates: &[UpdateRef<'_>],
    ) -> Result<u64, String> {
        let words = self.all_words(body.unwrap_or_default())?;
        let mut word = self.place_of(key).map_or(0, |place| words[place]);
        update(&mut word, modifiers, updates, &mut |_, _| {});
        Ok(word)
    }

    /// Position of a word in its block; `None` for an invalid key.
    fn place_of(self, key: &[u8]) -> Option<usize> {
        Some((word_of_key(key)? % self.words() as u64) as usize)
    }
}

/// Applies updates, all of one word and in order. Calls `on_refused` with the position and the
/// reason of each refused update.
fn update(
    word: &mut u64,
    modifiers: &Modifiers,
    updates: &[UpdateRef<'_>],
    on_refused: &mut dyn FnMut(usize, String),
) {
    for (position, one) in updates.iter().enumerate() {
        let bytes = word.to_le_bytes();
        let value = ValueRef { kind: ValueKind::U64, bytes: &bytes };
        let current = (*word != 0).then_some(value);
        let mut refuse = |_, reason| on_refused(position, reason);
        match resolve(modifiers, one.key, current, std::slice::from_ref(one), &mut refuse) {
            Resolved::Unchanged => {}
            Resolved::Delete => *word = 0,
            Resolved::Put(kind, bytes) => match word_of_value(ValueRef { kind, bytes: &bytes }) {
                Ok(after) => *word = after,
                Err(reason) => on_refused(position, reason),
            },
        }
    }
}

fn encode(words: &[u64]) -> Piece {
    let mut set = vec![0; words.len() / 8];
    let mut packed = Vec::new();
    for (place, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        set[place / 8] |= 1 << (place % 8);
        packed.extend_from_slice(&word.to_le_bytes());
    }
    let records = (packed.len() / WORD_BYTES) as u32;
    let body = if records == 0 { Vec::new() } else { [set, packed].concat() };
    Piece { key: None, body, records }
}

impl BlockFormat for BitmapFormat {
    fn name(&self) -> &'static str {
        "bitmap"
    }

    fn routing(&self) -> Routing {
        Routing::Exact
    }

    fn configure(&self, parameters: &str) -> Result<Arc<dyn BlockFormat>, String> {
        Ok(Arc::new(Self::with_parameters(parameters)?))
    }

    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Owned(self.position_of(key).to_vec())
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let body = input.body.unwrap_or_default();
        let mut words = self.all_words(body).map_err(ApplyError::Corrupt)?;
        let mut refused = Vec::new();
        let mut first = 0;
        for group in input.updates.chunk_by(|left, right| left.key == right.key) {
            let mut refuse =
                |position, reason| refused.push(Refused { index: first + position, reason });
            match self.place_of(group[0].key) {
                Some(place) => update(&mut words[place], input.modifiers, group, &mut refuse),
                None => {
                    let reason = "a bitmap key has 8 bytes, big-endian, and is below 2^58";
                    (0..group.len()).for_each(|position| refuse(position, reason.to_owned()));
                }
            }
            first += group.len();
        }
        Ok(Applied { pieces: vec![encode(&words)], values: Vec::new(), refused })
    }

    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        for (number, word) in self.numbered(low, body)? {
            let bytes = word.to_le_bytes();
            visit(&number.to_be_bytes(), ValueRef { kind: ValueKind::U64, bytes: &bytes });
        }
        Ok(())
    }

    fn check(&self, body: &[u8], low: &[u8], _high: Option<&[u8]>) -> Result<Checked, String> {
        let words = self.words_of(body)?;
        if self.first_word(low).is_none() && !words.is_empty() {
            return Err("a block outside the range of integers has members".to_owned());
        }
        if let Some((place, _)) = words.iter().find(|(_, word)| *word == 0) {
            return Err(format!("word {place} is stored but has no members"));
        }
        Ok(Checked { records: words.len() as u32, values: Vec::new() })
    }
}
