//! Matchers of labels, and what their regular expressions come down to.
//!
//! Prometheus's regular expressions are RE2's: `\d`, `\w`, `\s` and `\b` know ASCII only, `.` takes
//! line breaks, both ends are anchored. They are rewritten for `regex`. Most of them are a list of
//! values or begin with the same characters; an index can look those up, and they are compared
//! without an automaton.

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::{ExtractKind, Extractor, Seq};
use regex_syntax::hir::{Hir, HirKind, Look};

mod rewrite;

/// Compiled, a regular expression takes at most so much memory: the first of these that is enough,
/// as `regex` does not tell how much it is. One that takes more than the last is refused.
const REGEX_BYTES_STEPS: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];
/// All those of a query take at most so much together.
const REGEXES_BYTES_MAX: usize = 64 << 20;
/// A query has at most so many matchers.
const MATCHERS_MAX: usize = 10_000;
/// One that is no mere list of values has at most so many bytes: reading it takes a hundred times
/// as many.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const NESTING_MAX: u32 = 200;
/// An expression stands for a list of values only when there are at most so many, unless it is
/// nothing but a list.
const LITERALS_MAX: usize = 1000;

/// Comparison operator of a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`: the values are equal.
    Equal,
    /// `!=`: the values are different.
    NotEqual,
    /// `=~`, anchored at both ends.
    Matches,
    /// `!~`, anchored at both ends.
    NotMatches,
}

/// What a label must be for a series to be selected. A label that is missing is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// Name of the label.
    pub name: Box<str>,
    /// How it is compared…
    pub op: MatchOp,
    /// …with what: a value, or a regular expression in RE2 syntax.
    pub value: Box<str>,
}

/// Why a matcher cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MatcherError {
    /// What is wrong, worded as Prometheus words it.
    pub message: String,
}

/// A matcher whose regular expression is compiled.
#[derive(Clone, Debug)]
pub struct LabelMatcher {
    matcher: Matcher,
    pattern: Option<Pattern>,
}

/// Compiles the matchers of one query, which may take so much memory together.
#[derive(Debug, Default)]
pub struct Compiler {
    matchers: usize,
    regex_bytes: usize,
}

/// A regular expression that must match all of a value.
#[derive(Clone, Debug)]
struct Pattern {
    test: Test,
    prefix: Box<str>,
    /// What it takes in memory at most, compiled; a list does not count.
    bytes_max: usize,
}

/// Compiled test of a label's value.
#[derive(Clone, Debug)]
enum Test {
    /// The pattern `.*`, which matches everything.
    Anything,
    /// The pattern `.+`: every value but the empty one.
    NotEmpty,
    /// Nothing but these; sorted.
    OneOf(Box<[Box<str>]>),
    /// A pattern of the form `prefix.*`.
    Prefix,
    /// A pattern of the form `.*text.*`.
    Contains(Box<str>),
    /// A pattern of the form `.*text`.
    Suffix(Box<str>),
    Automaton(Regex),
}

impl Compiler {
    /// One more matcher.
    ///
    /// # Errors
    /// As of [`LabelMatcher::new`], and when there are too many matchers, or their regular
    /// expressions are too large together.
    pub fn compile(&mut self, matcher: Matcher) -> Result<LabelMatcher, MatcherError> {
        let new_error = |message| Err(MatcherError { message });
        self.matchers += 1;
        if self.matchers > MATCHERS_MAX {
            return new_error(format!("a query has at most {MATCHERS_MAX} matchers"));
        }
        let compiled = LabelMatcher::new(matcher)?;
        let pattern = compiled.pattern.as_ref();
        self.regex_bytes += pattern.map_or(0, |pattern| pattern.bytes_max);
        if self.regex_bytes > REGEXES_BYTES_MAX {
            return new_error(format!(
                "the regular expressions of a query take at most {} MiB, compiled: ask with fewer or smaller ones",
                REGEXES_BYTES_MAX >> 20
            ));
        }
        Ok(compiled)
    }
}

