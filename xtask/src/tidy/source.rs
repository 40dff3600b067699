//! One Rust file as a flat list of tokens with their lines.
//!
//! A group becomes its opening and its closing word, and each opening word knows where its group
//! closes. That is all the structure the rules need, and it holds inside macros as well. Comments
//! are gone, apart from documentation, which the tokenizer turns into attributes with a string.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::{Rule, Violation};

/// What a [`Word`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    Punct,
    Literal,
    Open,
    Close,
}

/// One token.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// Its text; two colons make one word.
    pub(crate) text: String,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// What it is.
    pub(crate) kind: Kind,
    /// For an opening word the position of its closing word; else its own position.
    pub(crate) close: usize,
}

/// A Rust file.
pub(crate) struct Source<'a> {
    /// Its path in the tree.
    pub(crate) path: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
    /// Its tokens.
    pub(crate) words: Vec<Word>,
    /// Whether all of it is test code.
    pub(crate) is_test: bool,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl<'a> Source<'a> {
    /// Tokenizes a file; a file that is no Rust is a violation.
    pub(crate) fn parse(path: &'a str, text: &'a str) -> Result<Self, Violation> {
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            let line = error.span().start().line;
            Violation::new(path, line, Rule::Parse, format!("{error}; is this Rust?"))
        })?;
        let mut words = Vec::new();
        flatten(tokens, &mut words);
        let is_test = path.ends_with("/tests.rs")
            || path.split('/').any(|part| part == "tests" || part == "benches");
        let test_lines = test_lines(&words);
        Ok(Self { path, text, words, is_test, test_lines })
    }

    /// Whether a line, from 1, is test code.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Whether the word at `index` is this identifier, keyword or punctuation, not a literal.
    pub(crate) fn is(&self, index: usize, text: &str) -> bool {
        is(&self.words, index, text)
    }

    /// The identifiers, keywords included, with their lines.
    pub(crate) fn idents(&self) -> impl Iterator<Item = (&str, usize)> {
        let idents = self.words.iter().filter(|word| word.kind == Kind::Ident);
        idents.map(|word| (word.text.as_str(), word.line))
    }
}

fn is(words: &[Word], index: usize, text: &str) -> bool {
    words.get(index).is_some_and(|word| word.text == text && word.kind != Kind::Literal)
}

fn flatten(tokens: TokenStream, words: &mut Vec<Word>) {
    let mut after_colon = false;
    for token in tokens {
        let line = token.span().start().line;
        let mut push = |text: String, line, kind| {
            words.push(Word { text, line, kind, close: words.len() });
        };
        let mut joint_colon = false;
        match token {
            TokenTree::Ident(ident) => push(ident.to_string(), line, Kind::Ident),
            TokenTree::Literal(literal) => push(literal.to_string(), line, Kind::Literal),
            TokenTree::Punct(punct) if after_colon && punct.as_char() == ':' => {
                words.last_mut().expect("a colon came before").text.push(':');
            }
            TokenTree::Punct(punct) => {
                joint_colon = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                push(punct.to_string(), line, Kind::Punct);
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_owned(), line, Kind::Open);
                let opened = words.len() - 1;
                flatten(group.stream(), words);
                words[opened].close = words.len();
                let (line, close_at) = (group.span_close().start().line, words.len());
                words.push(Word {
                    text: close.to_owned(),
                    line,
                    kind: Kind::Close,
                    close: close_at,
                });
            }
        }
        after_colon = joint_colon;
    }
}

/// The lines of all items under a `#[cfg(test)]`.
fn test_lines(words: &[Word]) -> Vec<RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    for start in 0..words.len() {
        if is_test_attribute(words, start) {
            let end = item_end(words, words[start + 1].close + 1);
            ranges.push(words[start].line..=words[end].line);
        }
    }
    ranges
}

/// Whether an attribute begins here that compiles its item for tests only.
fn is_test_attribute(words: &[Word], index: usize) -> bool {
    if !(is(words, index, "#") && is(words, index + 1, "[") && is(words, index + 2, "cfg")) {
        return false;
    }
    let inside = &words[index + 3..words[index + 1].close];
    let has = |text: &str| (0..inside.len()).any(|at| is(inside, at, text));
    has("test") && !has("not") && !has("any")
}

/// The last word of the item that begins at `index`, further attributes included.
fn item_end(words: &[Word], mut index: usize) -> usize {
    let last = words.len() - 1;
    while is(words, index, "#") && is(words, index + 1, "[") {
        index = words[index + 1].close + 1;
    }
    // A brace ends these no earlier than their semicolon: `use a::{b, c};`.
    let mut wants_semicolon = false;
    let mut is_item = false;
    while index < last {
        let word = &words[index];
        match (word.kind, word.text.as_str()) {
            (Kind::Ident, "use" | "static" | "type" | "const" | "let") if !is_item => {
                (wants_semicolon, is_item) = (true, true);
            }
            (Kind::Ident, "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "macro_rules") => {
                (wants_semicolon, is_item) = (false, true);
            }
            (Kind::Punct, ";") => return index,
            (Kind::Punct, ",") if !is_item => return index,
            (Kind::Open, "{") if !wants_semicolon => return word.close,
            (Kind::Open, _) => index = word.close,
            (Kind::Close, _) => return index,
            _ => {}
        }
        index += 1;
    }
    last
}
