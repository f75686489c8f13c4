//! Rules for `Cargo.toml`: which crate may depend on which, and one table in which every outside
//! dependency is declared.

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::Finding;

/// Each crate with the workspace crates it may depend on, lowest layer first. Engines are siblings
/// and never appear in each other's line.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("egret-base", &[]),
    ("egret-base-test", &["egret-base"]),
    ("egret-linux", &[]),
    ("egret-tls", &[]),
    ("egret-log", &["egret-base"]),
    ("egret-metrics-model", &[]),
    // Only its tests use the random numbers of the log's simulator.
    ("egret-metrics-wire", &["egret-base", "egret-log", "egret-metrics-model"]),
    ("egret-go-template", &["egret-metrics-model"]),
    // Only its example reads the text format.
    ("egret-blocks", &["egret-base", "egret-log", "egret-metrics-model", "egret-metrics-wire"]),
    ("egret-outgoing", &["egret-base", "egret-tls"]),
    // Only its tests use the random numbers of the log's simulator.
    ("egret-promql", &["egret-base", "egret-log", "egret-metrics-model"]),
    ("egret-proto", &[]),
    ("egret-state", &["egret-base"]),
    ("egret-postgres", &["egret-base", "egret-linux", "egret-tls"]),
    ("egret-postgres-test", &["egret-base", "egret-linux", "egret-postgres"]),
    ("egret-branches", &["egret-base", "egret-linux", "egret-state", "egret-postgres"]),
    ("egret-queue", &["egret-base", "egret-log", "egret-outgoing", "egret-postgres"]),
    (
        "egret-series",
        &[
            "egret-base",
            "egret-blocks",
            "egret-go-template",
            "egret-log",
            "egret-metrics-model",
            "egret-metrics-wire",
            "egret-outgoing",
            "egret-postgres",
            "egret-promql",
        ],
    ),
    ("egret-views", &["egret-base", "egret-postgres"]),
    ("egret-documents", &["egret-base", "egret-outgoing", "egret-postgres"]),
    (
        "egret-server",
        &[
            "egret-base",
            "egret-state",
            "egret-postgres",
            "egret-branches",
            "egret-documents",
            "egret-linux",
            "egret-metrics-model",
            "egret-metrics-wire",
            "egret-outgoing",
            "egret-promql",
            "egret-proto",
            "egret-queue",
            "egret-series",
            "egret-views",
        ],
    ),
    // Only its tests start a server themselves.
    (
        "egret-bench",
        &[
            "egret-bench-cli",
            // The log has no public door.
            "egret-log",
            "egret-postgres",
            "egret-proto",
            "egret-tidy",
            "egret-tls",
        ],
    ),
    ("egret-bench-cli", &["egret-linux", "egret-tls"]),
    (
        "egret",
        &[
            "egret-base",
            "egret-linux",
            "egret-documents",
            "egret-log",
            "egret-metrics-model",
            "egret-metrics-wire",
            "egret-outgoing",
            "egret-promql",
            "egret-queue",
            "egret-series",
            "egret-views",
            "egret-state",
            "egret-postgres",
            "egret-branches",
            "egret-server",
            "egret-bench-cli",
            "egret-tls",
            // Only its tests speak gRPC themselves.
            "egret-proto",
            "egret-tidy",
        ],
    ),
    ("egret-tidy", &[]),
];

/// Crates that tests alone may depend on, whatever their crate.
const TEST_SUPPORT: [&str; 2] = ["egret-base-test", "egret-postgres-test"];

