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
    pub(super) fn is_function_name(self) -> bool {
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
    Punctuation,
    End,
    /// Nothing that a query can have.
    Invalid(String),
}

#[derive(Clone, Debug)]
pub(super) struct QueryToken<'a> {
    pub kind: TokenKind,
    pub text: &'a str,
    pub position: Position,
}

impl QueryToken<'_> {
    /// Name of the token in error messages.
    pub(super) fn description(&self) -> String {
        let quoted = || {
            let mut shown: String = self.text.chars().take(10).collect();
            let is_cut = shown.len() < self.text.len();
            shown = super::print::quote(&shown);
            if is_cut { shown + "..." } else { shown }
        };
        match &self.kind {
            TokenKind::End => "end of input".to_owned(),
            TokenKind::Invalid(message) => message.clone(),
            TokenKind::Number => format!("number {}", quoted()),
            TokenKind::Duration => format!("duration {}", quoted()),
            TokenKind::Text => format!("string {}", quoted()),
            TokenKind::Name => format!("identifier {}", super::print::quote(self.text)),
            TokenKind::Metric => format!("metric identifier {}", super::print::quote(self.text)),
            TokenKind::Keyword(word) if word.is_function_name() => quoted(),
            TokenKind::Keyword(_) => format!("<{}>", self.text),
            TokenKind::Aggregator(_) => format!("<aggr:{}>", self.text),
            TokenKind::Operator(_) | TokenKind::Matches | TokenKind::NotMatches | TokenKind::At => {
                format!("<op:{}>", self.text)
            }
            TokenKind::Punctuation => quoted(),
        }
    }
}

/// Splits a query, comments and space left out. The last token is `End` or `Wrong`.
pub(super) fn tokenize(query: &str) -> Vec<QueryToken<'_>> {
    let mut lexer = QueryLexer {
        query,
        position: 0,
        open_parentheses: 0,
        in_braces: false,
        in_brackets: false,
        has_colon: false,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next_token();
        let is_last = matches!(token.kind, TokenKind::End | TokenKind::Invalid(_));
        tokens.push(token);
        if is_last {
            return tokens;
        }
        if tokens.len() > TOKENS_MAX {
            let message = format!("a query has at most {TOKENS_MAX} tokens");
            tokens.push(lexer.invalid_token(lexer.position, message));
            return tokens;
        }
    }
}

struct QueryLexer<'a> {
    query: &'a str,
    position: usize,
    open_parentheses: usize,
    in_braces: bool,
    in_brackets: bool,
    has_colon: bool,
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}

