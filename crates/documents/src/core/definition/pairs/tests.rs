//! Forms of a reference's paths, and what a document with some of them refers to.

use expect_test::expect;
use serde_json::{Value, json};

use crate::core::definition::tests::{definitions, flights, given, refused, unfit};
use crate::core::definition::{Definitions, MatchMode};

#[test]
fn pairs_of_paths_are_an_object_or_a_list() {
    let mut file = flights();
    file["collections"][0]["references"][1]["paths"] =
        json!([["/plane/maker", "/maker"], ["/plane/tail", "/tail"]]);
    let listed = definitions(&file);
    let reference =
        |all: &Definitions| all.get(&"flights".parse().unwrap()).unwrap().references[1].clone();
    assert_eq!(reference(&listed), reference(&definitions(&flights())));
    file["collections"][0]["references"][1]["paths"] =
        json!([["/origin", "/maker"], ["/number", "/tail"]]);
    unfit(
        file.clone(),
        expect![
            "/collections/0/references/1/paths/1: `/number` is an integer, but `/tail` of `planes` is a string"
        ],
    );
    file["collections"][0]["references"][1]["paths"] =
        json!([["/origin", "/maker"], ["/origin", "/tail"]]);
    let reference = reference(&definitions(&file));
    assert_eq!(reference.match_mode, MatchMode::Simple);
    let targets: Vec<String> = reference.pairs.iter().map(|one| one.target.to_string()).collect();
    assert_eq!(targets, ["/maker", "/tail"]);
    refused(
        json!({"collection": "a", "identity": ["/id"], "references": [
            {"name": "b", "to": "b", "paths": [["/id", "/x"], ["/id", "/x"]]},
            {"name": "c", "to": "b", "paths": [["/id"]]},
        ], "schema": {"required": ["id"], "properties": {"id": {"type": "string"}}}}),
        expect!["/references/1/paths/0: invalid length 1, expected a tuple of size 2"],
    );
}

#[test]
fn a_shared_path_chooses_the_match_mode() {
    let reference = |more: Value| {
        let mut reference = json!({"name": "r", "to": "b", "paths": {"/a": "/x", "/b": "/y"}});
        reference.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let string = json!({"type": "string"});
        let definition = json!({"collection": "a", "identity": ["/id"], "references": [reference], "schema": {
            "required": ["id"], "properties": {"id": string, "a": string, "b": string}}});
        given(&definition)[0].definition.references[0].match_mode
    };
    assert_eq!(reference(json!({})), MatchMode::Full);
    assert_eq!(reference(json!({"match": "simple"})), MatchMode::Simple);
    assert_eq!(reference(json!({"paths": {"/id": "/x", "/b": "/y"}})), MatchMode::Simple);
    let full = json!({"paths": {"/id": "/x", "/b": "/y"}, "match": "full"});
    assert_eq!(reference(full), MatchMode::Full);
}
