//! Lexer: splits a template into text and the tokens of actions between `{{` and `}}`.

use super::{Outcome, fail_at};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateToken {
    /// Outside of an action.
    Text(String),
    /// `{{`, the start of an action.
    Open,
    /// `}}`, the end of an action.
    Close,
    /// A function or keyword.
    Word(String),
    /// `.name`; holds the name alone.
    Field(String),
    Dot,
    /// A variable's name with its `$`.
    Variable(String),
    Int(i64),
    Float(f64),
    Quoted(String),
    LeftParenthesis,
    RightParenthesis,
    Pipe,
    Declare,
    Assign,
    Comma,
}

#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub token: TemplateToken,
    pub line: u32,
    /// Whether a blank stands before it.
    pub follows_blank: bool,
}

struct TemplateLexer<'a> {
    rest: &'a str,
    line: u32,
    lexemes: Vec<Lexeme>,
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// The tokens of a whole template.
pub(super) fn tokenize(text: &str) -> Outcome<Vec<Lexeme>> {
    let mut lexer = TemplateLexer { rest: text, line: 1, lexemes: Vec::new() };
    let mut trims_next_text = false;
    while !lexer.rest.is_empty() {
        let action_start = lexer.rest.find("{{");
        let mut text = lexer.take_bytes(action_start.unwrap_or(lexer.rest.len()));
        if trims_next_text {
            text = text.trim_start_matches(BLANKS);
        }
        let is_trimmed = |rest: &str| {
            let after = rest.strip_prefix('-');
            after.is_some_and(|after| after.starts_with(BLANKS))
        };
        if action_start.is_some() && is_trimmed(&lexer.rest[2..]) {
            text = text.trim_end_matches(BLANKS);
        }
        if !text.is_empty() {
            let text = text.to_owned();
            lexer.push(TemplateToken::Text(text), false);
        }
        if action_start.is_none() {
            break;
        }
        lexer.take_bytes(2);
        if is_trimmed(lexer.rest) {
            lexer.take_bytes(1);
        }
        trims_next_text = lexer.lex_action()?;
    }
    Ok(lexer.lexemes)
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

impl<'a> TemplateLexer<'a> {
    fn push(&mut self, token: TemplateToken, follows_blank: bool) {
        let line = self.line;
        self.lexemes.push(Lexeme { token, line, follows_blank });
    }

    /// Consumes a number of bytes and returns them.
    fn take_bytes(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) -> bool {
        let blank_bytes = self.rest.len() - self.rest.trim_start_matches(BLANKS).len();
        self.take_bytes(blank_bytes);
        blank_bytes > 0
    }

    fn take_word(&mut self) -> &'a str {
        let end = self.rest.find(|c| !is_word(c));
        self.take_bytes(end.unwrap_or(self.rest.len()))
    }

    /// Reads an action after its `{{`. Returns whether the text after its `}}` is to be trimmed.
    fn lex_action(&mut self) -> Outcome<bool> {
        let before = self.rest;
        self.skip_blanks();
        if self.rest.starts_with("/*") {
            return self.lex_comment();
        }
        let first_line = self.line;
        self.rest = before;
        self.push(TemplateToken::Open, false);
        loop {
            let follows_blank = self.skip_blanks();
            let trims_next_text = follows_blank && self.rest.starts_with("-}}");
            if trims_next_text || self.rest.starts_with("}}") {
                self.take_bytes(if trims_next_text { 3 } else { 2 });
                self.push(TemplateToken::Close, follows_blank);
                return Ok(trims_next_text);
            }
            if self.rest.is_empty() {
                return fail_at(first_line, "an action is not closed: }} is expected");
            }
            let token = self.lex_token()?;
            self.push(token, follows_blank);
        }
    }

    fn lex_comment(&mut self) -> Outcome<bool> {
        let Some(end) = self.rest.find("*/") else {
            return fail_at(self.line, "a comment is not closed: */ is expected");
        };
        self.take_bytes(end + 2);
        let trims_next_text = self.skip_blanks() && self.rest.starts_with('-');
        if trims_next_text {
            self.take_bytes(1);
        }
        if !self.rest.starts_with("}}") {
            return fail_at(self.line, "a comment ends before }}");
        }
        self.take_bytes(2);
        Ok(trims_next_text)
    }

    fn lex_token(&mut self) -> Outcome<TemplateToken> {
        let first = self.rest.chars().next().unwrap_or_default();
        let second = self.rest.chars().nth(1).unwrap_or_default();
        let simple = match first {
            '(' => Some((TemplateToken::LeftParenthesis, 1)),
            ')' => Some((TemplateToken::RightParenthesis, 1)),
            '|' => Some((TemplateToken::Pipe, 1)),
            ',' => Some((TemplateToken::Comma, 1)),
            '=' => Some((TemplateToken::Assign, 1)),
            ':' if second == '=' => Some((TemplateToken::Declare, 2)),
            '.' if !is_word(second) => Some((TemplateToken::Dot, 1)),
            _ => None,
        };
        if let Some((token, bytes)) = simple {
            self.take_bytes(bytes);
            return Ok(token);
        }
        match first {
            '"' => self.lex_quoted('"').map(TemplateToken::Quoted),
            '\'' => {
                let text = self.lex_quoted('\'')?;
                let mut characters = text.chars();
                match (characters.next(), characters.next()) {
                    (Some(only), None) => Ok(TemplateToken::Int(i64::from(u32::from(only)))),
                    _ => fail_at(self.line, "one character is expected between '…'"),
                }
            }
            '`' => {
                self.take_bytes(1);
                let Some(end) = self.rest.find('`') else {
                    return fail_at(self.line, "a raw string is not closed: ` is expected");
                };
                let text = self.take_bytes(end).replace('\r', "");
                self.take_bytes(1);
                Ok(TemplateToken::Quoted(text))
            }
            '.' if !second.is_ascii_digit() => {
                self.take_bytes(1);
                Ok(TemplateToken::Field(self.take_word().to_owned()))
            }
            '$' => {
                self.take_bytes(1);
                Ok(TemplateToken::Variable(format!("${}", self.take_word())))
            }
            '+' | '-' | '.' | '0'..='9' => self.lex_number(),
            _ if is_word(first) => Ok(TemplateToken::Word(self.take_word().to_owned())),
            _ => fail_at(self.line, format!("{first:?} is not expected in an action")),
        }
    }

    fn lex_number(&mut self) -> Outcome<TemplateToken> {
        let mut previous = ' ';
        let end = self.rest.find(|c: char| {
            let is_sign = matches!(c, '+' | '-') && matches!(previous, ' ' | 'e' | 'E');
            previous = c;
            !(is_sign || is_word(c) || c == '.')
        });
        let text = self.take_bytes(end.unwrap_or(self.rest.len()));
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = digits.replace('_', "").to_ascii_lowercase();
        let radix = |prefix: &str, radix| {
            let digits = digits.strip_prefix(prefix)?;
            i64::from_str_radix(digits, radix).ok()
        };
        let whole = radix("0x", 16)
            .or_else(|| radix("0o", 8))
            .or_else(|| radix("0b", 2))
            .or_else(|| digits.parse().ok());
        let sign = if is_negative { -1 } else { 1 };
        if let Some(whole) = whole {
            return Ok(TemplateToken::Int(sign * whole));
        }
        let is_float = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match digits.parse::<f64>() {
            Ok(value) if is_float => Ok(TemplateToken::Float(f64::from(sign as i32) * value)),
            _ => fail_at(self.line, format!("{text:?} is not a number")),
        }
    }

    /// A string with Go's escapes.
    fn lex_quoted(&mut self, quote: char) -> Outcome<String> {
        let line = self.line;
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((offset, next)) = characters.next() {
            match next {
                _ if next == quote => {
                    self.take_bytes(offset + 1);
                    return Ok(text);
                }
                '\n' => return fail_at(line, "a string ends before its line does"),
                '\\' => {
                    let escape = characters.next().map_or(' ', |(_, escape)| escape);
                    let digits = match escape {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        _ => 0,
                    };
                    let hex: String = characters.by_ref().take(digits).map(|(_, c)| c).collect();
                    let Some(character) = unescape(escape, &hex) else {
                        return fail_at(line, format!("\\{escape}{hex} is not an escape sequence"));
                    };
                    text.push(character);
                }
                _ => text.push(next),
            }
        }
        fail_at(line, "a string is not closed")
    }
}

fn unescape(escape: char, hex: &str) -> Option<char> {
    Some(match escape {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '\'' | '"' => escape,
        'x' | 'u' | 'U' => char::from_u32(u32::from_str_radix(hex, 16).ok()?)?,
        _ => return None,
    })
}
