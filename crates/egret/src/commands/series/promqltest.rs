//! Runs files of Prometheus's tests of PromQL against the evaluator itself.

use std::path::PathBuf;

use anyhow::Context;
use egret_promql::{EvalOptions, promqltest};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, listing, printable};

/// Runs every file, tells how each did, and fails when one did not pass.
pub(crate) fn run(paths: &[PathBuf], output: Output) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for path in expand_paths(paths)? {
        let name = path.display().to_string();
        let text = std::fs::read(&path).with_context(|| name.clone())?;
        let text = String::from_utf8_lossy(&text);
        let report = promqltest::run(&name, &text, &EvalOptions::default());
        reports.push((name, report));
    }
    let passed: usize = reports.iter().map(|(_, report)| report.passed).sum();
    let failed: usize = reports.iter().map(|(_, report)| report.failures.len()).sum();
    let unread: usize = reports.iter().map(|(_, report)| report.unreadable).sum();
    if output.is_json() {
        let files: Vec<_> = reports
            .iter()
            .map(|(name, report)| {
                let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
                json!({"file": name, "passed": report.passed, "failed": failures.len(), "failures": failures})
            })
            .collect();
        output.print_json(&json!({"passed": passed, "failed": failed, "files": files}))?;
    } else {
        for failure in reports.iter().flat_map(|(_, report)| &report.failures) {
            output.print_remark(&printable(&failure.to_string()));
        }
        let rows = reports.iter().map(|(name, report)| {
            let counts = [report.passed, report.failures.len()].map(|count| count.to_string());
            let [passed, failed] = counts;
            vec![name.clone(), passed, failed]
        });
        output.print_text(&listing(&["file", "passed", "failed"], rows))?;
    }
    check_results(passed, failed - unread, unread)
}

/// Fails when anything did: of queries, how many did and did not answer as expected; of commands,
/// how many could not be read.
fn check_results(passed: usize, failed: usize, unread: usize) -> Result<(), Failure> {
    let queries = passed + failed;
    let wrong = format!("{failed} of {queries} queries did not answer as expected");
    let malformed = format!("{unread} commands of the files cannot be read");
    match (failed, unread) {
        (0, 0) if queries == 0 => {
            Err(Failure::failed("promqltest_empty", "the files hold no query"))
        }
        (0, 0) => Ok(()),
        (_, 0) => Err(Failure::failed("promqltest_failed", wrong)),
        (0, _) => Err(Failure::failed("promqltest_malformed", malformed)),
        _ => Err(Failure::failed("promqltest_malformed", format!("{malformed}; {wrong}"))),
    }
}

/// The files that paths stand for: themselves, or what ends in `.test` in a directory.
fn expand_paths(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut test_files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension() == Some("test".as_ref()) {
                test_files.push(path);
            }
        }
        test_files.sort();
        files.extend(test_files);
    }
    Ok(files)
}
