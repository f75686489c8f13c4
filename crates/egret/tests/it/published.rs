//! What a running Egret publishes of itself: the OpenAPI document of all routes, and the metrics.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use egret_tidy::tree;
use rustix::process::Signal;
use serde_json::Value;

use crate::clients::installed;
use crate::place::{Place, text};

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a head ends").1
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|inner| references(inner, found));
        }
        Value::Array(array) => array.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

fn assert_document_is_whole(document: &Value) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    let leads_nowhere = |reference: &&&str| {
        let pointer = reference.strip_prefix('#').unwrap_or("/outside");
        document.pointer(pointer).is_none()
    };
    let dangling: Vec<_> = found.iter().filter(leads_nowhere).collect();
    assert!(dangling.is_empty(), "{dangling:?}");
    let mut ids = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{method} {path}: {id} is taken");
            let errors = operation["responses"]["default"]["$ref"].as_str().unwrap();
            let is_prometheus = path.starts_with("/prometheus/");
            assert_eq!(errors.ends_with("/PrometheusProblem"), is_prometheus, "{path}");
        }
    }
}

/// Texts of bodies that may be anything: what people read, and versions that are compared.
const FREE_TEXTS: [&str; 5] = [
    "BatchOperation.if_match",
    "BatchOperation.if_none_match",
    "ClaimRequest.worker",
    "Failure.error",
    "Nack.reason",
];

/// What is said of a text beside that it is one.
const SAID_OF_TEXTS: [&str; 5] = ["const", "enum", "format", "maxLength", "pattern"];

/// The texts in a schema of which nothing more is said.
fn free_texts(schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    if !schema.is_object() {
        return;
    }
    let types = &schema["type"];
    let is_text = types == "string"
        || types.as_array().is_some_and(|types| types.iter().any(|one| one == "string"));
    if is_text && SAID_OF_TEXTS.iter().all(|key| schema.get(key).is_none()) {
        found.insert(place.to_owned());
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, inner) in properties {
        free_texts(inner, &format!("{place}.{name}"), found);
    }
    for key in ["items", "additionalProperties", "propertyNames"] {
        free_texts(&schema[key], &format!("{place}.{key}"), found);
    }
    // Where the type is said, alternatives only add to it.
    if types.is_null() {
        let alternatives = [&schema["oneOf"], &schema["anyOf"]];
        let alternatives = alternatives.into_iter().filter_map(Value::as_array);
        for inner in alternatives.flatten() {
            free_texts(inner, place, found);
        }
    }
}

/// Of every text in a body it is said what the server takes.
fn assert_bodies_are_bounded(document: &Value) {
    let mut open = BTreeSet::new();
    for operations in document["paths"].as_object().unwrap().values() {
        for operation in operations.as_object().unwrap().values() {
            references(&operation["requestBody"], &mut open);
        }
    }
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    while let Some(reference) = open.pop_first() {
        if !seen.insert(reference) {
            continue;
        }
        let schema = document
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{reference} leads nowhere"));
        let name = reference.rsplit('/').next().unwrap();
        free_texts(schema, name, &mut found);
        references(schema, &mut open);
    }
    assert_eq!(Vec::from_iter(found), FREE_TEXTS);
    for name in ["CollectionDefinition", "TaskRequest", "TokenRequest", "ViewRequest"] {
        let reference = format!("#/components/schemas/{name}");
        assert!(seen.contains(&*reference), "{name}");
    }
}

/// `egret-server` makes the reference without engines, from the same routes.
fn assert_document_is_the_reference(document: &Value) {
    let path = "docs/reference/openapi.json";
    let reference = std::fs::read_to_string(tree::checkout_root().join(path)).unwrap();
    let served = serde_json::to_string_pretty(document).unwrap() + "\n";
    assert!(
        served == reference,
        "{path} is out of date: run: UPDATE_EXPECT=1 cargo test -p egret-server openapi"
    );
}

/// Validates the document against the specification of OpenAPI.
fn assert_document_is_valid(place: &Place, document: &str) {
    let file = place.directory.join("openapi.json");
    std::fs::write(&file, document).unwrap();
    let python = installed("EGRET_TEST_PYTHON", "python/bin/python");
    let output = Command::new(python.with_file_name("openapi-spec-validator"))
        .args(["--validation-errors", "all"])
        .arg(file)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// Prometheus's own judgement of names and types.
fn assert_metrics_are_clean(place: &Place) {
    let answer = place.get_with_token("/metrics", &place.admin_token());
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(body(&answer).as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn the_document_and_the_metrics_are_valid() {
    let place = Place::new("published");
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "one"]);
    let answer = place.get("/openapi.json");
    let text = body(&answer);
    let document = serde_json::from_str(text).unwrap();
    assert_document_is_the_reference(&document);
    assert_document_is_whole(&document);
    assert_bodies_are_bounded(&document);
    assert_document_is_valid(&place, text);
    assert_metrics_are_clean(&place);
    server.stop(Signal::TERM);
}
