//! Persons where software acts: pronouns in comments, strings, pages and scripts.

use crate::Finding;
use crate::tree::File;

const PERSONS: [&str; 6] = ["he", "him", "his", "nobody", "somebody", "whoever"];
const INDEFINITE: [&str; 10] = [
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "himself",
    "someone",
    "who",
    "whom",
    "whomever",
    "whosoever",
];

/// Files other than Rust and Markdown whose lines are looked at.
const SCRIPT_ENDINGS: [&str; 5] = [".sql", ".proto", ".py", ".ts", ".toml"];

fn has_word(text: &str, list: &[&str]) -> bool {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .any(|word| list.contains(&word) || is_capitalized(word, list))
}

fn is_capitalized(word: &str, list: &[&str]) -> bool {
    let Some(first) = word.chars().next().filter(char::is_ascii_uppercase) else {
        return false;
    };
    let rest = &word[1..];
    list.iter().any(|entry| entry.starts_with(first.to_ascii_lowercase()) && entry[1..] == *rest)
}

fn has_person(text: &str) -> bool {
    has_word(text, &PERSONS) || has_word(text, &INDEFINITE)
}

/// The rule that a line of a comment breaks.
pub(super) fn rule_for_comment(text: &str) -> Option<&'static str> {
    if has_word(text, &PERSONS) {
        Some("person")
    } else if has_word(text, &INDEFINITE) {
        Some("person-who")
    } else {
        None
    }
}

/// The lines of a string literal that name a person, counted from zero. A single word is a value,
/// not prose.
pub(super) fn lines_of_literal(literal: &str) -> Vec<usize> {
    if literal.split_whitespace().count() < 2 {
        return Vec::new();
    }
    literal
        .lines()
        .enumerate()
        .filter(|(_, line)| has_person(line))
        .map(|(index, _)| index)
        .collect()
}

/// Lines of a Markdown page outside code, and lines of scripts.
pub(super) fn check_page(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    let report =
        |rule, index: usize, line: &str| Finding::new(rule, &file.path, index + 1, line.trim());
    if file.path.ends_with(".md") {
        let mut in_code = false;
        lines
            .filter(|(_, line)| {
                let is_fence = line.trim_start().starts_with("```");
                in_code ^= is_fence;
                !in_code && !is_fence && has_person(&without_code_spans(line))
            })
            .map(|(index, line)| report("person-page", index, line))
            .collect()
    } else if SCRIPT_ENDINGS.iter().any(|end| file.path.ends_with(end)) {
        lines
            .filter(|(_, line)| has_word(line, &PERSONS))
            .map(|(index, line)| report("person-script", index, line))
            .collect()
    } else {
        Vec::new()
    }
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
