//! Rules for Rust source, read as tokens: comments and strings cannot mislead them, and code inside
//! macros is seen like any other.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Finding;
use crate::tree::File;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;
const VAGUE_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "helper", "types"];
const UNFINISHED_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
const UNSAFE_ALLOWED_IN: &str = "crates/linux/";

/// Every breach in one source file.
pub fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_opening(file, &mut findings);
    check_file_length(file, &mut findings);
    check_file_name(file, &mut findings);
    match file.text.parse::<TokenStream>() {
        Ok(tokens) => {
            let mut scan = Scan { file, findings: &mut findings };
            scan.scan_tokens(tokens, is_test_file(&file.path));
        }
        Err(error) => findings.push(Finding::new("unreadable", &file.path, 1, error.to_string())),
    }
    findings
}

/// Test code by its place: `tests.rs` beside what it tests, and everything below `tests/`.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

fn check_opening(file: &File, findings: &mut Vec<Finding>) {
    let first = file.text.lines().find(|line| !line.starts_with("#![") && !line.trim().is_empty());
    let has_description = first.is_some_and(|line| {
        line.strip_prefix("//!").is_some_and(|text| text.split_whitespace().count() > 1)
    });
    if !has_description {
        findings.push(Finding::new(
            "opening",
            &file.path,
            1,
            "the file must open with `//!` and say what lives there",
        ));
    }
}

fn check_file_length(file: &File, findings: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(Finding::new("long-file", &file.path, lines, "file"));
    }
}

fn check_file_name(file: &File, findings: &mut Vec<Finding>) {
    for part in file.path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        let stem = stem.strip_prefix("egret-").unwrap_or(stem);
        if VAGUE_NAMES.contains(&stem) {
            findings.push(Finding::new("vague-name", &file.path, 1, stem));
        }
    }
}

struct Scan<'a> {
    file: &'a File,
    findings: &'a mut Vec<Finding>,
}

impl Scan<'_> {
    fn scan_tokens(&mut self, stream: TokenStream, in_tests: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        for position in 0..trees.len() {
            let rest = &trees[position..];
            self.check_function_length(rest);
            self.check_attribute(rest);
            self.check_words(rest, &trees[..position], in_tests);
            if let TokenTree::Group(group) = &trees[position] {
                let in_tests = in_tests || opens_test_module(&trees[..position]);
                self.scan_tokens(group.stream(), in_tests);
            }
        }
    }

    fn report(&mut self, rule: &'static str, token: &TokenTree, subject: impl Into<String>) {
        let line = token.span().start().line;
        self.findings.push(Finding::new(rule, &self.file.path, line, subject));
    }

    /// From `fn` to the closing brace; attributes and documentation above do not count.
    fn check_function_length(&mut self, rest: &[TokenTree]) {
        let [keyword, TokenTree::Ident(name), ..] = rest else {
            return;
        };
        if identifier(keyword).as_deref() != Some("fn") {
            return;
        }
        let body = rest.iter().find(|tree| is_punct(tree, ';') || is_brace(tree));
        let Some(TokenTree::Group(body)) = body else {
            return;
        };
        let lines = body.span_close().end().line + 1 - keyword.span().start().line;
        if lines > FUNCTION_LINES_MAX {
            self.report("long-function", keyword, name.to_string());
        }
    }

    fn check_attribute(&mut self, rest: &[TokenTree]) {
        let [hash, TokenTree::Group(group), ..] = rest else {
            return;
        };
        if !is_punct(hash, '#') || group.delimiter() != Delimiter::Bracket {
            return;
        }
        let words: Vec<String> = flatten(group.stream()).iter().filter_map(identifier).collect();
        let is_conditional = words.first().is_some_and(|first| first == "cfg_attr");
        let is_ignored = words.first().is_some_and(|first| first == "ignore")
            || (is_conditional && words.iter().any(|word| word == "ignore"));
        if is_ignored {
            self.report("ignored-test", hash, "#[ignore]");
        }
    }

    fn check_words(&mut self, rest: &[TokenTree], preceding: &[TokenTree], in_tests: bool) {
        let Some(name) = identifier(&rest[0]) else {
            return;
        };
        let is_call = matches!(rest.get(1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
        match name.as_str() {
            "unwrap"
                if is_call
                    && !in_tests
                    && preceding.last().is_some_and(|tree| is_punct(tree, '.')) =>
            {
                self.report("unwrap", &rest[0], ".unwrap()");
            }
            "unsafe" if !self.file.path.starts_with(UNSAFE_ALLOWED_IN) => {
                self.report("unsafe", &rest[0], "unsafe");
            }
            "sleep" | "sleep_ms" | "sleep_until" if is_call && in_tests => {
                self.report("sleep-in-test", &rest[0], name);
            }
            "mod" => {
                if let Some(module) = rest.get(1).and_then(identifier)
                    && VAGUE_NAMES.contains(&module.as_str())
                {
                    self.report("vague-name", &rest[0], module);
                }
            }
            _ if UNFINISHED_MACROS.contains(&name.as_str())
                && rest.get(1).is_some_and(|tree| is_punct(tree, '!')) =>
            {
                self.report("unfinished", &rest[0], format!("{name}!"));
            }
            _ => {}
        }
    }
}

/// Whether the tokens before a brace are `#[cfg(test)] … mod name`.
pub(crate) fn opens_test_module(preceding: &[TokenTree]) -> bool {
    let [.., keyword, TokenTree::Ident(_)] = preceding else {
        return false;
    };
    if identifier(keyword).as_deref() != Some("mod") {
        return false;
    }
    // Attributes stand between the item before (its `;` or body) and the keyword.
    preceding[..preceding.len() - 2]
        .iter()
        .rev()
        .take_while(|tree| match tree {
            TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
            other => !is_punct(other, ';'),
        })
        .any(|tree| {
            let TokenTree::Group(group) = tree else {
                return false;
            };
            let text = group.stream().to_string().replace(' ', "");
            text == "cfg(test)" || text.starts_with("cfg(all(test,")
        })
}

pub(crate) fn flatten(stream: TokenStream) -> Vec<TokenTree> {
    stream
        .into_iter()
        .flat_map(|tree| match &tree {
            TokenTree::Group(group) => flatten(group.stream()),
            _ => vec![tree],
        })
        .collect()
}

pub(crate) fn identifier(tree: &TokenTree) -> Option<String> {
    match tree {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    }
}

pub(crate) fn is_brace(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

pub(crate) fn is_punct(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == character)
}

#[cfg(test)]
mod tests;
