//! Identity changes and their cascades.

use egret_documents::core::decision::Condition;
use serde_json::json;

use crate::world::{World, error_code};

/// Schools are organizations; the identity of a section contains its school, that of a student's
/// seat its section.
const SCHOOLS: &str = r#"{"collections": [
    {"collection": "organizations", "abstract": true, "identity": ["/organization"]},
    {"collection": "schools", "identity": ["/school"], "identity_mutable": true,
        "extends": [{"collection": "organizations", "identity": {"/school": "/organization"}}],
        "schema": {"type": "object", "properties": {"school": {"type": "string"}, "name": {"type": "string"}}, "required": ["school"]}},
    {"collection": "sections", "identity": ["/school", "/section"],
        "references": [{"name": "school", "to": "schools", "paths": {"/school": "/school"}}],
        "schema": {"type": "object", "properties": {"school": {"type": "string"}, "section": {"type": "integer"}}, "required": ["school", "section"]}},
    {"collection": "seats", "identity": ["/seat"],
        "references": [
            {"name": "section", "to": "sections", "paths": {"/school": "/school", "/section": "/section"}},
            {"name": "paid-by", "to": "organizations", "paths": {"/paidBy/*/organization": "/organization"}}],
        "schema": {"type": "object", "properties": {"seat": {"type": "integer"}, "school": {"type": "string"}, "section": {"type": "integer"},
            "paidBy": {"type": "array", "items": {"type": "object", "properties": {"organization": {"type": "string"}}}}},
            "required": ["seat"]}}
]}"#;

#[tokio::test]
async fn referring_documents_and_their_identities_follow_a_rename() {
    for version in [15, 18] {
        let world = World::new(version).await;
        world.apply(SCHOOLS).await.unwrap();
        let school = world.create("schools", &json!({"school": "old"})).await;
        let section = world.create("sections", &json!({"school": "old", "section": 1})).await;
        let seat =
            json!({"seat": 1, "school": "old", "section": 1, "paidBy": [{"organization": "old"}]});
        let seat = world.create("seats", &seat).await;
        let payer = json!({"seat": 2, "paidBy": [{"organization": "old"}]});
        let payer = world.create("seats", &payer).await;

        let now = json!({"school": "new", "name": "a new name"});
        let changed = world.put("schools", school.id, &now, Condition::Always).await.unwrap();
        assert_eq!((changed.id, changed.version), (school.id, 2));
        assert_eq!(world.get("schools", school.id).await.unwrap(), now);
        assert_eq!(
            world.get("sections", section.id).await.unwrap(),
            json!({"school": "new", "section": 1})
        );
        let moved =
            json!({"seat": 1, "school": "new", "section": 1, "paidBy": [{"organization": "new"}]});
        assert_eq!(world.get("seats", seat.id).await.unwrap(), moved);
        assert_eq!(
            world.get("seats", payer.id).await.unwrap(),
            json!({"seat": 2, "paidBy": [{"organization": "new"}]})
        );

        // The old identities are free and have no document; the new ones are found.
        let refers =
            |organization: &str| json!({"seat": 3, "paidBy": [{"organization": organization}]});
        assert_eq!(error_code(world.post("seats", &refers("old")).await), "unresolved_reference");
        world.create("seats", &refers("new")).await;
        let same = world.create("sections", &json!({"school": "new", "section": 1})).await;
        assert_eq!((same.id, same.version), (section.id, 2));
        assert_eq!(error_code(world.delete("schools", school.id).await), "still_referenced");
        let kinds = "SELECT string_agg(left(kind, 1), '' ORDER BY position) FROM egret.document_change WHERE position BETWEEN 5 AND 8";
        let kinds: String = world.client.query_one(kinds, &[]).await.unwrap().get(0);
        assert_eq!(kinds, "iiuu");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_taken_identity_is_rejected_without_effect() {
    let world = World::new(18).await;
    world.apply(SCHOOLS).await.unwrap();
    let one = world.create("schools", &json!({"school": "one"})).await;
    world.create("schools", &json!({"school": "two"})).await;
    for school in ["one", "two"] {
        world.create("sections", &json!({"school": school, "section": 1})).await;
    }
    let two = world.put("schools", one.id, &json!({"school": "two"}), Condition::Always).await;
    assert_eq!(error_code(two), "identity_conflict");
    assert_eq!(
        world.query_number("SELECT coalesce(max(position), 0) FROM egret.document_feed").await,
        4
    );
    // A section's own request does not rename it if its identity is unchanged.
    let section = world.create("sections", &json!({"school": "one", "section": 1})).await;
    let other = world
        .put("sections", section.id, &json!({"school": "two", "section": 1}), Condition::Always)
        .await;
    assert_eq!(error_code(other), "identity_immutable");
    world.stop().await;
}

#[tokio::test]
async fn a_reference_that_shares_a_place_and_cannot_follow_keeps_the_identity() {
    let file = r#"{"collections": [
        {"collection": "cities", "identity": ["/city"], "identity_mutable": true,
            "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
        {"collection": "teams", "identity": ["/team"],
            "schema": {"type": "object", "properties": {"team": {"type": "string"}}, "required": ["team"]}},
        {"collection": "games", "identity": ["/game"], "references": [
            {"name": "city", "to": "cities", "paths": {"/home": "/city"}},
            {"name": "team", "to": "teams", "paths": {"/home": "/team"}}],
            "schema": {"type": "object", "properties": {"game": {"type": "integer"}, "home": {"type": "string"}}, "required": ["game"]}}]}"#;
    let world = World::new(18).await;
    world.apply(file).await.unwrap();
    let city = world.create("cities", &json!({"city": "Boston"})).await;
    world.create("teams", &json!({"team": "Boston"})).await;
    let game = world.create("games", &json!({"game": 1, "home": "Boston"})).await;
    let refused = world.put("cities", city.id, &json!({"city": "Denver"}), Condition::Always).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`teams` has no document with /team \"Denver\": create it first, or omit the reference"
    );
    world.create("teams", &json!({"team": "Denver"})).await;
    world.put("cities", city.id, &json!({"city": "Denver"}), Condition::Always).await.unwrap();
    assert_eq!(world.get("games", game.id).await.unwrap(), json!({"game": 1, "home": "Denver"}));
    let boston = world.create("teams", &json!({"team": "Boston"})).await;
    world.delete("teams", boston.id).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_self_reference_follows_a_rename_of_its_document() {
    let file = r#"{"collections": [
        {"collection": "persons", "identity": ["/name"], "identity_mutable": true,
            "references": [{"name": "friend", "to": "persons", "paths": {"/friend": "/name"}}],
            "schema": {"type": "object", "properties": {"name": {"type": "string"}, "friend": {"type": "string"}}, "required": ["name"]}}]}"#;
    let world = World::new(18).await;
    world.apply(file).await.unwrap();
    let own = world.create("persons", &json!({"name": "Ann"})).await;
    world
        .put("persons", own.id, &json!({"name": "Ann", "friend": "Ann"}), Condition::Always)
        .await
        .unwrap();
    // A reference to itself is taken from the body sent.
    let other = world
        .put("persons", own.id, &json!({"name": "Bea", "friend": "Ann"}), Condition::Always)
        .await;
    assert_eq!(other.unwrap().version, 3);
    assert_eq!(
        world.get("persons", own.id).await.unwrap(),
        json!({"name": "Bea", "friend": "Bea"})
    );
    world.stop().await;
}
