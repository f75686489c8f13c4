//! Edges that point up or sideways, and dependencies declared in the wrong place, are found.

use serde_json::json;

use super::*;

fn table(text: &str) -> Table {
    text.parse().unwrap()
}

/// Sorted: whether a TOML table keeps its order depends on what else is built with it.
fn subjects(findings: &[Finding]) -> Vec<&str> {
    let mut subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
    subjects.sort_unstable();
    subjects
}

#[test]
fn an_edge_that_is_not_allowed_is_found_whatever_its_kind() {
    let metadata = json!({"packages": [
        {"name": "egret-base", "dependencies": [
            {"name": "serde", "path": null},
            {"name": "reqwest", "path": null, "kind": null},
        ]},
        {"name": "egret-queue", "dependencies": [
            {"name": "egret-base", "path": "/x/crates/base"},
            {"name": "egret-base-test", "path": "/x/crates/base-test", "kind": "dev"},
            {"name": "egret-postgres-test", "path": "/x/crates/postgres-test", "kind": null},
            {"name": "egret-views", "path": "/x/crates/views", "kind": "dev"},
        ]},
        {"name": "egret-stranger", "dependencies": []},
    ]});
    let layers: &[(&str, &[&str])] =
        &[("egret-base", &[]), ("egret-queue", &["egret-base"]), ("egret-gone", &[])];
    assert_eq!(
        subjects(&check_layers(&metadata, layers)),
        [
            "LAYERS names egret-gone, which is no crate",
            "egret-base must send requests through egret-outgoing",
            "egret-queue must not depend on egret-postgres-test",
            "egret-queue must not depend on egret-views",
            "egret-stranger has no line in LAYERS",
        ]
    );
}

#[test]
fn the_workspace_table_pins_and_switches_default_features_off() {
    let manifest = table(
        r#"
        [workspace.dependencies]
        egret-base = { path = "crates/base" }
        good = { version = "1.0", default-features = false }
        short = "1.0"
        any = { version = "*", default-features = false }
        eager = { version = "1.0" }
        "#,
    );
    assert_eq!(
        subjects(&check_workspace(&manifest)),
        [
            "any: needs a version",
            "eager: default-features = false is missing",
            "short: default-features = false is missing",
            "short: needs a version",
        ]
    );
}

#[test]
fn a_crate_takes_its_dependencies_from_the_workspace() {
    let manifest = table(
        r#"
        [dependencies]
        good.workspace = true
        [dev-dependencies]
        own = { version = "1.0" }
        [target.'cfg(unix)'.dependencies]
        bare = "1.0"
        "#,
    );
    let findings = check_crate("crates/a/Cargo.toml", &manifest);
    let names: Vec<&str> =
        subjects(&findings).iter().filter_map(|subject| subject.split(':').next()).collect();
    assert_eq!(names, ["bare", "own"]);
}

#[test]
fn a_dependency_nobody_uses_is_found() {
    let workspace = table("[workspace.dependencies]\na = { path = \"x\" }\nb = { path = \"y\" }\n");
    let user = table("[build-dependencies]\na.workspace = true\n");
    assert_eq!(
        subjects(&check_unused(&workspace, &[user])),
        ["b: no crate uses it, remove the line"]
    );
}
