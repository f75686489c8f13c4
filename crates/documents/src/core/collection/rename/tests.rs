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
    assert_eq!(trips.update_references(&body, &renamed), Some(now.clone()));
    assert_eq!(trips.update_references(&now, &renamed), None);
}
