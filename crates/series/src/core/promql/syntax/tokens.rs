//! The tokens of a query, with their places; what parser and tree leave out.

use super::Position;
use crate::core::promql::error::QueryError;
use crate::core::promql::number;

/// A query has at most so many tokens; one that has more was not written by somebody who reads the answer.
const TOKENS_MAX: usize = 20_000;
/// Parentheses within parentheses. Tree and evaluation are recursive.
const DEPTH_MAX: usize = 100;
/// Operators, unary ones among them.
const OPERATORS_MAX: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Word,
    Number,
    Text,
    Mark,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub shape: Shape,
    pub text: &'a str,
    pub position: Position,
}

fn refuse(message: String) -> QueryError {
    QueryError::Parse { message }
}

/// Where a string literal that begins here ends.
fn text_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' && quote != b'`' {
            2
        } else {
            1
        };
    }
    (at + 1).min(text.len())
}

fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = bytes.len() > 1 && matches!(bytes[1], b'x' | b'X');
    let mut at = 0;
    while at < bytes.len() {
        let is_sign = matches!(bytes[at], b'+' | b'-');
        let after_exponent = at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !is_hex;
        let goes_on = bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.';
        if !(goes_on || is_sign && after_exponent) {
            break;
        }
        at += 1;
    }
    at
}

fn word_end(text: &str) -> usize {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// The token that a text begins with: its shape and length.
fn first(text: &str, in_brackets: bool) -> (Shape, usize) {
    let next = text
        .chars()
        .next()
        .expect("the caller saw that there is something");
    let after = text[next.len_utf8()..].chars().next();
    match next {
        '"' | '\'' | '`' => (Shape::Text, text_end(text)),
        '0'..='9' => (Shape::Number, number_end(text)),
        '.' if after.is_some_and(|c| c.is_ascii_digit()) => (Shape::Number, number_end(text)),
        ':' if in_brackets => (Shape::Mark, 1),
        'a'..='z' | 'A'..='Z' | '_' | ':' => (Shape::Word, word_end(text)),
        '=' | '!' | '<' | '>' if matches!(after, Some('=' | '~')) => (Shape::Mark, 2),
        _ => (Shape::Mark, next.len_utf8()),
    }
}

/// Splits a query, comments and space left out.
pub(super) fn split(query: &str) -> Result<Vec<Token<'_>>, QueryError> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let (mut at, mut brackets) = (0, 0_usize);
    while at < query.len() {
        let rest = &query[at..];
        if rest.starts_with('#') {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            at += space;
            continue;
        }
        let (shape, length) = first(rest, brackets > 0);
        let length = (length..=rest.len()).find(|end| rest.is_char_boundary(*end));
        let end = at + length.unwrap_or(rest.len());
        let text = &query[at..end];
        match text {
            "[" => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        let position = Position { start: at, end };
        tokens.push(Token {
            shape,
            text,
            position,
        });
        at = end;
    }
    check(&tokens)?;
    Ok(tokens)
}

/// Refuses what the parser cannot represent or could not bear.
fn check(tokens: &[Token<'_>]) -> Result<(), QueryError> {
    if tokens.len() > TOKENS_MAX {
        return Err(refuse(format!(
            "a query has at most {TOKENS_MAX} tokens, this one has {}",
            tokens.len()
        )));
    }
    let (mut depth, mut operators, mut braces) = (0_usize, 0_usize, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "{" => braces += 1,
            "}" => braces = braces.saturating_sub(1),
            "+" | "-" | "*" | "/" | "%" | "^" | "==" | "!=" | "<" | ">" | "<=" | ">=" => {
                operators += 1;
            }
            text if text.eq_ignore_ascii_case("or") && braces > 0 => {
                let message = "unexpected \"or\" in label matching, expected \",\" or \"}\"";
                return Err(refuse(message.to_owned()));
            }
            text if ["and", "or", "unless", "atan2"]
                .iter()
                .any(|word| text.eq_ignore_ascii_case(word)) =>
            {
                operators += 1;
            }
            _ => {}
        }
        if depth > DEPTH_MAX || operators > OPERATORS_MAX {
            return Err(refuse(format!(
                "a query has at most {DEPTH_MAX} parentheses within each other and {OPERATORS_MAX} operators"
            )));
        }
        check_duration(&tokens[..=at])?;
    }
    Ok(())
}

/// A duration must be one the parser can represent: it panics at others.
fn check_duration(tokens: &[Token<'_>]) -> Result<(), QueryError> {
    let [before @ .., last] = tokens else {
        return Ok(());
    };
    let is_number = last.shape == Shape::Number
        || ["inf", "nan"]
            .iter()
            .any(|word| last.text.eq_ignore_ascii_case(word));
    let signs = before
        .iter()
        .rev()
        .take_while(|token| matches!(token.text, "+" | "-"));
    let owner = before.iter().rev().nth(signs.count());
    let is_duration = owner.is_some_and(|owner| {
        matches!(owner.text, "[" | ":") || owner.text.eq_ignore_ascii_case("offset")
    });
    if is_number && is_duration && number::duration_ms(last.text).is_none() {
        return Err(refuse(format!("{:?} is no duration", last.text)));
    }
    Ok(())
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
