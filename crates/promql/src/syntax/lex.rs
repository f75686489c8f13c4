//! The tokens of a query. A text that has none at some place ends with a token that says why.

use super::{Aggregator, Operator, Position};

/// Most tokens of a query: far more than a query has whose answer is meant to be read.
const TOKENS_MAX: usize = 20_000;

/// A word that means something at some places and names a metric or a label at others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Bool,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Fill,
    FillLeft,
    FillRight,
    Offset,
    Anchored,
    Smoothed,
    Start,
    End,
    Step,
    Range,
    MaxOf,
    MinOf,
}

impl Keyword {
    /// Whether a function has that name, too.
    pub(super) fn names_function(self) -> bool {
        use Keyword::{End, MaxOf, MinOf, Range, Start, Step};
        matches!(self, Start | End | Step | Range | MaxOf | MinOf)
    }
}

const KEYWORDS: [(&str, Keyword); 19] = [
    ("bool", Keyword::Bool),
    ("by", Keyword::By),
    ("without", Keyword::Without),
    ("on", Keyword::On),
    ("ignoring", Keyword::Ignoring),
    ("group_left", Keyword::GroupLeft),
    ("group_right", Keyword::GroupRight),
    ("fill", Keyword::Fill),
    ("fill_left", Keyword::FillLeft),
    ("fill_right", Keyword::FillRight),
    ("offset", Keyword::Offset),
    ("anchored", Keyword::Anchored),
    ("smoothed", Keyword::Smoothed),
    ("start", Keyword::Start),
    ("end", Keyword::End),
    ("step", Keyword::Step),
    ("range", Keyword::Range),
    ("max_of", Keyword::MaxOf),
    ("min_of", Keyword::MinOf),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Number,
    Duration,
    Text,
    /// Without a colon: a label or a function can have that name.
    Name,
    /// With a colon: only a metric can, and a label that series are put together by.
    Metric,
    Keyword(Keyword),
    Aggregator(Aggregator),
    Operator(Operator),
    /// The operator `=~` of matchers.
    Matches,
    /// The operator `!~` of matchers.
    NotMatches,
    At,
    /// One of the characters `(){}[],:=`.
    Mark,
    End,
    /// Nothing that a query can have.
    Wrong(String),
}

#[derive(Clone, Debug)]
pub(super) struct QueryToken<'a> {
    pub shape: TokenKind,
    pub text: &'a str,
    pub position: Position,
}

impl QueryToken<'_> {
    /// Name of the token in error messages.
    pub(super) fn described(&self) -> String {
        let quoted = || {
            let mut shown: String = self.text.chars().take(10).collect();
            let is_cut = shown.len() < self.text.len();
            shown = super::print::quoted(&shown);
            if is_cut { shown + "..." } else { shown }
        };
        match &self.shape {
            TokenKind::End => "end of input".to_owned(),
            TokenKind::Wrong(message) => message.clone(),
            TokenKind::Number => format!("number {}", quoted()),
            TokenKind::Duration => format!("duration {}", quoted()),
            TokenKind::Text => format!("string {}", quoted()),
            TokenKind::Name => format!("identifier {}", super::print::quoted(self.text)),
            TokenKind::Metric => format!("metric identifier {}", super::print::quoted(self.text)),
            TokenKind::Keyword(word) if word.names_function() => quoted(),
            TokenKind::Keyword(_) => format!("<{}>", self.text),
            TokenKind::Aggregator(_) => format!("<aggr:{}>", self.text),
            TokenKind::Operator(_) | TokenKind::Matches | TokenKind::NotMatches | TokenKind::At => {
                format!("<op:{}>", self.text)
            }
            TokenKind::Mark => quoted(),
        }
    }
}

/// Splits a query, comments and space left out. The last token is `End` or `Wrong`.
pub(super) fn split(query: &str) -> Vec<QueryToken<'_>> {
    let mut lexer = QueryLexer {
        query,
        at: 0,
        parentheses: 0,
        in_braces: false,
        in_brackets: false,
        saw_colon: false,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next();
        let is_last = matches!(token.shape, TokenKind::End | TokenKind::Wrong(_));
        tokens.push(token);
        if is_last {
            return tokens;
        }
        if tokens.len() > TOKENS_MAX {
            let message = format!("a query has at most {TOKENS_MAX} tokens");
            tokens.push(lexer.wrong(lexer.at, message));
            return tokens;
        }
    }
}

struct QueryLexer<'a> {
    query: &'a str,
    at: usize,
    parentheses: usize,
    in_braces: bool,
    in_brackets: bool,
    saw_colon: bool,
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}

