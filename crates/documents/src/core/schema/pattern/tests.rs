//! Patterns with look-around, compared with what they mean.

use serde_json::json;

use super::without_look_around;
use crate::core::schema::Schema;

const TEXTS: [&str; 14] =
    ["", " ", "a", "ab", "a b", " a", "a ", "\ta", "a\t", "\u{a0}a", "a\nb", "\n", " \n a", "\na"];

/// Compares a pattern with the meaning of it.
fn check(pattern: &str, means: impl Fn(&str) -> bool) {
    assert_ne!(without_look_around(pattern), pattern);
    let schema = Schema::compile(&json!({"pattern": pattern})).unwrap();
    for text in TEXTS {
        assert_eq!(schema.validate(&json!(text)).is_ok(), means(text), "{pattern} and {text:?}");
    }
}

#[test]
fn patterns_that_mean_trimming_are_understood() {
    let begins = |text: &str| text.trim_start() == text;
    let ends = |text: &str| text.trim_end() == text;
    let one_line = |text: &str| !text.contains('\n');
    for pattern in [r"^(?!\s).*(?<!\s)$", r"^(?!\s)(.*)(?<!\s)$"] {
        check(pattern, |text| begins(text) && ends(text) && one_line(text));
    }
    for pattern in [r"^(?!\s)(.*\S)$", r"^(?=\S).*(?<=\S)$", r"^(?!\s).+(?<!\s)$"] {
        check(pattern, |text| begins(text) && ends(text) && one_line(text) && !text.is_empty());
    }
    check(r"^(?!\s).*$", |text| begins(text) && one_line(text));
    check(r"^(?!\s).+$", |text| begins(text) && one_line(text) && !text.is_empty());
    check(r"^.*(?<!\s)$", |text| ends(text) && one_line(text));
    check(r"^.+(?<!\s)$", |text| ends(text) && one_line(text) && !text.is_empty());
    check(r"^(?!\s*$).+", |text| !text.trim().is_empty() && !text.starts_with('\n'));
    check(r"^(?!\s*$).+$", |text| !text.trim().is_empty() && one_line(text));
}

#[test]
fn other_patterns_stay_as_they_are() {
    for pattern in [r"^\S+$", r"^(?!a).*$", r"^(?!\s)[a-z]+$", r"(?<!\s)$", r"^(.*)$"] {
        assert_eq!(without_look_around(pattern), pattern);
    }
}