impl LabelMatcher {
    /// Compiles the matcher's regular expression, if it has one.
    ///
    /// # Errors
    /// When the expression is malformed or too large.
    pub fn new(matcher: Matcher) -> Result<Self, MatcherError> {
        let pattern = match matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Matches | MatchOp::NotMatches => {
                let pattern = Pattern::new(&matcher.value);
                Some(pattern.map_err(|message| MatcherError { message })?)
            }
        };
        Ok(Self { matcher, pattern })
    }

    /// The matcher that it was compiled from.
    pub fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    /// Whether it takes this value; of a label that is missing, the empty one.
    pub fn matches(&self, value: &str) -> bool {
        let matches_pattern = || {
            let pattern = self.pattern.as_ref();
            pattern.is_some_and(|pattern| pattern.matches(value))
        };
        match self.matcher.op {
            MatchOp::Equal => *self.matcher.value == *value,
            MatchOp::NotEqual => *self.matcher.value != *value,
            MatchOp::Matches => matches_pattern(),
            MatchOp::NotMatches => !matches_pattern(),
        }
    }

    /// The only values that the regular expression matches, sorted, where it comes down to a list.
    /// Of `!~` these are the values that are not taken.
    pub fn literals(&self) -> Option<&[Box<str>]> {
        match &self.pattern.as_ref()?.test {
            Test::OneOf(values) => Some(values),
            _ => None,
        }
    }

    /// What every value begins with that the regular expression matches; often nothing.
    pub fn prefix(&self) -> &str {
        self.pattern.as_ref().map_or("", |pattern| &pattern.prefix)
    }
}

/// A regular expression that must match all of a text, with its groups.
///
/// # Errors
/// Says that and why it is malformed or too large.
pub fn compile_anchored(pattern: &str) -> Result<Regex, String> {
    compile_with_size(pattern).map(|(regex, _)| regex)
}

/// As [`compile_anchored`], and how much memory that takes at most.
fn compile_with_size(pattern: &str) -> Result<(Regex, usize), String> {
    let syntax_error = |error: &dyn std::fmt::Display| {
        let error = error.to_string();
        // The last line is what is wrong, those before show where.
        let reason = error.lines().last().unwrap_or_default();
        let reason = reason.trim().trim_start_matches("error: ");
        format!("error parsing regexp: {reason}: `{}`", shorten(pattern))
    };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(syntax_error(&"expression too large"));
    }
    let rewritten = rewrite::for_regex(pattern).map_err(|reason| syntax_error(&reason))?;
    let mut builder = RegexBuilder::new(&format!("^(?s:{rewritten})$"));
    builder.nest_limit(NESTING_MAX);
    let [smaller @ .., largest] = REGEX_BYTES_STEPS;
    // None takes less than its text.
    for bytes_max in smaller.into_iter().filter(|bytes| pattern.len() < *bytes) {
        match builder.size_limit(bytes_max).build() {
            Ok(regex) => return Ok((regex, bytes_max)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(error) => return Err(syntax_error(&error)),
        }
    }
    let regex = builder.size_limit(largest).build();
    Ok((regex.map_err(|error| syntax_error(&error))?, largest))
}