impl<'a> QueryLexer<'a> {
    fn rest(&self) -> &'a str {
        &self.query[self.at..]
    }

    fn take(&mut self, shape: TokenKind, length: usize) -> QueryToken<'a> {
        let position = Position {
            start: self.at,
            end: self.at + length,
        };
        self.at += length;
        QueryToken {
            shape,
            text: &self.query[position.start..position.end],
            position,
        }
    }

    fn wrong(&self, start: usize, message: impl Into<String>) -> QueryToken<'a> {
        QueryToken {
            shape: TokenKind::Wrong(message.into()),
            text: "",
            position: Position {
                start,
                end: self.query.len(),
            },
        }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find(['\n', '\r']).unwrap_or(trimmed.len());
        }
    }

    fn next(&mut self) -> QueryToken<'a> {
        self.skip_space();
        let rest = self.rest();
        let mut characters = rest.chars();
        let first = characters.next();
        let second = characters.next();
        let Some(first) = first else {
            return self.end();
        };
        if self.in_braces {
            return self.inside_braces(first, second);
        }
        match first {
            ',' => self.take(TokenKind::Mark, 1),
            '*' | '/' | '%' | '+' | '-' | '^' => self.operator(1),
            '=' if second == Some('=') => self.operator(2),
            '=' if second == Some('~') => {
                self.wrong(self.at, "unexpected character after '=': '~'")
            }
            '=' => self.take(TokenKind::Mark, 1),
            '!' if second == Some('=') => self.operator(2),
            '!' => self.wrong_after("unexpected character after '!'", second),
            '<' | '>' => self.operator(match second {
                Some('=' | '/') => 2,
                _ => 1,
            }),
            '0'..='9' => self.number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number(),
            '"' | '\'' | '`' => self.text(first),
            '(' => {
                self.parentheses += 1;
                self.take(TokenKind::Mark, 1)
            }
            ')' => match self.parentheses.checked_sub(1) {
                Some(left) => {
                    self.parentheses = left;
                    self.take(TokenKind::Mark, 1)
                }
                None => self.wrong(self.at + 1, "unexpected right parenthesis ')'"),
            },
            '{' => {
                self.in_braces = true;
                self.take(TokenKind::Mark, 1)
            }
            '[' if self.in_brackets => self.wrong(self.at, "unexpected left bracket '['"),
            '[' => {
                (self.in_brackets, self.saw_colon) = (true, false);
                self.take(TokenKind::Mark, 1)
            }
            ']' if !self.in_brackets => self.wrong(self.at, "unexpected right bracket ']'"),
            ']' => {
                self.in_brackets = false;
                self.take(TokenKind::Mark, 1)
            }
            '@' => self.take(TokenKind::At, 1),
            _ if self.in_brackets => self.inside_brackets(first),
            _ if is_alpha(first) || first == ':' => self.word(),
            _ => self.wrong(self.at, format!("unexpected character: {first:?}")),
        }
    }

    fn end(&mut self) -> QueryToken<'a> {
        if self.in_braces {
            return self.wrong(self.at, "unexpected end of input inside braces");
        }
        if self.parentheses > 0 {
            return self.wrong(self.at, "unclosed left parenthesis");
        }
        if self.in_brackets {
            return self.wrong(self.at, "unclosed left bracket");
        }
        self.take(TokenKind::End, 0)
    }

    fn operator(&mut self, length: usize) -> QueryToken<'a> {
        let text = &self.rest()[..length];
        let operator = Operator::named(text).expect("every mark of an operator is one");
        self.take(TokenKind::Operator(operator), length)
    }

    fn wrong_after(&self, message: &str, found: Option<char>) -> QueryToken<'a> {
        match found {
            Some(found) => self.wrong(self.at, format!("{message}: {found:?}")),
            None => self.wrong(self.at, format!("{message}: end of input")),
        }
    }

    fn inside_braces(&mut self, first: char, second: Option<char>) -> QueryToken<'a> {
        match first {
            ',' => self.take(TokenKind::Mark, 1),
            '"' | '\'' | '`' => self.text(first),
            '=' if second == Some('~') => self.take(TokenKind::Matches, 2),
            '=' => self.take(TokenKind::Mark, 1),
            '!' if second == Some('~') => self.take(TokenKind::NotMatches, 2),
            '!' if second == Some('=') => self.operator(2),
            '!' => self.wrong_after("unexpected character after '!' inside braces", second),
            '{' => self.wrong(self.at, "unexpected left brace '{'"),
            '}' => {
                self.in_braces = false;
                self.take(TokenKind::Mark, 1)
            }
            _ if is_alpha(first) => {
                let rest = self.rest();
                let length = rest.find(|c| !is_alphanumeric(c)).unwrap_or(rest.len());
                self.take(TokenKind::Name, length)
            }
            _ => self.wrong(
                self.at,
                format!("unexpected character inside braces: {first:?}"),
            ),
        }
    }

    /// What is neither a number nor an operator there: a colon, or a word for a length of time.
    fn inside_brackets(&mut self, first: char) -> QueryToken<'a> {
        if first == ':' && !self.saw_colon {
            self.saw_colon = true;
            return self.take(TokenKind::Mark, 1);
        }
        if first == ':' {
            return self.wrong(self.at, "unexpected colon ':'");
        }
        let rest = self.rest();
        let length = rest.find(|c| !is_alpha(c)).unwrap_or(rest.len());
        let shape = match rest[..length].to_ascii_lowercase().as_str() {
            "step" => TokenKind::Keyword(Keyword::Step),
            "range" => TokenKind::Keyword(Keyword::Range),
            "max_of" => TokenKind::Keyword(Keyword::MaxOf),
            "min_of" => TokenKind::Keyword(Keyword::MinOf),
            _ => {
                let message = format!("unexpected character in duration expression: {first:?}");
                return self.wrong(self.at, message);
            }
        };
        self.take(shape, length)
    }

    fn word(&mut self) -> QueryToken<'a> {
        let rest = self.rest();
        let is_part = |c: char| is_alphanumeric(c) || c == ':';
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let lower = rest[..length].to_ascii_lowercase();
        let after = rest[length..].trim_start_matches([' ', '\t', '\n', '\r']);
        let keyword = KEYWORDS.iter().find(|(name, _)| *name == lower);
        let shape = if let Some(operator) = Operator::named(&lower) {
            TokenKind::Operator(operator)
        } else if let Some(aggregator) = Aggregator::named(&lower) {
            TokenKind::Aggregator(aggregator)
        } else if lower == "inf" || lower == "nan" {
            TokenKind::Number
        } else if let Some((name, keyword)) = keyword
            // Metrics may have this name: it came late to the language.
            && (!name.starts_with("fill") || after.starts_with('('))
        {
            TokenKind::Keyword(*keyword)
        } else if lower.contains(':') {
            TokenKind::Metric
        } else {
            TokenKind::Name
        };
        self.take(shape, length)
    }

    fn text(&mut self, quote: char) -> QueryToken<'a> {
        let rest = self.rest();
        let mut characters = rest.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            if c == quote {
                return self.take(TokenKind::Text, at + 1);
            }
            if c == '\n' && quote != '`' {
                break;
            }
            if c == '\\' && quote != '`' {
                characters.next();
            }
        }
        let message = match quote {
            '`' => "unterminated raw string",
            _ => "unterminated quoted string",
        };
        self.wrong(self.at, message)
    }

    fn number(&mut self) -> QueryToken<'a> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let is_hex = bytes.len() > 1 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X');
        let mut length = 0;
        while length < bytes.len() {
            let is_sign = matches!(bytes[length], b'+' | b'-');
            let after_exponent = length > 0 && matches!(bytes[length - 1], b'e' | b'E') && !is_hex;
            let goes_on = is_alphanumeric(char::from(bytes[length])) || bytes[length] == b'.';
            if !(goes_on || is_sign && after_exponent) {
                break;
            }
            length += 1;
        }
        if super::super::number::parse_literal(&rest[..length]).is_some() {
            return self.take(TokenKind::Number, length);
        }
        // A sign that followed an `e` was no exponent's: `1e-1m` is no number, but `5m-1m` are two.
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        if is_duration(&rest[..length]) {
            return self.take(TokenKind::Duration, length);
        }
        let shown = super::print::quoted(&rest[..length]);
        self.wrong(self.at, format!("bad number or duration syntax: {shown}"))
    }
}

