//! RE2's syntax in that of `regex`.

use std::iter::Peekable;
use std::str::Chars;

/// Repetitions of more are refused by RE2.
const REPEATS_MAX: u32 = 1000;

/// Whether a character means something else than itself.
pub(super) fn is_special(c: char) -> bool {
    matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$')
}

/// Rewrites an expression.
///
/// # Errors
/// What RE2 refuses and `regex` takes.
pub(super) fn for_regex(pattern: &str) -> Result<String, String> {
    let mut rewriter = Rewriter {
        rest: pattern.chars().peekable(),
        output: String::with_capacity(pattern.len() + 8),
    };
    rewriter.rewrite_all()?;
    Ok(rewriter.output)
}

struct Rewriter<'a> {
    rest: Peekable<Chars<'a>>,
    output: String,
}

impl Rewriter<'_> {
    fn rewrite_all(&mut self) -> Result<(), String> {
        // Of a repetition that has just ended, its text.
        let mut last_repetition = String::new();
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.rewrite_escape(false)?,
                '[' => self.rewrite_class(),
                '*' | '+' | '?' => {
                    let is_lazy = c == '?' && matches!(&*last_repetition, "*" | "+" | "?" | "{}");
                    if !last_repetition.is_empty() && !is_lazy {
                        return Err(format!(
                            "invalid nested repetition operator: `{last_repetition}{c}`"
                        ));
                    }
                    self.output.push(c);
                    last_repetition = if is_lazy { last_repetition + "?" } else { c.to_string() };
                    continue;
                }
                '{' => {
                    if let Some(bounds) = self.parse_repetition()? {
                        if !last_repetition.is_empty() {
                            return Err(format!("invalid nested repetition operator: `{bounds}`"));
                        }
                        self.output.push_str(&bounds);
                        last_repetition = "{}".to_owned();
                        continue;
                    }
                    self.output.push_str("\\{");
                }
                '}' => self.output.push_str("\\}"),
                c => self.output.push(c),
            }
            last_repetition.clear();
        }
        Ok(())
    }

    /// `{2}`, `{2,}`, `{2,3}`; nothing where the brace stands for itself.
    fn parse_repetition(&mut self) -> Result<Option<String>, String> {
        let mut lookahead = self.rest.clone();
        let inside: String = lookahead.by_ref().take_while(|c| *c != '}').take(32).collect();
        let (min_text, max_text) = inside.split_once(',').unwrap_or((&inside, &inside));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_closed = self.rest.clone().nth(inside.chars().count()).is_some_and(|c| c == '}');
        if !is_number(min_text) || !(max_text.is_empty() || is_number(max_text)) || !is_closed {
            return Ok(None);
        }
        let exceeds_max = |text: &str| {
            !text.is_empty() && text.parse().map_or(true, |count: u32| count > REPEATS_MAX)
        };
        if exceeds_max(min_text) || exceeds_max(max_text) {
            return Err(format!("invalid repeat count: `{{{inside}}}`"));
        }
        self.rest = lookahead;
        Ok(Some(format!("{{{inside}}}")))
    }

    fn rewrite_escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let set = match c {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            's' => "[\\t\\n\\f\\r ]",
            'S' => "[^\\t\\n\\f\\r ]",
            'b' if !in_class => "(?-u:\\b)",
            'Q' if !in_class => {
                self.rewrite_quoted();
                return Ok(());
            }
            _ => {
                self.output.push('\\');
                self.output.push(c);
                return Ok(());
            }
        };
        self.output.push_str(set);
        Ok(())
    }

    /// `\Q…\E`: what is between stands for itself.
    fn rewrite_quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.output.push_str(&regex_syntax::escape(&c.to_string()));
        }
    }

    /// A class in brackets. `regex` has set operations and classes within classes there, RE2 has
    /// not.
    fn rewrite_class(&mut self) {
        self.output.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.output.push('^');
        }
        if self.rest.next_if_eq(&']').is_some() {
            self.output.push_str("\\]");
        }
        while let Some(c) = self.rest.next() {
            match c {
                ']' => {
                    self.output.push(']');
                    return;
                }
                '\\' if self.rewrite_escape(true).is_err() => return,
                '\\' => {}
                '[' if self.rest.peek() == Some(&':') => self.copy_named_class(),
                '[' | '&' | '~' => {
                    self.output.push('\\');
                    self.output.push(c);
                }
                '-' if self.rest.peek() == Some(&'-') => self.output.push_str("\\-"),
                c => self.output.push(c),
            }
        }
    }

    /// `[:alpha:]` within a class.
    fn copy_named_class(&mut self) {
        self.output.push('[');
        for c in self.rest.by_ref() {
            self.output.push(c);
            if c == ']' {
                return;
            }
        }
    }
}
