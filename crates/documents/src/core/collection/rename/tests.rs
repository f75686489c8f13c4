//! References to renamed documents.

use serde_json::json;

use super::*;
use crate::core::definition::{Definitions, parse};

const FILE: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "schema": {"type": "object",
        "properties": {"faa": {"type": "string"}}, "required": ["faa"]}},
    {"collection": "trips", "identity": ["/trip"], "references": [
        {"name": "base", "to": "airports", "paths": {"/base/airport": "/faa"}},
        {"name": "stops", "to": "airports", "paths": {"/stops/*/airport": "/faa"}}],
     "schema": {"type": "object", "properties": {"trip": {"type": "integer"},
        "base": {"type": "object", "properties": {"airport": {"type": "string"}}},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"airport": {"type": "string"}}}}},
        "required": ["trip"]}}]}"#;

#[test]
fn references_follow_wherever_they_are() {
    let all = Definitions::default().with(parse(FILE.as_bytes()).unwrap()).unwrap();
    let collection =
        |name: &str| Collection::compile(&all, all.get(&name.parse().unwrap()).unwrap()).unwrap();
    let (airports, trips) = (collection("airports"), collection("trips"));
    let identity =
        |faa: &str| airports.identity_scopes()[0].identity(&json!({ "faa": faa })).unwrap();
    let renamed = RenamedIdentities::from([(
        airports.identity_scopes()[0].alias(&identity("IDL")),
        identity("JFK"),
    )]);
    let body = json!({"trip": 1, "base": {"airport": "IDL"}, "stops": [{"airport": "LAX"}, {"airport": "IDL", "hours": 2}, {}]});
    let now = json!({"trip": 1, "base": {"airport": "JFK"}, "stops": [{"airport": "LAX"}, {"airport": "JFK", "hours": 2}, {}]});
    assert_eq!(trips.update_references(&body, &renamed), Ok(Some(now.clone())));
    assert_eq!(trips.update_references(&now, &renamed), Ok(None));
}

/// An offering has its school twice, in `school` and in `session`; a section names it once, and a
/// room must be in the same school.
const OFFERINGS: &str = r#"{"collections": [
    {"collection": "offerings", "identity": ["/school", "/session/school"], "schema": {"type": "object",
        "properties": {"school": {"type": "integer"}, "session": {"type": "object", "required": ["school"],
            "properties": {"school": {"type": "integer"}}}}, "required": ["school", "session"]}},
    {"collection": "sections", "identity": ["/id"], "equal": [["/school", "/rooms/*/school"]],
        "references": [{"name": "offering", "to": "offerings",
            "paths": [["/school", "/school"], ["/school", "/session/school"]]}],
        "schema": {"type": "object", "properties": {"id": {"type": "integer"}, "school": {"type": "integer"},
            "rooms": {"type": "array", "items": {"type": "object", "properties": {"school": {"type": "integer"}}}}},
            "required": ["id"]}}]}"#;

#[test]
fn one_path_names_several_parts_and_equal_places_follow() {
    let all = Definitions::default().with(parse(OFFERINGS.as_bytes()).unwrap()).unwrap();
    let collection =
        |name: &str| Collection::compile(&all, all.get(&name.parse().unwrap()).unwrap()).unwrap();
    let (offerings, sections) = (collection("offerings"), collection("sections"));
    let identity = |school: i32, session: i32| {
        let body = json!({"school": school, "session": {"school": session}});
        offerings.identity_scopes()[0].identity(&body).unwrap()
    };
    let renamed = |school: i32, session: i32| {
        let old = offerings.identity_scopes()[0].alias(&identity(1, 1));
        RenamedIdentities::from([(old, identity(school, session))])
    };
    let section = json!({"id": 7, "school": 1, "rooms": [{"school": 1}, {}, {"school": 1}]});
    let draft = sections.parse_value(&section, 1_000).unwrap();
    assert_eq!(draft.references[0].identity, identity(1, 1));
    assert_eq!(sections.describe_unresolved(&draft.references[0]).pointers, ["/school"]);
    let moved = json!({"id": 7, "school": 2, "rooms": [{"school": 2}, {}, {"school": 2}]});
    assert_eq!(sections.update_references(&section, &renamed(2, 2)), Ok(Some(moved)));
    let conflict = sections.update_references(&section, &renamed(2, 1)).unwrap_err();
    expect_test::expect![[
        "/school: it would have to be 2 by `/school` of reference `offering`, and 1 by `/session/school` of reference `offering`"
    ]].assert_eq(&conflict.to_string());
}
