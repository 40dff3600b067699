//! The bytes that wait to be sent.
//!
//! Headers are written into short buffers, several into one; data of the owner stay where they are
//! and go out from there. Zeros are not stored. `bytes` is always the sum of what all segments have
//! left to send.

use std::collections::VecDeque;

/// A header goes into the last buffer as long as that is shorter.
const HEADERS_BYTES_MAX: usize = 4096;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

enum Segment<B> {
    Headers(Vec<u8>),
    Data(B),
    Zeros(usize),
}

impl<B: AsRef<[u8]>> Segment<B> {
    fn len(&self) -> usize {
        match self {
            Self::Headers(bytes) => bytes.len(),
            Self::Data(data) => data.as_ref().len(),
            Self::Zeros(count) => *count,
        }
    }

    /// The bytes from `start` on; of zeros, as many as are at hand.
    fn from(&self, start: usize) -> &[u8] {
        match self {
            Self::Headers(bytes) => &bytes[start..],
            Self::Data(data) => &data.as_ref()[start..],
            Self::Zeros(count) => &ZEROS[..(count - start).min(ZEROS.len())],
        }
    }
}

/// A queue of bytes.
pub(crate) struct Output<B> {
    segments: VecDeque<Segment<B>>,
    /// How much of the first segment is sent.
    sent: usize,
    bytes: u64,
}

impl<B: AsRef<[u8]>> Output<B> {
    pub(crate) fn new() -> Self {
        Self { segments: VecDeque::new(), sent: 0, bytes: 0 }
    }

    /// How many bytes wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends what `write` appends to its buffer.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.segments.back() {
            Some(Segment::Headers(bytes)) if bytes.len() < HEADERS_BYTES_MAX => {}
            _ => self.segments.push_back(Segment::Headers(Vec::new())),
        }
        let Some(Segment::Headers(bytes)) = self.segments.back_mut() else {
            unreachable!("the last segment has headers")
        };
        let before = bytes.len();
        write(bytes);
        self.bytes += (bytes.len() - before) as u64;
    }

    /// Appends data, without copying them.
    pub(crate) fn put_data(&mut self, data: B) {
        self.push(Segment::Data(data));
    }

    /// Appends zeros.
    pub(crate) fn put_zeros(&mut self, count: usize) {
        self.push(Segment::Zeros(count));
    }

    fn push(&mut self, segment: Segment<B>) {
        self.bytes += segment.len() as u64;
        if segment.len() > 0 {
            self.segments.push_back(segment);
        }
    }

    /// What waits, in order. Of a long range of zeros there is only the beginning, and nothing
    /// behind it.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.sent;
        let mut is_cut = false;
        self.segments.iter().map_while(move |segment| {
            if is_cut {
                return None;
            }
            let slice = segment.from(sent);
            is_cut = sent + slice.len() < segment.len();
            sent = 0;
            Some(slice)
        })
    }

    /// Forgets the first bytes, at most as many as wait, and drops the data that are sent.
    pub(crate) fn consume(&mut self, count: u64) {
        let mut left = count.min(self.bytes);
        self.bytes -= left;
        while let Some(segment) = self.segments.front() {
            let rest = (segment.len() - self.sent) as u64;
            if left < rest {
                // Below the length of a segment.
                self.sent += left as usize;
                return;
            }
            left -= rest;
            self.sent = 0;
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(output: &Output<Vec<u8>>) -> Vec<u8> {
        output.slices().flatten().copied().collect()
    }

    #[test]
    fn what_is_put_is_consumed_in_order_and_any_steps() {
        for step in (1..100).step_by(3) {
            let mut output = Output::new();
            output.put(|bytes| bytes.extend(b"head"));
            output.put_data(b"data".to_vec());
            output.put_data(Vec::new());
            output.put_zeros(100_000);
            output.put(|bytes| bytes.extend(b"tail"));
            output.put(|bytes| bytes.extend(b"end"));
            let expected = [b"headdata", &[0; 100_000][..], b"tailend"].concat();
            assert_eq!(output.bytes(), expected.len() as u64);
            let mut sent = Vec::new();
            while output.bytes() > 0 {
                let offered = all(&output);
                assert!(!offered.is_empty());
                let count = offered.len().min(step * 1111);
                sent.extend_from_slice(&offered[..count]);
                output.consume(count as u64);
            }
            assert!(sent == expected && output.segments.is_empty());
        }
    }

    #[test]
    fn headers_share_buffers_of_bounded_length() {
        let mut output: Output<Vec<u8>> = Output::new();
        for _ in 0..1000 {
            output.put(|bytes| bytes.extend([1; 16]));
        }
        assert_eq!(output.slices().count(), 4);
        output.consume(u64::MAX);
        assert_eq!((output.bytes(), output.slices().count()), (0, 0));
    }
}
