//! Promises of the threat model: each row of a table names the tests that show it, and these exist.

use crate::Finding;
use crate::tree::File;

/// The page that the rule is about.
pub const PAGE: &str = "docs/security.md";

/// The head of a table of promises.
const TABLE_HEAD: &str = "| promise | test |";

/// Rows of promises in `page` that name no test, or one that is not in `files`.
///
/// A test is written as `crate::module::function`: the crate's directory, any modules, the name of
/// the function.
pub fn check(page: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, row) in promise_rows(&page.text) {
        let tests = row.rsplit('|').nth(1).map(code_spans).unwrap_or_default();
        if tests.is_empty() {
            findings.push(Finding::new("untested-promise", &page.path, line, row));
        }
        let missing = tests.into_iter().filter(|test| !has_test(test, files));
        findings.extend(missing.map(|test| Finding::new("no-such-test", &page.path, line, test)));
    }
    findings
}

/// The rows below each head, with their lines counted from one.
fn promise_rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_inside = false;
    let mut is_row = move |line: &str| {
        let is_row = is_inside && line.starts_with('|');
        is_inside = line == TABLE_HEAD || is_row;
        is_row && !line.starts_with("|---")
    };
    text.lines()
        .enumerate()
        .filter(move |(_, line)| is_row(line))
        .map(|(index, line)| (index + 1, line))
}

/// What stands between backticks.
fn code_spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a file of the crate's tests has the function.
fn has_test(test: &str, files: &[File]) -> bool {
    let (Some((name, _)), Some((_, function))) = (test.split_once("::"), test.rsplit_once("::"))
    else {
        return false;
    };
    let directory = format!("crates/{name}/");
    let declaration = format!("fn {function}(");
    files.iter().any(|file| {
        let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
        is_test && file.path.starts_with(&directory) && file.text.contains(&declaration)
    })
}

#[cfg(test)]
mod tests;
