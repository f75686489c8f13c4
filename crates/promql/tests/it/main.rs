//! Runs the `.test` files of `tests/cases`, and those of a directory of one's own:
//! `EGRET_PROMQL_TESTS=DIR`.

use std::path::{Path, PathBuf};

use egret_promql::{EvalOptions, promqltest};

/// Runs all files of a directory and returns how many queries answered as expected.
fn check(directory: &Path) -> usize {
    let mut passed = 0;
    let mut failures = Vec::new();
    let entries = std::fs::read_dir(directory).expect("the directory of test files");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "test"))
    {
        let text = std::fs::read_to_string(path).expect("a test file");
        let report = promqltest::run(&path.display().to_string(), &text, &EvalOptions::default());
        passed += report.passed;
        failures.extend(report.failures);
    }
    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", shown.len(), shown.join("\n"));
    passed
}

#[test]
fn every_file_passes() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let named = std::env::var_os("EGRET_PROMQL_TESTS").map(PathBuf::from);
    for directory in std::iter::once(own).chain(named) {
        let passed = check(&directory);
        assert!(passed > 0, "{} has no query", directory.display());
    }
}
