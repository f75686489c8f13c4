//! Comments of Rust source: where they stand, and what the rules for prose say of them.

use super::persons;
use crate::Finding;
use crate::tree::File;

const COLUMNS_MAX: usize = 100;
const DOC_WORDS_MIN: usize = 4;

/// Sentences that say nothing where they stand alone.
const EMPTY_PHRASES: [&str; 26] = [
    "Both.",
    "How long.",
    "How many.",
    "How.",
    "It.",
    "One.",
    "See the module.",
    "That one.",
    "That.",
    "The other.",
    "The others.",
    "The same.",
    "Them.",
    "These.",
    "They.",
    "This.",
    "Those.",
    "What the server says.",
    "What.",
    "When.",
    "Where.",
    "Whether it is.",
    "Which.",
    "Who.",
    "Whose.",
    "Why.",
];

/// One line of a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    pub line: usize,
    /// From the comment's marker to the end of the line.
    pub text: &'a str,
    /// Whether nothing but spaces stands before it.
    pub fills_line: bool,
}

impl Comment<'_> {
    fn is_doc(&self) -> bool {
        self.text.starts_with("///") && self.fills_line
    }

    /// The text without the marker.
    fn prose(&self) -> &str {
        self.text.trim_start_matches(['/', '!', '*']).trim_end_matches("*/").trim()
    }
}

/// All comments of a source text, line by line. Text in strings is none.
pub(super) fn collect_comments(text: &str) -> Vec<Comment<'_>> {
    let bytes = text.as_bytes();
    let line_starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(offset, _)| offset + 1)).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if text[at..].starts_with("//") => line_end(text, at),
            b'/' if text[at..].starts_with("/*") => block_end(text, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_string_end(text, at).unwrap_or(at + 1),
            b'\'' => quote_end(text, at),
            _ => at + 1,
        };
        if bytes[at] == b'/' && end > at + 1 {
            add_lines(text, at..end, &line_starts, &mut found);
        }
        at = end;
    }
    found
}

fn add_lines<'a>(
    text: &'a str,
    range: std::ops::Range<usize>,
    line_starts: &[usize],
    comments: &mut Vec<Comment<'a>>,
) {
    let first = line_starts.partition_point(|start| *start <= range.start);
    let line_prefix = &text[line_starts[first - 1]..range.start];
    for (offset, line) in text[range].lines().enumerate() {
        comments.push(Comment {
            line: first + offset,
            text: line.trim_start(),
            fills_line: offset > 0 || line_prefix.trim().is_empty(),
        });
    }
}

fn line_end(text: &str, start: usize) -> usize {
    text[start..].find('\n').map_or(text.len(), |length| start + length)
}

fn block_end(text: &str, start: usize) -> usize {
    let mut depth = 0;
    let mut position = start;
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        if rest.starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut position = start + 1;
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => position += 2,
            b'"' => return position + 1,
            _ => position += 1,
        }
    }
    bytes.len()
}

/// Whether `at` continues an identifier; the prefixes of byte and C strings do not count.
fn follows_word(bytes: &[u8], offset: usize) -> bool {
    let is_word = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    let Some(before) = offset.checked_sub(1) else {
        return false;
    };
    let is_prefix =
        matches!(bytes[before], b'b' | b'c') && !before.checked_sub(1).is_some_and(is_word);
    is_word(before) && !is_prefix
}

/// `None` for an `r` that opens no raw string, such as the one of `r#type`.
fn raw_string_end(text: &str, start: usize) -> Option<usize> {
    let rest = &text[start + 1..];
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&closing)?;
    Some(start + 1 + hashes + 1 + length + closing.len())
}

/// The end of a character literal; of a lifetime only its quote.
fn quote_end(text: &str, start: usize) -> usize {
    let mut characters = text[start + 1..].char_indices();
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            let closing = characters.find(|(_, character)| *character == '\'');
            closing.map_or(text.len(), |(offset, _)| start + 1 + offset + 1)
        }
        Some(_) => match characters.next() {
            Some((offset, '\'')) => start + 1 + offset + 1,
            _ => start + 1,
        },
        None => start + 1,
    }
}

/// Runs of `///` lines, one below the other.
pub(super) fn doc_blocks<'a, 'b>(comments: &'b [Comment<'a>]) -> Vec<&'b [Comment<'a>]> {
    comments
        .chunk_by(|a, b| a.is_doc() && b.is_doc() && a.line + 1 == b.line)
        .filter(|block| block[0].is_doc())
        .collect()
}

/// Breaches of all rules for comments in one file.
pub(super) fn check(file: &File, comments: &[Comment<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |rule, comment: &Comment<'_>| {
        findings.push(Finding::new(rule, &file.path, comment.line, comment.text));
    };
    for block in doc_blocks(comments) {
        let words: usize =
            block.iter().map(|comment| comment.prose().split_whitespace().count()).sum();
        if words < DOC_WORDS_MIN {
            report("short-doc", &block[0]);
        }
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let mut previous: Option<&Comment<'_>> = None;
    for comment in comments {
        let line = lines.get(comment.line - 1).copied().unwrap_or_default();
        if comment.fills_line && line.chars().count() > COLUMNS_MAX {
            report("wide-comment", comment);
        }
        let continued = previous.filter(|last| last.line + 1 == comment.line);
        if has_empty_phrase(comment.prose(), continued.map(Comment::prose)) {
            report("empty-phrase", comment);
        }
        if let Some(rule) = persons::rule_for_comment(comment.text) {
            report(rule, comment);
        }
        previous = Some(comment);
    }
    findings
}

/// Whether a sentence of `prose` is an empty phrase. The first words may belong to a sentence that
/// `line_before` begins.
fn has_empty_phrase(prose: &str, line_before: Option<&str>) -> bool {
    let opens_sentence = line_before
        .is_none_or(|line| line.is_empty() || line.starts_with('#') || line.ends_with('.'));
    let is_empty_phrase = |sentence: &str| {
        EMPTY_PHRASES.iter().any(|phrase| phrase.trim_end_matches('.') == sentence)
    };
    // A sentence ends with a full stop, so the rest after the last one is none.
    let sentences = prose.split_inclusive(". ").filter_map(|sentence| {
        let sentence = sentence.trim_end();
        sentence.strip_suffix('.')
    });
    sentences
        .enumerate()
        .any(|(index, sentence)| (index > 0 || opens_sentence) && is_empty_phrase(sentence))
}

#[cfg(test)]
mod tests;