impl<'a> QueryLexer<'a> {
    fn rest(&self) -> &'a str {
        &self.query[self.position..]
    }

    fn take_token(&mut self, kind: TokenKind, length: usize) -> QueryToken<'a> {
        let position = Position { start: self.position, end: self.position + length };
        self.position += length;
        QueryToken { kind, text: &self.query[position.start..position.end], position }
    }

    fn invalid_token(&self, start: usize, message: impl Into<String>) -> QueryToken<'a> {
        QueryToken {
            kind: TokenKind::Invalid(message.into()),
            text: "",
            position: Position { start, end: self.query.len() },
        }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.position += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.position += trimmed.find(['\n', '\r']).unwrap_or(trimmed.len());
        }
    }

    fn next_token(&mut self) -> QueryToken<'a> {
        self.skip_space();
        let rest = self.rest();
        let mut characters = rest.chars();
        let first = characters.next();
        let second = characters.next();
        let Some(first) = first else {
            return self.end_token();
        };
        if self.in_braces {
            return self.token_in_braces(first, second);
        }
        match first {
            ',' => self.take_token(TokenKind::Punctuation, 1),
            '*' | '/' | '%' | '+' | '-' | '^' => self.take_operator(1),
            '=' if second == Some('=') => self.take_operator(2),
            '=' if second == Some('~') => {
                self.invalid_token(self.position, "unexpected character after '=': '~'")
            }
            '=' => self.take_token(TokenKind::Punctuation, 1),
            '!' if second == Some('=') => self.take_operator(2),
            '!' => self.invalid_after("unexpected character after '!'", second),
            '<' | '>' => self.take_operator(match second {
                Some('=' | '/') => 2,
                _ => 1,
            }),
            '0'..='9' => self.take_number(),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.take_number(),
            '"' | '\'' | '`' => self.take_string(first),
            '(' => {
                self.open_parentheses += 1;
                self.take_token(TokenKind::Punctuation, 1)
            }
            ')' => match self.open_parentheses.checked_sub(1) {
                Some(left) => {
                    self.open_parentheses = left;
                    self.take_token(TokenKind::Punctuation, 1)
                }
                None => self.invalid_token(self.position + 1, "unexpected right parenthesis ')'"),
            },
            '{' => {
                self.in_braces = true;
                self.take_token(TokenKind::Punctuation, 1)
            }
            '[' if self.in_brackets => {
                self.invalid_token(self.position, "unexpected left bracket '['")
            }
            '[' => {
                (self.in_brackets, self.has_colon) = (true, false);
                self.take_token(TokenKind::Punctuation, 1)
            }
            ']' if !self.in_brackets => {
                self.invalid_token(self.position, "unexpected right bracket ']'")
            }
            ']' => {
                self.in_brackets = false;
                self.take_token(TokenKind::Punctuation, 1)
            }
            '@' => self.take_token(TokenKind::At, 1),
            _ if self.in_brackets => self.token_in_brackets(first),
            _ if is_alpha(first) || first == ':' => self.take_word(),
            _ => self.invalid_token(self.position, format!("unexpected character: {first:?}")),
        }
    }

    fn end_token(&mut self) -> QueryToken<'a> {
        if self.in_braces {
            return self.invalid_token(self.position, "unexpected end of input inside braces");
        }
        if self.open_parentheses > 0 {
            return self.invalid_token(self.position, "unclosed left parenthesis");
        }
        if self.in_brackets {
            return self.invalid_token(self.position, "unclosed left bracket");
        }
        self.take_token(TokenKind::End, 0)
    }

    fn take_operator(&mut self, length: usize) -> QueryToken<'a> {
        let text = &self.rest()[..length];
        let operator = Operator::from_name(text).expect("every mark of an operator is one");
        self.take_token(TokenKind::Operator(operator), length)
    }

    fn invalid_after(&self, message: &str, found: Option<char>) -> QueryToken<'a> {
        match found {
            Some(found) => self.invalid_token(self.position, format!("{message}: {found:?}")),
            None => self.invalid_token(self.position, format!("{message}: end of input")),
        }
    }

    fn token_in_braces(&mut self, first: char, second: Option<char>) -> QueryToken<'a> {
        match first {
            ',' => self.take_token(TokenKind::Punctuation, 1),
            '"' | '\'' | '`' => self.take_string(first),
            '=' if second == Some('~') => self.take_token(TokenKind::Matches, 2),
            '=' => self.take_token(TokenKind::Punctuation, 1),
            '!' if second == Some('~') => self.take_token(TokenKind::NotMatches, 2),
            '!' if second == Some('=') => self.take_operator(2),
            '!' => self.invalid_after("unexpected character after '!' inside braces", second),
            '{' => self.invalid_token(self.position, "unexpected left brace '{'"),
            '}' => {
                self.in_braces = false;
                self.take_token(TokenKind::Punctuation, 1)
            }
            _ if is_alpha(first) => {
                let rest = self.rest();
                let length = rest.find(|c| !is_alphanumeric(c)).unwrap_or(rest.len());
                self.take_token(TokenKind::Name, length)
            }
            _ => self.invalid_token(
                self.position,
                format!("unexpected character inside braces: {first:?}"),
            ),
        }
    }

    /// What is neither a number nor an operator there: a colon, or a word for a length of time.
    fn token_in_brackets(&mut self, first: char) -> QueryToken<'a> {
        if first == ':' && !self.has_colon {
            self.has_colon = true;
            return self.take_token(TokenKind::Punctuation, 1);
        }
        if first == ':' {
            return self.invalid_token(self.position, "unexpected colon ':'");
        }
        let rest = self.rest();
        let length = rest.find(|c| !is_alpha(c)).unwrap_or(rest.len());
        let kind = match rest[..length].to_ascii_lowercase().as_str() {
            "step" => TokenKind::Keyword(Keyword::Step),
            "range" => TokenKind::Keyword(Keyword::Range),
            "max_of" => TokenKind::Keyword(Keyword::MaxOf),
            "min_of" => TokenKind::Keyword(Keyword::MinOf),
            _ => {
                let message = format!("unexpected character in duration expression: {first:?}");
                return self.invalid_token(self.position, message);
            }
        };
        self.take_token(kind, length)
    }

    fn take_word(&mut self) -> QueryToken<'a> {
        let rest = self.rest();
        let is_part = |c: char| is_alphanumeric(c) || c == ':';
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let lower = rest[..length].to_ascii_lowercase();
        let following = rest[length..].trim_start_matches([' ', '\t', '\n', '\r']);
        let keyword = KEYWORDS.iter().find(|(name, _)| *name == lower);
        let kind = if let Some(operator) = Operator::from_name(&lower) {
            TokenKind::Operator(operator)
        } else if let Some(aggregator) = Aggregator::from_name(&lower) {
            TokenKind::Aggregator(aggregator)
        } else if lower == "inf" || lower == "nan" {
            TokenKind::Number
        } else if let Some((name, keyword)) = keyword
            // Metrics may have this name: it came late to the language.
            && (!name.starts_with("fill") || following.starts_with('('))
        {
            TokenKind::Keyword(*keyword)
        } else if lower.contains(':') {
            TokenKind::Metric
        } else {
            TokenKind::Name
        };
        self.take_token(kind, length)
    }

    fn take_string(&mut self, quote: char) -> QueryToken<'a> {
        let rest = self.rest();
        let mut characters = rest.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            if c == quote {
                return self.take_token(TokenKind::Text, at + 1);
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
        self.invalid_token(self.position, message)
    }

    fn take_number(&mut self) -> QueryToken<'a> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let is_hex = bytes.len() > 1 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X');
        let mut length = 0;
        while length < bytes.len() {
            let is_sign = matches!(bytes[length], b'+' | b'-');
            let after_exponent = length > 0 && matches!(bytes[length - 1], b'e' | b'E') && !is_hex;
            let is_part = is_alphanumeric(char::from(bytes[length])) || bytes[length] == b'.';
            if !(is_part || is_sign && after_exponent) {
                break;
            }
            length += 1;
        }
        if super::super::number::parse_literal(&rest[..length]).is_some() {
            return self.take_token(TokenKind::Number, length);
        }
        // A sign that followed an `e` was no exponent's: `1e-1m` is no number, but `5m-1m` are two.
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if is_duration(&rest[..length]) {
            return self.take_token(TokenKind::Duration, length);
        }
        let shown = super::print::quote(&rest[..length]);
        self.invalid_token(self.position, format!("bad number or duration syntax: {shown}"))
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
