//! Every house rule over the whole checkout. A failure lists each place with its line.

mod language;

use std::process::Command;
use std::sync::LazyLock;

use egret_tidy::exceptions::{EXCEPTIONS, Exception, apply_exceptions};
use egret_tidy::tree::{self, File};
use egret_tidy::{Finding, conditions, imports, manifests, markdown, promises, rust, text};

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| tree::read_files(&tree::checkout_root()));

fn files_ending(end: &str) -> impl Iterator<Item = &'static File> {
    FILES.iter().filter(move |file| file.path.ends_with(end))
}

fn file_text(path: &str) -> &'static str {
    let file = FILES.iter().find(|file| file.path == path);
    &file.unwrap_or_else(|| panic!("{path} is missing")).text
}

/// `rules` are those this test is about: it alone judges their exceptions.
fn assert_passes(rules: &[&str], findings: &[Finding]) {
    let exceptions: Vec<Exception> =
        EXCEPTIONS.iter().filter(|exception| rules.contains(&exception.rule)).copied().collect();
    let complaints = apply_exceptions(findings, &exceptions);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

const RUST_RULES: [&str; 9] = [
    "opening",
    "long-file",
    "long-function",
    "vague-name",
    "unreadable",
    "unwrap",
    "unfinished",
    "ignored-test",
    "unsafe",
];

#[test]
fn rust_files_keep_the_rules() {
    let findings: Vec<Finding> = files_ending(".rs")
        .flat_map(rust::check)
        .filter(|finding| RUST_RULES.contains(&finding.rule))
        .collect();
    assert_passes(&RUST_RULES, &findings);
}

#[test]
fn tests_do_not_sleep() {
    let findings: Vec<Finding> = files_ending(".rs")
        .flat_map(rust::check)
        .filter(|finding| finding.rule == "sleep-in-test")
        .collect();
    assert_passes(&["sleep-in-test"], &findings);
}

#[test]
fn every_exception_names_a_rule_that_exists() {
    let known: Vec<&str> = RUST_RULES
        .iter()
        .copied()
        .chain([
            "sleep-in-test",
            "layer",
            "room-import",
            "import-circle",
            "dependency",
            "long-page",
            "broken-link",
            "unlisted-page",
            "no-such-target",
            "untested-promise",
            "no-such-test",
            "registry-host",
            "machine-path",
            "condition-name",
            "unlisted-condition",
            "no-such-condition",
            "no-such-type",
        ])
        .collect();
    for exception in EXCEPTIONS {
        assert!(known.contains(&exception.rule), "{exception:?}");
    }
}

#[test]
fn crates_depend_downwards_only() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(tree::checkout_root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout).unwrap();
    assert_passes(&["layer"], &manifests::check_layers(&metadata, manifests::LAYERS));
}

#[test]
fn files_import_downwards_and_in_no_large_circle() {
    assert_passes(&["import-circle"], &imports::check(&FILES));
}

#[test]
fn dependencies_are_declared_once() {
    let workspace: toml::Table = file_text("Cargo.toml").parse().unwrap();
    let crates: Vec<(&str, toml::Table)> = files_ending("/Cargo.toml")
        .filter(|file| file.path.starts_with("crates/"))
        .map(|file| (file.path.as_str(), file.text.parse().unwrap()))
        .collect();
    let mut findings = manifests::check_workspace(&workspace);
    for (path, manifest) in &crates {
        findings.extend(manifests::check_crate(path, manifest));
    }
    let tables: Vec<toml::Table> = crates.into_iter().map(|(_, manifest)| manifest).collect();
    findings.extend(manifests::check_unused(&workspace, &tables));
    assert_passes(&["dependency"], &findings);
}

#[test]
fn every_crate_has_its_page() {
    let missing: Vec<String> = files_ending("/Cargo.toml")
        .filter(|file| file.path.starts_with("crates/"))
        .map(|file| file.path.replace("Cargo.toml", "README.md"))
        .filter(|readme| !FILES.iter().any(|file| file.path == *readme))
        .collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    for page in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"] {
        assert!(!file_text(page).trim().is_empty(), "{page} is empty");
    }
}

#[test]
fn pages_keep_their_length() {
    let findings: Vec<Finding> = files_ending(".md").filter_map(markdown::check_length).collect();
    assert_passes(&["long-page"], &findings);
}

#[test]
fn links_lead_somewhere() {
    let root = tree::checkout_root();
    let findings: Vec<Finding> = files_ending(".md")
        .flat_map(|file| markdown::check_links(file, &FILES, |path| root.join(path).exists()))
        .collect();
    assert_passes(&["broken-link"], &findings);
}

#[test]
fn pages_are_in_the_summary() {
    assert_passes(&["unlisted-page"], &markdown::check_summary(&FILES));
}

#[test]
fn make_targets_in_the_docs_exist() {
    let makefile = file_text("Makefile");
    let findings: Vec<Finding> =
        files_ending(".md").flat_map(|file| markdown::check_make_targets(file, makefile)).collect();
    assert_passes(&["no-such-target"], &findings);
}

#[test]
fn promises_of_the_threat_model_are_tested() {
    let page = FILES.iter().find(|file| file.path == promises::PAGE);
    let findings = promises::check(page.expect("the threat model is kept"), &FILES);
    assert_passes(&["untested-promise", "no-such-test"], &findings);
}

#[test]
fn conditions_are_listed() {
    let page = FILES.iter().find(|file| file.path == conditions::PAGE);
    // What makes conditions of any name, and this rule itself.
    let is_own = |path: &str| {
        path.starts_with("crates/base/src/condition") || path.starts_with("crates/tidy/")
    };
    let sources: Vec<&File> = files_ending(".rs").filter(|file| !is_own(&file.path)).collect();
    let findings = conditions::check(page.expect("conditions are listed"), &sources);
    assert_passes(&["condition-name", "unlisted-condition", "no-such-condition"], &findings);
}

#[test]
fn nothing_names_one_machine_or_one_registry() {
    let findings: Vec<Finding> = FILES.iter().flat_map(text::check).collect();
    assert_passes(&["registry-host", "machine-path"], &findings);
}
