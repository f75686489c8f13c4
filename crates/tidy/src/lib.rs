//! The house rules: each one a function from text to [`Finding`]s, run over the checkout by
//! `tests/it`. Nothing here is part of the product.

pub mod conditions;
pub mod exceptions;
pub mod imports;
pub mod language;
pub mod manifests;
pub mod markdown;
pub mod promises;
pub mod rust;
pub mod text;
pub mod tree;

use std::fmt;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, as the exception list spells it.
    pub rule: &'static str,
    /// The file, relative to the root of the checkout.
    pub path: String,
    /// The line, counted from one.
    pub line: usize,
    /// What breaks the rule: a function, a link, a dependency. Stable while lines move.
    pub subject: String,
}

impl Finding {
    /// A finding; `subject` is what an exception would name.
    pub fn new(rule: &'static str, path: &str, line: usize, subject: impl Into<String>) -> Self {
        Self { rule, path: path.to_owned(), line, subject: subject.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.subject)
    }
}
