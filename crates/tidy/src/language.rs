//! The house vocabulary as counts: names, comments and signatures that a rule excludes, found in
//! the whole checkout and compared with the numbers of [`allowances`], which may only fall.

pub mod allowances;
mod code;
mod comments;
mod exports;
pub mod glossary;
mod names;
mod persons;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenStream;

use crate::Finding;
use crate::rust::is_test_file;
use crate::tree::File;

/// Unit in which a rule's total is compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number of findings.
    Total,
    /// Per cent of all type definitions.
    PercentOfTypes,
    /// Per cent of all `///` blocks.
    PercentOfDocs,
    /// Findings per thousand lines of Rust.
    PerThousandLines,
}

/// One kind of finding.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The name in findings and in `allowances.txt`.
    pub name: &'static str,
    /// One line for the table of totals.
    pub summary: &'static str,
    /// The unit of `limit`.
    pub measure: Measure,
    /// The goal: at most so much. Rules without one may only fall.
    pub limit: Option<f64>,
}

const fn unlimited_rule(name: &'static str, summary: &'static str) -> Rule {
    Rule { name, summary, measure: Measure::Total, limit: None }
}

const fn with_limit(rule: Rule, measure: Measure, limit: f64) -> Rule {
    Rule { measure, limit: Some(limit), ..rule }
}

/// Every rule, in the order of the table of totals.
pub const RULES: [Rule; 15] = [
    with_limit(
        unlimited_rule("odd-type", "type names in odd_names.txt"),
        Measure::PercentOfTypes,
        1.0,
    ),
    unlimited_rule("participle-type", "other type names in -ed or -ing, or in more_odd_names.txt"),
    unlimited_rule("twin-type", "definitions of a type name that the crate defines twice"),
    with_limit(
        unlimited_rule("short-doc", "doc comments under four words"),
        Measure::PercentOfDocs,
        4.0,
    ),
    unlimited_rule("empty-phrase", "comment sentences such as \"They.\""),
    with_limit(
        unlimited_rule("wide-comment", "comment lines over 100 columns"),
        Measure::Total,
        0.0,
    ),
    with_limit(
        unlimited_rule("person", "comment lines with personal pronouns (persons.rs)"),
        Measure::PerThousandLines,
        0.07,
    ),
    unlimited_rule("person-who", "comment lines with indefinite or relative ones"),
    unlimited_rule("person-text", "strings outside tests with either"),
    unlimited_rule("person-page", "Markdown lines outside code with either"),
    unlimited_rule(
        "person-script",
        "SQL, proto, Python, TypeScript, TOML lines with personal ones",
    ),
    with_limit(
        unlimited_rule("tuple-parameter", "functions with a tuple as a parameter"),
        Measure::Total,
        10.0,
    ),
    with_limit(unlimited_rule("bool-match", "`match` on a bool"), Measure::PerThousandLines, 0.1),
    unlimited_rule("unused-pub", "`pub` items that no other crate names"),
    unlimited_rule("unreadable-source", "files that are no Rust"),
];

/// Totals of one rule by file, for the files that have any.
pub type Counts = BTreeMap<(String, String), usize>;

/// What a checkout holds: all findings and the denominators of the measures.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// In the order of files, then of rules.
    pub findings: Vec<Finding>,
    /// The number of lines of Rust, comments included.
    pub line_count: usize,
    /// Definitions of structs, enums, traits and unions.
    pub type_count: usize,
    /// Blocks of `///` lines.
    pub doc_count: usize,
    /// Types of libraries, as `crate::Type`.
    defined: BTreeSet<String>,
}

impl Survey {
    /// Reads all files of a checkout.
    pub fn new(files: &[File]) -> Self {
        let mut survey = Self::default();
        let mut exports = exports::Exports::default();
        let mut types = names::TypeNames::default();
        for file in files {
            if file.path.ends_with(".rs") {
                survey.read_rust(file, &mut exports, &mut types);
            } else {
                survey.findings.extend(persons::check_page(file));
            }
        }
        survey.findings.extend(types.twins());
        survey.findings.extend(exports.unused());
        survey.findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        survey
    }

    fn read_rust(
        &mut self,
        file: &File,
        exports: &mut exports::Exports,
        types: &mut names::TypeNames,
    ) {
        self.line_count += file.text.lines().count();
        let comments = comments::collect_comments(&file.text);
        self.doc_count += comments::doc_blocks(&comments).len();
        self.findings.extend(comments::check(file, &comments));
        match file.text.parse::<TokenStream>() {
            Ok(tokens) => {
                let code = code::Code::read(tokens.clone(), is_test_file(&file.path));
                self.type_count += code.types.len();
                self.findings.extend(names::check(&file.path, &code.types));
                self.findings.extend(code.check(&file.path));
                if let Some(library) = exports::library_of(&file.path) {
                    let names = code.types.iter();
                    self.defined
                        .extend(names.map(|definition| format!("{library}::{}", definition.text)));
                }
                types.add(&file.path, &code.types);
                exports.add(&file.path, tokens);
            }
            Err(error) => {
                let subject = error.to_string();
                self.findings.push(Finding::new("unreadable-source", &file.path, 1, subject));
            }
        }
    }

    /// Whether a library defines a type, written `crate::Type`.
    pub(crate) fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    /// The number of findings of `rule`.
    pub fn total(&self, rule: &str) -> usize {
        self.findings_of(rule).count()
    }

    /// The findings of `rule`.
    pub fn findings_of(&self, rule: &str) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.rule == rule)
    }

    /// The total of `rule` in the unit of its limit.
    pub fn measure(&self, rule: &Rule) -> f64 {
        let total = self.total(rule.name) as f64;
        let share = |denominator: usize| total / denominator.max(1) as f64;
        match rule.measure {
            Measure::Total => total,
            Measure::PercentOfTypes => 100.0 * share(self.type_count),
            Measure::PercentOfDocs => 100.0 * share(self.doc_count),
            Measure::PerThousandLines => 1000.0 * share(self.line_count),
        }
    }

    /// Totals by rule and file.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for finding in &self.findings {
            let key = (finding.rule.to_owned(), finding.path.clone());
            *counts.entry(key).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests;
