//! //! Keys of blocks, one per block in the directory; short keys take no extra memory.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// The longest key that counts as short, in bytes.
const SHORT_BYTES_MAX: usize = 14;
/// Memory that the allocator adds to the two allocations of a long key, and the pointer between
/// them.
const LONG_OVERHEAD_BYTES: usize = 48;

/// The key of a block, in 16 bytes if it is short.
#[derive(Clone)]
pub struct BlockKey(Form);

#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<Box<[u8]>>),
}

const _: () = assert!(size_of::<BlockKey>() == 16, "a directory has many keys");

impl BlockKey {
    /// Memory beyond the 16 bytes of the value itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Long(bytes) => bytes.len() + LONG_OVERHEAD_BYTES,
        }
    }
}

impl Default for BlockKey {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl From<&[u8]> for BlockKey {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        Self(match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                Form::Short { length: key.len() as u8, bytes }
            }
            None => Form::Long(Box::new(key.into())),
        })
    }
}

impl Deref for BlockKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for BlockKey {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for BlockKey {}

impl PartialOrd for BlockKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BlockKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_come_back() {
        for length in 0..100 {
            let bytes: Vec<u8> = (0..length).collect();
            let key = BlockKey::from(&*bytes);
            assert_eq!(*key, *bytes);
            assert_eq!(*key.clone(), *bytes);
            assert_eq!(key.heap_bytes() > 0, bytes.len() > SHORT_BYTES_MAX);
        }
    }
}
