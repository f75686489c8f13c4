//! Differences between definitions.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::core::definition::tests::{definitions, flights};

fn flights_of(file: &Value) -> Collection {
    let all = definitions(file);
    Collection::compile(&all, all.get(&"flights".parse().unwrap()).unwrap()).unwrap()
}

/// The difference made by a change of the flights' definition; empty parts are left out.
fn check(change: impl FnOnce(&mut Value), expected: Expect) -> DefinitionDiff {
    let mut changed = flights();
    change(&mut changed["collections"][0]);
    let changes = DefinitionDiff::between(&flights_of(&flights()), &flights_of(&changed));
    let lines: Vec<String> = format!("{changes:#?}")
        .replace(",\n", "\n")
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.ends_with("[]")
                && !line.ends_with("false")
                && !line.ends_with("None")
                && line.len() > 1
        })
        .map(str::to_owned)
        .collect();
    expected.assert_eq(&lines.join(" "));
    changes
}

#[test]
fn nothing_changes_by_words() {
    let changes = check(
        |flights| {
            flights["schema"]["title"] = json!("Flights");
            flights["schema"]["properties"]["delay"]["description"] = json!("in minutes");
            flights["references"].as_array_mut().unwrap().reverse();
        },
        expect!["DefinitionDiff {"],
    );
    assert!(changes.is_empty());
    assert_eq!(changes.rejections(), []);
}

#[test]
fn each_kind_of_change() {
    check(
        |flights| flights["schema"]["minProperties"] = json!(2),
        expect!["DefinitionDiff { schema: true"],
    );
    let changes = check(
        |flights| flights["equal"] = json!([["/number", "/hour"]]),
        expect!["DefinitionDiff { equal: true"],
    );
    assert!(changes.needs_validation());
    let changes = check(
        |flights| flights["unique"] = json!([["/stops/*/airport"]]),
        expect!["DefinitionDiff { unique: true"],
    );
    assert!(changes.needs_validation());
    let changes = check(
        |flights| flights["references"][1]["match"] = json!("simple"),
        expect![[
            r#"DefinitionDiff { references_added: [ CollectionName( "plane" references_removed: [ CollectionName( "plane""#
        ]],
    );
    assert!(changes.has_changed_references());
    let changes = check(
        |flights| flights["identity_mutable"] = json!(true),
        expect!["DefinitionDiff { identity_mutable: Some( true"],
    );
    assert!(!changes.is_empty());
    let changes = check(
        |flights| flights["identity"] = json!(["/date", "/carrier", "/hour", "/number"]),
        expect!["DefinitionDiff { identity: true"],
    );
    assert_eq!(changes.rejections(), []);
    let own = "flights".parse().unwrap();
    assert_eq!(changes.changed_scopes(&own), [own]);
    check(
        |flights| {
            let references = flights["references"].as_array_mut().unwrap();
            references.remove(0);
            references.push(json!({"name": "via", "to": "airports", "paths": {"/origin": "/faa"}}));
            // The same name for another target.
            references[1]["to"] = json!("journeys");
            references[1]["paths"] = json!({"/stops/*/airport": "/id"});
        },
        expect![[
            r#"DefinitionDiff { references_added: [ CollectionName( "stops" CollectionName( "via" references_removed: [ CollectionName( "origin" CollectionName( "stops""#
        ]],
    );
    check(
        |flights| flights["query"] = json!(["/delay", "/hour"]),
        expect!["DefinitionDiff { query_added: [ Path(/hour) query_removed: [ Path(/origin)"],
    );
    check(
        |flights| flights["schema"]["properties"]["delay"]["type"] = json!(["integer", "null"]),
        expect![
            "DefinitionDiff { schema: true query_added: [ Path(/delay) query_removed: [ Path(/delay)"
        ],
    );
    check(
        |flights| flights["extends"] = json!([]),
        expect![[r#"DefinitionDiff { extends_removed: [ CollectionName( "journeys""#]],
    );
    check(
        |flights| flights["extends"][0]["identity"] = json!({"/carrier": "/id"}),
        expect![[
            r#"DefinitionDiff { extends_added: [ CollectionName( "journeys" extends_removed: [ CollectionName( "journeys""#
        ]],
    );
}

#[test]
fn what_a_super_extends_is_extended_too() {
    let mut changed = flights();
    let all = changed["collections"].as_array_mut().unwrap();
    all.push(json!({"collection": "things", "abstract": true, "identity": ["/name"]}));
    all[3]["extends"] = json!([{"collection": "things", "identity": {"/id": "/name"}}]);
    let changes = DefinitionDiff::between(&flights_of(&flights()), &flights_of(&changed));
    assert_eq!(changes.extends_added, ["things".parse().unwrap()]);
    assert!(changes.extends_removed.is_empty());
    let families = changes.changed_scopes(&"flights".parse().unwrap());
    assert_eq!(families, changes.extends_added);
}

/// Paths of a reference are ordered by the target's identity, whose order determines aliases.
#[test]
fn another_order_of_an_identity_changes_references_to_it() {
    let mut changed = flights();
    changed["collections"][2]["identity"] = json!(["/maker", "/tail"]);
    let changes = DefinitionDiff::between(&flights_of(&flights()), &flights_of(&changed));
    assert_eq!(changes.references_added, ["plane".parse().unwrap()]);
    assert_eq!(changes.references_removed, changes.references_added);
    assert!(!changes.identity && changes.has_changed_references());
}

#[test]
fn abstractness_cannot_change() {
    let mut changed = flights();
    changed["collections"][3] = json!({"collection": "journeys", "identity": ["/id"], "schema": {"required": ["id"], "properties": {"id": {"type": "string"}}}});
    changed["collections"][0]["extends"] = json!([]);
    let of = |file: &Value| {
        let all = definitions(file);
        Collection::compile(&all, all.get(&"journeys".parse().unwrap()).unwrap()).unwrap()
    };
    let changes = DefinitionDiff::between(&of(&flights()), &of(&changed));
    expect![
        "/abstract: whether a collection is abstract cannot be changed: declare one with another \
         name"
    ]
    .assert_eq(&changes.rejections()[0].to_string());
}
