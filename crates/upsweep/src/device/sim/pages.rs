//! The bytes of one simulated device in sparse pages: memory is used only for what was written.
//!
//! Invariants: an absent page reads as zeros; equal content gives an equal digest, whatever its
//! history.

use std::collections::BTreeMap;

use crate::device::random::{SplitMix64, mix};

/// Bytes of one page.
const PAGE_BYTES: usize = 64 * 1024;

/// Sparse content of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    pages: BTreeMap<u64, Page>,
}

/// A page that was written or discarded.
#[derive(Clone, Debug)]
enum Page {
    /// The random sequence of this seed, until something is written into the page.
    Garbage(u64),
    /// Stored bytes.
    Bytes(Box<[u8]>),
}

impl Page {
    fn bytes(&mut self) -> &mut [u8] {
        if let Self::Garbage(seed) = *self {
            let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
            SplitMix64::new(seed).fill(&mut bytes);
            *self = Self::Bytes(bytes);
        }
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Garbage(_) => unreachable!("just replaced by its bytes"),
        }
    }
}

impl Pages {
    /// Copies the content at `offset` into `into`.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut garbage = Vec::new();
        for_each_page(offset, into.len(), |number, within, range| {
            let target = &mut into[range];
            match self.pages.get(&number) {
                None => target.fill(0),
                Some(Page::Bytes(bytes)) => {
                    target.copy_from_slice(&bytes[within..within + target.len()]);
                }
                Some(Page::Garbage(seed)) => {
                    garbage.resize(PAGE_BYTES, 0);
                    SplitMix64::new(*seed).fill(&mut garbage);
                    target.copy_from_slice(&garbage[within..within + target.len()]);
                }
            }
        });
    }

    /// Replaces the content at `offset` by `bytes`. Zeros on an absent page take no memory.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_each_page(offset, bytes.len(), |number, within, range| {
            let source = &bytes[range];
            let is_zero = || source.iter().all(|byte| *byte == 0);
            if !self.pages.contains_key(&number) && is_zero() {
                return;
            }
            let page = self
                .pages
                .entry(number)
                .or_insert_with(|| Page::Bytes(vec![0; PAGE_BYTES].into_boxed_slice()));
            page.bytes()[within..within + source.len()].copy_from_slice(source);
        });
    }

    /// Gives the range arbitrary content: at random, each page becomes garbage or zeros or stays
    /// unchanged. Real devices do all three after a discard.
    pub(super) fn discard(&mut self, offset: u64, bytes: u64, random: &mut SplitMix64) {
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let number = at / PAGE_BYTES as u64;
            let page_end = ((number + 1) * PAGE_BYTES as u64).min(end);
            let whole = page_end - at == PAGE_BYTES as u64;
            let seed = random.next();
            match (random.below(4), whole) {
                (0, _) => {}
                (1, true) => {
                    self.pages.remove(&number);
                }
                (1, false) => self.write(at, &vec![0; (page_end - at) as usize]),
                (_, true) => {
                    self.pages.insert(number, Page::Garbage(seed));
                }
                (_, false) => {
                    let mut garbage = vec![0; (page_end - at) as usize];
                    SplitMix64::new(seed).fill(&mut garbage);
                    self.write(at, &garbage);
                }
            }
            at = page_end;
        }
    }

    /// A hash of the content, independent of its representation. Cost: reads every page that was
    /// ever written.
    pub(super) fn digest(&self) -> u64 {
        let mut digest = 0x7570_7377_6565_7021_u64;
        let mut buffer = vec![0; PAGE_BYTES];
        for &number in self.pages.keys() {
            self.read(number * PAGE_BYTES as u64, &mut buffer);
            if buffer.iter().all(|byte| *byte == 0) {
                continue;
            }
            digest = mix(digest ^ number);
            for word in buffer.chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into().expect("a chunk of eight bytes"));
                digest = mix(digest ^ word).wrapping_add(word);
            }
        }
        digest
    }
}

/// Calls `each(page number, offset within the page, range within the caller's bytes)` for every
/// page that `len` bytes at `offset` touch.
fn for_each_page(
    offset: u64,
    len: usize,
    mut each: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let count = (PAGE_BYTES - within).min(len - done);
        each(at / PAGE_BYTES as u64, within, done..done + count);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_memory_on_an_absent_page_and_replace_what_is_on_another() {
        let mut pages = Pages::default();
        pages.write(100, &vec![0; 2 * PAGE_BYTES]);
        assert!(pages.pages.is_empty());
        pages.write(100, &[7; 4]);
        pages.write(101, &[0; 2]);
        let mut read = [1; 6];
        pages.read(99, &mut read);
        assert_eq!(read, [0, 7, 0, 0, 7, 0]);
    }
}