fn shorten(pattern: &str) -> String {
    const SHOWN_MAX: usize = 200;
    match pattern.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self, String> {
        let without_regex = |test: Test, prefix: &str| {
            let prefix = prefix.into();
            let bytes_max = 0;
            Ok(Self { test, prefix, bytes_max })
        };
        match pattern {
            ".*" => return without_regex(Test::Anything, ""),
            ".+" => return without_regex(Test::NotEmpty, ""),
            _ => {}
        }
        let is_plain = |text: &str| !text.contains(rewrite::is_special);
        if pattern.split('|').all(is_plain) {
            return Ok(Self::one_of(pattern.split('|').map(Into::into).collect()));
        }
        let inner = pattern.strip_prefix(".*").unwrap_or(pattern);
        let text = inner.strip_suffix(".*").unwrap_or(inner);
        if is_plain(text) && !text.contains('|') {
            let (open_start, open_end) = (inner.len() < pattern.len(), text.len() < inner.len());
            match (open_start, open_end) {
                (false, true) => return without_regex(Test::Prefix, text),
                (true, true) => return without_regex(Test::Contains(text.into()), ""),
                (true, false) => return without_regex(Test::Suffix(text.into()), ""),
                (false, false) => {}
            }
        }
        let (regex, bytes_max) = compile_with_size(pattern)?;
        let (literals, prefix) = analyse_pattern(pattern);
        match literals {
            Some(values) => Ok(Self::one_of(values)),
            None => Ok(Self { test: Test::Automaton(regex), prefix: prefix.into(), bytes_max }),
        }
    }

    fn one_of(mut values: Vec<Box<str>>) -> Self {
        values.sort_unstable();
        values.dedup();
        let (first, last) = (&values[0], &values[values.len() - 1]);
        let prefix = common_prefix(first, last).into();
        Self { test: Test::OneOf(values.into()), prefix, bytes_max: 0 }
    }

    fn matches(&self, value: &str) -> bool {
        match &self.test {
            Test::Anything => true,
            Test::NotEmpty => !value.is_empty(),
            Test::OneOf(values) => values.binary_search_by(|one| (**one).cmp(value)).is_ok(),
            Test::Prefix => value.starts_with(&*self.prefix),
            Test::Contains(text) => value.contains(&**text),
            Test::Suffix(text) => value.ends_with(&**text),
            Test::Automaton(regex) => value.starts_with(&*self.prefix) && regex.is_match(value),
        }
    }
}

fn common_prefix<'a>(left: &'a str, right: &str) -> &'a str {
    let byte_pairs = left.bytes().zip(right.bytes());
    let mut length = byte_pairs.take_while(|(a, b)| a == b).count();
    while !left.is_char_boundary(length) {
        length -= 1;
    }
    &left[..length]
}

/// The values that an expression stands for, if it is a list of them, and what all that match begin
/// with.
fn analyse_pattern(pattern: &str) -> (Option<Vec<Box<str>>>, String) {
    let no_literals = (None, String::new());
    let Ok(rewritten) = rewrite::for_regex(pattern) else {
        return no_literals;
    };
    let mut parser =
        ParserBuilder::new().nest_limit(NESTING_MAX).dot_matches_new_line(true).build();
    let Ok(hir) = parser.parse(&rewritten) else {
        return no_literals;
    };
    // The ends are anchored as it is; other conditions are more than a list can say.
    let hir = strip_anchors(hir);
    if !hir.properties().look_set().is_empty() {
        return no_literals;
    }
    let seq = extract_literals(&hir);
    let prefix = seq.longest_common_prefix().unwrap_or_default();
    let valid_prefix = match std::str::from_utf8(prefix) {
        Ok(prefix) => prefix,
        Err(error) => std::str::from_utf8(&prefix[..error.valid_up_to()])
            .expect("the text is valid up to this position"),
    };
    let exact_values = || {
        let literals = seq.literals().filter(|found| !found.is_empty())?;
        let texts = literals.iter().map(|literal| {
            let text = std::str::from_utf8(literal.as_bytes()).ok()?;
            literal.is_exact().then(|| text.into())
        });
        texts.collect()
    };
    (exact_values(), valid_prefix.to_owned())
}

fn extract_literals(hir: &Hir) -> Seq {
    let mut extractor = Extractor::new();
    extractor
        .kind(ExtractKind::Prefix)
        .limit_class(32)
        .limit_repeat(32)
        .limit_literal_len(1024)
        .limit_total(LITERALS_MAX);
    extractor.extract(hir)
}

/// An expression without `^` before and `$` behind it.
fn strip_anchors(hir: Hir) -> Hir {
    match hir.into_kind() {
        HirKind::Concat(mut parts) => {
            if matches!(parts.first().map(Hir::kind), Some(HirKind::Look(Look::Start))) {
                parts.remove(0);
            }
            if matches!(parts.last().map(Hir::kind), Some(HirKind::Look(Look::End))) {
                parts.pop();
            }
            Hir::concat(parts)
        }
        HirKind::Look(Look::Start | Look::End) => Hir::empty(),
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(repetition) => Hir::repetition(repetition),
        HirKind::Capture(capture) => Hir::capture(capture),
        HirKind::Alternation(parts) => Hir::alternation(parts),
    }
}

#[cfg(test)]
mod tests;
