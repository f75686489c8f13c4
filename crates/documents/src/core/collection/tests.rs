//! Identities and references of bodies.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::core::definition::tests::{definitions, flights};

const BYTES_MAX: usize = 1024 * 1024;

/// A collection of the flights' definitions.
pub(crate) fn collection(name: &str) -> Collection {
    let all = definitions(&flights());
    Collection::compile(&all, all.get(&name.parse().unwrap()).unwrap()).unwrap()
}

fn flight() -> Value {
    json!({
        "date": "2013-01-01", "carrier": "UA", "number": 1545, "hour": 5, "flight": "UA1545", "origin": "EWR", "delay": -2.5,
        "plane": {"tail": "N14228", "maker": "BOEING"},
        "stops": [{"airport": "IAH"}, {"airport": null}, {}, {"airport": "MIA"}, {"airport": "IAH"}, {"airport": "EWR"}],
    })
}

fn read(body: &Value) -> Result<Draft, DocumentsError> {
    collection("flights").parse(body.to_string().as_bytes(), BYTES_MAX)
}

fn refused(body: &Value, expected: Expect) {
    let Err(DocumentsError::ValidationFailed { violations }) = read(body) else {
        panic!("{body} is not refused");
    };
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_document_has_an_identity_aliases_and_references() {
    let flights = collection("flights");
    let draft = read(&flight()).unwrap();
    expect![[r#"["2013-01-01","UA",1545,5]"#]].assert_eq(draft.identity.as_str());
    let families: Vec<&str> =
        flights.identity_scopes().iter().map(|family| family.collection.as_str()).collect();
    assert_eq!(families, ["flights", "journeys"]);
    assert_eq!(draft.aliases.len(), 2);
    assert_eq!(draft.aliases[0], flights.identity_scopes()[0].alias(&draft.identity));
    let told: Vec<String> = draft
        .references
        .iter()
        .map(|target| {
            let told = flights.describe_unresolved(target);
            let identity = serde_json::to_string(&told.identity).unwrap();
            format!(
                "{} -> {} {} {:?} {}",
                told.reference,
                told.target_collection,
                target.identity.as_str(),
                told.pointers,
                identity
            )
        })
        .collect();
    // The parts of a plane are in the order of its own identity.
    expect![[r#"
        origin -> airports ["EWR"] ["/origin"] {"/faa":"EWR"}
        plane -> planes ["N14228","BOEING"] ["/plane/tail", "/plane/maker"] {"/maker":"BOEING","/tail":"N14228"}
        stops -> airports ["IAH"] ["/stops/0/airport"] {"/faa":"IAH"}
        stops -> airports ["MIA"] ["/stops/3/airport"] {"/faa":"MIA"}
        stops -> airports ["EWR"] ["/stops/5/airport"] {"/faa":"EWR"}"#]].assert_eq(&told.join("\n"));
}

#[test]
fn a_reference_has_the_alias_of_its_target() {
    let draft = read(&flight()).unwrap();
    let plane = json!({"maker": "BOEING", "tail": "N14228", "seats": 149});
    let plane = collection("planes").parse(plane.to_string().as_bytes(), BYTES_MAX).unwrap();
    assert_eq!(draft.references[1].alias, plane.aliases[0]);
    let airport = collection("airports").parse(br#"{"faa":"EWR"}"#, BYTES_MAX).unwrap();
    assert_eq!(draft.references[0].alias, airport.aliases[0]);
    assert_eq!(draft.references[4].alias, airport.aliases[0]);
    assert_ne!(draft.references[0].reference, draft.references[4].reference);
}

#[test]
fn equal_numbers_make_one_identity() {
    let text = flight().to_string();
    let other = text.replace("1545,", "1.545e3,");
    assert_ne!(text, other);
    let flights = collection("flights");
    let other = flights.parse(other.as_bytes(), BYTES_MAX).unwrap();
    let draft = read(&flight()).unwrap();
    assert_eq!(other, draft);
    assert_eq!(other.text, draft.body.to_string());
}

#[test]
fn absent_paths_make_no_reference() {
    let mut body = flight();
    let properties = body.as_object_mut().unwrap();
    properties.insert("plane".to_owned(), json!(null));
    properties.remove("stops");
    assert_eq!(read(&body).unwrap().references.len(), 1);
    body["plane"] = json!({"tail": null});
    assert_eq!(read(&body).unwrap().references.len(), 1);
}

#[test]
fn incomplete_references_are_rejected() {
    let mut body = flight();
    body["plane"] = json!({"maker": "BOEING", "tail": null});
    refused(
        &body,
        expect![
            "/plane/tail: reference `plane`: `/plane/tail` is missing: set all paths of the reference, or none"
        ],
    );
}

#[test]
fn incomplete_references_with_a_shared_path_are_absent() {
    let mut file = flights();
    // Only a flight with a gate refers to one: the airport of the gate is the flight's origin.
    file["collections"].as_array_mut().unwrap().push(json!({
        "collection": "gates", "identity": ["/airport", "/gate"],
        "schema": {"required": ["airport", "gate"], "properties": {"airport": {"type": "string"}, "gate": {"type": "string"}}},
    }));
    let flights = &mut file["collections"][0];
    flights["schema"]["properties"]["gate"] = json!({"type": ["string", "null"]});
    let paths = json!({"/origin": "/airport", "/gate": "/gate"});
    let gate = json!({"name": "gate", "to": "gates", "paths": paths});
    flights["references"].as_array_mut().unwrap().push(gate);
    let all = definitions(&file);
    let flights = Collection::compile(&all, all.get(&"flights".parse().unwrap()).unwrap()).unwrap();
    let count = |gate: Value| {
        let mut body = flight();
        body["gate"] = gate;
        flights.parse_value(&body, BYTES_MAX).unwrap().references.len()
    };
    let others = read(&flight()).unwrap().references.len();
    assert_eq!(count(Value::Null), others);
    assert_eq!(count(json!("A1")), others + 1);
}

#[test]
fn all_violations_are_reported() {
    let mut body = flight();
    body["number"] = json!("1545");
    body["stops"][3] = json!(7);
    body.as_object_mut().unwrap().remove("date");
    refused(
        &body,
        expect![[r#"
        lacks the property `date`
        /stops/3: must be an object
        /number: must be an integer"#]],
    );
    body = flight();
    body["flight"] = json!("x".repeat(5_000));
    refused(&body, expect!["/flight: an identity has at most 4096 bytes"]);
    let twice = br#"{"date":1,"date":2}"#;
    let error = collection("flights").parse(twice, BYTES_MAX).unwrap_err();
    expect!["the document is not valid: /date: this property occurs twice, at byte 10"]
        .assert_eq(&error.to_string());
}

#[test]
fn oversized_documents_are_rejected() {
    let text = flight().to_string();
    let flights = collection("flights");
    assert!(flights.parse(text.as_bytes(), text.len()).is_ok());
    let error = flights.parse(text.as_bytes(), text.len() - 1).unwrap_err();
    assert!(matches!(error, DocumentsError::PayloadTooLarge { .. }), "{error}");
    let mut body = flight();
    body["stops"] = (0..=DOCUMENT_REFERENCES_MAX)
        .map(|number| json!({"airport": number.to_string()}))
        .collect();
    refused(
        &body,
        expect![
            "the document has 10003 references, more than the maximum of 10000 (`document_references_max`)"
        ],
    );
}

#[test]
fn an_abstract_collection_has_no_documents() {
    let error = collection("journeys").parse(br#"{"id":"x"}"#, BYTES_MAX).unwrap_err();
    expect!["the document is not valid: collection `journeys` is abstract: write to a collection that extends it"].assert_eq(&error.to_string());
}

#[test]
fn generated_bodies_are_validated_like_sent_ones() {
    let draft = read(&flight()).unwrap();
    let flights = collection("flights");
    assert_eq!(flights.parse_value(&draft.body, BYTES_MAX).unwrap(), draft);
    assert!(flights.parse_value(&json!([]), BYTES_MAX).is_err());
    assert!(flights.parse_value(&draft.body, 10).is_err());
}

#[test]
fn inconsistent_definitions_do_not_compile() {
    let all = definitions(&flights());
    let nobody = Definitions::default();
    let error =
        Collection::compile(&nobody, all.get(&"flights".parse().unwrap()).unwrap()).unwrap_err();
    expect!["the definition is not valid: there is no collection `airports`"]
        .assert_eq(&error.to_string());
}