/// Crates that may make HTTP clients: the guarded one for requests that users cause, the command
/// line and the load harness for requests of the user at the keyboard.
const HTTP_CLIENTS: [&str; 3] = ["egret-outgoing", "egret", "egret-bench"];

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Breaches of the layering in the output of `cargo metadata --no-deps`.
pub fn check_layers(metadata: &Json, layers: &[(&str, &[&str])]) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = layers.iter().find(|(layer, _)| *layer == name) else {
            let subject = format!("{name} has no line in LAYERS");
            findings.push(Finding::new("layer", "crates/tidy/src/manifests.rs", 1, subject));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        let is_http_client =
            |dependency: &&Json| dependency["name"] == "reqwest" && dependency["kind"].is_null();
        if !HTTP_CLIENTS.contains(&name) && dependencies.iter().any(|one| is_http_client(&one)) {
            let subject = format!("{name} must send requests through egret-outgoing");
            findings.push(Finding::new("layer", "Cargo.toml", 1, subject));
        }
        let workspace_crates = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string() && !is_test_support(dependency))
            .filter_map(|dependency| dependency["name"].as_str());
        for dependency in workspace_crates.filter(|other| !allowed.contains(other)) {
            let subject = format!("{name} must not depend on {dependency}");
            findings.push(Finding::new("layer", "Cargo.toml", 1, subject));
        }
    }
    for (layer, _) in layers {
        if !packages.iter().any(|package| package["name"] == *layer) {
            let subject = format!("LAYERS names {layer}, which is no crate");
            findings.push(Finding::new("layer", "crates/tidy/src/manifests.rs", 1, subject));
        }
    }
    findings
}

/// Whether a dependency is test support that only tests depend on.
fn is_test_support(dependency: &Json) -> bool {
    let name = dependency["name"].as_str().unwrap_or_default();
    dependency["kind"] == "dev" && TEST_SUPPORT.contains(&name)
}

/// Breaches in the workspace's table: every outside dependency names a version and switches its
/// default features off.
pub fn check_workspace(manifest: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, declaration) in workspace_dependencies(manifest) {
        if declaration.get("path").is_some() {
            continue;
        }
        let mut report = |what: &str| {
            findings.push(Finding::new("dependency", "Cargo.toml", 1, format!("{name}: {what}")));
        };
        if declaration.get("default-features").and_then(Value::as_bool) != Some(false) {
            report("default-features = false is missing");
        }
        match declaration.get("version").and_then(Value::as_str) {
            Some(version) if version.starts_with(|c: char| c.is_ascii_digit() || c == '=') => {}
            _ => report("needs a version"),
        }
    }
    findings
}

/// Breaches in one crate's manifest: dependencies come from the workspace's table.
pub fn check_crate(path: &str, manifest: &Table) -> Vec<Finding> {
    crate_dependencies(manifest)
        .filter(|(_, declaration)| {
            declaration.get("workspace").and_then(Value::as_bool) != Some(true)
        })
        .map(|(name, _)| {
            let subject = format!(
                "{name}: declare it in [workspace.dependencies] and write `workspace = true`"
            );
            Finding::new("dependency", path, 1, subject)
        })
        .collect()
}

/// Dependencies that the workspace declares and no crate uses.
pub fn check_unused(workspace: &Table, crates: &[Table]) -> Vec<Finding> {
    workspace_dependencies(workspace)
        .filter(|(name, _)| {
            !crates.iter().flat_map(crate_dependencies).any(|(used, _)| used == *name)
        })
        .map(|(name, _)| {
            let subject = format!("{name}: no crate uses it, remove the line");
            Finding::new("dependency", "Cargo.toml", 1, subject)
        })
        .collect()
}

fn workspace_dependencies(manifest: &Table) -> impl Iterator<Item = (&str, &Value)> {
    manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .map(|(name, declaration)| (name.as_str(), declaration))
}

/// The dependencies of every kind, those of one platform included.
fn crate_dependencies(manifest: &Table) -> impl Iterator<Item = (&str, &Value)> {
    let platforms = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(|targets| targets.iter())
        .filter_map(|(_, target)| target.as_table());
    std::iter::once(manifest)
        .chain(platforms)
        .flat_map(|tables| DEPENDENCY_TABLES.iter().filter_map(|kind| tables.get(*kind)))
        .filter_map(Value::as_table)
        .flatten()
        .map(|(name, declaration)| (name.as_str(), declaration))
}

#[cfg(test)]
mod tests;