/// Whether a text is written like a duration; whether its units are in order is asked when it is
/// read.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = digits.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let name = &digits[..digits.len() - unit.len()];
        if digits.len() == rest.len() || !matches!(name, "ms" | "s" | "m" | "h" | "d" | "w" | "y") {
            return false;
        }
        rest = unit;
    }
    !text.is_empty()
}

/// The bytes that a string literal stands for, its quotes included in `literal`.
pub(crate) fn unquote(literal: &str) -> Option<Vec<u8>> {
    let quote = literal.chars().next()?;
    let inner = literal.strip_prefix(quote)?.strip_suffix(quote)?;
    if quote == '`' {
        return Some(inner.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        if next != '\\' {
            bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = rest.chars().next()?;
        let digits = match escape {
            'x' => (1, 2, 16),
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            '0'..='7' => (0, 3, 8),
            _ => (1, 0, 0),
        };
        let (skipped, length, radix) = digits;
        if length > 0 {
            let code = u32::from_str_radix(rest.get(skipped..skipped + length)?, radix).ok()?;
            match length {
                2 | 3 => bytes.push(u8::try_from(code).ok()?),
                _ => bytes
                    .extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            rest = &rest[skipped + length..];
            continue;
        }
        bytes.push(match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' => b'\\',
            _ if escape == quote => quote as u8,
            _ => return None,
        });
        rest = &rest[escape.len_utf8()..];
    }
    Some(bytes)
}
