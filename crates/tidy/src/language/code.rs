//! Rules for Rust tokens: type definitions, parameters, `match` on a bool, texts in strings.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::persons;
use crate::Finding;
use crate::rust::{identifier, is_brace, is_punct, opens_test_module};

/// A name or a text, and the line where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub line: usize,
    pub text: String,
}

/// What one file holds.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub types: Vec<Occurrence>,
    tuple_parameters: Vec<Occurrence>,
    bool_matches: Vec<Occurrence>,
    person_texts: Vec<Occurrence>,
}

impl Code {
    pub(super) fn read(tokens: TokenStream, in_tests: bool) -> Self {
        let mut code = Self::default();
        code.walk(tokens, in_tests);
        code
    }

    /// Findings of the rules that need no other file.
    pub(super) fn check(&self, path: &str) -> Vec<Finding> {
        let rules = [
            ("tuple-parameter", &self.tuple_parameters),
            ("bool-match", &self.bool_matches),
            ("person-text", &self.person_texts),
        ];
        rules
            .into_iter()
            .flat_map(|(rule, occurrences)| {
                occurrences.iter().map(move |occurrence| {
                    Finding::new(rule, path, occurrence.line, &occurrence.text)
                })
            })
            .collect()
    }

    fn walk(&mut self, stream: TokenStream, in_tests: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        for (position, tree) in trees.iter().enumerate() {
            let rest = &trees[position..];
            match tree {
                TokenTree::Ident(_) => self.read_item(rest),
                TokenTree::Literal(literal) if !in_tests => {
                    let source = literal.to_string();
                    let first_line = literal.span().start().line;
                    for offset in persons::lines_of_literal(&source) {
                        self.person_texts.push(Occurrence {
                            line: first_line + offset,
                            text: source.lines().nth(offset).unwrap_or_default().to_owned(),
                        });
                    }
                }
                TokenTree::Group(group) if !is_doc_attribute(group) => {
                    let in_tests = in_tests || opens_test_module(&trees[..position]);
                    self.walk(group.stream(), in_tests);
                }
                _ => {}
            }
        }
    }

    fn read_item(&mut self, rest: &[TokenTree]) {
        let [keyword, next, ..] = rest else {
            return;
        };
        let line = keyword.span().start().line;
        match identifier(keyword).as_deref() {
            Some("struct" | "enum" | "trait" | "union") => {
                if let Some(text) =
                    identifier(next).filter(|name| name.starts_with(char::is_uppercase))
                {
                    self.types.push(Occurrence { line, text });
                }
            }
            Some("fn") => {
                if let Some(text) = identifier(next)
                    && parameters(&rest[2..]).is_some_and(has_tuple)
                {
                    self.tuple_parameters.push(Occurrence { line, text });
                }
            }
            Some("match") if first_braces(rest).is_some_and(has_bool_arm) => {
                let scrutinee = rest.iter().take_while(|tree| !is_brace(tree));
                let text = scrutinee.cloned().collect::<TokenStream>().to_string();
                self.bool_matches.push(Occurrence { line, text });
            }
            _ => {}
        }
    }
}

/// Doc comments arrive as `#[doc = "…"]`; the rules for comments read them.
fn is_doc_attribute(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && group
            .stream()
            .into_iter()
            .next()
            .and_then(|first| identifier(&first))
            .is_some_and(|first| first == "doc")
}

/// The parentheses after a function's name and generics.
fn parameters(after_name: &[TokenTree]) -> Option<&Group> {
    let mut angles = Angles::default();
    after_name.iter().find_map(|tree| match tree {
        TokenTree::Group(group)
            if angles.depth == 0 && group.delimiter() == Delimiter::Parenthesis =>
        {
            Some(group)
        }
        other => {
            angles.observe(other);
            None
        }
    })
}

/// Counts `<` and `>`, but not the `>` of `->` and `=>`.
#[derive(Default)]
struct Angles {
    depth: usize,
    after_arrow_stem: bool,
}

impl Angles {
    fn observe(&mut self, tree: &TokenTree) {
        if is_punct(tree, '<') {
            self.depth += 1;
        } else if is_punct(tree, '>') && !self.after_arrow_stem {
            self.depth = self.depth.saturating_sub(1);
        }
        self.after_arrow_stem = is_punct(tree, '-') || is_punct(tree, '=');
    }
}

/// Whether the type of a parameter is a tuple or a reference to one.
fn has_tuple(parameters: &Group) -> bool {
    let trees: Vec<TokenTree> = parameters.stream().into_iter().collect();
    split_at_commas(&trees).into_iter().any(|parameter| {
        let colon =
            parameter.iter().position(|tree| is_punct(tree, ':')).unwrap_or(parameter.len());
        let type_tokens = strip_reference(parameter.get(colon + 1..).unwrap_or_default());
        matches!(type_tokens, [TokenTree::Group(group)]
            if group.delimiter() == Delimiter::Parenthesis && has_comma(group))
    })
}

/// A type without `&`, `&mut` or `&'static mut` before it.
fn strip_reference(type_tokens: &[TokenTree]) -> &[TokenTree] {
    match type_tokens {
        [reference, rest @ ..] if is_punct(reference, '&') => strip_reference(rest),
        [quote, _, rest @ ..] if is_punct(quote, '\'') => strip_reference(rest),
        [keyword, rest @ ..] if identifier(keyword).as_deref() == Some("mut") => rest,
        _ => type_tokens,
    }
}

fn has_comma(group: &Group) -> bool {
    group.stream().into_iter().any(|tree| is_punct(&tree, ','))
}

fn split_at_commas(trees: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut angles = Angles::default();
    trees
        .split(|tree| {
            angles.observe(tree);
            angles.depth == 0 && is_punct(tree, ',')
        })
        .collect()
}

/// The first braces: those of a `match`, as its scrutinee has none outside parentheses.
fn first_braces(rest: &[TokenTree]) -> Option<&Group> {
    match rest.iter().find(|tree| is_brace(tree)) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

fn has_bool_arm(body: &Group) -> bool {
    let trees: Vec<TokenTree> = body.stream().into_iter().collect();
    (0..trees.len()).any(|position| {
        let is_bool = matches!(identifier(&trees[position]).as_deref(), Some("true" | "false"));
        let opens_arm = position
            .checked_sub(1)
            .is_none_or(|before| is_punct(&trees[before], ',') || is_brace(&trees[before]));
        let is_pattern = matches!(&trees[position + 1..], [equals, angle, ..]
            if is_punct(equals, '=') && is_punct(angle, '>'));
        let is_guarded = trees.get(position + 1).and_then(identifier).as_deref() == Some("if");
        is_bool && opens_arm && (is_pattern || is_guarded)
    })
}

#[cfg(test)]
mod tests;
