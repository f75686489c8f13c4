//! What is published of declared collections is so: a client that makes requests up from it is
//! answered as it says.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{DocumentsClient, beside};
use crate::clients::installed;
use crate::place::{Place, text};

/// Few values name documents, so that those that are made up often refer to some that are there; to
/// some airports and planes none can.
const COLLECTIONS: &str = r##"{"collections": [
    {"collection": "places", "abstract": true, "identity": ["/code"]},
    {"collection": "airports", "identity": ["/faa"], "identity_mutable": true, "query": ["/name", "/altitude", "/open"],
        "history": {"versions": 1000, "deleted": true}, "extends": [{"collection": "places", "identity": {"/faa": "/code"}}],
        "schema": {"type": "object", "required": ["faa"], "additionalProperties": false, "properties": {
            "faa": {"type": "string", "enum": ["EWR", "JFK", "LAX", "SWF"]}, "name": {"type": ["string", "null"], "maxLength": 40},
            "altitude": {"type": "number", "minimum": -500, "maximum": 9000}, "open": {"type": "boolean"}}}},
    {"collection": "planes", "identity": ["/tail"], "query": ["/seats"],
        "schema": {"type": "object", "required": ["tail"], "properties": {
            "tail": {"type": "string", "enum": ["N1", "N2", "N3"]}, "seats": {"type": "integer"}}}},
    {"collection": "flights", "identity": ["/carrier", "/number"], "query": ["/origin", "/delay", "/day"], "history": {"versions": 1000},
        "references": [
            {"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}},
            {"name": "plane", "to": "planes", "paths": {"/plane/tail": "/tail"}},
            {"name": "stops", "to": "places", "paths": {"/stops/*/place": "/code"}}],
        "schema": {"type": "object", "required": ["carrier", "number", "origin", "plane", "stops"], "properties": {
            "carrier": {"type": "string", "enum": ["B6", "UA"]}, "number": {"type": "integer", "minimum": 1, "maximum": 20},
            "origin": {"$ref": "#/$defs/code"}, "delay": {"type": ["number", "null"]}, "day": {"type": "string", "format": "date"},
            "plane": {"type": "object", "required": ["tail"], "properties": {"tail": {"type": "string", "enum": ["N1", "N2"]}}},
            "stops": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "object", "properties": {"place": {"$ref": "#/$defs/code"}}}}},
            "$defs": {"code": {"type": "string", "enum": ["EWR", "JFK", "LAX"]}}}}]}"##;

/// What the client is told beside the document: the same requests each time, as far as ids allow
/// for that, and nothing remembered.
///
/// It does not ask that what is valid by its schema be taken: references, versions and cursors are
/// beyond schemas. Of lines and of operations each is refused for itself, in an answer of 200.
const SETTINGS: &str = r#"
seed = 1
headers = { Authorization = "Bearer ${EGRET_TOKEN}" }
request-timeout = 60.0
suppress-health-check = ["too_slow"]

[cache]
enabled = false

[generation]
max-examples = 20
database = "none"

[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 410, 412, 415]

[[operations]]
include-path-regex = "/import$|/batch$"
checks.negative_data_rejection.enabled = false
"#;

/// Seconds that the client may take; it takes half a minute.
const SECONDS_MAX: &str = "1800";

fn declare(door: &DocumentsClient) {
    let collections: Value = serde_json::from_str(COLLECTIONS).unwrap();
    assert_eq!(door.post("collections", &collections).status, 200);
    let written = |collection: &str, document: Value| {
        let written = door.post(&format!("documents/{collection}"), &document);
        assert_eq!(written.status, 201, "{}", written.body);
    };
    for faa in ["EWR", "JFK", "LAX"] {
        let airport = json!({"faa": faa, "name": null, "altitude": 3.5, "open": true});
        written("airports", airport);
    }
    for tail in ["N1", "N2"] {
        written("planes", json!({"tail": tail, "seats": 149}));
    }
    let flight = json!({
        "carrier": "B6", "number": 1, "origin": "JFK", "plane": {"tail": "N1"}, "stops": [{"place": "EWR"}, {}], "day": "2013-01-01",
    });
    written("flights", flight);
}

/// The client, with what it is to be told in the place's directory.
fn client(place: &Place, door: &DocumentsClient) -> Command {
    std::fs::write(place.directory.join("schemathesis.toml"), SETTINGS).unwrap();
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/documents/described.py");
    let python = installed("EGRET_TEST_PYTHON", "python/bin/python");
    let mut client = Command::new("timeout");
    client
        .arg(SECONDS_MAX)
        .arg(python.with_file_name("schemathesis"))
        .args(["run", "--no-color", "--url"])
        .arg(door.url.strip_suffix("/v1").unwrap())
        .arg(format!("{}/collections/openapi.json", door.url))
        .env("SCHEMATHESIS_HOOKS", hooks)
        .env("EGRET_TOKEN", &door.token)
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&place.directory);
    client
}

#[test]
fn requests_that_are_made_up_are_answered_as_it_is_published() {
    let (_external, place, server) = beside("documents-described");
    let door = DocumentsClient::of(&place);
    declare(&door);
    let output = client(&place, &door).output().unwrap();
    let said = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{}: {said}", output.status);
    let checked = door.post("document-checks", &Value::Null);
    assert_eq!(checked.json()["findings"], json!([]));
    server.stop(Signal::INT);
    let log = place.log();
    let unexpected: Vec<&str> = log.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}
