//! The glossary of code names: each type that it names is defined.

use super::Survey;
use crate::Finding;
use crate::tree::File;

/// Where the glossary lies.
pub const PAGE: &str = "docs/glossary.md";

/// Names in the tables of `page`, written `crate::Type`, that the crate does not define.
pub fn check(page: &File, survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = page.text.lines().enumerate();
    for (index, row) in rows.filter(|(_, line)| line.starts_with('|')) {
        let code_spans = row.split('`').skip(1).step_by(2);
        let unknown = code_spans.filter(|name| name.contains("::") && !survey.defines(name));
        findings
            .extend(unknown.map(|name| Finding::new("no-such-type", &page.path, index + 1, name)));
    }
    findings
}

#[cfg(test)]
mod tests;
