//! Sequences of one to five words of a text file, read again and again from a place of one's own.
//!
//! Words are the runs of letters and digits, in lower case. A sequence is its words with a space
//! between them, cut at the length of the longest text; a byte in front makes it sort behind all
//! other keys.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use crate::engine::Key;
use crate::failure::Failure;

/// Words of the longest sequence.
const WORDS_MAX: usize = 5;
/// Sorts behind all other keys.
const FRONT: u8 = 0xff;

/// The sequences of a text, without end.
pub(crate) struct Ngrams {
    file: BufReader<File>,
    line: Vec<u8>,
    /// The last words, the newest at the end.
    words: VecDeque<Vec<u8>>,
    ready: Vec<Key>,
}

impl Ngrams {
    /// From the given part (0 to below 1) of the file on.
    ///
    /// # Errors
    /// [`Failure::File`] if it cannot be read.
    pub(crate) fn open(path: &Path, part: f64) -> Result<Self, Failure> {
        let open = || {
            let mut file = File::open(path)?;
            let start = (file.metadata()?.len() as f64 * part) as u64;
            file.seek(SeekFrom::Start(start))?;
            Ok(BufReader::new(file))
        };
        let file = open().map_err(|error| Failure::file(path, error))?;
        Ok(Self { file, line: Vec::new(), words: VecDeque::new(), ready: Vec::new() })
    }

    /// The next sequence. At the end of the file it goes on at the start.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the text has no words or cannot be read.
    pub(crate) fn next(&mut self) -> Result<Key, Failure> {
        let mut starts = 0;
        loop {
            if let Some(key) = self.ready.pop() {
                return Ok(key);
            }
            let refused = |error| Failure::Refused(format!("the text cannot be read: {error}"));
            self.line.clear();
            if self.file.read_until(b'\n', &mut self.line).map_err(refused)? == 0 {
                self.file.rewind().map_err(refused)?;
                starts += 1;
                if starts > 2 {
                    return Err(Failure::Refused("the text has no words".to_owned()));
                }
            }
            self.take_line();
        }
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_separator = |byte: &u8| !byte.is_ascii_alphanumeric() && byte.is_ascii();
        for word in line.split(is_separator).filter(|word| !word.is_empty()) {
            self.words.push_back(word.to_ascii_lowercase());
            if self.words.len() > WORDS_MAX {
                self.words.pop_front();
            }
            for first in 0..self.words.len() {
                let mut text = vec![FRONT];
                for (place, word) in self.words.iter().skip(first).enumerate() {
                    if place > 0 {
                        text.push(b' ');
                    }
                    text.extend_from_slice(word);
                }
                self.ready.push(Key::text(&text));
            }
        }
        self.line = line;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;

    use super::*;

    #[test]
    fn sequences_of_one_to_five_words_come_once_for_each_place() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        write!(file, "One, two\nthree-four. FIVE six").expect("written");
        let mut ngrams = Ngrams::open(file.path(), 0.0).expect("opened");
        let mut found: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for _ in 0..1 + 2 + 3 + 4 + 5 + 5 {
            let key = ngrams.next().expect("a sequence");
            *found.entry(key.to_vec()[1..].to_vec()).or_default() += 1;
        }
        assert_eq!(found.len(), 20);
        for text in ["six", "one two", "one two three four five", "two three four five six"] {
            assert_eq!(found.get(text.as_bytes()), Some(&1), "{text}");
        }
    }

    #[test]
    fn a_text_without_words_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut ngrams = Ngrams::open(file.path(), 0.5).expect("opened");
        assert!(ngrams.next().is_err());
    }
}
