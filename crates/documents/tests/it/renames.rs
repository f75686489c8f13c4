//! Identity changes and their cascades.

use egret_base::CodedError;
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

/// An offering has its school twice: as its own, and as that of its session. A section names both
/// by one path. `session` and `school` sort such that the offering's own school changes first.
fn offerings(equal: &str) -> String {
    r#"{"collections": [
    {"collection": "schools", "identity": ["/id"], "identity_mutable": true,
        "schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}},
    {"collection": "sessions", "identity": ["/school", "/name"], "identity_mutable": true,
        "references": [{"name": "school", "to": "schools", "paths": {"/school": "/id"}}],
        "schema": {"type": "object", "required": ["school", "name"],
            "properties": {"school": {"type": "integer"}, "name": {"type": "string"}}}},
    {"collection": "offerings", "identity": ["/code", "/school/id", "/session/school", "/session/name"], EQUAL
        "references": [
            {"name": "school", "to": "schools", "paths": {"/school/id": "/id"}},
            {"name": "session", "to": "sessions", "paths": {"/session/school": "/school", "/session/name": "/name"}}],
        "schema": {"type": "object", "required": ["code", "school", "session"], "properties": {"code": {"type": "string"},
            "school": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
            "session": {"type": "object", "required": ["school", "name"],
                "properties": {"school": {"type": "integer"}, "name": {"type": "string"}}}}}},
    {"collection": "sections", "identity": ["/section"],
        "references": [
            {"name": "school", "to": "schools", "paths": {"/school": "/id"}},
            {"name": "offering", "to": "offerings", "paths": [["/code", "/code"], ["/school", "/school/id"],
                ["/school", "/session/school"], ["/session", "/session/name"]]}],
        "schema": {"type": "object", "required": ["section", "school"], "properties": {"section": {"type": "integer"},
            "code": {"type": "string"}, "school": {"type": "integer"}, "session": {"type": "string"}}}}
    ]}"#
    .replace("EQUAL", equal)
}

const EQUAL: &str = r#""equal": [["/school/id", "/session/school"]],"#;

fn offering(school: i32) -> serde_json::Value {
    json!({"code": "x", "school": {"id": school}, "session": {"school": school, "name": "fall"}})
}

#[tokio::test]
async fn a_path_that_names_several_parts_follows_a_rename() {
    for equal in ["", EQUAL] {
        let world = World::new(18).await;
        world.apply(&offerings(equal)).await.unwrap();
        let school = world.create("schools", &json!({"id": 1})).await;
        world.create("sessions", &json!({"school": 1, "name": "fall"})).await;
        let unresolved = json!({"section": 1, "school": 1, "code": "x", "session": "fall"});
        assert_eq!(error_code(world.post("sections", &unresolved).await), "unresolved_reference");
        let taught = world.create("offerings", &offering(1)).await;
        let section = world.create("sections", &unresolved).await;
        // Without the parts of its own, a section refers to no offering.
        let free = world.create("sections", &json!({"section": 2, "school": 1})).await;

        world.put("schools", school.id, &json!({"id": 2}), Condition::Always).await.unwrap();
        assert_eq!(world.get("offerings", taught.id).await.unwrap(), offering(2));
        let moved = json!({"section": 1, "school": 2, "code": "x", "session": "fall"});
        assert_eq!(world.get("sections", section.id).await.unwrap(), moved);
        let moved = json!({"section": 2, "school": 2});
        assert_eq!(world.get("sections", free.id).await.unwrap(), moved);
        let same = world.create("offerings", &offering(2)).await;
        assert_eq!(same.id, taught.id);
        assert_eq!(error_code(world.delete("offerings", taught.id).await), "still_referenced");
        world.stop().await;
    }
}

#[tokio::test]
async fn parts_of_one_path_may_change_one_after_the_other() {
    let world = World::new(18).await;
    let without_school = offerings(r#""identity_mutable": true,"#).replace(
        r#"{"name": "school", "to": "schools", "paths": {"/school": "/id"}},
            {"name": "offering""#,
        r#"{"name": "offering""#,
    );
    world.apply(&without_school).await.unwrap();
    let school = world.create("schools", &json!({"id": 1})).await;
    world.create("sessions", &json!({"school": 1, "name": "spring"})).await;
    let mut body = offering(1);
    body["session"]["name"] = json!("spring");
    let taught = world.create("offerings", &body).await;
    // This session comes after the offering, so the offering's own school changes before its.
    world.create("sessions", &json!({"school": 1, "name": "fall"})).await;
    world.put("offerings", taught.id, &offering(1), Condition::Always).await.unwrap();
    let section = json!({"section": 1, "school": 1, "code": "x", "session": "fall"});
    let section = world.create("sections", &section).await;
    world.put("schools", school.id, &json!({"id": 2}), Condition::Always).await.unwrap();
    assert_eq!(world.get("offerings", taught.id).await.unwrap(), offering(2));
    let moved = json!({"section": 1, "school": 2, "code": "x", "session": "fall"});
    assert_eq!(world.get("sections", section.id).await.unwrap(), moved);
    world.check_tables().await;
    world.stop().await;
}

#[tokio::test]
async fn one_path_cannot_become_two_values() {
    let world = World::new(18).await;
    world.apply(&offerings("")).await.unwrap();
    for school in [1, 2] {
        world.create("schools", &json!({"id": school})).await;
    }
    let session = world.create("sessions", &json!({"school": 1, "name": "fall"})).await;
    world.create("offerings", &offering(1)).await;
    let section = json!({"section": 1, "school": 1, "code": "x", "session": "fall"});
    world.create("sections", &section).await;
    let moved = json!({"school": 2, "name": "fall"});
    let error = world.put("sessions", session.id, &moved, Condition::Always).await.unwrap_err();
    assert_eq!(error.code(), "validation_failed");
    let message = error.to_string();
    for part in ["`sections`", "1 by `/school/id`", "2 by `/session/school`"] {
        assert!(message.contains(part), "{message}");
    }
    world.stop().await;
}

#[tokio::test]
async fn equal_places_are_checked_on_write_and_for_stored_documents() {
    let world = World::new(18).await;
    world.apply(&offerings("")).await.unwrap();
    for school in [1, 2] {
        world.create("schools", &json!({"id": school})).await;
        world.create("sessions", &json!({"school": school, "name": "fall"})).await;
    }
    let mut body = offering(1);
    body["session"]["school"] = json!(2);
    let different = world.create("offerings", &body).await;
    let error = world.apply(&offerings(EQUAL)).await.unwrap_err();
    assert_eq!(error.code(), "definition_invalid");
    assert!(error.to_string().contains(&different.id.to_string()), "{error}");
    world.delete("offerings", different.id).await.unwrap();
    world.apply(&offerings(EQUAL)).await.unwrap();
    let error = world.post("offerings", &body).await.unwrap_err();
    assert_eq!(error.code(), "validation_failed");
    let what = "/session/school: it is 2, but must equal `/school/id`, which is 1";
    assert!(error.to_string().contains(what), "{error}");
    world.create("offerings", &offering(1)).await;
    world.stop().await;
}
